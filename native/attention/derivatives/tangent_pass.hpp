// Attention in forward mode: the online softmax also sums the tangent. With weights w, dropout factors r, total scores t,
// values v and their tangents (primed), m = sum_j w_j t'_j (including a sink's) and output o:
//
//     o' = sum_j r_j w_j (t'_j - m) v_j + sum_j r_j w_j v'_j = sum_j r_j w_j (t'_j v_j + v'_j) - m o
#pragma once

#include "attention/derivatives/moving_tile.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// `Scores` has
//   size(inputs, score)                  the amount of numbers in its memory
//   begin(block, units)                  selects a block of queries
//   tile(at, skipped, units, scores, tangents)   scores and, if not 0, their tangents, as total scores before a soft cap
template <class T, class Scores>
class TangentPass {
    const Inputs& inputs;
    Inputs moving;  // with the values' directions in place of values
    const Score& score;
    const Directions& directions;
    const Tangents& to;
    Moves moves;
    bool known;  // whether output and sums come from an earlier forward pass, and are only read
    Team team;
    Index blocks, padded_dim, workspace_size;
    Scratch<T> workspaces;

    // One thread's working memory. The sums of tangents are the state's accumulator and each row's mean.
    struct Workspace {
        T *source, *values, *scores, *tangents, *spare, *state, *accumulator, *mean;
        std::uint8_t* allowed;

        static Index size(const Inputs& inputs, const Score& score, Index padded_dim) {
            return padded<T>(Scores::size(inputs, score) + KEYS * padded_dim + QUERIES * padded_dim + 4 * TRANSPOSED_TILE +
                             TransposedSoftmax<T>::size(padded_dim) + QUERIES + MASK_SIZE / static_cast<Index>(sizeof(T))) + 64;
        }
        Workspace(const Inputs& inputs, const Score& score, Index padded_dim, T* memory)
            : source(memory), values(source + padded<T>(Scores::size(inputs, score))), scores(values + KEYS * padded_dim),
              tangents(scores + TRANSPOSED_TILE), spare(tangents + TRANSPOSED_TILE), state(spare + 2 * TRANSPOSED_TILE),
              accumulator(state + TransposedSoftmax<T>::size(padded_dim)), mean(accumulator + QUERIES * padded_dim),
              allowed(reinterpret_cast<std::uint8_t*>(mean + QUERIES)) {}
    };

   public:
    TangentPass(const Inputs& inputs, const Score& score, const Directions& directions, const Tangents& to, bool known)
        : inputs(inputs), moving(inputs), score(score), directions(directions), to(to), moves(score, directions), known(known),
          team(inputs, true), blocks(count(inputs.queries, QUERIES)), padded_dim(padded<T>(inputs.value_dim)),
          workspace_size(Workspace::size(inputs, score, padded_dim)), workspaces(team.threads * workspace_size) {
        moving.value = directions.value;
    }

    void run() {
        Index items = team.entries * blocks, chunk = max_of<Index>(1, min_of(blocks, items / (32 * team.threads)));
        // The last blocks come first: under a causal mask they take longest.
        auto rows_of = [&](Index item, int thread) { rows(items - 1 - item, workspaces.data + thread * workspace_size); };
        team.each(items, rows_of, chunk);
    }

   private:
    // One block of queries.
    void rows(Index item, T* memory) {
        Index entry = item / blocks, block = item % blocks;
        Workspace workspace(inputs, score, padded_dim, memory);
        Scores source(inputs, score, directions, workspace.source);
        TransposedMask<T> mask(inputs, entry, block);
        TransposedSoftmax<T> sums(workspace.state, padded_dim);
        sums.clear(mask.rows);
        if (known) read_sums(entry, mask, sums);
        clear(workspace.accumulator, QUERIES * padded_dim), clear(workspace.mean, QUERIES);
        Units<T> units(inputs, score, entry);
        Tile at{entry, mask.row, mask.low, mask.rows, 0};
        if (at.key < mask.high) source.begin(at, units);
        for (; at.key < mask.high && !interrupted(inputs); at.key += at.keys) {
            Coverage coverage = mask.next(at, mask.high, workspace.allowed);
            if (coverage != Coverage::none) tile(at, coverage, mask, units, source, sums, workspace);
        }
        finish(entry, mask, sums, workspace);
    }

    void tile(const Tile& at, Coverage coverage, const TransposedMask<T>& mask, const Units<T>& units, Scores& source,
              TransposedSoftmax<T>& sums, const Workspace& workspace) const {
        int skipped = static_cast<int>(at.row - mask.row);
        T *scores = workspace.scores, *tangents = workspace.tangents;
        source.tile(at, skipped, units, scores, tangents);
        if (moves.scores)
            finish_moving_scores(inputs, units, directions.bias, moves, at, coverage, mask, workspace.allowed, scores, tangents,
                                 workspace.spare);
        else
            finish_transposed_scores(inputs, units, at, coverage, mask, workspace.allowed, scores, workspace.spare);
        if (known)
            known_weights(at, skipped, sums, scores);
        else
            new_weights(at, skipped, sums, workspace);
        if (moves.scores) weigh_tangents(at, skipped, workspace);
        if (inputs.dropout > 0) {
            apply_dropout_transposed(inputs, at, scores);
            if (moves.scores) apply_dropout_transposed(inputs, at, tangents);
        }
        auto accumulate = [&](const T* weights, const Inputs& of, T* sum) {
            accumulate_values_transposed(weights, at, coverage, mask, workspace.allowed, Values<T>(of, at, workspace.values), padded_dim,
                                         sum + skipped * padded_dim);
        };
        if (!known) accumulate(scores, inputs, sums.accumulator);
        if (moves.scores) accumulate(tangents, inputs, workspace.accumulator);
        if (moves.value) accumulate(scores, moving, workspace.accumulator);
    }

