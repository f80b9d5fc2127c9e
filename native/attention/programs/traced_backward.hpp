// The driver of the backward passes of attention with a program's scores. For each tile it recomputes the scores, then the gradients of
// scores from gradients of weights, then runs the program's backward pass. Threads share the keys; each sums gradients of queries and
// constants separately, and these sums are added in order.
#pragma once

#include <new>

#include "attention/gradients/gradient_workspace.hpp"
#include "attention/programs/traced_workspace.hpp"

namespace overt::OVERT_LEVEL {

// Some keys against some queries of a block.
template <class T>
struct Part {
    Tile at;
    Coverage coverage;
    int skipped;   // queries of the block before these
    Index offset;  // keys of the tile before these
    Left<T> values, value_directions;
};

// A derived class `Own` has
//   units_of(entry)                                the factors from scores to total scores
//   put_rows(entry, start, upstream, query_block)  stores data of a block's rows, from the forward pass's results
//   finish(part, careful, query_block, workspace)
//       scores in workspace.weights, and gradients of weights in workspace.gradients, to the weights that values' gradients take, and to
//       the gradients that the program's backward pass begins with; both are 0 for pairs that are masked, by a mask, by a bias or a score
//       of -inf, and so is their `unmasked`, as it is of lanes beyond the last row
template <class T, class Own>
class TracedBackward {
   protected:
    const Inputs& inputs;
    const Score& score;
    const Program& program;
    const SavedDotForward& saved;
    const Gradients& to;
    const Matrix value_directions;  // data == nullptr: values have no tangents
    Sizes<T> sizes;

   private:
    static constexpr Index BLOCKS = 16;  // blocks of queries in memory at once
    bool overlapping;  // whether several pairs share an element of the bias
    Team team;
    Index at_once;  // entries in memory at once
    int tile_keys;
    Index tiles, spans, blocks, block_size, workspace_size, constants_size;
    Scratch<T> workspaces, rows, d_queries, d_constants, biases;
    Scratch<QueryBlock<T>> table;

