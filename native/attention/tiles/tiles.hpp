// From scores to total scores, one tile at a time: inverse_temperature * (score + bias), and -inf where a pair is masked.
#pragma once

#include "attention/masks/mask.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// The position of a tile: rows `row` to `row + rows` and keys `key` to `key + keys` of an entry.
struct Tile {
    Index entry, row, key;
    int rows, keys;
};

static inline Coverage coverage_of(const Inputs& inputs, const Tile& at, std::uint8_t* allowed) {
    return mask_tile(inputs.mask, at.entry, at.row, at.rows, at.key, at.keys, ROW_MAJOR, allowed);
}

template <class T, class From, T (*CONVERT)(From)>
static void add_bias_row(const Matrix& bias, Index start, int keys, T* scores) {
    const From* from = static_cast<const From*>(bias.data) + start;
    for (int c = 0; c < keys; c++) scores[c] += CONVERT(from[c * bias.column]);
}

template <class T, class From>
static inline T converted(From number) {
    return static_cast<T>(number);
}
template <class T>
static inline T from_float16(std::uint16_t half) {
    return float16_to_float(half);
}
template <class T>
static inline T from_bfloat16(std::uint16_t half) {
    return bfloat16_to_float(half);
}

template <class T>
static void add_bias(const Matrix& bias, const Tile& at, T* scores) {
    for (int r = 0; r < at.rows; r++, scores += KEYS) {
        Index start = bias.offsets[at.entry] + (at.row + r) * bias.row + at.key * bias.column;
        switch (bias.kind) {
            case Kind::float32: add_bias_row<T, float, converted<T, float>>(bias, start, at.keys, scores); break;
            case Kind::float64: add_bias_row<T, double, converted<T, double>>(bias, start, at.keys, scores); break;
            case Kind::float16: add_bias_row<T, std::uint16_t, from_float16<T>>(bias, start, at.keys, scores); break;
            default: add_bias_row<T, std::uint16_t, from_bfloat16<T>>(bias, start, at.keys, scores);
        }
    }
}

// A page has no biases of lines, and is small.
#ifdef OVERT_SMALL
constexpr bool LINE_BIASES = false;
#else
constexpr bool LINE_BIASES = true;
#endif

// unit * (r_i + k_j) of a tile's biases of queries and of keys, which may be large where their sum is not: both are taken relative to one
// query's in float64, and pair by pair where those of the tile's queries differ much.
template <class T>
class LineTerms {
    const double *of_lines = nullptr, *of_lanes = nullptr;
    Index line_step = 0, lane_step = 0, row = -1;
    int rows = 0, line_count = 0, lane_count = 0;
    double unit = 1, anchor = 0;  // subtracted from lanes, added to lines
    bool queries_near = false;

   public:
    static constexpr T LEAST = sizeof(T) == 4 ? -100 : -900;
    bool near = false;  // whether lanes and lines hold the terms: lanes[i] + lines[line]
    T lanes[QUERIES > KEYS ? QUERIES : KEYS] = {}, lines[QUERIES > KEYS ? QUERIES : KEYS];

    // Of the next tile of the same entry. Where queries are lanes, theirs are known from the tile before if it had the same ones.
    void begin(const Inputs& inputs, const Tile& at, Layout layout, double factor) {
        const Matrix &of_queries = inputs.bias_of_queries, &of_keys = inputs.bias_of_keys;
        const double* queries = static_cast<const double*>(of_queries.data) + of_queries.offsets[at.entry] + at.row * of_queries.row;
        const double* keys = static_cast<const double*>(of_keys.data) + of_keys.offsets[at.entry] + at.key * of_keys.row;
        const bool transposed = layout.key != 1, known = row == at.row && rows == at.rows;
        of_lines = transposed ? keys : queries, line_step = transposed ? of_keys.row : of_queries.row;
        of_lanes = transposed ? queries : keys, lane_step = transposed ? of_queries.row : of_keys.row;
        line_count = transposed ? at.keys : at.rows, lane_count = transposed ? at.rows : at.keys;
        unit = factor, anchor = transposed ? queries[0] : -queries[0];
        if (!known) read_queries(at, queries, of_queries.row);
        for (int i = 0; queries_near && !(transposed && known) && i < lane_count; i++)
            lanes[i] = static_cast<T>(unit * (of_lanes[i * lane_step] - anchor));
        T rest = 0;
        for (int line = 0; queries_near && line < line_count; line++) {
            lines[line] = static_cast<T>(unit * (of_lines[line * line_step] + anchor));
            rest += lines[line] * T(0);
        }
        near = queries_near && rest == 0;  // an infinite one is added before masks are applied
    }

