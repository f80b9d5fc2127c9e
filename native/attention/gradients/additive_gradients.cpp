// Additive attention, backward. The weights of a tile are recomputed from the scores and the row's log-sum-exp, so that nothing of size
// Q x K is stored. Spans of the keys of several entries are distributed among threads; each span sums gradients of the queries separately,
// and these sums are added in order.
#include <new>

#include "attention/gradients/gradient_workspace.hpp"
#include "attention/gradients/row_normalizer.hpp"
#include "attention/scores/relu_gradients.hpp"
#include "attention/scores/tanh_gradients.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

template <class T, class ScoreGradients>
class Backward {
    const Inputs& inputs;
    const Score& score;
    const SavedForward* saved;  // of attention; nullptr if the input is the scores' gradients
    const T* score_upstream;    // (batch, Q, K)
    const Gradients& to;
    RowNormalizer<T> normalizer;
    bool overlapping;        // whether several keys share an element of the bias
    Team team;
    Index at_once;  // entries in memory at once
    int tile_keys;
    Index padded_dim, padded_value_dim, tiles, spans, chunk, query_size, key_size, workspace_size, slot_size, gradients_size;
    Scratch<T> workspaces, slot_memory, memory, biases;
    Scratch<double> sums;  // for each entry and span: of the terms, feature by feature, and of the gradients
    Scratch<ScoreGradients> table;

   public:
    Backward(const Inputs& inputs, const Score& score, const Normalization& by, const SavedForward* saved, const T* score_upstream,
             const Gradients& to)
        : inputs(inputs), score(score), saved(saved), score_upstream(score_upstream), to(to), normalizer(inputs, by),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          at_once(entries_at_once(team, to.bias)), tile_keys(keys_of_tile<T>(inputs, team, at_once)),
          padded_dim(padded<T>(inputs.head_dim)), padded_value_dim(padded<T>(inputs.value_dim)), tiles(count(inputs.keys, tile_keys)),
          spans(spans_at_once(team, at_once, tiles)), chunk(min_of(inputs.queries, CHUNK)),
          query_size(ScoreGradients(inputs, score, nullptr).query_size()),
          key_size(ScoreGradients(inputs, score, nullptr).key_size()),
          workspace_size(GradientWorkspace<T>::size(key_size, padded_dim, padded_value_dim)),
          slot_size(chunk * (query_size + padded_value_dim + spans * padded_dim + 2)), gradients_size(ScoreGradients::size(inputs)),
          workspaces(team.threads * workspace_size), slot_memory(at_once * slot_size), memory(at_once * gradients_size),
          biases(overlapping ? spans * to.bias_size : 0), sums(at_once * spans * (padded_dim + 1)), table(at_once) {
        for (Index slot = 0; slot < at_once; slot++)
            new (table.data + slot) ScoreGradients(inputs, score, memory.data + slot * gradients_size);
    }

