// Mixtures of heads, point by point, see overt/smoothing/selection/bank/mixture.py: the heads' risks, summed over blocks, and mixtures by
// weights that are interpolated between the middles of blocks, or follow the risks of the past.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr int LANES = WIDTH<double>;
// CHUNK: points processed at a time, so that the outputs of all heads stay in the cache.
constexpr Index CHUNK = 128;
// NEGLIGIBLE: a head whose weights are all smaller in a chunk is skipped there; it would change no digit of the sum.
constexpr double NEGLIGIBLE = 1e-30;

// Risks of one head in units of the noise, with the premium on its degrees of freedom; 0 where the noise is infinite.
void compute_risks(const Bank& bank, const double* observed, const double* sharpness, double premium, Index head, Index first,
                   Index count, double* risks) {
    const double *values = bank.values + head * bank.count + first, *slopes = bank.slopes + head * bank.count + first;
    for (Index i = 0; i < count; i++) {
        double off = (values[i] - observed[first + i]) * sharpness[first + i];
        double fading = max_of(slopes[i], 0.0) * max_of(1 - 2 * slopes[i], 0.0);
        double risk = off * off + 2 * slopes[i] - 1 + 2 * premium * fading;
        risks[i] = sharpness[first + i] > 0 ? risk : 0;
    }
}

// The position of a chunk's points between the middles of blocks.
struct Lines {
    struct Run {
        Index first, stop, left, right;
    };
    Run runs[CHUNK];
    int count = 0;
    double part[CHUNK + LANES];  // from left to right

    Lines(Index first, Index points, Index step, Index blocks) {
        for (Index i = 0; i < points; i++) {
            double position = static_cast<double>(first + i) - 0.5 * static_cast<double>(step - 1),
                   width = static_cast<double>(step);
            position = min_of(max_of(position / width, 0.0), static_cast<double>(blocks - 1));
            Index left = static_cast<Index>(position);
            part[i] = position - static_cast<double>(left);
            if (count && runs[count - 1].left == left) {
                runs[count - 1].stop = i + 1;
            } else {
                runs[count++] = {i, i + 1, left, min_of(left + 1, blocks - 1)};
            }
        }
        for (Index i = points; i < CHUNK + LANES; i++) part[i] = 0;
    }

    // Whether all numbers between those of a table (blocks,) are negligible; NaN is not.
    bool negligible(const double* table) const {
        bool small = table[runs[count - 1].right] <= NEGLIGIBLE;
        for (int r = 0; r < count; r++) small = small && table[runs[r].left] <= NEGLIGIBLE;
        return small;
    }

    // Interpolates a table (blocks,); undefined beyond the points.
    void interpolate(const double* table, double* output) const {
        for (int r = 0; r < count; r++) {
            Vector<double> left = broadcast(table[runs[r].left]), rise = broadcast(table[runs[r].right]) - left;
            for (Index i = runs[r].first; i < runs[r].stop; i += LANES)
                store<double>(output + i, multiply_add(load(part + i), rise, left));
        }
    }
};

// The sums of a chunk's mixture.
struct Chunk {
    static constexpr Index SIZE = CHUNK + LANES;
    double* weights;  // (heads, SIZE)
    Index* heads;     // the heads with weights that count, and their number
    Index counted = 0;
    double stiffness[SIZE], values[CHUNK] = {}, slopes[CHUNK] = {}, spread[CHUNK] = {}, deviation[CHUNK] = {};
};

void compute_weights(const Bank& bank, const Shares& shares, Index first, Index points, Chunk& chunk) {
    Lines lines(first, points, shares.step, shares.blocks);
    for (Index h = 0; h < bank.heads; h++) {
        if (lines.negligible(shares.weights + h * shares.blocks)) continue;
        lines.interpolate(shares.weights + h * shares.blocks, chunk.weights + h * Chunk::SIZE);
        chunk.heads[chunk.counted++] = h;
    }
    lines.interpolate(shares.stiffness, chunk.stiffness);
}

