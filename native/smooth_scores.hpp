// Additive scores of a tile without one tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).
//
// The exponentials are taken once a query and once a key. With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four terms
// share one division: 1/a + 1/b = (a + b) / ab, twice over. A sigmoid is the same with e^q e^k and without the 2. Lanes run along
// features, so rows are read as they lie in memory.
#pragma once

#include "sums.hpp"

namespace overt::OVERT_LEVEL {

// How far the reciprocal form reaches in each number type.
template <class T>
struct Reach;
template <>
struct Reach<float> {
    static constexpr float EXPONENT = 87;     // e^x and e^-x are normal numbers up to here
    static constexpr float BUDGET = 120;      // the product of four y stays below this power of two
    static constexpr float CAP = 0x1p29f;     // 1 / y below 1 / CAP is nothing beside the largest weight
    static constexpr float LEAST = 0x1p-40f;  // a weight below this share of the largest counts as this share
    static constexpr float MIDDLE = 40;       // exponents of queries within this need no shift
};
template <>
struct Reach<double> {
    static constexpr double EXPONENT = 700;
    static constexpr double BUDGET = 1000;
    static constexpr double CAP = 0x1p240;
    static constexpr double LEAST = 0x1p-100;
    static constexpr double MIDDLE = 300;
};

// Features beyond the last one fill its vector. Each adds exactly this to the sum, which the constant takes off again.
constexpr double FILLING = 0x1p-10;

// How a group of four vectors of features is computed, by the range of its exponents in a tile of keys.
//   shared  four terms share a division
//   capped  so they do, with each y held at CAP
//   single  each has a division of its own: the last vectors, where there are no four
//   plain   each has an exponential of its own, since those of query or key leave the number type
enum class Way : std::uint8_t { shared, capped, single, plain };

// log2 x, x > 0, rounded up to a whole number: read from its bits.
template <class T>
static inline T power_above(T x) {
    typename Lanes<T>::Number bits;
    __builtin_memcpy(&bits, &x, sizeof x);
    return static_cast<T>((bits >> Exponential<T>::SHIFT) - Exponential<T>::BIAS + 1);
}

template <class T>
static inline T magnitude(T x) {
    return x < 0 ? -x : x;
}

// The scores of one batch entry. `begin` turns to it; `pack_queries` and `pack_keys` bring rows into the form that `scores` reads.
template <class T>
class SmoothScores {
    using V = Vector<T>;
    using R = Reach<T>;
    static constexpr int W = WIDTH<T>, GROUP = 4;

    const Inputs& inputs;
    const Score& score;
    Index entry = 0, features, wide;  // wide: features in whole vectors
    T rate, amplitude;                // tanh x = 1 - 2 / (1 + e^2x); sigmoid x = 1 - 1 / (1 + e^x)
    T constant = 0, factor = 0;       // f = constant + factor * sum_d 1 / y_d
    bool weighable = true;            // whether the weights are finite
    T *share, *inverse, *middle, *cost, *low, *high;

   public:
    static Index padded(Index features) { return (features + W - 1) / W * W; }
    static Index room(const Inputs& inputs) { return 6 * padded(inputs.features); }

    SmoothScores(const Inputs& inputs, const Score& score, T* memory)
        : inputs(inputs), score(score), features(inputs.features), wide(padded(features)),
          rate(score.activation == Activation::tanh ? 2 : 1), amplitude(rate), share(memory), inverse(share + wide),
          middle(inverse + wide), cost(middle + wide), low(cost + wide), high(low + wide) {}

    void begin(Index which) {
        entry = which;
        weigh();
        find_range();
    }

    // Exponentials over weights, then plain exponents, for groups of keys that need those.
    Index query_room() const { return 2 * ROWS * wide; }
    void pack_queries(Index first, int rows, T* to) const {
        T* plain = to + ROWS * wide;
        for (int r = 0; r < rows; r++, to += wide, plain += wide) {
            const T* row = row_of(inputs.query, entry, first + r, features, plain);
            for (Index d = 0; d < wide; d++) plain[d] = d < features ? (row[d] - middle[d]) * rate : -R::EXPONENT;
            for (Index d = 0; d < wide; d += W) store(to + d, exponential<T>(load(plain + d)) * load(inverse + d));
        }
    }

