// Which weights dropout keeps: decided anew from the seed and the place of each, so that both passes agree and nothing is stored.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

static inline std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// What all weights share, and what those of a row do.
struct Drawing {
    std::uint32_t barred;
    double kept;

    explicit Drawing(const Inputs& inputs) {
        double limit = inputs.dropout * 4294967296.0;
        barred = limit >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(limit);
        kept = inputs.dropout < 1 ? 1 / (1 - inputs.dropout) : 0;
    }

    // 0 is what 0 is mixed to: a seed of 0 begins elsewhere.
    static std::uint64_t of_row(const Inputs& inputs, Index entry, Index row) {
        return mixed(mixed(inputs.seed + 0x9e3779b97f4a7c15u) + static_cast<std::uint64_t>(entry * inputs.queries + row));
    }

    bool keeps(std::uint32_t key, std::uint32_t first, std::uint32_t second) const {
        std::uint32_t x = key * 0x9e3779b1u + first;
        x = (x ^ (x >> 16)) * 0x7feb352du;
        x = ((x ^ (x >> 15)) + second) * 0x846ca68bu;
        x ^= x >> 16;
        return x >= barred;
    }
};

// Multiplies weights of one row, keys `key` to `key + count`, by 1 / (1 - p) where they are kept and by 0 elsewhere.
template <class T>
static void drop(const Inputs& inputs, Index entry, Index row, Index key, int count, T* weights) {
    Drawing drawing(inputs);
    std::uint64_t own = Drawing::of_row(inputs, entry, row);
    std::uint32_t first = static_cast<std::uint32_t>(own), second = static_cast<std::uint32_t>(own >> 32);
    T kept = static_cast<T>(drawing.kept);
    for (int c = 0; c < count; c++) weights[c] *= drawing.keeps(static_cast<std::uint32_t>(key + c), first, second) ? kept : T(0);
}

}  // namespace overt::OVERT_LEVEL
