// Loops with sums in registers from the start: gcc clears and stores an array in memory if it unrolls a loop over it too late.
#pragma once

#include <utility>

#include "simd/vectors.hpp"

// Of the lambda expressions that are such a loop's work.
#define OVERT_UNROLLED __attribute__((always_inline))

namespace overt::OVERT_LEVEL {

template <std::size_t N>
struct Constant {
    constexpr operator int() const { return static_cast<int>(N); }
};

template <std::size_t... I, class Work>
OVERT_INLINE void unrolled_of(std::index_sequence<I...>, Work work) {
    (work(Constant<I>()), ...);
}

// work(0) to work(N - 1), of constants.
template <int N, class Work>
OVERT_INLINE void unrolled(Work work) {
    unrolled_of(std::make_index_sequence<N>(), work);
}

// The same of two loops: work(row, column).
template <int ROW_COUNT, int COLUMN_COUNT, class Work>
OVERT_INLINE void unrolled(Work work) {
    unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED { unrolled<COLUMN_COUNT>([&](auto c) OVERT_UNROLLED { work(r, c); }); });
}

}  // namespace overt::OVERT_LEVEL
