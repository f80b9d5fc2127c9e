// The exponents of the reciprocal form: 2q and 2k for tanh, q and k for a sigmoid, feature by feature, and how far they range.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// How far the reciprocal form reaches in each number type.
template <class T>
struct Reach;
template <>
struct Reach<float> {
    static constexpr float EXPONENT = 87;     // e^x and e^-x are normal numbers up to here
    static constexpr float BUDGET = 120;      // a product of four stays below this power of two
    static constexpr float CAP = 0x1p29f;     // four of these have a product, and 1 / CAP is nothing beside 1
    static constexpr float LEAST = 0x1p-33f;  // a weight below this share of the largest counts as this share
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

// How a group of four vectors of features is computed, by the range of its exponents in a tile of keys.
//   shared  four terms share a division
//   capped  so they do, with each term held at CAP
//   single  each has a division of its own: the last vectors, where there are no four
//   plain   each has an exponential of its own, since those of query or key leave the number type
enum class Way : std::uint8_t { shared, capped, single, plain };

constexpr int GROUP = 4;

// tanh x = 1 - 2 / (1 + e^2x), sigmoid x = 1 - 1 / (1 + e^x): the 2 stands in both places.
static inline int rate_of(Activation activation) { return activation == Activation::tanh ? 2 : 1; }

template <class T>
class Exponents {
    using V = Vector<T>;
    using R = Reach<T>;
    static constexpr int W = WIDTH<T>;
    T *middle, *low, *high;

   public:
    const Inputs& inputs;
    Index entry = 0, features, wide;  // wide: features in whole vectors
    T rate;

    static Index padded(Index features) { return (features + W - 1) / W * W; }
    static Index room(Index features) { return 3 * padded(features); }

    Exponents(const Inputs& inputs, int rate, T* memory)
        : middle(memory), inputs(inputs), features(inputs.features), wide(padded(features)), rate(static_cast<T>(rate)) {
        low = middle + wide, high = low + wide;
    }

    // Turns to an entry and finds the range of its queries. Far from 0 they are shifted to their middle, and the keys against it, so
    // that e^q and e^k stay numbers wherever e^(q + k) is one; where they are too far apart for that, a shift would only cost digits.
    void begin(Index which) {
        entry = which;
        for (Index d = 0; d < wide; d++) low[d] = __builtin_inf(), high[d] = -__builtin_inf();
        for (Index i = 0; i < inputs.queries; i++) {
            const T* row = row_of(inputs.query, entry, i, features, middle);
            for (Index d = 0; d < features; d++) {
                low[d] = least(row[d], low[d]);
                high[d] = most(row[d], high[d]);
            }
        }
        for (Index d = 0; d < wide; d++) {
            T half = low[d] / 2 + high[d] / 2;
            bool far = rate * most(high[d], -low[d]) > R::MIDDLE && rate * (high[d] / 2 - low[d] / 2) <= R::EXPONENT;
            middle[d] = far && d < features ? half * rate : T(0);
            low[d] = d < features ? low[d] * rate - middle[d] : -R::EXPONENT;
            high[d] = d < features ? high[d] * rate - middle[d] : -R::EXPONENT;
        }
    }

    // The exponents of a query. The features that fill the last vector get the lowest: theirs is e^-87, as good as 0.
    void query(Index i, T* to) const {
        const T* row = row_of(inputs.query, entry, i, features, to);
        const Index columns = features;
        for (Index d = 0; d < columns; d++) to[d] = row[d] * rate - middle[d];
        for (Index d = columns; d < wide; d++) to[d] = -R::EXPONENT;
    }

