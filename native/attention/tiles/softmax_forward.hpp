// The softmax of any source of scores, forward: transposed tiles of scores, the online softmax, values. Nothing of size Q x K is stored.
//
// A source `Scores` has the memory of one thread (`size` numbers). `begin` selects a block of queries; `tile` writes products[c * QUERIES + r],
// what Units turns into total scores, for a tile of it whose first query is `skipped` queries after the block's.
#pragma once

#include "attention/threads.hpp"
#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

// Distributes the blocks of queries of all entries, and spans of keys if there are fewer blocks than threads.
template <class T, class Scores>
class SoftmaxForward {
    const Inputs& inputs;
    const Score& score;
    T *output, *saved_sums;
    Team team;
    Index blocks, tiles, spans, sums_size, workspace_size;
    Scratch<T> workspaces, partial;

   public:
    SoftmaxForward(const Inputs& inputs, const Score& score, T* output, T* saved_sums)
        : inputs(inputs), score(score), output(output), saved_sums(saved_sums), team(inputs, true),
          blocks(count(inputs.queries, QUERIES)), tiles(count(inputs.keys, KEYS)), spans(spans_of()),
          sums_size(TransposedSoftmax<T>::size(inputs.value_dim)), workspace_size(size_of_workspace()),
          workspaces(team.threads * workspace_size), partial(spans > 1 ? team.entries * blocks * spans * sums_size : 0) {}

    // All blocks of these entries.
    void run(Index first, Index entries) {
        // Several items at a time if there are many: each may be short.
        Index items = entries * blocks * spans, chunk = max_of<Index>(1, min_of(blocks, items / (32 * team.threads)));
        const bool reversed = growing(first);
        auto rows_of = [&](Index item, int thread) {
            rows(first, reversed ? items - 1 - item : item, workspaces.data + thread * workspace_size);
        };
        team.each(items, rows_of, chunk);
        if (spans > 1) team.each(entries * blocks, [&](Index item, int) { join(first, item); });
    }

    void run() { run(0, team.entries); }

   private:
    // One thread's working memory: a tile of scores, what their source needs, the state twice, a tile of values or biases, a tile's mask.
    Index size_of_workspace() const {
        Index spare = max_of<Index>(KEYS * padded<T>(inputs.value_dim), inputs.bias.data ? 2 * TRANSPOSED_TILE : 0);
        return padded<T>(TRANSPOSED_TILE + Scores::size(inputs, score) + spare + 2 * sums_size + MASK_SIZE / static_cast<Index>(sizeof(T))) +
               64;
    }

    Index spans_of() const {
        Index items = max_of<Index>(team.entries * blocks, 1);
        if (items < team.threads) return max_of<Index>(1, min_of(count(team.threads, items), tiles / 2));
        // With slightly more blocks than threads most threads would wait for the last blocks.
        return items % team.threads && items < 2 * team.threads && tiles > 1 ? 2 : 1;
    }

    // Whether the last blocks take longest, as under a causal mask: then they come first, so that no thread waits for them. Otherwise
    // blocks have the order of memory, which processors predict.
    bool growing(Index entry) const {
        Index low, high, last_low, last_high;
        mask_span(inputs.mask, entry, 0, min_of<Index>(QUERIES, inputs.queries), inputs.keys, &low, &high);
        mask_span(inputs.mask, entry, max_of<Index>(0, inputs.queries - QUERIES), inputs.queries, inputs.keys, &last_low, &last_high);
        return last_high - last_low > 2 * (high - low);
    }

