// Additive scores of a tile without tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).
//
// The exponentials are computed once for each query and key. With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four terms
// share one division: 1/a + 1/b = (a + b) / ab, twice over. A sigmoid is the same with e^q e^k and without the 2. Lanes run along
// keys, which takes a transposition of each tile of keys and no sum over lanes; for few queries they run along features.
#pragma once

#include "attention/scores/exponents.hpp"
#include "simd/lane_sums.hpp"

namespace overt::OVERT_LEVEL {

// FILLING: the term of each padding feature in the sum; the constant subtracts it.
constexpr double FILLING = 0x1p-10;

// The scores of one batch entry. `begin` selects it; `pack_queries` and `pack_keys` bring rows into the form that `scores` reads.
template <class T>
class TanhScores {
    using V = Vector<T>;
    using R = Limits<T>;
    static constexpr int W = WIDTH<T>;

    Exponents<T> exponents;
    const Score& score;
    Index padded_dim;
    bool transposed;  // lanes run along keys
    T constant = 0, factor = 0;  // f = constant + factor * sum_d 1 / y_d
    T *share, *inverse, *cost;   // weights as shares of the largest, 1 / share, and its power of two

    // FEW: queries up to which (or up to a quarter of the features) the transposition takes longer than the sums over lanes.
    static constexpr Index FEW = 2 * ROWS;
    static constexpr Index PART = 64;  // features of a lane that are summed separately, so that errors stay small

   public:
    static Index size(const Inputs& inputs) {
        return 3 * Exponents<T>::padded(inputs.head_dim) + Exponents<T>::size(inputs.head_dim);
    }

    TanhScores(const Inputs& inputs, const Score& score, T* memory)
        : exponents(inputs, rate_of(score.activation), memory), score(score), padded_dim(exponents.padded_dim),
          transposed(W >= GROUP && inputs.queries > max_of(FEW, inputs.head_dim / 4)), share(memory + Exponents<T>::size(inputs.head_dim)),
          inverse(share + padded_dim), cost(inverse + padded_dim) {}

    void begin(Index entry) {
        exponents.begin(entry);
        set_weights(static_cast<const T*>(score.weight.data) + score.weight.offsets[entry]);
    }

    // Exponentials over weights, then plain exponents, for groups of keys that need those.
    Index query_size() const { return 2 * ROWS * padded_dim; }
    Index query_row() const { return padded_dim; }
    void pack_queries(Index first, int rows, T* to) const {
        T* plain = to + ROWS * padded_dim;
        for (int r = 0; r < rows; r++, to += padded_dim, plain += padded_dim) {
            exponents.query(first + r, plain);
            for (Index d = 0; d < padded_dim; d += W) store(to + d, exponential<T>(load(plain + d)) * load(inverse + d));
        }
    }

    Index key_size() const { return exponents.key_size(); }
    void pack_keys(Index first, int keys, T* to) const {
        transposed ? exponents.pack_transposed(first, keys, cost, to) : exponents.pack_keys(first, keys, cost, to);
    }

    // out[r * KEYS + c] = f(query r, key c). Columns up to the next whole vector are undefined.
    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        const Method* methods = exponents.methods_of(keys);
        for (int r = 0; r < rows; r++, queries += padded_dim, out += KEYS) {
            int c = 0;
            if (transposed) {
                for (; c + 3 * W < count; c += 4 * W) pairs<4, true>(queries, keys + c, methods, out + c);
                for (; c < count; c += W) pairs<1, true>(queries, keys + c, methods, out + c);
            }
            for (; c + 4 <= count; c += 4) pairs<4, false>(queries, keys + c * padded_dim, methods, out + c);
            for (; c < count; c++) pairs<1, false>(queries, keys + c * padded_dim, methods, out + c);
        }
    }

   private:
    // As shares of the largest weight, so that no y is below 1. Weights that are about 0 count as +-MIN_SHARE, with alternating signs so that
    // the errors of CAP cancel. Weights that are not finite stay unchanged and make every method plain.
    void set_weights(const T* weight) {
        Index head_dim = exponents.head_dim;
        double total = 0;
        T unit = 0;
        for (Index d = 0; d < head_dim; d++) {
            total += weight[d];
            unit = max_of(weight[d] < 0 ? -weight[d] : weight[d], unit);
        }
        bool finite = total - total == 0;
        factor = -exponents.rate * (finite ? unit : T(1));
        constant = static_cast<T>(total - factor * static_cast<double>(columns() - head_dim) * FILLING);
        if (!finite || unit == 0) unit = 1;
        for (Index d = 0; d < padded_dim; d++) {
            share[d] = d < head_dim ? weight[d] / unit : T(FILLING);
            if (finite && share[d] < R::MIN_SHARE && share[d] > -R::MIN_SHARE) share[d] = d / step() % 2 ? -R::MIN_SHARE : R::MIN_SHARE;
            inverse[d] = 1 / share[d];
            cost[d] = finite ? power_above(share[d]) : static_cast<T>(__builtin_inf());
        }
    }

