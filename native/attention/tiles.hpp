// From scores to total scores, a tile at a time: heat * (score + bias), and -inf where a mask bars a pair.
#pragma once

#include "attention/mask.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Where a tile stands: rows `row` to `row + rows`, keys `key` to `key + keys` of an entry.
struct Place {
    Index entry, row, key;
    int rows, keys;
};

static inline Seen seen_at(const Inputs& inputs, const Place& at, std::uint8_t* allowed) {
    return mask_tile(inputs.mask, at.entry, at.row, at.rows, at.key, at.keys, UPRIGHT, allowed);
}

template <class T, class From, T (*WIDEN)(From)>
static void add_bias_row(const Matrix& bias, Index start, int keys, T* scores) {
    const From* from = static_cast<const From*>(bias.data) + start;
    for (int c = 0; c < keys; c++) scores[c] += WIDEN(from[c * bias.column]);
}

template <class T, class From>
static inline T converted(From number) {
    return static_cast<T>(number);
}
template <class T>
static inline T from_half(std::uint16_t half) {
    return widened(half);
}
template <class T>
static inline T from_brain(std::uint16_t half) {
    return widened_brain(half);
}

template <class T>
static void add_bias(const Matrix& bias, const Place& at, T* scores) {
    for (int r = 0; r < at.rows; r++, scores += KEYS) {
        Index start = bias.places[at.entry] + (at.row + r) * bias.row + at.key * bias.column;
        switch (bias.kind) {
            case Kind::float32: add_bias_row<T, float, converted<T, float>>(bias, start, at.keys, scores); break;
            case Kind::float64: add_bias_row<T, double, converted<T, double>>(bias, start, at.keys, scores); break;
            case Kind::float16: add_bias_row<T, std::uint16_t, from_half<T>>(bias, start, at.keys, scores); break;
            default: add_bias_row<T, std::uint16_t, from_brain<T>>(bias, start, at.keys, scores);
        }
    }
}

// Scores (rows of KEYS) to total scores, in place. What stands beyond the tile's last key becomes -inf, as if barred.
template <class T>
static void settle(const Inputs& inputs, const Place& at, Seen seen, const std::uint8_t* allowed, T* scores) {
    constexpr T NEVER = -__builtin_inf();
    if (inputs.bias.data) add_bias(inputs.bias, at, scores);
    T heat = inputs.heat ? static_cast<T>(inputs.heat[at.entry]) : T(1);
    for (int r = 0; r < at.rows; r++, scores += KEYS, allowed += KEYS) {
        if (heat != T(1))
            for (int c = 0; c < at.keys; c++) scores[c] *= heat;
        if (seen == Seen::some)
            for (int c = 0; c < at.keys; c++) scores[c] = allowed[c] ? scores[c] : NEVER;
        for (int c = at.keys; c < KEYS; c++) scores[c] = NEVER;
    }
}

// Whether all of these numbers are finite: x * 0 is 0 where x is, and NaN elsewhere.
template <class T>
static bool all_finite(const T* numbers, Index row, int rows, Index count) {
    Vector<T> zeros{};
    T rest = 0;
    for (int r = 0; r < rows; r++, numbers += row) {
        Index i = 0;
        for (; i + WIDTH<T> <= count; i += WIDTH<T>) zeros = fused(load(numbers + i), Vector<T>{}, zeros);
        for (; i < count; i++) rest += numbers[i] * T(0);
    }
    return sum<T>(zeros) + rest == 0;
}

}  // namespace overt::OVERT_LEVEL
