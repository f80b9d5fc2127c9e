#include "attention/masks/mask.hpp"

#include <cstring>

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// A tile's pairs form lines: its rows, or its keys if it is transposed. A byte may alias anything, so loops that
// write bytes take these numbers by value; otherwise they are reloaded after each write.
struct MaskTile {
    Index entry, row, key;
    int rows, keys;
    bool transposed;
    int lines() const { return transposed ? keys : rows; }
    int length() const { return transposed ? rows : keys; }
    int stride() const { return transposed ? QUERIES : KEYS; }
    int size() const { return transposed ? KEYS * QUERIES : ROWS * KEYS; }
};

// Calls `change(pair, line, i)` for each pair: number i of a line.
template <class Change>
inline void for_pairs(const MaskTile& tile, std::uint8_t* allowed, Change change) {
    const int lines = tile.lines(), length = tile.length(), stride = tile.stride();
    for (int line = 0; line < lines; line++, allowed += stride)
        for (int i = 0; i < length; i++) change(allowed[i], line, i);
}
constexpr int LONGEST = KEYS > QUERIES ? KEYS : QUERIES;  // LONGEST line; a byte holds the sum over at most as many lines

// The result of one step for a tile: `allowed` is set if `coverage` is partial.
struct StepResult {
    Coverage coverage;
    std::uint8_t* allowed;
};

template <class T>
const T* at(const Matrix& matrix, Index entry, Index row) {
    return static_cast<const T*>(matrix.data) + matrix.offsets[entry] + row * matrix.row;
}

Index clamped(Index number, Index low, Index high) { return min_of(max_of(number, low), high); }

Coverage coverage_from_count(Index allowed, const MaskTile& tile) {
    if (allowed == 0) return Coverage::none;
    return allowed == Index{tile.rows} * tile.keys ? Coverage::full : Coverage::partial;
}

Coverage coverage_of_pairs(const std::uint8_t* allowed, const MaskTile& tile) {
    static_assert(LONGEST < 256 && ROWS < 256);
    const int lines = tile.lines(), length = tile.length(), stride = tile.stride();
    std::uint8_t sums[LONGEST] = {};
    for (int line = 0; line < lines; line++, allowed += stride)
        for (int i = 0; i < length; i++) sums[i] += allowed[i];
    Index total = 0;
    for (int i = 0; i < length; i++) total += sums[i];
    return coverage_from_count(total, tile);
}

Coverage ranges(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    Index total = 0;
    std::uint8_t lows[QUERIES], highs[QUERIES];
    for (int r = 0; r < tile.rows; r++) {
        // Clamped to the tile first: the values may be any numbers, whose differences may overflow.
        Index low = clamped(*at<Index>(step.first, tile.entry, tile.row + r), tile.key, tile.key + tile.keys) - tile.key;
        Index high = clamped(*at<Index>(step.second, tile.entry, tile.row + r), tile.key + low, tile.key + tile.keys) - tile.key;
        lows[r] = static_cast<std::uint8_t>(low), highs[r] = static_cast<std::uint8_t>(high);
        total += high - low;
    }
    Coverage coverage = coverage_from_count(total, tile);
    if (coverage != Coverage::partial) return coverage;
    if (tile.transposed)
        for_pairs(tile, allowed, [&](std::uint8_t& pair, int line, int r) {
            pair = static_cast<std::uint8_t>((lows[r] <= line) & (line < highs[r]));
        });
    else
        for (int r = 0; r < tile.rows; r++) {
            std::memset(allowed + r * KEYS, 0, tile.keys);
            std::memset(allowed + r * KEYS + lows[r], 1, highs[r] - lows[r]);
        }
    return coverage;
}

// Squares of 8 x 8 bytes, side by side: eight rows each; an integer holds one row of a square.
typedef std::uint64_t SquareRows __attribute__((vector_size(OVERT_BYTES)));
constexpr int SQUARES = OVERT_BYTES / 8;

// Exchanges the bytes of two rows that a transposition of squares of half the size exchanges.
inline void exchange(SquareRows& upper, SquareRows& lower, int shift, std::uint64_t bytes) {
    SquareRows differing = ((upper >> shift) ^ lower) & bytes;
    lower ^= differing, upper ^= differing << shift;
}

