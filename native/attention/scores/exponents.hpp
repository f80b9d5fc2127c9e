// The exponents of the reciprocal form: 2q and 2k for tanh, q and k for a sigmoid, feature by feature, and their range.
#pragma once

#include "simd/transpose.hpp"

namespace overt::OVERT_LEVEL {

// The limits of the reciprocal form in each number type.
template <class T>
struct Limits;
template <>
struct Limits<float> {
    static constexpr float EXPONENT = 87;         // e^x and e^-x are normal numbers up to this x
    static constexpr float BUDGET = 120;          // a product of four stays below this power of two
    static constexpr float CAP = 0x1p29f;         // the product of four is finite, and 1 / CAP is negligible next to 1
    static constexpr float MIN_SHARE = 0x1p-33f;  // a weight below this share of the largest counts as this share
    static constexpr float MIDDLE = 40;           // exponents of queries within this need no shift
};
template <>
struct Limits<double> {
    static constexpr double EXPONENT = 700;
    static constexpr double BUDGET = 1000;
    static constexpr double CAP = 0x1p240;
    static constexpr double MIN_SHARE = 0x1p-100;
    static constexpr double MIDDLE = 300;
};

// The method for a group of four features, or of four vectors of them, by the range of its exponents in a tile of keys.
//   shared  four terms share a division
//   capped  the same, with each term clamped to CAP
//   single  each has its own division: the last vectors, fewer than four
//   plain   each has its own exponential, since those of query or key would overflow
enum class Method : std::uint8_t { shared, capped, single, plain };

constexpr int GROUP = 4;

// tanh x = 1 - 2 / (1 + e^2x), sigmoid x = 1 - 1 / (1 + e^x): the 2 appears twice.
static inline int rate_of(Activation activation) { return activation == Activation::tanh ? 2 : 1; }

template <class T>
class Exponents {
    using V = Vector<T>;
    using R = Limits<T>;
    static constexpr int W = WIDTH<T>;
    T *middle, *low, *high;

   public:
    const Inputs& inputs;
    Index entry = 0, head_dim, padded_dim;  // padded_dim: features in whole vectors
    T rate;

    static Index padded(Index head_dim) { return (head_dim + W - 1) / W * W; }
    static Index size(Index head_dim) { return 3 * padded(head_dim); }

    Exponents(const Inputs& inputs, int rate, T* memory)
        : middle(memory), inputs(inputs), head_dim(inputs.head_dim), padded_dim(padded(head_dim)), rate(static_cast<T>(rate)) {
        low = middle + padded_dim, high = low + padded_dim;
    }

    // Begins an entry and computes the range of its queries. Ranges far from 0 are shifted to their middle, the keys in the opposite
    // direction, so that e^q and e^k stay finite if e^(q + k) is. If the range is too wide for that, a shift would only lose digits.
    void begin(Index which) {
        entry = which;
        for (Index d = 0; d < padded_dim; d++) low[d] = __builtin_inf(), high[d] = -__builtin_inf();
        for (Index i = 0; i < inputs.queries; i++) {
            const T* row = row_of(inputs.query, entry, i, head_dim, middle);
            for (Index d = 0; d < head_dim; d++) {
                low[d] = min_of(row[d], low[d]);
                high[d] = max_of(row[d], high[d]);
            }
        }
        for (Index d = 0; d < padded_dim; d++) {
            T half = low[d] / 2 + high[d] / 2;
            bool far = rate * max_of(high[d], -low[d]) > R::MIDDLE && rate * (high[d] / 2 - low[d] / 2) <= R::EXPONENT;
            middle[d] = far && d < head_dim ? half * rate : T(0);
            low[d] = d < head_dim ? low[d] * rate - middle[d] : -R::EXPONENT;
            high[d] = d < head_dim ? high[d] * rate - middle[d] : -R::EXPONENT;
        }
    }

