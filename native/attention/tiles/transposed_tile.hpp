// Dot-product attention of a block of queries, tile by tile. A tile is transposed: its keys are rows and its queries are lanes, so that
// keys and values are read in place, and the softmax takes maxima and sums along columns.
//
// Total scores are in powers of two: t = log2(e) * inverse_temperature * (score + bias).
#pragma once

#include "attention/scores/dot_scores.hpp"
#include "attention/tiles/softmax.hpp"
#include "attention/masks/transposed_mask.hpp"

namespace overt::OVERT_LEVEL {

constexpr int TRANSPOSED_TILE = KEYS * QUERIES;
static_assert(QUERIES == KEYS, "memory for a tile's keys also holds rows of its queries, and a tile of biases before it is transposed");

// work(i) for each vector of a tile's numbers.
template <class T, class Work>
static inline void each_vector(const Tile& at, Work work) {
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r += WIDTH<T>) work(c * QUERIES + r);
}

// The factors that turn a call's scores into total scores.
template <class T>
struct Units {
    T scale;  // of query . key: total scores, or what the soft cap takes
    T cap;    // 0: none; of the capped scores
    T unit;   // of the bias

    Units(const Inputs& inputs, const Score& score, Index entry)
        : Units(score, entry, (inputs.inverse_temperature ? inputs.inverse_temperature[entry] : 1) * LOG2E) {}

    // Of total scores times `factor`.
    Units(const Score& score, Index entry, double factor) {
        bool capped = score.softcap > 0;
        scale = static_cast<T>(score.scale[entry] * (capped ? 1 / score.softcap : factor));
        cap = static_cast<T>(capped ? score.softcap * factor : 0);
        unit = static_cast<T>(factor);
    }
};

// Rows of queries, or of upstream gradients, transposed: to[d * QUERIES + r]; lanes beyond the last row hold 0.
template <class T>
static void transpose_rows(const Matrix& from, const Tile& at, Index columns, T scale, T* to, T* spare) {
    if (from.kind == KIND<T>) {
        transpose(row_of(from, at.entry, at.row, columns, spare), from.row, at.rows, columns, to, Index{QUERIES}, scale);
        return;
    }
    for (int r = 0; r < at.rows; r++) read_row(from, at.entry, at.row + r, columns, spare + r * columns);
    transpose(spare, columns, at.rows, columns, to, Index{QUERIES}, scale);
}

// A tile's rows of keys: read in place where possible, else copied into `spare`.
template <class T>
static Left<T> rows_at(const Matrix& matrix, const Tile& at, Index columns, T* spare) {
    if (matrix.kind == KIND<T>) return {row_of(matrix, at.entry, at.key, columns, spare), matrix.row, 1};
    for (int c = 0; c < at.keys; c++) read_row(matrix, at.entry, at.key + c, columns, spare + c * columns);
    return {spare, columns, 1};
}

// Adds a tile's biases times their unit.
template <class T>
static void add_transposed_bias(const Matrix& bias, const Tile& at, T unit, T* scores, T* spare) {
    for (int r = 0; r < at.rows; r++) {
        T* to = spare + r * KEYS;
        for (int c = 0; c < at.keys; c++) to[c] = 0;
    }
    add_bias(bias, at, spare);
    T* transposed = spare + QUERIES * KEYS;
    transpose(spare, Index{KEYS}, at.rows, at.keys, transposed, Index{QUERIES});
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r++) scores[c * QUERIES + r] += unit * transposed[c * QUERIES + r];
}

// Products of queries and keys to total scores, in place; -inf where a pair is masked. Biases of lines are added unless the softmax does it.
template <class T>
static void finish_transposed_scores(const Inputs& inputs, const Units<T>& units, const Tile& at, Coverage coverage,
                                     const TransposedMask<T>& mask, const std::uint8_t* allowed, T* scores, T* spare, bool lines = true) {
    if (units.cap > 0)
        each_vector<T>(at, [&](int i) { store(scores + i, hyperbolic_tangent<T>(load(scores + i)) * units.cap); });
    if (inputs.bias.data) add_transposed_bias(inputs.bias, at, units.unit, scores, spare);
    if (LINE_BIASES && lines && inputs.bias_of_keys.data) add_bias_of_lines(inputs, at, TRANSPOSED, units.unit, scores);
    if (coverage == Coverage::partial) mask.apply(at, allowed, scores);
}

