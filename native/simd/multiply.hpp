// One dense matrix product for tiles that lie in cache: C = A B, or C += A B.
//
// A few rows and a few vectors of C stay in registers while the sum runs: each number of A is spread over a vector once and serves all
// of those vectors of B, each vector of B serves all of those rows.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Rows held at once beside so many vectors: enough sums under way to hide the latency of a multiply-add, few enough for the level's
// registers, and as square as those allow, since a square reads least.
#if OVERT_BYTES == 64 || defined(__aarch64__)
constexpr int WIDEST = 4;
constexpr int held_beside(int vectors) { return vectors == 4 ? 6 : 8; }  // of 32 registers, up to 24 hold sums
#elif OVERT_BYTES == 32
constexpr int WIDEST = 2;
constexpr int held_beside(int) { return 6; }
#else
constexpr int WIDEST = 2;
constexpr int held_beside(int) { return 4; }
#endif

// Terms summed in one go, so that two vectors of as many rows of B stay in the nearest cache beside A.
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

// Left to themselves, compilers spread a number anew for each vector that it meets, and loads, not products, take the time.
template <class T>
OVERT_INLINE Vector<T> in_register(Vector<T> v) {
#if OVERT_BYTES == 16 && defined(__SSE2__) || OVERT_BYTES == 32 && defined(__AVX2__) || OVERT_BYTES == 64 && defined(__AVX512F__)
    __asm__("" : "+v"(v));
#endif
    return v;
}

template <class T, int COUNT, int VECTORS>
static inline void multiply_held(Left<T> a, Right<T> b, T* c, Index c_row, int inner, bool add) {
    constexpr int W = WIDTH<T>;
    Vector<T> held[COUNT][VECTORS];
    for (int r = 0; r < COUNT; r++)
        for (int v = 0; v < VECTORS; v++) held[r][v] = add ? load(c + r * c_row + v * W) : Vector<T>{};
    for (int k = 0; k < inner; k++, a.data += a.column, b.data += b.row) {
        for (int r = 0; r < COUNT; r++) {
            Vector<T> left = in_register<T>(every(a.data[r * a.row]));
            for (int v = 0; v < VECTORS; v++) held[r][v] = fused(left, load(b.data + v * W), held[r][v]);
        }
    }
    for (int r = 0; r < COUNT; r++)
        for (int v = 0; v < VECTORS; v++) store(c + r * c_row + v * W, held[r][v]);
}

// The last rows, at most COUNT: as many sums under way as there are.
template <class T, int VECTORS, int COUNT>
static inline void multiply_rest(Left<T> a, Right<T> b, T* c, Index c_row, int rows, int inner, bool add) {
    if (rows == COUNT) return multiply_held<T, COUNT, VECTORS>(a, b, c, c_row, inner, add);
    if constexpr (COUNT > 1) multiply_rest<T, VECTORS, COUNT - 1>(a, b, c, c_row, rows, inner, add);
}

template <class T, int VECTORS>
static void multiply_panel(Left<T> a, Right<T> b, T* c, Index c_row, int rows, int inner, bool add) {
    // Where full groups would leave one or two rows over, two groups share evenly instead.
    constexpr int HELD = held_beside(VECTORS), LESS = HELD == 6 ? 4 : HELD;
    while (rows >= HELD && !(rows == 2 * LESS && LESS < HELD)) {
        multiply_held<T, HELD, VECTORS>(a, b, c, c_row, inner, add);
        rows -= HELD, a.data += HELD * a.row, c += HELD * c_row;
    }
    if (rows == 2 * LESS && LESS < HELD) {
        multiply_held<T, LESS, VECTORS>(a, b, c, c_row, inner, add);
        rows -= LESS, a.data += LESS * a.row, c += LESS * c_row;
    }
    if (rows > 0) multiply_rest<T, VECTORS, HELD - 1>(a, b, c, c_row, rows, inner, add);
}

// C (rows x columns) = A (rows x inner) B (inner x columns), added to what C holds where `add`. A may have any strides. Rows of B and
// of C are contiguous and are read and written in whole vectors: both need memory for columns up to the next multiple of WIDTH<T>.
template <class T>
static void multiply(const T* a, Index a_row, Index a_column, const T* b, Index b_row, T* c, Index c_row, int rows, int inner, int columns,
                     bool add) {
    constexpr int W = WIDTH<T>;
    int first = 0;
    do {
        int terms = least(inner - first, TERMS);
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
