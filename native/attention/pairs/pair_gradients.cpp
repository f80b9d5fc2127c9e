// The backward pass of pair_forward.cpp: the weights of a tile are recomputed; five products of pairs give its scores and the gradients of
// weights, values, keys and queries. As DotBackward: keys are distributed among threads; each sums gradients of the queries separately.
#include <new>

#include "attention/gradients/gradient_workspace.hpp"
#include "attention/pairs/pair_tiles.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr Index BLOCKS_AT_ONCE = 16;  // blocks of queries in memory at once
constexpr int LANES = PAIR_TERMS;     // queries are terms of the gradients of keys and values

// A block of queries, shared by all threads: woven along features, and along its rows.
struct PairBlock {
    TransposedMask<float> mask;
    // (dim / 2, QUERIES) of both, (QUERIES / 2, dim) of both
    Word *queries = nullptr, *upstream = nullptr, *query_rows = nullptr, *upstream_rows = nullptr;
    bool finite = true;
    float bases[QUERIES] = {}, inverse_sums[QUERIES] = {}, deltas[QUERIES] = {};
};

class PairBackward {
    const Inputs& inputs;
    const Score& score;
    const SavedDotForward& saved;
    const Gradients& to;
    bool overlapping;  // whether several pairs share an element of the bias
    Team team;
    Index at_once;  // entries that are in memory at once
    Index dim, value_dim, tiles, spans, blocks, block_words, sums_size, workspace_words;
    Scratch<Word> workspaces, rows;
    Scratch<float> d_queries, biases;
    Scratch<PairBlock> table;

    // One thread's memory for a tile of keys and a block of queries.
    struct Workspace {
        Half *keys, *values, *transposed;                   // (KEYS, dim), (KEYS, value_dim), (dim, KEYS)
        float *d_keys, *d_values;                           // (KEYS, dim), (KEYS, value_dim)
        float *weights, *gradients, *slopes, *factors, *spare;  // transposed tiles, two of the last
        Half *weight_rows, *gradient_rows;
        Word* gradient_pairs;
        std::uint8_t *allowed, *masked;
        static Index words(Index dim, Index value_dim) { return KEYS * (2 * dim + 3 * value_dim / 2) + 9 * TRANSPOSED_TILE + 64; }
        Workspace(Word* memory, Index dim, Index value_dim)
            : keys(reinterpret_cast<Half*>(memory)), values(keys + KEYS * dim), transposed(values + KEYS * value_dim),
              d_keys(reinterpret_cast<float*>(transposed + KEYS * dim)), d_values(d_keys + KEYS * dim),
              weights(d_values + KEYS * value_dim), gradients(weights + TRANSPOSED_TILE), slopes(gradients + TRANSPOSED_TILE),
              factors(slopes + TRANSPOSED_TILE), spare(factors + TRANSPOSED_TILE),
              weight_rows(reinterpret_cast<Half*>(spare + 2 * TRANSPOSED_TILE)), gradient_rows(weight_rows + TRANSPOSED_TILE),
              gradient_pairs(reinterpret_cast<Word*>(gradient_rows + TRANSPOSED_TILE)),
              allowed(reinterpret_cast<std::uint8_t*>(gradient_pairs + TRANSPOSED_TILE / 2)), masked(allowed + MASK_SIZE) {}
    };

   public:
    PairBackward(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Gradients& to)
        : inputs(inputs), score(score), saved(saved), to(to),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          at_once(entries_at_once(team, to.bias)), dim(rounded_up<Index>(inputs.head_dim, PAIR_TERMS)),
          value_dim(rounded_up<Index>(inputs.value_dim, PAIR_TERMS)), tiles(count(inputs.keys, KEYS)),
          spans(spans_at_once(team, at_once, tiles)), blocks(min_of(count(inputs.queries, QUERIES), BLOCKS_AT_ONCE)),
          block_words(QUERIES * (dim + value_dim)), sums_size(QUERIES * dim), workspace_words(Workspace::words(dim, value_dim)),
          workspaces(team.threads * workspace_words), rows(at_once * blocks * block_words),
          d_queries(at_once * spans * blocks * sums_size), biases(overlapping ? spans * to.bias_size : 0), table(at_once * blocks) {}

