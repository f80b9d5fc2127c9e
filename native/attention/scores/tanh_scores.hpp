// Additive scores of a tile without one tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).
//
// The exponentials are taken once a query and once a key. With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four terms
// share one division: 1/a + 1/b = (a + b) / ab, twice over. A sigmoid is the same with e^q e^k and without the 2. Lanes run along
// features, so rows are read as they lie in memory.
#pragma once

#include "attention/scores/exponents.hpp"
#include "simd/lane_sums.hpp"

namespace overt::OVERT_LEVEL {

// Features beyond the last one fill its vector. Each adds exactly this to the sum, which the constant takes off again.
constexpr double FILLING = 0x1p-10;

// The scores of one batch entry. `begin` turns to it; `pack_queries` and `pack_keys` bring rows into the form that `scores` reads.
template <class T>
class SmoothScores {
    using V = Vector<T>;
    using R = Reach<T>;
    static constexpr int W = WIDTH<T>;

    Exponents<T> exponents;
    const Score& score;
    Index wide;
    T constant = 0, factor = 0;  // f = constant + factor * sum_d 1 / y_d
    T *share, *inverse, *cost;   // weights as shares of the largest, 1 / share, and its power of two

   public:
    static Index room(const Inputs& inputs) { return 3 * Exponents<T>::padded(inputs.features) + Exponents<T>::room(inputs.features); }

    SmoothScores(const Inputs& inputs, const Score& score, T* memory)
        : exponents(inputs, rate_of(score.activation), memory), score(score), wide(exponents.wide),
          share(memory + Exponents<T>::room(inputs.features)), inverse(share + wide), cost(inverse + wide) {}

    void begin(Index entry) {
        exponents.begin(entry);
        weigh(static_cast<const T*>(score.weight.data) + score.weight.places[entry]);
    }

    // Exponentials over weights, then plain exponents, for groups of keys that need those.
    Index query_room() const { return 2 * ROWS * wide; }
    void pack_queries(Index first, int rows, T* to) const {
        T* plain = to + ROWS * wide;
        for (int r = 0; r < rows; r++, to += wide, plain += wide) {
            exponents.query(first + r, plain);
            for (Index d = 0; d < wide; d += W) store(to + d, exponential<T>(load(plain + d)) * load(inverse + d));
        }
    }

    Index key_room() const { return exponents.key_room(); }
    void pack_keys(Index first, int keys, T* to) const { exponents.pack_keys(first, keys, cost, to); }

    // out[r * KEYS + c] = f(query r, key c).
    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        const Way* ways = exponents.ways_of(keys);
        for (int r = 0; r < rows; r++, queries += wide, out += KEYS) {
            int c = 0;
            for (; c + 4 <= count; c += 4) pairs<4>(queries, keys + c * wide, ways, out + c);
            for (; c < count; c++) pairs<1>(queries, keys + c * wide, ways, out + c);
        }
    }

   private:
    // As shares of the largest no y is below 1. Weights that are as good as 0 count by turns as a little more and a little less, so
    // that what CAP makes of many adds up to nothing. Weights that are not finite stay as they are and make every way plain.
    void weigh(const T* weight) {
        Index features = exponents.features;
        double total = 0;
        T unit = 0;
        for (Index d = 0; d < features; d++) {
            total += weight[d];
            unit = most(weight[d] < 0 ? -weight[d] : weight[d], unit);
        }
        bool finite = total - total == 0;
        factor = -exponents.rate * (finite ? unit : T(1));
        constant = static_cast<T>(total - factor * static_cast<double>(wide - features) * FILLING);
        if (!finite || unit == 0) unit = 1;
        for (Index d = 0; d < wide; d++) {
            share[d] = d < features ? weight[d] / unit : T(FILLING);
            if (finite && share[d] < R::LEAST && share[d] > -R::LEAST) share[d] = d / W % 2 ? -R::LEAST : R::LEAST;
            inverse[d] = 1 / share[d];
            cost[d] = finite ? power_above(share[d]) : static_cast<T>(__builtin_inf());
        }
    }

    // -log2 |share|, rounded up to a whole number: read from its bits.
    static T power_above(T share) {
        typename Lanes<T>::Number bits;
        share = share < 0 ? -share : share;
        __builtin_memcpy(&bits, &share, sizeof bits);
        return static_cast<T>(Exponential<T>::BIAS - (bits >> Exponential<T>::SHIFT));
    }

    // The scores of one query and N keys that follow each other.
    template <int N>
    void pairs(const T* query, const T* keys, const Way* ways, T* out) const {
        V total[N];
        for (int n = 0; n < N; n++) total[n] = V{};
        for (Index d = 0; d < wide;) {
            Way now = ways[d / (GROUP * W)];
            Index from = d;
            while (d < wide && ways[d / (GROUP * W)] == now) d += GROUP * W;
            if (now == Way::shared)
                shared<N, false>(query, keys, from, d, total);
            else if (now == Way::capped)
                shared<N, true>(query, keys, from, d, total);
            else
                for (Index e = from; e < least(d, wide); e += W)
                    now == Way::single ? single<N>(query, keys, e, total) : plain<N>(query + ROWS * wide, keys, e, total);
        }
        T found[N];
        Sums<T, N>::of(total, found);
        for (int n = 0; n < N; n++) out[n] = fused(factor, found[n], constant);
    }

    // 1/a + 1/b + 1/c + 1/d with one division.
    static inline V joined(V a, V b, V c, V d) {
        V ab = a * b, cd = c * d;
        return fused(a + b, cd, (c + d) * ab) / (ab * cd);
    }

    // Groups of features from `d` to `end`, all computed in one way; the sums stay in registers.
    template <int N, bool CAPPED>
    inline void shared(const T* query, const T* keys, Index d, Index end, V* total) const {
        const T* over = inverse;
        const Index step = wide;
        V sum[N];
        for (int n = 0; n < N; n++) sum[n] = total[n];
        for (; d < end; d += GROUP * W)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                V y[GROUP];
                for (int g = 0; g < GROUP; g++) {
                    Index e = d + g * W;
                    y[g] = fused(load(query + e), load(keys + n * step + e), load(over + e));
                    if (CAPPED) y[g] = held<T>(y[g]);
                }
                sum[n] += joined(y[0], y[1], y[2], y[3]);
            }
        for (int n = 0; n < N; n++) total[n] = sum[n];
    }

    template <int N>
    inline void single(const T* query, const T* keys, Index d, V* total) const {
        for (int n = 0; n < N; n++) total[n] += T(1) / fused(load(query + d), load(keys + n * wide + d), load(inverse + d));
    }

    template <int N>
    inline void plain(const T* query, const T* keys, Index d, V* total) const {
        for (int n = 0; n < N; n++) total[n] += load(share + d) / (1 + exponential<T>(load(query + d) + load(keys + n * wide + d)));
    }
};

}  // namespace overt::OVERT_LEVEL
