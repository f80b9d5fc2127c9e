// Attention by time and value among the points of one series: the bilateral filter, one exponential for both directions of a pair.
#include <omp.h>

#include "level.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// A distance whose weight is nothing beside a point's own, which is 1.
constexpr double BARRED = 1e6;

// A thread's part of the series: place p stands for point start + p. Beyond the end there are points that nobody reaches.
struct Tile {
    const Mutual& task;
    Index reach, start = 0, there = 0;  // there: points that are
    double *times, *values, *weights, *distances, *similar, *sums;

    static constexpr Index AHEAD = Sums::apart(BLOCK);
    static Index room(Index reach) { return 3 * reach + 3 * BLOCK + Sums::COLUMNS * (AHEAD + reach); }

    Tile(const Mutual& given, Index reaching, double* memory) : task(given), reach(reaching) {
        times = memory;
        values = times + reach;
        weights = values + reach;
        distances = weights + reach;
        similar = distances + BLOCK;
        sums = similar + 2 * BLOCK;
    }
    Sums ahead() const { return {sums, AHEAD}; }
    Sums behind() const { return {sums + Sums::COLUMNS * AHEAD, reach}; }
};

void begin(Tile& tile, Index start) {
    const Charged& points = tile.task.points;
    tile.start = start;
    tile.there = least(points.count - start, tile.reach);
    double last = points.times[points.count - 1], nowhere = last + 2 * (last - points.times[0]) + 1;
    for (Index p = 0; p < tile.reach; p++) {
        bool there = p < tile.there;
        tile.times[p] = there ? points.times[start + p] : nowhere;
        tile.values[p] = there ? points.values[start + p] : 0;
        tile.weights[p] = there && points.weights ? points.weights[start + p] : 1;
    }
    clear(tile.behind().total, Sums::COLUMNS * tile.reach);
}

template <bool BARRING>
void lay_out_distances(const Tile& tile, Index place, Index lag, double reach) {
    const double *times = tile.times + place, *values = tile.values + place;
    Vector<double> rate_time = every(tile.task.points.rate_time), rate_value = every(tile.task.points.rate_value);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> gap = load(times + lag + i) - load(times + i), step = load(values + lag + i) - load(values + i);
        Vector<double> distance = fused(gap * gap, rate_time, step * step * rate_value);
        store<double>(tile.distances + i, BARRING && gap > reach ? every(BARRED) : distance);
    }
}

// How many points after it each of a block's points reaches, at least and at most.
struct Lags {
    Index fewest, furthest;
};

Lags lags_of(const Tile& tile, Index place, double reach, Index& stop) {
    Lags lags{tile.reach, 0};
    for (Index p = place; p < least(place + BLOCK, tile.there); p++) {
        while (stop < tile.there && tile.times[stop] - tile.times[p] <= reach) stop++;
        lags.fewest = least(lags.fewest, stop - 1 - p);
        lags.furthest = most(lags.furthest, stop - 1 - p);
    }
    return lags;
}

void compare(const Tile& tile, Index place, Index lag, bool barring, double reach, double* similar) {
    if (barring) {
        lay_out_distances<true>(tile, place, lag, reach);
    } else {
        lay_out_distances<false>(tile, place, lag, reach);
    }
    lay_out_similarities(tile.distances, Similarity(1.0), similar);
}

void add_block(const Tile& tile, Index place, Lags lags, double reach) {
    Sums ahead = tile.ahead(), behind = tile.behind().from(place);
    auto add = tile.task.points.weights ? add_pairs<true, true> : add_pairs<false, true>;
    each_two_lags(lags.furthest, [&](Index lag, bool two) {
        compare(tile, place, lag, lag > lags.fewest, reach, tile.similar);
        if (two) {
            compare(tile, place, lag + LANES, lag + LANES > lags.fewest, reach, tile.similar + BLOCK);
        } else {
            clear(tile.similar + BLOCK, BLOCK);
        }
        add(tile.values + place, tile.weights + place, lag, tile.similar, ahead, behind);
    });
}

void write(const Tile& tile, Index place, Index first, Index stop) {
    Sums ahead = tile.ahead(), behind = tile.behind().from(place);
    const PairResults& results = tile.task.results;
    Index from = most(first - tile.start, place), to = least(stop - tile.start, place + BLOCK);
    for (Index p = from; p < to; p++) {
        Index i = p - place;
        double total = tile.weights[p] + (ahead.total[i] + behind.total[i]);
        double shift = (ahead.first[i] + behind.first[i]) / total;
        results.values[tile.start + p] = tile.values[p] + shift;
        results.own[tile.start + p] = tile.weights[p] / total;
        results.variance[tile.start + p] = most((ahead.second[i] + behind.second[i]) / total - shift * shift, 0.0);
    }
}

void attend(Tile& tile, Index first, Index stop, double reach) {
    Index reached = 0;
    for (Index place = 0; tile.start + place < stop; place += BLOCK) {
        clear(tile.sums, Sums::COLUMNS * Tile::AHEAD);
        Lags lags = lags_of(tile, place, reach, reached);
        add_block(tile, place, lags, reach);
        if (tile.start + place + BLOCK > first) write(tile, place, first, stop);
    }
}

// How many points after it any point reaches.
Index longest_lag(const Charged& points, double reach) {
    Index longest = 0, stop = 0;
    for (Index i = 0; i < points.count; i++) {
        while (stop < points.count && points.times[stop] - points.times[i] <= reach) stop++;
        longest = most(longest, stop - 1 - i);
    }
    return longest;
}

}  // namespace

void bilateral(const Mutual& task) {
    const Charged& points = task.points;
    if (points.count == 0) return;
    double reach = least(task.reach, points.times[points.count - 1] - points.times[0]);
    Index window = longest_lag(points, reach);
    Tiling tiling(points.count, window, task.threads);
    Index room = Tile::room(tiling.reach);
    Scratch<double> memory(room * tiling.threads);
#pragma omp parallel for schedule(dynamic) num_threads(tiling.threads)
    for (Index t = 0; t < tiling.tiles; t++) {
        Index first = t * tiling.rows, stop = least(first + tiling.rows, points.count);
        Tile tile(task, tiling.reach, memory.data + room * omp_get_thread_num());
        begin(tile, most<Index>(first - window, 0) / BLOCK * BLOCK);
        attend(tile, first, stop, reach);
    }
}

}  // namespace overt::OVERT_LEVEL
