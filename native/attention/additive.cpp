// Additive attention, forward: scores of a tile, the online softmax, values. Memory stays linear: nothing of size Q x K is stored.
#include <new>

#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/tiles/softmax.hpp"
#include "attention/threads.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// The forward pass of a call: threads share the blocks of rows of several entries, and spans of keys if there are fewer blocks than
// threads.
template <class T, class Scores>
class Forward {
    const Inputs& inputs;
    T *output, *log_sum_exp;
    Team team;
    Index blocks, tiles, at_once, spans;  // at_once: entries that are in memory at once
    Index workspace_size, key_size, scores_size, state_size;
    Scratch<T> workspaces, packed, memory, partial;
    Scratch<Scores> table;

   public:
    Forward(const Inputs& inputs, const Score& score, T* output, T* log_sum_exp)
        : inputs(inputs), output(output), log_sum_exp(log_sum_exp), team(inputs), blocks(count(inputs.queries, ROWS)),
          tiles(count(inputs.keys, KEYS)), at_once(entries_at_once()), spans(spans_of()),
          workspace_size(size_of_workspace(Scores(inputs, score, nullptr))), key_size(Scores(inputs, score, nullptr).key_size()),
          scores_size(Scores::size(inputs)), state_size(SoftmaxState<T>::size(inputs.value_dim)),
          workspaces(team.threads * workspace_size), packed(blocks > 1 ? at_once * tiles * key_size : 0),
          memory(at_once * scores_size), partial(spans > 1 ? at_once * blocks * spans * state_size : 0), table(at_once) {
        for (Index slot = 0; slot < at_once; slot++)
            new (table.data + slot) Scores(inputs, score, memory.data + slot * scores_size);
    }

    void run() {
        if (team.entry_groups > 1)
            team.each_entry([this](Index entry, int slot) { some(entry, 1, slot); });
        else
            for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once)
                some(entry, min_of(at_once, team.entries - entry), 0);
    }

   private:
    // One thread's working memory: packed queries, one packed tile of keys, scores, values, the state twice, the mask of a tile.
    Index size_of_workspace(const Scores& any) const {
        return padded<T>(any.query_size() + any.key_size() + ROWS * KEYS + KEYS * padded<T>(inputs.value_dim) +
                         2 * SoftmaxState<T>::size(inputs.value_dim) + ROWS * KEYS / static_cast<Index>(sizeof(T)) + 64);
    }

    // Enough entries to give each thread a few blocks.
    Index entries_at_once() const {
        if (team.entry_groups > 1) return team.entry_groups;
        Index wanted = team.threads > 1 ? count(4 * team.threads, max_of<Index>(blocks, 1)) : 1;
        return max_of<Index>(1, min_of(team.entries, wanted));
    }

    Index spans_of() const {
        Index items = max_of<Index>(at_once * blocks, 1);
        return items >= team.size ? 1 : max_of<Index>(1, min_of(count(team.size, items), tiles / 2));
    }

    // Consecutive entries, from this slot in memory on.
    void some(Index entry, Index entry_count, Index slot) {
        team.each(entry_count, [&](Index own, int) { table.data[slot + own].begin(entry + own); });
        if (blocks > 1)
            team.each(entry_count * tiles, [&](Index item, int) {
                Index own = slot + item / tiles, tile = item % tiles;
                table.data[own].pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys),
                                          packed.data + (own * tiles + tile) * key_size);
            });
        team.each(entry_count * blocks * spans, [&](Index item, int thread) {
            Index own = item / (blocks * spans), worker = team.entry_groups > 1 ? slot : thread;
            rows(entry + own, slot + own, item % (blocks * spans), workspaces.data + worker * workspace_size);
        });
        if (spans > 1)
            team.each(entry_count * blocks,
                      [&](Index item, int) { join(entry + item / blocks, slot + item / blocks, item % blocks); });
    }

    T* state_of(Index slot, Index item) const { return partial.data + (slot * blocks * spans + item) * state_size; }

    // One block of rows against one span of keys.
    void rows(Index entry, Index slot, Index item, T* workspace) {
        const Scores& scores = table.data[slot];
        const T* packed_keys = blocks > 1 ? packed.data + slot * tiles * key_size : nullptr;
        Index block = item / spans, span = item % spans;
        Tile at{entry, block * ROWS, 0, size_of(block, ROWS, inputs.queries), 0};
        T *queries = workspace, *keys = queries + scores.query_size(), *tile_scores = keys + key_size;
        T *spare = tile_scores + ROWS * KEYS, *sums = spare + KEYS * padded<T>(inputs.value_dim);
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(sums + 2 * state_size);
        SumsOfParts<T, SoftmaxState<T>> parts(spans > 1 ? state_of(slot, item) : sums, sums + state_size, inputs.value_dim, at.rows);
        Index low, high;
        mask_span(inputs.mask, entry, at.row, at.row + at.rows, inputs.keys, &low, &high);
        Index first = max_of(low / KEYS, span * tiles / spans), stop = min_of(count(high, KEYS), (span + 1) * tiles / spans);
        if (first < stop) scores.pack_queries(at.row, at.rows, queries);
        for (Index tile = first; tile < stop && !interrupted(inputs); tile++) {
            at.key = tile * KEYS, at.keys = size_of(tile, KEYS, inputs.keys);
            Coverage coverage = coverage_of(inputs, at, allowed);
            if (coverage == Coverage::none) continue;
            if (!packed_keys) scores.pack_keys(at.key, at.keys, keys);
            scores.scores(queries, at.rows, packed_keys ? packed_keys + tile * key_size : keys, at.keys, tile_scores);
            finish_scores(inputs, at, coverage, allowed, tile_scores);
            SoftmaxState<T>& running = parts.next();
            online_softmax(tile_scores, at.rows, at.keys, running);
            if (inputs.dropout > 0)
                for (int r = 0; r < at.rows; r++) apply_dropout(inputs, entry, at.row + r, at.key, at.keys, tile_scores + r * KEYS);
            accumulate_values(tile_scores, at, coverage, allowed, Values<T>(inputs, at, spare), running.padded_dim,
                              running.accumulator);
        }
        SoftmaxState<T>& sums_of_all = parts.joined();
        if (spans == 1) finish(entry, block, sums_of_all);
    }

    // Combines the states of all spans of a block, in their order.
    void join(Index entry, Index slot, Index block) {
        int rows = size_of(block, ROWS, inputs.queries);
        SoftmaxState<T> all(state_of(slot, block * spans), inputs.value_dim);
        for (Index span = 1; span < spans; span++) {
            SoftmaxState<T> next(state_of(slot, block * spans + span), inputs.value_dim);
            all.join(next, rows);
        }
        finish(entry, block, all);
    }

    void finish(Index entry, Index block, SoftmaxState<T>& running) {
        for (int r = 0; r < size_of(block, ROWS, inputs.queries); r++) {
            if (inputs.sink) running.add_sink(r, static_cast<T>(inputs.sink[entry]));
            Index row = entry * inputs.queries + block * ROWS + r;
            T row_sum = running.row_sum[r];
            log_sum_exp[row] = row_sum == 0 ? -__builtin_inf() : running.row_max[r] + static_cast<T>(__builtin_log(row_sum));
            T inverse_sum = row_sum == 0 ? T(0) : 1 / row_sum;
            put_row(running.accumulator + r * running.padded_dim, inverse_sum, inputs.value_dim, output + row * inputs.value_dim);
        }
    }
};

