// Rows of bfloat16 keys and values during decoding, multiplied in pairs by vdpbf16ps: half as many products, without conversions.
#pragma once

#include "attention/pairs/code_decode_rows.hpp"

namespace overt::OVERT_LEVEL {

using Half = std::uint16_t;
constexpr int PAIR_VECTOR = 32;  // numbers of a vector of bfloat16

OVERT_INLINE __m512bh halves(const Half* from) { return (__m512bh)_mm512_loadu_si512(from); }

// products[r * KEYS + c] = row r . key c, for four keys; the first rows that read a key prefetch. The distance between rows is float32's.
template <int ROW_COUNT, bool FETCHES>
static inline void pair_dots_of_four(const Half* rows, Index dim, const Half* keys, Index key_row, Ahead& ahead, float* products) {
    Ahead next = ahead;  // in registers
    __m512 sums[ROW_COUNT][4];
    unrolled<ROW_COUNT, 4>([&](auto r, auto n) OVERT_UNROLLED { sums[r][n] = __m512{}; });
    for (Index e = 0; e < dim; e += PAIR_VECTOR) {
        __m512bh key[4];
        unrolled<4>([&](auto n) OVERT_UNROLLED {
            key[n] = halves(keys + n * key_row + e);
            if (FETCHES) next.fetch<64>();
        });
        unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
            __m512bh row = halves(rows + r * 2 * dim + e);
            unrolled<4>([&](auto n) OVERT_UNROLLED { sums[r][n] = _mm512_dpbf16_ps(sums[r][n], row, key[n]); });
        });
    }
    ahead = next;
    RowSums<float, ROW_COUNT, 4>::of(sums, products, KEYS);
}

static inline void pair_dots_of_one(const Half* rows, Index dim, const Half* key, int row_count, float* products) {
    for (int r = 0; r < row_count; r++, rows += 2 * dim) {
        __m512 sums{};
        for (Index e = 0; e < dim; e += PAIR_VECTOR) sums = _mm512_dpbf16_ps(sums, halves(rows + e), halves(key + e));
        products[r * KEYS] = _mm512_reduce_add_ps(sums);
    }
}

static void pair_dots(const Half* rows, Index dim, const Half* keys, Index key_row, Index further, int row_count, int count,
                      float* products) {
    Ahead ahead(keys + further, dim, key_row);
    const bool whole = count == KEYS;
    const Index step = whole ? TURN * key_row : key_row;
    int c = 0;
    for (; c + 4 <= count; c += 4) {
        const Half* four = keys + (whole ? c / 4 : c) * key_row;
        int r = 0;
        if (row_count >= 4) pair_dots_of_four<4, true>(rows, dim, four, step, ahead, products + c), r = 4;
        else pair_dots_of_four<1, true>(rows, dim, four, step, ahead, products + c), r = 1;
        for (; r + 4 <= row_count; r += 4)
            pair_dots_of_four<4, false>(rows + r * 2 * dim, dim, four, step, ahead, products + r * KEYS + c);
        for (; r < row_count; r++)
            pair_dots_of_four<1, false>(rows + r * 2 * dim, dim, four, step, ahead, products + r * KEYS + c);
    }
    for (int r = 0; whole && r < row_count; r++) order_products(products + r * KEYS);
    for (; c < count; c++) pair_dots_of_one(rows, dim, keys + c * key_row, row_count, products + c);
}

// Rounds weights and packs them in pairs: a word for two consecutive keys.
static inline void pair_weights(const float* weights, int row_count, std::uint32_t* pairs) {
    for (int r = 0; r < row_count; r++, weights += KEYS, pairs += KEYS / 2)
        for (int c = 0; c < KEYS; c += PAIR_VECTOR)
            _mm512_storeu_si512(pairs + c / 2, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(weights + c + 16), _mm512_loadu_ps(weights + c)));
}

// accumulator of some rows += weights . values, MEMORY vectors of memory at a time. Two keys' values are woven as they are read, so that
// sums have the order of woven half lanes.
template <int ROW_COUNT, int MEMORY, bool FETCHES>
static inline void pair_values_of(const std::uint32_t* weights, const Half* values, Index value_row, Ahead& ahead, int keys,
                                  Index padded_dim, float* accumulator) {
    constexpr int SUMS = 2 * MEMORY;
    Ahead next = ahead;  // in registers
    __m512 sums[ROW_COUNT][SUMS];
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED { sums[r][v] = __m512{}; });
    for (int c = 0; c < keys; c += 2) {
        const int pair = in_turn(c / 2, keys / 2, KEYS / 2);
        __m512bh parts[SUMS];
        unrolled<MEMORY>([&](auto m) OVERT_UNROLLED {
            const Half* at = values + 2 * pair * value_row + m * PAIR_VECTOR;
            __m512i first = (__m512i)halves(at), second = 2 * pair + 1 < keys ? (__m512i)halves(at + value_row) : __m512i{};
            if (FETCHES) next.fetch<64>(), next.fetch<64>();
            parts[2 * m] = (__m512bh)_mm512_unpacklo_epi16(first, second), parts[2 * m + 1] = (__m512bh)_mm512_unpackhi_epi16(first, second);
        });
        unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
            __m512bh weight = (__m512bh)_mm512_set1_epi32(static_cast<int>(weights[r * KEYS / 2 + pair]));
            unrolled<SUMS>([&](auto v) OVERT_UNROLLED { sums[r][v] = _mm512_dpbf16_ps(sums[r][v], weight, parts[v]); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED {
        float* at = accumulator + r * padded_dim + v * 16;
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sums[r][v]));
    });
}

