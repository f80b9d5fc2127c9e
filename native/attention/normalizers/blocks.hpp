// Common to the normalizers' passes: blocks of queries, of some entries at a time, and their tiles of total scores.
#pragma once

#include "attention/scores/score_tiles.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// Entries in memory at once: enough to give each thread a few blocks.
static inline Index entries_for_blocks(const Team& team, Index blocks) {
    return max_of<Index>(1, min_of(team.entries, count(4 * team.threads, max_of<Index>(blocks, 1))));
}

// One thread's memory for total scores: its reader's memory, a tile of scores, a tile of biases before and after their transposition or
// rows of values, a tile's mask.
template <class T>
struct TileWorkspace {
    ReaderPlace place;
    TileReader<T>& reader;
    T *scores, *spare;
    std::uint8_t* allowed;

    static Index size(const Inputs& inputs, const TileSource<T>& source) {
        Index spare = max_of<Index>(KEYS * padded<T>(inputs.value_dim), inputs.bias.data ? 2 * TRANSPOSED_TILE : 0);
        return padded<T>(source.reader_size()) + TRANSPOSED_TILE + padded<T>(spare) + MASK_SIZE / static_cast<Index>(sizeof(T)) + 64;
    }
    TileWorkspace(const Inputs& inputs, const TileSource<T>& source, T* memory)
        : reader(source.reader(place, memory)), scores(memory + padded<T>(source.reader_size())), spare(scores + TRANSPOSED_TILE),
          allowed(reinterpret_cast<std::uint8_t*>(memory + size(inputs, source)) - MASK_SIZE) {}

    // work(at, coverage, skipped) for each tile of a block's queries against keys from `first` on, before `stop`: its total scores, times
    // `factor`, are in `scores`, -inf where a pair is masked; `skipped` are the block's queries before the tile's.
    template <class Work>
    void each_tile(const Inputs& inputs, Index slot, const TransposedMask<T>& mask, Index first, Index stop, double factor, Work work) {
        Tile at{mask.entry, mask.row, max_of(mask.low, first), mask.rows, 0};
        Index end = min_of(mask.high, stop);
        if (at.key < end) reader.begin(slot, at, factor);
        for (; at.key < end && !interrupted(inputs); at.key += at.keys) {
            Coverage coverage = mask.next(at, end, allowed);
            if (coverage == Coverage::none) continue;
            reader.scores(at, scores);
            if (inputs.bias.data) add_transposed_bias(inputs.bias, at, static_cast<T>(factor), scores, spare);
            if (coverage == Coverage::partial) mask.apply(at, allowed, scores);
            work(at, coverage, static_cast<int>(at.row - mask.row));
        }
    }
};

}  // namespace overt::OVERT_LEVEL