// Sets scores to -inf if their weights, 2^(t - base), are below any rounding of their row's and would make products denormal, which
// processors compute slowly. Returns whether any remain.
template <class T>
static bool drop_negligible(const Tile& at, const T* bases, T* scores) {
    constexpr T LEAST = LineTerms<T>::LEAST, NEVER = -__builtin_inf();
    Vector<T> left{};
    for (int r = 0; r < at.rows; r += WIDTH<T>) {
        const Vector<T> bound = load(bases + r) + LEAST;
        for (int c = 0; c < at.keys; c++) {
            const Vector<T> score = load(scores + c * QUERIES + r);
            left += score < bound ? Vector<T>{} : broadcast(T(1));  // NaN stays
            store(scores + c * QUERIES + r, score < bound ? broadcast(NEVER) : score);
        }
    }
    return sum<T>(left) != 0;
}

// sums_c += the sum of a tile's gradients of scores with key c.
template <class T>
static void add_sums_of_keys(const Tile& at, const T* gradients, T* sums) {
    for (int c = 0, r; c < at.keys; c++, gradients += QUERIES) {
        Vector<T> lanes{};
        for (r = 0; r + WIDTH<T> <= at.rows; r += WIDTH<T>) lanes += load(gradients + r);
        for (sums[c] += sum<T>(lanes); r < at.rows; r++) sums[c] += gradients[r];
    }
}

// Multiplies weights by 1 / (1 - p) where dropout keeps them and by 0 elsewhere.
template <class T>
static void apply_dropout_transposed(const Inputs& inputs, const Tile& at, T* weights) {
    DropoutHash hash(inputs);
    T scale = static_cast<T>(hash.scale);
    std::uint32_t first[QUERIES], second[QUERIES];
    for (int r = 0; r < at.rows; r++) {
        std::uint64_t row_key = DropoutHash::of_row(inputs, at.entry, at.row + r);
        first[r] = static_cast<std::uint32_t>(row_key), second[r] = static_cast<std::uint32_t>(row_key >> 32);
    }
    for (int c = 0; c < at.keys; c++, weights += QUERIES)
        for (int r = 0; r < at.rows; r++)
            weights[r] *= hash.keeps(static_cast<std::uint32_t>(at.key + c), first[r], second[r]) ? scale : T(0);
}

// SLACK: log2 of the factor by which a score's power may exceed the base's before the sums are rescaled; sums up to 2^8 are as exact.
constexpr int SLACK = 8;

// The state of a block of queries: sum_j 2^(t_j - base) and sum_j 2^(t_j - base) v_j.
template <class T>
struct TransposedSoftmax {
    T *base, *row_sum, *factor, *accumulator;
    Index padded_dim;
    static Index size(Index value_dim) { return QUERIES * (3 + padded<T>(value_dim)); }
    TransposedSoftmax(T* memory, Index value_dim)
        : base(memory), row_sum(base + QUERIES), factor(row_sum + QUERIES), accumulator(factor + QUERIES),
          padded_dim(padded<T>(value_dim)) {}

    void clear(int rows) {
        for (int r = 0; r < QUERIES; r += WIDTH<T>)
            store(base + r, broadcast(T(-__builtin_inf()))), store(row_sum + r, Vector<T>{});
        for (Index e = 0; e < rows * padded_dim; e += WIDTH<T>) store(accumulator + e, Vector<T>{});
    }

    // Rescales the sums of a vector of lanes to other bases. The accumulator is rescaled by rescale_accumulator.
    void rebase(int lane, Vector<T> now) {
        Vector<T> before = load(base + lane);
        Vector<T> factor_now = power_of_two<T>(before - now);
        // Lanes without sums need no rescaling.
        factor_now = (now == before) | (before == T(-__builtin_inf())) ? broadcast(T(1)) : factor_now;
        store(factor + lane, factor_now);
        store(base + lane, now);
        store(row_sum + lane, load(row_sum + lane) * factor_now);
    }

