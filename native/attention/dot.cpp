// Dot-product attention, forward: turned tiles of scores, the online softmax, values. Nothing of size Q x K is kept.
#include "attention/dot_decode.hpp"
#include "attention/transposed_tile.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Shares out blocks of queries, and spans of keys where there are too few blocks for all threads.
template <class T>
class DotForward {
    const Inputs& inputs;
    const Score& score;
    T *output, *kept;
    Team team;
    Index blocks, tiles, spans, sums_room, desk_room;
    Scratch<T> desks, partial;

   public:
    DotForward(const Inputs& inputs, const Score& score, T* output, T* kept)
        : inputs(inputs), score(score), output(output), kept(kept), team(inputs), blocks(count(inputs.queries, QUERIES)),
          tiles(count(inputs.keys, KEYS)), spans(spans_of()), sums_room(TurnedSums<T>::room(inputs.width)), desk_room(room_of_desk()),
          desks(team.threads * desk_room), partial(spans > 1 ? blocks * spans * sums_room : 0) {}

    void run() {
        team.each_entry([this](Index entry, int crew) {
            // The last blocks first: under a causal mask they are the longest.
            team.each(blocks * spans, [&](Index item, int member) {
                rows(entry, blocks * spans - 1 - item, desks.data + (crew * team.size + member) * desk_room);
            });
            for (Index block = 0; spans > 1 && block < blocks; block++) join(entry, block);
        });
    }

   private:
    // One thread's working memory: turned queries, a tile of scores, one of values or biases, one of keys, sums, the mask of a tile.
    Index room_of_desk() const {
        Index spare = most<Index>(KEYS * padded<T>(inputs.width), inputs.bias.data ? 2 * TURNED_TILE : 0);
        return padded<T>(QUERIES * inputs.features + TURNED_TILE + spare + KEYS * inputs.features + sums_room +
                         MASK_ROOM / static_cast<Index>(sizeof(T))) + 64;
    }

    Index spans_of() const {
        return blocks >= team.size || tiles < 2 * team.size ? 1 : count(team.size, most<Index>(blocks, 1));
    }

    // One block of queries against one span of keys.
    void rows(Index entry, Index item, T* desk) {
        Index block = item / spans, span = item % spans;
        T *queries = desk, *scores = queries + QUERIES * inputs.features, *keys = scores + TURNED_TILE;
        T *own = keys + KEYS * inputs.features, *spare = own + sums_room;
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(desk + desk_room) - MASK_ROOM;
        TurnedMask<T> mask(inputs, entry, block);
        TurnedSums<T> sums(spans > 1 ? partial.data + item * sums_room : own, inputs.width);
        sums.clear(mask.rows);
        Place at{entry, mask.row, most(mask.low, span * tiles / spans * KEYS), mask.rows, 0};
        Index end = least(mask.high, (span + 1) * tiles / spans * KEYS);
        Units<T> units(inputs, score, entry);
        if (at.key < end) turn_rows(inputs.query, at, inputs.features, units.scale, queries, keys);
        for (; at.key < end; at.key += at.keys) {
            Seen seen = mask.next(at, end, allowed);
            if (seen == Seen::none) continue;
            int skipped = static_cast<int>(at.row - mask.row);
            Left<T> left = rows_at(inputs.key, at, inputs.features, keys);
            multiply(left.data, left.row, left.column, queries + skipped, Index{QUERIES}, scores, Index{QUERIES}, at.keys,
                     static_cast<int>(inputs.features), at.rows, false);
            settle_turned(inputs, units, at, seen, mask, allowed, scores, spare);
            fold_turned(scores, at, sums, skipped);
            if (inputs.dropout > 0) drop_turned(inputs, at, scores);
            mix_turned(scores, at, seen, mask, allowed, Values<T>(inputs, at, spare), sums.wide, sums.output + skipped * sums.wide);
        }
        if (spans == 1) finish(entry, block, sums);
    }

    // The sums of all spans of a block, in their order.
    void join(Index entry, Index block) {
        int rows = size_of(block, QUERIES, inputs.queries);
        TurnedSums<T> all(partial.data + block * spans * sums_room, inputs.width);
        for (Index span = 1; span < spans; span++) {
            TurnedSums<T> next(partial.data + (block * spans + span) * sums_room, inputs.width);
            for (int r = 0; r < rows; r += WIDTH<T>) {
                Vector<T> now = larger(load(all.base + r), load(next.base + r));
                all.rebase(r, now), next.rebase(r, now);
                store(all.total + r, load(all.total + r) + load(next.total + r));
            }
            for (int r = 0; r < rows; r++) {
                all.follow(r), next.follow(r);
                for (Index e = 0; e < all.wide; e++) all.output[r * all.wide + e] += next.output[r * all.wide + e];
            }
        }
        finish(entry, block, all);
    }

    void finish(Index entry, Index block, TurnedSums<T>& sums) {
        int rows = size_of(block, QUERIES, inputs.queries);
        if (inputs.sink) add_sink(static_cast<T>(inputs.sink[entry] * LOG2E), rows, sums);
        for (int r = 0; r < rows; r++) {
            Index row = block * QUERIES + r;
            T total = sums.total[r], over = total == 0 ? T(0) : 1 / total;
            keep_sums(kept, inputs, entry, row, sums.base[r], total);
            put_row(sums.output + r * sums.wide, over, inputs.width, output + (entry * inputs.queries + row) * inputs.width);
        }
    }

    // A sink's weight counts in the total, and mixes nothing.
    static void add_sink(T sink, int rows, TurnedSums<T>& sums) {
        if (sink == -__builtin_inf()) return;
        for (int r = 0; r < rows; r += WIDTH<T>) {
            sums.rebase(r, larger(every(sink), load(sums.base + r)));
            store(sums.total + r, load(sums.total + r) + power_of_two<T>(sink - load(sums.base + r)));
        }
        for (int r = 0; r < rows; r++) sums.follow(r);
    }
};

}  // namespace

template <class T>
void dot(const Inputs& inputs, const Score& score, void* output, void* sums) {
    T *to = static_cast<T*>(output), *kept = static_cast<T*>(sums);
    if (inputs.queries <= FEW_QUERIES)
        DotFew<T>(inputs, score, to, kept).run();
    else
        DotForward<T>(inputs, score, to, kept).run();
}

template void dot<float>(const Inputs&, const Score&, void*, void*);
template void dot<double>(const Inputs&, const Score&, void*, void*);

}  // namespace overt::OVERT_LEVEL
