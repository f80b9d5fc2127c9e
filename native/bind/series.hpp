// Array arguments of the smoothing kernels: checked here to be float64 and contiguous. Python has checked their contents.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>

#include "levels.hpp"
#include "simd/parallel.hpp"
#include "smoothing/smoothing.hpp"

namespace overt {

namespace nb = nanobind;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrices = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const Index, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Outputs = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutputMatrices = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// One matrix for each of several series, which may be parts of larger ones.
using Stack = nb::ndarray<const double, nb::ndim<3>, nb::device::cpu>;
using OutputStack = nb::ndarray<double, nb::ndim<3>, nb::device::cpu>;

inline const Smoothing& kernels() { return *current_level().smoothing; }

inline int at_least_one(int threads) { return threads > 0 ? threads : 1; }

template <class Array>
void expect(const Array& array, Index length, const char* message) {
    if (static_cast<Index>(array.shape(0)) != length) throw std::invalid_argument(message);
}

template <class Array>
void expect_stack(const Array& stack, Index series, Index rows, Index columns, const char* message) {
    bool fits = static_cast<Index>(stack.shape(0)) == series && static_cast<Index>(stack.shape(1)) == rows &&
                static_cast<Index>(stack.shape(2)) == columns;
    if (!fits) throw std::invalid_argument(message);
    bool empty = series == 0 || rows == 0 || columns == 0;  // then strides are meaningless
    if (!empty && ((columns > 1 && stack.stride(2) != 1) || (rows > 1 && stack.stride(1) != columns)))
        throw std::invalid_argument("Expected matrices that are contiguous, one for each series.");
}

inline void expect_matrix(const Matrices& matrix, Index series, Index count) {
    if (static_cast<Index>(matrix.shape(0)) != series || static_cast<Index>(matrix.shape(1)) != count)
        throw std::invalid_argument("Expected one number for each point, series by series.");
}

// The matrix of one series.
template <class Array>
auto* of_series(const Array& stack, Index series) {
    return stack.data() + series * stack.stride(0);
}

// each(series, threads): one series has all the threads, several have one each.
template <class Each>
void for_each_series(Index series, int threads, Each each) {
    nb::gil_scoped_release released;
    if (series == 1) {
        each(0, at_least_one(threads));
    } else {
        std::atomic<bool> failed = false;  // for want of memory, the only thing that kernels throw: no exception may leave a thread
        share_items(series, 1, static_cast<int>(std::min<Index>(at_least_one(threads), series)), [&](Index s, int) {
            try {
                each(s, 1);
            } catch (const std::bad_alloc&) {
                failed = true;
            }
        });
        if (failed) throw std::bad_alloc();
    }
}

}  // namespace overt
