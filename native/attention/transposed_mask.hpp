// A mask over turned tiles. One that is a range of keys a query, as most are, is read once for a block of queries; of other masks a
// program finds each tile's pairs, written to `allowed`, MASK_ROOM bytes.
#pragma once

#include "attention/mask.hpp"
#include "attention/tiles.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Keys of a tile that a range cuts: fewer, so that less of what is barred is computed.
constexpr int CUT = 32;

template <class T>
class TurnedMask {
    using Number = typename Lanes<T>::Number;
    const Inputs& inputs;
    bool ranged;
    Index first[QUERIES], stop[QUERIES], core_low, core_high;

   public:
    const Index entry, row;  // where the block begins
    const int rows;
    Index low, high;  // the keys that its queries see

    TurnedMask(const Inputs& inputs, Index entry, Index block)
        : inputs(inputs), ranged(inputs.mask.count == 1 && inputs.mask.steps[0].step == Step::ranges), entry(entry), row(block * QUERIES),
          rows(static_cast<int>(least<Index>(QUERIES, inputs.queries - row))) {
        core_low = low = 0, core_high = high = inputs.keys;
        if (!ranged) {
            mask_span(inputs.mask, entry, row, row + rows, inputs.keys, &low, &high);
            core_high = inputs.mask.count ? 0 : high;
            return;
        }
        const Matrix &from = inputs.mask.steps[0].first, &to = inputs.mask.steps[0].second;
        const Index* starts = static_cast<const Index*>(from.data) + from.places[entry] + row * from.row;
        const Index* ends = static_cast<const Index*>(to.data) + to.places[entry] + row * to.row;
        low = inputs.keys, high = 0;
        for (int r = 0; r < rows; r++) {
            first[r] = least(most<Index>(starts[r * from.row], 0), inputs.keys);
            stop[r] = least(most(ends[r * to.row], first[r]), inputs.keys);
            core_low = most(core_low, first[r]), core_high = least(core_high, stop[r]);
            if (first[r] < stop[r]) low = least(low, first[r]), high = most(high, stop[r]);
        }
    }

    // The tile from at.key on, before `end`: its keys, and which of the block's queries, from at.row on, see any of them.
    Seen next(Place& at, Index end, std::uint8_t* allowed) const {
        at.row = row, at.rows = rows;
        at.keys = static_cast<int>(least<Index>(KEYS, end - at.key));
        if (core_low <= at.key && at.key + at.keys <= core_high) return Seen::all;
        if (!ranged) return mask_tile(inputs.mask, at.entry, at.row, at.rows, at.key, at.keys, TURNED, allowed);
        at.keys = least(at.keys, CUT);
        int from = 0, to = rows;
        while (from < to && !sees_any(from, at)) from++;
        while (from < to && !sees_any(to - 1, at)) to--;
        from -= from % WIDTH<T>;
        at.row += from, at.rows = to - from;
        return to > from ? Seen::some : Seen::none;
    }

    // Scores of barred pairs become -inf.
    void bar(const Place& at, const std::uint8_t* allowed, T* scores) const {
        constexpr T NEVER = -__builtin_inf();
        if (!ranged) {
            for (int c = 0; c < at.keys; c++, scores += QUERIES, allowed += QUERIES)
                for (int r = 0; r < at.rows; r++) scores[r] = allowed[r] ? scores[r] : NEVER;
            return;
        }
        Number lows[QUERIES], highs[QUERIES];
        int skipped = static_cast<int>(at.row - row), lanes = (at.rows + WIDTH<T> - 1) / WIDTH<T> * WIDTH<T>;
        for (int r = 0; r < lanes; r++) {
            int own = least(skipped + r, rows - 1);
            lows[r] = static_cast<Number>(least<Index>(most<Index>(first[own] - at.key, 0), KEYS));
            highs[r] = static_cast<Number>(least<Index>(most<Index>(stop[own] - at.key, 0), KEYS));
        }
        for (int r = 0; r < lanes; r += WIDTH<T>) {
            Whole<T> from = *reinterpret_cast<const typename Lanes<T>::LooseWhole*>(lows + r);
            Whole<T> to = *reinterpret_cast<const typename Lanes<T>::LooseWhole*>(highs + r);
            for (int c = 0; c < at.keys; c++) {
                T* score = scores + c * QUERIES + r;
                Whole<T> key = static_cast<Number>(c) - Whole<T>{};
                store(score, (key >= from) & (key < to) ? load(score) : every(NEVER));
            }
        }
    }

    // Whether the tile's query r may attend to its key c.
    bool sees(const Place& at, const std::uint8_t* allowed, int r, int c) const {
        if (!ranged) return allowed[c * QUERIES + r];
        Index own = at.row - row + r, key = at.key + c;
        return first[own] <= key && key < stop[own];
    }

   private:
    bool sees_any(int r, const Place& at) const { return first[r] < at.key + at.keys && at.key < stop[r] && first[r] < stop[r]; }
};

}  // namespace overt::OVERT_LEVEL