    void run() {
        if (overlapping) clear(biases.data, spans * to.bias_size);
        if (team.entry_groups > 1)
            team.each_entry([this](Index entry, int slot) { some(entry, 1, slot); });
        else
            for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once)
                some(entry, min_of(at_once, team.entries - entry), 0);
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<T*>(to.bias));
    }

   private:
    // Consecutive entries, from this slot in memory on.
    void some(Index entry, Index entry_count, Index slot) {
        auto workspace_of = [&](int thread) {
            Index worker = team.entry_groups > 1 ? slot : thread;
            return GradientWorkspace<T>(workspaces.data + worker * workspace_size, key_size, padded_dim, padded_value_dim);
        };
        team.each(entry_count, [&](Index own, int) { begin(entry + own, slot + own); });
        Index first = 0;
        do {
            Index rows = min_of(chunk, inputs.queries - first), blocks = count(rows, ROWS);
            team.each(entry_count * blocks, [&](Index item, int thread) {
                Index own = item / blocks, block = item % blocks;
                Chunk<T> now = chunk_of(slot + own, first, rows);
                const ScoreGradients& score_gradients = table.data[slot + own];
                prepare(score_gradients, entry + own, now, block);
                if (saved && normalizer.any_large(entry + own, now.first + block * ROWS, now.first + now.rows, *saved))
                    recompute_sums(score_gradients, entry + own, now, block, workspace_of(thread));
            });
            team.each(entry_count * spans, [&](Index item, int thread) {
                Index own = item / spans, span = item % spans;
                against_keys(table.data[slot + own], entry + own, chunk_of(slot + own, first, rows), span, workspace_of(thread),
                             sums_of(slot + own, span));
            });
            team.each(entry_count * blocks, [&](Index item, int) {
                Index own = item / blocks;
                join(table.data[slot + own], entry + own, chunk_of(slot + own, first, rows), item % blocks);
            });
            first += rows;
        } while (first < inputs.queries && !interrupted(inputs));
        for (Index own = 0; own < entry_count; own++) join_weight(entry + own, slot + own);
    }

    double* sums_of(Index slot, Index span) const { return sums.data + (slot * spans + span) * (padded_dim + 1); }

    Chunk<T> chunk_of(Index slot, Index first, Index rows) const {
        return Chunk<T>(first, rows, slot_memory.data + slot * slot_size, chunk, query_size, padded_value_dim, spans * padded_dim);
    }

    void begin(Index entry, Index slot) {
        table.data[slot].begin(entry);
        clear(sums_of(slot, 0), spans * (padded_dim + 1));
    }

    // The weight's gradient, from the sums of all spans.
    void join_weight(Index entry, Index slot) const {
        for (Index d = 0; d < inputs.head_dim; d++) {
            double terms = 0, gradients = 0;
            for (Index span = 0; span < spans; span++)
                terms += sums_of(slot, span)[d], gradients += sums_of(slot, span)[padded_dim];
            result_row<T>(to.weight, entry, 0, 1, inputs.head_dim)[d] =
                static_cast<T>(table.data[slot].weight_gradient(gradients, terms));
        }
    }

    // Packs a block of queries and computes delta_i = sum_e output_ie upstream_ie.
    void prepare(const ScoreGradients& score_gradients, Index entry, const Chunk<T>& now, Index block) const {
        for (Index r = block * ROWS; r < min_of(now.rows, (block + 1) * ROWS); r++) {
            score_gradients.pack_query(now.first + r, now.queries + r * query_size);
            if (!saved) continue;
            Index row = entry * inputs.queries + now.first + r;
            const T* up = static_cast<const T*>(saved->upstream) + row * inputs.value_dim;
            T* padded_up = now.upstream + r * padded_value_dim;
            for (Index e = 0; e < padded_value_dim; e++) padded_up[e] = e < inputs.value_dim ? up[e] : T(0);
            SavedRow<T> of_row = normalizer.row(entry, now.first + r, *saved);
            static_cast<T*>(to.delta)[row] = of_row.delta;
            now.bases[r] = of_row.first, now.inverse_sums[r] = of_row.second;
        }
    }

    // For rows with a large log-sum-exp: recomputes base, sum and delta from the numbers that also enter the weights' gradients.
    void recompute_sums(const ScoreGradients& score_gradients, Index entry, const Chunk<T>& now, Index block,
                        const GradientWorkspace<T>& workspace) const {
        const Index first = block * ROWS;
        Tile at{entry, now.first + first, 0, static_cast<int>(min_of<Index>(ROWS, now.rows - first)), 0};
        RecomputedSums<T> rows[ROWS];
        for (int r = 0; r < at.rows; r++) {
            rows[r].needed = is_large(now.bases[first + r]);
            if (inputs.sink) rows[r].join(static_cast<T>(inputs.sink[entry]), T(0));
        }
        for (Index tile = 0; tile < tiles && !interrupted(inputs); tile++) {
            at.key = tile * tile_keys, at.keys = size_of(tile, tile_keys, inputs.keys);
            Coverage coverage = coverage_of(inputs, at, workspace.allowed);
            if (coverage == Coverage::none) continue;
            lay_out(score_gradients, at, workspace);
            compute_weight_gradients(at, now.upstream + first * padded_value_dim, workspace);
            each_key_group(at, coverage, workspace, [&](auto size, int r, const int* which) {
                constexpr int N = decltype(size)::COUNT;
                if (!rows[r].needed) return;
                Totals<T, N> scores = totals<N>(score_gradients, at, r, which, now.queries + (first + r) * query_size, workspace);
                for (int n = 0; n < N; n++)
                    rows[r].join(scores.of[n],
                                 workspace.dropout_factors[r * KEYS + which[n]] * workspace.scores[r * KEYS + which[n]]);
            });
        }
        for (int r = 0; r < at.rows; r++) {
            if (!rows[r].needed) continue;
            now.bases[first + r] = rows[r].base, now.inverse_sums[first + r] = 1 / rows[r].total;
            static_cast<T*>(to.delta)[entry * inputs.queries + at.row + r] = rows[r].delta / rows[r].total;
        }
    }

    // A chunk of rows against every `spans`-th tile of keys.
    void against_keys(const ScoreGradients& score_gradients, Index entry, const Chunk<T>& now, Index span,
                      GradientWorkspace<T> workspace, double* sums_of_span) {
        T* d_queries = now.d_queries + span * chunk * padded_dim;
        clear(d_queries, now.rows * padded_dim);
        for (Index tile = span; tile < tiles && !interrupted(inputs); tile += spans) {
            Tile at{entry, 0, tile * tile_keys, 0, size_of(tile, tile_keys, inputs.keys)};
            if (keys_written_directly()) workspace.d_keys = result_row<T>(to.key, entry, at.key, inputs.keys, padded_dim);
            if (values_written_directly())
                workspace.d_values = result_row<T>(to.value, entry, at.key, inputs.keys, padded_value_dim);
            bool packed = false;
            for (Index first = 0; first < now.rows; first += ROWS) {
                at.row = now.first + first, at.rows = static_cast<int>(min_of<Index>(ROWS, now.rows - first));
                Coverage coverage = coverage_of(inputs, at, workspace.allowed);
                if (coverage == Coverage::none) continue;
                if (!packed) lay_out(score_gradients, at, workspace);
                packed = true;
                compute_weight_gradients(at, now.upstream + first * padded_value_dim, workspace);
                clear(workspace.d_weights, padded_dim);
                sums_of_span[padded_dim] +=
                    block(score_gradients, at, coverage, now, first, d_queries + first * padded_dim, span, workspace);
                for (Index d = 0; d < padded_dim; d++) sums_of_span[d] += workspace.d_weights[d];
                if (saved) add_values(at, now.upstream + first * padded_value_dim, padded_value_dim, workspace);
            }
            put(score_gradients, at, now.first == 0, packed, workspace);
        }
    }

    // Packs a tile's keys, transposes its values and clears its sums.
    void lay_out(const ScoreGradients& score_gradients, const Tile& at, const GradientWorkspace<T>& workspace) const {
        score_gradients.pack_keys(at.key, at.keys, workspace.keys);
        if (saved && !single_block()) {
            T* spare = workspace.d_values;
            for (int c = 0; c < KEYS; c++) {
                const T* value = c < at.keys ? row_of(inputs.value, at.entry, at.key + c, inputs.value_dim, spare) : nullptr;
                for (Index e = 0; e < inputs.value_dim; e++) workspace.values[e * KEYS + c] = value ? value[e] : T(0);
            }
        }
        clear(workspace.d_keys, at.keys * padded_dim);
        clear(workspace.d_values, at.keys * padded_value_dim);
    }

    // One block of rows: transposing the values would take longer than multiplying them.
    bool single_block() const { return inputs.queries <= ROWS; }

    // With one block of rows, a tile's sums are accumulated in the results themselves, if their columns are whole vectors.
    bool keys_written_directly() const { return single_block() && padded_dim == inputs.head_dim; }
    bool values_written_directly() const { return saved && single_block() && padded_value_dim == inputs.value_dim; }

    // The gradients of a tile's weights, upstream_i . value_j, stored as scores; its biases; the factors of dropout.
    void compute_weight_gradients(const Tile& at, const T* upstream, const GradientWorkspace<T>& workspace) const {
        if (saved && single_block())
            dots(upstream, padded_value_dim, Values<T>(inputs, at, workspace.values), at.rows, at.keys, workspace.scores);
        else if (saved)
            multiply(upstream, padded_value_dim, Index{1}, workspace.values, Index{KEYS}, workspace.scores, Index{KEYS}, at.rows,
                     static_cast<int>(inputs.value_dim), at.keys, false);
        clear(workspace.weights, at.rows * KEYS);
        clear(workspace.biases, at.rows * KEYS);
        if (inputs.bias.data) add_bias(inputs.bias, at, workspace.biases);
        for (int i = 0; i < at.rows * KEYS; i++) workspace.dropout_factors[i] = 1;
        for (int r = 0; r < at.rows && inputs.dropout > 0; r++)
            apply_dropout(inputs, at.entry, at.row + r, at.key, at.keys, workspace.dropout_factors + r * KEYS);
    }

    // A block of rows against a tile.
    T block(const ScoreGradients& score_gradients, const Tile& at, Coverage coverage, const Chunk<T>& now, Index first,
            T* d_queries, Index span, const GradientWorkspace<T>& workspace) {
        T total = 0;
        each_key_group(at, coverage, workspace, [&](auto size, int r, const int* which) {
            total += key_group_gradients<decltype(size)::COUNT>(score_gradients, at, r, which, now, first + r,
                                                                d_queries + r * padded_dim, span, workspace);
        });
        return total;
    }

    // work(size, row, which): a group of keys at a time for all rows, so that these and their sums stay in the nearest cache.
    template <class Work>
    void each_key_group(const Tile& at, Coverage coverage, const GradientWorkspace<T>& workspace, Work work) const {
        int size = padded_dim * static_cast<Index>(sizeof(T)) <= 1024   ? KEY_GROUP
                   : padded_dim * static_cast<Index>(sizeof(T)) <= 2048 ? KEY_GROUP / 2
                                                                        : KEY_GROUP / 4;
        for (int c = 0; c < at.keys; c += size)
            for (int r = 0; r < at.rows; r++) {
                int which[KEY_GROUP], count_allowed = choose(at, r, coverage, c, min_of(size, at.keys - c), which, workspace);
                in_groups(which, count_allowed, [&](auto group, const int* keys) { work(group, r, keys); });
            }
    }

    // The keys of a group that a row may attend to: masked keys are never read.
    int choose(const Tile& at, int r, Coverage coverage, int first, int count, int* which,
               const GradientWorkspace<T>& workspace) const {
        Index row = at.entry * inputs.queries + at.row + r;
        if (saved && normalizer.is_softmax() && static_cast<const T*>(saved->log_sum_exp)[row] == -__builtin_inf()) return 0;
        int count_allowed = 0;
        if (coverage == Coverage::full && !score_upstream && !inputs.bias.data)
            for (; count_allowed < count; count_allowed++) which[count_allowed] = first + count_allowed;
        for (int c = first + count_allowed; c < first + count; c++) {
            which[count_allowed] = c;
            bool masked = coverage == Coverage::partial && !workspace.allowed[r * KEYS + c];
            count_allowed += !masked && (score_upstream ? score_upstream[row * inputs.keys + at.key + c] != 0
                                                        : workspace.biases[r * KEYS + c] != -__builtin_inf());
        }
        return count_allowed;
    }

    // One row and N keys: their terms, saved, and their total scores, or plain scores if the input is the scores' gradients.
    template <int N>
    inline Totals<T, N> totals(const ScoreGradients& score_gradients, const Tile& at, int r, const int* which, const T* query,
                            const GradientWorkspace<T>& workspace) const {
        constexpr int HALF = N > 4 ? N / 2 : N;
        Totals<T, N> result;
        for (int n = 0; n < N; n += HALF)
            score_gradients.template terms<HALF>(query, workspace.keys, which + n, workspace.saved_terms + n * padded_dim,
                                                 result.of + n);
        if (score_upstream) return result;
        T unit = normalizer.unit(at.entry);
        // Adding 0 keeps a compiler from contracting this product with the later subtraction: a total score is rounded equally everywhere.
        for (int n = 0; n < N; n++)
            result.of[n] = multiply_add(unit, result.of[n] + workspace.biases[r * KEYS + which[n]], T(0));
        return result;
    }

    // The gradients of query, keys and weight from those of N scores.
    template <int N>
    T key_group_gradients(const ScoreGradients& score_gradients, const Tile& at, int r, const int* which, const Chunk<T>& now,
                          Index chunk_row, T* d_query, Index span, const GradientWorkspace<T>& workspace) {
        Totals<T, N> scores = totals<N>(score_gradients, at, r, which, now.queries + chunk_row * query_size, workspace);
        Index row = at.entry * inputs.queries + at.row + r;
        T gradients[N], total = 0;
        if (score_upstream)
            for (int n = 0; n < N; n++) gradients[n] = score_upstream[row * inputs.keys + at.key + which[n]];
        else
            back_through_normalizer<N>(at, r, which, now.bases[chunk_row], now.inverse_sums[chunk_row], scores.of, gradients,
                                       workspace);
        score_gradients.template accumulate_gradients<N>(gradients, which, workspace.saved_terms, d_query, workspace.d_keys,
                                                         workspace.d_weights);
        for (int n = 0; n < N; n++) total += gradients[n];
        if (to.bias) add_bias_gradients(at, r, which, N, gradients, span);
        return total;
    }

    // Backward through the normalizer, a softmax: d_score = inverse_temperature * weight * (d_weight - delta).
    template <int N>
    void back_through_normalizer(const Tile& at, int r, const int* which, T first, T second, T* scores, T* gradients,
                                 const GradientWorkspace<T>& workspace) const {
        T unit = normalizer.gradient_unit(at.entry), slopes[N + WIDTH<T>];
        T delta = static_cast<const T*>(to.delta)[at.entry * inputs.queries + at.row + r];
        normalizer.template weigh<N>(at.entry, first, second, scores, slopes);
        for (int n = 0; n < N; n++) {
            int at_tile = r * KEYS + which[n];
            gradients[n] = unit * slopes[n] * (workspace.dropout_factors[at_tile] * workspace.scores[at_tile] - delta);
            workspace.weights[at_tile] = workspace.dropout_factors[at_tile] * scores[n];
        }
    }

    void add_bias_gradients(const Tile& at, int r, const int* which, int count, const T* gradients, Index span) {
        const Matrix& bias = inputs.bias;
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.offsets[at.entry] + (at.row + r) * bias.row + at.key * bias.column;
        for (int n = 0; n < count; n++) into[which[n] * bias.column] += gradients[n];
    }

    // Adds a tile's sums to the gradients of its keys and values; the first chunk sets them.
    void put(const ScoreGradients& score_gradients, const Tile& at, bool first, bool packed,
             const GradientWorkspace<T>& workspace) const {
        if (!packed && !first) return;
        if (!packed) {
            clear(result_row<T>(to.key, at.entry, at.key, inputs.keys, inputs.head_dim), at.keys * inputs.head_dim);
            if (saved) clear(result_row<T>(to.value, at.entry, at.key, inputs.keys, inputs.value_dim), at.keys * inputs.value_dim);
            return;
        }
        for (int c = 0; c < at.keys; c++) {
            T* d_key = result_row<T>(to.key, at.entry, at.key + c, inputs.keys, inputs.head_dim);
            score_gradients.input_gradients(workspace.d_keys + c * padded_dim, !first, d_key);
            if (!saved || values_written_directly()) continue;
            T* d_value = result_row<T>(to.value, at.entry, at.key + c, inputs.keys, inputs.value_dim);
            if (first) clear(d_value, inputs.value_dim);
            add(workspace.d_values + c * padded_value_dim, inputs.value_dim, d_value);
        }
    }

    void join(const ScoreGradients& score_gradients, Index entry, const Chunk<T>& now, Index block) const {
        for (Index r = block * ROWS; r < min_of(now.rows, (block + 1) * ROWS); r++) {
            T* d_query = result_row<T>(to.query, entry, now.first + r, inputs.queries, inputs.head_dim);
            T* total = now.d_queries + r * padded_dim;
            for (Index span = 1; span < spans; span++)
                add(now.d_queries + (span * chunk + r) * padded_dim, padded_dim, total);
            score_gradients.input_gradients(total, false, d_query);
            if (saved && normalizer.is_entmax())
                static_cast<T*>(to.delta)[entry * inputs.queries + now.first + r] = normalizer.row(entry, now.first + r, *saved).alpha_gradient;
        }
    }
};

