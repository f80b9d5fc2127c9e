// Memory of the backward pass of a program's scores.
#pragma once

#include "attention/programs/program_tiles.hpp"

namespace overt::OVERT_LEVEL {

// How much memory the parts of a program take.
template <class T>
struct Sizes {
    Index query, key, constants, numbers, products, product_rows, value;

    Sizes(const Inputs& inputs, const Program& program)
        : query(inputs.head_dim), key(program.key_columns), constants(program.constant_count),
          numbers(padded<T>(static_cast<Index>(program.numbers.size()))), products(static_cast<Index>(program.products.size())),
          product_rows(0), value(padded<T>(inputs.value_dim)) {
        for (const ProductOfColumns& product : program.products) product_rows += padded<T>(product.size);
    }
};

// One thread's working memory: values' rows and sums for a tile of keys, those of products by themselves; for a transposed tile its weights
// (scores before), gradients and which pairs are unmasked, the products and their gradients; sums over lanes; the machine's memory. Where
// inputs move, values' directions, gradients of the score and of its tangent, and tangents.
template <class T>
struct Workspace {
    T *values, *value_directions, *d_keys, *d_product_keys, *d_values, *weights, *gradients, *tangents, *unmasked,
         *products, *d_products, *d_key_lanes, *spare, *numbers, *machine;
    std::uint8_t* allowed;

    static Index size(const Sizes<T>& sizes, const Program& program) {
        return KEYS * (padded<T>(sizes.key) + sizes.product_rows + (2 + program.moving) * sizes.value) +
               (5 + 2 * program.moving + 2 * sizes.products) * TRANSPOSED_TILE +
               STRIP * sizes.key * WIDTH<T> + sizes.numbers + Machine<T>::size(program) + MASK_SIZE / 4 + 64;
    }
    Workspace(T* memory, const Sizes<T>& sizes, const Program& program)
        : values(memory), value_directions(values + KEYS * sizes.value),
          d_keys(value_directions + program.moving * KEYS * sizes.value), d_product_keys(d_keys + KEYS * padded<T>(sizes.key)),
          d_values(d_product_keys + KEYS * sizes.product_rows),
          weights(d_values + KEYS * sizes.value), gradients(weights + TRANSPOSED_TILE), tangents(gradients + (1 + program.moving) * TRANSPOSED_TILE), unmasked(tangents + program.moving * TRANSPOSED_TILE),
          products(unmasked + TRANSPOSED_TILE), d_products(products + sizes.products * TRANSPOSED_TILE),
          d_key_lanes(d_products + sizes.products * TRANSPOSED_TILE), spare(d_key_lanes + STRIP * sizes.key * WIDTH<T>),
          numbers(spare + 2 * TRANSPOSED_TILE), machine(numbers + sizes.numbers),
          allowed(reinterpret_cast<std::uint8_t*>(machine + Machine<T>::size(program))) {}
};

// A block of queries as all threads read it: transposed queries and upstream gradients, rows of the products' queries, padded.
template <class T>
struct QueryBlock {
    TransposedMask<T> mask;
    T *queries, *upstream, *product_rows;
    const T* padded_upstream;
    Index upstream_row;
    bool finite;
    T bases[QUERIES], inverse_sums[QUERIES], deltas[QUERIES], delta_tangents[QUERIES], means[QUERIES];  // the last two where inputs move
};

}  // namespace overt::OVERT_LEVEL