inline void transpose_squares(SquareRows (&rows)[8]) {
    for (int i = 0; i < 4; i++) exchange(rows[i], rows[i + 4], 32, 0x00000000FFFFFFFF);
    for (int i = 0; i < 8; i += i % 2 ? 3 : 1) exchange(rows[i], rows[i + 2], 16, 0x0000FFFF0000FFFF);
    for (int i = 0; i < 8; i += 2) exchange(rows[i], rows[i + 1], 8, 0x00FF00FF00FF00FF);
}

// Transposes the bytes of a matrix with contiguous rows.
void transpose_pairs(const std::uint8_t* from, Index from_row, const MaskTile& tile, std::uint8_t* allowed) {
    const int rows = tile.rows, keys = tile.keys;
    for (int r = 0; r < rows; r += 8)
        for (int c = 0; c < keys; c += 8 * SQUARES) {
            SquareRows squares[8] = {};
            const int columns = min_of(keys - c, 8 * SQUARES);
            for (int i = 0; i < min_of(rows - r, 8); i++) {
                const std::uint8_t* row = from + (r + i) * from_row + c;
                if (columns == 8 * SQUARES) std::memcpy(&squares[i], row, OVERT_BYTES);
                else std::memcpy(&squares[i], row, columns);
            }
            transpose_squares(squares);
            std::uint8_t* line = allowed + c * QUERIES + r;
            for (int column = 0; column < columns; column++, line += QUERIES) {
                std::uint64_t pairs = squares[column % 8][column / 8];
                std::memcpy(line, &pairs, 8);
            }
        }
}

Coverage dense(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    const std::uint8_t* from = at<std::uint8_t>(step.first, tile.entry, tile.row) + tile.key * step.first.column;
    const Index along = tile.transposed ? step.first.row : step.first.column;
    const Index across = tile.transposed ? step.first.column : step.first.row;
    if (tile.transposed && across == 1) {
        transpose_pairs(from, along, tile, allowed);
        for_pairs(tile, allowed, [](std::uint8_t& pair, int, int) { pair = pair != 0; });
    } else if (along == 1) {
        for_pairs(tile, allowed, [=](std::uint8_t& pair, int line, int i) { pair = from[line * across + i] != 0; });
    } else {
        for_pairs(tile, allowed, [=](std::uint8_t& pair, int line, int i) { pair = from[line * across + i * along] != 0; });
    }
    return coverage_of_pairs(allowed, tile);
}

// The document of each row of the tile, or of each key.
void read_ids(const Matrix& ids, Index entry, Index first, int count, Index stride, Index* to) {
    const Index* from = at<Index>(ids, entry, 0) + first * stride;
    for (int i = 0; i < count; i++) to[i] = from[i * stride];
}

Coverage documents(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    Index rows[QUERIES > ROWS ? QUERIES : ROWS], keys[KEYS];
    read_ids(step.first, tile.entry, tile.row, tile.rows, step.first.row, rows);
    read_ids(step.second, tile.entry, tile.key, tile.keys, step.second.column, keys);
    const Index *lines = tile.transposed ? keys : rows, *others = tile.transposed ? rows : keys;
    // A negative id is no document; it suffices to test one of two equal ids.
    for_pairs(tile, allowed, [=](std::uint8_t& pair, int line, int i) { pair = (others[i] == lines[line]) & (lines[line] >= 0); });
    return coverage_of_pairs(allowed, tile);
}

// Whether each block of queries may attend to each block of keys; few of a tile's pairs lie in more than one of each.
Coverage blocks(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    const Index *sizes = static_cast<const Index*>(step.second.data), of_queries = sizes[0], of_keys = sizes[1];
    const Index first_row = tile.row / of_queries, last_row = (tile.row + tile.rows - 1) / of_queries;
    const Index first_key = tile.key / of_keys, last_key = (tile.key + tile.keys - 1) / of_keys;
    const std::uint8_t* table = at<std::uint8_t>(step.first, tile.entry, 0);
    const Index row = step.first.row, column = step.first.column;
    bool any = false, all = true;
    for (Index r = first_row; r <= last_row; r++)
        for (Index k = first_key; k <= last_key; k++) {
            bool listed = table[r * row + k * column] != 0;
            any = any || listed, all = all && listed;
        }
    if (!any || all) return any ? Coverage::full : Coverage::none;
    Index rows[QUERIES > ROWS ? QUERIES : ROWS], keys[KEYS];
    for (int r = 0; r < tile.rows; r++) rows[r] = (tile.row + r) / of_queries * row;
    for (int c = 0; c < tile.keys; c++) keys[c] = (tile.key + c) / of_keys * column;
    const Index *lines = tile.transposed ? keys : rows, *others = tile.transposed ? rows : keys;
    for_pairs(tile, allowed, [=](std::uint8_t& pair, int line, int i) { pair = table[lines[line] + others[i]] != 0; });
    return Coverage::partial;
}

