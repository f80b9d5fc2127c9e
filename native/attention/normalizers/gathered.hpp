// Products over a list of keys: one vector of queries as lanes, rows of keys or values by index.
#pragma once

#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

// The rows of an entry's keys or values in whole vectors: in place where possible, else copied into memory of `size` numbers.
template <class T>
struct GatheredRows {
    const T* data;
    Index row;

    static bool in_place(const Matrix& matrix, Index columns) { return matrix.kind == KIND<T> && padded<T>(columns) == columns; }
    static Index size(const Matrix& matrix, Index columns, Index keys) {
        return in_place(matrix, columns) ? 0 : keys * padded<T>(columns);
    }
    GatheredRows(const Matrix& matrix, Index columns, Index entry, T* memory)
        : data(memory), row(padded<T>(columns)) {
        if (!in_place(matrix, columns)) return;
        data = static_cast<const T*>(matrix.data) + matrix.offsets[entry], row = matrix.row;
    }
    // Copies one row, if rows are not read in place.
    static void copy(const Matrix& matrix, Index columns, Index entry, Index key, T* memory) {
        T* to = memory + key * padded<T>(columns);
        read_row(matrix, entry, key, columns, to);
        for (Index e = columns; e < padded<T>(columns); e++) to[e] = 0;
    }
};

// Some rows of C (COUNT x VECTORS vectors) += sum_n factors[n * W + r] * row keys[n].
template <class T, int COUNT, int VECTORS>
static inline void gather_registers(const T* factors, const std::int32_t* keys, int count, const GatheredRows<T>& rows, Index column, T* c,
                                    Index c_row) {
    constexpr int W = WIDTH<T>;
    Vector<T> sums[COUNT][VECTORS] = {};
    for (int n = 0; n < count; n++, factors += W) {
        const T* from = rows.data + keys[n] * rows.row + column;
        for (int r = 0; r < COUNT; r++) {
            Vector<T> factor = in_register<T>(broadcast(factors[r]));
            for (int v = 0; v < VECTORS; v++) sums[r][v] = multiply_add(factor, load(from + v * W), sums[r][v]);
        }
    }
    for (int r = 0; r < COUNT; r++)
        for (int v = 0; v < VECTORS; v++) {
            T* at = c + r * c_row + v * W;
            store(at, load(at) + sums[r][v]);
        }
}

// The number of rows at a time that divides the rows into parts of about equal size.
template <class T, int VECTORS, int COUNT>
static inline void gather_part(const T* factors, const std::int32_t* keys, int count, const GatheredRows<T>& rows, Index column, T* c,
                               Index c_row, int size) {
    if (size == COUNT) return gather_registers<T, COUNT, VECTORS>(factors, keys, count, rows, column, c, c_row);
    if constexpr (COUNT > 1) gather_part<T, VECTORS, COUNT - 1>(factors, keys, count, rows, column, c, c_row, size);
}
template <class T, int VECTORS>
static void gather_panel(const T* factors, const std::int32_t* keys, int count, const GatheredRows<T>& rows, Index column, T* c,
                         Index c_row, int lanes) {
    constexpr int FULL = rows_in_registers(VECTORS);
    for (int parts = (lanes + FULL - 1) / FULL; parts > 0; parts--) {
        int size = (lanes + parts - 1) / parts;
        gather_part<T, VECTORS, FULL>(factors, keys, count, rows, column, c, c_row, size);
        factors += size, c += size * c_row, lanes -= size;
    }
}

// C (lanes x width) += sum_n factors[n * W + lane] * row keys[n]; `width` is of whole vectors.
template <class T>
static void multiply_gathered(const T* factors, const std::int32_t* keys, int count, const GatheredRows<T>& rows, Index width, T* c,
                              int lanes) {
    constexpr int W = WIDTH<T>;
    constexpr int TOGETHER = 64;  // keys whose rows stay in a near cache for all lanes and columns
    for (int n = 0; n < count; n += TOGETHER, factors += TOGETHER * W, keys += TOGETHER) {
        int some = min_of(TOGETHER, count - n);
        Index j = 0;
        for (; WIDEST == 4 && j + 3 * W < width; j += 4 * W) gather_panel<T, 4>(factors, keys, some, rows, j, c + j, width, lanes);
        for (; j + W < width; j += 2 * W) gather_panel<T, 2>(factors, keys, some, rows, j, c + j, width, lanes);
        if (j < width) gather_panel<T, 1>(factors, keys, some, rows, j, c + j, width, lanes);
    }
}