    // Exponentials, or plain exponents where a group is out of range; then each group's way, and working memory to find it.
    Index key_room() const { return (KEYS + 3) * wide; }
    void pack_keys(Index first, int keys, T* to) const {
        T *least_k = to + KEYS * wide, *most_k = least_k + wide;
        Way* ways = reinterpret_cast<Way*>(most_k + wide);
        for (Index d = 0; d < wide; d += W) store(least_k + d, every(T(R::EXPONENT))), store(most_k + d, every(T(-R::EXPONENT)));
        for (int c = 0; c < keys; c++) {
            T* own = to + c * wide;
            const T* row = row_of(inputs.key, entry, first + c, features, own);
            Index d = 0;
            for (; d + W <= features; d += W) store(own + d, (load(row + d) + load(middle + d)) * rate);
            for (; d < wide; d++) own[d] = d < features ? (row[d] + middle[d]) * rate : T(0);
            for (d = 0; d < wide; d += W) {
                store(least_k + d, smaller(load(own + d), load(least_k + d)));
                store(most_k + d, larger(load(own + d), load(most_k + d)));
            }
        }
        for (Index d = 0, group = 0; d < wide; d += GROUP * W, group++) {
            ways[group] = way(d, least_k, most_k);
            if (ways[group] == Way::plain) continue;
            for (int c = 0; c < keys; c++)
                for (Index e = d; e < least(d + GROUP * W, wide); e += W) store(to + c * wide + e, exponential<T>(load(to + c * wide + e)));
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
    // Weights as shares of the largest, so that no y is below 1, and their inverses.
    void weigh() {
        const T* weight = static_cast<const T*>(score.weight.data) + score.weight.places[entry];
        double total = 0;
        T largest_weight = 0;
        for (Index d = 0; d < features; d++) {
            total += weight[d];
            largest_weight = most(magnitude(weight[d]), largest_weight);
        }
        weighable = total - total == 0;
        T unit = weighable && largest_weight > 0 ? largest_weight : T(1);
        for (Index d = 0; d < wide; d++) {
            T own = d < features ? weight[d] / unit : T(FILLING);
            share[d] = !weighable || magnitude(own) >= R::LEAST ? own : own < 0 ? -R::LEAST : R::LEAST;
            inverse[d] = 1 / share[d];
            cost[d] = power_above(magnitude(inverse[d]));
        }
        factor = -amplitude * (largest_weight > 0 ? unit : T(0));
        if (!weighable) factor = -amplitude;
        constant = static_cast<T>(total - factor * static_cast<double>(wide - features) * FILLING);
    }

    // The range of the queries, feature by feature; `low` and `high` end as those of their exponents. Far from 0 they are shifted to
    // their middle, and the keys against it, so that e^q and e^k stay numbers wherever e^(q + k) is one.
    void find_range() {
        for (Index d = 0; d < wide; d++) low[d] = __builtin_inf(), high[d] = -__builtin_inf(), middle[d] = 0;
        for (Index i = 0; i < inputs.queries; i++) {
            const T* row = row_of(inputs.query, entry, i, features, middle);
            for (Index d = 0; d < features; d++) {
                low[d] = least(row[d], low[d]);
                high[d] = most(row[d], high[d]);
            }
        }
        for (Index d = 0; d < wide; d++) {
            T half = low[d] / 2 + high[d] / 2;
            bool far = rate * most(high[d], -low[d]) > R::MIDDLE && half - half == 0;
            middle[d] = far && d < features ? half : T(0);
            low[d] = (low[d] - middle[d]) * rate;
            high[d] = (high[d] - middle[d]) * rate;
            if (d >= features) low[d] = high[d] = -R::EXPONENT;
        }
    }

    // The cheapest way that is right for all queries of the entry and the keys of a tile whose exponents' range is given.
    Way way(Index d, const T* least_k, const T* most_k) const {
        constexpr T LOG2E = Exponential<T>::LOG2E;
        V power{};
        for (Index e = d; e < least(d + GROUP * W, wide); e += W) {
            V own = load(cost + e), peak = larger(V{}, (load(high + e) + load(most_k + e)) * LOG2E) + 1;
            for (int i = 0; i < W; i++) {
                bool q = low[e + i] >= -R::EXPONENT && high[e + i] + cost[e + i] <= R::EXPONENT;
                bool k = least_k[e + i] >= -R::EXPONENT && most_k[e + i] <= R::EXPONENT;
                if (!weighable || !(q || low[e + i] > high[e + i]) || !k) return Way::plain;
            }
            power += own + peak;
        }
        if (wide - d < GROUP * W) return Way::single;
        return largest<T>(power) <= R::BUDGET ? Way::shared : Way::capped;
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

    static inline V held(V query, V key, V over) {
        return larger(every(-R::CAP), smaller(every(R::CAP), fused(query, key, over)));
    }

    template <int N>
    inline void capped(const T* query, const T* keys, const T* over, V* total) const {
        for (int n = 0; n < N; n++) {
            V y[GROUP];
            for (int g = 0; g < GROUP; g++) y[g] = held(load(query + g * W), load(keys + n * wide + g * W), load(over + g * W));
            total[n] += joined(y[0], y[1], y[2], y[3]);
        }
    }

    template <int N>
    inline void single(const T* query, const T* keys, const T* over, V* total) const {
        for (int n = 0; n < N; n++) total[n] += T(1) / held(load(query), load(keys + n * wide), load(over));
    }

    template <int N>
    inline void plain(const T* query, const T* keys, const T* part, V* total) const {
        for (int n = 0; n < N; n++) total[n] += load(part) / (1 + exponential<T>(load(query) + load(keys + n * wide)));
    }
};

}  // namespace overt::OVERT_LEVEL
