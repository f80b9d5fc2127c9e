// The output of values that are a few numbers each: sums with lanes along the keys, as wide as the vectors, where rows of values would
// leave most lanes empty.
#pragma once

#include "attention/tiles/softmax.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
struct NarrowValues {
    static constexpr Index WIDEST = 4;
    static constexpr int W = WIDTH<T>;

    const Inputs& inputs;
    Index padded_keys;
    T* columns;  // each feature of the values of all keys of an entry, padded to whole tiles

    static bool serves(const Inputs& inputs, const Summary& to) { return to.output && inputs.value_dim <= WIDEST; }
    static Index padded_count(const Inputs& inputs) { return (inputs.keys + KEYS - 1) / KEYS * KEYS; }
    static Index size(const Inputs& inputs, const Summary& to) {
        return serves(inputs, to) ? inputs.value_dim * padded_count(inputs) : 0;
    }

    NarrowValues(const Inputs& inputs, const Summary& to, Index entry, T* memory)
        : inputs(inputs), padded_keys(padded_count(inputs)), columns(memory) {
        if (!serves(inputs, to)) return;
        clear(columns, inputs.value_dim * padded_keys);
        T row[WIDEST];
        for (Index j = 0; j < inputs.keys; j++) {
            read_row(inputs.value, entry, j, inputs.value_dim, row);
            for (Index e = 0; e < inputs.value_dim; e++) columns[e * padded_keys + j] = row[e];
        }
    }

    bool finite(const Tile& at) const {
        return all_finite(columns + at.key, padded_keys, static_cast<int>(inputs.value_dim), KEYS);
    }

    // sums (rows x E vectors) += a tile's weights times its values.
    void add(const Tile& at, const T* weights, T* sums) const {
        for (int r = 0; r < at.rows; r++)
            for (Index e = 0; e < inputs.value_dim; e++) {
                const T *row = weights + r * KEYS, *column = columns + e * padded_keys + at.key;
                T* sum = sums + (r * inputs.value_dim + e) * W;
                Vector<T> first = load(sum), second{};
                for (int c = 0; c < KEYS; c += 2 * W) {
                    first = multiply_add(load(row + c), load(column + c), first);
                    second = multiply_add(load(row + c + W), load(column + c + W), second);
                }
                store(sum, first + second);
            }
    }

    // The same pair by pair, of those that are allowed.
    void add_pairs(const Tile& at, const T* weights, const std::uint8_t* allowed, T* sums) const {
        for (int r = 0; r < at.rows; r++)
            for (Index e = 0; e < inputs.value_dim; e++)
                for (int c = 0; c < at.keys; c++)
                    if (allowed[r * KEYS + c])
                        sums[(r * inputs.value_dim + e) * W] += weights[r * KEYS + c] * columns[e * padded_keys + at.key + c];
    }
};

}  // namespace overt::OVERT_LEVEL
