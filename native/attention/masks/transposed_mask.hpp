// A mask over transposed tiles. A mask of one range of keys per query is read once for a block of queries. For other masks a program
// evaluates the pairs of each tile into `allowed`, MASK_SIZE bytes.
#pragma once

#include "attention/masks/mask.hpp"
#include "attention/tiles/tiles.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// CUT: keys of a tile cut by a range, and keys and queries of a tile cut by blocks: smaller tiles compute fewer masked pairs.
constexpr int CUT = 32;

template <class T>
class TransposedMask {
    using Number = typename Lanes<T>::Number;
    const Inputs* inputs;
    bool ranged;
    Index first[QUERIES], stop[QUERIES], core_low, core_high;

   public:
    Index entry, row;  // where the block begins
    int rows;
    Index low, high;  // the keys that its queries may attend to

    TransposedMask(const Inputs& inputs, Index entry, Index block)
        : inputs(&inputs), ranged(inputs.mask.count == 1 && inputs.mask.steps[0].step == Step::ranges), entry(entry),
          row(block * QUERIES), rows(static_cast<int>(min_of<Index>(QUERIES, inputs.queries - row))) {
        core_low = low = 0, core_high = high = inputs.keys;
        if (!ranged) {
            mask_span(inputs.mask, entry, row, row + rows, inputs.keys, &low, &high);
            core_high = inputs.mask.count ? 0 : high;
            return;
        }
        const Matrix &from = inputs.mask.steps[0].first, &to = inputs.mask.steps[0].second;
        const Index* starts = static_cast<const Index*>(from.data) + from.offsets[entry] + row * from.row;
        const Index* ends = static_cast<const Index*>(to.data) + to.offsets[entry] + row * to.row;
        low = inputs.keys, high = 0;
        for (int r = 0; r < rows; r++) {
            first[r] = min_of(max_of<Index>(starts[r * from.row], 0), inputs.keys);
            stop[r] = min_of(max_of(ends[r * to.row], first[r]), inputs.keys);
            core_low = max_of(core_low, first[r]), core_high = min_of(core_high, stop[r]);
            if (first[r] < stop[r]) low = min_of(low, first[r]), high = max_of(high, stop[r]);
        }
    }

    // The tile from at.key on, before `end`: sets its keys and the rows of the block's queries that attend to any of them.
    Coverage next(Tile& at, Index end, std::uint8_t* allowed) const {
        at.row = row, at.rows = rows;
        at.keys = static_cast<int>(min_of<Index>(KEYS, end - at.key));
        if (core_low <= at.key && at.key + at.keys <= core_high) return Coverage::full;
        if (!ranged) {
            if (inputs->mask.count == 1 && inputs->mask.steps[0].step == Step::blocks && !cut_to_blocks(at)) return Coverage::none;
            return mask_tile(inputs->mask, at.entry, at.row, at.rows, at.key, at.keys, TRANSPOSED, allowed);
        }
        at.keys = min_of(at.keys, CUT);
        int from = 0, to = rows;
        while (from < to && !attends_any(from, at)) from++;
        while (from < to && !attends_any(to - 1, at)) to--;
        from -= from % WIDTH<T>;
        at.row += from, at.rows = to - from;
        return to > from ? Coverage::partial : Coverage::none;
    }

    // Sets the scores of masked pairs to -inf.
    void apply(const Tile& at, const std::uint8_t* allowed, T* scores) const {
        constexpr T NEVER = -__builtin_inf();
        if (!ranged) {
            for (int c = 0; c < at.keys; c++, scores += QUERIES, allowed += QUERIES)
                for (int r = 0; r < at.rows; r++) scores[r] = allowed[r] ? scores[r] : NEVER;
            return;
        }
        Number lows[QUERIES], highs[QUERIES];
        int skipped = static_cast<int>(at.row - row), lanes = (at.rows + WIDTH<T> - 1) / WIDTH<T> * WIDTH<T>;
        for (int r = 0; r < lanes; r++) {
            int query = min_of(skipped + r, rows - 1);
            lows[r] = static_cast<Number>(min_of<Index>(max_of<Index>(first[query] - at.key, 0), KEYS));
            highs[r] = static_cast<Number>(min_of<Index>(max_of<Index>(stop[query] - at.key, 0), KEYS));
        }
        for (int r = 0; r < lanes; r += WIDTH<T>) {
            Whole<T> from = *reinterpret_cast<const typename Lanes<T>::LooseWhole*>(lows + r);
            Whole<T> to = *reinterpret_cast<const typename Lanes<T>::LooseWhole*>(highs + r);
            for (int c = 0; c < at.keys; c++) {
                T* score = scores + c * QUERIES + r;
                Whole<T> key = static_cast<Number>(c) - Whole<T>{};
                store(score, (key >= from) & (key < to) ? load(score) : broadcast(NEVER));
            }
        }
    }

    // Whether the tile's query r may attend to its key c.
    bool attends(const Tile& at, const std::uint8_t* allowed, int r, int c) const {
        if (!ranged) return allowed[c * QUERIES + r];
        Index query = at.row - row + r, key = at.key + c;
        return first[query] <= key && key < stop[query];
    }

   private:
    // Cuts a tile that blocks allow in part to some of its keys, and to the part of the queries that attends to any of them; false for none.
    bool cut_to_blocks(Tile& at) const {
        if (listed(at) != Coverage::partial) return listed(at) == Coverage::full;
        at.keys = min_of(at.keys, CUT);
        for (; at.rows > CUT; at.row += CUT, at.rows -= CUT)
            if (listed({at.entry, at.row, at.key, CUT, at.keys}) != Coverage::none) break;
        for (int kept = (at.rows - 1) / CUT * CUT; kept > 0; kept -= CUT) {
            if (listed({at.entry, at.row + kept, at.key, at.rows - kept, at.keys}) != Coverage::none) break;
            at.rows = kept;
        }
        return listed(at) != Coverage::none;
    }

    // Whether blocks allow any of a tile's pairs, or all.
    Coverage listed(const Tile& at) const {
        const MaskStep& step = inputs->mask.steps[0];
        const Index *sizes = static_cast<const Index*>(step.second.data), of_queries = sizes[0], of_keys = sizes[1];
        const std::uint8_t* table = static_cast<const std::uint8_t*>(step.first.data) + step.first.offsets[at.entry];
        bool any = false, all = true;
        for (Index r = at.row / of_queries; r <= (at.row + at.rows - 1) / of_queries; r++)
            for (Index k = at.key / of_keys; k <= (at.key + at.keys - 1) / of_keys; k++) {
                const bool here = table[r * step.first.row + k * step.first.column] != 0;
                any = any || here, all = all && here;
            }
        return !any ? Coverage::none : all ? Coverage::full : Coverage::partial;
    }

    bool attends_any(int r, const Tile& at) const { return first[r] < at.key + at.keys && at.key < stop[r] && first[r] < stop[r]; }
};

}  // namespace overt::OVERT_LEVEL