    // The exponents of a query. Padding features get the lowest exponent: e^-87 is about 0.
    void query(Index i, T* to) const {
        const T* row = row_of(inputs.query, entry, i, head_dim, to);
        const Index columns = head_dim;
        for (Index d = 0; d < columns; d++) to[d] = row[d] * rate - middle[d];
        for (Index d = columns; d < padded_dim; d++) to[d] = -R::EXPONENT;
    }

    // A tile of keys, row by row: e^x of the exponents, and the method of each group of four vectors of features. `cost`: the power of two by
    // which each term is divided as well; nullptr: none.
    Index key_size() const { return (KEYS + 4) * padded_dim; }
    const Method* methods_of(const T* keys) const { return reinterpret_cast<const Method*>(keys + (KEYS + 3) * padded_dim); }
    void pack_keys(Index first, int count, const T* cost, T* to) const {
        T *min_k = to + KEYS * padded_dim, *max_k = min_k + padded_dim, *spare = max_k + padded_dim;
        Method* methods = reinterpret_cast<Method*>(spare + padded_dim);
        for (Index d = 0; d < padded_dim; d++) min_k[d] = R::EXPONENT, max_k[d] = -R::EXPONENT;
        int c = 0;
        for (; c + TOGETHER <= count; c += TOGETHER) exponentiate_keys<TOGETHER>(first + c, to + c * padded_dim, min_k, max_k);
        for (; c < count; c++) exponentiate_keys<1>(first + c, to + c * padded_dim, min_k, max_k);
        bool any_plain = false;
        find_powers(cost, min_k, max_k);
        for (Index d = 0; d < padded_dim; d += GROUP * W) {
            V power{};
            for (Index e = d; e < min_of(d + GROUP * W, padded_dim); e += W) power += load(min_k + e);
            Method method = method_of(horizontal_max<T>(power));
            if (method != Method::plain && padded_dim - d < GROUP * W) method = Method::single;
            methods[d / (GROUP * W)] = method, any_plain |= method == Method::plain;
        }
        for (c = 0; any_plain && c < count; c++) {
            const T* row = row_of(inputs.key, entry, first + c, head_dim, spare);
            for (Index d = 0; d < padded_dim; d++)
                if (methods[d / (GROUP * W)] == Method::plain) to[c * padded_dim + d] = plain_exponent(row, d);
        }
    }

    // The same transposed, in rows of KEYS: lanes run along keys, and a group is four features. Columns up to the next whole vector repeat the
    // last key.
    void pack_transposed(Index first, int count, const T* cost, T* to) const {
        T *min_k = to + KEYS * padded_dim, *max_k = min_k + padded_dim, *spare = max_k + padded_dim;
        Method* methods = reinterpret_cast<Method*>(spare + padded_dim);
        for (Index d = 0; d < padded_dim; d++) min_k[d] = R::EXPONENT, max_k[d] = -R::EXPONENT;
        for (int c = 0; c < count; c += W) exponentiate_transposed(first + c, min_of(count - c, W), to + c, min_k, max_k);
        bool any_plain = false;
        find_powers(cost, min_k, max_k);
        for (Index d = 0; d < padded_dim; d += GROUP) {
            methods[d / GROUP] = method_of(min_k[d] + min_k[d + 1] + (min_k[d + 2] + min_k[d + 3]));
            any_plain |= methods[d / GROUP] == Method::plain;
        }
        for (int c = 0; any_plain && c < count; c++) {
            const T* row = row_of(inputs.key, entry, first + c, head_dim, spare);
            for (Index d = 0; d < padded_dim; d++)
                if (methods[d / GROUP] == Method::plain) to[d * KEYS + c] = plain_exponent(row, d);
        }
    }

   private:
    // Rows processed together, so that minima and maxima are loaded and stored once for all of them.
    static constexpr int TOGETHER = 4;
    static constexpr Index AHEAD = 8 * W;  // features fetched before they are read

