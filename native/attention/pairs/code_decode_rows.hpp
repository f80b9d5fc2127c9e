// Rows of int8 keys and values where decoding reads them, multiplied as whole numbers by vpdpbusd: 64 products at a time, and no conversions.
//
// A query is two digits of a byte for each feature, 15 bits relative to the largest, and a third one where scores would show that it is missing.
// A weight is two digits, 16 bits relative to the largest of its tile. Sums of products are exact.
#pragma once

#include "attention/dot/decode_rows.hpp"

namespace overt::OVERT_LEVEL {

using Code = std::int8_t;
constexpr int CODE_VECTOR = 64, CODE_KEYS = 16;  // codes of a vector; a tile's keys are a multiple of the latter, the others are zeros

// sums + products of unsigned by signed bytes, four to a lane, or four signed ones for all lanes. gcc copies the sums of its own function
// before and after each.
OVERT_INLINE void add_products(__m512i& sums, __m512i bytes, __m512i codes) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(codes)); }
OVERT_INLINE void add_products(__m512i& sums, __m512i bytes, const Code* four) {
    typedef std::int32_t Four __attribute__((aligned(1), may_alias));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(bytes), "m"(*reinterpret_cast<const Four*>(four)));
}

// Numbers of two digits.
OVERT_INLINE __m512i whole_of(__m512i upper, __m512i lower) { return _mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower); }

// work(first row, how many, whether they are the first) of four rows at a time, and then of one.
template <class Work>
static inline void in_fours(int row_count, Work work) {
    int r = row_count < 4 ? 1 : 4;
    if (row_count < 4) work(0, RowCount<1>(), RowCount<1>());
    else work(0, RowCount<4>(), RowCount<1>());
    for (; r + 4 <= row_count; r += 4) work(r, RowCount<4>(), RowCount<0>());
    for (; r < row_count; r++) work(r, RowCount<1>(), RowCount<0>());
}

// A row of queries: upper, lower and third digits, then this. Rows lie as far apart as in float32.
struct CodeRow {
    float step;                        // of the first two digits' whole numbers, times the score's scale
    float missing;                     // the sum of what the third digits add, times the score's scale
    std::int32_t excess, third_excess;  // of sums of products: codes are multiplied as numbers from 1 to 255
};
static inline const CodeRow& row_after(const Code* digits, Index dim) { return *reinterpret_cast<const CodeRow*>(digits + 3 * dim); }

// 2^(14 - exponent) times the features, in digits, for the exponent of the largest one; NaN where one is not finite.
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

// 64 codes of 16 keys, transposed by fours: the first step, within each 16 bytes.
OVERT_INLINE void transpose_quarters(const Code* keys, Index key_row, __m512i (&quarters)[4][4]) {
    const __m512i unsigned_codes = _mm512_set1_epi8(-128);
    unrolled<4>([&](auto g) OVERT_UNROLLED {
        __m512i codes[4];
        unrolled<4>([&](auto n) OVERT_UNROLLED { codes[n] = _mm512_loadu_si512(keys + (4 * g + n) * key_row) ^ unsigned_codes; });
        __m512i a = _mm512_unpacklo_epi32(codes[0], codes[1]), b = _mm512_unpackhi_epi32(codes[0], codes[1]);
        __m512i c = _mm512_unpacklo_epi32(codes[2], codes[3]), d = _mm512_unpackhi_epi32(codes[2], codes[3]);
        quarters[0][g] = _mm512_unpacklo_epi64(a, c), quarters[1][g] = _mm512_unpackhi_epi64(a, c);
        quarters[2][g] = _mm512_unpacklo_epi64(b, d), quarters[3][g] = _mm512_unpackhi_epi64(b, d);
    });
}
// The second step: four features of the 16 keys, a key a lane, and the same 16, 32 and 48 features further.
OVERT_INLINE void transpose_vectors(const __m512i (&quarters)[4], __m512i (&fours)[4]) {
    constexpr int EVEN = 0x88, ODD = 0xdd;
    __m512i a = _mm512_shuffle_i32x4(quarters[0], quarters[1], EVEN), b = _mm512_shuffle_i32x4(quarters[0], quarters[1], ODD);
    __m512i c = _mm512_shuffle_i32x4(quarters[2], quarters[3], EVEN), d = _mm512_shuffle_i32x4(quarters[2], quarters[3], ODD);
    fours[0] = _mm512_shuffle_i32x4(a, c, EVEN), fours[2] = _mm512_shuffle_i32x4(a, c, ODD);
    fours[1] = _mm512_shuffle_i32x4(b, d, EVEN), fours[3] = _mm512_shuffle_i32x4(b, d, ODD);
}

