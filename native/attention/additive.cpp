// Additive attention, forward: scores of a tile, the online softmax, values. Nothing of size Q x K is kept.
#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/softmax.hpp"
#include "attention/threads.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// The forward pass of a call: shares out blocks of rows, and spans of keys where there are too few blocks for all threads.
template <class T, class Scores>
class Forward {
    const Inputs& inputs;
    const Score& score;
    T *output, *lse;
    Team team;
    Index blocks, tiles, spans;
    Index desk_room, packed_room, scores_room;
    Scratch<T> desks, packed, memory, partial;

   public:
    Forward(const Inputs& inputs, const Score& score, T* output, T* lse)
        : inputs(inputs), score(score), output(output), lse(lse), team(inputs), blocks(count(inputs.queries, ROWS)),
          tiles(count(inputs.keys, KEYS)), spans(spans_of()), desk_room(room_of_desk()),
          packed_room(blocks > 1 ? tiles * Scores(inputs, score, nullptr).key_room() : 0), scores_room(Scores::room(inputs)),
          desks(team.threads * desk_room), packed(team.crews * packed_room), memory(team.crews * scores_room),
          partial(spans > 1 ? blocks * spans * Running<T>::room(inputs.width) : 0) {}

    void run() {
        team.each_entry([this](Index entry, int crew) { one(entry, crew); });
    }

   private:
    // One thread's working memory: packed queries, one packed tile of keys, scores, values, running sums, the mask of a tile.
    Index room_of_desk() const {
        Scores any(inputs, score, nullptr);
        return padded<T>(any.query_room() + any.key_room() + ROWS * KEYS + KEYS * padded<T>(inputs.width) +
                         Running<T>::room(inputs.width) + ROWS * KEYS / static_cast<Index>(sizeof(T)) + 64);
    }

    Index spans_of() const {
        return blocks >= team.size || tiles < 2 * team.size ? 1 : count(team.size, most<Index>(blocks, 1));
    }

    void one(Index entry, int crew) {
        Scores scores(inputs, score, memory.data + crew * scores_room);
        scores.begin(entry);
        T* keys = packed_room ? packed.data + crew * packed_room : nullptr;
        if (keys)
            team.each(tiles, [&](Index tile, int) {
                scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * scores.key_room());
            });
        team.each(blocks * spans, [&](Index item, int member) {
            rows(scores, entry, item, keys, desks.data + (crew * team.size + member) * desk_room);
        });
        if (spans > 1)
            for (Index block = 0; block < blocks; block++) join(entry, block);
    }

    // One block of rows against one span of keys.
    void rows(const Scores& scores, Index entry, Index item, const T* packed_keys, T* desk) {
        Index block = item / spans, span = item % spans;
        Place at{entry, block * ROWS, 0, size_of(block, ROWS, inputs.queries), 0};
        T *queries = desk, *keys = queries + scores.query_room(), *tile_scores = keys + scores.key_room();
        T *spare = tile_scores + ROWS * KEYS, *sums = spare + KEYS * padded<T>(inputs.width);
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(sums + Running<T>::room(inputs.width));
        Running<T> running(spans > 1 ? partial.data + item * Running<T>::room(inputs.width) : sums, inputs.width);
        running.clear(at.rows);
        Index low, high;
        mask_span(inputs.mask, entry, at.row, at.row + at.rows, inputs.keys, &low, &high);
        Index first = most(low / KEYS, span * tiles / spans), stop = least(count(high, KEYS), (span + 1) * tiles / spans);
        if (first < stop) scores.pack_queries(at.row, at.rows, queries);
        for (Index tile = first; tile < stop; tile++) {
            at.key = tile * KEYS, at.keys = size_of(tile, KEYS, inputs.keys);
            Seen seen = seen_at(inputs, at, allowed);
            if (seen == Seen::none) continue;
            if (!packed_keys) scores.pack_keys(at.key, at.keys, keys);
            scores.scores(queries, at.rows, packed_keys ? packed_keys + tile * scores.key_room() : keys, at.keys, tile_scores);
            settle(inputs, at, seen, allowed, tile_scores);
            fold(tile_scores, at.rows, at.keys, running);
            if (inputs.dropout > 0)
                for (int r = 0; r < at.rows; r++) drop(inputs, entry, at.row + r, at.key, at.keys, tile_scores + r * KEYS);
            mix(tile_scores, at, seen, allowed, Values<T>(inputs, at, spare), running.wide, running.output);
        }
        if (spans == 1) finish(entry, block, running);
    }

    // The sums of all spans of a block, in their order.
    void join(Index entry, Index block) {
        int rows = size_of(block, ROWS, inputs.queries);
        Running<T> all(partial.data + block * spans * Running<T>::room(inputs.width), inputs.width);
        for (Index span = 1; span < spans; span++) {
            Running<T> next(partial.data + (block * spans + span) * Running<T>::room(inputs.width), inputs.width);
            for (int r = 0; r < rows; r++) all.join(r, next);
        }
        finish(entry, block, all);
    }

    void finish(Index entry, Index block, Running<T>& running) {
        for (int r = 0; r < size_of(block, ROWS, inputs.queries); r++) {
            if (inputs.sink) running.add_sink(r, static_cast<T>(inputs.sink[entry]));
            Index row = entry * inputs.queries + block * ROWS + r;
            T total = running.total[r];
            lse[row] = total == 0 ? -__builtin_inf() : running.largest[r] + static_cast<T>(__builtin_log(total));
            T over = total == 0 ? T(0) : 1 / total;
            put_row(running.output + r * running.wide, over, inputs.width, output + row * inputs.width);
        }
    }
};

