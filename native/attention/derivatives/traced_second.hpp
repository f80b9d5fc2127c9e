// The derivative of the backward pass of attention with the scores of a program, by the formulas of dot_second.hpp: the program's backward
// pass begins with g', the gradient of a score, and with g, that of its tangent.
#pragma once

#include "attention/derivatives/moving_tile.hpp"
#include "attention/programs/traced_backward.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
class TracedSecond : public TracedBackward<T, TracedSecond<T>> {
    using Driver = TracedBackward<T, TracedSecond<T>>;
    using Driver::inputs, Driver::saved, Driver::score;
    const Directions& directions;
    const T *tangent, *mean;  // of the first pass
    Moves moves;

   public:
    TracedSecond(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Directions& directions,
                 const Gradients& to, const Tangents& first)
        : Driver(inputs, score, saved, to, directions.value), directions(directions), tangent(static_cast<const T*>(first.tangent)),
          mean(static_cast<const T*>(first.mean)), moves(score, directions) {}

    Units<T> units_of(Index entry) const { return Units<T>(inputs, score, entry); }

    void put_rows(Index entry, Index start, const WholeRows<T>& upstream, QueryBlock<T>& now) const {
        const T* sums = static_cast<const T*>(saved.sums) + 2 * entry * inputs.queries + now.mask.row;
        for (int r = 0; r < now.mask.rows; r++) {
            const T *out = static_cast<const T*>(saved.output) + (start + r) * inputs.value_dim,
                    *moving = tangent + (start + r) * inputs.value_dim, *up = upstream.data + r * upstream.row;
            T total = sums[inputs.queries + r], delta = 0, delta_tangent = 0;
            for (Index e = 0; e < inputs.value_dim; e++) delta += out[e] * up[e], delta_tangent += moving[e] * up[e];
            now.bases[r] = total == 0 ? T(0) : sums[r];
            now.inverse_sums[r] = total == 0 ? T(0) : 1 / total;
            now.deltas[r] = delta, now.delta_tangents[r] = delta_tangent, now.means[r] = mean[start + r];
        }
    }

    void finish(const Part<T>& part, bool careful, const QueryBlock<T>& query_block, const Workspace<T>& workspace) const {
        const Tile& at = part.at;
        Units<T> units = units_of(at.entry);
        each_vector<T>(at, [&](int i) { store(workspace.weights + i, load(workspace.weights + i) * units.unit); });
        finish_moving_scores(inputs, units, directions.bias, moves, at, part.coverage, query_block.mask, workspace.allowed,
                             workspace.weights, workspace.tangents, workspace.spare);
        T* tangents_of_gradients = workspace.gradients + TRANSPOSED_TILE;
        if (moves.value)
            multiply(part.value_directions.data, part.value_directions.row, Index{1}, query_block.upstream + part.skipped, Index{QUERIES},
                     tangents_of_gradients, Index{QUERIES}, at.keys, static_cast<int>(inputs.value_dim), at.rows, false);
        else
            each_vector<T>(at, [&](int i) { store(tangents_of_gradients + i, Vector<T>{}); });
        back_through_softmax(part, careful, query_block, workspace);
    }

   private:
    // Total scores and their tangents to the tangents of weights; gradients of weights and their tangents to g' and g.
    void back_through_softmax(const Part<T>& part, bool careful, const QueryBlock<T>& query_block, const Workspace<T>& workspace) const {
        const Tile& at = part.at;
        T *dropout_factors = workspace.spare, *gradients = workspace.gradients, *others = gradients + TRANSPOSED_TILE;
        each_vector<T>(at, [&](int i) { store(dropout_factors + i, broadcast(T(1))); });
        if (inputs.dropout > 0) apply_dropout_transposed(inputs, at, dropout_factors);
        T times = inputs.inverse_temperature ? static_cast<T>(inputs.inverse_temperature[at.entry]) : T(1);
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            int lane = part.skipped + r;
            Vector<T> base = load(query_block.bases + lane), inverse_sum = load(query_block.inverse_sums + lane);
            Vector<T> row_mean = load(query_block.means + lane);
            Vector<T> delta = load(query_block.deltas + lane), delta_tangent = load(query_block.delta_tangents + lane);
            for (int c = 0; c < at.keys; c++) {
                int i = c * QUERIES + r;
                Vector<T> total = load(workspace.weights + i), factor = load(dropout_factors + i);
                Vector<T> weight = power_of_two<T>(total - base) * inverse_sum;
                Vector<T> moving = weight * (load(workspace.tangents + i) * T(LN2) - row_mean);
                Vector<T> gradient = load(gradients + i) * factor - delta;
                Vector<T> of_score = times * (moving * gradient + weight * (load(others + i) * factor - delta_tangent));
                Vector<T> of_tangent = times * (gradient * weight);
                moving *= factor;
                if (careful) {
                    auto masked = total == T(-__builtin_inf());
                    moving = masked ? Vector<T>{} : moving;
                    of_score = masked ? Vector<T>{} : of_score, of_tangent = masked ? Vector<T>{} : of_tangent;
                    Driver::put_unmasked(at, r, i, total, workspace);
                }
                store(workspace.weights + i, moving), store(gradients + i, of_score), store(others + i, of_tangent);
            }
        }
    }
};

}  // namespace overt::OVERT_LEVEL