// products[r * KEYS + c] = row r . key c, for 16 keys. The first rows that read a key fetch.
template <int ROW_COUNT, int DIGITS, bool FETCHES>
static inline void code_dots_of(const Code* rows, Index dim, const Code* keys, Index key_row, Ahead& ahead, float* products) {
    Ahead next = ahead;  // in registers
    __m512i sums[ROW_COUNT][DIGITS];
    unrolled<ROW_COUNT, DIGITS>([&](auto r, auto digit) OVERT_UNROLLED { sums[r][digit] = __m512i{}; });
    for (Index e = 0; e < dim; e += CODE_VECTOR) {
        __m512i quarters[4][4];
        transpose_quarters(keys + e, key_row, quarters);
        unrolled<4>([&](auto i) OVERT_UNROLLED {
            __m512i fours[4];
            transpose_vectors(quarters[i], fours);
            unrolled<4>([&](auto l) OVERT_UNROLLED {
                if (FETCHES) next.fetch<64>();
                unrolled<ROW_COUNT, DIGITS>([&](auto r, auto digit) OVERT_UNROLLED {
                    add_products(sums[r][digit], fours[l], rows + r * 4 * dim + digit * dim + e + 16 * l + 4 * i);
                });
            });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
        const CodeRow& row = row_after(rows + r * 4 * dim, dim);
        __m512 total = _mm512_cvtepi32_ps(_mm512_sub_epi32(whole_of(sums[r][0], sums[r][1]), _mm512_set1_epi32(row.excess)));
        if constexpr (DIGITS == 3) total += _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[r][2], _mm512_set1_epi32(row.third_excess))) * (1 / 256.0f);
        _mm512_storeu_ps(products + r * KEYS, total);
    });
}

template <int DIGITS>
static void code_dots(const Code* rows, Index dim, const Code* keys, Index key_row, Index further, int row_count, int count,
                      float* products) {
    in_fours(row_count, [&](int r, auto size, auto fetches) OVERT_UNROLLED {
        Ahead ahead(keys + further, dim, key_row);
        for (int c = 0; c < count; c += CODE_KEYS)
            code_dots_of<decltype(size)::COUNT, DIGITS, decltype(fetches)::COUNT>(rows + r * 4 * dim, dim, keys + c * key_row, key_row, ahead,
                                                                                  products + r * KEYS + c);
    });
}

// Weights of a tile: for each row a vector of upper digits and one of lower ones, and the step of its whole numbers.
struct CodeWeights {
    std::uint8_t digits[ROWS][2][KEYS];
    float steps[ROWS];
};

// Sums of products to weights e^(t - row_max) times the values' scales, in digits; updates the state as online_softmax does.
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

