// From the caller's arrays to matrices: shapes are checked, and the offset of each batch entry is computed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "bind/tensors.hpp"
#include "simd/scratch.hpp"

namespace overt {

namespace nb = nanobind;
using Array = TensorArgument<false>;
using Out = TensorArgument<true>;

template <class Any>
std::string shape_of(const Any& array) {
    std::string text = "(";
    for (size_t i = 0; i < array.ndim(); i++) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + (array.ndim() == 1 ? ",)" : ")");
}

[[noreturn]] inline void refuse(const std::string& expected, const std::string& got) {
    throw nb::value_error(("Expected " + expected + ", got " + got + ".").c_str());
}

template <class Any>
Kind kind_of(const Any& array, const char* name) {
    nb::dlpack::dtype type = array.dtype();
    using Code = nb::dlpack::dtype_code;
    auto is = [&](Code code, int bits) { return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1; };
    if (is(Code::Float, 32)) return Kind::float32;
    if (is(Code::Float, 64)) return Kind::float64;
    if (is(Code::Float, 16)) return Kind::float16;
    if (is(Code::Bfloat, 16)) return Kind::bfloat16;
    if (is(Code::Bool, 8)) return Kind::boolean;
    if (is(Code::Int, 64)) return Kind::integer;
    if (is(Code::Int, 8)) return Kind::int8;
    refuse(std::string(name) + " of dtype float64, float32, float16 or bfloat16, masks of bool or int64", "another dtype");
}

inline bool floating(Kind kind) { return kind <= Kind::bfloat16; }

// The shapes of one call. Its offsets live as long as it does.
struct Shapes {
    std::vector<Index> batch;
    Index entries = 1;
    std::deque<std::vector<Index>> offsets;
    std::deque<std::vector<double>> numbers;
    std::vector<std::pair<const char*, const char*>> written;  // begin and end of each result

    // The offsets of the entries of an array whose leading dimensions broadcast, from the right, against the batch. With `grouped`, several
    // heads share one of the array's last leading dimension.
    template <class Any>
    const Index* offsets_of(const Any& array, size_t trailing, const char* name, bool grouped = false) {
        size_t leading = array.ndim() - trailing;
        std::vector<Index> starts{0};
        if (leading > batch.size()) refuse(std::string(name) + " with no more leading dimensions than the output", shape_of(array));
        for (size_t dim = 0; dim < batch.size(); dim++) {
            bool there = dim + leading >= batch.size();
            size_t array_dim = dim + leading - batch.size();
            Index size = there ? static_cast<Index>(array.shape(array_dim)) : 1, step = there ? array.stride(array_dim) : 0;
            bool heads = grouped && array.ndim() >= 4 && dim + 1 == batch.size() && size > 0 && batch[dim] % size == 0;
            if (size != 1 && size != batch[dim] && !heads)
                refuse(std::string(name) + " with leading dimensions that broadcast to the output's", shape_of(array));
            std::vector<Index> next;
            next.reserve(starts.size() * batch[dim]);
            for (Index start : starts)
                for (Index i = 0; i < batch[dim]; i++) next.push_back(start + (size == 1 ? 0 : i / (batch[dim] / size)) * step);
            starts = std::move(next);
        }
        offsets.push_back(std::move(starts));
        return offsets.back().data();
    }

    // (..., rows, columns); a size of -1 is any size, and `flexible` lets sizes of 1 broadcast.
    template <class Any>
    Matrix matrix(const Any& array, const char* name, Index rows, Index columns, bool flexible = false, bool grouped = false) {
        if (array.ndim() < 2) refuse(std::string(name) + " with two dimensions or more", shape_of(array));
        size_t last = array.ndim() - 1;
        Index array_rows = array.shape(last - 1), array_columns = array.shape(last);
        auto fits = [&](Index size, Index expected) { return expected < 0 || size == expected || (flexible && size == 1); };
        if (!fits(array_rows, rows) || !fits(array_columns, columns))
            refuse(std::string(name) + " of shape (..., " + std::to_string(rows) + ", " + std::to_string(columns) + ")", shape_of(array));
        // An expanded array may claim any size; buffer sizes are counted in Index, and a row's columns in int.
        bool countable = flexible || (array_columns <= INT32_MAX && static_cast<double>(array_rows) * array_columns <= 0x1p50);
        if (!countable) refuse(std::string(name) + " with fewer than 2^31 columns and 2^50 numbers", shape_of(array));
        Matrix result{array.data(), kind_of(array, name), offsets_of(array, 2, name, grouped), array.stride(last - 1),
                      array.stride(last)};
        if (array_rows == 1) result.row = 0;
        if (array_columns == 1) result.column = flexible && columns != 1 ? 0 : 1;
        if (!flexible && result.column != 1 && array.size())
            refuse(std::string(name) + " contiguous along its last dimension", "another stride");
        return result;
    }

