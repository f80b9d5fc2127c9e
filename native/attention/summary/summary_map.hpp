// What a summary says of weights across queries: what each key receives, and the map of cells.
#pragma once

#include "attention/summary/summary_rows.hpp"

namespace overt::OVERT_LEVEL {

// One row of the map: for each cell of keys the sum and the largest of its weights so far.
template <class T>
struct MapRow {
    T *total, *largest;
};

// NaN where either is, else the larger.
template <class T>
static inline T larger_or_nan(T a, T b) {
    return a > b || a != a ? a : b;
}

// The sum over rows first to stop of a tile's weights, for each key, and the largest, which is of those that are numbers.
template <class T>
static void pool_rows(const T* weights, int first, int stop, T* total, T* high) {
    constexpr int W = WIDTH<T>, AT_ONCE = 4;
    for (int c = 0; c < KEYS; c += AT_ONCE * W) {
        Vector<T> sums[AT_ONCE] = {}, tops[AT_ONCE] = {};
        for (int r = first; r < stop; r++)
            for (int v = 0; v < AT_ONCE; v++) {
                Vector<T> weight = load(weights + r * KEYS + c + v * W);
                sums[v] += weight;
                tops[v] = larger(weight, tops[v]);
            }
        for (int v = 0; v < AT_ONCE; v++) {
            store(total + c + v * W, sums[v]);
            store(high + c + v * W, tops[v]);
        }
    }
}

// Adds what keys from `key` on got to the cells that they fall in.
template <class T>
static void pool_keys(const T* total, const T* high, Index key, int keys, const Index* edges, Index cell, MapRow<T> to) {
    constexpr int W = WIDTH<T>;
    for (int c = 0; c < keys; cell++) {
        int stop = static_cast<int>(least<Index>(edges[cell + 1] - key, keys));
        Vector<T> sums{}, tops{};
        for (; c + W <= stop; c += W) sums += load(total + c), tops = larger(load(high + c), tops);
        T sum_of_cell = sum<T>(sums), most_of_cell = largest<T>(tops);
        for (; c < stop; c++) sum_of_cell += total[c], most_of_cell = most(high[c], most_of_cell);
        to.total[cell] += sum_of_cell;
        // NaN among the weights shows in their sum.
        to.largest[cell] = larger_or_nan(sum_of_cell == sum_of_cell ? most_of_cell : sum_of_cell, to.largest[cell]);
    }
}

// The last cell that begins at `place` or before it.
static inline Index cell_of(const Index* edges, Index cells, Index place) {
    Index low = 0, high = cells;
    while (high - low > 1) {
        Index middle = (low + high) / 2;
        (edges[middle] <= place ? low : high) = middle;
    }
    return low;
}

}  // namespace overt::OVERT_LEVEL