    void run() {
        clear(biases.data, overlapping ? spans * to.bias_size : 0);
        if (team.entry_groups > 1)
            team.each_entry([this](Index entry, int slot) { some(entry, 1, slot); });
        else
            for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once)
                some(entry, min_of(at_once, team.entries - entry), 0);
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<float*>(to.bias));
    }

   private:
    PairBlock& block_of(Index slot, Index block) const { return table.data[slot * blocks + block % blocks]; }
    float* sums_of(Index slot, Index span, Index block) const {
        return d_queries.data + ((slot * spans + span) * blocks + block % blocks) * sums_size;
    }

    // Consecutive entries, from this slot on.
    void some(Index entry, Index entry_count, Index slot) {
        Index all = count(inputs.queries, QUERIES), first = 0;
        do {
            Index block_count = min_of(blocks, all - first);
            team.each(entry_count * block_count, [&](Index item, int thread) {
                Index memory = team.entry_groups > 1 ? slot : thread;
                Workspace workspace(workspaces.data + memory * workspace_words, dim, value_dim);
                prepare(entry + item / block_count, slot + item / block_count, first + item % block_count, workspace);
            });
            team.each(entry_count * spans, [&](Index item, int thread) {
                Index own = item / spans, memory = team.entry_groups > 1 ? slot : thread;
                Workspace workspace(workspaces.data + memory * workspace_words, dim, value_dim);
                Tiles registers;
                against_keys(entry + own, slot + own, first, block_count, item % spans, workspace);
            });
            team.each(entry_count * block_count, [&](Index item, int thread) {
                Index memory = team.entry_groups > 1 ? slot : thread;
                Workspace workspace(workspaces.data + memory * workspace_words, dim, value_dim);
                join(entry + item / block_count, slot + item / block_count, first + item % block_count, workspace);
            });
            first += block_count;
        } while (first < all && !interrupted(inputs));
    }

    // Weaves a block of queries and their upstream gradients, and computes delta_i = sum_e output_ie upstream_ie.
    void prepare(Index entry, Index slot, Index block, const Workspace& workspace) {
        Word* memory = rows.data + (slot * blocks + block % blocks) * block_words;
        PairBlock& result = *new (&block_of(slot, block)) PairBlock{TransposedMask<float>(inputs, entry, block)};
        result.queries = memory, result.upstream = memory + QUERIES * dim / 2, result.query_rows = result.upstream + QUERIES * value_dim / 2;
        result.upstream_rows = result.query_rows + QUERIES * dim / 2;
        int count = result.mask.rows;
        HalfRows queries(inputs.query, entry, result.mask.row, count, QUERIES, inputs.head_dim, workspace.keys);
        transpose_words(queries.words(), queries.row / 2, QUERIES, dim / 2, result.queries, QUERIES);
        weave(queries.data, queries.row, QUERIES, dim, result.query_rows, dim);
        Index start = entry * inputs.queries + result.mask.row;
        const float* upstream = static_cast<const float*>(saved.upstream) + start * inputs.value_dim;
        Half* halves = workspace.values;
        __builtin_memset(halves, 0, static_cast<std::size_t>(QUERIES * value_dim) * sizeof(Half));
        for (int r = 0; r < count; r++) round_row(upstream + r * inputs.value_dim, inputs.value_dim, halves + r * value_dim);
        transpose_words(reinterpret_cast<const Word*>(halves), value_dim / 2, QUERIES, value_dim / 2, result.upstream, QUERIES);
        weave(halves, value_dim, QUERIES, value_dim, result.upstream_rows, value_dim);
        if (inputs.mask.count || inputs.bias.data)
            result.finite = all_finite_halves(queries.data, queries.row, QUERIES, dim) && all_finite_halves(halves, value_dim, QUERIES, value_dim);
        const float* sums = static_cast<const float*>(saved.sums) + 2 * entry * inputs.queries + result.mask.row;
        for (int r = 0; r < QUERIES; r++) {
            bool there = r < count;
            const float* out = static_cast<const float*>(saved.output) + (start + r) * inputs.value_dim;
            float total = there ? sums[inputs.queries + r] : 0, delta = 0;
            for (Index e = 0; there && e < inputs.value_dim; e++) delta += out[e] * upstream[r * inputs.value_dim + e];
            bool dead = !there || total == 0;
            result.bases[r] = dead ? 0 : sums[r], result.inverse_sums[r] = dead ? 0 : 1 / total, result.deltas[r] = delta;
            if (there && to.delta) static_cast<float*>(to.delta)[start + r] = delta;
        }
    }

    // The current blocks against every `spans`-th tile of keys.
    void against_keys(Index entry, Index slot, Index first, Index block_count, Index span, const Workspace& workspace) {
        for (Index block = first; block < first + block_count; block++) clear(sums_of(slot, span, block), sums_size);
        for (Index tile = span; tile < tiles && !interrupted(inputs); tile += spans) {
            Tile all{entry, 0, tile * KEYS, 0, size_of(tile, KEYS, inputs.keys)};
            int whole = rounded_up(all.keys, PAIR_TERMS);
            clear(workspace.d_keys, KEYS * dim), clear(workspace.d_values, KEYS * value_dim);
            HalfRows keys(inputs.key, entry, all.key, all.keys, whole, inputs.head_dim, workspace.keys);
            HalfRows values(inputs.value, entry, all.key, all.keys, whole, inputs.value_dim, workspace.values);
            transpose_halves(keys, whole, dim, workspace.transposed, reinterpret_cast<Word*>(workspace.weights));
            for (Index block = first; block < first + block_count && !interrupted(inputs); block++) {
                PairBlock& query_block = block_of(slot, block);
                Tile at = all;
                while (at.key + PAIR_TERMS <= query_block.mask.low) at.key += PAIR_TERMS;
                for (Index end = min_of(all.key + all.keys, query_block.mask.high); at.key < end; at.key += at.keys) {
                    Coverage coverage = query_block.mask.next(at, end, workspace.allowed);
                    if (coverage == Coverage::none) continue;
                    whole_lanes(query_block.mask.row, query_block.mask.rows, LANES, at);
                    Part part{at, coverage, static_cast<int>(at.row - query_block.mask.row), rounded_up(at.rows, LANES),
                              rounded_up(at.keys, PAIR_TERMS), at.key - all.key, keys, values};
                    pairs(part, query_block, span, sums_of(slot, span, block), workspace);
                }
            }
            put(all, first == 0, workspace);
        }
    }

    // Some keys against some queries of a block: `lanes` of queries and `terms` of keys are computed.
    struct Part {
        Tile at;
        Coverage coverage;
        int skipped, lanes, terms;
        Index offset;  // keys of the tile before these
        const HalfRows &keys, &values;
        const Half* key_data() const { return keys.data + offset * keys.row; }
        const Half* value_data() const { return values.data + offset * values.row; }
    };

    void pairs(const Part& part, const PairBlock& block, Index span, float* d_query, const Workspace& workspace) {
        const Tile& at = part.at;
        const int D = static_cast<int>(dim), E = static_cast<int>(value_dim);
        multiply_pairs(part.key_data(), part.keys.row, block.queries + part.skipped, QUERIES, workspace.weights, QUERIES, part.terms, D,
                       part.lanes, false);
        multiply_pairs(part.value_data(), part.values.row, block.upstream + part.skipped, QUERIES, workspace.gradients, QUERIES,
                       part.terms, E, part.lanes, false);
        back_through_softmax(part, block, span, workspace);
        if (!(part.coverage == Coverage::full && at.keys == part.terms && !inputs.bias.data) &&
            !(block.finite && all_finite_halves(part.key_data(), part.keys.row, part.terms, inputs.head_dim)))
            return add_unmasked(part, block, d_query, workspace);
        multiply_pairs(workspace.weight_rows, QUERIES, block.upstream_rows + part.skipped / 2 * value_dim, value_dim,
                       workspace.d_values + part.offset * value_dim, value_dim, part.terms, part.lanes, E, true);
        multiply_pairs(workspace.gradient_rows, QUERIES, block.query_rows + part.skipped / 2 * dim, dim,
                       workspace.d_keys + part.offset * dim, dim, part.terms, part.lanes, D, true);
        multiply_pairs(workspace.transposed + part.offset, KEYS, workspace.gradient_pairs, QUERIES, d_query + part.skipped, QUERIES, D,
                       part.terms, part.lanes, true);
    }

    // Products become weights and gradients of scores, rounded: rows of both, and pairs of the latter.
    void back_through_softmax(const Part& part, const PairBlock& block, Index span, const Workspace& workspace) {
        const Tile& at = part.at;
        Units<float> units(inputs, score, at.entry);
        bool careful = part.coverage == Coverage::partial || inputs.bias.data, capped = units.cap > 0, dropping = inputs.dropout > 0;
        float scale = units.scale;
        if (careful || capped) {
            each_vector<float>(at, [&](int i) { store(workspace.weights + i, load(workspace.weights + i) * scale); });
            if (capped) each_vector<float>(at, [&](int i) {
                Vector<float> ratio = hyperbolic_tangent<float>(load(workspace.weights + i));
                store(workspace.slopes + i, 1 - ratio * ratio);
            });
            finish_transposed_scores(inputs, units, at, part.coverage, block.mask, workspace.allowed, workspace.weights, workspace.spare);
            scale = 1;
        }
        if (dropping) {
            each_vector<float>(at, [&](int i) { store(workspace.factors + i, broadcast(1.0f)); });
            apply_dropout_transposed(inputs, at, workspace.factors);
        }
        // Steps that only some calls need run in separate passes.
        const bool plain = !careful && !capped && !dropping && !to.bias && at.keys == part.terms;
        for (int r = 0; r < part.lanes; r += WIDTH<float>) {
            Lane lane{load(block.bases + part.skipped + r), load(block.inverse_sums + part.skipped + r),
                      load(block.deltas + part.skipped + r), scale};
            if (plain) {
                lane.compute(workspace, r, part.terms);
                continue;
            }
            int c = 0;
            for (; c < at.keys; c++) lane.refine(workspace, c * QUERIES + r, careful, dropping);
            for (; c < part.terms; c++)
                store(workspace.weights + c * QUERIES + r, Vector<float>{}), store(workspace.gradients + c * QUERIES + r, Vector<float>{});
        }
        if (plain) return;
        if (to.bias) add_bias_gradients(at, span, workspace);
        if (capped)
            each_vector<float>(at, [&](int i) { store(workspace.gradients + i, load(workspace.gradients + i) * load(workspace.slopes + i)); });
        round_tile(part, workspace);
    }

    // A vector of queries: weight = 2^(t - base) / sum, and the gradient of its score weight * (gradient - delta).
    struct Lane {
        Vector<float> base, inverse_sum, delta;
        float scale;
        // Of all keys at once: rounded rows, and pairs.
        OVERT_INLINE_MEMBER void compute(const Workspace& workspace, int r, int terms) const {
            const float *scores = workspace.weights + r, *upstream = workspace.gradients + r;
            Half *weights = workspace.weight_rows + r, *gradients = workspace.gradient_rows + r;
            Word* pairs = workspace.gradient_pairs + r;
            for (int i = 0; i < terms * QUERIES; i += 2 * QUERIES, pairs += QUERIES) {
                const int next = i + QUERIES;
                Vector<float> first = rough_power(load(scores + i) * scale - base) * inverse_sum;
                Vector<float> second = rough_power(load(scores + next) * scale - base) * inverse_sum;
                round_two(first, second, weights + i, weights + next);
                first *= load(upstream + i) - delta, second *= load(upstream + next) - delta;
                store(reinterpret_cast<float*>(pairs), (Vector<float>)round_two(first, second, gradients + i, gradients + next));
            }
        }
        void refine(const Workspace& workspace, int i, bool careful, bool dropping) const {
            constexpr float NEVER = -__builtin_inff();
            Vector<float> score = load(workspace.weights + i), weight = power_of_two<float>(score * scale - base) * inverse_sum;
            Vector<float> factor = dropping ? load(workspace.factors + i) : broadcast(1.0f);
            Vector<float> gradient = weight * (factor * load(workspace.gradients + i) - delta);
            store(workspace.weights + i, dropping ? weight * factor : weight);
            store(workspace.gradients + i, careful ? (score == NEVER ? Vector<float>{} : gradient) : gradient);
            for (int l = 0; careful && l < WIDTH<float>; l++) workspace.masked[i + l] = score[l] == NEVER;
        }
    };

    void round_tile(const Part& part, const Workspace& workspace) const {
        for (int c = 0; c < part.terms; c += 2)
            for (int r = 0; r < part.lanes; r += WIDTH<float>) {
                int i = c * QUERIES + r, next = i + QUERIES;
                round_two(load(workspace.weights + i), load(workspace.weights + next), workspace.weight_rows + i, workspace.weight_rows + next);
                Bits<float> pair = round_two(load(workspace.gradients + i), load(workspace.gradients + next), workspace.gradient_rows + i,
                                             workspace.gradient_rows + next);
                store(reinterpret_cast<float*>(workspace.gradient_pairs + c / 2 * QUERIES + r), (Vector<float>)pair);
            }
    }

    // Pair by pair if a number is not finite, skipping masked pairs: 0 * NaN is NaN.
    void add_unmasked(const Part& part, const PairBlock& block, float* d_query, const Workspace& workspace) const {
        auto half = [](const Word* pairs, Index row, int r, Index d) {
            return bfloat16_to_float(static_cast<Half>(pairs[r / 2 * row + d] >> (r % 2 * 16)));
        };
        bool careful = part.coverage == Coverage::partial || inputs.bias.data;
        for (int c = 0; c < part.at.keys; c++)
            for (int r = 0; r < part.at.rows; r++) {
                int i = c * QUERIES + r, query = part.skipped + r;
                if (careful && workspace.masked[i]) continue;
                float weight = bfloat16_to_float(workspace.weight_rows[i]), gradient = bfloat16_to_float(workspace.gradient_rows[i]);
                float *d_value = workspace.d_values + (part.offset + c) * value_dim, *d_key = workspace.d_keys + (part.offset + c) * dim;
                for (Index e = 0; e < inputs.value_dim; e++) d_value[e] += weight * half(block.upstream_rows, value_dim, query, e);
                for (Index d = 0; d < inputs.head_dim; d++) {
                    d_key[d] += gradient * half(block.query_rows, dim, query, d);
                    d_query[d * QUERIES + query] += gradient * bfloat16_to_float(part.key_data()[c * part.keys.row + d]);
                }
            }
    }

    void add_bias_gradients(const Tile& at, Index span, const Workspace& workspace) {
        const Matrix& bias = inputs.bias;
        float inverse_temperature = inputs.inverse_temperature ? static_cast<float>(inputs.inverse_temperature[at.entry]) : 1.0f;
        float* into = overlapping ? biases.data + span * to.bias_size : static_cast<float*>(to.bias);
        into += bias.offsets[at.entry] + at.row * bias.row + at.key * bias.column;
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r++)
                into[r * bias.row + c * bias.column] += inverse_temperature * workspace.gradients[c * QUERIES + r];
    }

    // From total scores back to products of the original queries and keys.
    float factor(Index entry) const {
        return static_cast<float>(score.scale[entry] * (inputs.inverse_temperature ? inputs.inverse_temperature[entry] : 1));
    }

    // The first blocks of queries set a tile's gradients, later blocks add to them.
    void put(const Tile& at, bool first, const Workspace& workspace) const {
        float times = factor(at.entry);
        for (int c = 0; c < at.keys; c++) {
            float *d_key = result_row<float>(to.key, at.entry, at.key + c, inputs.keys, inputs.head_dim), *tile_key = workspace.d_keys + c * dim;
            float *d_value = result_row<float>(to.value, at.entry, at.key + c, inputs.keys, inputs.value_dim),
                  *tile_value = workspace.d_values + c * value_dim;
            if (first) {
                put_row(tile_key, times, inputs.head_dim, d_key), put_row(tile_value, 1.0f, inputs.value_dim, d_value);
                continue;
            }
            for (Index d = 0; d < inputs.head_dim; d++) d_key[d] += tile_key[d] * times;
            for (Index e = 0; e < inputs.value_dim; e++) d_value[e] += tile_value[e];
        }
    }

    void join(Index entry, Index slot, Index block, const Workspace& workspace) {
        float* total = sums_of(slot, 0, block);
        for (Index span = 1; span < spans; span++) add(sums_of(slot, span, block), sums_size, total);
        const PairBlock& query_block = block_of(slot, block);
        for (Index d = 0; d < inputs.head_dim; d += QUERIES) {
            Index columns = min_of<Index>(QUERIES, inputs.head_dim - d);
            transpose(total + d * QUERIES, Index{QUERIES}, static_cast<int>(columns), QUERIES, workspace.spare, Index{QUERIES});
            for (int r = 0; r < query_block.mask.rows; r++)
                put_row(workspace.spare + r * QUERIES, factor(entry), columns,
                        result_row<float>(to.query, entry, query_block.mask.row + r, inputs.queries, inputs.head_dim) + d);
        }
    }
};

}  // namespace

void pair_dot_gradients(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
void pair_dot_gradients(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Gradients& to) {
    PairBackward(inputs, score, saved, to).run();
}

}  // namespace overt::OVERT_LEVEL
