// The online softmax: weights of a row are summed tile after tile, rescaled whenever a larger score comes (Milakov and Gimelshein 2018).
#pragma once

#include "attention/dropout.hpp"
#include "attention/tiles.hpp"
#include "simd/lane_sums.hpp"
#include "simd/multiply.hpp"

namespace overt::OVERT_LEVEL {

constexpr double LOG2E = 1.44269504088896340736;

template <class T>
static inline Index padded(Index count) {
    return (count + WIDTH<T> - 1) / WIDTH<T> * WIDTH<T>;
}

template <class T>
static inline T exponential_of(T x) {
    return exponential<T>(every(x))[0];
}

// The sums of a block of rows: their largest score so far, sum_j e^(t_j - largest) and sum_j e^(t_j - largest) v_j.
template <class T>
struct Running {
    T *largest, *total, *output;
    Index wide;  // the output's columns, padded
    static Index room(Index width) { return ROWS * (2 + padded<T>(width)); }
    Running(T* memory, Index width) : largest(memory), total(largest + ROWS), output(total + ROWS), wide(padded<T>(width)) {}

    void clear(int rows) {
        for (int r = 0; r < rows; r++) largest[r] = -__builtin_inf(), total[r] = 0;
        for (Index e = 0; e < rows * wide; e++) output[e] = 0;
    }

    // Brings a row's sums to another largest score.
    void rescale(int row, T now) {
        T shrunk = largest[row] == now ? T(1) : exponential_of(largest[row] - now);
        largest[row] = now;
        if (shrunk == T(1)) return;
        total[row] *= shrunk;
        for (Index e = 0; e < wide; e += WIDTH<T>) store(output + row * wide + e, load(output + row * wide + e) * shrunk);
    }

    // Adds what a row has summed up elsewhere.
    void join(int row, Running<T>& other) {
        T now = most(largest[row], other.largest[row]);
        rescale(row, now), other.rescale(row, now);
        total[row] += other.total[row];
        for (Index e = 0; e < wide; e++) output[row * wide + e] += other.output[row * wide + e];
    }

