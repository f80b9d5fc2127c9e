// Dot-product attention of a block of queries, tile by tile. A tile is turned: its keys are rows and its queries are lanes, so that keys
// and values are read as they lie, and the softmax takes its maxima and sums straight down.
//
// Total scores are counted in powers of two: t = log2(e) * heat * (score + bias).
#pragma once

#include "attention/scores/dot_scores.hpp"
#include "attention/softmax.hpp"
#include "attention/transposed_mask.hpp"

namespace overt::OVERT_LEVEL {

constexpr int TURNED_TILE = KEYS * QUERIES;

// work(i): a vector of a tile's numbers after the other.
template <class T, class Work>
static inline void each_vector(const Place& at, Work work) {
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r += WIDTH<T>) work(c * QUERIES + r);
}

// What makes totals of a call's scores.
template <class T>
struct Units {
    T scale;  // of query . key: total scores, or what the soft cap takes
    T cap;    // 0: none; of the capped scores
    T unit;   // of the bias

    Units(const Inputs& inputs, const Score& score, Index entry) {
        double heat = (inputs.heat ? inputs.heat[entry] : 1) * LOG2E;
        bool capped = score.softcap > 0;
        scale = static_cast<T>(score.scale[entry] * (capped ? 1 / score.softcap : heat));
        cap = static_cast<T>(capped ? score.softcap * heat : 0);
        unit = static_cast<T>(heat);
    }
};

// Rows of queries, or of upstream gradients, turned: to[d * QUERIES + r]; lanes beyond the last row hold 0.
template <class T>
static void turn_rows(const Matrix& from, const Place& at, Index columns, T scale, T* to, T* spare) {
    if (from.kind == KIND<T>) {
        turn(row_of(from, at.entry, at.row, columns, spare), from.row, at.rows, columns, to, Index{QUERIES}, scale);
        return;
    }
    for (int r = 0; r < at.rows; r++) read_row(from, at.entry, at.row + r, columns, spare + r * columns);
    turn(spare, columns, at.rows, columns, to, Index{QUERIES}, scale);
}

// A tile's rows of keys where they stand, else read into `spare`.
template <class T>
static Left<T> rows_at(const Matrix& matrix, const Place& at, Index columns, T* spare) {
    if (matrix.kind == KIND<T>) return {row_of(matrix, at.entry, at.key, columns, spare), matrix.row, 1};
    for (int c = 0; c < at.keys; c++) read_row(matrix, at.entry, at.key + c, columns, spare + c * columns);
    return {spare, columns, 1};
}

// Adds a tile's biases times their unit.
template <class T>
static void add_turned_bias(const Matrix& bias, const Place& at, T unit, T* scores, T* spare) {
    for (int r = 0; r < at.rows; r++) {
        T* to = spare + r * KEYS;
        for (int c = 0; c < at.keys; c++) to[c] = 0;
    }
    add_bias(bias, at, spare);
    T* turned = spare + QUERIES * KEYS;
    turn(spare, Index{KEYS}, at.rows, at.keys, turned, Index{QUERIES});
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r++) scores[c * QUERIES + r] += unit * turned[c * QUERIES + r];
}

// Products of queries and keys to total scores, in place; -inf where a mask bars a pair.
template <class T>
static void settle_turned(const Inputs& inputs, const Units<T>& units, const Place& at, Seen seen, const TurnedMask<T>& mask,
                          const std::uint8_t* allowed, T* scores, T* spare) {
    if (units.cap > 0)
        each_vector<T>(at, [&](int i) { store(scores + i, hyperbolic_tangent<T>(load(scores + i)) * units.cap); });
    if (inputs.bias.data) add_turned_bias(inputs.bias, at, units.unit, scores, spare);
    if (seen == Seen::some) mask.bar(at, allowed, scores);
}

// Multiplies weights by 1 / (1 - p) where dropout keeps them and by 0 elsewhere.
template <class T>
static void drop_turned(const Inputs& inputs, const Place& at, T* weights) {
    Drawing drawing(inputs);
    T kept = static_cast<T>(drawing.kept);
    std::uint32_t first[QUERIES], second[QUERIES];
    for (int r = 0; r < at.rows; r++) {
        std::uint64_t own = Drawing::of_row(inputs, at.entry, at.row + r);
        first[r] = static_cast<std::uint32_t>(own), second[r] = static_cast<std::uint32_t>(own >> 32);
    }
    for (int c = 0; c < at.keys; c++, weights += QUERIES)
        for (int r = 0; r < at.rows; r++)
            weights[r] *= drawing.keeps(static_cast<std::uint32_t>(at.key + c), first[r], second[r]) ? kept : T(0);
}

