// Attention whose scores compare patches. For each lag the squared differences of points that far apart are laid out once; summed under
// the profile they are the distances of all pairs that far apart.
#include <omp.h>

#include "level.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Below this a row's weights have no digits left: its keys are all too far away.
constexpr double FAINT = 0x1p-900;
// Vectors of distances that are summed at once, so that each waits for no other and a weight of the profile is read once for all.
constexpr int ABREAST = 4;
static_assert(BLOCK % (ABREAST * LANES) == 0, "blocks are whole strides");

// The weights of a patch without the zeros at its ends.
struct Profile {
    const double* weights;
    Index first, taps;  // taps of them, from place `first` on
    bool flat;          // all the same, and so many that doubling is quicker

    explicit Profile(const Patch& task) : weights(task.profile), first(0), taps(2 * task.half + 1), flat(true) {
        constexpr Index MANY = 16;
        while (taps && weights[first] == 0) first++, taps--;
        while (taps && weights[first + taps - 1] == 0) taps--;
        for (Index m = 1; m < taps; m++) flat = flat && weights[first + m] == weights[first];
        flat = flat && taps >= MANY;
    }
};

// How many numbers a thread holds.
struct Sizes {
    Index reach, padded, squares, ahead = Sums::COLUMNS * Sums::apart(BLOCK), behind, all;

    Sizes(const Patch& task, Index reaching) : reach(reaching) {
        padded = reach + 4 * task.half + LANES;
        squares = BLOCK + 2 * task.half + LANES;
        behind = Sums::COLUMNS * reach;
        all = padded + reach + squares + 4 * BLOCK + task.bandwidths * (ahead + behind);
    }
};

// A thread's part of the series: place p stands for point start + p.
struct Tile {
    const Patch& task;
    const Profile& profile;
    const Sizes& sizes;
    Index start = 0;
    double *values, *charges, *squares, *distances, *similar, *sums;

    Tile(const Patch& given, const Profile& patch, const Sizes& of, double* room) : task(given), profile(patch), sizes(of) {
        values = room + task.half;
        charges = room + sizes.padded;
        squares = charges + sizes.reach;
        distances = squares + sizes.squares;
        similar = distances + 2 * BLOCK;
        sums = similar + 2 * BLOCK;
    }
    double* sums_of(Index bandwidth) const { return sums + bandwidth * (sizes.ahead + sizes.behind); }
    Sums ahead(Index bandwidth) const { return {sums_of(bandwidth), Sums::apart(BLOCK)}; }
    Sums behind(Index bandwidth, Index place) const { return Sums(sums_of(bandwidth) + sizes.ahead, sizes.reach).from(place); }
};

void begin(Tile& tile, Index first) {
    const Patch& task = tile.task;
    tile.start = most<Index>(first - task.window, 0) / BLOCK * BLOCK;
    Index there = least(task.count + 2 * task.half - tile.start, tile.sizes.padded);
    for (Index p = 0; p < tile.sizes.padded; p++) tile.values[p - task.half] = p < there ? task.padded[tile.start + p] : 0;
    // Beyond the end nothing has weight.
    there = task.count - tile.start;
    for (Index p = 0; p < tile.sizes.reach; p++) tile.charges[p] = p >= there ? 0 : task.charges ? task.charges[tile.start + p] : 1;
    for (Index b = 0; b < task.bandwidths; b++) clear(tile.behind(b, 0).total, tile.sizes.behind);
}

void lay_out_squares(const double* values, Index half, Index lag, double* squares) {
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
            Vector<double> g = every(weights[m]);
#pragma GCC unroll 4
            for (int a = 0; a < ABREAST; a++) sums[a] = fused(g, load(squares + i + m + a * LANES), sums[a]);
        }
        for (int a = 0; a < ABREAST; a++) store<double>(distances + i + a * LANES, sums[a]);
    }
}

// Equal weights: sums of two neighbours, of these sums two, and so on; those whose lengths make up the patch are added, end to end.
// Nothing is ever subtracted, so that a large square leaves no error behind where it has left the patch.
void sum_by_doubling(double* sums, const Profile& profile, double* distances) {
    clear(distances, BLOCK);
    Index length = 1, place = 0;
    for (Index rest = profile.taps; rest; rest /= 2, length *= 2) {
        if (rest % 2) {
            for (Index i = 0; i < BLOCK; i += LANES) store<double>(distances + i, load(distances + i) + load(sums + place + i));
            place += length;
        }
        if (rest == 1) break;
        for (Index i = 0; i < BLOCK + profile.taps - 2 * length; i += LANES)
            store<double>(sums + i, load(sums + i) + load(sums + length + i));
    }
    Vector<double> weight = every(profile.weights[profile.first]);
    for (Index i = 0; i < BLOCK; i += LANES) store<double>(distances + i, load(distances + i) * weight);
}

// At lags within a patch, moving x_i moves the patches of i's neighbours too. 
void add_bends(const Tile& tile, Index place, Index lag, const double* similar, const Sums& ahead, const Sums& behind) {
    const double *x = tile.values + place, *charges = tile.charges + place;
    const double* g = tile.task.profile + tile.task.half;
    Vector<double> before = every(g[-lag]), after = every(g[lag]);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> alike = load(similar + i), here = load(x + i), there = load(x + lag + i), step = there - here;
        Vector<double> bend = alike * load(charges + lag + i) * before * (load(x - lag + i) - here);
        store<double>(ahead.bend + i, load(ahead.bend + i) + bend);
        store<double>(ahead.tilt + i, fused(bend, step, load(ahead.tilt + i)));
        bend = alike * load(charges + i) * after * (load(x + 2 * lag + i) - there);
        store<double>(behind.bend + lag + i, load(behind.bend + lag + i) + bend);
        store<double>(behind.tilt + lag + i, load(behind.tilt + lag + i) - bend * step);
    }
}

