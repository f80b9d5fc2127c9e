// Attention whose scores compare patches. For each lag the squared differences of points with that lag are computed once; summed under
// the profile they are the distances of all pairs with that lag.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// FAINT: a row with a smaller sum of weights has no digits left, since all its keys are too far away.
constexpr double FAINT = 0x1p-900;
// ABREAST: vectors of distances summed at once, so that sums are independent and each weight of the profile is read once for all.
constexpr int ABREAST = 4;
static_assert(BLOCK % (ABREAST * LANES) == 0, "blocks are whole strides");

// The weights of a patch without the zeros at its ends.
struct Profile {
    const double* weights;
    Index first, taps;  // `taps` of them, from index `first` on
    bool flat;          // all equal, and so many that doubling is faster

    explicit Profile(const Patch& task) : weights(task.profile), first(0), taps(2 * task.half + 1), flat(true) {
        constexpr Index MANY = 16;
        while (taps && weights[first] == 0) first++, taps--;
        while (taps && weights[first + taps - 1] == 0) taps--;
        for (Index m = 1; m < taps; m++) flat = flat && weights[first + m] == weights[first];
        flat = flat && taps >= MANY;
    }
};

// The sizes of a thread's arrays.
struct Sizes {
    Index reach, padded, squares, ahead = Sums::COLUMNS * Sums::apart(BLOCK), behind, all;

    Sizes(const Patch& task, Index reaching) : reach(reaching) {
        padded = reach + 4 * task.half + LANES;
        squares = BLOCK + 2 * task.half + LANES;
        behind = Sums::COLUMNS * reach;
        all = padded + reach + squares + 4 * BLOCK + task.bandwidths * (ahead + behind);
    }
};

// A thread's part of the series: position p is point start + p.
struct Tile {
    const Patch& task;
    const Profile& profile;
    const Sizes& sizes;
    Index start = 0;
    double *values, *key_weights, *squares, *distances, *similar, *sums;

    Tile(const Patch& arguments, const Profile& patch, const Sizes& of, double* memory)
        : task(arguments), profile(patch), sizes(of) {
        values = memory + task.half;
        key_weights = memory + sizes.padded;
        squares = key_weights + sizes.reach;
        distances = squares + sizes.squares;
        similar = distances + 2 * BLOCK;
        sums = similar + 2 * BLOCK;
    }
    double* sums_of(Index bandwidth) const { return sums + bandwidth * (sizes.ahead + sizes.behind); }
    Sums ahead(Index bandwidth) const { return {sums_of(bandwidth), Sums::apart(BLOCK)}; }
    Sums behind(Index bandwidth, Index position) const {
        return Sums(sums_of(bandwidth) + sizes.ahead, sizes.reach).from(position);
    }
};

void begin(Tile& tile, Index first) {
    const Patch& task = tile.task;
    tile.start = max_of<Index>(first - task.window, 0) / BLOCK * BLOCK;
    Index there = min_of(task.count + 2 * task.half - tile.start, tile.sizes.padded);
    for (Index p = 0; p < tile.sizes.padded; p++) tile.values[p - task.half] = p < there ? task.padded[tile.start + p] : 0;
    // Points beyond the end have no weight.
    there = task.count - tile.start;
    for (Index p = 0; p < tile.sizes.reach; p++)
        tile.key_weights[p] = p >= there ? 0 : task.key_weights ? task.key_weights[tile.start + p] : 1;
    for (Index b = 0; b < task.bandwidths; b++) clear(tile.behind(b, 0).total, tile.sizes.behind);
}

void compute_squares(const double* values, Index half, Index lag, double* squares) {
    for (Index p = 0; p < BLOCK + 2 * half; p += LANES) {
        Vector<double> step = load(values - half + p) - load(values - half + p + lag);
        store<double>(squares + p, step * step);
    }
}

void sum_squares(double* squares, const Profile& profile, double* distances) {
    const double* weights = profile.weights + profile.first;
    for (Index i = 0; i < BLOCK; i += ABREAST * LANES) {
        Vector<double> sums[ABREAST] = {};
        for (Index m = 0; m < profile.taps; m++) {
            Vector<double> g = broadcast(weights[m]);
#pragma GCC unroll 4
            for (int a = 0; a < ABREAST; a++) sums[a] = multiply_add(g, load(squares + i + m + a * LANES), sums[a]);
        }
        for (int a = 0; a < ABREAST; a++) store<double>(distances + i + a * LANES, sums[a]);
    }
}

