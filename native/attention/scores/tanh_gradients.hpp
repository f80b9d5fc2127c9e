// The terms of an additive score and their slopes, for the backward pass: with r = 1 / (1 + e^2q e^2k), tanh = 1 - 2r and its slope is
// 4 (r - r^2). Two r or four come from one division, multiplied by the others' products. Lanes run along features.
#pragma once

#include "attention/scores/exponents.hpp"
#include "simd/lane_sums.hpp"

namespace overt::OVERT_LEVEL {

// Four terms share a division where it takes as long as ten products (the widest vectors), two where it takes as long as six.
constexpr bool FOUR = OVERT_BYTES == 64;

template <class T>
class SmoothSlopes {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    Exponents<T> exponents;
    const Score& score;
    Index wide;
    T constant = 0;
    T* weight;

   public:
    static Index room(const Inputs& inputs) { return Exponents<T>::padded(inputs.features) + Exponents<T>::room(inputs.features); }

    SmoothSlopes(const Inputs& inputs, const Score& score, T* memory)
        : exponents(inputs, rate_of(score.activation), memory), score(score), wide(exponents.wide),
          weight(memory + Exponents<T>::room(inputs.features)) {}

    void begin(Index entry) {
        exponents.begin(entry);
        const T* from = static_cast<const T*>(score.weight.data) + score.weight.places[entry];
        double total = 0;
        for (Index d = 0; d < wide; d++) {
            weight[d] = d < exponents.features ? from[d] : T(0);
            total += weight[d];
        }
        constant = static_cast<T>(total);
    }

    // A query takes two rows: its exponentials, and its exponents for groups of keys that are out of range.
    Index query_room() const { return 2 * wide; }
    void pack_query(Index i, T* to) const {
        exponents.query(i, to + wide);
        for (Index d = 0; d < wide; d += W) store(to + d, exponential<T>(load(to + wide + d)));
    }

    Index key_room() const { return exponents.key_room(); }
    void pack_keys(Index first, int keys, T* to) const { exponents.pack_keys(first, keys, nullptr, to); }

    // The r of one query and N keys, kept in N rows; and their scores.
    template <int N>
    void terms(const T* query, const T* keys, const int* which, T* kept, T* scores) const {
        const Way* ways = exponents.ways_of(keys);
        const T* key[N];
        V total[N];
        for (int n = 0; n < N; n++) key[n] = keys + which[n] * wide, total[n] = V{};
        for (Index d = 0; d < wide;) {
            Way now = ways[d / (GROUP * W)];
            Index from = d;
            while (d < wide && ways[d / (GROUP * W)] == now) d += GROUP * W;
            if (now == Way::shared)
                shared<N, false>(query, key, from, d, kept, total);
            else if (now == Way::capped)
                shared<N, true>(query, key, from, d, kept, total);
            else
                for (Index e = from; e < least(d, wide); e += W) alone<N>(query, key, e, now == Way::plain, kept, total);
        }
        Sums<T, N>::of(total, scores);
        for (int n = 0; n < N; n++) scores[n] = constant - exponents.rate * scores[n];
    }

    // Adds what N scores' gradients make of the kept r: sum g (r - r^2) to query and keys, sum g r to weight.
    template <int N>
    void slopes(const T* gradients, const int* which, const T* kept, T* d_query, T* d_keys, T* d_weight) const {
        T* d_key[N];
        V gradient[N];
        for (int n = 0; n < N; n++) d_key[n] = d_keys + which[n] * wide, gradient[n] = every(gradients[n]);
        for (Index d = 0; d < wide; d += W) {
            V of_query = load(d_query + d), of_weight = load(d_weight + d);
            for (int n = 0; n < N; n++) {
                V r = load(kept + n * wide + d), scaled = gradient[n] * r, slope = fused(-scaled, r, scaled);
                of_query += slope;
                of_weight += scaled;
                store(d_key[n] + d, load(d_key[n] + d) + slope);
            }
            store(d_query + d, of_query);
            store(d_weight + d, of_weight);
        }
    }

    // From those sums to gradients: with r = 1 / (1 + e^cx), the slope of 1 - cr is c^2 (r - r^2), and of c's score sum w (1 - cr).
    void input_gradients(const T* sums_of_slopes, bool add, T* to) const {
        const T *own = weight, square = exponents.rate * exponents.rate;
        const Index features = exponents.features;
        for (Index d = 0; d < features; d++) to[d] = own[d] * square * sums_of_slopes[d] + (add ? to[d] : T(0));
    }
    double weight_gradient(double sum_of_gradients, double sum_of_terms) const { return sum_of_gradients - exponents.rate * sum_of_terms; }

   private:
    // Groups of features from `d` to `end`, all computed in one way; the sums stay in registers.
    template <int N, bool CAPPED>
    inline void shared(const T* query, const T* const* key, Index d, Index end, T* kept, V* total) const {
        const T *own_weight = weight, *own_key[N];
        T* to[N];
        V sum[N];
        for (int n = 0; n < N; n++) sum[n] = total[n], own_key[n] = key[n], to[n] = kept + n * wide;
        for (; d < end; d += GROUP * W)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                V x[GROUP], r[GROUP];
                for (int g = 0; g < GROUP; g++) {
                    x[g] = fused(load(query + d + g * W), load(own_key[n] + d + g * W), every(T(1)));
                    if (CAPPED) x[g] = held<T>(x[g]);
                }
                reciprocals(x, r);
                for (int g = 0; g < GROUP; g++) {
                    store(to[n] + d + g * W, r[g]);
                    sum[n] = fused(load(own_weight + d + g * W), r[g], sum[n]);
                }
            }
        for (int n = 0; n < N; n++) total[n] = sum[n];
    }

    static inline void reciprocals(const V* x, V* r) {
        V ab = x[0] * x[1], cd = x[2] * x[3], over_ab, over_cd;
        if (FOUR) {
            V over = T(1) / (ab * cd);
            over_ab = over * cd, over_cd = over * ab;
        } else {
            over_ab = T(1) / ab, over_cd = T(1) / cd;
        }
        r[0] = over_ab * x[1], r[1] = over_ab * x[0], r[2] = over_cd * x[3], r[3] = over_cd * x[2];
    }

    template <int N>
    inline void alone(const T* query, const T* const* key, Index e, bool plain, T* kept, V* total) const {
        for (int n = 0; n < N; n++) {
            V k = load(key[n] + e), product = plain ? exponential<T>(load(query + wide + e) + k) : load(query + e) * k;
            V r = T(1) / (1 + product);
            store(kept + n * wide + e, r);
            total[n] = fused(load(weight + e), r, total[n]);
        }
    }
};

}  // namespace overt::OVERT_LEVEL
