// Additive scores of a tile under relu and leaky relu: sum_d w_d max(t_d, slope * t_d) with t_d = q_d + k_d. Lanes run along features.
#pragma once

#include "simd/lane_sums.hpp"

namespace overt::OVERT_LEVEL {

static inline double slope_of(Activation activation) { return activation == Activation::leaky_relu ? 0.2 : 0.0; }

// max(t, slope * t); NaN stays NaN. Without a slope -inf gives 0, not -inf * 0.
template <class V, class T>
static inline V relu_term(V t, T slope) {
    return lane_max(slope == 0 ? V{} : t * slope, t);
}

// The same interface as TanhScores.
template <class T>
class ReluScores {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    const Inputs& inputs;
    const Score& score;
    Index entry = 0, head_dim, padded_dim;
    T slope;
    T* weight;

   public:
    static Index padded(Index head_dim) { return (head_dim + W - 1) / W * W; }
    static Index size(const Inputs& inputs) { return padded(inputs.head_dim); }

    ReluScores(const Inputs& inputs, const Score& score, T* memory)
        : inputs(inputs), score(score), head_dim(inputs.head_dim), padded_dim(padded(head_dim)),
          slope(static_cast<T>(slope_of(score.activation))), weight(memory) {}

    void begin(Index which) {
        entry = which;
        const T* from = static_cast<const T*>(score.weight.data) + score.weight.offsets[entry];
        for (Index d = 0; d < padded_dim; d++) weight[d] = d < head_dim ? from[d] : T(0);
    }

    Index query_size() const { return ROWS * padded_dim; }
    Index query_row() const { return padded_dim; }
    void pack_queries(Index first, int rows, T* to) const { pack(inputs.query, first, rows, to); }

    Index key_size() const { return KEYS * padded_dim; }
    void pack_keys(Index first, int keys, T* to) const { pack(inputs.key, first, keys, to); }

    void scores(const T* queries, int rows, const T* keys, int count, T* out) const {
        for (int r = 0; r < rows; r++, queries += padded_dim, out += KEYS) {
            int c = 0;
            for (; c + 4 <= count; c += 4) pairs<4>(queries, keys + c * padded_dim, out + c);
            for (; c < count; c++) pairs<1>(queries, keys + c * padded_dim, out + c);
        }
    }

   private:
    void pack(const Matrix& from, Index first, int rows, T* to) const {
        for (int r = 0; r < rows; r++, to += padded_dim) {
            const T* row = row_of(from, entry, first + r, head_dim, to);
            for (Index d = 0; d < padded_dim; d++) to[d] = d < head_dim ? row[d] : T(0);
        }
    }

    template <int N>
    void pairs(const T* query, const T* keys, T* out) const {
        V total[N] = {};
        for (Index d = 0; d < padded_dim; d += W) {
            V q = load(query + d), w = load(weight + d);
            for (int n = 0; n < N; n++) {
                V t = q + load(keys + n * padded_dim + d);
                total[n] = multiply_add(w, relu_term(t, slope), total[n]);
            }
        }
        Sums<T, N>::of(total, out);
    }
};

}  // namespace overt::OVERT_LEVEL
