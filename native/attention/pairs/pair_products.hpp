// Products of bfloat16 matrices, summed in float32, by units that multiply two terms at once: C = A B, or C += A B.
//
// A has rows of numbers. B is woven: a word of 32 bits holds two consecutive rows' numbers of a column. OVERT_TILES chooses the matrix unit
// or its emulation; without it vdpbf16ps multiplies.
#pragma once

#include "simd/transpose.hpp"
#ifdef OVERT_TILES
#include "simd/tiles.hpp"
#endif

namespace overt::OVERT_LEVEL {

using Half = std::uint16_t;
using Word = std::uint32_t;  // two bfloat16

// Rows and columns of a tile's registers, and the terms of a product: memory of A, B and C is padded to multiples of them.
constexpr int PAIR_LANES = 16, PAIR_TERMS = 32;

template <class N>
static constexpr N rounded_up(N count, N to) {
    return (count + to - 1) / to * to;
}

#ifdef OVERT_TILES

template <int ROWS_AT_ONCE, int COLUMNS_AT_ONCE>
static inline void multiply_tiles(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int inner, bool add) {
    constexpr bool TWO_ROWS = ROWS_AT_ONCE == 2, TWO_COLUMNS = COLUMNS_AT_ONCE == 2;
    TILE_REGISTERS;
    float* lower = c + TILE_ROWS * c_row;
    if (add) {
        TILE_LOAD(0, c, c_row * 4);
        if constexpr (TWO_COLUMNS) TILE_LOAD(1, c + TILE_ROWS, c_row * 4);
        if constexpr (TWO_ROWS) TILE_LOAD(2, lower, c_row * 4);
        if constexpr (TWO_ROWS && TWO_COLUMNS) TILE_LOAD(3, lower + TILE_ROWS, c_row * 4);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (int k = 0; k < inner; k += TILE_TERMS, a += TILE_TERMS, b += TILE_ROWS * b_row) {
        TILE_LOAD(6, b, b_row * 4);
        TILE_LOAD(4, a, a_row * 2);
        TILE_PRODUCT(0, 4, 6);
        if constexpr (TWO_COLUMNS) {
            TILE_LOAD(7, b + TILE_ROWS, b_row * 4);
            TILE_PRODUCT(1, 4, 7);
        }
        if constexpr (TWO_ROWS) {
            TILE_LOAD(5, a + TILE_ROWS * a_row, a_row * 2);
            TILE_PRODUCT(2, 5, 6);
            if constexpr (TWO_COLUMNS) TILE_PRODUCT(3, 5, 7);
        }
    }
    TILE_STORE(0, c, c_row * 4);
    if constexpr (TWO_COLUMNS) TILE_STORE(1, c + TILE_ROWS, c_row * 4);
    if constexpr (TWO_ROWS) TILE_STORE(2, lower, c_row * 4);
    if constexpr (TWO_ROWS && TWO_COLUMNS) TILE_STORE(3, lower + TILE_ROWS, c_row * 4);
}

template <int ROWS_AT_ONCE>
static inline void multiply_tile_rows(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int inner,
                                      int columns, bool add) {
    int n = 0;
    for (; n + TILE_ROWS < columns; n += 2 * TILE_ROWS)
        multiply_tiles<ROWS_AT_ONCE, 2>(a, a_row, b + n, b_row, c + n, c_row, inner, add);
    if (n < columns) multiply_tiles<ROWS_AT_ONCE, 1>(a, a_row, b + n, b_row, c + n, c_row, inner, add);
}

static void multiply_pairs(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int rows, int inner,
                           int columns, bool add) {
    int r = 0;
    for (; r + TILE_ROWS < rows; r += 2 * TILE_ROWS)
        multiply_tile_rows<2>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, inner, columns, add);
    if (r < rows) multiply_tile_rows<1>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, inner, columns, add);
}

#else

class Tiles {  // this unit needs no configuration
   public:
    Tiles() {}
    ~Tiles() {}
};

template <int COUNT, int VECTORS>
static inline void multiply_pair_registers(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int inner,
                                           bool add) {
    __m512 sums[COUNT][VECTORS] = {};
    for (int k = 0; k < inner; k += 2, a += 2, b += b_row) {
        __m512bh right[VECTORS];
        for (int v = 0; v < VECTORS; v++) right[v] = (__m512bh)_mm512_loadu_si512(b + v * PAIR_LANES);
        for (int r = 0; r < COUNT; r++) {
            int pair;
            __builtin_memcpy(&pair, a + r * a_row, 4);
            __m512bh left = (__m512bh)_mm512_set1_epi32(pair);
            for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], left, right[v]);
        }
    }
    for (int r = 0; r < COUNT; r++)
        for (int v = 0; v < VECTORS; v++) {
            float* at = c + r * c_row + v * PAIR_LANES;
            _mm512_storeu_ps(at, add ? _mm512_add_ps(_mm512_loadu_ps(at), sums[r][v]) : sums[r][v]);
        }
}

template <int VECTORS>
static inline void multiply_pair_panel(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int rows,
                                       int inner, bool add) {
    constexpr int COUNT = VECTORS == 4 ? 4 : 8;
    int r = 0;
    for (; r + COUNT <= rows; r += COUNT)
        multiply_pair_registers<COUNT, VECTORS>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, inner, add);
    for (; r < rows; r++) multiply_pair_registers<1, VECTORS>(a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, inner, add);
}

