// Normalizers whose weights depend on their own score, and at most on a sum: no maximum of the row is needed.
#pragma once

#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

// A rule defines the unit of total scores t (UNIT), the share of a score, whether shares are divided by their row's sum (SUMMED), the share
// of a score that is not -inf (`unmasked`), and the gradient of t / UNIT from gradients of weights, with their mean delta.
struct SigmoidRule {
    static constexpr double UNIT = LOG2E;
    static constexpr bool SUMMED = false;

    template <class T>
    OVERT_INLINE Vector<T> share(Vector<T> t) {
        return t == T(-__builtin_inf()) ? Vector<T>{} : unmasked<T>(t);
    }
    template <class T>
    OVERT_INLINE Vector<T> unmasked(Vector<T> t) {
        constexpr T LARGEST = Exponential<T>::BIAS - 2;
        return reciprocal<T>(1 + power_within<T>(lane_min(broadcast(LARGEST), lane_max(broadcast(-LARGEST), -t))));
    }
    template <class T>
    OVERT_INLINE Vector<T> gradient(Vector<T> weight, Vector<T> d_weight, Vector<T>, Vector<T>) {
        return weight * (1 - weight) * d_weight;
    }
};

struct SumRule {
    static constexpr double UNIT = 1;
    static constexpr bool SUMMED = true;

    template <class T>
    OVERT_INLINE Vector<T> share(Vector<T> t) {
        return t == T(-__builtin_inf()) ? Vector<T>{} : t;
    }
    template <class T>
    OVERT_INLINE Vector<T> unmasked(Vector<T> t) {
        return t;
    }
    template <class T>
    OVERT_INLINE Vector<T> gradient(Vector<T>, Vector<T> d_weight, Vector<T> delta, Vector<T> inverse_sum) {
        return (d_weight - delta) * inverse_sum;
    }
};

struct IdentityRule {
    static constexpr double UNIT = 1;
    static constexpr bool SUMMED = false;

    template <class T>
    OVERT_INLINE Vector<T> share(Vector<T> t) {
        return SumRule::share<T>(t);
    }
    template <class T>
    OVERT_INLINE Vector<T> unmasked(Vector<T> t) {
        return t;
    }
};

// The state of some rows: sum_j share_j, whether there is any key, and sum_j share_j v_j.
template <class T, class Rule>
struct ElementwiseState {
    T *row_sum, *any_key, *accumulator;
    Index padded_dim;  // the columns of the accumulator, padded
    static Index size(Index value_dim) { return QUERIES * (2 + padded<T>(value_dim)); }
    ElementwiseState(T* memory, Index value_dim)
        : row_sum(memory), any_key(row_sum + QUERIES), accumulator(any_key + QUERIES), padded_dim(padded<T>(value_dim)) {}

    void clear(int rows) {
        for (int r = 0; r < QUERIES; r += WIDTH<T>) store(row_sum + r, Vector<T>{}), store(any_key + r, Vector<T>{});
        for (Index e = 0; e < rows * padded_dim; e += WIDTH<T>) store(accumulator + e, Vector<T>{});
    }

    // Adds the sums of the same rows over other keys.
    void join(const ElementwiseState& other, int rows) {
        for (int r = 0; r < rows; r++) row_sum[r] += other.row_sum[r], any_key[r] = max_of(any_key[r], other.any_key[r]);
        add(other.accumulator, rows * padded_dim, accumulator);
    }

    // The divisor of the row's shares: infinite in a row without keys.
    T total(int row) const {
        if (!Rule::SUMMED) return 1;
        return any_key[row] == 0 ? static_cast<T>(__builtin_inf()) : row_sum[row];
    }
};

// Total scores of a transposed tile become shares, in place, and the state is updated. Without masked pairs no score is -inf.
template <class T, class Rule>
static void elementwise_transposed(T* scores, const Tile& at, bool masked, ElementwiseState<T, Rule>& state, int skipped) {
    for (int r = 0; r < at.rows; r += WIDTH<T>) {
        Vector<T> row_sum{}, any_key = masked ? load(state.any_key + skipped + r) : broadcast(T(1));
        for (int c = 0; c < at.keys && !masked; c++) {
            Vector<T> share = Rule::template unmasked<T>(load(scores + c * QUERIES + r));
            if (Rule::SUMMED) row_sum += share;
            store(scores + c * QUERIES + r, share);
        }
        for (int c = 0; c < at.keys && masked; c++) {
            Vector<T> score = load(scores + c * QUERIES + r), share = Rule::template share<T>(score);
            if (Rule::SUMMED) row_sum += share, any_key = score == T(-__builtin_inf()) ? any_key : broadcast(T(1));
            store(scores + c * QUERIES + r, share);
        }
        store(state.row_sum + skipped + r, load(state.row_sum + skipped + r) + row_sum), store(state.any_key + skipped + r, any_key);
    }
}

// The same for rows of KEYS scores in natural units, and the end of a row, for DotDecode.
template <class T, class Rule>
static void weigh(T* scores, int rows, int keys, ElementwiseState<T, Rule>& state) {
    for (int r = 0; r < rows; r++, scores += KEYS) {
        Vector<T> row_sum{}, any_key{};
        for (int c = 0; c < keys; c += WIDTH<T>) {
            Vector<T> score = load(scores + c) * T(Rule::UNIT), share = Rule::template share<T>(score);
            row_sum += share, any_key = score == T(-__builtin_inf()) ? any_key : broadcast(T(1));
            store(scores + c, share);
        }
        state.row_sum[r] += sum<T>(row_sum), state.any_key[r] = max_of(state.any_key[r], horizontal_max<T>(any_key));
    }
}
template <class T, class Rule>
static void finish_row(const ElementwiseState<T, Rule>& state, int r, const Inputs& inputs, Index entry, Index row, T* output, T* sums) {
    save_sums(sums, inputs, entry, row, T(0), state.total(r));
    put_row(state.accumulator + r * state.padded_dim, 1 / state.total(r), inputs.value_dim,
            output + (entry * inputs.queries + row) * inputs.value_dim);
}

}  // namespace overt::OVERT_LEVEL
