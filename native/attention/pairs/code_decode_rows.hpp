// Rows of int8 keys and values during decoding, multiplied as integers by vpdpbusd: 64 products at a time, without conversions.
//
// Codes are woven in the order of multiplication, so that a vector holds four features of 16 keys, or 16 features of four keys. For
// keys, 16 rows (16, D) become (D / 4, 16, 4), with 128 added to each code; for values, four rows (4, E) become (E, 4).
//
// A query has two digits of a byte for each feature, 15 bits relative to the largest, and a third digit if scores would change without it.
// A weight has two digits, 16 bits relative to the largest of its tile. Sums of products are exact.
#pragma once

#include "attention/dot/decode_rows.hpp"

namespace overt::OVERT_LEVEL {

using Code = std::int8_t;
constexpr int CODE_VECTOR = 64, CODE_KEYS = 16;  // codes in a vector; the number of woven keys is a multiple of CODE_KEYS

// sums + products of unsigned by signed bytes, four to a lane. gcc's own function copies the sums before and after each product.
OVERT_INLINE __m512i add_products(__m512i sums, __m512i bytes, __m512i codes) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(codes));
    return sums;
}

// Numbers of two digits.
OVERT_INLINE __m512i whole_of(__m512i upper, __m512i lower) { return _mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower); }

// work(first row, number of rows, whether they are the first), four rows at a time, then one by one.
template <class Work>
static inline void in_fours(int row_count, Work work) {
    int r = row_count < 4 ? 1 : 4;
    if (row_count < 4) work(0, RowCount<1>(), RowCount<1>());
    else work(0, RowCount<4>(), RowCount<1>());
    for (; r + 4 <= row_count; r += 4) work(r, RowCount<4>(), RowCount<0>());
    for (; r < row_count; r++) work(r, RowCount<1>(), RowCount<0>());
}

// A row of queries: upper, lower and third digits, then this. The distance between rows is float32's.
struct CodeRow {
    float step;                        // the value of 1 in the first two digits, times the score's scale
    float missing;                     // the sum of the third digits' contributions, times the score's scale
    std::int32_t excess, third_excess;  // subtracted from sums of products: codes are multiplied as numbers from 1 to 255
};
static inline const CodeRow& row_after(const Code* digits, Index dim) { return *reinterpret_cast<const CodeRow*>(digits + 3 * dim); }

// 2^(14 - exponent) times the features, in digits, with the exponent of the largest; NaN if one is not finite.
static void pack_code_row(const std::uint16_t* from, Index dim, float scale, Code* to) {
    auto features = [&](Index d) OVERT_UNROLLED {
        return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + d))), 16);
    };
    auto put = [&](Index at, __m512i digits) OVERT_UNROLLED { _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), _mm512_cvtepi32_epi8(digits)); };
    __m512 largest{}, zeros{}, missing{};
    for (Index d = 0; d < dim; d += 16) largest = lane_max(_mm512_abs_ps(features(d)), largest), zeros += features(d) * 0.0f;
    const float poison = _mm512_reduce_add_ps(zeros), most = max_of(_mm512_reduce_max_ps(largest), 1e-30f);
    const float up = _mm_cvtss_f32(_mm_scalef_ss(_mm_set_ss(1), _mm_set_ss(13 - __builtin_floorf(__builtin_log2f(most)))));
    __m512i total{}, third_total{};
    for (Index d = 0; d < dim; d += 16) {
        __m512 number = features(d) * up, more = number - _mm512_roundscale_ps(number, 0);
        __m512i whole = _mm512_cvtps_epi32(number), upper = _mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8);
        __m512i third = _mm512_min_epi32(_mm512_cvtps_epi32(more * 256.0f), _mm512_set1_epi32(127));
        put(d, upper), put(dim + d, whole), put(2 * dim + d, third);
        total = _mm512_add_epi32(total, whole), third_total = _mm512_add_epi32(third_total, third), missing += _mm512_abs_ps(more);
    }
    const CodeRow row{scale / up + poison, __builtin_fabsf(scale) / up * _mm512_reduce_add_ps(missing), 128 * _mm512_reduce_add_epi32(total),
                      128 * _mm512_reduce_add_epi32(third_total)};
    __builtin_memcpy(to + 3 * dim, &row, sizeof row);
}