template <class T>
void gradients_of(const Inputs& inputs, const Score& score, const Normalization& by, const SavedForward* saved, const void* upstream,
                  const Gradients& to) {
    const T* scores = static_cast<const T*>(upstream);
    if (score.activation <= Activation::sigmoid)
        Backward<T, TanhGradients<T>>(inputs, score, by, saved, scores, to).run();
    else
        Backward<T, ReluGradients<T>>(inputs, score, by, saved, scores, to).run();
}

}  // namespace

template <class T>
void additive_gradients(const Inputs& inputs, const Score& score, const SavedForward& saved, const Gradients& to) {
    gradients_of<T>(inputs, score, {}, &saved, nullptr, to);
}

template <class T>
void normalized_additive_gradients(const Inputs& inputs, const Score& score, const Normalization& by, const SavedDotForward& saved,
                                   const Gradients& to) {
    SavedForward rows{saved.output, saved.sums, saved.upstream};
    gradients_of<T>(inputs, score, by, &rows, nullptr, to);
}

template <class T>
void additive_scores_gradients(const Inputs& inputs, const Score& score, const void* upstream, const Gradients& to) {
    gradients_of<T>(inputs, score, {}, nullptr, upstream, to);
}

template void additive_gradients<float>(const Inputs&, const Score&, const SavedForward&, const Gradients&);
template void additive_gradients<double>(const Inputs&, const Score&, const SavedForward&, const Gradients&);
template void normalized_additive_gradients<float>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&,
                                                   const Gradients&);
template void normalized_additive_gradients<double>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&,
                                                    const Gradients&);
template void additive_scores_gradients<float>(const Inputs&, const Score&, const void*, const Gradients&);
template void additive_scores_gradients<double>(const Inputs&, const Score&, const void*, const Gradients&);

}  // namespace overt::OVERT_LEVEL
