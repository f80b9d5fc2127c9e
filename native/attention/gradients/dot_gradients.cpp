// Dot-product attention, backward. The weights of a tile are recomputed as in the forward pass, so that nothing of size Q x K is stored.
// Keys are distributed among threads; each sums gradients of the queries separately, and these sums are added in order.
#include <new>

#include "attention/gradients/gradient_workspace.hpp"
#include "attention/normalizers/elementwise.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// BLOCKS_AT_ONCE: blocks of queries in memory at once.
constexpr Index BLOCKS_AT_ONCE = 16;

// One thread's working memory: for a tile of keys, their rows, their values' rows and the sums for both; for a transposed tile, weights
// (scores before), their gradients, the slopes of the softcap, which pairs are unmasked, spare memory, and the sums for biases of keys.
template <class T>
struct DotWorkspace {
    T *keys, *padded_keys, *values, *d_keys, *d_values, *weights, *gradients, *softcap_slopes, *unmasked, *spare, *d_biases;
    std::uint8_t* allowed;

    static Index size(Index padded_dim, Index padded_value_dim) {
        return KEYS * (3 * padded_dim + 2 * padded_value_dim) + 6 * TRANSPOSED_TILE + KEYS + MASK_SIZE / 4 + 64;
    }
    DotWorkspace(T* memory, Index padded_dim, Index padded_value_dim)
        : keys(memory), padded_keys(keys + KEYS * padded_dim), values(padded_keys + KEYS * padded_dim),
          d_keys(values + KEYS * padded_value_dim), d_values(d_keys + KEYS * padded_dim),
          weights(d_values + KEYS * padded_value_dim), gradients(weights + TRANSPOSED_TILE),
          softcap_slopes(gradients + TRANSPOSED_TILE), unmasked(softcap_slopes + TRANSPOSED_TILE), spare(unmasked + TRANSPOSED_TILE),
          d_biases(spare + 2 * TRANSPOSED_TILE), allowed(reinterpret_cast<std::uint8_t*>(d_biases + KEYS)) {}
};

// A block of queries, shared by all threads.
template <class T>
struct DotBlock {
    TransposedMask<T> mask;
    T *queries, *upstream;                      // transposed
    const T *padded_queries, *padded_upstream;  // rows padded to whole vectors
    Index query_row, upstream_row;
    bool finite;
    T bases[QUERIES], inverse_sums[QUERIES], deltas[QUERIES];
};

// Rules, like those of `elementwise.hpp`: weights from total scores, and gradients of natural scores from gradients of weights.
struct SoftmaxGradient {
    static constexpr double UNIT = LOG2E;
    static constexpr bool EMPTY_AT_ZERO = true;  // a row without keys has this sum
    template <class T>
    OVERT_INLINE Vector<T> weight(Vector<T> t, Vector<T> base, Vector<T> inverse_sum) {
        return power_of_two<T>(t - base) * inverse_sum;
    }
    template <class T>
    OVERT_INLINE Vector<T> gradient(Vector<T> weight, Vector<T> d_weight, Vector<T> delta, Vector<T>) {
        return weight * (d_weight - delta);
    }
};

template <class Rule>
struct ElementwiseGradient : Rule {
    static constexpr bool EMPTY_AT_ZERO = false;
    template <class T>
    OVERT_INLINE Vector<T> weight(Vector<T> t, Vector<T>, Vector<T> inverse_sum) {
        return Rule::SUMMED ? Rule::template share<T>(t) * inverse_sum : Rule::template share<T>(t);
    }
};

template <class T, class Rule>
class DotBackward {
    const Inputs& inputs;
    const Score& score;
    const SavedDotForward& saved;
    const Gradients& to;
    bool overlapping;  // whether several pairs share an element of the bias
    Team team;
    Index at_once;  // entries in memory at once
    int tile_keys;
    Index padded_dim, padded_value_dim, tiles, spans, blocks, block_size, workspace_size;
    Scratch<T> workspaces, rows, d_queries, biases;
    Scratch<DotBlock<T>> table;

