// The terms of a relu score and their derivatives, for the backward pass. The same interface as TanhGradients.
#pragma once

#include "attention/scores/relu_scores.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
class ReluGradients {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    ReluScores<T> rows;
    Index head_dim, padded_dim;
    T slope;
    const T* weight;

   public:
    static Index size(const Inputs& inputs) { return ReluScores<T>::size(inputs); }

    ReluGradients(const Inputs& inputs, const Score& score, T* memory)
        : rows(inputs, score, memory),
          head_dim(inputs.head_dim),
          padded_dim(rows.padded(head_dim)),
          slope(static_cast<T>(slope_of(score.activation))),
          weight(memory) {}

    void begin(Index entry) { rows.begin(entry); }

    Index query_size() const { return padded_dim; }
    void pack_query(Index i, T* to) const { rows.pack_queries(i, 1, to); }

    Index key_size() const { return rows.key_size(); }
    void pack_keys(Index first, int keys, T* to) const { rows.pack_keys(first, keys, to); }

    // max(t, slope * t) of one query and N keys, saved in N rows: its sign is t's. And their scores.
    template <int N>
    void terms(const T* query, const T* keys, const int* which, T* saved_terms, T* scores) const {
        V total[N] = {};
        for (Index d = 0; d < padded_dim; d += W) {
            V q = load(query + d), w = load(weight + d);
            for (int n = 0; n < N; n++) {
                V term = relu_term(q + load(keys + which[n] * padded_dim + d), slope);
                store(saved_terms + n * padded_dim + d, term);
                total[n] = multiply_add(w, term, total[n]);
            }
        }
        Sums<T, N>::of(total, scores);
    }

    template <int N>
    void accumulate_gradients(const T* gradients, const int* which, const T* saved_terms, T* d_query, T* d_keys,
                              T* d_weight) const {
        for (Index d = 0; d < padded_dim; d += W) {
            V of_query = load(d_query + d), of_weight = load(d_weight + d);
            for (int n = 0; n < N; n++) {
                V term = load(saved_terms + n * padded_dim + d), up = broadcast(gradients[n]);
                V slope_gradient = term > 0 ? up : up * slope;
                T* d_key = d_keys + which[n] * padded_dim + d;
                of_query += slope_gradient;
                of_weight = multiply_add(up, term, of_weight);
                store(d_key, load(d_key) + slope_gradient);
            }
            store(d_query + d, of_query);
            store(d_weight + d, of_weight);
        }
    }

    void input_gradients(const T* sums_of_slopes, bool add, T* to) const {
        for (Index d = 0; d < head_dim; d++) to[d] = weight[d] * sums_of_slopes[d] + (add ? to[d] : T(0));
    }
    double weight_gradient(double, double sum_of_terms) const { return sum_of_terms; }
};

}  // namespace overt::OVERT_LEVEL
