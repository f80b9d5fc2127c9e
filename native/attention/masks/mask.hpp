// Which keys the rows of a tile may attend to.
#pragma once

#include "kernels.hpp"

namespace overt {

enum class Coverage { none, partial, full };

// The strides of rows and keys in a tile: of ROWS x KEYS, or of KEYS x QUERIES.
struct Layout {
    int row, key;
};
constexpr Layout ROW_MAJOR{KEYS, 1}, TRANSPOSED{1, QUERIES};
constexpr int MASK_SIZE = (ROWS > QUERIES ? ROWS : QUERIES) * KEYS;

}  // namespace overt

namespace overt::OVERT_LEVEL {

// The interval of keys low <= j < high that contains every key that rows first to stop of this entry may attend to.
void mask_span(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high);

// An interval of keys low <= j < high that all of these rows may attend to, as far as is known without reading pairs; may be empty.
void mask_core(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high);

// Whether the mask allows all, some or none of the pairs of a tile. If it allows some, `allowed` holds 1 or 0 for each pair.
Coverage mask_tile(const Mask& mask, Index entry, Index row, int rows, Index key, int keys, Layout layout, std::uint8_t* allowed);

}  // namespace overt::OVERT_LEVEL