    // A sink's weight counts in the total, and mixes nothing.
    void add_sink(int row, T sink) {
        rescale(row, most(sink, largest[row]));
        if (sink != -__builtin_inf()) total[row] += exponential_of(sink - largest[row]);
    }
};

// Total scores of a tile, in place, to weights e^(t - largest) of the rows' running sums. A row whose scores are all -inf keeps none;
// NaN makes its row's total NaN.
template <class T>
static void fold(T* scores, int rows, int keys, Running<T>& running) {
    constexpr int W = WIDTH<T>;
    for (int r = 0; r < rows; r++, scores += KEYS) {
        Vector<T> best = load(scores), sum_of_row{};
        for (int c = W; c < keys; c += W) best = larger(load(scores + c), best);
        running.rescale(r, most(largest<T>(best), running.largest[r]));
        T from = running.largest[r] == -__builtin_inf() ? T(0) : running.largest[r];
        for (int c = 0; c < keys; c += W) {
            Vector<T> weight = exponential<T>(load(scores + c) - from);
            sum_of_row += weight;
            store(scores + c, weight);
        }
        running.total[r] += sum<T>(sum_of_row);
    }
}

// to = from * times; `from` is in whole vectors.
template <class T>
static inline void put_row(const T* from, T times, Index count, T* to) {
    Index e = 0;
    for (; e + WIDTH<T> <= count; e += WIDTH<T>) store(to + e, load(from + e) * times);
    for (; e < count; e++) to[e] = from[e] * times;
}

// Notes a row's base and total for the backward pass, as PassedDot has them.
template <class T>
static inline void keep_sums(T* sums, const Inputs& inputs, Index entry, Index row, T base, T total) {
    if (!sums) return;
    T* own = sums + 2 * entry * inputs.queries + row;
    own[0] = base, own[inputs.queries] = total;
}

// Where a row of a contiguous result (batch, length, columns) lies.
template <class T>
static inline T* result_row(void* of, Index entry, Index row, Index length, Index columns) {
    return static_cast<T*>(of) + (entry * length + row) * columns;
}

template <class T>
static inline void clear(T* numbers, Index count) {
    for (Index i = 0; i < count; i++) numbers[i] = 0;
}

template <class T>
static inline void add(const T* from, Index count, T* to) {
    for (Index i = 0; i < count; i++) to[i] += from[i];
}

// A tile's rows of a matrix by key, in whole vectors: where they stand if they can be read so there, else copied into `spare`.
template <class T>
struct WholeRows {
    const T* data;
    Index row;
    WholeRows(const Matrix& matrix, Index columns, const Place& at, T* spare) {
        Index wide = padded<T>(columns);
        if (matrix.kind == KIND<T> && wide == columns) {
            data = row_of(matrix, at.entry, at.key, columns, spare);
            row = matrix.row;
            return;
        }
        data = spare, row = wide;
        for (int c = 0; c < at.keys; c++) {
            read_row(matrix, at.entry, at.key + c, columns, spare + c * wide);
            for (Index e = columns; e < wide; e++) spare[c * wide + e] = 0;
        }
    }
};

template <class T>
struct Values : WholeRows<T> {
    Values(const Inputs& inputs, const Place& at, T* spare) : WholeRows<T>(inputs.value, inputs.width, at, spare) {}
};

// found[r * KEYS + c] = rows r . others c, lanes running along features: for few rows, against which no tile is worth turning.
template <class T, int ROWS_HELD, int N>
static inline void dots_of(const T* rows, Index wide, const T* others, Index other_row, T* found) {
    Vector<T> total[ROWS_HELD][N] = {};
    for (Index e = 0; e < wide; e += WIDTH<T>)
        for (int n = 0; n < N; n++) {
            Vector<T> other = load(others + n * other_row + e);
            for (int r = 0; r < ROWS_HELD; r++) total[r][n] = fused(load(rows + r * wide + e), other, total[r][n]);
        }
    for (int r = 0; r < ROWS_HELD; r++) Sums<T, N>::of(total[r], found + r * KEYS);
}

template <class T, int ROWS_HELD>
static inline void dots_of_rows(const T* rows, Index wide, const WholeRows<T>& others, int keys, T* found) {
    int c = 0;
    for (; c + 4 <= keys; c += 4) dots_of<T, ROWS_HELD, 4>(rows, wide, others.data + c * others.row, others.row, found + c);
    if (c < keys && keys >= 4) {  // the last four, some of them once more: quicker than one by one
        c = keys - 4;
        dots_of<T, ROWS_HELD, 4>(rows, wide, others.data + c * others.row, others.row, found + c);
        return;
    }
    for (; c < keys; c++) dots_of<T, ROWS_HELD, 1>(rows, wide, others.data + c * others.row, others.row, found + c);
}

template <class T>
static void dots(const T* rows, Index wide, const WholeRows<T>& others, int count, int keys, T* found) {
    constexpr int TOGETHER = OVERT_BYTES == 64 ? 4 : 2;  // as many sums under way as there are registers for
    int r = 0;
    for (; r + TOGETHER <= count; r += TOGETHER) dots_of_rows<T, TOGETHER>(rows + r * wide, wide, others, keys, found + r * KEYS);
    for (; r < count; r++) dots_of_rows<T, 1>(rows + r * wide, wide, others, keys, found + r * KEYS);
}

// Up to this many rows, values are read row by row.
constexpr int FEW = 2;

// One row's sums += weights . values, the values read as they lie: with few rows that, and not the products, is what takes time.
template <class T, int N>
static inline void mix_keys(const T* weights, const T* values, Index value_row, Index wide, T* output) {
    Vector<T> weight[N];
    for (int n = 0; n < N; n++) weight[n] = every(weights[n]);
    for (Index e = 0; e < wide; e += WIDTH<T>) {
        Vector<T> total = load(output + e);
        for (int n = 0; n < N; n++) total = fused(weight[n], load(values + n * value_row + e), total);
        store(output + e, total);
    }
}

template <class T>
static void mix_row(const T* weights, const Values<T>& values, int keys, Index wide, T* output) {
    int c = 0;
    for (; c + 4 <= keys; c += 4) mix_keys<T, 4>(weights + c, values.data + c * values.row, values.row, wide, output);
    for (; c < keys; c++) mix_keys<T, 1>(weights + c, values.data + c * values.row, values.row, wide, output);
}

// sums (rows x wide) += weights (rows x KEYS) * values. In a tile that is seen in part, a barred value is not touched where the tile
// holds one that is not finite: 0 * NaN is NaN.
template <class T>
static void mix(const T* weights, const Place& at, Seen seen, const std::uint8_t* allowed, const Values<T>& values, Index wide, T* output) {
    if (seen == Seen::all || all_finite(values.data, values.row, at.keys, wide)) {
        if (at.rows > FEW)
            multiply(weights, Index{KEYS}, Index{1}, values.data, values.row, output, wide, at.rows, at.keys, static_cast<int>(wide), true);
        else
            for (int r = 0; r < at.rows; r++) mix_row(weights + r * KEYS, values, at.keys, wide, output + r * wide);
        return;
    }
    for (int r = 0; r < at.rows; r++)
        for (int c = 0; c < at.keys; c++)
            if (allowed[r * KEYS + c]) mix_keys<T, 1>(weights + r * KEYS + c, values.data + c * values.row, 0, wide, output + r * wide);
}

}  // namespace overt::OVERT_LEVEL
