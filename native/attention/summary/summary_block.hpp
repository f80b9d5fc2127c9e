// A block of queries. A first pass over its keys computes the base of each row's weights, a second adds the weights by key.
//
// Between the passes the exponentials of up to SAVED_STRIPES stripes stay in memory, which is linear in the keys; further scores are
// recomputed.
#pragma once

#include "attention/summary/key_sets.hpp"
#include "attention/summary/narrow_values.hpp"
#include "attention/summary/summary_map.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// SAVED_STRIPES: stripes in memory; two megabytes of float.
constexpr Index SAVED_STRIPES = 32;

// The sums over consecutive blocks of rows: one part of an entry.
template <class T>
struct Part {
    Index first, stop;  // its rows
    T* received;
    MapRow<T> entered;  // the first row of cells, where the previous part began it
    Index alive = 0;    // queries that may attend to anything
};

// One thread's working memory.
template <class T>
struct SummaryWorkspace {
    Index stripes, padded_dim, output_row;
    T *queries, *tiles;             // packed queries; the tiles of all stripes
    T *recomputed, *masked;         // a tile that was not saved; one that is scored again for its mask
    T *values, *output;             // a tile of values; the block's output
    T *bases, *best, *keys_memory;  // each stripe's base of exponentials; the rows' largest scores
    T* masses;                      // of the sets of keys

    static Index stripes_of(const Inputs& inputs) { return min_of(count(inputs.keys, KEYS * STRIPE), SAVED_STRIPES + 1); }

    static Index row_of_output(const Inputs& inputs, const Summary& to) {
        return NarrowValues<T>::serves(inputs, to) ? inputs.value_dim * WIDTH<T> : to.output ? padded<T>(inputs.value_dim) : 0;
    }

    static Index size(const Inputs& inputs, const Summary& to, Index query_size) {
        Index stripes = stripes_of(inputs), padded_dim = to.output ? padded<T>(inputs.value_dim) : 0;
        Index keys_size = stripes * STRIPE * static_cast<Index>(sizeof(Index) / sizeof(T));
        return padded<T>(query_size) + stripes * (STRIPE * TILE + ROWS) + 2 * TILE + KEYS * padded_dim + ROWS * row_of_output(inputs, to) +
               ROWS * TopScores<T>::memory(to.top) + padded<T>(keys_size) + Masses<T>::memory(to.set_count);
    }

    SummaryWorkspace(const Inputs& inputs, const Summary& to, Index query_size, T* memory)
        : stripes(stripes_of(inputs)), padded_dim(to.output ? padded<T>(inputs.value_dim) : 0),
          output_row(row_of_output(inputs, to)), queries(memory),
          tiles(queries + padded<T>(query_size)), recomputed(tiles + stripes * STRIPE * TILE), masked(recomputed + TILE),
          values(masked + TILE), output(values + KEYS * padded_dim), bases(output + ROWS * output_row),
          best(bases + stripes * ROWS), keys_memory(best + ROWS * TopScores<T>::memory(to.top)),
          masses(keys_memory + padded<T>(stripes * STRIPE * static_cast<Index>(sizeof(Index) / sizeof(T)))) {}

    T* tile(Index slot) { return tiles + slot * TILE; }
    Index* keys() { return reinterpret_cast<Index*>(keys_memory); }  // where the tile of each slot begins
};

template <class T, class Scores>
class Block {
    const Inputs& inputs;
    const Summary& to;
    const Scores& scores;
    const T* packed;  // all keys of the entry
    Masses<T> masses;
    const NarrowValues<T>& narrow;
    SummaryWorkspace<T>& workspace;
    Part<T>& part;
    const RowWeights<T>* row_weights;  // nullptr under a softmax
    Tile at;
    Index tile = 0, stop = 0;     // the next tile, and the one after the last
    Index saved = 0, resume = 0;  // slots saved between the passes, and the tile after theirs
    bool has_nan = false;         // whether the weights of a row are NaN
    RowStatistics<T> rows;
    T inverse_sum[ROWS], factors[ROWS];  // weight = e^(t - largest) * over
    Index top_count[ROWS];               // number of top keys written so far, for a row whose weights are NaN
    std::uint8_t allowed[TILE];

