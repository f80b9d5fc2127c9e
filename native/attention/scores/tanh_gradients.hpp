// The terms of an additive score and their derivatives, for the backward pass: with r = 1 / (1 + e^2q e^2k), tanh = 1 - 2r and its
// derivative is 4 (r - r^2). Two or four r come from one division, multiplied by the others' products. Lanes run along features.
#pragma once

#include "attention/scores/exponents.hpp"
#include "simd/lane_sums.hpp"

namespace overt::OVERT_LEVEL {

// FOUR: four terms share a division if it takes as long as ten products (the widest vectors), two if it takes as long as six.
constexpr bool FOUR = OVERT_BYTES == 64;

template <class T>
class TanhGradients {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    Exponents<T> exponents;
    const Score& score;
    Index padded_dim;
    T constant = 0;
    T* weight;

   public:
    static Index size(const Inputs& inputs) { return Exponents<T>::padded(inputs.head_dim) + Exponents<T>::size(inputs.head_dim); }

    TanhGradients(const Inputs& inputs, const Score& score, T* memory)
        : exponents(inputs, rate_of(score.activation), memory), score(score), padded_dim(exponents.padded_dim),
          weight(memory + Exponents<T>::size(inputs.head_dim)) {}

    void begin(Index entry) {
        exponents.begin(entry);
        const T* from = static_cast<const T*>(score.weight.data) + score.weight.offsets[entry];
        double total = 0;
        for (Index d = 0; d < padded_dim; d++) {
            weight[d] = d < exponents.head_dim ? from[d] : T(0);
            total += weight[d];
        }
        constant = static_cast<T>(total);
    }

    // A query has two rows: its exponentials, and its exponents for groups of keys that are out of range.
    Index query_size() const { return 2 * padded_dim; }
    void pack_query(Index i, T* to) const {
        exponents.query(i, to + padded_dim);
        for (Index d = 0; d < padded_dim; d += W) store(to + d, exponential<T>(load(to + padded_dim + d)));
    }

    Index key_size() const { return exponents.key_size(); }
    void pack_keys(Index first, int keys, T* to) const { exponents.pack_keys(first, keys, nullptr, to); }

    // The r of one query and N keys, saved in N rows; and their scores.
    template <int N>
    void terms(const T* query, const T* keys, const int* which, T* saved_terms, T* scores) const {
        const Method* methods = exponents.methods_of(keys);
        const T* key[N];
        V total[N];
        for (int n = 0; n < N; n++) key[n] = keys + which[n] * padded_dim, total[n] = V{};
        for (Index d = 0; d < padded_dim;) {
            Method method = methods[d / (GROUP * W)];
            Index from = d;
            while (d < padded_dim && methods[d / (GROUP * W)] == method) d += GROUP * W;
            if (method == Method::shared)
                shared<N, false>(query, key, from, d, saved_terms, total);
            else if (method == Method::capped)
                shared<N, true>(query, key, from, d, saved_terms, total);
            else
                for (Index e = from; e < min_of(d, padded_dim); e += W)
                    separate<N>(query, key, e, method == Method::plain, saved_terms, total);
        }
        Sums<T, N>::of(total, scores);
        for (int n = 0; n < N; n++) scores[n] = constant - exponents.rate * scores[n];
    }

    // Adds the gradients of N scores, from the saved r: sum g (r - r^2) to query and keys, sum g r to weight.
    template <int N>
    void accumulate_gradients(const T* gradients, const int* which, const T* saved_terms, T* d_query, T* d_keys,
                              T* d_weight) const {
        T* d_key[N];
        V gradient[N];
        for (int n = 0; n < N; n++) d_key[n] = d_keys + which[n] * padded_dim, gradient[n] = broadcast(gradients[n]);
        for (Index d = 0; d < padded_dim; d += W) {
            V of_query = load(d_query + d), of_weight = load(d_weight + d);
            for (int n = 0; n < N; n++) {
                V r = load(saved_terms + n * padded_dim + d), scaled = gradient[n] * r, slope = multiply_add(-scaled, r, scaled);
                of_query += slope;
                of_weight += scaled;
                store(d_key[n] + d, load(d_key[n] + d) + slope);
            }
            store(d_query + d, of_query);
            store(d_weight + d, of_weight);
        }
    }

    // From those sums to gradients: with r = 1 / (1 + e^cx), the derivative of 1 - cr is c^2 (r - r^2), and the score is sum w (1 - cr).
    void input_gradients(const T* sums_of_slopes, bool add, T* to) const {
        const T *weights = weight, square = exponents.rate * exponents.rate;
        const Index head_dim = exponents.head_dim;
        for (Index d = 0; d < head_dim; d++) to[d] = weights[d] * square * sums_of_slopes[d] + (add ? to[d] : T(0));
    }
    double weight_gradient(double sum_of_gradients, double sum_of_terms) const {
        return sum_of_gradients - exponents.rate * sum_of_terms;
    }

   private:
    // Groups of features from `d` to `end`, all with one method; the sums stay in registers.
    template <int N, bool CAPPED>
    inline void shared(const T* query, const T* const* key, Index d, Index end, T* saved_terms, V* total) const {
        const T *weights = weight, *key_row[N];
        T* to[N];
        V sum[N];
        for (int n = 0; n < N; n++) sum[n] = total[n], key_row[n] = key[n], to[n] = saved_terms + n * padded_dim;
        for (; d < end; d += GROUP * W)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                V x[GROUP], r[GROUP];
                for (int g = 0; g < GROUP; g++) {
                    x[g] = multiply_add(load(query + d + g * W), load(key_row[n] + d + g * W), broadcast(T(1)));
                    if (CAPPED) x[g] = clamped<T>(x[g]);
                }
                reciprocals(x, r);
                for (int g = 0; g < GROUP; g++) {
                    store(to[n] + d + g * W, r[g]);
                    sum[n] = multiply_add(load(weights + d + g * W), r[g], sum[n]);
                }
            }
        for (int n = 0; n < N; n++) total[n] = sum[n];
    }

    static inline void reciprocals(const V* x, V* r) {
        V ab = x[0] * x[1], cd = x[2] * x[3], over_ab, over_cd;
        if (FOUR) {
            V inverse_sum = T(1) / (ab * cd);
            over_ab = inverse_sum * cd, over_cd = inverse_sum * ab;
        } else {
            over_ab = T(1) / ab, over_cd = T(1) / cd;
        }
        r[0] = over_ab * x[1], r[1] = over_ab * x[0], r[2] = over_cd * x[3], r[3] = over_cd * x[2];
    }

    template <int N>
    inline void separate(const T* query, const T* const* key, Index e, bool plain, T* saved_terms, V* total) const {
        for (int n = 0; n < N; n++) {
            V k = load(key[n] + e), product = plain ? exponential<T>(load(query + padded_dim + e) + k) : load(query + e) * k;
            V r = T(1) / (1 + product);
            store(saved_terms + n * padded_dim + e, r);
            total[n] = multiply_add(load(weight + e), r, total[n]);
        }
    }
};

}  // namespace overt::OVERT_LEVEL
