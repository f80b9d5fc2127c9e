"""Statistics of attention weights on a GPU: one pass that owns queries, one that owns keys; neither stores a pair.

The first computes each query's log-sum-exp, entropy, largest weights and output. With the log-sum-exp, by which a weight is
e^(score - lse), the second computes the weight that each key receives, and the cells of the map.
"""

import triton
import triton.language as tl

from overt.attention.kernels.triton.additive import load_tile, total_scores, weighted_values, with_sink
from overt.attention.kernels.triton.additive_scores import INTERPRETED, additive_scores
from overt.attention.kernels.triton.packing import LOG2E
from overt.attention.kernels.triton.tiles import (
    CHUNK,
    KEY,
    QUERY,
    SCALE,
    VALUE,
    aligned_offset,
    allowed_pairs,
    any_allowed,
    any_true,
    entry_offset,
    key_range,
    row_range,
)

NONE = tl.constexpr(2**31 - 1)  # no key: larger than any key's index

# RATE, LEAK, SOFTCAP, FEATURES, WHOLE: indices in FORM, the compile-time constants of scores: the additive rate or else DOT, the leak, the
# softcap or 0, the number of features in a tile, and whether these are all.
RATE, LEAK, SOFTCAP, FEATURES, WHOLE = (tl.constexpr(index) for index in range(5))
DOT = tl.constexpr(-1)


@triton.jit
def whole_tile(score, FORM: tl.constexpr, offsets, entry, index, sizes, FOR_QUERIES: tl.constexpr):
    """All features of a block of queries or keys (A, FEATURES); a number if they do not fit a tile."""
    if FORM[WHOLE]:
        query, key, query_row, query_feature, key_row, key_feature, features, _ = score
        columns = tl.arange(0, FORM[FEATURES])
        if FOR_QUERIES:
            start, strides, count = query + aligned_offset(offsets, QUERY, entry), (query_row, query_feature), sizes[0]
        else:
            start, strides, count = key + aligned_offset(offsets, KEY, entry), (key_row, key_feature), sizes[1]
        tile = load_tile(start, strides, index, count, columns, features)
    else:
        tile = 0
    return tile


@triton.jit
def pair_scores(score, stationary, FORM: tl.constexpr, offsets, entry, rows, keys, sizes, KEYS_LAST: tl.constexpr):
    """The scores of a tile, (rows, keys) or (keys, rows): additive or dot products. `stationary` is a `whole_tile`."""
    # One return: Triton also compiles the code after a branch that returns.
    if FORM[RATE] == DOT:
        scores = dot_scores(score, stationary, FORM, offsets, entry, rows, keys, sizes, KEYS_LAST)
    else:
        scores = additive_scores(score, FORM[RATE], FORM[LEAK], offsets, entry, rows, keys, sizes, KEYS_LAST)
    return scores


@triton.jit
def dot_scores(score, stationary, FORM: tl.constexpr, offsets, entry, rows, keys, sizes, KEYS_LAST: tl.constexpr):
    """scale · q · k, or softcap · tanh(scale · q · k / softcap)."""
    query, key, query_row, query_feature, key_row, key_feature, features, scale = score
    if FORM[WHOLE]:
        scores = product(stationary, whole_tile(score, FORM, offsets, entry, keys if KEYS_LAST else rows, sizes, not KEYS_LAST))
    else:
        query, key = query + aligned_offset(offsets, QUERY, entry), key + aligned_offset(offsets, KEY, entry)
        query_strides, key_strides = (query_row, query_feature), (key_row, key_feature)
        if KEYS_LAST:
            scores = products(query, query_strides, rows, sizes[0], key, key_strides, keys, sizes[1], features, FORM[FEATURES])
        else:
            scores = products(key, key_strides, keys, sizes[1], query, query_strides, rows, sizes[0], features, FORM[FEATURES])
    scores *= tl.load(scale + entry_offset(offsets, SCALE, entry)).to(scores.dtype)
    if FORM[SOFTCAP] > 0:
        shrunk = tl.exp(-2 * tl.abs(scores) / FORM[SOFTCAP])
        size = FORM[SOFTCAP] * (1 - shrunk) / (1 + shrunk)
        scores = tl.where(scores < 0, -size, size)
    return scores


