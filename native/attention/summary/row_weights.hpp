// A summary's weights under other normalizers than a softmax: of each score by itself, given what the forward pass saved of its row.
#pragma once

#include "attention/normalizers/elementwise.hpp"
#include "attention/normalizers/power.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
struct RowWeights {
    // KEYS total scores of a row of an entry to weights, in place; a masked one stays -inf. Under entmax they are still to be divided by
    // their sum.
    virtual void weigh(Index entry, Index row, T* scores) const = 0;
    // Whether a row's weights are infinite: the sum that divides them is 0.
    virtual bool undefined(Index, Index) const { return false; }

   protected:
    ~RowWeights() = default;
};

// `sums` (batch, 2, Q): 0, and what a row's shares are divided by.
template <class T, class Rule>
struct ElementwiseWeights : RowWeights<T> {
    const T* sums;
    Index queries;

    ElementwiseWeights(const void* sums, Index queries) : sums(static_cast<const T*>(sums)), queries(queries) {}

    T divisor(Index entry, Index row) const { return sums[(2 * entry + 1) * queries + row]; }

    bool undefined(Index entry, Index row) const override { return divisor(entry, row) == 0; }

    void weigh(Index entry, Index row, T* scores) const override {
        T inverse = 1 / divisor(entry, row);
        for (int c = 0; c < KEYS; c += WIDTH<T>) {
            Vector<T> score = load(scores + c), share = Rule::template share<T>(score * T(Rule::UNIT));
            store(scores + c, score == T(-__builtin_inf()) ? score : share * inverse);
        }
    }
};

// `sums` (batch, Q, SPARSE_SUMS): in units of (alpha - 1) times the score, the row's largest and its tau - largest.
template <class T>
struct SparseWeights : RowWeights<T> {
    const T* sums;
    const double* alpha;
    Index queries;

    SparseWeights(const void* sums, const double* alpha, Index queries)
        : sums(static_cast<const T*>(sums)), alpha(alpha), queries(queries) {}

    void weigh(Index entry, Index row, T* scores) const override {
        const T* saved = sums + (entry * queries + row) * SPARSE_SUMS;
        T largest = saved[0], tau = saved[1], unit = static_cast<T>(alpha[entry] - 1);
        with_power(1 / (alpha[entry] - 1), [&](auto power) {
            T exponent = static_cast<T>(1 / (alpha[entry] - 1) - 1);
            for (int c = 0; c < KEYS; c += WIDTH<T>) {
                Vector<T> score = load(scores + c), above = lane_max(Vector<T>{}, score * unit - largest - tau);
                store(scores + c, score == T(-__builtin_inf())
                                      ? score
                                      : decltype(power)::template lower<T>(above, exponent) * above);
            }
        });
    }
};

// work(weights) of a row, nullptr under a softmax.
template <class T, class Work>
static inline void with_row_weights([[maybe_unused]] const Inputs& inputs, [[maybe_unused]] const Normalization& by,
                                    [[maybe_unused]] const void* sums, Work work) {
#ifdef __wasm__  // a page shows a softmax
    work(static_cast<const RowWeights<T>*>(nullptr));
#else
    ElementwiseWeights<T, SigmoidRule> sigmoid(sums, inputs.queries);
    ElementwiseWeights<T, SumRule> sum(sums, inputs.queries);
    SparseWeights<T> sparse(sums, by.alpha, inputs.queries);
    const RowWeights<T>* of_kind[] = {nullptr, &sigmoid, &sum, &sparse};
    work(of_kind[static_cast<int>(by.kind)]);
#endif
}

}  // namespace overt::OVERT_LEVEL