// Equal weights: sums of two neighbours, of these sums two, and so on; those whose lengths add up to the patch are added, end to end.
// Nothing is subtracted, so a large square leaves no error after it has left the patch.
void sum_by_doubling(double* sums, const Profile& profile, double* distances) {
    clear(distances, BLOCK);
    Index length = 1, position = 0;
    for (Index rest = profile.taps; rest; rest /= 2, length *= 2) {
        if (rest % 2) {
            for (Index i = 0; i < BLOCK; i += LANES) store<double>(distances + i, load(distances + i) + load(sums + position + i));
            position += length;
        }
        if (rest == 1) break;
        for (Index i = 0; i < BLOCK + profile.taps - 2 * length; i += LANES)
            store<double>(sums + i, load(sums + i) + load(sums + length + i));
    }
    Vector<double> weight = broadcast(profile.weights[profile.first]);
    for (Index i = 0; i < BLOCK; i += LANES) store<double>(distances + i, load(distances + i) * weight);
}

// At lags within a patch, a change of x_i changes the patches of i's neighbours too.
void add_bends(const Tile& tile, Index position, Index lag, const double* similar, const Sums& ahead, const Sums& behind) {
    const double *x = tile.values + position, *key_weights = tile.key_weights + position;
    const double* g = tile.task.profile + tile.task.half;
    Vector<double> before = broadcast(g[-lag]), after = broadcast(g[lag]);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> alike = load(similar + i), here = load(x + i), there = load(x + lag + i), step = there - here;
        Vector<double> bend = alike * load(key_weights + lag + i) * before * (load(x - lag + i) - here);
        store<double>(ahead.bend + i, load(ahead.bend + i) + bend);
        store<double>(ahead.tilt + i, multiply_add(bend, step, load(ahead.tilt + i)));
        bend = alike * load(key_weights + i) * after * (load(x + 2 * lag + i) - there);
        store<double>(behind.bend + lag + i, load(behind.bend + lag + i) + bend);
        store<double>(behind.tilt + lag + i, load(behind.tilt + lag + i) - bend * step);
    }
}

// Exponentials of one bandwidth's scores, from `distances`, or by squaring those of the next larger bandwidth in `similar`.
void compare(const double* distances, double rate, int squarings, double* similar) {
    if (squarings == 0) return compute_similarities(distances, Similarity(rate), similar);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> alike = load(similar + i);
        for (int s = 0; s < squarings; s++) alike *= alike;
        store<double>(similar + i, alike);
    }
}

// How often the exponentials of the next larger bandwidth are squared to give this one's; 0 where they are recomputed. Each squaring
// doubles an error: four in a row are allowed.
int squarings_to(const Patch& task, Index bandwidth, int before) {
    if (bandwidth + 1 == task.bandwidths) return 0;
    for (int squarings = 1; squarings <= 4 - before; squarings++) {
        double ratio = task.rates[bandwidth] / (task.rates[bandwidth + 1] * (1 << squarings));
        if (ratio > 1 - 1e-15 && ratio < 1 + 1e-15) return squarings;
    }
    return 0;
}

void compute_distances(const Tile& tile, Index position, Index lag, double* distances) {
    const Patch& task = tile.task;
    compute_squares(tile.values + position, task.half, lag, tile.squares);
    (tile.profile.flat ? sum_by_doubling : sum_squares)(tile.squares + tile.profile.first, tile.profile, distances);
}

template <bool WEIGHTED, bool BOTH>
void add_two_lags(const Tile& tile, Index position, Index lag, bool two) {
    const Patch& task = tile.task;
    compute_distances(tile, position, lag, tile.distances);
    if (two) compute_distances(tile, position, lag + LANES, tile.distances + BLOCK);
    int before = 0;
    for (Index b = task.bandwidths - 1; b >= 0; b--) {
        int squarings = squarings_to(task, b, before);
        before = squarings ? before + squarings : 0;
        compare(tile.distances, task.rates[b], squarings, tile.similar);
        if (two) {
            compare(tile.distances + BLOCK, task.rates[b], squarings, tile.similar + BLOCK);
        } else {
            clear(tile.similar + BLOCK, BLOCK);
        }
        Sums ahead = tile.ahead(b), behind = tile.behind(b, position);
        add_pairs<WEIGHTED, BOTH>(tile.values + position, tile.key_weights + position, lag, tile.similar, ahead, behind);
        if (lag <= task.half) add_bends(tile, position, lag, tile.similar, ahead, behind);
        if (two && lag + LANES <= task.half) add_bends(tile, position, lag + LANES, tile.similar + BLOCK, ahead, behind);
    }
}

