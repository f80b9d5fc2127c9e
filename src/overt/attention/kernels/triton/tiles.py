"""Tiles of pairs on a GPU: which pairs are visible, the bias of their scores, and which weights dropout keeps.

`rows` (queries) and `keys` are tensors of indices. In a tile they broadcast against each other: (R, 1) and (1, C) in a tile
of queries by keys, (1, R) and (C, 1) in a tile of keys by queries.
"""

import triton
import triton.language as tl

from overt.attention.kernels.flat import mask_program

RANGES, DENSE = tl.constexpr(mask_program.RANGES), tl.constexpr(mask_program.DENSE)
DOCUMENTS, BOTH = tl.constexpr(mask_program.DOCUMENTS), tl.constexpr(mask_program.BOTH)
EITHER = tl.constexpr(mask_program.EITHER)

# COLUMNS: the columns of `offsets`, where an entry's part of each tensor begins. The mask's arrays follow.
COLUMNS = ("query", "key", "bare query", "bare key", "value", "weight", "bias", "sink", "inverse_temperature", "scale")
QUERY, KEY, BARE_QUERY, BARE_KEY, VALUE, WEIGHT = (tl.constexpr(column) for column in range(6))
BIAS, SINK, INVERSE_TEMPERATURE, SCALE, ARRAYS = (tl.constexpr(column) for column in range(6, 11))

CHUNK = tl.constexpr(1024)  # rows whose ranges are searched at once


@triton.jit
def entry_offset(offsets, column, entry):
    """The offset of this entry's part of a tensor; `offsets` is the table and its width."""
    return tl.load(offsets[0] + column * offsets[1] + entry)


@triton.jit
def aligned_offset(offsets, column, entry):
    """The same for a tensor whose entries and rows are multiples of 16 numbers apart: threads read 16 bytes at once."""
    # The hint is on the load itself: a hint on another function's result is lost when that function is inlined.
    return tl.multiple_of(tl.load(offsets[0] + column * offsets[1] + entry), 16)


@triton.jit
def bound(mask, array, entry, rows, sizes, other):
    """The bounds of these rows in one of the two arrays of a range."""
    arrays, strides, offsets = mask
    start = arrays[array] + entry_offset(offsets, ARRAYS + array, entry)
    return tl.load(start + rows.to(tl.int64) * strides[array][0], mask=rows < sizes[0], other=other).to(tl.int32)


@triton.jit
def allowed_pairs(mask, STEPS: tl.constexpr, FIRSTS: tl.constexpr, entry, rows, keys, sizes):
    """Which pairs may attend: evaluates the mask's program, with pending results as bits of an integer, the last one lowest.

    FIRSTS has the index of each leaf's first array.
    """
    arrays, strides, offsets = mask
    inside = (rows < sizes[0]) & (keys < sizes[1])
    bits = inside.to(tl.int32)
    for step in tl.static_range(len(STEPS)):
        if STEPS[step] == RANGES:
            first = bound(mask, FIRSTS[step], entry, rows, sizes, 0)
            stop = bound(mask, FIRSTS[step] + 1, entry, rows, sizes, 0)
            bits = (bits << 1) | ((first <= keys) & (keys < stop)).to(tl.int32)
        elif STEPS[step] == DENSE:
            start = arrays[FIRSTS[step]] + entry_offset(offsets, ARRAYS + FIRSTS[step], entry)
            at = rows.to(tl.int64) * strides[FIRSTS[step]][0] + keys.to(tl.int64) * strides[FIRSTS[step]][1]
            bits = (bits << 1) | tl.load(start + at, mask=inside, other=0).to(tl.int32)
        elif STEPS[step] == DOCUMENTS:
            query_start = arrays[FIRSTS[step]] + entry_offset(offsets, ARRAYS + FIRSTS[step], entry)
            key_start = arrays[FIRSTS[step] + 1] + entry_offset(offsets, ARRAYS + FIRSTS[step] + 1, entry)
            query_id = tl.load(query_start + rows.to(tl.int64) * strides[FIRSTS[step]][0], mask=rows < sizes[0], other=-1)
            key_id = tl.load(key_start + keys.to(tl.int64) * strides[FIRSTS[step] + 1][0], mask=keys < sizes[1], other=-1)
            bits = (bits << 1) | ((query_id == key_id) & (query_id >= 0)).to(tl.int32)
        elif STEPS[step] == BOTH:
            bits = ((bits >> 2) << 1) | (bits & (bits >> 1) & 1)
        elif STEPS[step] == EITHER:
            bits = ((bits >> 2) << 1) | ((bits | (bits >> 1)) & 1)
        else:  # INVERSE
            bits = bits ^ 1
    return ((bits & 1) > 0) & inside


