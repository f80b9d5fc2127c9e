// A block of queries: a first pass over its keys finds what each row's weights are relative to, a second adds the weights up by key.
//
// Between the passes the exponentials of as many tiles as KEPT says stay in memory, which is linear in the keys; the scores of more
// tiles than that are computed again.
#pragma once

#include "attention/summary/summary_map.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// In stripes: two megabytes of float.
constexpr Index KEPT = 32;

// The sums over the blocks of rows of one part of an entry, which follow each other.
template <class T>
struct Part {
    Index first, stop;  // its rows
    T* received;
    MapRow<T> entered;  // what belongs to the row of cells that the part before has begun
    Index alive = 0;    // queries that may attend to anything
};

// One thread's working memory.
template <class T>
struct Desk {
    Index stripes, wide;
    T *queries, *tiles;            // packed queries; the tiles of all stripes
    T *again, *barred;             // a tile that was not kept; one that is scored once more to see what is barred
    T *values, *output;            // a tile of values; the block's output
    T *bases, *best, *keys_memory;  // what each stripe's exponentials are relative to; the rows' largest scores

    static Index stripes_of(const Inputs& inputs) { return least(count(inputs.keys, KEYS * STRIPE), KEPT + 1); }

    static Index room(const Inputs& inputs, const Summary& to, Index query_room) {
        Index stripes = stripes_of(inputs), wide = to.output ? padded<T>(inputs.width) : 0;
        Index keys_room = stripes * STRIPE * static_cast<Index>(sizeof(Index) / sizeof(T));
        return padded<T>(query_room) + stripes * (STRIPE * TILE + ROWS) + 2 * TILE + (KEYS + ROWS) * wide + ROWS * Best<T>::memory(to.top) +
               padded<T>(keys_room);
    }

    Desk(const Inputs& inputs, const Summary& to, Index query_room, T* memory)
        : stripes(stripes_of(inputs)), wide(to.output ? padded<T>(inputs.width) : 0), queries(memory),
          tiles(queries + padded<T>(query_room)), again(tiles + stripes * STRIPE * TILE), barred(again + TILE), values(barred + TILE),
          output(values + KEYS * wide), bases(output + ROWS * wide), best(bases + stripes * ROWS),
          keys_memory(best + ROWS * Best<T>::memory(to.top)) {}

    T* tile(Index slot) { return tiles + slot * TILE; }
    Index* keys() { return reinterpret_cast<Index*>(keys_memory); }  // where the tile of each slot begins
};

template <class T, class Scores>
class Block {
    const Inputs& inputs;
    const Summary& to;
    const Scores& scores;
    const T* packed;  // all keys of the entry
    Desk<T>& desk;
    Part<T>& part;
    Place at;
    Index tile = 0, stop = 0;     // the next tile, and the one after the last
    Index kept = 0, resume = 0;   // slots kept between the passes, and the tile after theirs
    bool careful = false;         // whether a row has NaN for weights
    Rows<T> rows;
    T over[ROWS], factors[ROWS];  // weight = e^(t - largest) * over
    Index named[ROWS];            // how many of its top keys a row with NaN for weights has been given
    std::uint8_t allowed[TILE];

   public:
    Block(const Inputs& inputs, const Summary& to, const Scores& scores, const T* packed, Desk<T>& desk, Part<T>& part, const Place& at)
        : inputs(inputs), to(to), scores(scores), packed(packed), desk(desk), part(part), at(at) {}

    void run() {
        Index low, high;
        mask_span(inputs.mask, at.entry, at.row, at.row + at.rows, inputs.keys, &low, &high);
        tile = resume = low / KEYS, stop = low < high ? count(high, KEYS) : tile;
        if (tile < stop) scores.pack_queries(at.row, at.rows, desk.queries);
        for (int r = 0; r < at.rows; r++) begin(r);
        first_pass();
        for (int r = 0; r < at.rows; r++) finish(r);
        second_pass();
        if (to.output) write_output();
    }

   private:
    Index row_of_entry(int r) const { return at.entry * inputs.queries + at.row + r; }

    T* top_weights_of(int r) const { return static_cast<T*>(to.top_weights) + row_of_entry(r) * to.top; }
    std::int32_t* top_keys_of(int r) const { return to.top_keys + row_of_entry(r) * to.top; }

    void begin(int r) {
        rows.largest[r] = -__builtin_inf(), rows.total[r] = 0, rows.slope[r] = 0;
        rows.best[r].begin(to.top, desk.best + r * Best<T>::memory(to.top));
        for (Index e = 0; e < desk.wide; e++) desk.output[r * desk.wide + e] = 0;
    }

    // Total scores of a tile; false where nobody sees it.
    bool total_scores(Index which, T* found) {
        at.key = which * KEYS, at.keys = size_of(which, KEYS, inputs.keys);
        Seen seen = seen_at(inputs, at, allowed);
        if (seen == Seen::none) return false;
        scores.scores(desk.queries, at.rows, packed + which * scores.key_room(), at.keys, found);
        settle(inputs, at, seen, allowed, found);
        return true;
    }

    // Total scores of the next tiles that are seen, at most a stripe of them.
    int gather(Index slot) {
        int found = 0;
        for (; found < STRIPE && tile < stop; tile++)
            if (total_scores(tile, desk.tile(slot + found))) desk.keys()[slot + found++] = at.key;
        return found;
    }

