// The online softmax: the weights of a row are summed tile by tile, and rescaled whenever a larger score comes (Milakov and
// Gimelshein 2018). Names as in flash-attention: row_max, row_sum, accumulator.
#pragma once

#include "attention/dropout.hpp"
#include "attention/tiles/tiles.hpp"
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
    return exponential<T>(broadcast(x))[0];
}

// The state of a block of rows: the largest score so far, sum_j e^(t_j - row_max) and sum_j e^(t_j - row_max) v_j.
template <class T>
struct SoftmaxState {
    T *row_max, *row_sum, *accumulator;
    Index padded_dim;  // the columns of the accumulator, padded
    static Index size(Index value_dim) { return ROWS * (2 + padded<T>(value_dim)); }
    SoftmaxState(T* memory, Index value_dim)
        : row_max(memory), row_sum(row_max + ROWS), accumulator(row_sum + ROWS), padded_dim(padded<T>(value_dim)) {}

    void clear(int rows) {
        for (int r = 0; r < rows; r++) row_max[r] = -__builtin_inf(), row_sum[r] = 0;
        for (Index e = 0; e < rows * padded_dim; e++) accumulator[e] = 0;
    }

    // Rescales a row's sums to another maximum.
    void rescale(int row, T now) {
        T rescaling = row_max[row] == now ? T(1) : exponential_of(row_max[row] - now);
        row_max[row] = now;
        if (rescaling == T(1)) return;
        row_sum[row] *= rescaling;
        for (Index e = 0; e < padded_dim; e += WIDTH<T>)
            store(accumulator + row * padded_dim + e, load(accumulator + row * padded_dim + e) * rescaling);
    }

    // Adds the sums of the same rows over other keys.
    void join(SoftmaxState<T>& other, int rows) {
        for (int r = 0; r < rows; r++) {
            T now = max_of(row_max[r], other.row_max[r]);
            rescale(r, now), other.rescale(r, now);
            row_sum[r] += other.row_sum[r];
        }
        for (Index e = 0; e < rows * padded_dim; e++) accumulator[e] += other.accumulator[e];
    }

    // A sink's weight is part of the row's sum and has no value.
    void add_sink(int row, T sink) {
        rescale(row, max_of(sink, row_max[row]));
        if (sink != -__builtin_inf()) row_sum[row] += exponential_of(sink - row_max[row]);
    }
};

// TILES_OF_A_PART: tiles whose sums make one part of a long sum. IN_PARTS: a page's sums are short.
constexpr int TILES_OF_A_PART = 64;
#ifdef OVERT_SMALL
constexpr bool IN_PARTS = false;
#else
constexpr bool IN_PARTS = true;
#endif

// The state of a block of rows over many tiles: parts of it are summed by themselves and then added to each other. The rounding error grows
// with the tiles of a part and with the parts, not with all tiles, also where one key has nearly all weight and millions have the rest
// (Higham 2002, section 4.2).
template <class T, class State>
class SumsOfParts {
    State part;
    int rows, tiles = 0;
    bool in_part = false;

   public:
    State all;  // without the unfinished part

    // The final sums are in `memory`; `spare` is as large.
    SumsOfParts(T* memory, T* spare, Index value_dim, int rows) : part(spare, value_dim), rows(rows), all(memory, value_dim) {
        all.clear(rows);
    }

    // The state to which the next tile is added.
    State& next() {
        if (IN_PARTS && tiles++ % TILES_OF_A_PART == 0 && tiles > 1) {
            if (in_part) all.join(part, rows);
            part.clear(rows), in_part = true;
        }
        return IN_PARTS && in_part ? part : all;
    }

    State& joined() {
        if (IN_PARTS && in_part) all.join(part, rows);
        in_part = false;
        return all;
    }
};

// Total scores of a tile to weights e^(t - row_max), in place, and updates the state. A row whose scores are all -inf stays empty;
// NaN makes its row_sum NaN.
template <class T>
static void online_softmax(T* scores, int rows, int keys, SoftmaxState<T>& running) {
    constexpr int W = WIDTH<T>;
    for (int r = 0; r < rows; r++, scores += KEYS) {
        Vector<T> best = load(scores), sum_of_row{};
        for (int c = W; c < keys; c += W) best = lane_max(load(scores + c), best);
        running.rescale(r, max_of(horizontal_max<T>(best), running.row_max[r]));
        T from = running.row_max[r] == -__builtin_inf() ? T(0) : running.row_max[r];
        for (int c = 0; c < keys; c += W) {
            Vector<T> weight = exponential<T>(load(scores + c) - from);
            sum_of_row += weight;
            store(scores + c, weight);
        }
        running.row_sum[r] += sum<T>(sum_of_row);
    }
}

// to = from * times; `from` is padded to whole vectors.
template <class T>
static inline void put_row(const T* from, T times, Index count, T* to) {
    Index e = 0;
    for (; e + WIDTH<T> <= count; e += WIDTH<T>) store(to + e, load(from + e) * times);
    for (; e < count; e++) to[e] = from[e] * times;
}

