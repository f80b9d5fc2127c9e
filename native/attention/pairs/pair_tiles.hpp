// Tiles of bfloat16 queries, keys and values, as products of pairs take them, and their softmax.
#pragma once

#include "attention/pairs/pair_products.hpp"
#include "attention/threads.hpp"
#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

// Rows `first` to `first + rows` of an entry, padded with zeros to `whole` rows and whole terms: in place if no padding is needed and
// rows are whole words.
struct HalfRows {
    const Half* data;
    Index row;

    HalfRows(const Matrix& matrix, Index entry, Index first, int rows, int whole, Index columns, Half* spare) {
        data = static_cast<const Half*>(matrix.data) + matrix.offsets[entry] + first * matrix.row, row = matrix.row;
        if (rows == whole && columns % PAIR_TERMS == 0 && row % 2 == 0) return;
        Index width = rounded_up<Index>(columns, PAIR_TERMS);
        __builtin_memset(spare, 0, static_cast<std::size_t>(whole * width) * sizeof(Half));
        for (int r = 0; r < rows; r++)
            __builtin_memcpy(spare + r * width, data + r * row, static_cast<std::size_t>(columns) * sizeof(Half));
        data = spare, row = width;
    }

    const Word* words() const { return reinterpret_cast<const Word*>(data); }
};

// Whether all of these bfloat16 numbers are finite.
static inline bool all_finite_halves(const Half* numbers, Index row, int rows, Index columns) {
    bool finite = true;
    for (int r = 0; r < rows; r++, numbers += row) {
        int outside = 0;
        for (Index e = 0; e < columns; e++) outside |= (numbers[e] & 0x7f80) == 0x7f80;
        finite = finite && !outside;
    }
    return finite;
}

// A tile's queries begin and end at multiples of `lanes` of its block's, which has `rows`. Those that were not in the tile are masked.
static inline void whole_lanes(Index row, int rows, int lanes, Tile& at) {
    int skipped = static_cast<int>(at.row - row), more = skipped % lanes;
    at.row -= more, at.rows = min_of(rounded_up(at.rows + more, lanes), rows - (skipped - more));
}

// Transposes rows of an even number of keys: to[e * KEYS + c]. `spare` has KEYS * QUERIES words.
static inline void transpose_halves(const HalfRows& rows, int keys, Index columns, Half* to, Word* spare) {
    constexpr Index AT_ONCE = 2 * QUERIES;
    for (Index e = 0; e < columns; e += AT_ONCE) {
        Index some = min_of(AT_ONCE, columns - e);
        weave(rows.data + e, rows.row, keys, some, spare, AT_ONCE);
        transpose_words(spare, AT_ONCE, keys / 2, some, reinterpret_cast<Word*>(to + e * KEYS), KEYS / 2);
    }
}

// 2^x to 1e-4, small next to the 8 bits to which a weight is rounded; 0 below the normal numbers. The rounded weights are summed.
OVERT_INLINE Vector<float> rough_power(Vector<float> x) {
#if defined(__AVX512DQ__) && OVERT_BYTES == 64
    Vector<float> r = _mm512_reduce_ps(x, 1);  // x - floor(x)
    Vector<float> square = multiply_add(multiply_add(r, broadcast(0.077907164f), broadcast(0.22623319f)), r, broadcast(0.6957771f));
    Vector<float> small = multiply_add(square, r, broadcast(0.99992783f));
    return _mm512_scalef_ps(small, x);  // times 2^floor(x)
#else
    constexpr float ROUND = Exponential<float>::ROUND;
    Vector<float> shifted = x + ROUND, r = x - (shifted - ROUND);
    Bits<float> power = ((Bits<float>)shifted << 23) + (Bits<float>)broadcast(1.0f);
    Vector<float> square = multiply_add(multiply_add(r, broadcast(0.055088684f), broadcast(0.24260405f)), r, broadcast(0.69327624f));
    Vector<float> small = multiply_add(square, r, broadcast(0.99992894f));
    return x < -126.0f ? Vector<float>{} : small * (Vector<float>)power;
#endif
}

}  // namespace overt::OVERT_LEVEL