    // One block of queries against one span of keys.
    void rows(Index first_entry, Index item, T* workspace) {
        Index entry = first_entry + item / (blocks * spans), block = item / spans % blocks, span = item % spans;
        T *scores = workspace, *sums_memory = scores + TRANSPOSED_TILE + Scores::size(inputs, score), *spare = sums_memory + 2 * sums_size;
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(workspace + workspace_size) - MASK_SIZE;
        TransposedMask<T> mask(inputs, entry, block);
        SumsOfParts<T, TransposedSoftmax<T>> parts(spans > 1 ? partial.data + item * sums_size : sums_memory, sums_memory + sums_size,
                                                   inputs.value_dim, mask.rows);
        const Index first = max_of(mask.low, span * tiles / spans * KEYS), end = min_of(mask.high, (span + 1) * tiles / spans * KEYS);
        Units<T> units(inputs, score, entry);
        Scores source(inputs, score, scores + TRANSPOSED_TILE);
        if (first < end) source.begin({entry, mask.row, first, mask.rows, 0}, units);
        const bool fading = LINE_BIASES && inputs.bias_of_keys.data != nullptr;
        LineTerms<T> lines;
        auto keys = [&](Index from, Index to) {
            for (Tile at{entry, mask.row, from, mask.rows, 0}; at.key < to && !interrupted(inputs); at.key += at.keys) {
                Coverage coverage = mask.next(at, to, allowed);
                if (coverage == Coverage::none) continue;
                int skipped = static_cast<int>(at.row - mask.row);
                source.tile(at, skipped, units, scores);
                if (fading) lines.begin(inputs, at, TRANSPOSED, units.unit);
                const bool near = fading && lines.near;
                finish_transposed_scores(inputs, units, at, coverage, mask, allowed, scores, spare, !near);
                if (fading && !near && !drop_negligible(at, parts.all.base + skipped, scores) && all_finite_values(at, spare)) continue;
                TransposedSoftmax<T>& sums = parts.next();
                const bool any = near ? online_softmax_transposed(scores, at, sums, skipped, lines)
                                      : online_softmax_transposed(scores, at, sums, skipped);
                if (!any && fading && all_finite_values(at, spare)) continue;
                if (inputs.dropout > 0) apply_dropout_transposed(inputs, at, scores);
                accumulate_values_transposed(scores, at, coverage, mask, allowed, Values<T>(inputs, at, spare), sums.padded_dim,
                                             sums.accumulator + skipped * sums.padded_dim);
            }
        };
        // Biases of keys usually decrease into the past: after the newest keys, most others are negligible.
        const Index newest = fading && first < end ? first + (end - first - 1) / KEYS * KEYS : end;
        if (fading) keys(newest, end);
        keys(first, newest);
        TransposedSoftmax<T>& sums = parts.joined();
        if (spans == 1) finish(entry, block, sums);
    }

    bool all_finite_values(const Tile& at, T* spare) const {
        Values<T> values(inputs, at, spare);
        return all_finite(values.data, values.row, at.keys, padded<T>(inputs.value_dim));
    }

    // Combines the states of all spans of a block, in their order.
    void join(Index first_entry, Index item) {
        Index entry = first_entry + item / blocks, block = item % blocks;
        int rows = size_of(block, QUERIES, inputs.queries);
        T* states = partial.data + item * spans * sums_size;
        TransposedSoftmax<T> all(states, inputs.value_dim);
        for (Index span = 1; span < spans; span++) {
            TransposedSoftmax<T> next(states + span * sums_size, inputs.value_dim);
            all.join(next, rows);
        }
        finish(entry, block, all);
    }

    void finish(Index entry, Index block, TransposedSoftmax<T>& sums) {
        int rows = size_of(block, QUERIES, inputs.queries);
        if (inputs.sink) add_sink(static_cast<T>(inputs.sink[entry] * LOG2E), rows, sums);
        for (int r = 0; r < rows; r++) {
            Index row = block * QUERIES + r;
            T row_sum = sums.row_sum[r], inverse_sum = row_sum == 0 ? T(0) : 1 / row_sum;
            save_sums(saved_sums, inputs, entry, row, sums.base[r], row_sum);
            put_row(sums.accumulator + r * sums.padded_dim, inverse_sum, inputs.value_dim,
                    output + (entry * inputs.queries + row) * inputs.value_dim);
        }
    }

    // A sink's weight is part of the row's sum and has no value.
    static void add_sink(T sink, int rows, TransposedSoftmax<T>& sums) {
        if (sink == -__builtin_inf()) return;
        for (int r = 0; r < rows; r += WIDTH<T>) {
            sums.rebase(r, lane_max(broadcast(sink), load(sums.base + r)));
            store(sums.row_sum + r, load(sums.row_sum + r) + power_of_two<T>(sink - load(sums.base + r)));
        }
        for (int r = 0; r < rows; r++) sums.rescale_accumulator(r);
    }
};

}  // namespace overt::OVERT_LEVEL
