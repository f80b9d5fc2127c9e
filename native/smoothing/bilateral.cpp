// Attention by time and value among the points of one series: the bilateral filter. One exponential serves both directions of a pair.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// MASKED_DISTANCE: its weight is negligible next to a point's weight on itself, which is 1.
constexpr double MASKED_DISTANCE = 1e6;

// A thread's part of the series: position p is point start + p. Positions beyond the end have no weight in any row.
struct Tile {
    const Bilateral& task;
    Index reach, start = 0, there = 0;  // there: number of existing points
    double *times, *values, *weights, *distances, *similar, *sums;

    static constexpr Index AHEAD = Sums::apart(BLOCK);
    static Index size(Index reach) { return 3 * reach + 3 * BLOCK + Sums::COLUMNS * (AHEAD + reach); }

    Tile(const Bilateral& arguments, Index reaching, double* memory) : task(arguments), reach(reaching) {
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
    const WeightedPoints& points = tile.task.points;
    tile.start = start;
    tile.there = min_of(points.count - start, tile.reach);
    double last = points.times[points.count - 1], nowhere = last + 2 * (last - points.times[0]) + 1;
    for (Index p = 0; p < tile.reach; p++) {
        bool there = p < tile.there;
        tile.times[p] = there ? points.times[start + p] : nowhere;
        tile.values[p] = there ? points.values[start + p] : 0;
        tile.weights[p] = there && points.weights ? points.weights[start + p] : 1;
    }
    clear(tile.behind().total, Sums::COLUMNS * tile.reach);
}

template <bool MASKING>
void compute_distances(const Tile& tile, Index position, Index lag, double reach) {
    const double *times = tile.times + position, *values = tile.values + position;
    Vector<double> rate_time = broadcast(tile.task.points.rate_time), rate_value = broadcast(tile.task.points.rate_value);
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> gap = load(times + lag + i) - load(times + i), step = load(values + lag + i) - load(values + i);
        Vector<double> distance = multiply_add(gap * gap, rate_time, step * step * rate_value);
        store<double>(tile.distances + i, MASKING && gap > reach ? broadcast(MASKED_DISTANCE) : distance);
    }
}

// How many later points each point of a block reaches: minimum and maximum.
struct Lags {
    Index fewest, furthest;
};

Lags lags_of(const Tile& tile, Index position, double reach, Index& stop) {
    Lags lags{tile.reach, 0};
    for (Index p = position; p < min_of(position + BLOCK, tile.there); p++) {
        while (stop < tile.there && tile.times[stop] - tile.times[p] <= reach) stop++;
        lags.fewest = min_of(lags.fewest, stop - 1 - p);
        lags.furthest = max_of(lags.furthest, stop - 1 - p);
    }
    return lags;
}

void compare(const Tile& tile, Index position, Index lag, bool masking, double reach, double* similar) {
    if (masking) {
        compute_distances<true>(tile, position, lag, reach);
    } else {
        compute_distances<false>(tile, position, lag, reach);
    }
    compute_similarities(tile.distances, Similarity(1.0), similar);
}

void add_block(const Tile& tile, Index position, Lags lags, double reach) {
    Sums ahead = tile.ahead(), behind = tile.behind().from(position);
    auto add = tile.task.points.weights ? add_pairs<true, true> : add_pairs<false, true>;
    each_two_lags(lags.furthest, [&](Index lag, bool two) {
        compare(tile, position, lag, lag > lags.fewest, reach, tile.similar);
        if (two) {
            compare(tile, position, lag + LANES, lag + LANES > lags.fewest, reach, tile.similar + BLOCK);
        } else {
            clear(tile.similar + BLOCK, BLOCK);
        }
        add(tile.values + position, tile.weights + position, lag, tile.similar, ahead, behind);
    });
}

void write(const Tile& tile, Index position, Index first, Index stop) {
    Sums ahead = tile.ahead(), behind = tile.behind().from(position);
    const PairResults& results = tile.task.results;
    Index from = max_of(first - tile.start, position), to = min_of(stop - tile.start, position + BLOCK);
    for (Index p = from; p < to; p++) {
        Index i = p - position;
        double total = tile.weights[p] + (ahead.total[i] + behind.total[i]);
        double shift = (ahead.first[i] + behind.first[i]) / total;
        results.values[tile.start + p] = tile.values[p] + shift;
        results.self_weights[tile.start + p] = tile.weights[p] / total;
        results.variance[tile.start + p] = max_of((ahead.second[i] + behind.second[i]) / total - shift * shift, 0.0);
    }
}

void attend(Tile& tile, Index first, Index stop, double reach) {
    Index reached = 0;
    for (Index position = 0; tile.start + position < stop; position += BLOCK) {
        clear(tile.sums, Sums::COLUMNS * Tile::AHEAD);
        Lags lags = lags_of(tile, position, reach, reached);
        add_block(tile, position, lags, reach);
        if (tile.start + position + BLOCK > first) write(tile, position, first, stop);
    }
}

// The largest number of later points that any point reaches.
Index longest_lag(const WeightedPoints& points, double reach) {
    Index longest = 0, stop = 0;
    for (Index i = 0; i < points.count; i++) {
        while (stop < points.count && points.times[stop] - points.times[i] <= reach) stop++;
        longest = max_of(longest, stop - 1 - i);
    }
    return longest;
}

}  // namespace

void bilateral(const Bilateral& task) {
    const WeightedPoints& points = task.points;
    if (points.count == 0) return;
    double reach = min_of(task.reach, points.times[points.count - 1] - points.times[0]);
    Index window = longest_lag(points, reach);
    Tiling tiling(points.count, window, task.threads);
    Index size = Tile::size(tiling.reach);
    Scratch<double> memory(size * tiling.threads);
    share_items(tiling.tiles, 1, tiling.threads, [&](Index t, int thread) {
        Index first = t * tiling.rows, stop = min_of(first + tiling.rows, points.count);
        Tile tile(task, tiling.reach, memory.data + size * thread);
        begin(tile, max_of<Index>(first - window, 0) / BLOCK * BLOCK);
        attend(tile, first, stop, reach);
    });
}

}  // namespace overt::OVERT_LEVEL