// Exponentials of one bandwidth's scores, from `distances`; or from what `similar` holds, those of the next larger bandwidth.
void compare(const double* distances, double rate, int squarings, double* similar) {
    if (squarings == 0) return lay_out_similarities(distances, Similarity(rate), similar);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> alike = load(similar + i);
        for (int s = 0; s < squarings; s++) alike *= alike;
        store<double>(similar + i, alike);
    }
}

// How often the exponentials of the next larger bandwidth are squared to be this one's; 0 where they are computed anew. Each squaring
// doubles an error: four in a row are allowed.
int squarings_to(const Patch& task, Index bandwidth, int before) {
    if (bandwidth + 1 == task.bandwidths) return 0;
    for (int squarings = 1; squarings <= 4 - before; squarings++) {
        double ratio = task.rates[bandwidth] / (task.rates[bandwidth + 1] * (1 << squarings));
        if (ratio > 1 - 1e-15 && ratio < 1 + 1e-15) return squarings;
    }
    return 0;
}

void lay_out_distances(const Tile& tile, Index place, Index lag, double* distances) {
    const Patch& task = tile.task;
    lay_out_squares(tile.values + place, task.half, lag, tile.squares);
    (tile.profile.flat ? sum_by_doubling : sum_squares)(tile.squares + tile.profile.first, tile.profile, distances);
}

template <bool CHARGED, bool BOTH>
void add_two_lags(const Tile& tile, Index place, Index lag, bool two) {
    const Patch& task = tile.task;
    lay_out_distances(tile, place, lag, tile.distances);
    if (two) lay_out_distances(tile, place, lag + LANES, tile.distances + BLOCK);
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
        Sums ahead = tile.ahead(b), behind = tile.behind(b, place);
        add_pairs<CHARGED, BOTH>(tile.values + place, tile.charges + place, lag, tile.similar, ahead, behind);
        if (lag <= task.half) add_bends(tile, place, lag, tile.similar, ahead, behind);
        if (two && lag + LANES <= task.half) add_bends(tile, place, lag + LANES, tile.similar + BLOCK, ahead, behind);
    }
}

template <bool CHARGED, bool BOTH>
void add_block(const Tile& tile, Index place) {
    Index lags = least(tile.task.window, tile.task.count - 1 - (tile.start + place));
    each_two_lags(lags, [&](Index lag, bool two) { add_two_lags<CHARGED, BOTH>(tile, place, lag, two); });
}

// From sums to outputs, in the place of the sums ahead: values, slopes and own weights in its first three columns.
void settle(const Tile& tile, Index place, Index bandwidth) {
    Sums ahead = tile.ahead(bandwidth), behind = tile.behind(bandwidth, place);
    Vector<double> middle = every(tile.task.profile[tile.task.half]), twice = every(2 * tile.task.rates[bandwidth]);
    double nan = __builtin_nan("");
    bool past = tile.task.past;
    for (Index i = 0; i < BLOCK; i += LANES) {
        auto both = [&](const double* from, const double* back) { return past ? load(back + i) : load(from + i) + load(back + i); };
        Vector<double> charge = load(tile.charges + place + i), total = charge + both(ahead.total, behind.total);
        Vector<double> share = every(1.0) / total, shift = both(ahead.first, behind.first) * share;
        Vector<double> variance = both(ahead.second, behind.second) * share - shift * shift;
        Vector<double> bends = (both(ahead.tilt, behind.tilt) - shift * both(ahead.bend, behind.bend)) * share;
        Vector<double> value = load(tile.values + place + i) + shift;
        store<double>(ahead.total + i, total < FAINT ? every(nan) : value);
        store<double>(ahead.first + i, fused(twice, fused(middle, variance, bends), charge * share));
        store<double>(ahead.second + i, charge * share);
    }
}

void write(const Tile& tile, Index place, Index first, Index stop) {
    const Patch& task = tile.task;
    Index from = most(first, tile.start + place), count = least(stop, tile.start + place + BLOCK) - from;
    for (Index b = 0; b < task.bandwidths; b++) {
        settle(tile, place, b);
        Sums found = tile.ahead(b);
        Index to = b * task.count + from, at = from - tile.start - place;
        copy_numbers(found.total + at, count, task.values + to);
        copy_numbers(found.first + at, count, task.slopes + to);
        copy_numbers(found.second + at, count, task.own + to);
    }
}

void attend(Tile& tile, Index first, Index stop) {
    const Patch& task = tile.task;
    begin(tile, first);
    for (Index place = 0; tile.start + place < stop; place += BLOCK) {
        for (Index b = 0; b < task.bandwidths; b++) clear(tile.ahead(b).total, tile.sizes.ahead);
        bool plain = !task.charges && tile.start + place + BLOCK + task.window <= task.count;
        auto add = plain ? (task.past ? add_block<false, false> : add_block<false, true>)
                         : (task.past ? add_block<true, false> : add_block<true, true>);
        add(tile, place);
        if (tile.start + place + BLOCK > first) write(tile, place, first, stop);
    }
}

}  // namespace

void patch(const Patch& task) {
    Tiling tiling(task.count, task.window, task.threads);
    Sizes sizes(task, tiling.reach);
    Profile profile(task);
    Scratch<double> memory(sizes.all * tiling.threads);
#pragma omp parallel for schedule(dynamic) num_threads(tiling.threads)
    for (Index t = 0; t < tiling.tiles; t++) {
        Tile tile(task, profile, sizes, memory.data + sizes.all * omp_get_thread_num());
        attend(tile, t * tiling.rows, least((t + 1) * tiling.rows, task.count));
    }
}

}  // namespace overt::OVERT_LEVEL
