// Dot-product scores of a tile: scale * (q . k), under a soft cap c as c tanh(score / c).
#pragma once

#include "simd/multiply.hpp"
#include "simd/transpose.hpp"

namespace overt::OVERT_LEVEL {

// tanh x = (e^2x - 1) / (e^2x - 1 + 2), which is +-1 from FAR on.
template <class T>
static inline Vector<T> hyperbolic_tangent(Vector<T> x) {
    constexpr T FAR = 20;
    Vector<T> bounded = lane_max(broadcast(-FAR), lane_min(broadcast(FAR), x));
    Vector<T> less_one = exponential_less_one_within<T>(bounded + bounded);
    return less_one * reciprocal<T>(less_one + 2);
}

// Applies the soft cap to a tile's scores, in place.
template <class T>
static void apply_softcap(T cap, int rows, int keys, T* scores) {
    for (int r = 0; r < rows; r++, scores += KEYS)
        for (int c = 0; c < keys; c += WIDTH<T>) store(scores + c, hyperbolic_tangent<T>(load(scores + c) / cap) * cap);
}

// The same interface as TanhScores: keys are packed with features as rows, so that lanes run along keys.
template <class T>
class DotScores {
    const Inputs& inputs;
    const Score& score;
    Index entry = 0;

   public:
    static Index size(const Inputs&) { return 0; }

    DotScores(const Inputs& inputs, const Score& score, T*) : inputs(inputs), score(score) {}

    void begin(Index which) { entry = which; }

    Index query_size() const { return ROWS * inputs.head_dim; }
    void pack_queries(Index first, int rows, T* to) const {
        T scale = static_cast<T>(score.scale[entry]);
        for (int r = 0; r < rows; r++, to += inputs.head_dim) {
            const T* row = row_of(inputs.query, entry, first + r, inputs.head_dim, to);
            for (Index d = 0; d < inputs.head_dim; d++) to[d] = row[d] * scale;
        }
    }

    // One more row, for conversion from half precision: several threads pack tiles at once.
    Index key_size() const { return (KEYS + 1) * inputs.head_dim; }
    void pack_keys(Index first, int keys, T* to) const {
        if (inputs.key.kind == KIND<T>) {
            const T* from = static_cast<const T*>(inputs.key.data) + inputs.key.offsets[entry] + first * inputs.key.row;
            transpose(from, inputs.key.row, keys, inputs.head_dim, to, KEYS);
        } else {
            T* spare = to + KEYS * inputs.head_dim;
            for (int c = 0; c < keys; c++) {
                const T* row = row_of(inputs.key, entry, first + c, inputs.head_dim, spare);
                for (Index d = 0; d < inputs.head_dim; d++) to[d * KEYS + c] = row[d];
            }
        }
        for (Index d = 0; d < inputs.head_dim; d++, to += KEYS)
            for (int c = keys; c < KEYS; c++) to[c] = 0;
    }

    // out[r * KEYS + c] = f(query r, key c).
    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        multiply(queries, inputs.head_dim, 1, keys, KEYS, out, KEYS, rows, inputs.head_dim, count, false);
        if (score.softcap > 0) apply_softcap(static_cast<T>(score.softcap), rows, count, out);
    }
};

}  // namespace overt::OVERT_LEVEL