    // Total scores become weights 2^(t - base) / total, in place.
    void known_weights(const Tile& at, int skipped, const TransposedSoftmax<T>& sums, T* scores) const {
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            Vector<T> base = load(sums.base + skipped + r), inverse_sum = load(sums.row_sum + skipped + r);
            for (int c = 0; c < at.keys; c++) {
                T* score = scores + c * QUERIES + r;
                store(score, power_of_two<T>(load(score) - base) * inverse_sum);
            }
        }
    }

    // The online softmax; the sums of tangents are rescaled with the others.
    void new_weights(const Tile& at, int skipped, TransposedSoftmax<T>& sums, const Workspace& workspace) const {
        T before[QUERIES];
        for (int r = 0; r < at.rows; r += WIDTH<T>) store(before + r, load(sums.base + skipped + r));
        online_softmax_transposed(workspace.scores, at, sums, skipped);
        for (int r = 0; r < at.rows; r += WIDTH<T>)
            rescale(skipped + r, load(before + r), load(sums.base + skipped + r), workspace);
    }

    // Rescales the sums of tangents of a vector of rows from one base to another.
    void rescale(int row, Vector<T> from, Vector<T> to_base, const Workspace& workspace) const {
        Vector<T> factor = power_of_two<T>(from - to_base);
        factor = from == to_base ? broadcast(T(1)) : factor;
        store(workspace.mean + row, load(workspace.mean + row) * factor);
        for (int r = 0; r < WIDTH<T>; r++) {
            if (factor[r] == 1) continue;
            T* sum = workspace.accumulator + (row + r) * padded_dim;
            for (Index e = 0; e < padded_dim; e += WIDTH<T>) store(sum + e, load(sum + e) * factor[r]);
        }
    }

    // Tangents of total scores are multiplied by weights, in place, and summed.
    void weigh_tangents(const Tile& at, int skipped, const Workspace& workspace) const {
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            Vector<T> mean = load(workspace.mean + skipped + r);
            for (int c = 0; c < at.keys; c++) {
                T* tangent = workspace.tangents + c * QUERIES + r;
                Vector<T> weighted = load(workspace.scores + c * QUERIES + r) * load(tangent) * T(LN2);
                mean += weighted;
                store(tangent, weighted);
            }
            store(workspace.mean + skipped + r, mean);
        }
    }

    // Bases, and inverse sums; 0 for a row without keys.
    void read_sums(Index entry, const TransposedMask<T>& mask, TransposedSoftmax<T>& sums) const {
        const T* from = static_cast<const T*>(to.sums) + 2 * entry * inputs.queries + mask.row;
        for (int r = 0; r < QUERIES; r++) {
            T total = r < mask.rows ? from[inputs.queries + r] : T(0);
            sums.base[r] = total == 0 ? T(0) : from[r], sums.row_sum[r] = total == 0 ? T(0) : 1 / total;
        }
    }

    void finish(Index entry, const TransposedMask<T>& mask, TransposedSoftmax<T>& sums, const Workspace& workspace) const {
        T sink = inputs.sink ? static_cast<T>(inputs.sink[entry] * LOG2E) : -__builtin_inf();
        T sink_direction = directions.sink && sink != -__builtin_inf() ? static_cast<T>(directions.sink[entry]) : T(0);
        if (!known && sink != -__builtin_inf()) add_sink(sink, mask.rows, sums, workspace);
        for (int r = 0; r < mask.rows; r++) {
            Index row = mask.row + r;
            T* output = result_row<T>(to.output, entry, row, inputs.queries, inputs.value_dim);
            T total = sums.row_sum[r], inverse_sum = known ? total : total == 0 ? T(0) : 1 / total, times = known ? T(1) : inverse_sum;
            if (!known) {
                save_sums(static_cast<T*>(to.sums), inputs, entry, row, sums.base[r], total);
                put_row(sums.accumulator + r * padded_dim, times, inputs.value_dim, output);
            }
            T mean = workspace.mean[r] * times;
            if (sink_direction != 0 && inverse_sum != 0)
                mean += power_of_two<T>(broadcast(sink - sums.base[r]))[0] * inverse_sum * sink_direction;
            if (to.mean) static_cast<T*>(to.mean)[entry * inputs.queries + row] = mean;
            T* tangent = result_row<T>(to.tangent, entry, row, inputs.queries, inputs.value_dim);
            for (Index e = 0; e < inputs.value_dim; e++)
                tangent[e] = workspace.accumulator[r * padded_dim + e] * times - mean * output[e];
        }
    }

    // A sink's weight is part of the row's sum and has no value.
    void add_sink(T sink, int rows, TransposedSoftmax<T>& sums, const Workspace& workspace) const {
        for (int r = 0; r < rows; r += WIDTH<T>) {
            Vector<T> before = load(sums.base + r), now = lane_max(broadcast(sink), before);
            sums.rebase(r, now);
            store(sums.row_sum + r, load(sums.row_sum + r) + power_of_two<T>(sink - now));
            rescale(r, before, now, workspace);
        }
        for (int r = 0; r < rows; r++) sums.rescale_accumulator(r);
    }
};

}  // namespace overt::OVERT_LEVEL