    // e^x of the exponents x of some keys, undefined out of range; min_k and max_k are updated.
    template <int N>
    inline void exponentiate_keys(Index first, T* to, T* min_k, T* max_k) const {
        const T* row[N];
        for (int n = 0; n < N; n++) row[n] = row_of(inputs.key, entry, first + n, head_dim, to + n * padded_dim);
        const Index whole = head_dim / W * W, columns = padded_dim;
        const T* shift = middle;
        const V times = broadcast(rate);
        for (Index d = 0; d < columns; d += W) {
            V low_k = load(min_k + d), high_k = load(max_k + d);
            for (int n = 0; n < N; n++) {
                V x{};
                if (d < whole)
                    x = multiply_add(load(row[n] + d), times, load(shift + d));
                else
                    for (Index i = d; i < head_dim; i++) x[i - d] = row[n][i] * rate + shift[i];
                store(to + n * columns + d, exponential_within<T>(x));
                low_k = lane_min(x, low_k), high_k = lane_max(x, high_k);
            }
            store(min_k + d, low_k);
            store(max_k + d, high_k);
        }
    }

    // The same for at most W keys, transposed. As many rows are read at once, more than the processor prefetches by itself.
    inline void exponentiate_transposed(Index first, int count, T* to, T* min_k, T* max_k) const {
        const V times = broadcast(rate);
        T square[W * W], spare[W];
        for (Index d = 0; d < padded_dim; d += W) {
            const V shift = load(middle + d);
            const Index columns = min_of<Index>(W, head_dim - d);
            V low_k = load(min_k + d), high_k = load(max_k + d);
            for (int n = 0; n < count; n++) {
                const T* row = row_of(inputs.key, entry, first + n, columns, spare, d);
                if (row != spare) __builtin_prefetch(row + AHEAD, 0, 2);
                V x = multiply_add(load_some(row, columns), times, shift);
                store(square + n * W, exponential_within<T>(x));
                low_k = lane_min(x, low_k), high_k = lane_max(x, high_k);
            }
            store(min_k + d, low_k), store(max_k + d, high_k);
            for (int n = count; n < W; n++) store(square + n * W, load(square + (n - 1) * W));
            transpose(square, Index{W}, W, Index{W}, to + d * KEYS, Index{KEYS});
        }
    }

    // The exponent itself, of a key's row.
    T plain_exponent(const T* row, Index d) const { return d < head_dim ? row[d] * rate + middle[d] : T(0); }

    // The power of two by which a feature's term may exceed 1, given all queries of the entry and a tile's range of keys; replaces min_k.
    // Infinite if an exponential of query or key would overflow.
    void find_powers(const T* cost, T* min_k, const T* max_k) const {
        constexpr T LOG2E = Exponential<T>::LOG2E, MAX_EXPONENT = R::EXPONENT;
        const V nothing{}, infinite = broadcast(static_cast<T>(__builtin_inf()));
        for (Index e = 0; e < padded_dim; e += W) {
            V own_cost = cost ? load(cost + e) : nothing, min_q = load(low + e), max_q = load(high + e);
            Whole<T> some = min_q <= max_q;  // false where there are no queries, or only NaN
            Whole<T> beyond = some & ((min_q < -MAX_EXPONENT) | (max_q + own_cost > MAX_EXPONENT));
            beyond |= (load(min_k + e) < -MAX_EXPONENT) | (load(max_k + e) > MAX_EXPONENT);
            V power = own_cost + lane_max(nothing, (max_q + load(max_k + e)) * LOG2E) + 1;
            store(min_k + e, beyond ? infinite : power);
        }
    }

    // The fastest method that is exact for a group of features whose product is at most this power of two.
    static Method method_of(T power) {
        return power <= R::BUDGET ? Method::shared : power < static_cast<T>(__builtin_inf()) ? Method::capped : Method::plain;
    }
};

// x clamped to [-CAP, CAP], so that the product of four is finite.
template <class T>
static inline Vector<T> clamped(Vector<T> x) {
    return lane_max(broadcast(-Limits<T>::CAP), lane_min(broadcast(Limits<T>::CAP), x));
}

}  // namespace overt::OVERT_LEVEL