template <class T, class Scores>
void scores_of(const Inputs& inputs, const Score& score, T* out) {
    Team team(inputs);
    Scores any(inputs, score, nullptr);
    Index blocks = count(inputs.queries, ROWS), tiles = count(inputs.keys, KEYS);
    Index workspace_size = any.query_size() + ROWS * KEYS, key_size = any.key_size();
    Scratch<T> workspaces(team.threads * workspace_size), packed(team.entry_groups * tiles * key_size),
        memory(team.entry_groups * Scores::size(inputs));
    team.each_entry([&](Index entry, int entry_group) {
        Scores scores(inputs, score, memory.data + entry_group * Scores::size(inputs));
        T* keys = packed.data + entry_group * tiles * key_size;
        scores.begin(entry);
        team.each(tiles, [&](Index tile, int) {
            scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * key_size);
        });
        team.each(blocks, [&](Index block, int thread) {
            T *queries = workspaces.data + (entry_group * team.size + thread) * workspace_size,
              *tile_scores = queries + any.query_size();
            int rows = size_of(block, ROWS, inputs.queries);
            scores.pack_queries(block * ROWS, rows, queries);
            for (Index tile = 0; tile < tiles && !interrupted(inputs); tile++) {
                int count = size_of(tile, KEYS, inputs.keys);
                scores.scores(queries, rows, keys + tile * key_size, count, tile_scores);
                for (int r = 0; r < rows; r++) {
                    T* to = out + (entry * inputs.queries + block * ROWS + r) * inputs.keys + tile * KEYS;
                    for (int c = 0; c < count; c++) to[c] = tile_scores[r * KEYS + c];
                }
            }
        });
    });
}

}  // namespace

template <class T>
void additive(const Inputs& inputs, const Score& score, void* output, void* log_sum_exp) {
    T *to = static_cast<T*>(output), *sums = static_cast<T*>(log_sum_exp);
    if (score.activation <= Activation::sigmoid)
        Forward<T, TanhScores<T>>(inputs, score, to, sums).run();
    else
        Forward<T, ReluScores<T>>(inputs, score, to, sums).run();
}

template <class T>
void additive_scores(const Inputs& inputs, const Score& score, void* scores) {
    if (score.activation <= Activation::sigmoid)
        scores_of<T, TanhScores<T>>(inputs, score, static_cast<T*>(scores));
    else
        scores_of<T, ReluScores<T>>(inputs, score, static_cast<T*>(scores));
}

template void additive<float>(const Inputs&, const Score&, void*, void*);
template void additive<double>(const Inputs&, const Score&, void*, void*);
template void additive_scores<float>(const Inputs&, const Score&, void*);
template void additive_scores<double>(const Inputs&, const Score&, void*);

}  // namespace overt::OVERT_LEVEL