OVERT_INLINE __m512i four_bytes(const void* from) {
    std::int32_t four;
    __builtin_memcpy(&four, from, 4);
    return _mm512_set1_epi32(four);
}

// products[r * KEYS + c] = row r . key c, for groups of 16 keys. The first rows that read a key prefetch.
template <int ROW_COUNT, int DIGITS, int GROUPS, bool FETCHES>
static inline void code_dots_of(const Code* rows, Index dim, const Code* keys, Ahead& ahead, float* products) {
    Ahead next = ahead;  // in registers
    __m512i sums[ROW_COUNT * DIGITS][GROUPS];
    unrolled<ROW_COUNT * DIGITS, GROUPS>([&](auto i, auto g) OVERT_UNROLLED { sums[i][g] = __m512i{}; });
    for (Index e = 0; e < dim; e += 4, keys += CODE_VECTOR) {
        __m512i codes[GROUPS];
        unrolled<GROUPS>([&](auto g) OVERT_UNROLLED {
            codes[g] = _mm512_loadu_si512(keys + g * CODE_KEYS * dim);
            if (FETCHES) next.fetch<64>();
        });
        unrolled<ROW_COUNT, DIGITS>([&](auto r, auto digit) OVERT_UNROLLED {
            __m512i four = four_bytes(rows + r * 4 * dim + digit * dim + e);
            unrolled<GROUPS>([&](auto g) OVERT_UNROLLED { sums[r * DIGITS + digit][g] = add_products(sums[r * DIGITS + digit][g], codes[g], four); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, GROUPS>([&](auto r, auto g) OVERT_UNROLLED {
        const CodeRow& row = row_after(rows + r * 4 * dim, dim);
        auto sum = [&](int digit) OVERT_UNROLLED { return sums[r * DIGITS + digit][g]; };
        __m512 total = _mm512_cvtepi32_ps(_mm512_sub_epi32(whole_of(sum(0), sum(1)), _mm512_set1_epi32(row.excess)));
        if constexpr (DIGITS == 3) total += _mm512_cvtepi32_ps(_mm512_sub_epi32(sum(2), _mm512_set1_epi32(row.third_excess))) * (1 / 256.0f);
        _mm512_storeu_ps(products + r * KEYS + g * CODE_KEYS, total);
    });
}

template <int DIGITS>
static void code_dots(const Code* rows, Index dim, const Code* keys, Index further, int row_count, int count, float* products) {
    in_fours(row_count, [&](int r, auto size, auto fetches) OVERT_UNROLLED {
        constexpr int COUNT = decltype(size)::COUNT, FETCHES = decltype(fetches)::COUNT;
        Ahead ahead(keys + further, dim, dim);
        const Code* row = rows + r * 4 * dim;
        int c = 0;
        for (; c + 2 * CODE_KEYS <= count; c += 2 * CODE_KEYS)
            code_dots_of<COUNT, DIGITS, 2, FETCHES>(row, dim, keys + c * dim, ahead, products + r * KEYS + c);
        if (c < count) code_dots_of<COUNT, DIGITS, 1, FETCHES>(row, dim, keys + c * dim, ahead, products + r * KEYS + c);
    });
}

// Weights of a tile: for each row a vector of upper digits, a vector of lower digits, and the value of 1 in them.
struct CodeWeights {
    std::uint8_t digits[ROWS][2][KEYS];
    float steps[ROWS];
};

// Sums of products become weights e^(t - row_max) times the values' scales, in digits; updates the state as online_softmax does.
static void code_softmax(const float* products, const float* key_scales, const float* value_scales, const float* row_scales, int rows,
                         int keys, SoftmaxState<float>& running, CodeWeights& weights) {
    constexpr int PARTS = KEYS / 16;
    constexpr float NEVER = -__builtin_inff(), LARGEST = 65535, LEAST = 1e-30f, ZERO = -200;
    for (int r = 0; r < rows; r++, products += KEYS) {
        __m512 t[PARTS], best = _mm512_set1_ps(NEVER);
        unrolled<PARTS>([&](auto p) OVERT_UNROLLED {
            t[p] = _mm512_loadu_ps(products + 16 * p) * (_mm512_loadu_ps(key_scales + 16 * p) * row_scales[r]);
            const int left = keys - 16 * p;
            if (left < 16) t[p] = _mm512_mask_mov_ps(_mm512_set1_ps(NEVER), static_cast<__mmask16>(left > 0 ? (1 << left) - 1 : 0), t[p]);
            best = lane_max(t[p], best);
        });
        running.rescale(r, max_of(_mm512_reduce_max_ps(best), running.row_max[r]));
        const float from = running.row_max[r] == NEVER ? 0 : running.row_max[r];
        __m512 row_sum{}, total{}, largest{};
        unrolled<PARTS>([&](auto p) OVERT_UNROLLED {
            __m512 x = lane_max(_mm512_set1_ps(ZERO), (t[p] - from) * float(LOG2E)), whole = _mm512_roundscale_ps(x, 0);
            __m512 weight = _mm512_scalef_ps(small_power(x - whole), whole);
            row_sum += weight, t[p] = weight * _mm512_loadu_ps(value_scales + 16 * p);
            total += t[p], largest = lane_max(t[p], largest);
        });
        running.row_sum[r] += _mm512_reduce_add_ps(row_sum);
        // A vector with a number that is not finite has the scale NaN.
        const bool finite = _mm512_cmp_ps_mask(total - total, __m512{}, _CMP_NEQ_UQ) == 0;
        const float most = max_of(_mm512_reduce_max_ps(largest), LEAST), inverse = LARGEST / most;
        weights.steps[r] = finite ? most / LARGEST : __builtin_nanf("");
        unrolled<PARTS>([&](auto p) OVERT_UNROLLED {
            __m512i whole = _mm512_cvtps_epi32(t[p] * inverse);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(weights.digits[r][0] + 16 * p), _mm512_cvtepi32_epi8(_mm512_srli_epi32(whole, 8)));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(weights.digits[r][1] + 16 * p), _mm512_cvtepi32_epi8(whole));
        });
    }
}

// accumulator of some rows += weights . values, 16 features in each sum.
template <int ROW_COUNT, int SUMS, bool FETCHES>
static inline void code_values_of(const CodeWeights& weights, int row, const Code* values, Index dim, Ahead& ahead, int keys, float* accumulator) {
    Ahead next = ahead;  // in registers
    __m512i sums[2 * ROW_COUNT][SUMS];
    unrolled<2 * ROW_COUNT, SUMS>([&](auto i, auto v) OVERT_UNROLLED { sums[i][v] = __m512i{}; });
    for (int c = 0; c < keys; c += 4, values += 4 * dim) {
        __m512i codes[SUMS];
        unrolled<SUMS>([&](auto v) OVERT_UNROLLED {
            codes[v] = _mm512_loadu_si512(values + 64 * v);
            if (FETCHES) next.fetch<64>();
        });
        unrolled<ROW_COUNT, 2>([&](auto r, auto digit) OVERT_UNROLLED {
            __m512i weight = four_bytes(weights.digits[row + r][digit] + c);
            unrolled<SUMS>([&](auto v) OVERT_UNROLLED { sums[2 * r + digit][v] = add_products(sums[2 * r + digit][v], weight, codes[v]); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED {
        float* at = accumulator + r * dim + v * 16;
        __m512 total = _mm512_cvtepi32_ps(whole_of(sums[2 * r][v], sums[2 * r + 1][v]));
        _mm512_storeu_ps(at, total * weights.steps[row + r] + _mm512_loadu_ps(at));
    });
}

// accumulator (rows x dim) += weights . values, all of them visible.
static void code_values(const CodeWeights& weights, const Code* values, Index further, int row_count, int keys, Index dim, float* accumulator) {
    in_fours(row_count, [&](int r, auto size, auto fetches) OVERT_UNROLLED {
        constexpr int COUNT = decltype(size)::COUNT, SUMS = COUNT == 4 ? 2 : 4;
        Ahead ahead(values + further, dim, dim);
        for (Index e = 0; e < dim; e += 16 * SUMS)
            code_values_of<COUNT, SUMS, decltype(fetches)::COUNT>(weights, r, values + 4 * e, dim, ahead, keys, accumulator + r * dim + e);
    });
}

// For DotDecode: bfloat16 queries against codes, without masks, biases and dropout.
struct CodeProducts {
    static bool serve(const Inputs& inputs) {
        constexpr Index MOST = 1024;  // features whose sum of products is below 2^31
        const bool plain = !inputs.mask.count && !inputs.bias.data && !inputs.bias_of_keys.data && !inputs.inverse_temperature && inputs.dropout == 0;
        return plain && inputs.query.kind == Kind::bfloat16 && inputs.key.kind == Kind::woven && inputs.value.kind == Kind::woven &&
               inputs.key_scale.data && inputs.value_scale.data && inputs.head_dim % CODE_VECTOR == 0 && inputs.head_dim <= MOST &&
               inputs.value_dim % CODE_VECTOR == 0;
    }

    static void pack(const Inputs& inputs, Index entry, double scale, float* to) {
        const Matrix& query = inputs.query;
        const std::uint16_t* from = static_cast<const std::uint16_t*>(query.data) + query.offsets[entry];
        for (Index r = 0; r < inputs.queries; r++, from += query.row, to += inputs.head_dim)
            pack_code_row(from, inputs.head_dim, static_cast<float>(scale), reinterpret_cast<Code*>(to));
    }

    static const Code* codes_of(const Matrix& matrix, const Tile& at) {
        return static_cast<const Code*>(matrix.data) + matrix.offsets[at.entry] + at.key * matrix.row;
    }

    static void scales_of(const Matrix& scale, const Tile& at, float* to) {
        const float* from = static_cast<const float*>(scale.data) + scale.offsets[at.entry] + at.key * scale.row;
        for (int c = 0; c < at.keys; c++) to[c] = from[c * scale.row];
        for (int c = at.keys; c < KEYS; c++) to[c] = 0;
    }

    // A tile's keys and values. `following`: the distance in keys to the next tile.
    static void tile(const float* queries, const Inputs& inputs, const Tile& at, Index following, float* scores, SoftmaxState<float>& running) {
        constexpr float VISIBLE = 0x1p-10f;  // a third digit is needed if a score changes by this
        const Code* rows = reinterpret_cast<const Code*>(queries);
        const int keys = (at.keys + CODE_KEYS - 1) / CODE_KEYS * CODE_KEYS;
        float key_scales[KEYS], value_scales[KEYS], row_scales[ROWS], missing = 0;
        CodeWeights weights;
        scales_of(inputs.key_scale, at, key_scales), scales_of(inputs.value_scale, at, value_scales);
        __m512 most{};
        for (int c = 0; c < KEYS; c += 16) most = lane_max(_mm512_loadu_ps(key_scales + c), most);
        for (int r = 0; r < at.rows; r++) {
            const CodeRow& row = row_after(rows + r * 4 * inputs.head_dim, inputs.head_dim);
            row_scales[r] = row.step, missing = max_of(row.missing, missing);
        }
        const Code* codes = codes_of(inputs.key, at);
        const Index dim = inputs.head_dim, value_dim = inputs.value_dim;
        if (missing * _mm512_reduce_max_ps(most) * 127 > VISIBLE) code_dots<3>(rows, dim, codes, following * dim, at.rows, keys, scores);
        else code_dots<2>(rows, dim, codes, following * dim, at.rows, keys, scores);
        code_softmax(scores, key_scales, value_scales, row_scales, at.rows, at.keys, running, weights);
        code_values(weights, codes_of(inputs.value, at), following * value_dim, at.rows, keys, value_dim, running.accumulator);
    }
};

}  // namespace overt::OVERT_LEVEL
