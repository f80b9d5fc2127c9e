// The terms of a rectified additive score and their slopes, for the backward pass. The same interface as SmoothSlopes.
#pragma once

#include "attention/scores/relu_scores.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
class RectifiedSlopes {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    RectifiedScores<T> rows;
    Index features, wide;
    T slope;
    const T* weight;

   public:
    static Index room(const Inputs& inputs) { return RectifiedScores<T>::room(inputs); }

    RectifiedSlopes(const Inputs& inputs, const Score& score, T* memory)
        : rows(inputs, score, memory),
          features(inputs.features),
          wide(rows.padded(features)),
          slope(static_cast<T>(slope_of(score.activation))),
          weight(memory) {}

    void begin(Index entry) { rows.begin(entry); }

    Index query_room() const { return wide; }
    void pack_query(Index i, T* to) const { rows.pack_queries(i, 1, to); }

    Index key_room() const { return rows.key_room(); }
    void pack_keys(Index first, int keys, T* to) const { rows.pack_keys(first, keys, to); }

    // max(t, slope * t) of one query and N keys, kept in N rows: its sign is t's. And their scores.
    template <int N>
    void terms(const T* query, const T* keys, const int* which, T* kept, T* scores) const {
        V total[N] = {};
        for (Index d = 0; d < wide; d += W) {
            V q = load(query + d), w = load(weight + d);
            for (int n = 0; n < N; n++) {
                V term = rectified(q + load(keys + which[n] * wide + d), slope);
                store(kept + n * wide + d, term);
                total[n] = fused(w, term, total[n]);
            }
        }
        Sums<T, N>::of(total, scores);
    }

    template <int N>
    void slopes(const T* gradients, const int* which, const T* kept, T* d_query, T* d_keys, T* d_weight) const {
        for (Index d = 0; d < wide; d += W) {
            V of_query = load(d_query + d), of_weight = load(d_weight + d);
            for (int n = 0; n < N; n++) {
                V term = load(kept + n * wide + d), up = every(gradients[n]);
                V found = term > 0 ? up : up * slope;
                T* d_key = d_keys + which[n] * wide + d;
                of_query += found;
                of_weight = fused(up, term, of_weight);
                store(d_key, load(d_key) + found);
            }
            store(d_query + d, of_query);
            store(d_weight + d, of_weight);
        }
    }

    void input_gradients(const T* sums_of_slopes, bool add, T* to) const {
        for (Index d = 0; d < features; d++) to[d] = weight[d] * sums_of_slopes[d] + (add ? to[d] : T(0));
    }
    double weight_gradient(double, double sum_of_terms) const { return sum_of_terms; }
};

}  // namespace overt::OVERT_LEVEL
