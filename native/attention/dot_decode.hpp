// Dot-product attention of a few queries against many keys, as in decoding: what takes time is reading keys and values, which is done
// once for all heads that share them. Long ones are split among threads.
#pragma once

#include "attention/scores/dot_scores.hpp"
#include "attention/softmax.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// With more queries turned tiles are quicker.
constexpr Index FEW_QUERIES = 8;

template <class T>
class DotFew {
    const Inputs& inputs;
    const Score& score;
    T *output, *kept;
    Index together, groups, wide, spans, sums_room, desk_room;
    int rows;  // of a group: the queries of its heads
    int threads;
    Scratch<T> desks, partial;

   public:
    DotFew(const Inputs& inputs, const Score& score, T* output, T* kept)
        : inputs(inputs), score(score), output(output), kept(kept), together(heads_together()),
          groups(together ? inputs.batch / together : 0), wide(padded<T>(inputs.features)), spans(spans_of()),
          sums_room(Running<T>::room(inputs.width)), desk_room(room_of_desk()), rows(static_cast<int>(together * inputs.queries)),
          threads(Team(inputs, true).threads), desks(threads * desk_room), partial(spans > 1 ? groups * spans * sums_room : 0) {}

    void run() {
        // Handed out several at a time where they are many: each may be short.
        Index items = groups * spans, chunk = most<Index>(1, items / (16 * threads));
#pragma omp parallel for schedule(dynamic, chunk) num_threads(threads)
        for (Index item = 0; item < items; item++) attend(item, desks.data + omp_get_thread_num() * desk_room);
        if (spans == 1) return;
#pragma omp parallel for num_threads(threads)
        for (Index group = 0; group < groups; group++) join(group);
    }

   private:
    // How many heads, one after the other, read the same keys and values everywhere, and have no more queries than a tile.
    Index heads_together() const {
        const Index *keys = inputs.key.places, *values = inputs.value.places;
        auto shared = [&](Index size) {
            for (Index b = 0; b < inputs.batch; b++)
                if (keys[b] != keys[b - b % size] || values[b] != values[b - b % size]) return false;
            return inputs.batch % size == 0;
        };
        Index size = inputs.batch ? 1 : 0;
        while (size && size < inputs.batch && keys[size] == keys[0] && values[size] == values[0]) size++;
        while (size > 1 && (size * inputs.queries > ROWS || !shared(size))) size--;
        return size;
    }

    // Enough items that no thread waits long for another, each long enough to be worth its joining.
    Index spans_of() const {
        constexpr Index LEAST = 256;
        Index wanted = groups ? count(4 * inputs.threads, groups) : 1;
        return inputs.threads == 1 ? 1 : most<Index>(1, least(wanted, inputs.keys / LEAST));
    }

    // One thread's working memory: queries, a tile of scores, rows of keys and values, sums, the mask of each head's tile.
    Index room_of_desk() const {
        Index tiles_room = KEYS * (wide + padded<T>(inputs.width)), masks = masks_room() / static_cast<Index>(sizeof(T));
        return padded<T>(ROWS * wide + ROWS * KEYS + tiles_room + sums_room + masks) + 64;
    }
    static Index masks_room() { return 2 * ROWS * KEYS; }