   public:
    TracedBackward(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Gradients& to,
                   const Matrix& value_directions = {})
        : inputs(inputs), score(score), program(*score.program), saved(saved), to(to), value_directions(value_directions),
          sizes(inputs, program), overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)),
          team(inputs, to.bias), at_once(entries_at_once(team, to.bias)), tile_keys(few_tiles(inputs, team, at_once) ? KEYS / 2 : KEYS),
          tiles(count(inputs.keys, tile_keys)), spans(spans_at_once(team, at_once, tiles)),
          blocks(min_of(count(inputs.queries, QUERIES), BLOCKS)),
          block_size(QUERIES * (2 * padded<T>(sizes.query) + 2 * sizes.value + sizes.product_rows)),
          workspace_size(Workspace<T>::size(sizes, program)), constants_size(sizes.constants * WIDTH<T>),
          workspaces(team.threads * workspace_size), rows(at_once * blocks * block_size),
          d_queries(at_once * spans * blocks * QUERIES * sizes.query), d_constants(at_once * spans * constants_size),
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
    Own& own() { return static_cast<Own&>(*this); }

    QueryBlock<T>& block_of(Index slot, Index block) const { return table.data[slot * blocks + block % blocks]; }
    T* sums_of(Index slot, Index span, Index block) const {
        return d_queries.data + ((slot * spans + span) * blocks + block % blocks) * QUERIES * sizes.query;
    }
    T* constants_at(Index slot, Index span) const { return d_constants.data + (slot * spans + span) * constants_size; }

    // Consecutive entries, from this slot on.
    void some(Index entry, Index entry_count, Index slot) {
        Index all = count(inputs.queries, QUERIES), first = 0;
        clear(constants_at(slot, 0), entry_count * spans * constants_size);
        do {
            Index block_count = min_of(blocks, all - first);
            team.each(entry_count * block_count, [&](Index item, int) {
                prepare(entry + item / block_count, slot + item / block_count, first + item % block_count);
            });
            team.each(entry_count * spans, [&](Index item, int thread) {
                Index memory = team.entry_groups > 1 ? slot : thread;
                Workspace<T> workspace(workspaces.data + memory * workspace_size, sizes, program);
                against_keys(entry + item / spans, slot + item / spans, first, block_count, item % spans, workspace);
            });
            team.each(entry_count * block_count, [&](Index item, int) {
                join(entry + item / block_count, slot + item / block_count, first + item % block_count);
            });
            first += block_count;
        } while (first < all && !interrupted(inputs));
        for (Index own = 0; own < entry_count; own++) put_constants(entry + own, slot + own);
    }

    // Prepares a block of queries and computes delta_i = sum_e output_ie upstream_ie.
    void prepare(Index entry, Index slot, Index block) {
        T* memory = rows.data + (slot * blocks + block % blocks) * block_size;
        T *upstream_rows = memory + QUERIES * (padded<T>(sizes.query) + sizes.value), *product_rows = upstream_rows + QUERIES * sizes.value;
        QueryBlock<T>& now = *new (&block_of(slot, block)) QueryBlock<T>{
            TransposedMask<T>(inputs, entry, block), memory, memory + QUERIES * padded<T>(sizes.query), product_rows, nullptr, 0, true,
            {}, {}, {}, {}, {}};
        Tile at{entry, now.mask.row, now.mask.row, now.mask.rows, now.mask.rows};
        T* spare = product_rows + QUERIES * sizes.product_rows;
        transpose_rows(inputs.query, at, inputs.head_dim, T(1), now.queries, spare);
        for (const ProductOfColumns& product : program.products) {
            Index width = padded<T>(product.size);
            for (int r = 0; r < now.mask.rows; r++)
                for (Index d = 0; d < width; d++)
                    product_rows[r * width + d] = d < product.size ? now.queries[(product.first + d) * QUERIES + r] : T(0);
            product_rows += QUERIES * width;
        }
        const Index zero = 0, start = entry * inputs.queries + now.mask.row;
        at.entry = 0, at.row = at.key = 0;
        Matrix up{static_cast<const T*>(saved.upstream) + start * inputs.value_dim, KIND<T>, &zero, inputs.value_dim, 1};
        transpose_rows(up, at, inputs.value_dim, T(1), now.upstream, static_cast<T*>(nullptr));
        WholeRows<T> upstream(up, inputs.value_dim, at, upstream_rows);
        now.padded_upstream = upstream.data, now.upstream_row = upstream.row;
        now.finite = all_finite(upstream.data, upstream.row, now.mask.rows, sizes.value);
        own().put_rows(entry, start, upstream, now);
    }

    // The current blocks against every `spans`-th tile of keys.
    void against_keys(Index entry, Index slot, Index first, Index block_count, Index span, const Workspace<T>& workspace) {
        for (Index block = first; block < first + block_count; block++)
            clear(sums_of(slot, span, block), QUERIES * sizes.query);
        put_numbers(program, workspace.numbers);
        Machine<T> machine(program, workspace.machine);
        for (Index tile = span; tile < tiles && !interrupted(inputs); tile += spans) {
            Tile all{entry, 0, tile * tile_keys, 0, size_of(tile, tile_keys, inputs.keys)};
            clear(workspace.d_keys, all.keys * sizes.key), clear(workspace.d_values, all.keys * sizes.value);
            clear(workspace.d_product_keys, KEYS * sizes.product_rows);
            Left<T> values = rows_at(inputs.value, all, inputs.value_dim, workspace.values), moving{};
            if (value_directions.data) moving = rows_at(value_directions, all, inputs.value_dim, workspace.value_directions);
            for (Index block = first; block < first + block_count && !interrupted(inputs); block++) {
                QueryBlock<T>& query_block = block_of(slot, block);
                Tile at = all;
                at.key = max_of(all.key, query_block.mask.low);
                for (Index end = min_of(all.key + all.keys, query_block.mask.high); at.key < end; at.key += at.keys) {
                    Coverage coverage = query_block.mask.next(at, end, workspace.allowed);
                    if (coverage == Coverage::none) continue;
                    int skipped = static_cast<int>(at.row - query_block.mask.row);
                    Index offset = at.key - all.key;
                    Part<T> part{at, coverage, skipped, offset, {values.data + offset * values.row, values.row, 1},
                                 {moving.data ? moving.data + offset * moving.row : nullptr, moving.row, 1}};
                    pairs(part, query_block, span, sums_of(slot, span, block) + skipped, constants_at(slot, span), machine, workspace);
                }
            }
            add_product_keys(all, workspace);
            put(all, first == 0, workspace);
        }
    }

    void add_product_keys(const Tile& at, const Workspace<T>& workspace) const {
        const T* from = workspace.d_product_keys;
        for (const ProductOfColumns& product : program.products) {
            Index width = padded<T>(product.size);
            for (int c = 0; c < at.keys; c++) add(from + c * width, product.size, workspace.d_keys + c * sizes.key + product.second);
            from += KEYS * width;
        }
    }

    void pairs(const Part<T>& part, const QueryBlock<T>& query_block, Index span, T* d_query, T* d_constant, Machine<T>& machine,
               const Workspace<T>& workspace) {
        const Tile& at = part.at;
        const T* keys = static_cast<const T*>(inputs.key.data) + inputs.key.offsets[at.entry] + at.key * inputs.key.row;
        bool careful = part.coverage == Coverage::partial || inputs.bias.data || at.rows % WIDTH<T> || !query_block.finite;
        Sources<T> from{query_block.queries + part.skipped, keys, constants_of<T>(program, at.entry), workspace.numbers, inputs.key.row,
                        workspace.products, workspace.gradients, d_query, d_constant, workspace.d_key_lanes, workspace.d_products,
                        careful ? workspace.unmasked : nullptr, workspace.weights};
        multiply_products(program, keys, inputs.key.row, query_block.queries + part.skipped, at, workspace.products);
        multiply(part.values.data, part.values.row, Index{1}, query_block.upstream + part.skipped, Index{QUERIES}, workspace.gradients,
                 Index{QUERIES}, at.keys, static_cast<int>(inputs.value_dim), at.rows, false);
        run_tile(machine, program.forward, from, at, own().units_of(at.entry).unit, program.moving ? workspace.tangents : workspace.weights);
        own().finish(part, careful, query_block, workspace);
        if (to.bias) add_bias_gradients(at, span, workspace);
        add_values(part, careful, query_block, workspace);
        each_strip<T>(at, [&](int first, int count, int lanes) {
            if (program.adds_to_keys) clear(workspace.d_key_lanes, count * sizes.key * WIDTH<T>);
            machine.run(program.backward, from, first, count, lanes);
            if (program.adds_to_keys)
                add_lanes(workspace.d_key_lanes, count * sizes.key, workspace.d_keys + (part.offset + first) * sizes.key);
        });
        add_products(part, query_block, keys, d_query, workspace);
    }

   protected:
    // Marks the pairs of a vector of lanes that are not masked.
    static void put_unmasked(const Tile& at, int r, int i, Vector<T> total, const Workspace<T>& workspace) {
        Vector<T> present = total == T(-__builtin_inf()) ? Vector<T>{} : broadcast(T(1));
        for (int lane = max_of(at.rows - r, 0); lane < WIDTH<T>; lane++) present[lane] = 0;
        store(workspace.unmasked + i, present);
    }

   private:
    // to[i] += the sum of vector i.
    static void add_lanes(const T* vectors, Index count, T* to) {
        Index i = 0;
        T sums[4];
        for (; i + 4 <= count; i += 4, vectors += 4 * WIDTH<T>) {
            Vector<T> four[4] = {load(vectors), load(vectors + WIDTH<T>), load(vectors + 2 * WIDTH<T>), load(vectors + 3 * WIDTH<T>)};
            Sums<T, 4>::of(four, sums);
            for (int n = 0; n < 4; n++) to[i + n] += sums[n];
        }
        for (; i < count; i++, vectors += WIDTH<T>) to[i] += sum<T>(load(vectors));
    }

    // d_keys += d_products queries and d_queries += keys^T d_products, for each product.
    void add_products(const Part<T>& part, const QueryBlock<T>& query_block, const T* keys, T* d_query, const Workspace<T>& workspace) {
        const Tile& at = part.at;
        const T *gradients = workspace.d_products, *product_rows = query_block.product_rows;
        T* d_keys = workspace.d_product_keys;
        for (const ProductOfColumns& product : program.products) {
            Index width = padded<T>(product.size);
            multiply(gradients, Index{QUERIES}, Index{1}, product_rows + part.skipped * width, width, d_keys + part.offset * width, width,
                     at.keys, at.rows, static_cast<int>(width), true);
            multiply(keys + product.second, Index{1}, inputs.key.row, gradients, Index{QUERIES}, d_query + product.first * QUERIES,
                     Index{QUERIES}, product.size, at.keys, at.rows, true);
            gradients += TRANSPOSED_TILE, product_rows += QUERIES * width, d_keys += KEYS * width;
        }
    }

    void add_bias_gradients(const Tile& at, Index span, const Workspace<T>& workspace) {
        const Matrix& bias = inputs.bias;
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.offsets[at.entry] + at.row * bias.row + at.key * bias.column;
        transpose(workspace.gradients, Index{QUERIES}, at.keys, at.rows, workspace.spare, Index{KEYS});
        for (int r = 0; r < at.rows; r++)
            for (int c = 0; c < at.keys; c++) into[r * bias.row + c * bias.column] += workspace.spare[r * KEYS + c];
    }

    // d_values += weights upstream; pair by pair if an upstream gradient is not finite: 0 * NaN is NaN.
    void add_values(const Part<T>& part, bool careful, const QueryBlock<T>& query_block, const Workspace<T>& workspace) const {
        const Tile& at = part.at;
        const T* upstream = query_block.padded_upstream + part.skipped * query_block.upstream_row;
        T* d_values = workspace.d_values + part.offset * sizes.value;
        if (query_block.finite || !careful) {
            multiply(workspace.weights, Index{QUERIES}, Index{1}, upstream, query_block.upstream_row, d_values, sizes.value, at.keys,
                     at.rows, static_cast<int>(sizes.value), true);
            return;
        }
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r++)
                if (workspace.unmasked[c * QUERIES + r] != 0)
                    accumulate_keys<T, 1>(workspace.weights + c * QUERIES + r, upstream + r * query_block.upstream_row, 0, sizes.value,
                                          d_values + c * sizes.value);
    }

    // The first blocks of queries set a tile's gradients, later blocks add to them.
    void put(const Tile& at, bool first, const Workspace<T>& workspace) const {
        for (int c = 0; c < at.keys; c++) {
            T* d_key = result_row<T>(to.key, at.entry, at.key + c, inputs.keys, sizes.key);
            T* d_value = result_row<T>(to.value, at.entry, at.key + c, inputs.keys, inputs.value_dim);
            const T *tile_key = workspace.d_keys + c * sizes.key, *tile_value = workspace.d_values + c * sizes.value;
            for (Index d = 0; d < sizes.key; d++) d_key[d] = first ? tile_key[d] : d_key[d] + tile_key[d];
            for (Index e = 0; e < inputs.value_dim; e++) d_value[e] = first ? tile_value[e] : d_value[e] + tile_value[e];
        }
    }

    void join(Index entry, Index slot, Index block) {
        T* total = sums_of(slot, 0, block);
        for (Index span = 1; span < spans; span++) add(sums_of(slot, span, block), QUERIES * sizes.query, total);
        const QueryBlock<T>& query_block = block_of(slot, block);
        for (int r = 0; r < query_block.mask.rows; r++) {
            T* d_query = result_row<T>(to.query, entry, query_block.mask.row + r, inputs.queries, sizes.query);
            for (Index d = 0; d < sizes.query; d++) d_query[d] = total[d * QUERIES + r];
        }
    }

    void put_constants(Index entry, Index slot) {
        T* of_entry = static_cast<T*>(to.weight) + entry * sizes.constants;
        clear(of_entry, sizes.constants);
        for (Index span = 0; span < spans; span++) add_lanes(constants_at(slot, span), sizes.constants, of_entry);
    }
};

}  // namespace overt::OVERT_LEVEL
