// The backward pass of each normalizer, for additive scores and for programs: weights from a row's total scores, and gradients of scores
// from gradients of weights, d_score = slope * (d_weight - delta).
#pragma once

#include "attention/gradients/gradient_workspace.hpp"
#include "attention/normalizers/elementwise.hpp"
#include "attention/normalizers/power.hpp"

namespace overt::OVERT_LEVEL {

// The saved numbers of a row, from which weights are computed: a softmax's e^(t - first) * second, a sum's t * second, entmax's
// (t - first - second)^p.
template <class T>
struct SavedRow {
    T first, second, delta, alpha_gradient;
};

template <class T>
class RowNormalizer {
    const Inputs& inputs;
    Normalization by;

   public:
    RowNormalizer(const Inputs& inputs, const Normalization& by) : inputs(inputs), by(by) {}

    bool is_softmax() const { return by.kind == Normalizer::softmax; }
    bool is_entmax() const { return by.kind == Normalizer::entmax; }

    // The factor of score + bias in a total score, and of a total score's gradient in the score's gradient.
    T unit(Index entry) const {
        if (is_entmax()) return static_cast<T>(by.alpha[entry] - 1);
        return inputs.inverse_temperature ? static_cast<T>(inputs.inverse_temperature[entry]) : T(1);
    }
    T gradient_unit(Index entry) const { return is_entmax() ? T(1) : unit(entry); }

    // Query `of_entry` of an entry.
    SavedRow<T> row(Index entry, Index of_entry, const SavedForward& saved) const {
        Index row = entry * inputs.queries + of_entry;
        const T *upstream = static_cast<const T*>(saved.upstream) + row * inputs.value_dim,
                *sums = static_cast<const T*>(saved.log_sum_exp);
        T mean = product(static_cast<const T*>(saved.output) + row * inputs.value_dim, upstream);
        if (is_softmax()) return {sums[row], 1, mean, 0};
        if (is_entmax()) return entmax_row(entry, sums + row * (SPARSE_SUMS + 2 * inputs.value_dim), mean, upstream);
        return {0, 1 / sums[(2 * entry + 1) * inputs.queries + of_entry], by.kind == Normalizer::sum ? mean : T(0), 0};
    }

    // Whether the log-sum-exp of any of at most ROWS queries of an entry is large.
    bool any_large(Index entry, Index first, Index stop, const SavedForward& saved) const {
        const T* log_sum_exp = static_cast<const T*>(saved.log_sum_exp) + entry * inputs.queries;
        for (Index row = first; is_softmax() && row < min_of(stop, first + ROWS); row++)
            if (is_large(log_sum_exp[row])) return true;
        return false;
    }

    // N total scores to weights, in place, and the slopes; both have space for a whole vector after them.
    template <int N>
    void weigh(Index entry, T first, T second, T* scores, T* slopes) const {
        for (int n = 0; n < N; n += WIDTH<T>) {
            Vector<T> weight = load(scores + n), slope;
            weigh(entry, broadcast(first), broadcast(second), weight, slope);
            store(scores + n, weight), store(slopes + n, slope);
        }
    }

    // A vector of total scores to weights, and the slopes.
    OVERT_INLINE_MEMBER void weigh(Index entry, Vector<T> first, Vector<T> second, Vector<T>& weight, Vector<T>& slope) const {
        Vector<T> t = weight;
        if (is_softmax()) {
            weight = slope = exponential<T>(t - first) * second;
        } else if (by.kind == Normalizer::sigmoid) {
            weight = SigmoidRule::share<T>(t * T(LOG2E)), slope = weight * (1 - weight);
        } else if (by.kind == Normalizer::sum) {
            weight = SumRule::share<T>(t) * second, slope = second;
        } else if (by.kind == Normalizer::identity) {
            weight = SumRule::share<T>(t), slope = broadcast(T(1));
        } else {
            double power = 1 / (by.alpha[entry] - 1);
            Vector<T> above = lane_max(Vector<T>{}, t - first - second);
            with_power(power, [&](auto by_power) {
                slope = decltype(by_power)::template lower<T>(above, static_cast<T>(power - 1));
            });
            weight = above * slope;
        }
    }

   private:
    T product(const T* a, const T* b) const {
        T total = 0;
        for (Index e = 0; e < inputs.value_dim; e++) total += a[e] * b[e];
        return total;
    }

    // d weight_j / d alpha = (weight_j - m_j) / (alpha - 1)^2 + (h_j - m_j sum h) / (alpha - 1) with m = u / sum u (Correia et al. 2019,
    // proposition 1), here times the gradients of weights.
    SavedRow<T> entmax_row(Index entry, const T* saved, T mean, const T* upstream) const {
        if (saved[0] == -__builtin_inf()) return {0, static_cast<T>(__builtin_inf()), 0, 0};
        T unit = static_cast<T>(by.alpha[entry] - 1);
        T delta = product(saved + SPARSE_SUMS, upstream) / saved[2];
        T of_logarithms = product(saved + SPARSE_SUMS + inputs.value_dim, upstream) - delta * saved[3];
        return {saved[0], saved[1], delta, ((mean - delta) / unit + of_logarithms) / unit};
    }
};

}  // namespace overt::OVERT_LEVEL
