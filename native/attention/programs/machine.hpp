// Runs a program for strips of pairs: 64 queries, as lanes, and a few keys. Each instruction processes a whole strip, which stays in
// the nearest cache; stages that only sum one simple function of each feature run as loops with sums in registers.
#pragma once

#include "attention/programs/program.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr int STRIP = 4;  // keys of a strip

// Inputs and outputs of the programs of one call. `queries` are a block's, transposed; strides of keys count numbers.
template <class T>
struct Sources {
    const T *queries, *keys, *constants, *numbers;
    Index key_row;
    const T *products, *gradients;      // tiles, keys by QUERIES, after each other
    T *d_queries, *d_constants;         // (columns, QUERIES); (constants, a vector): summed over lanes at the end
    T *d_keys, *d_products;             // (STRIP, columns, a vector); tiles
    const T* unmasked;                  // a tile, 0 for excluded pairs; nullptr: none excluded
    T* scores = nullptr;                // a tile, for a program with tangents
};

template <class T>
class Machine {
    const Program& program;
    T *value, *temporaries;

   public:
    static Index size(const Program& program) {
        return (1 + max_of(program.forward.temporaries, program.backward.temporaries)) * STRIP * QUERIES;
    }
    Machine(const Program& program, T* memory) : program(program), value(memory), temporaries(memory + STRIP * QUERIES) {}

    // Runs a pass for keys `first` to `first + keys` of a tile and lanes 0 to `lanes`, whole vectors; returns the value, (keys, QUERIES).
    const T* run(const Pass& pass, const Sources<T>& from, int first, int keys, int lanes);
};

}  // namespace overt::OVERT_LEVEL