void compute_weights(const Bank& bank, const PastShares& shares, Index first, Index points, Chunk& chunk) {
    double highest[Chunk::SIZE], total[Chunk::SIZE] = {};
    for (Index i = 0; i < Chunk::SIZE; i++) highest[i] = -__builtin_inf(), chunk.stiffness[i] = 0;
    for (Index i = 0; i < points; i++) chunk.stiffness[i] = 2 * shares.coldness[first + i];
    for (Index h = 0; h < bank.heads; h++) {
        const double *before = shares.before + h * shares.blocks, *within = shares.within + h * bank.count + first;
        double* scores = chunk.weights + h * Chunk::SIZE;
        for (Index i = 0; i < Chunk::SIZE; i++) scores[i] = 0;
        for (Index i = 0; i < points; i++) {
            scores[i] = -(before[(first + i) / shares.step] + within[i]) * shares.coldness[first + i];
            highest[i] = max_of(highest[i], scores[i]);
        }
    }
    for (Index h = 0; h < bank.heads; h++) {
        double* weights = chunk.weights + h * Chunk::SIZE;
        for (Index i = 0; i < points; i += LANES) {
            Vector<double> exponentiated = exponential<double>(load(weights + i) - load(highest + i));
            store<double>(weights + i, exponentiated);
            store<double>(total + i, load(total + i) + exponentiated);
        }
    }
    for (Index h = 0; h < bank.heads; h++) {
        double* weights = chunk.weights + h * Chunk::SIZE;
        bool small = true;
        for (Index i = 0; i < points; i++) weights[i] /= total[i], small = small && weights[i] <= NEGLIGIBLE;
        if (!small) chunk.heads[chunk.counted++] = h;
    }
}

// Requires the chunk's weights; its sums are 0 before.
void mix_heads(const Bank& bank, Index first, Index points, Chunk& chunk) {
    for (Index c = 0; c < chunk.counted; c++) {
        Index h = chunk.heads[c];
        const double *values = bank.values + h * bank.count + first, *slopes = bank.slopes + h * bank.count + first;
        const double* weights = chunk.weights + h * Chunk::SIZE;
        for (Index i = 0; i < points; i++) {
            chunk.values[i] += weights[i] * values[i];
            chunk.slopes[i] += weights[i] * slopes[i];
        }
    }
    for (Index c = 0; c < chunk.counted; c++) {
        Index h = chunk.heads[c];
        const double *values = bank.values + h * bank.count + first, *weights = chunk.weights + h * Chunk::SIZE;
        for (Index i = 0; i < points; i++) {
            double off = values[i] - chunk.values[i];
            chunk.spread[i] += weights[i] * off * off;
        }
        if (!bank.variances) continue;
        const double* variances = bank.variances + h * bank.count + first;
        for (Index i = 0; i < points; i++) {
            double off = values[i] - chunk.values[i];
            chunk.deviation[i] += weights[i] * __builtin_sqrt(variances[i] + off * off);
        }
    }
}

void write(const Mixtures& to, const double* sharpness, Index points, Index position, const Chunk& chunk) {
    for (Index i = 0; i < points; i++) {
        to.values[position + i] = chunk.values[i];
        to.slopes[position + i] = chunk.slopes[i] + chunk.stiffness[i] * chunk.spread[i] * sharpness[i] * sharpness[i];
        if (to.variances) to.variances[position + i] = chunk.deviation[i] * chunk.deviation[i];
    }
}

template <class Weights>
void blend_by(const Bank& bank, const double* sharpness, const Weights* shares, const Mixtures& to, int threads) {
    Index chunks = (bank.count + CHUNK - 1) / CHUNK, size = bank.heads * Chunk::SIZE;
    Scratch<double> memory(size * threads);
    Scratch<Index> counted(bank.heads * threads);
    divide_items(chunks, threads, [&](Index c, int thread) {
        Index first = c * CHUNK, points = min_of(CHUNK, bank.count - first);
        for (int s = 0; s < to.count; s++) {
            Chunk chunk;
            chunk.weights = memory.data + size * thread, chunk.heads = counted.data + bank.heads * thread;
            compute_weights(bank, shares[s], first, points, chunk);
            mix_heads(bank, first, points, chunk);
            write(to, sharpness + first, points, s * bank.count + first, chunk);
        }
    });
}

}  // namespace

void risks(const Risks& task) {
    const Bank& bank = task.bank;
    Index blocks = (bank.count + task.step - 1) / task.step, together = (CHUNK + task.step - 1) / task.step * task.step;
    Scratch<double> memory(together * task.threads);
    divide_items(bank.heads, task.threads, [&](Index h, int thread) {
        double *risks = memory.data + together * thread, *sums = task.sums + h * (task.running ? bank.count : blocks);
        for (Index first = 0; first < bank.count; first += together) {
            Index points = min_of(together, bank.count - first);
            compute_risks(bank, task.observed, task.sharpness, task.premium, h, first, points, risks);
            for (Index start = 0; start < points; start += task.step) {
                double total = 0;
                for (Index i = start; i < min_of(start + task.step, points); i++) {
                    total += risks[i];
                    if (task.running) *sums++ = total;
                }
                if (!task.running) *sums++ = total;
            }
        }
    });
}

void blend(const Blend& task) {
    if (task.past) {
        blend_by(task.bank, task.sharpness, task.past, task.mixtures, task.threads);
    } else {
        blend_by(task.bank, task.sharpness, task.around, task.mixtures, task.threads);
    }
}

}  // namespace overt::OVERT_LEVEL