@triton.jit
def products(first, first_strides, firsts, first_count, last, last_strides, lasts, last_count, features, COLUMNS: tl.constexpr):
    """Dot products of rows (A, D) and rows (B, D), COLUMNS of the features at a time: (A, B)."""
    number: tl.constexpr = tl.float64 if first.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros((firsts.shape[0], lasts.shape[0]), number)
    for start in range(0, features, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        a = load_tile(first, first_strides, firsts, first_count, columns, features)
        total += product(a, load_tile(last, last_strides, lasts, last_count, columns, features))
    return total


@triton.jit
def product(a, b):
    """Dot products of rows (A, D) and rows (B, D): (A, B)."""
    precision: tl.constexpr = "tf32x3" if a.dtype == tl.float32 else "ieee"
    if INTERPRETED and a.dtype != tl.float64:  # its product does not support bfloat16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, tl.trans(b), input_precision=precision)


@triton.jit
def query_statistics(
    score, value, mask, bias, sink, inverse_temperature, offsets, sizes, lse, entropy, alive, top_weights, top_keys, top,
    output, width, value_strides,
    FORM: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, BOUNDS: tl.constexpr, BY_DISTANCE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, TOP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Compute the statistics of a block of queries. TOP is `top` rounded up, 0 for none; WIDTH is the rounded number of value features."""
    entry, rows = tl.program_id(1), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    number: tl.constexpr = lse.dtype.element_ty
    largest = tl.full((ROWS,), -float("inf"), number)
    total, slope = tl.zeros((ROWS,), number), tl.zeros((ROWS,), number)
    best, names = empty_slots(ROWS, max(TOP, 1), number)
    columns = tl.program_id(2) * max(WIDTH, 1) + tl.arange(0, max(WIDTH, 1))
    accumulator, values = tl.zeros((ROWS, max(WIDTH, 1)), number), value + aligned_offset(offsets, VALUE, entry)
    stationary = whole_tile(score, FORM, offsets, entry, rows, sizes, True)
    low, high = key_range(mask, BOUNDS, entry, rows, sizes)
    for start in range(low, high, KEYS):
        keys = start + tl.arange(0, KEYS)
        row, key = rows[:, None], keys[None, :]
        some = allowed_pairs(mask, STEPS, FIRSTS, entry, row, key, sizes)
        if any_allowed(some, STEPS):
            scores = pair_scores(score, stationary, FORM, offsets, entry, rows, keys, sizes, True)
            scores, some = total_scores(scores, some, bias, inverse_temperature, offsets, BY_DISTANCE, entry, row, key, sizes)
            weights, shrunk, now, total, slope = read(scores, some, largest, total, slope)
            if TOP > 0:
                best, names = top_scores(best, names, scores, some, keys)
            if WIDTH > 0:
                value_tile = load_tile(values, value_strides, keys, sizes[1], columns, width)
                accumulator = accumulator * shrunk[:, None] + weighted_values(weights, some, value_tile)
            largest = now
    row_sum, peak, first, there = total, largest, entry.to(tl.int64) * sizes[0] + rows, rows < sizes[0]
    if sink is not None:
        peak, total, _ = with_sink(sink, offsets, entry, largest, total)
    none = total == 0
    sums = tl.where(none, -float("inf"), peak + tl.log(tl.where(none, 1, total)))
    if WIDTH > 0:
        # The sink's share is subtracted from every weight.
        share = tl.where(row_sum == 0, 0, tl.exp(largest - sums))
        at = first[:, None] * width + columns[None, :]
        tl.store(output + at, accumulator * share[:, None], mask=there[:, None] & (columns < width)[None, :])
    if tl.program_id(2) == 0:
        spread = tl.log(tl.where(row_sum == 0, 1, row_sum)) - tl.where(row_sum == 0, 0, slope / row_sum)
        tl.store(lse + first, sums, mask=there)
        tl.store(entropy + first, tl.maximum(spread, 0, propagate_nan=tl.PropagateNan.ALL), mask=there)
        tl.store(alive + first, (row_sum != 0).to(number), mask=there)
        if TOP > 0:
            write_top(best, names, sums, top_weights + first * top, top_keys + first * top, top, there)


@triton.jit
def read(scores, some, largest, total, slope):
    """A tile's weights, the factor of earlier weights, and the updated largest score and sums of e^below and of e^below · below."""
    now = tl.maximum(largest, tl.max(scores, 1), propagate_nan=tl.PropagateNan.ALL)
    base = tl.where(now == -float("inf"), 0, now)
    below = tl.where(some, scores - base[:, None], 0)
    weights = tl.where(some, exp(below), 0)
    gap = tl.where(total == 0, 0, largest - base)
    shrunk = tl.exp(gap)
    slope = shrunk * (slope + gap * total) + tl.sum(weights * below, 1)
    return weights, shrunk, now, total * shrunk + tl.sum(weights, 1), slope


@triton.jit
def exp(x):
    """e^x. The approximate instruction is accurate to two units in the last place, and flushes subnormals to 0."""
    # One return: Triton also compiles the code after a branch that returns.
    if INTERPRETED or x.dtype == tl.float64:
        power = tl.exp(x)
    else:
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x * LOG2E], dtype=tl.float32, is_pure=True, pack=1
        )
    return power


