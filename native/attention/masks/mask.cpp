#include "attention/masks/mask.hpp"

#include <algorithm>
#include <cstring>

namespace overt {
namespace {

struct MaskTile {
    Index entry, row, key;
    int rows, keys;
    Layout layout;
    int at(int r, int c) const { return r * layout.row + c * layout.key; }
    int size() const { return layout.key == 1 ? ROWS * KEYS : KEYS * QUERIES; }
};

// The result of one step for a tile: `allowed` is set where `coverage` is partial.
struct StepResult {
    Coverage coverage;
    std::uint8_t* allowed;
};

template <class T>
const T* at(const Matrix& matrix, Index entry, Index row) {
    return static_cast<const T*>(matrix.data) + matrix.offsets[entry] + row * matrix.row;
}

Coverage coverage_from_count(Index allowed, const MaskTile& tile) {
    if (allowed == 0) return Coverage::none;
    return allowed == Index{tile.rows} * tile.keys ? Coverage::full : Coverage::partial;
}

Coverage ranges(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    Index total = 0;
    std::uint8_t lows[QUERIES], highs[QUERIES];
    for (int r = 0; r < tile.rows; r++) {
        // Clamped to the tile first: the values may be any numbers, whose differences may overflow.
        Index low = std::clamp<Index>(*at<Index>(step.first, tile.entry, tile.row + r), tile.key, tile.key + tile.keys) - tile.key;
        Index high =
            std::clamp<Index>(*at<Index>(step.second, tile.entry, tile.row + r), tile.key + low, tile.key + tile.keys) - tile.key;
        lows[r] = static_cast<std::uint8_t>(low), highs[r] = static_cast<std::uint8_t>(high);
        total += high - low;
    }
    Coverage coverage = coverage_from_count(total, tile);
    if (coverage != Coverage::partial) return coverage;
    if (tile.layout.key == 1)
        for (int r = 0; r < tile.rows; r++) {
            std::memset(allowed + tile.at(r, 0), 0, tile.keys);
            std::memset(allowed + tile.at(r, lows[r]), 1, highs[r] - lows[r]);
        }
    else
        for (int c = 0; c < tile.keys; c++)
            for (int r = 0; r < tile.rows; r++) allowed[tile.at(0, c) + r] = lows[r] <= c && c < highs[r];
    return coverage;
}

Coverage dense(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    Index total = 0;
    for (int r = 0; r < tile.rows; r++) {
        const std::uint8_t* from = at<std::uint8_t>(step.first, tile.entry, tile.row + r) + tile.key * step.first.column;
        for (int c = 0; c < tile.keys; c++) {
            std::uint8_t& pair = allowed[tile.at(r, c)];
            pair = from[c * step.first.column] != 0;
            total += pair;
        }
    }
    return coverage_from_count(total, tile);
}

Coverage documents(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    Index total = 0;
    const Index* ids = at<Index>(step.second, tile.entry, 0) + tile.key * step.second.column;
    for (int r = 0; r < tile.rows; r++) {
        Index document = *at<Index>(step.first, tile.entry, tile.row + r);
        for (int c = 0; c < tile.keys; c++) {
            std::uint8_t& pair = allowed[tile.at(r, c)];
            pair = document >= 0 && ids[c * step.second.column] == document;
            total += pair;
        }
    }
    return coverage_from_count(total, tile);
}

StepResult combined(StepResult a, StepResult b, Coverage certain, const MaskTile& tile) {
    // `certain` decides alone: none for "both", full for "either". The opposite leaves the other result unchanged.
    if (a.coverage == certain || b.coverage == certain) return {certain, a.allowed};
    if (a.coverage != Coverage::partial) return {b.coverage, b.allowed};
    if (b.coverage != Coverage::partial) return a;
    Index total = 0;
    for (int r = 0; r < tile.rows; r++)
        for (int c = 0; c < tile.keys; c++) {
            std::uint8_t &pair = a.allowed[tile.at(r, c)], other = b.allowed[tile.at(r, c)];
            pair = certain == Coverage::none ? pair & other : pair | other;
            total += pair;
        }
    return {coverage_from_count(total, tile), a.allowed};
}

StepResult inverted(StepResult a, const MaskTile& tile) {
    if (a.coverage == Coverage::none) return {Coverage::full, a.allowed};
    if (a.coverage == Coverage::full) return {Coverage::none, a.allowed};
    for (int r = 0; r < tile.rows; r++)
        for (int c = 0; c < tile.keys; c++) a.allowed[tile.at(r, c)] ^= 1;
    return a;
}

Coverage leaf(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    if (step.step == Step::ranges) return ranges(step, tile, allowed);
    return step.step == Step::dense ? dense(step, tile, allowed) : documents(step, tile, allowed);
}

}  // namespace

void mask_span(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high) {
    Index lows[MASK_DEPTH + 1], highs[MASK_DEPTH + 1];
    int top = 0;
    lows[0] = 0, highs[0] = keys;
    for (int s = 0; s < mask.count; s++) {
        const MaskStep& step = mask.steps[s];
        if (step.step == Step::both || step.step == Step::either) {
            top--;
            bool both = step.step == Step::both;
            lows[top] = both ? std::max(lows[top], lows[top + 1]) : std::min(lows[top], lows[top + 1]);
            highs[top] = both ? std::min(highs[top], highs[top + 1]) : std::max(highs[top], highs[top + 1]);
            continue;
        }
        if (step.step != Step::inverse) top++;
        lows[top] = 0, highs[top] = keys;
        if (step.step != Step::ranges) continue;
        lows[top] = keys, highs[top] = 0;
        for (Index row = first; row < stop; row++) {
            Index start = *at<Index>(step.first, entry, row), end = *at<Index>(step.second, entry, row);
            if (start >= end) continue;
            lows[top] = std::min(lows[top], start);
            highs[top] = std::max(highs[top], end);
        }
    }
    *low = std::clamp<Index>(lows[top], 0, keys);
    *high = std::clamp<Index>(highs[top], *low, keys);
}

void mask_core(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high) {
    *low = 0, *high = mask.count == 0 ? keys : 0;
    if (mask.count != 1 || mask.steps[0].step != Step::ranges) return;
    *high = keys;
    for (Index row = first; row < stop; row++) {
        *low = std::max(*low, *at<Index>(mask.steps[0].first, entry, row));
        *high = std::min(*high, *at<Index>(mask.steps[0].second, entry, row));
    }
}

Coverage mask_tile(const Mask& mask, Index entry, Index row, int rows, Index key, int keys, Layout layout, std::uint8_t* allowed) {
    if (mask.count == 0) return Coverage::full;
    MaskTile tile{entry, row, key, rows, keys, layout};
    std::uint8_t spare[MASK_DEPTH - 1][MASK_SIZE];
    StepResult results[MASK_DEPTH];
    std::uint8_t* free[MASK_DEPTH];  // a stack of unused buffers
    int pending = 0, left = 0;
    for (int i = MASK_DEPTH - 1; i > 0; i--) free[left++] = spare[i - 1];
    free[left++] = allowed;
    for (int s = 0; s < mask.count; s++) {
        const MaskStep& step = mask.steps[s];
        if (step.step == Step::inverse) {
            results[pending - 1] = inverted(results[pending - 1], tile);
        } else if (step.step == Step::both || step.step == Step::either) {
            StepResult last = results[--pending], before = results[pending - 1];
            StepResult now = combined(before, last, step.step == Step::both ? Coverage::none : Coverage::full, tile);
            free[left++] = now.allowed == before.allowed ? last.allowed : before.allowed;
            results[pending - 1] = now;
        } else {
            std::uint8_t* buffer = free[--left];
            results[pending++] = {leaf(step, tile, buffer), buffer};
        }
    }
    if (results[0].coverage == Coverage::partial && results[0].allowed != allowed)
        std::memcpy(allowed, results[0].allowed, tile.size());
    return results[0].coverage;
}

}  // namespace overt