    Vector<T> lane(int i) const { return load(lanes + i); }
    static Vector<T> total(Vector<T> score, Vector<T> of_lane, T of_line) { return score + (of_lane + of_line); }

    // Adds them to scores.
    void add(int stride, T* scores) const {
        for (int line = 0; line < line_count; line++, scores += stride)
            if (near)
                for (int i = 0; i < lane_count; i += WIDTH<T>) store(scores + i, total(load(scores + i), lane(i), lines[line]));
            else
                for (int i = 0; i < lane_count; i++)
                    scores[i] += static_cast<T>(unit * (of_lanes[i * lane_step] + of_lines[line * line_step]));
    }

   private:
    void read_queries(const Tile& at, const double* queries, Index step) {
        constexpr double NEAR = 16;
        double least = queries[0], largest = queries[0];
        for (int r = 1; r < at.rows; r++) least = min_of(least, queries[r * step]), largest = max_of(largest, queries[r * step]);
        queries_near = largest - least <= NEAR, row = at.row, rows = at.rows;
    }
};

template <class T>
static void add_bias_of_lines(const Inputs& inputs, const Tile& at, Layout layout, double unit, T* scores) {
    LineTerms<T> terms;
    terms.begin(inputs, at, layout, unit);
    terms.add(layout.key != 1 ? layout.key : layout.row, scores);
}

// Scores (rows of KEYS) to total scores, in place. Columns beyond the tile's last key become -inf, like masked pairs.
template <class T>
static void finish_scores(const Inputs& inputs, const Tile& at, Coverage coverage, const std::uint8_t* allowed, T* scores) {
    constexpr T NEVER = -__builtin_inf();
    if (inputs.bias.data) add_bias(inputs.bias, at, scores);
    if (LINE_BIASES && inputs.bias_of_keys.data) add_bias_of_lines(inputs, at, ROW_MAJOR, 1, scores);
    T inverse_temperature = inputs.inverse_temperature ? static_cast<T>(inputs.inverse_temperature[at.entry]) : T(1);
    for (int r = 0; r < at.rows; r++, scores += KEYS, allowed += KEYS) {
        if (inverse_temperature != T(1))
            for (int c = 0; c < at.keys; c++) scores[c] *= inverse_temperature;
        if (coverage == Coverage::partial)
            for (int c = 0; c < at.keys; c++) scores[c] = allowed[c] ? scores[c] : NEVER;
        for (int c = at.keys; c < KEYS; c++) scores[c] = NEVER;
    }
}

// Whether all of these numbers are finite: x * 0 is 0 for a finite x, and NaN otherwise.
template <class T>
static bool all_finite(const T* numbers, Index row, int rows, Index count) {
    Vector<T> zeros{};
    T rest = 0;
    for (int r = 0; r < rows; r++, numbers += row) {
        Index i = 0;
        for (; i + WIDTH<T> <= count; i += WIDTH<T>) zeros = multiply_add(load(numbers + i), Vector<T>{}, zeros);
        for (; i < count; i++) rest += numbers[i] * T(0);
    }
    return sum<T>(zeros) + rest == 0;
}

}  // namespace overt::OVERT_LEVEL
