// The same sums in O(n): time is cut into boxes, and the keys of a box act on the other boxes through their sums against Chebyshev
// polynomials.
#pragma once

#include "simd/multiply.hpp"
#include "smoothing/local/direct.hpp"

namespace overt::OVERT_LEVEL {

constexpr int BOX_TERMS = 24;
// BOX_GROUP: boxes processed together, so that matrices are read once for several.
constexpr Index BOX_GROUP = 12;

// Sums of all boxes, with empty ones on both sides, (margin + boxes + margin, BOX_TERMS) for w, w x and 1.
struct BoxSums {
    double *weights, *values, *bare;
};

// The polynomials of a group of boxes in the position within a box, by the power of u.
struct BoxPolynomials {
    double weights[BOX_GROUP * MAX_POWERS * BOX_TERMS], values[BOX_GROUP * 3 * BOX_TERMS];
    double squares[BOX_GROUP * MAX_POWERS * BOX_TERMS], bare[BOX_GROUP * BOX_TERMS];
};

static inline double box_edge(const Local& task, Index box) {
    return task.boxes.origin + static_cast<double>(box) * task.boxes.width;
}

// The index of the box's first time among ascending times.
static inline Index box_start(const Local& task, const double* times, Index count, Index box) {
    Index first = 0;
    double edge = box_edge(task, box);
    for (Index length = count; length > 0;) {
        Index half = length / 2;
        bool before = times[first + half] < edge;
        first = before ? first + half + 1 : first;
        length = before ? length - half - 1 : half;
    }
    return first;
}

static inline Many box_positions(const Local& task, Index box, Many times) {
    return (times - (box_edge(task, box) + 0.5 * task.boxes.width)) * (2 / task.boxes.width);
}

// The sums of one box; `first` and `stop` are its keys, `row` its row in the sums.
static void box_sums(const Local& task, Index box, Index first, Index stop, Index row, const BoxSums& to) {
    Many weights[BOX_TERMS] = {}, values[BOX_TERMS] = {}, bare[BOX_TERMS] = {};
    for (Index j = first; j < stop; j += WIDTH<double>) {
        Many one = local_some(nullptr, j, stop), w = task.weights ? local_some(task.weights, j, stop) : one;
        Many valued = w * local_some(task.values, j, stop);
        Many position = box_positions(task, box, local_times(task.times, j, stop)), before = position, now = broadcast(1.0);
        position += position;
        for (int k = 0; k < BOX_TERMS; k++) {
            weights[k] += w * now, values[k] += valued * now;
            if (task.weights) bare[k] += one * now;
            Many next = position * now - before;
            before = now, now = next;
        }
    }
    for (int k = 0; k < BOX_TERMS; k++) {
        to.weights[row * BOX_TERMS + k] = sum<double>(weights[k]), to.values[row * BOX_TERMS + k] = sum<double>(values[k]);
        if (task.weights) to.bare[row * BOX_TERMS + k] = sum<double>(bare[k]);
    }
}

static void box_translate(const double* sums, Index row, Index rows, const double* matrices, Index reach, int powers, int columns,
                     double* output) {
    multiply(sums + (row - reach) * BOX_TERMS, Index{BOX_TERMS}, Index{1}, matrices, Index{powers * BOX_TERMS}, output,
             Index{columns * BOX_TERMS}, static_cast<int>(rows), static_cast<int>((2 * reach + 1) * BOX_TERMS), columns * BOX_TERMS,
             false);
}

static void box_group(const Local& task, Index row, Index rows, const BoxSums& sums, BoxPolynomials* polynomials) {
    int powers = 2 * task.degree + 1;
    const Boxes& boxes = task.boxes;
    box_translate(sums.weights, row, rows, boxes.matrices, boxes.reach, powers, powers, polynomials->weights);
    if (task.raw) return;
    box_translate(sums.values, row, rows, boxes.matrices, boxes.reach, powers, task.degree + 1, polynomials->values);
    box_translate(sums.weights, row, rows, boxes.squares, boxes.squares_reach, powers, powers, polynomials->squares);
    if (task.weights) box_translate(sums.bare, row, rows, boxes.matrices, boxes.reach, powers, 1, polynomials->bare);
}

// The polynomials of one box, evaluated at targets.
template <int DEGREE, bool RAW>
static void box_read(const BoxPolynomials& polynomials, Index box, bool weighted, Many position, LocalSums* sums) {
    constexpr int POWERS = 2 * DEGREE + 1;
    const double *weights = polynomials.weights + box * POWERS * BOX_TERMS,
                 *values = polynomials.values + box * (DEGREE + 1) * BOX_TERMS;
    const double *squares = polynomials.squares + box * POWERS * BOX_TERMS, *bare = polynomials.bare + box * BOX_TERMS;
    Many w[POWERS] = {}, v[DEGREE + 1] = {}, s[POWERS] = {}, b{}, before = position, now = broadcast(1.0);
    position += position;
    for (int k = 0; k < BOX_TERMS; k++) {
        for (int p = 0; p < POWERS; p++) w[p] += weights[p * BOX_TERMS + k] * now;
        for (int p = 0; p <= DEGREE && !RAW; p++) v[p] += values[p * BOX_TERMS + k] * now;
        for (int p = 0; p < POWERS && !RAW; p++) s[p] += squares[p * BOX_TERMS + k] * now;
        if (weighted && !RAW) b += bare[k] * now;
        Many next = position * now - before;
        before = now, now = next;
    }
    for (int p = 0; p < POWERS; p++) sums->weights[p] = w[p], sums->squares[p] = s[p];
    for (int p = 0; p <= DEGREE; p++) sums->values[p] = v[p];
    sums->bare = weighted ? b : w[0];
}

static void box_read(const Local& task, const BoxPolynomials& polynomials, Index box, Many position, LocalSums* sums) {
    bool weighted = task.weights != nullptr;
    switch (2 * task.degree + (task.raw ? 1 : 0)) {
        case 0: return box_read<0, false>(polynomials, box, weighted, position, sums);
        case 1: return box_read<0, true>(polynomials, box, weighted, position, sums);
        case 2: return box_read<1, false>(polynomials, box, weighted, position, sums);
        case 3: return box_read<1, true>(polynomials, box, weighted, position, sums);
        case 4: return box_read<2, false>(polynomials, box, weighted, position, sums);
        default: return box_read<2, true>(polynomials, box, weighted, position, sums);
    }
}

// The smallest accurate sum of weights: 1e-4 of an upper bound of the weights near the box; below, the box's rounding errors are too large.
static double box_threshold(const Local& task, Index row, const BoxSums& sums) {
    double bound = 0;
    for (Index away = -task.boxes.reach; away <= task.boxes.reach; away++)
        bound += sums.weights[(row + away) * BOX_TERMS] * task.boxes.largest[away + task.boxes.reach];
    return 1e-4 * bound;
}

}  // namespace overt::OVERT_LEVEL
