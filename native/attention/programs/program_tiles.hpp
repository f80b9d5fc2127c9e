// Tiles of a program's scores, for the softmax.
#pragma once

#include "attention/programs/machine.hpp"
#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

static inline int whole_vectors(int rows, int width) { return (rows + width - 1) / width * width; }

// The inputs of a call's programs, in the kernel's number type: numbers, and the constants of an entry.
template <class T>
static const T* constants_of(const Program& program, Index entry) {
    return static_cast<const T*>(program.constants.data) + (program.constants.offsets ? program.constants.offsets[entry] : 0);
}

template <class T>
static void put_numbers(const Program& program, T* to) {
    for (size_t i = 0; i < program.numbers.size(); i++) to[i] = static_cast<T>(program.numbers[i]);
}

// A tile of each of a program's products.
template <class T>
static void multiply_products(const Program& program, const T* keys, Index key_row, const T* queries, const Tile& at, T* products) {
    for (const ProductOfColumns& product : program.products) {
        multiply(keys + product.second, key_row, Index{1}, queries + product.first * QUERIES, Index{QUERIES}, products, Index{QUERIES},
                 at.keys, product.size, at.rows, false);
        products += TRANSPOSED_TILE;
    }
}

// work(first, count, lanes) for each strip of a tile's keys.
template <class T, class Work>
static void each_strip(const Tile& at, Work work) {
    int lanes = whole_vectors(at.rows, WIDTH<T>);
    for (int first = 0; first < at.keys; first += STRIP) work(first, min_of(STRIP, at.keys - first), lanes);
}

// A tile of a pass's values times `unit`.
template <class T>
static void run_tile(Machine<T>& machine, const Pass& pass, const Sources<T>& from, const Tile& at, T unit, T* out) {
    each_strip<T>(at, [&](int first, int keys, int lanes) {
        const T* value = machine.run(pass, from, first, keys, lanes);
        for (int c = 0; c < keys; c++)
            for (int lane = 0; lane < lanes; lane += WIDTH<T>)
                store(out + (first + c) * QUERIES + lane, load(value + c * QUERIES + lane) * unit);
    });
}

template <class T>
class ProgramScores {
    const Inputs& inputs;
    const Program& program;
    T *queries, *products, *numbers, *memory;
    Machine<T> machine;

   public:
    static Index size(const Inputs& inputs, const Score& score) {
        const Program& program = *score.program;
        return (QUERIES + KEYS) * max_of<Index>(inputs.head_dim, program.key_columns) +
               static_cast<Index>(program.products.size()) * TRANSPOSED_TILE + padded<T>(static_cast<Index>(program.numbers.size())) +
               Machine<T>::size(program);
    }
    ProgramScores(const Inputs& inputs, const Score& score, T* start)
        : inputs(inputs), program(*score.program), queries(start),
          products(queries + (QUERIES + KEYS) * max_of<Index>(inputs.head_dim, program.key_columns)),
          numbers(products + static_cast<Index>(program.products.size()) * TRANSPOSED_TILE), memory(nullptr),
          machine(program, numbers + padded<T>(static_cast<Index>(program.numbers.size()))) {
        put_numbers(program, numbers);
    }

    void begin(const Tile& block, const Units<T>&) {
        transpose_rows(inputs.query, block, inputs.head_dim, T(1), queries, queries + QUERIES * inputs.head_dim);
    }

    // For a program with tangents, `values` are its tangents, and its scores are stored before multiplication by their unit.
    void tile(const Tile& at, int skipped, const Units<T>& units, T* values, T* scores = nullptr) {
        const T* keys = static_cast<const T*>(inputs.key.data) + inputs.key.offsets[at.entry] + at.key * inputs.key.row;
        multiply_products(program, keys, inputs.key.row, queries + skipped, at, products);
        Sources<T> from{queries + skipped, keys,    constants_of<T>(program, at.entry), numbers, inputs.key.row, products, nullptr, nullptr,
                        nullptr,           nullptr, nullptr,                            nullptr, scores};
        run_tile(machine, program.forward, from, at, units.unit, values);
    }
};

}  // namespace overt::OVERT_LEVEL