    // (..., length), one number for each row: a column with a stride.
    template <class Any>
    Matrix column(const Any& array, const char* name, Index length, Kind kind) {
        if (array.ndim() < 1) refuse(std::string(name) + " with one dimension or more", shape_of(array));
        size_t last = array.ndim() - 1;
        if (static_cast<Index>(array.shape(last)) != length)
            refuse(std::string(name) + " of shape (..., " + std::to_string(length) + ")", shape_of(array));
        if (kind_of(array, name) != kind)
            refuse(std::string(name) + (kind == Kind::integer ? " of dtype int64" : " of dtype float64"), "another dtype");
        return {array.data(), kind, offsets_of(array, 1, name), array.stride(last), array.stride(last)};
    }

    // One number for each entry, as double.
    const double* per_entry(const std::optional<Array>& array, const char* name) {
        if (!array) return nullptr;
        const Index* at = offsets_of(*array, 0, name);
        std::vector<double> values(entries);
        Kind kind = kind_of(*array, name);
        if (kind > Kind::float64) refuse(std::string(name) + " of dtype float64 or float32", "another dtype");
        for (Index b = 0; b < entries; b++)
            values[b] = kind == Kind::float64 ? static_cast<const double*>(array->data())[at[b]]
                                              : static_cast<const float*>(array->data())[at[b]];
        numbers.push_back(std::move(values));
        return numbers.back().data();
    }

    const double* same_for_entries(double number) {
        numbers.emplace_back(entries, number);
        return numbers.back().data();
    }

    // Refuses an array that is not contiguous and of this shape.
    template <class Any>
    void expect_contiguous(const Any& array, const char* name, const std::vector<Index>& trailing) const {
        std::vector<Index> shape = batch;
        shape.insert(shape.end(), trailing.begin(), trailing.end());
        bool same = array.ndim() == shape.size();
        for (size_t i = 0; same && i < shape.size(); i++) same = static_cast<Index>(array.shape(i)) == shape[i];
        if (!same) {
            std::string expected = "(";
            for (Index size : shape) expected += (expected.size() > 1 ? ", " : "") + std::to_string(size);
            refuse(std::string(name) + " of shape " + expected + ")", shape_of(array));
        }
        Index step = 1;
        for (size_t i = shape.size(); i-- > 0; step *= shape[i])
            if (shape[i] != 1 && array.stride(i) != step && array.size())
                refuse(std::string(name) + " to be contiguous", "other strides");
    }

    template <class Any>
    static void expect_dtype(const Any& array, const char* name, Kind kind) {
        if (kind_of(array, name) != kind) refuse(std::string(name) + " of the computation's dtype", "another dtype");
    }

    // A result of an earlier kernel, which this one reads.
    const void* input(const Array& array, const char* name, const std::vector<Index>& trailing, Kind kind) const {
        expect_contiguous(array, name, trailing);
        expect_dtype(array, name, kind);
        return array.data();
    }

    // Memory that a kernel writes.
    void* out(const Out& array, const char* name, const std::vector<Index>& trailing, Kind kind) {
        expect_dtype(array, name, kind);
        return contiguous_output(array, name, trailing);
    }

    void* contiguous_output(const Out& array, const char* name, const std::vector<Index>& trailing) {
        expect_contiguous(array, name, trailing);
        return distinct_memory(array, name);
    }

    // Several threads write at once: results must not overlap.
    void* distinct_memory(const Out& array, const char* name) {
        const char *begin = static_cast<const char*>(array.data()), *end = begin + array.nbytes();
        for (const auto& [first, stop] : written)
            if (begin < stop && first < end) refuse(std::string(name) + " not to overlap other results", "memory of another result");
        written.emplace_back(begin, end);
        expect_writing(array.data(), array.nbytes());
        return array.data();
    }
};

}  // namespace overt