// Writes a row's base and sum for the backward pass, see SavedDotForward.
template <class T>
static inline void save_sums(T* sums, const Inputs& inputs, Index entry, Index row, T base, T row_sum) {
    if (!sums) return;
    T* row_sums = sums + 2 * entry * inputs.queries + row;
    row_sums[0] = base, row_sums[inputs.queries] = row_sum;
}

// A row of a contiguous result (batch, length, columns).
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

// A tile's rows of a matrix by key, padded to whole vectors: read in place where possible, else copied into `spare`.
template <class T>
struct WholeRows {
    const T* data;
    Index row;
    WholeRows(const Matrix& matrix, Index columns, const Tile& at, T* spare) {
        Index padded_dim = padded<T>(columns);
        if (matrix.kind == KIND<T> && padded_dim == columns) {
            data = row_of(matrix, at.entry, at.key, columns, spare);
            row = matrix.row;
            return;
        }
        data = spare, row = padded_dim;
        for (int c = 0; c < at.keys; c++) {
            read_row(matrix, at.entry, at.key + c, columns, spare + c * padded_dim);
            for (Index e = columns; e < padded_dim; e++) spare[c * padded_dim + e] = 0;
        }
    }
};

template <class T>
struct Values : WholeRows<T> {
    Values(const Inputs& inputs, const Tile& at, T* spare) : WholeRows<T>(inputs.value, inputs.value_dim, at, spare) {}
};

// products[r * KEYS + c] = rows r . others c, lanes along the features. For few rows, for which transposing a tile does not pay.
template <class T, int ROW_COUNT, int N>
static inline void dots_of(const T* rows, Index padded_dim, const T* others, Index other_row, T* products) {
    Vector<T> sums[ROW_COUNT][N];
    unrolled<ROW_COUNT, N>([&](auto r, auto n) OVERT_UNROLLED { sums[r][n] = Vector<T>{}; });
    for (Index e = 0; e < padded_dim; e += WIDTH<T>)
        unrolled<N>([&](auto n) OVERT_UNROLLED {
            Vector<T> other = load(others + n * other_row + e);
            unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
                sums[r][n] = multiply_add(load(rows + r * padded_dim + e), other, sums[r][n]);
            });
        });
    RowSums<T, ROW_COUNT, N>::of(sums, products, KEYS);
}

template <class T, int ROW_COUNT>
static inline void dots_of_rows(const T* rows, Index padded_dim, const WholeRows<T>& others, int keys, T* products) {
    int c = 0;
    for (; c + 4 <= keys; c += 4)
        dots_of<T, ROW_COUNT, 4>(rows, padded_dim, others.data + c * others.row, others.row, products + c);
    if (c < keys && keys >= 4) {  // the last four keys, some of them a second time: faster than one by one
        c = keys - 4;
        dots_of<T, ROW_COUNT, 4>(rows, padded_dim, others.data + c * others.row, others.row, products + c);
        return;
    }
    for (; c < keys; c++) dots_of<T, ROW_COUNT, 1>(rows, padded_dim, others.data + c * others.row, others.row, products + c);
}

template <class T>
static void dots(const T* rows, Index padded_dim, const WholeRows<T>& others, int count, int keys, T* products) {
    constexpr int TOGETHER = OVERT_BYTES == 64 ? 4 : 2;  // as many independent sums as fit the registers
    int r = 0;
    for (; r + TOGETHER <= count; r += TOGETHER)
        dots_of_rows<T, TOGETHER>(rows + r * padded_dim, padded_dim, others, keys, products + r * KEYS);
    for (; r < count; r++) dots_of_rows<T, 1>(rows + r * padded_dim, padded_dim, others, keys, products + r * KEYS);
}

// accumulator of one row += weights . values of N keys.
template <class T, int N>
static inline void accumulate_keys(const T* weights, const T* values, Index value_row, Index padded_dim, T* accumulator) {
    Vector<T> weight[N];
    for (int n = 0; n < N; n++) weight[n] = broadcast(weights[n]);
    for (Index e = 0; e < padded_dim; e += WIDTH<T>) {
        Vector<T> sum = load(accumulator + e);
        for (int n = 0; n < N; n++) sum = multiply_add(weight[n], load(values + n * value_row + e), sum);
        store(accumulator + e, sum);
    }
}

// accumulator (rows x padded_dim) += weights (rows x KEYS) * values. In a tile of partial coverage, a masked value is skipped if
// the tile holds a value that is not finite: 0 * NaN is NaN.
template <class T>
static void accumulate_values(const T* weights, const Tile& at, Coverage coverage, const std::uint8_t* allowed,
                              const Values<T>& values, Index padded_dim, T* accumulator) {
    if (coverage == Coverage::full || all_finite(values.data, values.row, at.keys, padded_dim))
        return multiply(weights, Index{KEYS}, Index{1}, values.data, values.row, accumulator, padded_dim, at.rows, at.keys,
                        static_cast<int>(padded_dim), true);
    for (int r = 0; r < at.rows; r++)
        for (int c = 0; c < at.keys; c++)
            if (allowed[r * KEYS + c])
                accumulate_keys<T, 1>(weights + r * KEYS + c, values.data + c * values.row, 0, padded_dim,
                                      accumulator + r * padded_dim);
}

}  // namespace overt::OVERT_LEVEL