template <bool WEIGHTED, bool BOTH>
void add_block(const Tile& tile, Index position) {
    Index lags = min_of(tile.task.window, tile.task.count - 1 - (tile.start + position));
    each_two_lags(lags, [&](Index lag, bool two) { add_two_lags<WEIGHTED, BOTH>(tile, position, lag, two); });
}

// From sums to outputs, in the memory of the sums ahead: values, slopes and weights on itself in its first three columns.
void finish_outputs(const Tile& tile, Index position, Index bandwidth) {
    Sums ahead = tile.ahead(bandwidth), behind = tile.behind(bandwidth, position);
    Vector<double> middle = broadcast(tile.task.profile[tile.task.half]), twice = broadcast(2 * tile.task.rates[bandwidth]);
    double nan = __builtin_nan("");
    bool past = tile.task.past;
    for (Index i = 0; i < BLOCK; i += LANES) {
        auto both = [&](const double* from, const double* back) { return past ? load(back + i) : load(from + i) + load(back + i); };
        Vector<double> key_weight = load(tile.key_weights + position + i), total = key_weight + both(ahead.total, behind.total);
        Vector<double> share = broadcast(1.0) / total, shift = both(ahead.first, behind.first) * share;
        Vector<double> variance = both(ahead.second, behind.second) * share - shift * shift;
        Vector<double> bends = (both(ahead.tilt, behind.tilt) - shift * both(ahead.bend, behind.bend)) * share;
        Vector<double> value = load(tile.values + position + i) + shift;
        store<double>(ahead.total + i, total < FAINT ? broadcast(nan) : value);
        store<double>(ahead.first + i, multiply_add(twice, multiply_add(middle, variance, bends), key_weight * share));
        store<double>(ahead.second + i, key_weight * share);
    }
}

void write(const Tile& tile, Index position, Index first, Index stop) {
    const Patch& task = tile.task;
    Index from = max_of(first, tile.start + position), count = min_of(stop, tile.start + position + BLOCK) - from;
    for (Index b = 0; b < task.bandwidths; b++) {
        finish_outputs(tile, position, b);
        Sums outputs = tile.ahead(b);
        Index to = b * task.count + from, at = from - tile.start - position;
        copy_numbers(outputs.total + at, count, task.values + to);
        copy_numbers(outputs.first + at, count, task.slopes + to);
        copy_numbers(outputs.second + at, count, task.self_weights + to);
    }
}

void attend(Tile& tile, Index first, Index stop) {
    const Patch& task = tile.task;
    begin(tile, first);
    for (Index position = 0; tile.start + position < stop; position += BLOCK) {
        for (Index b = 0; b < task.bandwidths; b++) clear(tile.ahead(b).total, tile.sizes.ahead);
        bool plain = !task.key_weights && tile.start + position + BLOCK + task.window <= task.count;
        auto add = plain ? (task.past ? add_block<false, false> : add_block<false, true>)
                         : (task.past ? add_block<true, false> : add_block<true, true>);
        add(tile, position);
        if (tile.start + position + BLOCK > first) write(tile, position, first, stop);
    }
}

}  // namespace

void patch(const Patch& task) {
    Tiling tiling(task.count, task.window, task.threads);
    Sizes sizes(task, tiling.reach);
    Profile profile(task);
    Scratch<double> memory(sizes.all * tiling.threads);
    share_items(tiling.tiles, 1, tiling.threads, [&](Index t, int thread) {
        Tile tile(task, profile, sizes, memory.data + sizes.all * thread);
        attend(tile, t * tiling.rows, min_of((t + 1) * tiling.rows, task.count));
    });
}

}  // namespace overt::OVERT_LEVEL
