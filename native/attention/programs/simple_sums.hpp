// Sums and maxima over features of one simple function, g(q_d o k_d) [* w_d], with running values in registers: 4 keys by up
// to 64 queries at a time.
#pragma once

#include "attention/programs/functions.hpp"
#include "attention/programs/machine.hpp"
#include "attention/programs/simple_sum.hpp"
#include "simd/multiply.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
struct SumOperands {
    const T *queries, *keys;
    Index key_row;
    const T* weights;
    T bound;
    T* to;
    int count, lanes;
};

// A strip's keys and VECTORS vectors of queries from `lane` on.
template <class T, int VECTORS, Meeting MEETING, Shape SHAPE, bool WEIGHTED, bool LARGEST>
static inline void sum_in_registers(const SumOperands<T>& of, int lane) {
    using V = Vector<T>;
    constexpr int W = WIDTH<T>;
    V sums[STRIP][VECTORS];
    T* to = of.to + lane;
    for (int k = 0; k < STRIP; k++)
        for (int v = 0; v < VECTORS; v++) sums[k][v] = load(to + k * QUERIES + v * W);
    const T *queries = of.queries + lane, *keys = of.keys;
    V bound = broadcast(of.bound);
    for (int d = 0; d < of.count; d++, queries += QUERIES, keys++) {
        V weight = WEIGHTED ? broadcast(of.weights[d]) : V{};
        for (int k = 0; k < STRIP; k++) {
            V key = in_register<T>(broadcast(keys[k * of.key_row]));
            for (int v = 0; v < VECTORS; v++) {
                V query = load(queries + v * W);
                V x = MEETING == Meeting::difference ? query - key : MEETING == Meeting::sum ? query + key : query * key;
                if (SHAPE == Shape::absolute) x = absolute_value<T>(x);
                if (SHAPE == Shape::bounded) x = lane_max(bound, x);
                if (LARGEST) sums[k][v] = maximum_of<T>(sums[k][v], SHAPE == Shape::square ? x * x : x);
                else if (SHAPE == Shape::square) sums[k][v] = multiply_add(WEIGHTED ? x * weight : x, x, sums[k][v]);
                else sums[k][v] = WEIGHTED ? multiply_add(x, weight, sums[k][v]) : sums[k][v] + x;
            }
        }
    }
    for (int k = 0; k < STRIP; k++)
        for (int v = 0; v < VECTORS; v++) store(to + k * QUERIES + v * W, sums[k][v]);
}

template <class T, Meeting MEETING, Shape SHAPE, bool WEIGHTED, bool LARGEST>
static void sum_of_strip(const SumOperands<T>& of) {
    constexpr int W = WIDTH<T>, VECTORS = OVERT_BYTES == 64 ? 4 : 2;
    int lane = 0;
    for (; lane + (VECTORS - 1) * W < of.lanes; lane += VECTORS * W) sum_in_registers<T, VECTORS, MEETING, SHAPE, WEIGHTED, LARGEST>(of, lane);
    for (; lane < of.lanes; lane += W) sum_in_registers<T, 1, MEETING, SHAPE, WEIGHTED, LARGEST>(of, lane);
}

template <class T, Meeting MEETING, Shape SHAPE>
static void sum_of_shape(const SimpleSum& simple, const SumOperands<T>& of) {
    if (simple.largest) return sum_of_strip<T, MEETING, SHAPE, false, true>(of);
    if (simple.weighted) return sum_of_strip<T, MEETING, SHAPE, true, false>(of);
    sum_of_strip<T, MEETING, SHAPE, false, false>(of);
}

template <class T, Meeting MEETING>
static void sum_of_meeting(const SimpleSum& simple, const SumOperands<T>& of) {
    switch (simple.shape) {
        case Shape::plain: return sum_of_shape<T, MEETING, Shape::plain>(simple, of);
        case Shape::absolute: return sum_of_shape<T, MEETING, Shape::absolute>(simple, of);
        case Shape::square: return sum_of_shape<T, MEETING, Shape::square>(simple, of);
        case Shape::bounded: return sum_of_shape<T, MEETING, Shape::bounded>(simple, of);
    }
}

template <class T>
static void simple_sum(const SimpleSum& simple, const SumOperands<T>& of) {
    if (simple.meeting == Meeting::difference) return sum_of_meeting<T, Meeting::difference>(simple, of);
    if (simple.meeting == Meeting::sum) return sum_of_meeting<T, Meeting::sum>(simple, of);
    sum_of_shape<T, Meeting::product, Shape::plain>(simple, of);
}

}  // namespace overt::OVERT_LEVEL