@triton.jit
def empty_slots(ROWS: tl.constexpr, SLOTS: tl.constexpr, number: tl.constexpr):
    """Slots for the largest scores of each row and their keys; each empty slot has a different name."""
    names = tl.zeros((ROWS, SLOTS), tl.int32) - 1 - tl.arange(0, SLOTS)[None, :]
    return tl.full((ROWS, SLOTS), -float("inf"), number), names


@triton.jit
def top_scores(best, names, scores, some, keys):
    """Merge a tile's scores into the largest of each row, unordered; of equal scores the earlier key stays. NaN is the largest."""
    left = tl.where(some, tl.where(scores == scores, scores, float("inf")), -float("inf"))
    bar = tl.min(best, 1)
    while any_true(left > bar[:, None]):
        high = tl.max(left, 1)
        key = tl.min(tl.where(left == high[:, None], keys[None, :], NONE), 1)
        # Replace the slot with the latest key among the smallest scores.
        last = tl.max(tl.where(best == bar[:, None], names, -NONE), 1)
        taken = (high > bar)[:, None] & (best == bar[:, None]) & (names == last[:, None])
        best, names = tl.where(taken, high[:, None], best), tl.where(taken, key[:, None], names)
        left = tl.where(keys[None, :] == key[:, None], -float("inf"), left)
        bar = tl.min(best, 1)
    return best, names


@triton.jit
def write_top(best, names, lse, weights, keys, top, there):
    """Write a block's largest weights in decreasing order, and their keys; 0 and -1 if there are fewer."""
    for rank in range(top):
        high = tl.max(best, 1)
        key = tl.min(tl.where((best == high[:, None]) & (names >= 0), names, NONE), 1)
        none = key == NONE
        tl.store(weights + rank, tl.where(none, 0, tl.exp(high - lse)), mask=there)
        tl.store(keys + rank, tl.where(none, -1, key), mask=there)
        taken = names == key[:, None]
        best, names = tl.where(taken, -float("inf"), best), tl.where(taken, -1, names)


