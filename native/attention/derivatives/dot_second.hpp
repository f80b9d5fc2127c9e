// The derivative of the backward pass of dot-product attention: tangents of the gradients, from tangents (directions) of queries, keys,
// values and biases. With weights w, dropout factors r, total scores t, p_ij = r_ij u_i . v_j of upstream gradients u, and tangents primed,
//
//     d_i = u_i . o_i     g = w (p - d)     w' = w (t' - m)     g' = w ((t' - m) (p - d) + p' - d')     d'_i = u_i . o'_i
//
// A first pass computes m_i = sum_j w_ij t'_ij and the output's tangent o' (tangent_pass.hpp). In the second, threads share the keys as in
// the backward pass, each sums gradients of the queries separately, and these sums are added in order.
#pragma once

#include <new>

#include "attention/derivatives/moving_tile.hpp"
#include "attention/gradients/gradient_workspace.hpp"

namespace overt::OVERT_LEVEL {

// BLOCKS_AT_ONCE: blocks of queries in memory at once.
constexpr Index BLOCKS_AT_ONCE = 8;

// A tile's rows of a matrix by key: in the caller's memory, and padded to whole vectors.
template <class T>
struct KeyRows {
    Left<T> plain{};
    const T* whole = nullptr;
    Index row = 0;

    void read(const Matrix& from, Index columns, const Tile& at, T* memory) {
        if (!from.data) return;
        Index padded_dim = padded<T>(columns);
        plain = rows_at(from, at, columns, memory);
        WholeRows<T> rows(from, columns, at, memory + KEYS * padded_dim);
        whole = rows.data, row = rows.row;
    }
    // The rows from this one on.
    KeyRows from(Index first) const { return {{plain.data + first * plain.row, plain.row, 1}, whole + first * row, row}; }
};

// One thread's working memory: rows of keys, values and their directions, sums for both, and transposed tiles.
template <class T>
struct SecondWorkspace {
    T *keys, *key_directions, *values, *value_directions, *d_keys, *d_values, *tiles[7], *spare;
    std::uint8_t* allowed;

    static Index size(Index padded_dim, Index padded_value_dim) {
        return KEYS * 5 * (padded_dim + padded_value_dim) + 9 * TRANSPOSED_TILE + MASK_SIZE / 4 + 64;
    }
    SecondWorkspace(T* memory, Index padded_dim, Index padded_value_dim)
        : keys(memory), key_directions(keys + 2 * KEYS * padded_dim), values(key_directions + 2 * KEYS * padded_dim),
          value_directions(values + 2 * KEYS * padded_value_dim), d_keys(value_directions + 2 * KEYS * padded_value_dim),
          d_values(d_keys + KEYS * padded_dim) {
        T* next = d_values + KEYS * padded_value_dim;
        for (T*& tile : tiles) tile = next, next += TRANSPOSED_TILE;
        spare = next, allowed = reinterpret_cast<std::uint8_t*>(spare + 2 * TRANSPOSED_TILE);
    }
};

// A block's rows of queries or upstream gradients, shared by all threads: transposed, and padded to whole vectors.
template <class T>
struct QueryRows {
    T* transposed = nullptr;
    const T* whole = nullptr;
    Index row = 0;
    bool finite = true;

    void read(const Matrix& from, Index columns, Tile at, T scale, bool check, T* memory) {
        if (!from.data) return;
        Index padded_dim = padded<T>(columns);
        transposed = memory;
        transpose_rows(from, at, columns, scale, transposed, memory + QUERIES * padded_dim);
        at.key = at.row, at.keys = at.rows;
        WholeRows<T> rows(from, columns, at, memory + QUERIES * padded_dim);
        whole = rows.data, row = rows.row;
        finite = !check || all_finite(whole, row, at.rows, padded_dim);
    }
};

template <class T>
struct SecondBlock {
    TransposedMask<T> mask;
    QueryRows<T> queries, directions, upstream;
    T bases[QUERIES], inverse_sums[QUERIES], deltas[QUERIES], delta_tangents[QUERIES], means[QUERIES];
    bool finite() const { return queries.finite && directions.finite && upstream.finite; }
};

template <class T>
class DotSecond {
    const Inputs& inputs;
    const Score& score;
    const SavedDotForward& saved;
    const Directions& directions;
    const Gradients& to;
    const T *tangent, *mean;  // from the first pass
    Moves moves;
    bool overlapping;  // whether several pairs share an element of the bias
    Team team;
    Index at_once;  // entries in memory at once
    int tile_keys;
    Index padded_dim, padded_value_dim, tiles, spans, blocks, block_size, workspace_size;
    Scratch<T> workspaces, rows, d_queries, biases;
    Scratch<SecondBlock<T>> table;