   public:
    DotBackward(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Gradients& to)
        : inputs(inputs), score(score), saved(saved), to(to),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          at_once(entries_at_once(team, to.bias)), tile_keys(few_tiles(inputs, team, at_once) ? KEYS / 2 : KEYS),
          padded_dim(padded<T>(inputs.head_dim)), padded_value_dim(padded<T>(inputs.value_dim)), tiles(count(inputs.keys, tile_keys)),
          spans(spans_at_once(team, at_once, tiles)), blocks(min_of(count(inputs.queries, QUERIES), BLOCKS_AT_ONCE)),
          block_size(2 * QUERIES * (padded_dim + padded_value_dim)),
          workspace_size(DotWorkspace<T>::size(padded_dim, padded_value_dim)), workspaces(team.threads * workspace_size),
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
    Units<T> units_of(Index entry) const {
        return Units<T>(score, entry, (inputs.inverse_temperature ? inputs.inverse_temperature[entry] : 1) * Rule::UNIT);
    }

    // The slot of an entry in memory.
    DotBlock<T>& block_of(Index slot, Index block) const { return table.data[slot * blocks + block % blocks]; }
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
                DotWorkspace<T> workspace(workspaces.data + memory * workspace_size, padded_dim, padded_value_dim);
                against_keys(entry + own, slot + own, first, block_count, item % spans, workspace);
            });
            team.each(entry_count * block_count, [&](Index item, int) {
                join(entry + item / block_count, slot + item / block_count, first + item % block_count);
            });
            first += block_count;
        } while (first < all && !interrupted(inputs));
    }

    // Prepares a block of queries and computes delta_i = sum_e output_ie upstream_ie.
    void prepare(Index entry, Index slot, Index block) {
        T* memory = rows.data + (slot * blocks + block % blocks) * block_size;
        DotBlock<T>& query_block = *new (&block_of(slot, block)) DotBlock<T>{TransposedMask<T>(inputs, entry, block),
                                                                                    memory,
                                                                                    memory + QUERIES * padded_dim,
                                                                                    nullptr,
                                                                                    nullptr,
                                                                                    0,
                                                                                    0,
                                                                                    true,
                                                                                    {},
                                                                                    {},
                                                                                    {}};
        Tile at{entry, query_block.mask.row, query_block.mask.row, query_block.mask.rows, query_block.mask.rows};
        T* spare = query_block.upstream + QUERIES * padded_value_dim;
        transpose_rows(inputs.query, at, inputs.head_dim, units_of(entry).scale, query_block.queries, spare);
        WholeRows<T> queries(inputs.query, inputs.head_dim, at, spare);
        query_block.padded_queries = queries.data, query_block.query_row = queries.row;
        const Index zero = 0, start = entry * inputs.queries + query_block.mask.row;
        at.entry = 0, at.row = at.key = 0;
        Matrix up{static_cast<const T*>(saved.upstream) + start * inputs.value_dim, KIND<T>, &zero, inputs.value_dim, 1};
        transpose_rows(up, at, inputs.value_dim, T(1), query_block.upstream, static_cast<T*>(nullptr));
        WholeRows<T> upstream(up, inputs.value_dim, at, spare + QUERIES * padded_dim);
        query_block.padded_upstream = upstream.data, query_block.upstream_row = upstream.row;
        if (inputs.mask.count || inputs.bias.data || inputs.bias_of_keys.data)
            query_block.finite = all_finite(queries.data, queries.row, query_block.mask.rows, padded_dim) &&
                         all_finite(upstream.data, upstream.row, query_block.mask.rows, padded_value_dim);
        const T* sums = static_cast<const T*>(saved.sums) + 2 * entry * inputs.queries + query_block.mask.row;
        for (int r = 0; r < QUERIES; r++) {
            bool there = r < query_block.mask.rows;
            const T* out = static_cast<const T*>(saved.output) + (start + r) * inputs.value_dim;
            T total = there ? sums[inputs.queries + r] : T(0), delta = 0;
            for (Index e = 0; there && e < inputs.value_dim; e++) delta += out[e] * upstream.data[r * upstream.row + e];
            bool dead = !there || (Rule::EMPTY_AT_ZERO && total == 0);
            query_block.bases[r] = dead ? T(0) : sums[r];
            query_block.inverse_sums[r] = dead ? T(0) : 1 / total;
            query_block.deltas[r] = delta;
            if (there && to.delta) static_cast<T*>(to.delta)[start + r] = delta;
        }
    }

    // The current blocks against every `spans`-th tile of keys.
    void against_keys(Index entry, Index slot, Index first, Index block_count, Index span, const DotWorkspace<T>& workspace) {
        for (Index block = first; block < first + block_count; block++)
            clear(sums_of(slot, span, block), QUERIES * padded_dim);
        for (Index tile = span; tile < tiles && !interrupted(inputs); tile += spans) {
            Tile all{entry, 0, tile * tile_keys, 0, size_of(tile, tile_keys, inputs.keys)};
            clear(workspace.d_keys, all.keys * padded_dim), clear(workspace.d_values, all.keys * padded_value_dim);
            clear(workspace.d_biases, all.keys);
            Left<T> keys = rows_at(inputs.key, all, inputs.head_dim, workspace.keys);
            Left<T> values = rows_at(inputs.value, all, inputs.value_dim, workspace.values);
            WholeRows<T> whole(inputs.key, inputs.head_dim, all, workspace.padded_keys);
            for (Index block = first; block < first + block_count && !interrupted(inputs); block++) {
                DotBlock<T>& query_block = block_of(slot, block);
                Tile at = all;
                at.key = max_of(all.key, query_block.mask.low);
                for (Index end = min_of(all.key + all.keys, query_block.mask.high); at.key < end; at.key += at.keys) {
                    Coverage coverage = query_block.mask.next(at, end, workspace.allowed);
                    if (coverage == Coverage::none) continue;
                    Index offset = at.key - all.key;
                    Part part{at,
                              coverage,
                              static_cast<int>(at.row - query_block.mask.row),
                              offset,
                              {keys.data + offset * keys.row, keys.row, 1},
                              {values.data + offset * values.row, values.row, 1},
                              whole.data + offset * whole.row,
                              whole.row};
                    pairs(part, query_block, span, sums_of(slot, span, block), workspace);
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
        Left<T> keys, values;
        const T* padded_keys;
        Index key_row;
    };

    void pairs(const Part& part, const DotBlock<T>& query_block, Index span, T* d_queries, const DotWorkspace<T>& workspace) {
        const Tile& at = part.at;
        const Index tile = QUERIES;
        multiply(part.keys.data, part.keys.row, Index{1}, query_block.queries + part.skipped, tile, workspace.weights, tile,
                 at.keys, static_cast<int>(inputs.head_dim), at.rows, false);
        Units<T> units = units_of(at.entry);
        if (units.cap > 0) save_slopes(at, workspace);
        finish_transposed_scores(inputs, units, at, part.coverage, query_block.mask, workspace.allowed, workspace.weights,
                                 workspace.spare);
        if (inputs.bias_of_keys.data && query_block.finite &&
            !drop_negligible(at, query_block.bases + part.skipped, workspace.weights))
            return;
        multiply(part.values.data, part.values.row, Index{1}, query_block.upstream + part.skipped, tile, workspace.gradients, tile,
                 at.keys, static_cast<int>(inputs.value_dim), at.rows, false);
        back_through_normalizer(part, query_block, workspace);
        bool plain = (part.coverage == Coverage::full && !inputs.bias.data) ||
                     (query_block.finite && all_finite(part.padded_keys, part.key_row, at.keys, padded_dim));
        T *d_values = workspace.d_values + part.offset * padded_value_dim, *d_keys = workspace.d_keys + part.offset * padded_dim;
        const T* upstream = query_block.padded_upstream + part.skipped * query_block.upstream_row;
        const T* queries = query_block.padded_queries + part.skipped * query_block.query_row;
        T* d_query = d_queries + part.skipped * padded_dim;
        if (to.bias) add_bias_gradients(at, span, workspace);
        if (to.bias_of_keys) add_sums_of_keys(at, workspace.gradients, workspace.d_biases + part.offset);
        if (units.cap > 0)
            each_vector<T>(
                at, [&](int i) { store(workspace.gradients + i, load(workspace.gradients + i) * load(workspace.softcap_slopes + i)); });
        if (plain) {
            multiply(workspace.weights, tile, Index{1}, upstream, query_block.upstream_row, d_values, padded_value_dim, at.keys,
                     at.rows, static_cast<int>(padded_value_dim), true);
            multiply(workspace.gradients, tile, Index{1}, queries, query_block.query_row, d_keys, padded_dim, at.keys, at.rows,
                     static_cast<int>(padded_dim), true);
            multiply(workspace.gradients, Index{1}, tile, part.padded_keys, part.key_row, d_query, padded_dim, at.rows, at.keys,
                     static_cast<int>(padded_dim), true);
            return;
        }
        // Pair by pair if a number is not finite, skipping masked pairs: 0 * NaN is NaN.
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r++) {
                int i = c * QUERIES + r;
                if (workspace.unmasked[i] == 0) continue;
                accumulate_keys<T, 1>(workspace.weights + i, upstream + r * query_block.upstream_row, 0, padded_value_dim,
                                      d_values + c * padded_value_dim);
                accumulate_keys<T, 1>(workspace.gradients + i, queries + r * query_block.query_row, 0, padded_dim,
                                      d_keys + c * padded_dim);
                accumulate_keys<T, 1>(workspace.gradients + i, part.padded_keys + c * part.key_row, 0, padded_dim,
                                      d_query + r * padded_dim);
            }
    }

    // The derivative of the softcap: 1 - tanh^2.
    static void save_slopes(const Tile& at, const DotWorkspace<T>& workspace) {
        each_vector<T>(at, [&](int i) {
            Vector<T> capped = hyperbolic_tangent<T>(load(workspace.weights + i));
            store(workspace.softcap_slopes + i, 1 - capped * capped);
        });
    }

    // Total scores become weights, and gradients of weights those of scores, under a softmax weight * (gradient - delta). Both are 0 for
    // pairs that are masked, by a mask or by a bias of -inf, whose `unmasked` is 0.
    void back_through_normalizer(const Part& part, const DotBlock<T>& query_block, const DotWorkspace<T>& workspace) const {
        constexpr T NEVER = -__builtin_inf();
        const Tile& at = part.at;
        bool careful = part.coverage == Coverage::partial || inputs.bias.data, dropping = inputs.dropout > 0;
        if (careful)
            each_vector<T>(at, [&](int i) {
                store(workspace.unmasked + i, load(workspace.weights + i) == NEVER ? Vector<T>{} : broadcast(T(1)));
            });
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            Vector<T> base = load(query_block.bases + part.skipped + r),
                      inverse_sum = load(query_block.inverse_sums + part.skipped + r);
            Vector<T> delta = load(query_block.deltas + part.skipped + r);
            for (int c = 0; c < at.keys; c++) {
                int i = c * QUERIES + r;
                Vector<T> score = load(workspace.weights + i), gradient = load(workspace.gradients + i);
                Vector<T> weight = Rule::template weight<T>(score, base, inverse_sum);
                store(workspace.weights + i, weight);
                if (dropping) continue;
                gradient = Rule::template gradient<T>(weight, gradient, delta, inverse_sum);
                store(workspace.gradients + i, careful ? (score == NEVER ? Vector<T>{} : gradient) : gradient);
            }
        }
        if (dropping) back_through_dropout(part, query_block, workspace);
    }

    void back_through_dropout(const Part& part, const DotBlock<T>& query_block, const DotWorkspace<T>& workspace) const {
        const Tile& at = part.at;
        T* dropout_factors = workspace.spare;
        each_vector<T>(at, [&](int i) { store(dropout_factors + i, broadcast(T(1))); });
        apply_dropout_transposed(inputs, at, dropout_factors);
        bool careful = part.coverage == Coverage::partial || inputs.bias.data;
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r += WIDTH<T>) {
                int i = c * QUERIES + r;
                Vector<T> weight = load(workspace.weights + i), factor = load(dropout_factors + i);
                Vector<T> gradient = Rule::template gradient<T>(weight, factor * load(workspace.gradients + i),
                                                                load(query_block.deltas + part.skipped + r),
                                                                load(query_block.inverse_sums + part.skipped + r));
                store(workspace.weights + i, weight * factor);
                store(workspace.gradients + i,
                      careful ? (load(workspace.unmasked + i) == T(0) ? Vector<T>{} : gradient) : gradient);
            }
    }

    void add_bias_gradients(const Tile& at, Index span, const DotWorkspace<T>& workspace) {
        const Matrix& bias = inputs.bias;
        T inverse_temperature = inputs.inverse_temperature ? static_cast<T>(inputs.inverse_temperature[at.entry]) : T(1);
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.offsets[at.entry] + at.row * bias.row + at.key * bias.column;
        transpose(workspace.gradients, Index{QUERIES}, at.keys, at.rows, workspace.spare, Index{KEYS});
        for (int r = 0; r < at.rows; r++)
            for (int c = 0; c < at.keys; c++)
                into[r * bias.row + c * bias.column] += inverse_temperature * workspace.spare[r * KEYS + c];
    }

    // From total scores back to products of the original queries and keys.
    T factor(Index entry) const {
        return static_cast<T>(score.scale[entry] * (inputs.inverse_temperature ? inputs.inverse_temperature[entry] : 1));
    }

    // The first blocks of queries set a tile's gradients, later blocks add to them.
    void put(const Tile& at, bool first, const DotWorkspace<T>& workspace) const {
        T times = factor(at.entry);
        if (to.bias_of_keys) {
            T* d_bias = static_cast<T*>(to.bias_of_keys) + at.entry * inputs.keys + at.key;
            const double of_bias = inputs.inverse_temperature ? inputs.inverse_temperature[at.entry] : 1;
            for (int c = 0; c < at.keys; c++) d_bias[c] = (first ? T(0) : d_bias[c]) + static_cast<T>(of_bias) * workspace.d_biases[c];
        }
        for (int c = 0; c < at.keys; c++) {
            T *d_key = result_row<T>(to.key, at.entry, at.key + c, inputs.keys, inputs.head_dim),
              *tile_key = workspace.d_keys + c * padded_dim;
            T *d_value = result_row<T>(to.value, at.entry, at.key + c, inputs.keys, inputs.value_dim),
              *tile_value = workspace.d_values + c * padded_value_dim;
            if (first) {
                put_row(tile_key, times, inputs.head_dim, d_key), put_row(tile_value, T(1), inputs.value_dim, d_value);
                continue;
            }
            for (Index d = 0; d < inputs.head_dim; d++) d_key[d] += tile_key[d] * times;
            for (Index e = 0; e < inputs.value_dim; e++) d_value[e] += tile_value[e];
        }
    }

    void join(Index entry, Index slot, Index block) {
        T* total = sums_of(slot, 0, block);
        for (Index span = 1; span < spans; span++) add(sums_of(slot, span, block), QUERIES * padded_dim, total);
        const DotBlock<T>& query_block = block_of(slot, block);
        for (int r = 0; r < query_block.mask.rows; r++) {
            T* d_query = result_row<T>(to.query, entry, query_block.mask.row + r, inputs.queries, inputs.head_dim);
            put_row(total + r * padded_dim, factor(entry), inputs.head_dim, d_query);
        }
    }
};

}  // namespace

template <class T>
void dot_gradients(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Gradients& to) {
    DotBackward<T, SoftmaxGradient>(inputs, score, saved, to).run();
}

template <class T>
void elementwise_dot_gradients(const Inputs& inputs, const Score& score, Normalizer normalizer, const SavedDotForward& saved,
                               const Gradients& to) {
    if (normalizer == Normalizer::sigmoid)
        DotBackward<T, ElementwiseGradient<SigmoidRule>>(inputs, score, saved, to).run();
    else
        DotBackward<T, ElementwiseGradient<SumRule>>(inputs, score, saved, to).run();
}

template void dot_gradients<float>(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
template void dot_gradients<double>(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
template void elementwise_dot_gradients<float>(const Inputs&, const Score&, Normalizer, const SavedDotForward&, const Gradients&);
template void elementwise_dot_gradients<double>(const Inputs&, const Score&, Normalizer, const SavedDotForward&, const Gradients&);

}  // namespace overt::OVERT_LEVEL