@triton.jit
def key_statistics(
    score, mask, bias, inverse_temperature, offsets, sizes, lse, received, row_edges, key_edges, map_sum, map_max, counts, parts, wide,
    FORM: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, BOUNDS: tl.constexpr, BY_DISTANCE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, CELLS: tl.constexpr,
):  # fmt: skip
    """Compute the weights received by the keys of `wide` pieces, and their cells of the map. CELLS is at least `wide`, 0 without a map.

    The edges are the pieces': `counts` of them, of at most ROWS rows and KEYS keys; `parts` pieces of rows are a row of the map.
    """
    entry, first_cell = tl.program_id(1), tl.program_id(0) * wide
    last_key = tl.load(key_edges + tl.minimum(first_cell + wide, counts[1])).to(tl.int32)
    keys = tl.load(key_edges + first_cell).to(tl.int32) + tl.arange(0, KEYS)
    number: tl.constexpr = lse.dtype.element_ty
    cell_offsets = tl.arange(0, max(CELLS, 1))
    there = (cell_offsets < wide) & (first_cell + cell_offsets < counts[1])
    in_cell = in_cells(key_edges, first_cell, cell_offsets, there, keys)  # (KEYS, CELLS)
    sums, tops, all_received = tl.zeros((max(CELLS, 1),), number), tl.zeros((max(CELLS, 1),), number), tl.zeros((KEYS,), number)
    stationary = whole_tile(score, FORM, offsets, entry, keys, sizes, False)
    low, high = row_range(mask, BOUNDS, entry, tl.load(key_edges + first_cell).to(tl.int32), last_key, sizes)
    known = score, mask, bias, inverse_temperature, offsets, sizes, lse
    first_piece, last_piece = piece_range(row_edges, counts[0], len(BOUNDS) > 0, low, high)
    for piece in range(first_piece, last_piece):
        rows = tl.load(row_edges + piece).to(tl.int32) + tl.arange(0, ROWS)
        last_row = tl.load(row_edges + piece + 1).to(tl.int32)
        total, most = received_weights(
            known, stationary, entry, rows, last_row, keys, last_key, FORM, STEPS, FIRSTS, BY_DISTANCE
        )
        all_received += total
        if CELLS > 0:
            sums += tl.sum(tl.where(in_cell, total[:, None], 0), 0)
            # A NaN sum makes the maximum NaN too; a maximum alone would ignore NaN.
            tops = tl.maximum(tops, tl.max(tl.where(in_cell, most[:, None], 0), 0))
            complete = ((piece + 1) % parts == 0) | (piece + 1 == last_piece)
            at = (entry.to(tl.int64) * (counts[0] // parts) + piece // parts) * counts[1] + first_cell + cell_offsets
            tl.store(map_sum + at, sums, mask=there & complete)
            tl.store(map_max + at, tl.where(sums == sums, tops, sums), mask=there & complete)
            sums, tops = tl.where(complete, 0, sums), tl.where(complete, 0, tops)
    tl.store(received + entry.to(tl.int64) * sizes[1] + keys, all_received, mask=keys < last_key)


@triton.jit
def received_weights(
    known, stationary, entry, rows, last_row, keys, last_key, FORM: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
):  # fmt: skip
    """The sum and maximum of the weights that each of these keys receives from these rows."""
    score, mask, bias, inverse_temperature, offsets, sizes, lse = known
    number: tl.constexpr = lse.dtype.element_ty
    row, key = rows[None, :], keys[:, None]
    total, most = tl.zeros((keys.shape[0],), number), tl.zeros((keys.shape[0],), number)
    some = allowed_pairs(mask, STEPS, FIRSTS, entry, row, key, (last_row, last_key))
    if any_allowed(some, STEPS):
        scores = pair_scores(score, stationary, FORM, offsets, entry, rows, keys, sizes, False)
        scores, some = total_scores(scores, some, bias, inverse_temperature, offsets, BY_DISTANCE, entry, row, key, sizes)
        shift = tl.load(lse + entry.to(tl.int64) * sizes[0] + rows, mask=rows < last_row, other=0)
        weights = tl.where(some, exp(scores - shift[None, :]), 0)
        total, most = tl.sum(weights, 1), tl.max(weights, 1)
    return total, most


@triton.jit
def piece_range(edges, count, BOUNDED: tl.constexpr, low, high):
    """The first piece with rows from `low` to before `high`, and the piece after the last; all pieces if not BOUNDED."""
    first, stop = 0, count
    if BOUNDED:
        first, stop = -1, 0
        for start in range(0, count, CHUNK):
            piece = start + tl.arange(0, CHUNK)
            edge = tl.load(edges + piece, mask=piece < count, other=2**31 - 1)
            first += tl.sum((edge <= low).to(tl.int32))
            stop += tl.sum((edge < high).to(tl.int32))
        first, stop = tl.maximum(first, 0), tl.where(low < high, stop, 0)
    return first, stop


@triton.jit
def in_cells(key_edges, first_cell, cell_offsets, there, keys):
    """Which of a program's keys lie in which of its cells: (KEYS, CELLS)."""
    first = tl.load(key_edges + first_cell + cell_offsets, mask=there, other=0)
    stop = tl.load(key_edges + first_cell + cell_offsets + 1, mask=there, other=0)
    return (first[None, :] <= keys[:, None]) & (keys[:, None] < stop[None, :])