// accumulator of some rows += weights . values, of 64 features or, from FIRST on, of half of them. Four keys' codes are woven where they are
// read, so that sums have the order of the woven quarters of lanes.
template <int ROW_COUNT, int FIRST, int HALVES, bool FETCHES>
static inline void code_values_of(const CodeWeights& weights, int row, const Code* values, Index value_row, Ahead& ahead, int keys,
                                  Index padded_dim, float* accumulator) {
    constexpr int SUMS = 2 * HALVES;
    Ahead next = ahead;  // in registers
    __m512i sums[2 * ROW_COUNT][SUMS];
    unrolled<2 * ROW_COUNT, SUMS>([&](auto i, auto v) OVERT_UNROLLED { sums[i][v] = __m512i{}; });
    for (int c = 0; c < keys; c += 4, values += 4 * value_row) {
        __m512i codes[4], parts[SUMS];
        unrolled<4>([&](auto n) OVERT_UNROLLED { codes[n] = _mm512_loadu_si512(values + n * value_row); });
        if (FETCHES) unrolled<2 * HALVES>([&](auto) OVERT_UNROLLED { next.fetch<64>(); });
        unrolled<HALVES>([&](auto h) OVERT_UNROLLED {
            const bool upper = FIRST + h > 0;
            __m512i first = upper ? _mm512_unpackhi_epi8(codes[0], codes[1]) : _mm512_unpacklo_epi8(codes[0], codes[1]);
            __m512i second = upper ? _mm512_unpackhi_epi8(codes[2], codes[3]) : _mm512_unpacklo_epi8(codes[2], codes[3]);
            parts[2 * h] = _mm512_unpacklo_epi16(first, second), parts[2 * h + 1] = _mm512_unpackhi_epi16(first, second);
        });
        unrolled<ROW_COUNT, 2>([&](auto r, auto digit) OVERT_UNROLLED {
            std::int32_t four;
            __builtin_memcpy(&four, weights.digits[row + r][digit] + c, 4);
            __m512i weight = _mm512_set1_epi32(four);
            unrolled<SUMS>([&](auto v) OVERT_UNROLLED { add_products(sums[2 * r + digit][v], weight, parts[v]); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED {
        float* at = accumulator + r * padded_dim + (2 * FIRST + v) * 16;
        __m512 total = _mm512_cvtepi32_ps(whole_of(sums[2 * r][v], sums[2 * r + 1][v]));
        _mm512_storeu_ps(at, total * weights.steps[row + r] + _mm512_loadu_ps(at));
    });
}

// accumulator (rows x padded_dim) += weights . values, all of which count.
static void code_values(const CodeWeights& weights, const Code* values, Index value_row, Index further, int row_count, int keys,
                        Index padded_dim, float* accumulator) {
    in_fours(row_count, [&](int r, auto size, auto fetches) OVERT_UNROLLED {
        constexpr int COUNT = decltype(size)::COUNT, HALVES = COUNT == 4 ? 1 : 2;
        constexpr bool FETCHES = decltype(fetches)::COUNT;
        Ahead ahead(values + further, padded_dim, value_row);
        for (Index e = 0; e < padded_dim; e += CODE_VECTOR) {
            float* to = accumulator + r * padded_dim + e;
            code_values_of<COUNT, 0, HALVES, FETCHES>(weights, r, values + e, value_row, ahead, keys, padded_dim, to);
            if constexpr (COUNT == 4) code_values_of<COUNT, 1, HALVES, FETCHES>(weights, r, values + e, value_row, ahead, keys, padded_dim, to);
        }
    });
}

// For DotDecode: bfloat16 queries against codes, without masks, biases and dropout.
struct CodeProducts {
    static bool serve(const Inputs& inputs) {
        constexpr Index MOST = 1024;  // features whose sum of products is below 2^31
        const bool plain = !inputs.mask.count && !inputs.bias.data && !inputs.bias_of_keys.data && !inputs.inverse_temperature && inputs.dropout == 0;
        return plain && inputs.query.kind == Kind::bfloat16 && inputs.key.kind == Kind::int8 && inputs.value.kind == Kind::int8 &&
               inputs.key_scale.data && inputs.value_scale.data && inputs.head_dim % CODE_VECTOR == 0 && inputs.head_dim <= MOST &&
               inputs.value_dim % CODE_VECTOR == 0;
    }

    static void pack(const Inputs& inputs, Index entry, double scale, float* to) {
        const Matrix& query = inputs.query;
        const std::uint16_t* from = static_cast<const std::uint16_t*>(query.data) + query.offsets[entry];
        for (Index r = 0; r < inputs.queries; r++, from += query.row, to += inputs.head_dim)
            pack_code_row(from, inputs.head_dim, static_cast<float>(scale), reinterpret_cast<Code*>(to));
    }

    // Rows of codes, in place or, where they are not a multiple of CODE_KEYS, with zeros after them.
    static const Code* codes_of(const Matrix& matrix, const Tile& at, Index columns, float* spare, Index* row) {
        const Code* from = static_cast<const Code*>(matrix.data) + matrix.offsets[at.entry] + at.key * matrix.row;
        *row = matrix.row;
        if (at.keys % CODE_KEYS == 0) return from;
        Code* copied = reinterpret_cast<Code*>(spare);
        __builtin_memset(copied, 0, static_cast<std::size_t>(KEYS * columns));
        for (int c = 0; c < at.keys; c++) __builtin_memcpy(copied + c * columns, from + c * matrix.row, static_cast<std::size_t>(columns));
        *row = columns;
        return copied;
    }

    static void scales_of(const Matrix& scale, const Tile& at, float* to) {
        const float* from = static_cast<const float*>(scale.data) + scale.offsets[at.entry] + at.key * scale.row;
        for (int c = 0; c < at.keys; c++) to[c] = from[c * scale.row];
        for (int c = at.keys; c < KEYS; c++) to[c] = 0;
    }

    // A tile's keys and values. `following`: how many keys further the next tile is.
    static void tile(const float* queries, const Inputs& inputs, const Tile& at, Index following, float* scores, float* spare,
                     SoftmaxState<float>& running) {
        constexpr float VISIBLE = 0x1p-10f;  // a change of a score
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
        Index row;
        const Code* codes = codes_of(inputs.key, at, inputs.head_dim, spare, &row);
        if (missing * _mm512_reduce_max_ps(most) * 127 > VISIBLE)
            code_dots<3>(rows, inputs.head_dim, codes, row, following * row, at.rows, keys, scores);
        else code_dots<2>(rows, inputs.head_dim, codes, row, following * row, at.rows, keys, scores);
        code_softmax(scores, key_scales, value_scales, row_scales, at.rows, at.keys, running, weights);
        codes = codes_of(inputs.value, at, inputs.value_dim, spare, &row);
        code_values(weights, codes, row, following * row, at.rows, keys, running.padded_dim, running.accumulator);
    }

    // A row of features in the order of the sums, or back: four of each sixteen belong to a sum.
    static void order(float* row, Index columns, bool back) {
        float both[CODE_VECTOR];
        for (Index d = 0; d < columns; d += CODE_VECTOR, row += CODE_VECTOR) {
            for (int i = 0; i < CODE_VECTOR; i++) {
                const int place = i / 4 % 4 * 16 + i / 16 * 4 + i % 4;
                both[back ? i : place] = row[back ? place : i];
            }
            for (int i = 0; i < CODE_VECTOR; i++) row[i] = both[i];
        }
    }
};

}  // namespace overt::OVERT_LEVEL