@triton.jit
def any_true(some):
    """Whether any element of a tile is true."""
    return tl.max(tl.max(some.to(tl.int32), 1), 0) > 0


@triton.jit
def any_allowed(some, STEPS: tl.constexpr):
    """Whether any pair of a tile may attend; always true without a mask, since a tile has a pair."""
    return True if len(STEPS) == 0 else any_true(some)


@triton.jit
def key_range(mask, BOUNDS: tl.constexpr, entry, rows, sizes):
    """The range of keys, first and stop, outside of which these rows (R,) see nothing.

    BOUNDS has the first array of each range outside of which no pair is visible.
    """
    low, high = 0, sizes[1]
    for leaf in tl.static_range(len(BOUNDS)):
        low = tl.maximum(low, tl.min(bound(mask, BOUNDS[leaf], entry, rows, sizes, 2**31 - 1)))
        high = tl.minimum(high, tl.max(bound(mask, BOUNDS[leaf] + 1, entry, rows, sizes, 0)))
    return low, high


@triton.jit
def row_range(mask, BOUNDS: tl.constexpr, entry, first, stop, sizes):
    """The range of rows outside of which no row sees a key from `first` to before `stop`."""
    low, high = 0, sizes[0]
    for leaf in tl.static_range(len(BOUNDS)):
        lowest, highest = sizes[0], 0
        for start in range(0, sizes[0], CHUNK):
            rows = start + tl.arange(0, CHUNK)
            near = bound(mask, BOUNDS[leaf], entry, rows, sizes, 2**31 - 1) < stop
            near = near & (bound(mask, BOUNDS[leaf] + 1, entry, rows, sizes, 0) > first)
            lowest = tl.minimum(lowest, tl.min(tl.where(near, rows, 2**31 - 1)))
            highest = tl.maximum(highest, tl.max(tl.where(near, rows + 1, 0)))
        low, high = tl.maximum(low, lowest), tl.minimum(high, highest)
    return low, high


@triton.jit
def added(bias, offsets, BY_DISTANCE: tl.constexpr, entry, rows, keys, sizes):
    """The bias of these pairs; a bias by distance has the value of j - i at index j - i + Q - 1."""
    start, row_stride, key_stride = bias
    inside = (rows < sizes[0]) & (keys < sizes[1])
    rows, keys = rows.to(tl.int64), keys.to(tl.int64)
    at = (keys - rows + sizes[0] - 1) * key_stride if BY_DISTANCE else rows * row_stride + keys * key_stride
    return tl.load(start + entry_offset(offsets, BIAS, entry) + at, mask=inside, other=0)


@triton.jit
def dropout_factor(seed, DROPOUT: tl.constexpr, number: tl.constexpr, entry, rows, keys, sizes):
    """1 / (1 − p) if dropout keeps a pair's weight, else 0, by the hash of seed and position in native/attention/dropout.hpp."""
    row_hash = mix_bits(
        mix_bits(tl.load(seed).to(tl.uint64) + 0x9E3779B97F4A7C15) + (entry.to(tl.int64) * sizes[0] + rows).to(tl.uint64)
    )
    x = keys.to(tl.uint32) * 0x9E3779B1 + row_hash.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = ((x ^ (x >> 15)) + (row_hash >> 32).to(tl.uint32)) * 0x846CA68B
    x = x ^ (x >> 16)
    LIMIT: tl.constexpr = min(int(DROPOUT * 2**32), 2**32 - 1)
    SHARE: tl.constexpr = 1 / (1 - DROPOUT) if DROPOUT < 1 else 0.0
    return (x >= LIMIT).to(number) * SHARE  # where() would round it to float32


@triton.jit
def mix_bits(x):
    """A 64-bit hash in which each bit depends on every bit of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)
