// Which keys the rows of a tile may attend to.
#pragma once

#include "kernels.hpp"

namespace overt {

enum class Seen { none, some, all };

// How many results a mask's program may have waiting at once; a deeper one is refused before it comes here.
constexpr int MASK_DEPTH = 8;

// The keys outside of which rows first to stop of this entry may attend to nothing: low <= j < high.
void mask_span(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high);

// Keys that every one of these rows may attend to, where that is told without looking at pairs: low <= j < high, or none.
void mask_core(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high);

// How far from each other neighbouring rows, and neighbouring keys, stand in a tile: of ROWS x KEYS, or of KEYS x QUERIES.
struct Layout {
    int row, key;
};
constexpr Layout UPRIGHT{KEYS, 1}, TURNED{1, QUERIES};
constexpr int MASK_ROOM = (ROWS > QUERIES ? ROWS : QUERIES) * KEYS;

// Whether the tile of these rows and keys is seen; where it is seen in part, `allowed` says which pairs are (1 or 0).
Seen mask_tile(const Mask& mask, Index entry, Index row, int rows, Index key, int keys, Layout layout, std::uint8_t* allowed);

}  // namespace overt
