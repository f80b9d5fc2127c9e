// Dot-product scores of a tile: scale * (q . k), under a soft cap c as c tanh(score / c).
#pragma once

#include "simd/multiply.hpp"
#include "simd/transpose.hpp"

namespace overt::OVERT_LEVEL {

// tanh x = (e^2x - 1) / (e^2x + 1). Near 0, where e^2x - 1 would cancel, the exponential's own polynomial gives it whole.
template <class T>
static inline Vector<T> hyperbolic_tangent(Vector<T> x) {
    constexpr T NEAR = 0.34;  // below ln2 / 2
    Vector<T> twice = x + x;
    Vector<T> near = Exponential<T>::less_one(larger(every(-NEAR), smaller(every(NEAR), twice)));
    Vector<T> far = exponential<T>(twice) - 1;
    Vector<T> grown = (twice < NEAR) & (twice > -NEAR) ? near : far;
    return grown / (grown + 2);
}

// A tile's scores under a soft cap, in place.
template <class T>
static void soften(T cap, int rows, int keys, T* scores) {
    for (int r = 0; r < rows; r++, scores += KEYS)
        for (int c = 0; c < keys; c += WIDTH<T>) store(scores + c, hyperbolic_tangent<T>(load(scores + c) / cap) * cap);
}

// The same interface as SmoothScores: keys are packed with features as rows, so that lanes run along keys.
template <class T>
class DotScores {
    const Inputs& inputs;
    const Score& score;
    Index entry = 0;

   public:
    static Index room(const Inputs&) { return 0; }

    DotScores(const Inputs& inputs, const Score& score, T*) : inputs(inputs), score(score) {}

    void begin(Index which) { entry = which; }

    Index query_room() const { return ROWS * inputs.features; }
    void pack_queries(Index first, int rows, T* to) const {
        T scale = static_cast<T>(score.scale[entry]);
        for (int r = 0; r < rows; r++, to += inputs.features) {
            const T* row = row_of(inputs.query, entry, first + r, inputs.features, to);
            for (Index d = 0; d < inputs.features; d++) to[d] = row[d] * scale;
        }
    }

    // A row more, into which half precision is widened: several threads pack tiles at once.
    Index key_room() const { return (KEYS + 1) * inputs.features; }
    void pack_keys(Index first, int keys, T* to) const {
        if (inputs.key.kind == KIND<T>) {
            const T* from = static_cast<const T*>(inputs.key.data) + inputs.key.places[entry] + first * inputs.key.row;
            turn(from, inputs.key.row, keys, inputs.features, to, KEYS);
        } else {
            T* spare = to + KEYS * inputs.features;
            for (int c = 0; c < keys; c++) {
                const T* row = row_of(inputs.key, entry, first + c, inputs.features, spare);
                for (Index d = 0; d < inputs.features; d++) to[d * KEYS + c] = row[d];
            }
        }
        for (Index d = 0; d < inputs.features; d++, to += KEYS)
            for (int c = keys; c < KEYS; c++) to[c] = 0;
    }

    // out[r * KEYS + c] = f(query r, key c).
    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        multiply(queries, inputs.features, 1, keys, KEYS, out, KEYS, rows, inputs.features, count, false);
        if (score.softcap > 0) soften(static_cast<T>(score.softcap), rows, count, out);
    }
};

}  // namespace overt::OVERT_LEVEL