// How far a row's scores may pass the one they are measured from before its sums are rescaled: sums of powers up to 2^8 are as exact.
constexpr int SLACK = 8;

// The sums of a block of queries so far: sum_j 2^(t_j - base), and that times v_j.
template <class T>
struct TurnedSums {
    T *base, *total, *shrunk, *output;
    Index wide;
    static Index room(Index width) { return QUERIES * (3 + padded<T>(width)); }
    TurnedSums(T* memory, Index width)
        : base(memory), total(base + QUERIES), shrunk(total + QUERIES), output(shrunk + QUERIES), wide(padded<T>(width)) {}

    void clear(int rows) {
        for (int r = 0; r < QUERIES; r += WIDTH<T>) store(base + r, every(T(-__builtin_inf()))), store(total + r, Vector<T>{});
        for (Index e = 0; e < rows * wide; e += WIDTH<T>) store(output + e, Vector<T>{});
    }

    // Brings lanes' sums to other bases; their outputs follow in `follow`.
    void rebase(int lane, Vector<T> now) {
        Vector<T> before = load(base + lane);
        Vector<T> less = power_of_two<T>(before - now);
        // Where nothing has been summed up there is nothing to shrink.
        less = (now == before) | (before == T(-__builtin_inf())) ? every(T(1)) : less;
        store(shrunk + lane, less);
        store(base + lane, now);
        store(total + lane, load(total + lane) * less);
    }

    void follow(int row) {
        if (shrunk[row] == 1) return;
        for (Index e = 0; e < wide; e += WIDTH<T>) store(output + row * wide + e, load(output + row * wide + e) * shrunk[row]);
    }
};

// Total scores of a tile, in place, to weights 2^(t - base) of the running sums. NaN makes its query's total NaN.
template <class T>
static void fold_turned(T* scores, const Place& at, TurnedSums<T>& sums, int skipped) {
    constexpr int W = WIDTH<T>;
    constexpr T NEVER = -__builtin_inf();
    for (int r = 0; r < at.rows; r += W, scores += W) {
        Vector<T> most = every(NEVER), other = most;
        int c = 0;
        for (; c + 2 <= at.keys; c += 2) {
            most = larger(load(scores + c * QUERIES), most);
            other = larger(load(scores + (c + 1) * QUERIES), other);
        }
        if (c < at.keys) most = larger(load(scores + c * QUERIES), most);
        most = larger(most, other);
        int lane = skipped + r;
        Vector<T> base = load(sums.base + lane);
        if (lanes_above<T>(most, base + T(SLACK))) {
            base = most > base + T(SLACK) ? most : base;
            sums.rebase(lane, base);
            for (int own = r; own < least(r + W, at.rows); own++) sums.follow(skipped + own);
        }
        base = base == NEVER ? Vector<T>{} : base;
        Vector<T> total = load(sums.total + lane);
        for (c = 0; c < at.keys; c++) {
            Vector<T> weight = power_of_two<T>(load(scores + c * QUERIES) - base);
            total += weight;
            store(scores + c * QUERIES, weight);
        }
        store(sums.total + lane, total);
    }
}

// sums (rows x wide) += weights * values. In a tile that is seen in part a barred value is not touched where the tile holds one that is
// not finite: 0 * NaN is NaN.
template <class T>
static void mix_turned(const T* weights, const Place& at, Seen seen, const TurnedMask<T>& mask, const std::uint8_t* allowed,
                       const Values<T>& values, Index wide, T* output) {
    if (seen == Seen::all || all_finite(values.data, values.row, at.keys, wide)) {
        multiply(weights, Index{1}, Index{QUERIES}, values.data, values.row, output, wide, at.rows, at.keys, static_cast<int>(wide), true);
        return;
    }
    for (int c = 0; c < at.keys; c++)
        for (int r = 0; r < at.rows; r++)
            if (mask.sees(at, allowed, r, c))
                mix_keys<T, 1>(weights + c * QUERIES + r, values.data + c * values.row, 0, wide, output + r * wide);
}

}  // namespace overt::OVERT_LEVEL