   public:
    Block(const Inputs& inputs, const Summary& to, const Scores& scores, const T* packed, const KeyIds<T>& ids,
          const NarrowValues<T>& narrow, SummaryWorkspace<T>& workspace, Part<T>& part, const RowWeights<T>* row_weights, const Tile& at)
        : inputs(inputs), to(to), scores(scores), packed(packed), masses(to, ids, at, workspace.masses), narrow(narrow), workspace(workspace),
          part(part), row_weights(row_weights), at(at) {}

    void run() {
        Index low, high;
        mask_span(inputs.mask, at.entry, at.row, at.row + at.rows, inputs.keys, &low, &high);
        tile = resume = low / KEYS, stop = low < high ? count(high, KEYS) : tile;
        if (tile < stop) scores.pack_queries(at.row, at.rows, workspace.queries);
        for (int r = 0; r < at.rows; r++) begin(r);
        first_pass();
        for (int r = 0; r < at.rows; r++) row_weights ? finish_weights(r) : finish(r);
        second_pass();
        if (to.output) write_output();
        masses.write(inputs, at);
    }

   private:
    Index row_of_entry(int r) const { return at.entry * inputs.queries + at.row + r; }

    T* top_weights_of(int r) const { return static_cast<T*>(to.top_weights) + row_of_entry(r) * to.top; }
    std::int32_t* top_keys_of(int r) const { return to.top_keys + row_of_entry(r) * to.top; }

    void begin(int r) {
        rows.row_max[r] = -__builtin_inf(), rows.row_sum[r] = 0, rows.slope[r] = 0, rows.support[r] = 0, rows.any_key[r] = false;
        rows.best[r].begin(to.top, workspace.best + r * TopScores<T>::memory(to.top));
        clear(workspace.output + r * workspace.output_row, workspace.output_row);
    }

    // Total scores of a tile; false if no row attends to it.
    bool total_scores(Index which, T* tile_scores) {
        at.key = which * KEYS, at.keys = size_of(which, KEYS, inputs.keys);
        Coverage coverage = coverage_of(inputs, at, allowed);
        if (coverage == Coverage::none) return false;
        scores.scores(workspace.queries, at.rows, packed + which * scores.key_size(), at.keys, tile_scores);
        finish_scores(inputs, at, coverage, allowed, tile_scores);
        return true;
    }

    // Total scores of the next tiles that are not masked, at most a stripe of them.
    int gather(Index slot) {
        int gathered = 0;
        for (; gathered < STRIPE && tile < stop; tile++)
            if (total_scores(tile, workspace.tile(slot + gathered))) workspace.keys()[slot + gathered++] = at.key;
        return gathered;
    }

    void first_pass() {
        for (Index stripe = 0;; stripe++) {
            Index stripe_slot = min_of(stripe, workspace.stripes - 1), slot = stripe_slot * STRIPE;
            int gathered = tile < stop ? gather(slot) : 0;
            if (gathered == 0 || interrupted(inputs)) return;
            for (int r = 0; r < at.rows && row_weights; r++)
                for (int n = 0; n < gathered; n++) weigh(r, workspace.tile(slot + n), workspace.keys()[slot + n]);
            for (int r = 0; r < at.rows && !row_weights; r++)
                workspace.bases[stripe_slot * ROWS + r] =
                    rows.exponentiate_tiles(r, workspace.tile(slot) + r * KEYS, gathered, workspace.keys() + slot);
            if (stripe < SAVED_STRIPES) saved += gathered, resume = tile;
        }
    }

    void weigh(int r, T* tile_scores, Index key) {
        rows.weigh(*row_weights, at.entry, at.row + r, r, tile_scores + r * KEYS, key);
    }