StepResult combined(StepResult a, StepResult b, Coverage certain, const MaskTile& tile) {
    // `certain` decides without the other result: none for "both", full for "either". The opposite returns the other result unchanged.
    if (a.coverage == certain || b.coverage == certain) return {certain, a.allowed};
    if (a.coverage != Coverage::partial) return {b.coverage, b.allowed};
    if (b.coverage != Coverage::partial) return a;
    const std::uint8_t* other = b.allowed;
    const int stride = tile.stride();
    if (certain == Coverage::none)
        for_pairs(tile, a.allowed, [=](std::uint8_t& pair, int line, int i) { pair &= other[line * stride + i]; });
    else
        for_pairs(tile, a.allowed, [=](std::uint8_t& pair, int line, int i) { pair |= other[line * stride + i]; });
    return {coverage_of_pairs(a.allowed, tile), a.allowed};
}

StepResult inverted(StepResult a, const MaskTile& tile) {
    if (a.coverage == Coverage::none) return {Coverage::full, a.allowed};
    if (a.coverage == Coverage::full) return {Coverage::none, a.allowed};
    for_pairs(tile, a.allowed, [](std::uint8_t& pair, int, int) { pair ^= 1; });
    return a;
}

Coverage leaf(const MaskStep& step, const MaskTile& tile, std::uint8_t* allowed) {
    if (step.step == Step::ranges) return ranges(step, tile, allowed);
    if (step.step == Step::blocks) return blocks(step, tile, allowed);
    return step.step == Step::dense ? dense(step, tile, allowed) : documents(step, tile, allowed);
}

// The keys from the first listed block of these rows to the last.
void span_of_blocks(const MaskStep& step, Index entry, Index first, Index stop, Index keys, Index* low, Index* high) {
    const Index* sizes = static_cast<const Index*>(step.second.data);
    const Index count = (keys + sizes[1] - 1) / sizes[1];
    Index from = count, to = 0;
    for (Index row = first / sizes[0]; first < stop && row <= (stop - 1) / sizes[0]; row++) {
        const std::uint8_t* listed = at<std::uint8_t>(step.first, entry, row);
        Index k = 0;
        while (k < from && !listed[k * step.first.column]) k++;
        from = k;
        for (k = count; k > to && !listed[(k - 1) * step.first.column];) k--;
        to = max_of(to, k);
    }
    *low = min_of(from * sizes[1], keys), *high = min_of(to * sizes[1], keys);
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
            lows[top] = both ? max_of(lows[top], lows[top + 1]) : min_of(lows[top], lows[top + 1]);
            highs[top] = both ? min_of(highs[top], highs[top + 1]) : max_of(highs[top], highs[top + 1]);
            continue;
        }
        if (step.step != Step::inverse) top++;
        lows[top] = 0, highs[top] = keys;
        if (step.step == Step::blocks) span_of_blocks(step, entry, first, stop, keys, &lows[top], &highs[top]);
        if (step.step != Step::ranges) continue;
        lows[top] = keys, highs[top] = 0;
        for (Index row = first; row < stop; row++) {
            Index start = *at<Index>(step.first, entry, row), end = *at<Index>(step.second, entry, row);
            if (start >= end) continue;
            lows[top] = min_of(lows[top], start);
            highs[top] = max_of(highs[top], end);
        }
    }
    *low = clamped(lows[top], 0, keys);
    *high = clamped(highs[top], *low, keys);
}

void mask_core(const Mask& mask, Index entry, Index first, Index stop, Index keys, Index* low, Index* high) {
    *low = 0, *high = mask.count == 0 ? keys : 0;
    if (mask.count != 1 || mask.steps[0].step != Step::ranges) return;
    *high = keys;
    for (Index row = first; row < stop; row++) {
        *low = max_of<Index>(*low, *at<Index>(mask.steps[0].first, entry, row));
        *high = min_of<Index>(*high, *at<Index>(mask.steps[0].second, entry, row));
    }
}

Coverage mask_tile(const Mask& mask, Index entry, Index row, int rows, Index key, int keys, Layout layout, std::uint8_t* allowed) {
    if (mask.count == 0) return Coverage::full;
    MaskTile tile{entry, row, key, rows, keys, layout.key != 1};
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

}  // namespace overt::OVERT_LEVEL