    // Adds the sums of the same rows over other keys.
    void join(TransposedSoftmax<T>& other, int rows) {
        for (int r = 0; r < rows; r += WIDTH<T>) {
            Vector<T> now = lane_max(load(base + r), load(other.base + r));
            rebase(r, now), other.rebase(r, now);
            store(row_sum + r, load(row_sum + r) + load(other.row_sum + r));
        }
        for (int r = 0; r < rows; r++) rescale_accumulator(r), other.rescale_accumulator(r);
        add(other.accumulator, rows * padded_dim, accumulator);
    }

    void rescale_accumulator(int row) {
        if (factor[row] == 1) return;
        for (Index e = 0; e < padded_dim; e += WIDTH<T>)
            store(accumulator + row * padded_dim + e, load(accumulator + row * padded_dim + e) * factor[row]);
    }
};

// Scores that are total already.
template <class T>
struct TotalScores {
    static constexpr T LEAST = 1 - Exponential<T>::BIAS;
    static constexpr T lines[KEYS] = {};
    static Vector<T> lane(int) { return Vector<T>{}; }
    static Vector<T> total(Vector<T> score, Vector<T>, T) { return score; }
};

// Total scores of a tile become weights 2^(t - base), in place; updates the state. NaN makes its query's sum NaN. `terms` are added.
// Weights below 2^LEAST are 0; returns whether any is not.
template <class T, class Terms = TotalScores<T>>
static bool online_softmax_transposed(T* scores, const Tile& at, TransposedSoftmax<T>& sums, int skipped, const Terms& terms = Terms()) {
    constexpr int W = WIDTH<T>;
    constexpr T NEVER = -__builtin_inf();
    Vector<T> left{};
    for (int r = 0; r < at.rows; r += W, scores += W) {
        const Vector<T> of_lane = terms.lane(r);
        auto total = [&](int c) OVERT_UNROLLED { return terms.total(load(scores + c * QUERIES), of_lane, terms.lines[c]); };
        Vector<T> row_max = broadcast(NEVER), other = row_max;
        int c = 0;
        for (; c + 2 <= at.keys; c += 2) {
            row_max = lane_max(total(c), row_max);
            other = lane_max(total(c + 1), other);
        }
        if (c < at.keys) row_max = lane_max(total(c), row_max);
        row_max = lane_max(row_max, other);
        int lane = skipped + r;
        Vector<T> base = load(sums.base + lane);
        if (lanes_above<T>(row_max, base + T(SLACK))) {
            base = row_max > base + T(SLACK) ? row_max : base;
            sums.rebase(lane, base);
            for (int row = r; row < min_of(r + W, at.rows); row++) sums.rescale_accumulator(skipped + row);
        }
        base = base == NEVER ? Vector<T>{} : base;
        Vector<T> sum_of_tile{};  // small weights are summed separately: each would vanish next to a large sum
        for (c = 0; c < at.keys; c++) {
            const Vector<T> power = total(c) - base, weight = power < Terms::LEAST ? Vector<T>{} : power_within<T>(power);
            sum_of_tile += weight;
            store(scores + c * QUERIES, weight);
        }
        left += sum_of_tile;
        store(sums.row_sum + lane, load(sums.row_sum + lane) + sum_of_tile);
    }
    return sum<T>(left) != 0;
}

// accumulator (rows x padded_dim) += weights * values. In a tile of partial coverage, a masked value is skipped where the tile holds a
// value that is not finite: 0 * NaN is NaN.
template <class T>
static void accumulate_values_transposed(const T* weights, const Tile& at, Coverage coverage, const TransposedMask<T>& mask,
                                         const std::uint8_t* allowed, const Values<T>& values, Index padded_dim, T* accumulator) {
    if (coverage == Coverage::full || all_finite(values.data, values.row, at.keys, padded_dim)) {
        multiply(weights, Index{1}, Index{QUERIES}, values.data, values.row, accumulator, padded_dim, at.rows, at.keys,
                 static_cast<int>(padded_dim), true);
        return;
    }
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r++)
            if (mask.attends(at, allowed, r, c))
                accumulate_keys<T, 1>(weights + c * QUERIES + r, values.data + c * values.row, 0, padded_dim,
                                      accumulator + r * padded_dim);
}

}  // namespace overt::OVERT_LEVEL
