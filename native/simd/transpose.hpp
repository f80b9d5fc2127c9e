// Transposition of a matrix, in squares of vectors.
#pragma once

#include <utility>

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Lanes FROM to FROM + N / 2 of two vectors of N lanes, interleaved.
template <class T, int FROM, std::size_t... I>
static inline Vector<T> alternated(Vector<T> a, Vector<T> b, std::index_sequence<I...>) {
    constexpr std::size_t N = sizeof...(I);
#if defined(__clang__)
    return __builtin_shufflevector(a, b, static_cast<int>(FROM + I / 2 + I % 2 * N)...);
#else
    return __builtin_shuffle(a, b, Whole<T>{static_cast<typename Lanes<T>::Number>(FROM + I / 2 + I % 2 * N)...});
#endif
}

template <class T>
static inline Vector<T> load_some(const T* from, Index count) {
    if (count >= WIDTH<T>) return load(from);
    Vector<T> result{};
    for (Index i = 0; i < count; i++) result[i] = from[i];
    return result;
}

// to[c * to_row + r] = times * from[r * from_row + c] for all rows r and columns c. Zeros fill each output row up to the next multiple
// of WIDTH<T>. One square of vectors at a time: interleaving its two halves log2(W) times transposes it.
template <class T>
static void transpose(const T* from, Index from_row, int rows, Index columns, T* to, Index to_row, T times = 1) {
    constexpr int W = WIDTH<T>;
    constexpr auto LANES = std::make_index_sequence<W>();
    for (int r = 0; r < rows; r += W)
        for (Index c = 0; c < columns; c += W) {
            Vector<T> now[W], next[W];
#pragma GCC unroll 16
            for (int i = 0; i < W; i++)
                now[i] = r + i < rows ? load_some(from + (r + i) * from_row + c, columns - c) : Vector<T>{};
#pragma GCC unroll 4
            for (int bit = 1; bit < W; bit *= 2) {
#pragma GCC unroll 8
                for (int i = 0; i < W; i += 2) {
                    next[i] = alternated<T, 0>(now[i / 2], now[i / 2 + W / 2], LANES);
                    next[i + 1] = alternated<T, W / 2>(now[i / 2], now[i / 2 + W / 2], LANES);
                }
#pragma GCC unroll 16
                for (int i = 0; i < W; i++) now[i] = next[i];
            }
#pragma GCC unroll 16
            for (int i = 0; i < W; i++)
                if (c + i < columns) store(to + (c + i) * to_row + r, now[i] * times);
        }
}

}  // namespace overt::OVERT_LEVEL
