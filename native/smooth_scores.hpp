// Additive scores of a tile without one tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).
//
// The exponentials are taken once a query and once a key. With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four terms
// share one division: 1/a + 1/b = (a + b) / ab, twice over. A sigmoid is the same with e^q e^k and without the 2. Lanes run along
// features, so rows are read as they lie in memory.
#pragma once

#include "exponents.hpp"
#include "sums.hpp"

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

    // Exponentials, or plain exponents where a group is out of range; then each group's way, and working memory to find it.
    Index key_room() const { return (KEYS + 3) * wide; }
    void pack_keys(Index first, int keys, T* to) const {
        T *least_k = to + KEYS * wide, *most_k = least_k + wide;
        Way* ways = reinterpret_cast<Way*>(most_k + wide);
        exponents.keys(first, keys, to, least_k, most_k);
        for (Index d = 0; d < wide; d += GROUP * W, ways++) {
            *ways = exponents.way(d, cost, least_k, most_k);
            if (*ways != Way::plain) exponents.raise(d, keys, to);
        }
    }

    // out[r * KEYS + c] = f(query r, key c).
    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        const Way* ways = reinterpret_cast<const Way*>(keys + (KEYS + 2) * wide);
        for (int r = 0; r < rows; r++, queries += wide, out += KEYS) {
            int c = 0;
            for (; c + 4 <= count; c += 4) pairs<4>(queries, keys + c * wide, ways, out + c);
            for (; c < count; c++) pairs<1>(queries, keys + c * wide, ways, out + c);
        }
    }

   private:
    // As shares of the largest no y is below 1. Weights that are not finite stay as they are and make every way plain.
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
            if (finite && share[d] < R::LEAST && share[d] > -R::LEAST) share[d] = share[d] < 0 ? -R::LEAST : R::LEAST;
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
        V total[N] = {};
        for (Index d = 0; d < wide; d += GROUP * W, ways++) {
            if (*ways == Way::shared) {
                shared<N>(query + d, keys + d, inverse + d, total);
            } else if (*ways == Way::capped) {
                capped<N>(query + d, keys + d, inverse + d, total);
            } else {
                for (Index e = d; e < least(d + GROUP * W, wide); e += W)
                    *ways == Way::single ? single<N>(query + e, keys + e, inverse + e, total)
                                         : plain<N>(query + ROWS * wide + e, keys + e, share + e, total);
            }
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

    template <int N>
    inline void shared(const T* query, const T* keys, const T* over, V* total) const {
        V q0 = load(query), q1 = load(query + W), q2 = load(query + 2 * W), q3 = load(query + 3 * W);
        V i0 = load(over), i1 = load(over + W), i2 = load(over + 2 * W), i3 = load(over + 3 * W);
        for (int n = 0; n < N; n++) {
            const T* k = keys + n * wide;
            total[n] += joined(fused(q0, load(k), i0), fused(q1, load(k + W), i1), fused(q2, load(k + 2 * W), i2),
                               fused(q3, load(k + 3 * W), i3));
        }
    }

    template <int N>
    inline void capped(const T* query, const T* keys, const T* over, V* total) const {
        for (int n = 0; n < N; n++) {
            V y[GROUP];
            for (int g = 0; g < GROUP; g++)
                y[g] = held<T>(fused(load(query + g * W), load(keys + n * wide + g * W), load(over + g * W)));
            total[n] += joined(y[0], y[1], y[2], y[3]);
        }
    }

    template <int N>
    inline void single(const T* query, const T* keys, const T* over, V* total) const {
        for (int n = 0; n < N; n++) total[n] += T(1) / fused(load(query), load(keys + n * wide), load(over));
    }

    template <int N>
    inline void plain(const T* query, const T* keys, const T* part, V* total) const {
        for (int n = 0; n < N; n++) total[n] += load(part) / (1 + exponential<T>(load(query) + load(keys + n * wide)));
    }
};

}  // namespace overt::OVERT_LEVEL
