// A tile's scores and their tangents, from directions of queries, keys and biases. Tiles are transposed, as in
// transposed_tile.hpp, and tangents of total scores are in powers of two, like the total scores.
#pragma once

#include "attention/programs/program_tiles.hpp"

namespace overt::OVERT_LEVEL {

constexpr double LN2 = 0.69314718055994530942;

// Which inputs have tangents: queries, keys or biases (so pairs' scores), and values. A program's queries and keys hold their directions.
struct Moves {
    bool query, key, value, bias, scores;
    Moves(const Score& score, const Directions& directions)
        : query(directions.query.data), key(directions.key.data), value(directions.value.data), bias(directions.bias.data),
          scores(query || key || bias || score.form == Form::program) {}
};

// tangents = keys . directions of queries + directions of keys . queries, with the scaled queries of a block.
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

// Products and their tangents become total scores and their tangents, in place: -inf and 0 if a pair is masked, by the mask or by a bias of
// -inf. `slopes`, if wanted, become the soft cap's slopes, and `curvatures` the slopes' tangents.
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

// For a dot product, in one thread.
template <class T>
class MovingDots {
    const Inputs& inputs;
    const Directions& directions;
    Moves moves;
    T *queries, *query_directions, *keys, *key_directions;

   public:
    static Index size(const Inputs& inputs, const Score&) { return (2 * QUERIES + 2 * KEYS) * inputs.head_dim; }
    MovingDots(const Inputs& inputs, const Score& score, const Directions& directions, T* memory)
        : inputs(inputs), directions(directions), moves(score, directions), queries(memory),
          query_directions(queries + QUERIES * inputs.head_dim), keys(query_directions + QUERIES * inputs.head_dim),
          key_directions(keys + KEYS * inputs.head_dim) {}

    void begin(const Tile& block, const Units<T>& units) {
        transpose_rows(inputs.query, block, inputs.head_dim, units.scale, queries, keys);
        if (moves.query) transpose_rows(directions.query, block, inputs.head_dim, units.scale, query_directions, keys);
    }

    void tile(const Tile& at, int skipped, const Units<T>&, T* scores, T* tangents) {
        Left<T> rows = rows_at(inputs.key, at, inputs.head_dim, keys), moving{};
        if (moves.key) moving = rows_at(directions.key, at, inputs.head_dim, key_directions);
        multiply(rows.data, rows.row, rows.column, queries + skipped, Index{QUERIES}, scores, Index{QUERIES}, at.keys,
                 static_cast<int>(inputs.head_dim), at.rows, false);
        if (moves.scores) multiply_tangents(inputs, moves, at, queries + skipped, query_directions + skipped, rows, moving, tangents);
    }
};

// For a program.
template <class T>
class MovingProgram : public ProgramScores<T> {
   public:
    MovingProgram(const Inputs& inputs, const Score& score, const Directions&, T* memory) : ProgramScores<T>(inputs, score, memory) {}
    void tile(const Tile& at, int skipped, const Units<T>& units, T* scores, T* tangents) {
        ProgramScores<T>::tile(at, skipped, units, tangents, scores);
        each_vector<T>(at, [&](int i) { store(scores + i, load(scores + i) * units.unit); });
    }
};

}  // namespace overt::OVERT_LEVEL
