// Additive attention, forward: scores of a tile, the online softmax, values. Memory stays linear: nothing of size Q x K is stored.
#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/softmax.hpp"
#include "attention/threads.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// The forward pass of a call: distributes blocks of rows, and spans of keys where there are fewer blocks than threads.
template <class T, class Scores>
class Forward {
    const Inputs& inputs;
    const Score& score;
    T *output, *log_sum_exp;
    Team team;
    Index blocks, tiles, spans;
    Index workspace_size, packed_size, scores_size;
    Scratch<T> workspaces, packed, memory, partial;

   public:
    Forward(const Inputs& inputs, const Score& score, T* output, T* log_sum_exp)
        : inputs(inputs), score(score), output(output), log_sum_exp(log_sum_exp), team(inputs), blocks(count(inputs.queries, ROWS)),
          tiles(count(inputs.keys, KEYS)), spans(spans_of()), workspace_size(size_of_workspace()),
          packed_size(blocks > 1 ? tiles * Scores(inputs, score, nullptr).key_size() : 0), scores_size(Scores::size(inputs)),
          workspaces(team.threads * workspace_size), packed(team.entry_groups * packed_size),
          memory(team.entry_groups * scores_size),
          partial(spans > 1 ? blocks * spans * SoftmaxState<T>::size(inputs.value_dim) : 0) {}

    void run() {
        team.each_entry([this](Index entry, int entry_group) { one(entry, entry_group); });
    }

   private:
    // One thread's working memory: packed queries, one packed tile of keys, scores, values, softmax state, the mask of a tile.
    Index size_of_workspace() const {
        Scores any(inputs, score, nullptr);
        return padded<T>(any.query_size() + any.key_size() + ROWS * KEYS + KEYS * padded<T>(inputs.value_dim) +
                         SoftmaxState<T>::size(inputs.value_dim) + ROWS * KEYS / static_cast<Index>(sizeof(T)) + 64);
    }

    Index spans_of() const {
        return blocks >= team.size || tiles < 2 * team.size ? 1 : count(team.size, max_of<Index>(blocks, 1));
    }

    void one(Index entry, int entry_group) {
        Scores scores(inputs, score, memory.data + entry_group * scores_size);
        scores.begin(entry);
        T* keys = packed_size ? packed.data + entry_group * packed_size : nullptr;
        if (keys)
            team.each(tiles, [&](Index tile, int) {
                scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * scores.key_size());
            });
        team.each(blocks * spans, [&](Index item, int thread) {
            rows(scores, entry, item, keys, workspaces.data + (entry_group * team.size + thread) * workspace_size);
        });
        if (spans > 1)
            for (Index block = 0; block < blocks; block++) join(entry, block);
    }

    // One block of rows against one span of keys.
    void rows(const Scores& scores, Index entry, Index item, const T* packed_keys, T* workspace) {
        Index block = item / spans, span = item % spans;
        Tile at{entry, block * ROWS, 0, size_of(block, ROWS, inputs.queries), 0};
        T *queries = workspace, *keys = queries + scores.query_size(), *tile_scores = keys + scores.key_size();
        T *spare = tile_scores + ROWS * KEYS, *sums = spare + KEYS * padded<T>(inputs.value_dim);
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(sums + SoftmaxState<T>::size(inputs.value_dim));
        SoftmaxState<T> running(spans > 1 ? partial.data + item * SoftmaxState<T>::size(inputs.value_dim) : sums, inputs.value_dim);
        running.clear(at.rows);
        Index low, high;
        mask_span(inputs.mask, entry, at.row, at.row + at.rows, inputs.keys, &low, &high);
        Index first = max_of(low / KEYS, span * tiles / spans), stop = min_of(count(high, KEYS), (span + 1) * tiles / spans);
        if (first < stop) scores.pack_queries(at.row, at.rows, queries);
        for (Index tile = first; tile < stop && !interrupted(inputs); tile++) {
            at.key = tile * KEYS, at.keys = size_of(tile, KEYS, inputs.keys);
            Coverage coverage = coverage_of(inputs, at, allowed);
            if (coverage == Coverage::none) continue;
            if (!packed_keys) scores.pack_keys(at.key, at.keys, keys);
            scores.scores(queries, at.rows, packed_keys ? packed_keys + tile * scores.key_size() : keys, at.keys, tile_scores);
            finish_scores(inputs, at, coverage, allowed, tile_scores);
            online_softmax(tile_scores, at.rows, at.keys, running);
            if (inputs.dropout > 0)
                for (int r = 0; r < at.rows; r++) apply_dropout(inputs, entry, at.row + r, at.key, at.keys, tile_scores + r * KEYS);
            accumulate_values(tile_scores, at, coverage, allowed, Values<T>(inputs, at, spare), running.padded_dim,
                              running.accumulator);
        }
        if (spans == 1) finish(entry, block, running);
    }

    // Combines the states of all spans of a block, in their order.
    void join(Index entry, Index block) {
        int rows = size_of(block, ROWS, inputs.queries);
        SoftmaxState<T> all(partial.data + block * spans * SoftmaxState<T>::size(inputs.value_dim), inputs.value_dim);
        for (Index span = 1; span < spans; span++) {
            SoftmaxState<T> next(partial.data + (block * spans + span) * SoftmaxState<T>::size(inputs.value_dim), inputs.value_dim);
            for (int r = 0; r < rows; r++) all.join(r, next);
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