// The rows keys[n] of C += sum over lanes of factors[n * W + lane] * B's row of the lane.
template <class T, int COUNT, int VECTORS>
static inline void scatter_registers(const T* factors, const std::int32_t* keys, const T* b, Index b_row, int lanes, T* c, Index c_row) {
    constexpr int W = WIDTH<T>;
    Vector<T> sums[COUNT][VECTORS];
    for (int n = 0; n < COUNT; n++)
        for (int v = 0; v < VECTORS; v++) sums[n][v] = load(c + keys[n] * c_row + v * W);
    for (int r = 0; r < lanes; r++, b += b_row)
        for (int n = 0; n < COUNT; n++) {
            Vector<T> factor = in_register<T>(broadcast(factors[n * W + r]));
            for (int v = 0; v < VECTORS; v++) sums[n][v] = multiply_add(factor, load(b + v * W), sums[n][v]);
        }
    for (int n = 0; n < COUNT; n++)
        for (int v = 0; v < VECTORS; v++) store(c + keys[n] * c_row + v * W, sums[n][v]);
}
template <class T, int VECTORS>
static void scatter_panel(const T* factors, const std::int32_t* keys, int count, const T* b, Index b_row, int lanes, T* c, Index c_row) {
    constexpr int FULL = rows_in_registers(VECTORS);
    int n = 0;
    for (; n + FULL <= count; n += FULL)
        scatter_registers<T, FULL, VECTORS>(factors + n * WIDTH<T>, keys + n, b, b_row, lanes, c, c_row);
    for (; n < count; n++) scatter_registers<T, 1, VECTORS>(factors + n * WIDTH<T>, keys + n, b, b_row, lanes, c, c_row);
}
template <class T>
static void multiply_scattered(const T* factors, const std::int32_t* keys, int count, const T* b, Index b_row, int lanes, Index width,
                               T* c) {
    constexpr int W = WIDTH<T>;
    Index j = 0;
    for (; WIDEST == 4 && j + 3 * W < width; j += 4 * W) scatter_panel<T, 4>(factors, keys, count, b + j, b_row, lanes, c + j, width);
    for (; j + W < width; j += 2 * W) scatter_panel<T, 2>(factors, keys, count, b + j, b_row, lanes, c + j, width);
    if (j < width) scatter_panel<T, 1>(factors, keys, count, b + j, b_row, lanes, c + j, width);
}

// products[n * W + lane] = row keys[n] . column `lane` of the transposed rows `of`, whose rows are QUERIES apart.
template <class T, int COUNT>
static inline void gather_products(const std::int32_t* keys, const GatheredRows<T>& rows, const T* of, Index inner, T* products) {
    Vector<T> sums[COUNT] = {};
    const T* from[COUNT];
    for (int n = 0; n < COUNT; n++) from[n] = rows.data + keys[n] * rows.row;
    for (Index e = 0; e < inner; e++) {
        Vector<T> column = load(of + e * QUERIES);
        for (int n = 0; n < COUNT; n++) sums[n] = multiply_add(broadcast(from[n][e]), column, sums[n]);
    }
    for (int n = 0; n < COUNT; n++) store(products + n * WIDTH<T>, sums[n]);
}
template <class T>
static void multiply_gathered_transposed(const std::int32_t* keys, int count, const GatheredRows<T>& rows, const T* of, Index inner,
                                         T* products) {
    constexpr int FULL = OVERT_BYTES == 16 ? 4 : 8;
    int n = 0;
    for (; n + FULL <= count; n += FULL) gather_products<T, FULL>(keys + n, rows, of, inner, products + n * WIDTH<T>);
    for (; n < count; n++) gather_products<T, 1>(keys + n, rows, of, inner, products + n * WIDTH<T>);
}

// Multiplies the weights of a list by 1 / (1 - p) if dropout keeps them, else by 0; weights below 0 are skipped. Lane 0 is the entry's
// query `row`.
template <class T>
static void apply_dropout_gathered(const Inputs& inputs, Index entry, Index row, int lanes, const std::int32_t* keys, int count, T* weights) {
    DropoutHash hash(inputs);
    T scale = static_cast<T>(hash.scale);
    for (int r = 0; r < lanes; r++) {
        std::uint64_t row_key = DropoutHash::of_row(inputs, entry, row + r);
        std::uint32_t first = static_cast<std::uint32_t>(row_key), second = static_cast<std::uint32_t>(row_key >> 32);
        for (int n = 0; n < count; n++) {
            T& weight = weights[n * WIDTH<T> + r];
            if (!(weight < 0)) weight *= hash.keeps(static_cast<std::uint32_t>(keys[n]), first, second) ? scale : T(0);
        }
    }
}

}  // namespace overt::OVERT_LEVEL