template <int ROW_COUNT, int MEMORY, bool FETCHES>
static inline void pair_panels(const std::uint32_t* weights, const Half* values, Index value_row, Ahead& ahead, int keys,
                               Index padded_dim, Index first, float* accumulator) {
    constexpr Index STEP = MEMORY * PAIR_VECTOR;
    Index e = first;
    for (; e + STEP <= padded_dim; e += STEP)
        pair_values_of<ROW_COUNT, MEMORY, FETCHES>(weights, values + e, value_row, ahead, keys, padded_dim, accumulator + e);
    if constexpr (MEMORY > 1)
        if (e < padded_dim) pair_panels<ROW_COUNT, MEMORY / 2, FETCHES>(weights, values, value_row, ahead, keys, padded_dim, e, accumulator);
}

// accumulator (rows x padded_dim) += weights (rows x KEYS / 2 pairs) . values, all of them visible.
static void pair_values(const std::uint32_t* weights, const Half* values, Index value_row, Index further, int row_count, int keys,
                        Index padded_dim, float* accumulator) {
    Ahead ahead(values + further, padded_dim, value_row);
    int r = 0;
    auto some = [&](auto size, auto memory) {
        constexpr int COUNT = decltype(size)::COUNT, MEMORY = decltype(memory)::COUNT;
        for (; r + COUNT <= row_count; r += COUNT) {
            const std::uint32_t* of_rows = weights + r * KEYS / 2;
            float* to = accumulator + r * padded_dim;
            if (r == 0) pair_panels<COUNT, MEMORY, true>(of_rows, values, value_row, ahead, keys, padded_dim, 0, to);
            else pair_panels<COUNT, MEMORY, false>(of_rows, values, value_row, ahead, keys, padded_dim, 0, to);
        }
    };
    // Enough sums to hide the latency of a product, with few words of values for each.
    some(RowCount<8>(), RowCount<1>()), some(RowCount<4>(), RowCount<2>()), some(RowCount<1>(), RowCount<4>());
}

// Reorders a row of features for the sums, or back: of each eight in a vector, four belong to the first sum and four to the second.
static void order_woven(float* row, Index columns, bool back) {
    float both[PAIR_VECTOR];
    for (Index d = 0; d < columns; d += PAIR_VECTOR, row += PAIR_VECTOR) {
        for (int i = 0; i < PAIR_VECTOR; i++) {
            int place = i / 8 * 4 + i % 4 + i / 4 % 2 * 16;
            both[back ? i : place] = row[back ? place : i];
        }
        for (int i = 0; i < PAIR_VECTOR; i++) row[i] = both[i];
    }
}

// For DotDecode: rows of bfloat16 are multiplied in place, and weights are rounded.
struct PairProducts {
    static constexpr bool ENABLED = true;
    using Codes = CodeProducts;

    static bool serve(const Inputs& inputs) {
        auto is_pairs = [](const Matrix& matrix) { return matrix.kind == Kind::bfloat16; };
        return is_pairs(inputs.query) && is_pairs(inputs.key) && is_pairs(inputs.value) && inputs.head_dim % PAIR_VECTOR == 0 &&
               inputs.value_dim % PAIR_VECTOR == 0;
    }

    // The rows of an entry, each at the distance of float32 rows.
    static void pack(const Inputs& inputs, Index entry, float* to) {
        const Matrix& query = inputs.query;
        const Half* from = static_cast<const Half*>(query.data) + query.offsets[entry];
        for (Index r = 0; r < inputs.queries; r++, from += query.row, to += inputs.head_dim)
            __builtin_memcpy(to, from, static_cast<std::size_t>(inputs.head_dim) * sizeof(Half));
    }

    static void dots(const float* rows, const Inputs& inputs, Index start, Index following, int row_count, int count, float* scores) {
        const Matrix& key = inputs.key;
        pair_dots(reinterpret_cast<const Half*>(rows), inputs.head_dim, static_cast<const Half*>(key.data) + start, key.row,
                  following * key.row, row_count, count, scores);
    }

    // The rounded weights, and their sums.
    static void round(float* weights, int row_count, int keys, float* row_sum) {
        for (int r = 0; r < row_count; r++, weights += KEYS) {
            __m512 changes{};
            for (int c = 0; c < keys; c += 16) {
                __m512 weight = _mm512_loadu_ps(weights + c);
                __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(weight)), 16);
                _mm512_storeu_ps(weights + c, _mm512_castsi512_ps(bits));
                changes = _mm512_add_ps(changes, _mm512_sub_ps(_mm512_castsi512_ps(bits), weight));
            }
            row_sum[r] += _mm512_reduce_add_ps(changes);
        }
    }

    static void add_values(const float* weights, const Matrix& value, Index start, Index following, int row_count, int keys,
                           Index padded_dim, float* spare, float* accumulator) {
        std::uint32_t* pairs = reinterpret_cast<std::uint32_t*>(spare);
        pair_weights(weights, row_count, pairs);
        pair_values(pairs, static_cast<const Half*>(value.data) + start, value.row, following * value.row, row_count, keys, padded_dim,
                    accumulator);
    }

    static void order(float* row, const Inputs& inputs, bool back) { order_woven(row, inputs.value_dim, back); }
};

}  // namespace overt::OVERT_LEVEL
