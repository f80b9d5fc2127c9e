// Heads mixed point by point, see overt/smoothing/mixture.py: their risks, added up in blocks, and the mixtures by weights that lie on
// straight lines between the middles of blocks, or follow the risks of the past.
#include <omp.h>

#include "level.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr int LANES = WIDTH<double>;
// Points taken at a time, so that what all heads say of them stays in a processor's cache.
constexpr Index CHUNK = 128;

// Risks of one head in units of the noise; nothing where it is infinite.
void lay_out_risks(const Bank& bank, const double* observed, const double* sharpness, Index head, Index first, Index count, double* risks) {
    const double *values = bank.values + head * bank.count + first, *slopes = bank.slopes + head * bank.count + first;
    for (Index i = 0; i < count; i++) {
        double off = (values[i] - observed[first + i]) * sharpness[first + i];
        double risk = off * off + 2 * slopes[i] - 1;
        risks[i] = sharpness[first + i] > 0 ? risk : 0;
    }
}

// Where a chunk's points lie between the middles of blocks.
struct Lines {
    struct Run {
        Index first, stop, left, right;
    };
    Run runs[CHUNK];
    int count = 0;
    double part[CHUNK + LANES];  // from left to right

    Lines(Index first, Index points, Index step, Index blocks) {
        for (Index i = 0; i < points; i++) {
            double place = static_cast<double>(first + i) - 0.5 * static_cast<double>(step - 1), width = static_cast<double>(step);
            place = least(most(place / width, 0.0), static_cast<double>(blocks - 1));
            Index left = static_cast<Index>(place);
            part[i] = place - static_cast<double>(left);
            if (count && runs[count - 1].left == left) {
                runs[count - 1].stop = i + 1;
            } else {
                runs[count++] = {i, i + 1, left, least(left + 1, blocks - 1)};
            }
        }
        for (Index i = points; i < CHUNK + LANES; i++) part[i] = 0;
    }

    // What lies on the lines of a table (blocks,); beyond the points, anything.
    void follow(const double* table, double* found) const {
        for (int r = 0; r < count; r++) {
            Vector<double> left = every(table[runs[r].left]), rise = every(table[runs[r].right]) - left;
            for (Index i = runs[r].first; i < runs[r].stop; i += LANES) store<double>(found + i, fused(load(part + i), rise, left));
        }
    }
};

// A mixture of a chunk's points in the making.
struct Chunk {
    static constexpr Index ROOM = CHUNK + LANES;
    double* weights;  // (heads, ROOM)
    double stiffness[ROOM], values[CHUNK] = {}, slopes[CHUNK] = {}, spread[CHUNK] = {}, deviation[CHUNK] = {};
};

void weigh(const Bank& bank, const Shares& shares, Index first, Index points, Chunk& chunk) {
    Lines lines(first, points, shares.step, shares.blocks);
    for (Index h = 0; h < bank.heads; h++) lines.follow(shares.weights + h * shares.blocks, chunk.weights + h * Chunk::ROOM);
    lines.follow(shares.stiffness, chunk.stiffness);
}

void weigh(const Bank& bank, const PastShares& shares, Index first, Index points, Chunk& chunk) {
    double highest[Chunk::ROOM], total[Chunk::ROOM] = {};
    for (Index i = 0; i < Chunk::ROOM; i++) highest[i] = -__builtin_inf(), chunk.stiffness[i] = 0;
    for (Index i = 0; i < points; i++) chunk.stiffness[i] = 2 * shares.coldness[first + i];
    for (Index h = 0; h < bank.heads; h++) {
        const double *before = shares.before + h * shares.blocks, *within = shares.within + h * bank.count + first;
        double* scores = chunk.weights + h * Chunk::ROOM;
        for (Index i = 0; i < Chunk::ROOM; i++) scores[i] = 0;
        for (Index i = 0; i < points; i++) {
            scores[i] = -(before[(first + i) / shares.step] + within[i]) * shares.coldness[first + i];
            highest[i] = most(highest[i], scores[i]);
        }
    }
    for (Index h = 0; h < bank.heads; h++) {
        double* weights = chunk.weights + h * Chunk::ROOM;
        for (Index i = 0; i < points; i += LANES) {
            Vector<double> grown = exponential<double>(load(weights + i) - load(highest + i));
            store<double>(weights + i, grown);
            store<double>(total + i, load(total + i) + grown);
        }
    }
    for (Index h = 0; h < bank.heads; h++)
        for (Index i = 0; i < points; i++) chunk.weights[h * Chunk::ROOM + i] /= total[i];
}