    // A tile of keys as `scores` and `terms` read it: e^x of their exponents, and how each group of features is computed. `cost`: the
    // power of two by which each term is divided beside; nullptr: none.
    Index key_room() const { return (KEYS + 4) * wide; }
    const Way* ways_of(const T* keys) const { return reinterpret_cast<const Way*>(keys + (KEYS + 3) * wide); }
    void pack_keys(Index first, int count, const T* cost, T* to) const {
        T *least_k = to + KEYS * wide, *most_k = least_k + wide, *spare = most_k + wide;
        Way* ways = reinterpret_cast<Way*>(spare + wide);
        for (Index d = 0; d < wide; d++) least_k[d] = R::EXPONENT, most_k[d] = -R::EXPONENT;
        int c = 0;
        for (; c + TOGETHER <= count; c += TOGETHER) raise<TOGETHER>(first + c, to + c * wide, least_k, most_k);
        for (; c < count; c++) raise<1>(first + c, to + c * wide, least_k, most_k);
        bool any_plain = false;
        for (Index d = 0; d < wide; d += GROUP * W) {
            ways[d / (GROUP * W)] = way(d, cost, least_k, most_k);
            any_plain |= ways[d / (GROUP * W)] == Way::plain;
        }
        for (c = 0; any_plain && c < count; c++) leave_plain(first + c, ways, to + c * wide, spare);
    }

   private:
    // Rows read side by side, so that least and largest are loaded and stored once for all of them.
    static constexpr int TOGETHER = 4;

    // e^x of the exponents x of some keys, whatever comes of it out of range; their range grows by them.
    template <int N>
    inline void raise(Index first, T* to, T* least_k, T* most_k) const {
        const T* row[N];
        for (int n = 0; n < N; n++) row[n] = row_of(inputs.key, entry, first + n, features, to + n * wide);
        const Index whole = features / W * W, columns = wide;
        const T* shift = middle;
        const V times = every(rate);
        for (Index d = 0; d < columns; d += W) {
            V low_k = load(least_k + d), high_k = load(most_k + d);
            for (int n = 0; n < N; n++) {
                V x{};
                if (d < whole)
                    x = fused(load(row[n] + d), times, load(shift + d));
                else
                    for (Index i = d; i < features; i++) x[i - d] = row[n][i] * rate + shift[i];
                store(to + n * columns + d, exponential_within<T>(x));
                low_k = smaller(x, low_k), high_k = larger(x, high_k);
            }
            store(least_k + d, low_k);
            store(most_k + d, high_k);
        }
    }

    // The exponents themselves, in the groups that are plain.
    void leave_plain(Index key, const Way* ways, T* to, T* spare) const {
        const T* row = row_of(inputs.key, entry, key, features, spare);
        for (Index d = 0; d < wide; d++)
            if (ways[d / (GROUP * W)] == Way::plain) to[d] = d < features ? row[d] * rate + middle[d] : T(0);
    }

    // The cheapest way that is right for a group of features, all queries of the entry and the keys of a tile whose range is given.
    Way way(Index d, const T* cost, const T* least_k, const T* most_k) const {
        constexpr T LOG2E = Exponential<T>::LOG2E, MOST = R::EXPONENT;
        V power{}, nothing{};
        Whole<T> beyond{};
        for (Index e = d; e < least(d + GROUP * W, wide); e += W) {
            V own = cost ? load(cost + e) : nothing, least_q = load(low + e), most_q = load(high + e);
            Whole<T> some = least_q <= most_q;  // not where there are no queries, or only NaN
            beyond |= some & ((least_q < -MOST) | (most_q + own > MOST));
            beyond |= (load(least_k + e) < -MOST) | (load(most_k + e) > MOST);
            power += own + larger(nothing, (most_q + load(most_k + e)) * LOG2E) + 1;
        }
        for (int i = 0; i < W; i++)
            if (beyond[i]) return Way::plain;
        if (wide - d < GROUP * W) return Way::single;
        return largest<T>(power) <= R::BUDGET ? Way::shared : Way::capped;
    }
};

// x held at CAP in size, so that the product of four is a number.
template <class T>
static inline Vector<T> held(Vector<T> x) {
    return larger(every(-Reach<T>::CAP), smaller(every(Reach<T>::CAP), x));
}

}  // namespace overt::OVERT_LEVEL