template <class T, class Scores>
void scores_of(const Inputs& inputs, const Score& score, T* out) {
    Team team(inputs);
    Scores any(inputs, score, nullptr);
    Index blocks = count(inputs.queries, ROWS), tiles = count(inputs.keys, KEYS);
    Index room = any.query_room() + ROWS * KEYS, key_room = any.key_room();
    Scratch<T> desks(team.threads * room), packed(team.crews * tiles * key_room), memory(team.crews * Scores::room(inputs));
    team.each_entry([&](Index entry, int crew) {
        Scores scores(inputs, score, memory.data + crew * Scores::room(inputs));
        T* keys = packed.data + crew * tiles * key_room;
        scores.begin(entry);
        team.each(tiles, [&](Index tile, int) { scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * key_room); });
        team.each(blocks, [&](Index block, int member) {
            T *queries = desks.data + (crew * team.size + member) * room, *found = queries + any.query_room();
            int rows = size_of(block, ROWS, inputs.queries);
            scores.pack_queries(block * ROWS, rows, queries);
            for (Index tile = 0; tile < tiles; tile++) {
                int count = size_of(tile, KEYS, inputs.keys);
                scores.scores(queries, rows, keys + tile * key_room, count, found);
                for (int r = 0; r < rows; r++) {
                    T* to = out + (entry * inputs.queries + block * ROWS + r) * inputs.keys + tile * KEYS;
                    for (int c = 0; c < count; c++) to[c] = found[r * KEYS + c];
                }
            }
        });
    });
}

}  // namespace

template <class T>
void additive(const Inputs& inputs, const Score& score, void* output, void* lse) {
    T *to = static_cast<T*>(output), *sums = static_cast<T*>(lse);
    if (score.activation <= Activation::sigmoid)
        Forward<T, SmoothScores<T>>(inputs, score, to, sums).run();
    else
        Forward<T, RectifiedScores<T>>(inputs, score, to, sums).run();
}

template <class T>
void additive_scores(const Inputs& inputs, const Score& score, void* scores) {
    if (score.activation <= Activation::sigmoid)
        scores_of<T, SmoothScores<T>>(inputs, score, static_cast<T*>(scores));
    else
        scores_of<T, RectifiedScores<T>>(inputs, score, static_cast<T*>(scores));
}

template void additive<float>(const Inputs&, const Score&, void*, void*);
template void additive<double>(const Inputs&, const Score&, void*, void*);
template void additive_scores<float>(const Inputs&, const Score&, void*);
template void additive_scores<double>(const Inputs&, const Score&, void*);

}  // namespace overt::OVERT_LEVEL