// The chunk's weights are given; its sums are 0.
void mix(const Bank& bank, Index first, Index points, Chunk& chunk) {
    for (Index h = 0; h < bank.heads; h++) {
        const double *values = bank.values + h * bank.count + first, *slopes = bank.slopes + h * bank.count + first;
        const double* weights = chunk.weights + h * Chunk::ROOM;
        for (Index i = 0; i < points; i++) {
            chunk.values[i] += weights[i] * values[i];
            chunk.slopes[i] += weights[i] * slopes[i];
        }
    }
    for (Index h = 0; h < bank.heads; h++) {
        const double *values = bank.values + h * bank.count + first, *variances = bank.variances + h * bank.count + first;
        const double* weights = chunk.weights + h * Chunk::ROOM;
        for (Index i = 0; i < points; i++) {
            double off = values[i] - chunk.values[i], square = off * off;
            chunk.spread[i] += weights[i] * square;
            chunk.deviation[i] += weights[i] * __builtin_sqrt(variances[i] + square);
        }
    }
}

void write(const Mixtures& to, const double* sharpness, Index points, Index place, const Chunk& chunk) {
    for (Index i = 0; i < points; i++) {
        to.values[place + i] = chunk.values[i];
        to.slopes[place + i] = chunk.slopes[i] + chunk.stiffness[i] * chunk.spread[i] * sharpness[i] * sharpness[i];
        to.variances[place + i] = chunk.deviation[i] * chunk.deviation[i];
    }
}

template <class Given>
void blend_by(const Bank& bank, const double* sharpness, const Given* shares, const Mixtures& to, int threads) {
    Index chunks = (bank.count + CHUNK - 1) / CHUNK, room = bank.heads * Chunk::ROOM;
    Scratch<double> memory(room * threads);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Index c = 0; c < chunks; c++) {
        Index first = c * CHUNK, points = least(CHUNK, bank.count - first);
        for (int s = 0; s < to.count; s++) {
            Chunk chunk;
            chunk.weights = memory.data + room * omp_get_thread_num();
            weigh(bank, shares[s], first, points, chunk);
            mix(bank, first, points, chunk);
            write(to, sharpness + first, points, s * bank.count + first, chunk);
        }
    }
}

}  // namespace

void risks(const Risks& task) {
    const Bank& bank = task.bank;
    Index blocks = (bank.count + task.step - 1) / task.step, together = (CHUNK + task.step - 1) / task.step * task.step;
    Scratch<double> memory(together * task.threads);
#pragma omp parallel for schedule(static) num_threads(task.threads)
    for (Index h = 0; h < bank.heads; h++) {
        double *room = memory.data + together * omp_get_thread_num(), *sums = task.sums + h * (task.running ? bank.count : blocks);
        for (Index first = 0; first < bank.count; first += together) {
            Index points = least(together, bank.count - first);
            lay_out_risks(bank, task.observed, task.sharpness, h, first, points, room);
            for (Index start = 0; start < points; start += task.step) {
                double total = 0;
                for (Index i = start; i < least(start + task.step, points); i++) {
                    total += room[i];
                    if (task.running) *sums++ = total;
                }
                if (!task.running) *sums++ = total;
            }
        }
    }
}

void blend(const Blend& task) {
    if (task.past) {
        blend_by(task.bank, task.sharpness, task.past, task.mixtures, task.threads);
    } else {
        blend_by(task.bank, task.sharpness, task.around, task.mixtures, task.threads);
    }
}

}  // namespace overt::OVERT_LEVEL
