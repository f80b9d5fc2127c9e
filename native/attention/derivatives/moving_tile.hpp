// A tile's scores and their tangents, where queries, keys and biases move in some directions. Tiles are transposed, as in
// transposed_tile.hpp, and tangents of total scores are in powers of two, like these.
#pragma once

#include "attention/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

constexpr double LN2 = 0.69314718055994530942;

// What moves: pairs' scores by queries, keys or biases, and values.
struct Moves {
    bool query, key, value, bias, scores;
    explicit Moves(const Directions& directions)
        : query(directions.query.data), key(directions.key.data), value(directions.value.data), bias(directions.bias.data),
          scores(query || key || bias) {}
};

// tangents = keys . directions of queries + directions of keys . queries, of the scaled queries of a block.
template <class T>
static void multiply_tangents(const Inputs& inputs, const Moves& moves, const Tile& at, const T* queries, const T* query_directions,
                              Left<T> keys, Left<T> key_directions, T* tangents) {
    const Index tile = QUERIES;
    int features = static_cast<int>(inputs.head_dim);
    if (moves.query)
        multiply(keys.data, keys.row, Index{1}, query_directions, tile, tangents, tile, at.keys, features, at.rows, false);
    if (moves.key)
        multiply(key_directions.data, key_directions.row, Index{1}, queries, tile, tangents, tile, at.keys, features, at.rows,
                 moves.query);
    if (!moves.query && !moves.key) each_vector<T>(at, [&](int i) { store(tangents + i, Vector<T>{}); });
}

// Products and their tangents to total scores and their tangents, in place: -inf and 0 where a pair is masked, by the mask or by a bias of
// -inf. `slopes`, where wanted, become those of the soft cap, and `curvatures` the slopes' tangents.
template <class T>
static void finish_moving_scores(const Inputs& inputs, const Units<T>& units, const Matrix& bias_directions, const Moves& moves,
                                 const Tile& at, Coverage coverage, const TransposedMask<T>& mask, const std::uint8_t* allowed,
                                 T* scores, T* tangents, T* spare, T* slopes = nullptr, T* curvatures = nullptr) {
    constexpr T NEVER = -__builtin_inf();
    if (units.cap > 0)
        each_vector<T>(at, [&](int i) {
            Vector<T> capped = hyperbolic_tangent<T>(load(scores + i)), slope = 1 - capped * capped, tangent = load(tangents + i);
            if (slopes) store(slopes + i, slope), store(curvatures + i, T(-2) * capped * slope * tangent);
            store(scores + i, capped * units.cap), store(tangents + i, slope * tangent * units.cap);
        });
    if (inputs.bias.data) add_transposed_bias(inputs.bias, at, units.unit, scores, spare);
    if (moves.bias) add_transposed_bias(bias_directions, at, units.unit, tangents, spare);
    if (coverage == Coverage::partial) mask.apply(at, allowed, scores);
    if (coverage == Coverage::partial || inputs.bias.data)
        each_vector<T>(at, [&](int i) {
            store(tangents + i, load(scores + i) == NEVER ? Vector<T>{} : load(tangents + i));
        });
}

}  // namespace overt::OVERT_LEVEL
