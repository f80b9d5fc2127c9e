#include "attention/programs/simple_gradients.hpp"

#include "attention/programs/functions.hpp"
#include "simd/multiply.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// a g'(x), and the weight's part: a g(x).
template <class T, Shape SHAPE>
OVERT_INLINE Vector<T> with_slope(Vector<T> a, Vector<T> x, Vector<T> bound) {
    if (SHAPE == Shape::absolute) {
        Bits<T> sign = (Bits<T>)x & (Bits<T>)broadcast(T(-0.0));
        return x == T(0) ? Vector<T>{} : (Vector<T>)((Bits<T>)a ^ sign);
    }
    if (SHAPE == Shape::square) return (x + x) * a;
    if (SHAPE == Shape::bounded) return x > bound ? a : Vector<T>{};
    return a;
}

template <class T, Shape SHAPE>
OVERT_INLINE Vector<T> shaped(Vector<T> x, Vector<T> bound) {
    if (SHAPE == Shape::absolute) return absolute_value<T>(x);
    if (SHAPE == Shape::square) return x * x;
    if (SHAPE == Shape::bounded) return lane_max(bound, x);
    return x;
}

// KEYS_AT_ONCE keys and VECTORS vectors of queries: the gradients of their sums stay in registers.
template <class T, int KEYS_AT_ONCE, int VECTORS, Meeting MEETING, Shape SHAPE, bool WEIGHTED>
void distribute(const GradientOperands<T>& of, int c, int lane) {
    using V = Vector<T>;
    constexpr int W = WIDTH<T>;
    V gradient[KEYS_AT_ONCE][VECTORS], bound = broadcast(of.bound);
    for (int k = 0; k < KEYS_AT_ONCE; k++)
        for (int v = 0; v < VECTORS; v++) {
            Index at = (c + k) * QUERIES + lane + v * W;
            V now = load(of.gradient + at);
            gradient[k][v] = of.unmasked && lane + v * W < of.lanes ? (load(of.unmasked + at) == T(0) ? V{} : now) : now;
        }
    const T *queries = of.queries + lane, *keys = of.keys + c * of.key_row;
    T *d_queries = of.d_queries + lane, *d_keys = of.d_keys + c * of.d_key_row, *d_weights = of.d_weights;
    for (int d = 0; d < of.count; d++, queries += QUERIES, d_queries += QUERIES, keys++, d_keys += W, d_weights += WEIGHTED ? W : 0) {
        V weight = WEIGHTED ? broadcast(of.weights[d]) : V{}, d_weight{}, d_key[KEYS_AT_ONCE] = {};
        for (int v = 0; v < VECTORS; v++) {
            V query = load(queries + v * W), d_query{};
            for (int k = 0; k < KEYS_AT_ONCE; k++) {
                V key = broadcast(keys[k * of.key_row]), a = gradient[k][v];
                V x = MEETING == Meeting::difference ? query - key : MEETING == Meeting::sum ? query + key : query * key;
                if (WEIGHTED) d_weight = multiply_add(a, shaped<T, SHAPE>(x, bound), d_weight);
                V slope = with_slope<T, SHAPE>(a, x, bound);
                if (MEETING == Meeting::product) {
                    d_query = multiply_add(slope, key, d_query), d_key[k] = multiply_add(slope, query, d_key[k]);
                } else {
                    d_query += slope;
                    d_key[k] = MEETING == Meeting::difference ? d_key[k] - slope : d_key[k] + slope;
                }
            }
            store(d_queries + v * W, WEIGHTED ? multiply_add(d_query, weight, load(d_queries + v * W)) : load(d_queries + v * W) + d_query);
        }
        for (int k = 0; k < KEYS_AT_ONCE; k++) {
            T* to = d_keys + k * of.d_key_row;
            store(to, WEIGHTED ? multiply_add(d_key[k], weight, load(to)) : load(to) + d_key[k]);
        }
        if (WEIGHTED) store(d_weights, load(d_weights) + d_weight);
    }
}

template <class T, Meeting MEETING, Shape SHAPE, bool WEIGHTED>
void distribute_strip(const GradientOperands<T>& of) {
    constexpr int W = WIDTH<T>, VECTORS = OVERT_BYTES == 64 ? 4 : 2;
    int c = 0;
    for (; c + STRIP <= of.keys_count; c += STRIP) {
        int lane = 0;
        for (; lane + (VECTORS - 1) * W < of.lanes; lane += VECTORS * W) distribute<T, STRIP, VECTORS, MEETING, SHAPE, WEIGHTED>(of, c, lane);
        for (; lane < of.lanes; lane += W) distribute<T, STRIP, 1, MEETING, SHAPE, WEIGHTED>(of, c, lane);
    }
    for (; c < of.keys_count; c++)
        for (int lane = 0; lane < of.lanes; lane += W) distribute<T, 1, 1, MEETING, SHAPE, WEIGHTED>(of, c, lane);
}

template <class T, Meeting MEETING, Shape SHAPE>
void of_shape(const SimpleSum& simple, const GradientOperands<T>& of) {
    if (simple.weighted) return distribute_strip<T, MEETING, SHAPE, true>(of);
    distribute_strip<T, MEETING, SHAPE, false>(of);
}

template <class T, Meeting MEETING>
void of_meeting(const SimpleSum& simple, const GradientOperands<T>& of) {
    switch (simple.shape) {
        case Shape::plain: return of_shape<T, MEETING, Shape::plain>(simple, of);
        case Shape::absolute: return of_shape<T, MEETING, Shape::absolute>(simple, of);
        case Shape::square: return of_shape<T, MEETING, Shape::square>(simple, of);
        case Shape::bounded: return of_shape<T, MEETING, Shape::bounded>(simple, of);
    }
}

}  // namespace

template <class T>
void simple_gradient(const SimpleSum& simple, const GradientOperands<T>& of) {
    if (simple.meeting == Meeting::difference) return of_meeting<T, Meeting::difference>(simple, of);
    if (simple.meeting == Meeting::sum) return of_meeting<T, Meeting::sum>(simple, of);
    of_shape<T, Meeting::product, Shape::plain>(simple, of);
}

template void simple_gradient<float>(const SimpleSum&, const GradientOperands<float>&);
template void simple_gradient<double>(const SimpleSum&, const GradientOperands<double>&);

}  // namespace overt::OVERT_LEVEL
