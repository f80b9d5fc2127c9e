// The gradient of a simple sum over features, in one loop: of queries, keys and weights at once.
#pragma once

#include "attention/programs/machine.hpp"
#include "attention/programs/simple_sum.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
struct GradientOperands {
    const T *queries, *keys, *weights, *gradient, *unmasked;  // gradient and unmasked: rows of QUERIES for each key; nullptr: all count
    Index key_row;
    T bound;
    T *d_queries, *d_keys, *d_weights;  // rows of QUERIES; a vector for each column, of a key `d_key_row` numbers; a vector each
    Index d_key_row;
    int count, keys_count, lanes;
};

template <class T>
void simple_gradient(const SimpleSum& simple, const GradientOperands<T>& of);

}  // namespace overt::OVERT_LEVEL