   public:
    DotSecond(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Directions& directions,
              const Gradients& to, const Tangents& first)
        : inputs(inputs), score(score), saved(saved), directions(directions), to(to), tangent(static_cast<const T*>(first.tangent)),
          mean(static_cast<const T*>(first.mean)), moves(score, directions),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          at_once(entries_at_once(team, to.bias)), tile_keys(few_tiles(inputs, team, at_once) ? KEYS / 2 : KEYS),
          padded_dim(padded<T>(inputs.head_dim)), padded_value_dim(padded<T>(inputs.value_dim)), tiles(count(inputs.keys, tile_keys)),
          spans(spans_at_once(team, at_once, tiles)), blocks(min_of(count(inputs.queries, QUERIES), BLOCKS_AT_ONCE)),
          block_size(2 * QUERIES * (2 * padded_dim + padded_value_dim)),
          workspace_size(SecondWorkspace<T>::size(padded_dim, padded_value_dim)), workspaces(team.threads * workspace_size),
          rows(at_once * blocks * block_size), d_queries(at_once * spans * blocks * QUERIES * padded_dim),
          biases(overlapping ? spans * to.bias_size : 0), table(at_once * blocks) {}

    void run() {
        clear(biases.data, overlapping ? spans * to.bias_size : 0);
        if (team.entry_groups > 1)
            team.each_entry([this](Index entry, int slot) { some(entry, 1, slot); });
        else
            for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once)
                some(entry, min_of(at_once, team.entries - entry), 0);
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<T*>(to.bias));
    }

   private:
    // The slot of an entry in memory.
    SecondBlock<T>& block_of(Index slot, Index block) const { return table.data[slot * blocks + block % blocks]; }
    T* sums_of(Index slot, Index span, Index block) const {
        return d_queries.data + ((slot * spans + span) * blocks + block % blocks) * QUERIES * padded_dim;
    }

    // Consecutive entries, from this slot on.
    void some(Index entry, Index entry_count, Index slot) {
        Index all = count(inputs.queries, QUERIES), first = 0;
        do {
            Index block_count = min_of(blocks, all - first);
            team.each(entry_count * block_count, [&](Index item, int) {
                prepare(entry + item / block_count, slot + item / block_count, first + item % block_count);
            });
            team.each(entry_count * spans, [&](Index item, int thread) {
                Index own = item / spans, memory = team.entry_groups > 1 ? slot : thread;
                SecondWorkspace<T> workspace(workspaces.data + memory * workspace_size, padded_dim, padded_value_dim);
                against_keys(entry + own, slot + own, first, block_count, item % spans, workspace);
            });
            team.each(entry_count * block_count, [&](Index item, int) {
                join(entry + item / block_count, slot + item / block_count, first + item % block_count);
            });
            first += block_count;
        } while (first < all && !interrupted(inputs));
    }

    // Prepares a block of queries, with the products of upstream gradients with output and its tangent.
    void prepare(Index entry, Index slot, Index block) {
        T* memory = rows.data + (slot * blocks + block % blocks) * block_size;
        SecondBlock<T>& own = *new (&block_of(slot, block)) SecondBlock<T>{TransposedMask<T>(inputs, entry, block), {}, {}, {},
                                                                          {}, {}, {}, {}, {}};
        Tile at{entry, own.mask.row, 0, own.mask.rows, 0};
        bool check = inputs.mask.count || inputs.bias.data;
        T scale = Units<T>(inputs, score, entry).scale;
        own.queries.read(inputs.query, inputs.head_dim, at, scale, check, memory);
        own.directions.read(directions.query, inputs.head_dim, at, scale, check, memory + 2 * QUERIES * padded_dim);
        const Index zero = 0, start = entry * inputs.queries + own.mask.row;
        at.entry = 0, at.row = 0;
        Matrix upstream{static_cast<const T*>(saved.upstream) + start * inputs.value_dim, KIND<T>, &zero, inputs.value_dim, 1};
        own.upstream.read(upstream, inputs.value_dim, at, T(1), check, memory + 4 * QUERIES * padded_dim);
        const T* sums = static_cast<const T*>(saved.sums) + 2 * entry * inputs.queries + own.mask.row;
        for (int r = 0; r < own.mask.rows; r++) {
            const T *output = static_cast<const T*>(saved.output) + (start + r) * inputs.value_dim,
                    *moving = tangent + (start + r) * inputs.value_dim, *up = own.upstream.whole + r * own.upstream.row;
            T total = sums[inputs.queries + r], delta = 0, delta_tangent = 0;
            for (Index e = 0; e < inputs.value_dim; e++) delta += output[e] * up[e], delta_tangent += moving[e] * up[e];
            own.bases[r] = total == 0 ? T(0) : sums[r];
            own.inverse_sums[r] = total == 0 ? T(0) : 1 / total;
            own.deltas[r] = delta, own.delta_tangents[r] = delta_tangent, own.means[r] = mean[start + r];
        }
    }

    // The current blocks against every `spans`-th tile of keys.
    void against_keys(Index entry, Index slot, Index first, Index block_count, Index span, const SecondWorkspace<T>& workspace) {
        for (Index block = first; block < first + block_count; block++)
            clear(sums_of(slot, span, block), QUERIES * padded_dim);
        for (Index tile = span; tile < tiles && !interrupted(inputs); tile += spans) {
            Tile all{entry, 0, tile * tile_keys, 0, size_of(tile, tile_keys, inputs.keys)};
            clear(workspace.d_keys, all.keys * padded_dim), clear(workspace.d_values, all.keys * padded_value_dim);
            KeyRows<T> keys, key_directions, values, value_directions;
            keys.read(inputs.key, inputs.head_dim, all, workspace.keys);
            key_directions.read(directions.key, inputs.head_dim, all, workspace.key_directions);
            values.read(inputs.value, inputs.value_dim, all, workspace.values);
            value_directions.read(directions.value, inputs.value_dim, all, workspace.value_directions);
            for (Index block = first; block < first + block_count && !interrupted(inputs); block++) {
                SecondBlock<T>& own = block_of(slot, block);
                Tile at = all;
                at.key = max_of(all.key, own.mask.low);
                for (Index end = min_of(all.key + all.keys, own.mask.high); at.key < end; at.key += at.keys) {
                    Coverage coverage = own.mask.next(at, end, workspace.allowed);
                    if (coverage == Coverage::none) continue;
                    Index offset = at.key - all.key;
                    Part part{at, coverage, static_cast<int>(at.row - own.mask.row), offset, keys.from(offset),
                              key_directions.from(offset), values.from(offset), value_directions.from(offset)};
                    pairs(part, own, span, sums_of(slot, span, block), workspace);
                }
            }
            put(all, first == 0, workspace);
        }
    }

    // Some keys against some queries of a block.
    struct Part {
        Tile at;
        Coverage coverage;
        int skipped;   // queries of the block before these
        Index offset;  // keys of the tile before these
        KeyRows<T> keys, key_directions, values, value_directions;
    };

    // The tiles' contents, from products to gradients.
    enum Name { WEIGHTS, SCORES, GRADIENTS, TANGENTS, SLOPES, CURVATURES, UNMASKED };

    void pairs(const Part& part, const SecondBlock<T>& own, Index span, T* d_queries, const SecondWorkspace<T>& workspace) {
        const Tile& at = part.at;
        T *const *tiles = workspace.tiles, *const upstream = own.upstream.transposed + part.skipped;
        const T* queries = own.queries.transposed + part.skipped;
        product(part.keys.plain, queries, inputs.head_dim, at, tiles[WEIGHTS]);
        multiply_tangents(inputs, moves, at, queries, own.directions.transposed + part.skipped, part.keys.plain,
                          part.key_directions.plain, tiles[SCORES]);
        product(part.values.plain, upstream, inputs.value_dim, at, tiles[GRADIENTS]);
        if (moves.value)
            product(part.value_directions.plain, upstream, inputs.value_dim, at, tiles[TANGENTS]);
        else
            each_vector<T>(at, [&](int i) { store(tiles[TANGENTS] + i, Vector<T>{}); });
        Units<T> units(inputs, score, at.entry);
        bool capped = units.cap > 0;
        finish_moving_scores(inputs, units, directions.bias, moves, at, part.coverage, own.mask, workspace.allowed, tiles[WEIGHTS],
                             tiles[SCORES], workspace.spare, capped ? tiles[SLOPES] : nullptr, tiles[CURVATURES]);
        bool careful = part.coverage == Coverage::partial || inputs.bias.data;
        if (careful)
            each_vector<T>(at, [&](int i) {
                store(tiles[UNMASKED] + i, load(tiles[WEIGHTS] + i) == T(-__builtin_inf()) ? Vector<T>{} : broadcast(T(1)));
            });
        back_through_softmax(part, own, careful, workspace);
        if (to.bias) add_bias_gradients(at, span, workspace);
        if (capped)
            each_vector<T>(at, [&](int i) {
                Vector<T> gradient = load(tiles[GRADIENTS] + i), slope = load(tiles[SLOPES] + i);
                store(tiles[GRADIENTS] + i, gradient * slope);
                store(tiles[TANGENTS] + i, load(tiles[TANGENTS] + i) * slope + gradient * load(tiles[CURVATURES] + i));
            });
        if (!careful || (own.finite() && finite(part)))
            add_products(part, own, d_queries, workspace);
        else
            add_pairs(part, own, d_queries, workspace);
    }

    static void product(Left<T> keys, const T* queries, Index columns, const Tile& at, T* to) {
        multiply(keys.data, keys.row, Index{1}, queries, Index{QUERIES}, to, Index{QUERIES}, at.keys, static_cast<int>(columns), at.rows,
                 false);
    }

    bool finite(const Part& part) const {
        return all_finite(part.keys.whole, part.keys.row, part.at.keys, padded_dim) &&
               (!moves.key || all_finite(part.key_directions.whole, part.key_directions.row, part.at.keys, padded_dim));
    }

    // Total scores and their tangents become tangents of weights; gradients of weights and their tangents become gradients of total scores
    // and their tangents. All are 0 for masked pairs.
    void back_through_softmax(const Part& part, const SecondBlock<T>& own, bool careful, const SecondWorkspace<T>& workspace) const {
        const Tile& at = part.at;
        T* const* tiles = workspace.tiles;
        T* dropout_factors = workspace.spare;
        bool dropping = inputs.dropout > 0;
        if (dropping) {
            each_vector<T>(at, [&](int i) { store(dropout_factors + i, broadcast(T(1))); });
            apply_dropout_transposed(inputs, at, dropout_factors);
        }
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            int lane = part.skipped + r;
            Vector<T> base = load(own.bases + lane), inverse_sum = load(own.inverse_sums + lane), mean = load(own.means + lane);
            Vector<T> delta = load(own.deltas + lane), delta_tangent = load(own.delta_tangents + lane);
            for (int c = 0; c < at.keys; c++) {
                int i = c * QUERIES + r;
                Vector<T> gradient = load(tiles[GRADIENTS] + i), tangent = load(tiles[TANGENTS] + i);
                Vector<T> weight = power_of_two<T>(load(tiles[WEIGHTS] + i) - base) * inverse_sum;
                Vector<T> moving = weight * (load(tiles[SCORES] + i) * T(LN2) - mean), factor = broadcast(T(1));
                if (dropping) factor = load(dropout_factors + i), gradient *= factor, tangent *= factor;
                gradient -= delta;
                tangent = moving * gradient + weight * (tangent - delta_tangent);
                gradient *= weight, moving *= factor;
                if (careful) {
                    auto masked = load(tiles[UNMASKED] + i) == T(0);
                    gradient = masked ? Vector<T>{} : gradient, tangent = masked ? Vector<T>{} : tangent;
                    moving = masked ? Vector<T>{} : moving;
                }
                store(tiles[WEIGHTS] + i, moving), store(tiles[GRADIENTS] + i, gradient), store(tiles[TANGENTS] + i, tangent);
            }
        }
    }

    void add_products(const Part& part, const SecondBlock<T>& own, T* d_query, const SecondWorkspace<T>& workspace) const {
        const Tile& at = part.at;
        const T *gradients = workspace.tiles[GRADIENTS], *tangents = workspace.tiles[TANGENTS];
        auto to_keys = [&](const T* weights, const QueryRows<T>& from, Index padded_columns, T* sums) {
            multiply(weights, Index{QUERIES}, Index{1}, from.whole + part.skipped * from.row, from.row, sums, padded_columns, at.keys,
                     at.rows, static_cast<int>(padded_columns), true);
        };
        auto to_queries = [&](const T* weights, const KeyRows<T>& from) {
            multiply(weights, Index{1}, Index{QUERIES}, from.whole, from.row, d_query + part.skipped * padded_dim, padded_dim, at.rows,
                     at.keys, static_cast<int>(padded_dim), true);
        };
        T *d_values = workspace.d_values + part.offset * padded_value_dim, *d_keys = workspace.d_keys + part.offset * padded_dim;
        if (to.value && (moves.scores || directions.sink)) to_keys(workspace.tiles[WEIGHTS], own.upstream, padded_value_dim, d_values);
        if (to.key) to_keys(tangents, own.queries, padded_dim, d_keys);
        if (to.key && moves.query) to_keys(gradients, own.directions, padded_dim, d_keys);
        if (to.query) to_queries(tangents, part.keys);
        if (to.query && moves.key) to_queries(gradients, part.key_directions);
    }

    // Pair by pair if a number is not finite, skipping masked pairs: 0 * NaN is NaN.
    void add_pairs(const Part& part, const SecondBlock<T>& own, T* d_queries, const SecondWorkspace<T>& workspace) const {
        for (int c = 0; c < part.at.keys; c++)
            for (int r = 0; r < part.at.rows; r++) {
                int i = c * QUERIES + r, row = part.skipped + r;
                if (workspace.tiles[UNMASKED][i] == 0) continue;
                auto add = [&](Name weights, const T* from, Index columns, T* sums) {
                    accumulate_keys<T, 1>(workspace.tiles[weights] + i, from, 0, columns, sums);
                };
                T *d_key = workspace.d_keys + (part.offset + c) * padded_dim, *d_query = d_queries + row * padded_dim;
                add(WEIGHTS, own.upstream.whole + row * own.upstream.row, padded_value_dim,
                    workspace.d_values + (part.offset + c) * padded_value_dim);
                add(TANGENTS, own.queries.whole + row * own.queries.row, padded_dim, d_key);
                if (moves.query) add(GRADIENTS, own.directions.whole + row * own.directions.row, padded_dim, d_key);
                add(TANGENTS, part.keys.whole + c * part.keys.row, padded_dim, d_query);
                if (moves.key) add(GRADIENTS, part.key_directions.whole + c * part.key_directions.row, padded_dim, d_query);
            }
    }

    void add_bias_gradients(const Tile& at, Index span, const SecondWorkspace<T>& workspace) const {
        const Matrix& bias = inputs.bias;
        T inverse_temperature = inputs.inverse_temperature ? static_cast<T>(inputs.inverse_temperature[at.entry]) : T(1);
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.offsets[at.entry] + at.row * bias.row + at.key * bias.column;
        transpose(workspace.tiles[TANGENTS], Index{QUERIES}, at.keys, at.rows, workspace.spare, Index{KEYS});
        for (int r = 0; r < at.rows; r++)
            for (int c = 0; c < at.keys; c++)
                into[r * bias.row + c * bias.column] += inverse_temperature * workspace.spare[r * KEYS + c];
    }

    // From total scores back to products of the original queries and keys.
    T factor(Index entry) const {
        return static_cast<T>(score.scale[entry] * (inputs.inverse_temperature ? inputs.inverse_temperature[entry] : 1));
    }

    // The first blocks of queries set a tile's gradients, later blocks add to them.
    void put(const Tile& at, bool first, const SecondWorkspace<T>& workspace) const {
        auto rows = [&](void* result, const T* sums, T times, Index columns, Index row) {
            for (int c = 0; result && c < at.keys; c++, sums += row) {
                T* gradient = result_row<T>(result, at.entry, at.key + c, inputs.keys, columns);
                if (first)
                    put_row(sums, times, columns, gradient);
                else
                    for (Index d = 0; d < columns; d++) gradient[d] += sums[d] * times;
            }
        };
        rows(to.key, workspace.d_keys, factor(at.entry), inputs.head_dim, padded_dim);
        rows(to.value, workspace.d_values, T(1), inputs.value_dim, padded_value_dim);
    }

    void join(Index entry, Index slot, Index block) {
        if (!to.query) return;
        T* total = sums_of(slot, 0, block);
        for (Index span = 1; span < spans; span++) add(sums_of(slot, span, block), QUERIES * padded_dim, total);
        const TransposedMask<T>& mask = block_of(slot, block).mask;
        for (int r = 0; r < mask.rows; r++)
            put_row(total + r * padded_dim, factor(entry), inputs.head_dim,
                    result_row<T>(to.query, entry, mask.row + r, inputs.queries, inputs.head_dim));
    }
};

}  // namespace overt::OVERT_LEVEL