    void first_pass() {
        for (Index stripe = 0;; stripe++) {
            Index place = least(stripe, desk.stripes - 1), slot = place * STRIPE;
            int found = tile < stop ? gather(slot) : 0;
            if (found == 0) return;
            for (int r = 0; r < at.rows; r++)
                desk.bases[place * ROWS + r] = rows.read(r, desk.tile(slot) + r * KEYS, found, desk.keys() + slot);
            if (stripe < KEPT) kept += found, resume = tile;
        }
    }

    // What is said of a row on its own.
    void finish(int r) {
        double largest = rows.largest[r], total = rows.total[r], peak = largest, sum = total, share = 1;
        if (inputs.sink && inputs.sink[at.entry] != -__builtin_inf()) {
            double sink = inputs.sink[at.entry];
            peak = most(sink, largest), share = __builtin_exp(largest - peak);
            sum = (total == 0 ? 0 : total * share) + __builtin_exp(sink - peak);
        }
        double lse = sum == 0 ? -__builtin_inf() : peak == __builtin_inf() ? peak : peak + __builtin_log(sum);
        double entropy = total == 0 ? 0 : __builtin_log(total) - rows.slope[r] / total;
        static_cast<T*>(to.lse)[row_of_entry(r)] = static_cast<T>(lse);
        static_cast<T*>(to.entropy)[row_of_entry(r)] = static_cast<T>(entropy < 0 ? 0 : entropy);
        over[r] = total == 0 ? T(0) : static_cast<T>(share / sum);
        part.alive += total != 0;
        careful |= over[r] != over[r];
        rows.best[r].write(rows.largest[r], over[r], top_weights_of(r), top_keys_of(r));
        named[r] = 0;
    }

    void second_pass() {
        if (careful) kept = 0, resume = 0;
        for (Index slot = 0; slot < kept; slot++) {
            if (slot % STRIPE == 0) find_factors(desk.bases + slot / STRIPE * ROWS);
            T* weights = desk.tile(slot);
            for (int r = 0; r < at.rows; r++)
                for (int c = 0; c < KEYS; c += WIDTH<T>) store(weights + r * KEYS + c, load(weights + r * KEYS + c) * factors[r]);
            at.key = desk.keys()[slot], at.keys = size_of(at.key / KEYS, KEYS, inputs.keys);
            add(weights);
        }
        for (tile = resume; tile < stop; tile++) {
            if (!total_scores(tile, desk.again)) continue;
            for (int r = 0; r < at.rows; r++) over[r] == over[r] ? weigh(r, desk.again + r * KEYS) : lose(r, desk.again + r * KEYS);
            add(desk.again);
        }
    }

    void find_factors(const T* bases) {
        for (int r = 0; r < at.rows; r++) factors[r] = over[r] == 0 ? T(0) : exponential_of(bases[r] - rows.largest[r]) * over[r];
    }

    void weigh(int r, T* weights) const {
        T base = rows.largest[r] == -__builtin_inf() ? T(0) : rows.largest[r];
        for (int c = 0; c < KEYS; c += WIDTH<T>) store(weights + c, exponential<T>(load(weights + c) - base) * over[r]);
    }

    // The row's weights are NaN: on every key that it may attend to, of which the first ones are its top, and on no other.
    void lose(int r, T* weights) {
        for (int c = 0; c < KEYS; c++) {
            if (weights[c] != weights[c]) static_cast<T*>(to.lse)[row_of_entry(r)] = weights[c];
            bool barred = weights[c] == -__builtin_inf();
            weights[c] = barred ? T(0) : over[r];
            if (barred || named[r] == to.top) continue;
            top_weights_of(r)[named[r]] = over[r];
            top_keys_of(r)[named[r]++] = static_cast<std::int32_t>(at.key + c);
        }
    }

    // Adds a tile's weights to what keys received, to the map and to the output.
    void add(const T* weights) {
        T total[KEYS], high[KEYS];
        const Index* edges = to.row_edges;
        for (int first = 0, next = at.rows; first < at.rows; first = next) {
            Index cell = edges ? cell_of(edges, to.row_cells, at.row + first) : 0;
            next = edges ? static_cast<int>(least<Index>(edges[cell + 1] - at.row, at.rows)) : at.rows;
            pool_rows(weights, first, next, total, high);
            for (int c = 0; c < at.keys; c++) part.received[at.key + c] += total[c];
            if (edges) pool_keys(total, high, at.key, at.keys, to.key_edges, cell_of(to.key_edges, to.key_cells, at.key), map_row(cell));
        }
        if (to.output) mix_values(weights);
    }

    MapRow<T> map_row(Index cell) const {
        if (to.row_edges[cell] < part.first) return part.entered;
        Index first = (at.entry * to.row_cells + cell) * to.key_cells;
        return {static_cast<T*>(to.map_mean) + first, static_cast<T*>(to.map_max) + first};
    }

    // In a tile whose values are not all finite, barred ones are left out one by one: 0 * NaN is NaN.
    void mix_values(const T* weights) {
        Values<T> values(inputs, at, desk.values);
        Seen seen = all_finite(values.data, values.row, at.keys, desk.wide) ? Seen::all : Seen::some;
        if (seen == Seen::some) {
            total_scores(at.key / KEYS, desk.barred);
            for (int i = 0; i < at.rows * KEYS; i++) allowed[i] = desk.barred[i] != -__builtin_inf();
        }
        mix(weights, at, seen, allowed, values, desk.wide, desk.output);
    }

    void write_output() const {
        for (int r = 0; r < at.rows; r++) {
            T* row = static_cast<T*>(to.output) + row_of_entry(r) * inputs.width;
            for (Index e = 0; e < inputs.width; e++) row[e] = desk.output[r * desk.wide + e];
        }
    }
};

}  // namespace overt::OVERT_LEVEL
