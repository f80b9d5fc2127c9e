// A dense matrix product for tiles that lie in cache: C = A B, or C += A B.
//
// A few rows and a few vectors of C stay in registers during the sum. Each number of A is broadcast once and used for all of those vectors
// of B; each vector of B is used for all of those rows. What is added to C is summed by itself first: many small terms would vanish next
// to a large number of C one by one (pairwise summation; Higham 2002, section 4.2).
#pragma once

#include "simd/unrolled.hpp"

namespace overt::OVERT_LEVEL {

// Rows of C in registers for this many vectors: enough independent sums to hide the latency of a multiply-add, few
// enough for the level's registers, and close to a square, which loads least.
#if OVERT_BYTES == 64 || defined(__aarch64__)
constexpr int WIDEST = 4;
constexpr int rows_in_registers(int vectors) { return vectors == 4 ? 6 : 8; }  // of 32 registers, up to 24 hold sums
#elif OVERT_BYTES == 32
constexpr int WIDEST = 2;
constexpr int rows_in_registers(int) { return 6; }
#else
constexpr int WIDEST = 2;
constexpr int rows_in_registers(int) { return 4; }
#endif

// TERMS of one pass over the inner dimension: two vectors of as many rows of B stay in the nearest cache with A.
constexpr int TERMS = 128;

template <class T>
struct Left {
    const T* data;
    Index row, column;
};

template <class T>
struct Right {
    const T* data;
    Index row;
};

// Without this, compilers broadcast a number again for each vector, and loads take the time instead of products.
template <class T>
OVERT_INLINE Vector<T> in_register(Vector<T> v) {
#if OVERT_BYTES == 16 && defined(__SSE2__) || OVERT_BYTES == 32 && defined(__AVX2__) || OVERT_BYTES == 64 && defined(__AVX512F__)
    __asm__("" : "+v"(v));
#endif
    return v;
}

template <class T, int COUNT, int VECTORS>
static inline void multiply_registers(Left<T> a, Right<T> b, T* c, Index c_row, int inner, bool add) {
    constexpr int W = WIDTH<T>;
    Vector<T> sums[COUNT][VECTORS];
    unrolled<COUNT, VECTORS>([&](auto r, auto v) OVERT_UNROLLED { sums[r][v] = Vector<T>{}; });
    for (int k = 0; k < inner; k++, a.data += a.column, b.data += b.row)
        unrolled<COUNT>([&](auto r) OVERT_UNROLLED {
            Vector<T> left = in_register<T>(broadcast(a.data[r * a.row]));
            unrolled<VECTORS>([&](auto v) OVERT_UNROLLED { sums[r][v] = multiply_add(left, load(b.data + v * W), sums[r][v]); });
        });
    unrolled<COUNT, VECTORS>([&](auto r, auto v) OVERT_UNROLLED {
        T* at = c + r * c_row + v * W;
        store(at, add ? load(at) + sums[r][v] : sums[r][v]);
    });
}

// The last rows, at most COUNT, with as many sums as there are rows.
template <class T, int VECTORS, int COUNT>
static inline void multiply_rest(Left<T> a, Right<T> b, T* c, Index c_row, int rows, int inner, bool add) {
    if (rows == COUNT) return multiply_registers<T, COUNT, VECTORS>(a, b, c, c_row, inner, add);
    if constexpr (COUNT > 1) multiply_rest<T, VECTORS, COUNT - 1>(a, b, c, c_row, rows, inner, add);
}

template <class T, int VECTORS>
static void multiply_panel(Left<T> a, Right<T> b, T* c, Index c_row, int rows, int inner, bool add) {
    // If full groups would leave one or two rows, the last two groups share their rows equally.
    constexpr int FULL = rows_in_registers(VECTORS), REDUCED = FULL == 6 ? 4 : FULL;
    while (rows >= FULL && !(rows == 2 * REDUCED && REDUCED < FULL)) {
        multiply_registers<T, FULL, VECTORS>(a, b, c, c_row, inner, add);
        rows -= FULL, a.data += FULL * a.row, c += FULL * c_row;
    }
    if (rows == 2 * REDUCED && REDUCED < FULL) {
        multiply_registers<T, REDUCED, VECTORS>(a, b, c, c_row, inner, add);
        rows -= REDUCED, a.data += REDUCED * a.row, c += REDUCED * c_row;
    }
    if (rows > 0) multiply_rest<T, VECTORS, FULL - 1>(a, b, c, c_row, rows, inner, add);
}

// C (rows x columns) = A (rows x inner) B (inner x columns), added to C where `add`. A may have any strides. Rows of B and C are
// contiguous and are read and written in whole vectors: both need memory for columns up to the next multiple of WIDTH<T>.
template <class T>
static void multiply(const T* a, Index a_row, Index a_column, const T* b, Index b_row, T* c, Index c_row, int rows, int inner,
                     int columns, bool add) {
    constexpr int W = WIDTH<T>;
    int first = 0;
    do {
        int terms = min_of(inner - first, TERMS);
        Left<T> left{a + first * a_column, a_row, a_column};
        const T* right = b + first * b_row;
        int j = 0;
        for (; WIDEST == 4 && j + 3 * W < columns; j += 4 * W)
            multiply_panel<T, 4>(left, {right + j, b_row}, c + j, c_row, rows, terms, add);
        for (; j + W < columns; j += 2 * W) multiply_panel<T, 2>(left, {right + j, b_row}, c + j, c_row, rows, terms, add);
        if (j < columns) multiply_panel<T, 1>(left, {right + j, b_row}, c + j, c_row, rows, terms, add);
        first += terms, add = true;
    } while (first < inner);
}

}  // namespace overt::OVERT_LEVEL