    void attend(Index item, T* desk) {
        Index group = item / spans, span = item % spans, tiles = count(inputs.keys, KEYS);
        T *queries = desk, *scores = queries + ROWS * wide, *spare = scores + ROWS * KEYS;
        T* own = spare + KEYS * (wide + padded<T>(inputs.width));
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(desk + desk_room) - masks_room();
        Running<T> running(spans > 1 ? partial.data + item * sums_room : own, inputs.width);
        running.clear(rows);
        Reach reach = reach_of(group);
        for (Index head = 0; head < together; head++) pack(group * together + head, queries + head * inputs.queries * wide);
        Index end = least(reach.high, (span + 1) * tiles / spans * KEYS);
        Place at{group * together, 0, most(reach.low, span * tiles / spans * KEYS), rows, 0};
        for (; at.key < end; at.key += at.keys) {
            at.keys = static_cast<int>(least<Index>(KEYS, end - at.key));
            Seen seen = reach.sure_low <= at.key && at.key + at.keys <= reach.sure_high ? Seen::all : look(at, allowed);
            if (seen == Seen::none) continue;
            dots(queries, wide, WholeRows<T>(inputs.key, inputs.features, at, spare), rows, at.keys, scores);
            if (score.softcap > 0) soften(static_cast<T>(score.softcap), at.rows, at.keys, scores);
            for (Index head = 0; head < together; head++) {
                Place own{at.entry + head, 0, at.key, static_cast<int>(inputs.queries), at.keys};
                settle(inputs, own, seen, allowed + head * inputs.queries * KEYS, scores + head * inputs.queries * KEYS);
            }
            fold(scores, rows, at.keys, running);
            for (int r = 0; r < rows && inputs.dropout > 0; r++)
                drop(inputs, at.entry + r / inputs.queries, r % inputs.queries, at.key, at.keys, scores + r * KEYS);
            mix(scores, at, seen, allowed, Values<T>(inputs, at, spare + KEYS * wide), running.wide, running.output);
        }
        if (spans == 1) finish(group, running);
    }

    // Outside of low to high none of the group's queries sees anything, within sure_low to sure_high all see everything.
    struct Reach {
        Index low, high, sure_low, sure_high;
    };
    Reach reach_of(Index group) const {
        Reach found{inputs.keys, 0, 0, inputs.keys};
        for (Index head = 0; head < together; head++) {
            Index entry = group * together + head, low, high;
            mask_span(inputs.mask, entry, 0, inputs.queries, inputs.keys, &low, &high);
            found.low = least(found.low, low), found.high = most(found.high, high);
            mask_core(inputs.mask, entry, 0, inputs.queries, inputs.keys, &low, &high);
            found.sure_low = most(found.sure_low, low), found.sure_high = least(found.sure_high, high);
        }
        return found;
    }

    // What the group's heads see of a tile: all of it, none, or what `allowed` says of each row.
    Seen look(const Place& at, std::uint8_t* allowed) const {
        bool every = true, any = false;
        for (Index head = 0; head < together; head++) {
            std::uint8_t* own = allowed + head * inputs.queries * KEYS;
            Seen seen = seen_at(inputs, {at.entry + head, 0, at.key, static_cast<int>(inputs.queries), at.keys}, own);
            every = every && seen == Seen::all, any = any || seen != Seen::none;
            for (Index i = 0; seen != Seen::some && i < inputs.queries * KEYS; i++) own[i] = seen == Seen::all;
        }
        return every ? Seen::all : any ? Seen::some : Seen::none;
    }

    // Queries in whole vectors, scaled.
    void pack(Index entry, T* to) const {
        T scale = static_cast<T>(score.scale[entry]);
        for (Index r = 0; r < inputs.queries; r++, to += wide) {
            read_row(inputs.query, entry, r, inputs.features, to);
            for (Index d = 0; d < wide; d++) to[d] = d < inputs.features ? to[d] * scale : T(0);
        }
    }

    // The sums of all spans, in their order.
    void join(Index group) {
        Running<T> all(partial.data + group * spans * sums_room, inputs.width);
        for (Index span = 1; span < spans; span++) {
            Running<T> next(partial.data + (group * spans + span) * sums_room, inputs.width);
            for (int r = 0; r < rows; r++) all.join(r, next);
        }
        finish(group, all);
    }

    void finish(Index group, Running<T>& all) {
        for (int r = 0; r < rows; r++) {
            Index entry = group * together + r / inputs.queries, row = r % inputs.queries;
            if (inputs.sink) all.add_sink(r, static_cast<T>(inputs.sink[entry]));
            T total = all.total[r], over = total == 0 ? T(0) : 1 / total;
            keep_sums(kept, inputs, entry, row, static_cast<T>(all.largest[r] * LOG2E), total);
            put_row(all.output + r * all.wide, over, inputs.width, output + (entry * inputs.queries + row) * inputs.width);
        }
    }
};

}  // namespace overt::OVERT_LEVEL