static void multiply_pairs(const Half* a, Index a_row, const Word* b, Index b_row, float* c, Index c_row, int rows, int inner,
                           int columns, bool add) {
    int n = 0;
    for (; n + 3 * PAIR_LANES < columns; n += 4 * PAIR_LANES)
        multiply_pair_panel<4>(a, a_row, b + n, b_row, c + n, c_row, rows, inner, add);
    for (; n + PAIR_LANES < columns; n += 2 * PAIR_LANES)
        multiply_pair_panel<2>(a, a_row, b + n, b_row, c + n, c_row, rows, inner, add);
    if (n < columns) multiply_pair_panel<1>(a, a_row, b + n, b_row, c + n, c_row, rows, inner, add);
}

#endif

#if defined(__AVX512BF16__) && OVERT_BYTES == 64
// The instruction that rounds two vectors concatenates their numbers.
OVERT_INLINE __m512i woven_order() {
    return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
}
#endif

// Two vectors of float32, rounded to bfloat16 (to nearest, ties to even), as a vector of words.
OVERT_INLINE Bits<float> woven(Vector<float> first, Vector<float> second) {
#if defined(__AVX512BF16__) && OVERT_BYTES == 64
    return (Bits<float>)_mm512_permutexvar_epi16(woven_order(), (__m512i)_mm512_cvtne2ps_pbh(second, first));
#else
    auto rounded = [](Vector<float> v) {
        Bits<float> bits = (Bits<float>)v, quiet = bits | 0x400000u, up = bits + 0x7fffu + (bits >> 16 & 1u);
        return (bits & 0x7fffffffu) > 0x7f800000u ? quiet : up;
    };
    return rounded(first) >> 16 | (rounded(second) & 0xffff0000u);
#endif
}
// Two vectors, rounded, and as a vector of words.
OVERT_INLINE Bits<float> round_two(Vector<float> first, Vector<float> second, Half* to_first, Half* to_second) {
#if defined(__AVX512BF16__) && OVERT_BYTES == 64
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_first), _mm512_castsi512_si256(both));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to_second), _mm512_extracti64x4_epi64(both, 1));
    return (Bits<float>)_mm512_permutexvar_epi16(woven_order(), both);
#else
    Bits<float> words = woven(first, second);
    for (int i = 0; i < WIDTH<float>; i++) to_first[i] = static_cast<Half>(words[i]), to_second[i] = static_cast<Half>(words[i] >> 16);
    return words;
#endif
}
// One vector, and a row, rounded.
OVERT_INLINE void round_vector(Vector<float> v, Half* to) {
#if defined(__AVX512BF16__) && OVERT_BYTES == 64
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(v));
#else
    Bits<float> words = woven(v, Vector<float>{});
    for (int i = 0; i < WIDTH<float>; i++) to[i] = static_cast<Half>(words[i]);
#endif
}
static inline void round_row(const float* from, Index count, Half* to) {
    Index i = 0;
    for (; i + WIDTH<float> <= count; i += WIDTH<float>) round_vector(load(from + i), to + i);
    for (; i < count; i++) to[i] = static_cast<Half>(woven(broadcast(from[i]), Vector<float>{})[0]);
}

OVERT_INLINE Vector<float> first_of(Bits<float> words) { return (Vector<float>)(words << 16); }
OVERT_INLINE Vector<float> second_of(Bits<float> words) { return (Vector<float>)(words & 0xffff0000u); }

// to[w * to_row + r] = from[r * from_row + w] for words, and 0 for rows up to the next multiple of 16. Words are read as if whole vectors
// of them were there.
static void transpose_words(const Word* from, Index from_row, int rows, Index words, Word* to, Index to_row) {
    constexpr int W = WIDTH<float>;
    constexpr auto LANES = std::make_index_sequence<W>();
    for (int r = 0; r < rounded_up(rows, PAIR_LANES); r += W)
        for (Index c = 0; c < words; c += W) {
            Vector<float> now[W], next[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; i++)
                now[i] = r + i < rows ? load(reinterpret_cast<const float*>(from + (r + i) * from_row + c)) : Vector<float>{};
#pragma GCC unroll 4
            for (int bit = 1; bit < W; bit *= 2) {
#pragma GCC unroll 8
                for (int i = 0; i < W; i += 2) {
                    next[i] = alternated<float, 0>(now[i / 2], now[i / 2 + W / 2], LANES);
                    next[i + 1] = alternated<float, W / 2>(now[i / 2], now[i / 2 + W / 2], LANES);
                }
#pragma GCC unroll 16
                for (int i = 0; i < W; i++) now[i] = next[i];
            }
#pragma GCC unroll 16
            for (int i = 0; i < W; i++) store(reinterpret_cast<float*>(to + (c + i) * to_row + r), now[i]);
        }
}

// Two rows to one of words.
static inline void weave_rows(const Half* first, const Half* second, Index columns, Word* to) {
    Index e = 0;
#if defined(__AVX512BW__) && OVERT_BYTES == 64
    for (; e + 16 <= columns; e += 16) {
        __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + e)));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + e)));
        _mm512_storeu_si512(to + e, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
#endif
    for (; e < columns; e++) to[e] = first[e] | static_cast<Word>(second[e]) << 16;
}

// Pairs of rows, an even number of them.
static void weave(const Half* from, Index row, int rows, Index columns, Word* to, Index to_row) {
    for (int r = 0; r < rows; r += 2) weave_rows(from + r * row, from + (r + 1) * row, columns, to + r / 2 * to_row);
}

}  // namespace overt::OVERT_LEVEL