    // The statistics of one row under a normalizer other than softmax. Sparse weights are divided by their sum, which is nearly 1.
    void finish_weights(int r) {
        double total = rows.row_sum[r], entropy = total == 0 ? rows.slope[r] : __builtin_log(total) - rows.slope[r] / total;
        static_cast<T*>(to.entropy)[row_of_entry(r)] = static_cast<T>(entropy < 0 ? 0 : entropy);
        bool undefined = total != total || row_weights->undefined(at.entry, at.row + r);
        to.support[row_of_entry(r)] = undefined ? -1 : rows.support[r];
        inverse_sum[r] = total != 0 && to.by.kind == Normalizer::entmax ? static_cast<T>(1 / total) : T(1);
        part.alive += rows.any_key[r];
        rows.best[r].write_weights(inverse_sum[r], top_weights_of(r), top_keys_of(r));
    }

    // The statistics of one row under a softmax.
    void finish(int r) {
        double largest = rows.row_max[r], total = rows.row_sum[r], peak = largest, sum = total, share = 1;
        if (inputs.sink && inputs.sink[at.entry] != -__builtin_inf()) {
            double sink = inputs.sink[at.entry];
            peak = max_of(sink, largest), share = __builtin_exp(largest - peak);
            sum = (total == 0 ? 0 : total * share) + __builtin_exp(sink - peak);
        }
        double log_sum_exp = sum == 0 ? -__builtin_inf() : peak == __builtin_inf() ? peak : peak + __builtin_log(sum);
        double entropy = total == 0 ? 0 : __builtin_log(total) - rows.slope[r] / total;
        static_cast<T*>(to.log_sum_exp)[row_of_entry(r)] = static_cast<T>(log_sum_exp);
        static_cast<T*>(to.entropy)[row_of_entry(r)] = static_cast<T>(entropy < 0 ? 0 : entropy);
        inverse_sum[r] = total == 0 ? T(0) : static_cast<T>(share / sum);
        part.alive += total != 0;
        has_nan |= inverse_sum[r] != inverse_sum[r];
        rows.best[r].write(rows.row_max[r], inverse_sum[r], top_weights_of(r), top_keys_of(r));
        top_count[r] = 0;
    }

    void second_pass() {
        if (has_nan) saved = 0, resume = 0;
        for (Index slot = 0; slot < saved; slot++) {
            if (slot % STRIPE == 0) compute_factors(workspace.bases + slot / STRIPE * ROWS);
            T* weights = workspace.tile(slot);
            for (int r = 0; r < at.rows; r++)
                for (int c = 0; c < KEYS; c += WIDTH<T>) store(weights + r * KEYS + c, load(weights + r * KEYS + c) * factors[r]);
            at.key = workspace.keys()[slot], at.keys = size_of(at.key / KEYS, KEYS, inputs.keys);
            add(weights);
        }
        for (tile = resume; tile < stop && !interrupted(inputs); tile++) {
            if (!total_scores(tile, workspace.recomputed)) continue;
            for (int r = 0; r < at.rows && row_weights; r++) reweigh(r, workspace.recomputed + r * KEYS);
            for (int r = 0; r < at.rows && !row_weights; r++)
                inverse_sum[r] == inverse_sum[r] ? to_weights(r, workspace.recomputed + r * KEYS)
                                                 : write_nan_row(r, workspace.recomputed + r * KEYS);
            add(workspace.recomputed);
        }
    }

    void reweigh(int r, T* scores) const {
        row_weights->weigh(at.entry, at.row + r, scores);
        for (int c = 0; c < KEYS; c += WIDTH<T>) {
            Vector<T> weight = load(scores + c);
            store(scores + c, weight == T(-__builtin_inf()) ? Vector<T>{} : weight * inverse_sum[r]);
        }
    }

    void compute_factors(const T* bases) {
        for (int r = 0; r < at.rows; r++)
            factors[r] = row_weights ? inverse_sum[r] : inverse_sum[r] == 0 ? T(0) : exponential_of(bases[r] - rows.row_max[r]) * inverse_sum[r];
    }

