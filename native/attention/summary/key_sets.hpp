// The weight that sets of keys get from each query, added up tile by tile.
#pragma once

#include "attention/tiles/softmax.hpp"

namespace overt::OVERT_LEVEL {

// The ids of an entry's keys in every set that has some, as wide as its numbers.
template <class T>
struct KeyIds {
    using Id = typename Lanes<T>::Number;
    static constexpr Id NO_KEY = -1, NO_QUERY = -2;  // equal to none, and not to each other

    const Summary& to;
    Index entry, padded_keys;
    Id* ids;  // of each set, padded to whole tiles

    static Index padded_count(const Inputs& inputs) { return (inputs.keys + KEYS - 1) / KEYS * KEYS; }
    static Index size(const Inputs& inputs, const Summary& to) { return to.set_count * padded_count(inputs); }

    KeyIds(const Inputs& inputs, const Summary& to, Index entry, Id* memory)
        : to(to), entry(entry), padded_keys(padded_count(inputs)), ids(memory) {
        for (Index s = 0; s < to.set_count; s++)
            for (Index j = 0; to.sets[s].key_id.data && j < padded_keys; j++)
                ids[s * padded_keys + j] = j < inputs.keys ? id_of(number(to.sets[s].key_id, j), NO_KEY) : NO_KEY;
    }

    static Id id_of(Index number, Id none) { return number >= 0 && number <= INT32_MAX ? static_cast<Id>(number) : none; }

    Index number(const Matrix& column, Index i) const {
        return static_cast<const Index*>(column.data)[column.offsets[entry] + i * column.row];
    }
    Id query_id(Index set, Index row) const { return id_of(number(to.sets[set].query_id, row), NO_QUERY); }
    const Id* of_keys(Index set, Index key) const { return to.sets[set].key_id.data ? ids + set * padded_keys + key : nullptr; }
};

// The sums of a block of rows, lane by lane. Sets that no row of the block has in a tile are skipped.
template <class T>
class Masses {
    using Id = typename KeyIds<T>::Id;
    static constexpr int W = WIDTH<T>;
    const Summary& to;
    const KeyIds<T>& ids;
    Index first_row;
    T *sums, *bounds;

    // Of a set, the first key and the stop over all rows.
    Index* span(Index set) const { return reinterpret_cast<Index*>(bounds) + 2 * set; }
    T* sum_of(Index set, int row) const { return sums + (set * ROWS + row) * W; }

   public:
    static Index memory(Index sets) {
        return sets * ROWS * W + padded<T>(sets * 2 * static_cast<Index>(sizeof(Index) / sizeof(T)));
    }

    Masses(const Summary& to, const KeyIds<T>& ids, const Tile& at, T* memory)
        : to(to), ids(ids), first_row(at.row), sums(memory), bounds(memory + to.set_count * ROWS * W) {
        clear(sums, to.set_count * ROWS * W);
        for (Index s = 0; s < to.set_count; s++) {
            Index low = INT64_MAX, high = 0;
            for (int r = 0; r < at.rows; r++) {
                Index first = ids.number(to.sets[s].low, first_row + r), stop = ids.number(to.sets[s].high, first_row + r);
                if (first < stop) low = min_of(low, first), high = max_of(high, stop);
            }
            span(s)[0] = low, span(s)[1] = high;
        }
    }

    // A tile's weights (rows of KEYS), which are 0 on masked keys. Shares of a sum may be negative: their sizes count.
    void add(const Tile& at, const T* weights) const {
        T sizes[ROWS * KEYS];
        if (to.by.kind == Normalizer::sum) {
            for (int i = 0; i < ROWS * KEYS; i += W) store(sizes + i, lane_max(load(weights + i), -load(weights + i)));
            weights = sizes;
        }
        for (Index s = 0; s < to.set_count; s++) {
            if (at.key >= span(s)[1] || at.key + at.keys <= span(s)[0]) continue;
            const Id* keys = ids.of_keys(s, at.key);
            for (int r = 0; r < at.rows; r++) {
                int low = within(to.sets[s].low, r, at), high = within(to.sets[s].high, r, at);
                if (low < high) add_row(s, r, low, high, high - low == at.keys, keys, weights + r * KEYS);
            }
        }
    }

    void write(const Inputs& inputs, const Tile& at) const {
        T* rows = static_cast<T*>(to.masses) + (at.entry * inputs.queries + at.row) * to.set_count;
        for (int r = 0; r < at.rows; r++)
            for (Index s = 0; s < to.set_count; s++) rows[r * to.set_count + s] = sum<T>(load(sum_of(s, r)));
    }

   private:
    // An edge of a row's keys, counted from the tile's first.
    int within(const Matrix& edges, int row, const Tile& at) const {
        Index edge = ids.number(edges, first_row + row);
        return static_cast<int>(edge <= at.key ? 0 : min_of<Index>(edge - at.key, at.keys));
    }

    void add_row(Index set, int row, int low, int high, bool all, const Id* keys, const T* weights) const {
        T* sum = sum_of(set, row);
        if (!keys && high - low == 1) {
            sum[0] += weights[low];
        } else if (!keys) {
            add_lanes<true, false>(low, high, 0, keys, weights, sum);
        } else {
            Id id = ids.query_id(set, first_row + row);
            all ? add_lanes<false, true>(0, KEYS, id, keys, weights, sum) : add_lanes<true, true>(low, high, id, keys, weights, sum);
        }
    }

    template <bool BOUNDED, bool WITH_IDS>
    static void add_lanes(int low, int high, Id id, const Id* keys, const T* weights, T* sum) {
        Whole<T> lane;
        for (int i = 0; i < W; i++) lane[i] = i;
        Vector<T> total = load(sum);
        for (int c = low / W * W; c < high; c += W) {
            Whole<T> chosen = lane == lane;
            if (BOUNDED) chosen = (lane >= static_cast<Id>(low - c)) & (lane < static_cast<Id>(high - c));
            if (WITH_IDS) chosen &= *reinterpret_cast<const typename Lanes<T>::LooseWhole*>(keys + c) == id;
            total += chosen ? load(weights + c) : Vector<T>{};
        }
        store(sum, total);
    }
};

}  // namespace overt::OVERT_LEVEL
