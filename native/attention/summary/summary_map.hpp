// The statistics across queries: the received weight of each key, and the map of cells.
#pragma once

#include "attention/summary/summary_rows.hpp"

namespace overt::OVERT_LEVEL {

// One row of the map: the sum and the maximum of the weights so far, for each cell of keys.
template <class T>
struct MapRow {
    T *total, *maximum;
};

// The maximum; NaN if either is NaN.
template <class T>
static inline T max_or_nan(T a, T b) {
    return a > b || a != a ? a : b;
}

// For each key the sum over rows first to stop of a tile's weights, and the maximum of those that are not NaN.
template <class T>
static void pool_rows(const T* weights, int first, int stop, T* total, T* high) {
    constexpr int W = WIDTH<T>, AT_ONCE = 4;
    for (int c = 0; c < KEYS; c += AT_ONCE * W) {
        Vector<T> sums[AT_ONCE] = {}, tops[AT_ONCE] = {};
        for (int r = first; r < stop; r++)
            for (int v = 0; v < AT_ONCE; v++) {
                Vector<T> weight = load(weights + r * KEYS + c + v * W);
                sums[v] += weight;
                tops[v] = lane_max(weight, tops[v]);
            }
        for (int v = 0; v < AT_ONCE; v++) {
            store(total + c + v * W, sums[v]);
            store(high + c + v * W, tops[v]);
        }
    }
}

// Adds the sums of keys from `key` on to their cells.
template <class T>
static void pool_keys(const T* total, const T* high, Index key, int keys, const Index* edges, Index cell, MapRow<T> to) {
    constexpr int W = WIDTH<T>;
    for (int c = 0; c < keys; cell++) {
        int stop = static_cast<int>(min_of<Index>(edges[cell + 1] - key, keys));
        Vector<T> sums{}, tops{};
        for (; c + W <= stop; c += W) sums += load(total + c), tops = lane_max(load(high + c), tops);
        T sum_of_cell = sum<T>(sums), max_of_cell = horizontal_max<T>(tops);
        for (; c < stop; c++) sum_of_cell += total[c], max_of_cell = max_of(high[c], max_of_cell);
        to.total[cell] += sum_of_cell;
        // The sum shows whether a weight is NaN.
        to.maximum[cell] = max_or_nan(sum_of_cell == sum_of_cell ? max_of_cell : sum_of_cell, to.maximum[cell]);
    }
}

// The last cell that begins at `position` or before it.
static inline Index cell_of(const Index* edges, Index cells, Index position) {
    Index low = 0, high = cells;
    while (high - low > 1) {
        Index middle = (low + high) / 2;
        (edges[middle] <= position ? low : high) = middle;
    }
    return low;
}

}  // namespace overt::OVERT_LEVEL