    void to_weights(int r, T* weights) const {
        T base = rows.row_max[r] == -__builtin_inf() ? T(0) : rows.row_max[r];
        for (int c = 0; c < KEYS; c += WIDTH<T>) store(weights + c, exponential_below<T>(load(weights + c) - base) * inverse_sum[r]);
    }

    // The row's weights are NaN on every key that it may attend to, and 0 on others. Its top keys are the first ones.
    void write_nan_row(int r, T* weights) {
        for (int c = 0; c < KEYS; c++) {
            if (weights[c] != weights[c]) static_cast<T*>(to.log_sum_exp)[row_of_entry(r)] = weights[c];
            bool masked = weights[c] == -__builtin_inf();
            weights[c] = masked ? T(0) : inverse_sum[r];
            if (masked || top_count[r] == to.top) continue;
            top_weights_of(r)[top_count[r]] = inverse_sum[r];
            top_keys_of(r)[top_count[r]++] = static_cast<std::int32_t>(at.key + c);
        }
    }

    // Adds a tile's weights to the received weight of keys, to the map and to the output.
    void add(const T* weights) {
        T total[KEYS], high[KEYS];
        const Index* edges = to.row_edges;
        for (int first = 0, next = at.rows; first < at.rows; first = next) {
            Index cell = edges ? cell_of(edges, to.row_cells, at.row + first) : 0;
            next = edges ? static_cast<int>(min_of<Index>(edges[cell + 1] - at.row, at.rows)) : at.rows;
            pool_rows(weights, first, next, total, high);
            for (int c = 0; c < at.keys; c++) part.received[at.key + c] += total[c];
            if (edges)
                pool_keys(total, high, at.key, at.keys, to.key_edges, cell_of(to.key_edges, to.key_cells, at.key), map_row(cell));
        }
        masses.add(at, weights);
        if (to.output) accumulate_output(weights);
    }

    MapRow<T> map_row(Index cell) const {
        if (to.row_edges[cell] < part.first) return part.entered;
        Index first = (at.entry * to.row_cells + cell) * to.key_cells;
        return {static_cast<T*>(to.map_mean) + first, static_cast<T*>(to.map_max) + first};
    }

    // In a tile whose values are not all finite, masked ones are skipped one by one: 0 * NaN is NaN.
    void accumulate_output(const T* weights) {
        if (NarrowValues<T>::serves(inputs, to)) {
            if (narrow.finite(at)) return narrow.add(at, weights, workspace.output);
            find_allowed();
            return narrow.add_pairs(at, weights, allowed, workspace.output);
        }
        Values<T> values(inputs, at, workspace.values);
        const bool masking = inputs.mask.count || inputs.bias.data;  // a bias of -infinity masks, too
        const bool whole = !masking || all_finite(values.data, values.row, at.keys, workspace.padded_dim);
        Coverage coverage = whole ? Coverage::full : Coverage::partial;
        if (coverage == Coverage::partial) find_allowed();
        accumulate_values(weights, at, coverage, allowed, values, workspace.padded_dim, workspace.output);
    }

    void find_allowed() {
        total_scores(at.key / KEYS, workspace.masked);
        for (int i = 0; i < at.rows * KEYS; i++) allowed[i] = workspace.masked[i] != -__builtin_inf();
    }

    void write_output() const {
        bool lanes = NarrowValues<T>::serves(inputs, to);
        for (int r = 0; r < at.rows; r++) {
            T* row = static_cast<T*>(to.output) + row_of_entry(r) * inputs.value_dim;
            const T* from = workspace.output + r * workspace.output_row;
            for (Index e = 0; e < inputs.value_dim; e++) row[e] = lanes ? sum<T>(load(from + e * WIDTH<T>)) : from[e];
        }
    }
};

}  // namespace overt::OVERT_LEVEL