    // -log2 |share|, rounded up to an integer: read from its bits.
    static T power_above(T share) {
        typename Lanes<T>::Number bits;
        share = share < 0 ? -share : share;
        __builtin_memcpy(&bits, &share, sizeof bits);
        return static_cast<T>(Exponential<T>::BIAS - (bits >> Exponential<T>::SHIFT));
    }

    // The distance from one feature of a group to the next, and features in whole groups, or in whole vectors.
    Index step() const { return transposed ? 1 : W; }
    Index columns() const { return transposed ? (exponents.head_dim + GROUP - 1) / GROUP * GROUP : padded_dim; }

    // One query's feature, or a vector of them, and that of keys n.
    template <bool TRANSPOSED>
    static inline V of_query(const T* from) {
        return TRANSPOSED ? broadcast(*from) : load(from);
    }
    template <bool TRANSPOSED>
    inline V of_keys(const T* keys, int n, Index d) const {
        return load(TRANSPOSED ? keys + d * KEYS + n * W : keys + n * padded_dim + d);
    }

    // The scores of one query and N vectors of keys, or N keys.
    template <int N, bool TRANSPOSED>
    void pairs(const T* query, const T* keys, const Method* methods, T* out) const {
        constexpr Index STEP = TRANSPOSED ? 1 : W;
        const Index stop = columns();
        V total[N];
        for (int n = 0; n < N; n++) total[n] = V{};
        for (Index d = 0; d < stop;) {
            Method method = methods[d / (GROUP * STEP)];
            Index from = d;
            while (d < min_of(stop, from + PART * STEP) && methods[d / (GROUP * STEP)] == method) d += GROUP * STEP;
            if (method == Method::shared)
                shared<N, TRANSPOSED, false>(query, keys, from, d, total);
            else if (method == Method::capped)
                shared<N, TRANSPOSED, true>(query, keys, from, d, total);
            else
                for (Index e = from; e < min_of(d, stop); e += STEP)
                    method == Method::single ? single<N, TRANSPOSED>(query, keys, e, total)
                                             : plain<N, TRANSPOSED>(query + ROWS * padded_dim, keys, e, total);
        }
        if (TRANSPOSED) {
            for (int n = 0; n < N; n++) store(out + n * W, multiply_add(broadcast(factor), total[n], broadcast(constant)));
            return;
        }
        T sums[N];
        Sums<T, N>::of(total, sums);
        for (int n = 0; n < N; n++) out[n] = multiply_add(factor, sums[n], constant);
    }

    // 1/a + 1/b + 1/c + 1/d with one division.
    static inline V sum_of_reciprocals(V a, V b, V c, V d) {
        V ab = a * b, cd = c * d;
        return multiply_add(a + b, cd, (c + d) * ab) / (ab * cd);
    }

    // Groups of features from `d` to `end`, all with one method; their sums stay in registers.
    template <int N, bool TRANSPOSED, bool CAPPED>
    inline void shared(const T* query, const T* keys, Index d, Index end, V* total) const {
        constexpr Index STEP = TRANSPOSED ? 1 : W;
        const T* inverse_shares = inverse;
        const Index feature_row = TRANSPOSED ? KEYS : 1, key_row = TRANSPOSED ? W : padded_dim;
        V sum[N] = {};
        for (; d < end; d += GROUP * STEP)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                V y[GROUP];
                for (int g = 0; g < GROUP; g++) {
                    Index e = d + g * STEP;
                    y[g] = multiply_add(of_query<TRANSPOSED>(query + e), load(keys + n * key_row + e * feature_row),
                                        of_query<TRANSPOSED>(inverse_shares + e));
                    if (CAPPED) y[g] = clamped<T>(y[g]);
                }
                sum[n] += sum_of_reciprocals(y[0], y[1], y[2], y[3]);
            }
        for (int n = 0; n < N; n++) total[n] += sum[n];
    }

    template <int N, bool TRANSPOSED>
    inline void single(const T* query, const T* keys, Index d, V* total) const {
        for (int n = 0; n < N; n++)
            total[n] += T(1) / multiply_add(of_query<TRANSPOSED>(query + d), of_keys<TRANSPOSED>(keys, n, d),
                                            of_query<TRANSPOSED>(inverse + d));
    }

    template <int N, bool TRANSPOSED>
    inline void plain(const T* query, const T* keys, Index d, V* total) const {
        for (int n = 0; n < N; n++)
            total[n] += of_query<TRANSPOSED>(share + d) /
                        (1 + exponential<T>(of_query<TRANSPOSED>(query + d) + of_keys<TRANSPOSED>(keys, n, d)));
    }
};

}  // namespace overt::OVERT_LEVEL
