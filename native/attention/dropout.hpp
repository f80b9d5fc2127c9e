// Which weights dropout keeps. A hash of the seed and the position decides, so that forward and backward pass agree and nothing is stored.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

static inline std::uint64_t hash_mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// The hash: what all weights share, and the key of each row.
struct DropoutHash {
    std::uint32_t threshold;
    double scale;

    explicit DropoutHash(const Inputs& inputs) {
        double limit = inputs.dropout * 4294967296.0;
        threshold = limit >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(limit);
        scale = inputs.dropout < 1 ? 1 / (1 - inputs.dropout) : 0;
    }

    // hash_mix(0) is 0, so a constant is added to the seed.
    static std::uint64_t of_row(const Inputs& inputs, Index entry, Index row) {
        return hash_mix(hash_mix(inputs.seed + 0x9e3779b97f4a7c15u) + static_cast<std::uint64_t>(entry * inputs.queries + row));
    }

    bool keeps(std::uint32_t key, std::uint32_t first, std::uint32_t second) const {
        std::uint32_t x = key * 0x9e3779b1u + first;
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = ((x ^ (x >> 15)) + second) * 0x846ca68bu;
        x ^= x >> 16;
        return x >= threshold;
    }
};

// Multiplies the weights of one row, keys `key` to `key + count`, by 1 / (1 - p) if they are kept, else by 0.
template <class T>
static void apply_dropout(const Inputs& inputs, Index entry, Index row, Index key, int count, T* weights) {
    DropoutHash hash(inputs);
    std::uint64_t row_key = DropoutHash::of_row(inputs, entry, row);
    std::uint32_t first = static_cast<std::uint32_t>(row_key), second = static_cast<std::uint32_t>(row_key >> 32);
    T scale = static_cast<T>(hash.scale);
    for (int c = 0; c < count; c++) weights[c] *= hash.keeps(static_cast<std::uint32_t>(key + c), first, second) ? scale : T(0);
}

}  // namespace overt::OVERT_LEVEL
