"""Additive attention on a GPU, forward and backward, fused with the softmax: memory is O(n·d), and no weight is stored.

A program owns a block of queries, or of keys, and loops over the others. It alone writes its sums, in a fixed order, so results are
identical in every run. Deterministic gradients cost two passes: one that owns queries, one that owns keys.
"""

import triton
import triton.language as tl

from overt.attention.kernels.triton.additive_scores import (
    CAPPED,
    INTERPRETED,
    PLAIN,
    additive_scores,
    cap,
    four_features,
    inverses,
    logistic,
    one_plus_exp,
)
from overt.attention.kernels.triton.tiles import (
    BARE_KEY,
    BARE_QUERY,
    INVERSE_TEMPERATURE,
    SINK,
    VALUE,
    added,
    allowed_pairs,
    any_allowed,
    any_true,
    dropout_factor,
    entry_offset,
    key_range,
    row_range,
)


@triton.jit
def forward(
    score, value, mask, bias, sink, inverse_temperature, seed, offsets, sizes, output, lse, width, value_strides,
    RATE: tl.constexpr, LEAK: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, BOUNDS: tl.constexpr,
    BY_DISTANCE: tl.constexpr, DROPOUT: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp of a block of queries, for WIDTH of the value's features."""
    entry, columns = tl.program_id(1), tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    number: tl.constexpr = lse.dtype.element_ty
    largest = tl.full((ROWS,), -float("inf"), number)
    total = tl.zeros((ROWS,), number)
    accumulator = tl.zeros((ROWS, WIDTH), number)
    values = value + entry_offset(offsets, VALUE, entry)
    low, high = key_range(mask, BOUNDS, entry, rows, sizes)
    for start in range(low, high, KEYS):
        keys = start + tl.arange(0, KEYS)
        some = allowed_pairs(mask, STEPS, FIRSTS, entry, rows[:, None], keys[None, :], sizes)
        if any_allowed(some, STEPS):
            scores = additive_scores(score, RATE, LEAK, offsets, entry, rows, keys, sizes, True)
            scores, some = total_scores(
                scores, some, bias, inverse_temperature, offsets, BY_DISTANCE, entry, rows[:, None], keys[None, :], sizes
            )
            now = tl.maximum(largest, tl.max(scores, 1), propagate_nan=tl.PropagateNan.ALL)
            base = tl.where(now == -float("inf"), 0, now)
            weights = tl.where(some, tl.exp(scores - base[:, None]), 0)
            shrunk = tl.exp(largest - base)
            total = total * shrunk + tl.sum(weights, 1)
            if DROPOUT > 0:
                weights *= dropout_factor(seed, DROPOUT, number, entry, rows[:, None], keys[None, :], sizes)
            value_tile = load_tile(values, value_strides, keys, sizes[1], columns, width)
            accumulator = accumulator * shrunk[:, None] + weighted_values(weights, some, value_tile)
            largest = now
    if sink is not None:
        largest, total, shrunk = with_sink(sink, offsets, entry, largest, total)
        accumulator = accumulator * shrunk[:, None]
    none = total == 0
    first = entry.to(tl.int64) * sizes[0] + rows
    result = accumulator / tl.where(none, 1, total)[:, None]
    tl.store(
        output + first[:, None] * width + columns[None, :], result, mask=(rows < sizes[0])[:, None] & (columns < width)[None, :]
    )
    if tl.program_id(2) == 0:
        sums = tl.where(none, -float("inf"), largest + tl.log(tl.where(none, 1, total)))
        tl.store(lse + first, sums, mask=rows < sizes[0])


@triton.jit
def load_tile(tensor, strides, rows, count, columns, width):
    """Load rows and columns of an entry's part of a tensor; 0 beyond its ends."""
    at = rows.to(tl.int64)[:, None] * strides[0] + columns.to(tl.int64)[None, :] * strides[1]
    return tl.load(tensor + at, mask=(rows < count)[:, None] & (columns < width)[None, :], other=0)


@triton.jit
def with_sink(sink, offsets, entry, largest, total):
    """Include the sink in the largest logit and the sum, and return the factor of each weight."""
    logit = tl.load(sink + entry_offset(offsets, SINK, entry)).to(total.dtype)
    now = tl.maximum(largest, logit, propagate_nan=tl.PropagateNan.ALL)
    base = tl.where(now == -float("inf"), 0, now)
    shrunk = tl.exp(largest - base)
    return now, total * shrunk + tl.exp(logit - base), shrunk


@triton.jit
def total_scores(scores, some, bias, inverse_temperature, offsets, BY_DISTANCE: tl.constexpr, entry, rows, keys, sizes):
    """Scores with bias and inverse_temperature, -inf where masked, and which pairs are visible: pairs with a score of -inf are not."""
    if bias is not None:
        scores += added(bias, offsets, BY_DISTANCE, entry, rows, keys, sizes).to(scores.dtype)
    if inverse_temperature is not None:
        scores *= tl.load(inverse_temperature + entry_offset(offsets, INVERSE_TEMPERATURE, entry)).to(scores.dtype)
    some = some & (scores != -float("inf"))
    return tl.where(some, scores, -float("inf")), some


@triton.jit
def weighted_values(weights, some, rows):
    """weights (A, B) times rows (B, C). NaN and infinity in a masked pair's row have no effect, although 0 · NaN is NaN."""
    if INTERPRETED:  # its product does not support bfloat16
        product = tl.dot(weights, rows.to(weights.dtype))
    elif rows.dtype == tl.float16 or rows.dtype == tl.bfloat16:
        product = tl.dot(weights.to(rows.dtype), rows)
    else:
        product = tl.dot(weights, rows, input_precision="tf32x3" if rows.dtype == tl.float32 else "ieee")
    if any_true(rows - rows != 0):
        product = tl.zeros_like(product)
        first, last = tl.arange(0, rows.shape[0]), tl.arange(0, rows.shape[0])
        for one in range(rows.shape[0]):
            row = tl.sum(tl.where((first == one)[:, None], rows.to(weights.dtype), 0), 0)  # (C,)
            weight = tl.sum(tl.where((last == one)[None, :], weights, 0), 1)  # (A,)
            is_allowed = tl.max(tl.where((last == one)[None, :], some.to(tl.int32), 0), 1)
            product += tl.where((is_allowed > 0)[:, None], weight[:, None] * row[None, :], 0)
    return product


@triton.jit
def gradients(
    score, value, upstream, mask, bias, inverse_temperature, seed, lse, delta, offsets, sizes, width, value_strides,
    d_tile, d_shares, d_scores, d_value,
    RATE: tl.constexpr, LEAK: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, BOUNDS: tl.constexpr,
    BY_DISTANCE: tl.constexpr, DROPOUT: tl.constexpr, ROWS: tl.constexpr, OTHERS: tl.constexpr, WIDTH: tl.constexpr,
    FOR_QUERIES: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of queries, with those of weights and scores per query; or of a block of keys and their values.

    The block's rows are the tile's rows, which tensor cores distribute over the lanes of one warp, so a sum over the others stays in it.
    """
    entry, columns = tl.program_id(1), tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    tile = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    number: tl.constexpr = lse.dtype.element_ty
    if FOR_QUERIES:
        low, high = key_range(mask, BOUNDS, entry, tile, sizes)
    else:
        low, high = row_range(mask, BOUNDS, entry, tl.program_id(0) * ROWS, tl.program_id(0) * ROWS + ROWS, sizes)
    result = tl.zeros((ROWS, WIDTH), number)
    summed = tl.zeros((ROWS,), number)
    first_row = entry.to(tl.int64) * sizes[0]
    for start in range(low, high, OTHERS):
        others = start + tl.arange(0, OTHERS)
        rows, keys = (tile, others) if FOR_QUERIES else (others, tile)
        row, key = (rows[:, None], keys[None, :]) if FOR_QUERIES else (rows[None, :], keys[:, None])
        some = allowed_pairs(mask, STEPS, FIRSTS, entry, row, key, sizes)
        if any_allowed(some, STEPS):
            known = score, value, upstream, bias, inverse_temperature, seed, lse, delta, offsets, width, value_strides
            slopes, weights, some = score_gradients(
                known, some, RATE, LEAK, BY_DISTANCE, DROPOUT, entry, rows, keys, sizes, WIDTH, FOR_QUERIES
            )
            if tl.program_id(2) == 0:
                summed += tl.sum(slopes, 1)
                accumulate_features(
                    score, d_tile, d_shares, slopes, offsets, entry, tile, others, sizes, RATE, LEAK, FOR_QUERIES
                )
            if not FOR_QUERIES:
                upstream_tile = load_tile(upstream + first_row * width, (width, 1), rows, sizes[0], columns, width)
                result += weighted_values(weights, some, upstream_tile)
    if FOR_QUERIES:
        tl.store(d_scores + first_row + tile, summed, mask=tile < sizes[0])
    else:
        at = (entry.to(tl.int64) * sizes[1] + tile)[:, None] * width + columns[None, :]
        tl.store(d_value + at, result, mask=(tile < sizes[1])[:, None] & (columns < width)[None, :])


@triton.jit
def score_gradients(
    known, some, RATE: tl.constexpr, LEAK: tl.constexpr, BY_DISTANCE: tl.constexpr, DROPOUT: tl.constexpr, entry, rows, keys,
    sizes,
    WIDTH: tl.constexpr, KEYS_LAST: tl.constexpr,
):  # fmt: skip
    """The gradient of each score of a tile, its weight after dropout, and whether the pair is visible."""
    score, value, upstream, bias, inverse_temperature, seed, lse, delta, offsets, width, value_strides = known
    row, key = (rows[:, None], keys[None, :]) if KEYS_LAST else (rows[None, :], keys[:, None])
    before = entry.to(tl.int64) * sizes[0]
    number: tl.constexpr = lse.dtype.element_ty
    scores = additive_scores(score, RATE, LEAK, offsets, entry, rows, keys, sizes, KEYS_LAST)
    scores, some = total_scores(scores, some, bias, inverse_temperature, offsets, BY_DISTANCE, entry, row, key, sizes)
    weights = tl.where(some, tl.exp(scores - tl.load(lse + before + row, mask=row < sizes[0], other=0)), 0)
    upstream_start = upstream + before * width
    slopes = products(
        value + entry_offset(offsets, VALUE, entry), value_strides, upstream_start, rows, keys, sizes, width, WIDTH, KEYS_LAST
    )
    dropped = weights
    if DROPOUT > 0:
        share = dropout_factor(seed, DROPOUT, number, entry, row, key, sizes)
        slopes, dropped = slopes * share, weights * share
    slopes = weights * (slopes - tl.load(delta + before + row, mask=row < sizes[0], other=0))
    if inverse_temperature is not None:
        slopes *= tl.load(inverse_temperature + entry_offset(offsets, INVERSE_TEMPERATURE, entry)).to(number)
    return tl.where(some, slopes, 0), dropped, some


@triton.jit
def products(value, strides, upstream, rows, keys, sizes, width, WIDTH: tl.constexpr, KEYS_LAST: tl.constexpr):
    """The products of each query's upstream gradient and each key's value: (rows, keys), or (keys, rows)."""
    number: tl.constexpr = upstream.dtype.element_ty
    total = tl.zeros((rows.shape[0], keys.shape[0]), number) if KEYS_LAST else tl.zeros((keys.shape[0], rows.shape[0]), number)
    for start in range(0, width, WIDTH):
        columns = start + tl.arange(0, WIDTH)
        upstream_tile = load_tile(upstream, (width, 1), rows, sizes[0], columns, width)
        value_tile = load_tile(value, strides, keys, sizes[1], columns, width).to(number)
        first, last = (upstream_tile, value_tile) if KEYS_LAST else (value_tile, upstream_tile)
        total += tl.dot(first, tl.trans(last), input_precision="tf32x3" if number == tl.float32 else "ieee")
    return total


@triton.jit
def accumulate_features(
    score, d_tile, d_shares, slopes, offsets, entry, tile, others, sizes, RATE: tl.constexpr, LEAK: tl.constexpr,
    FOR_QUERIES: tl.constexpr
):  # fmt: skip
    """Accumulate the gradients of the tile's features, and of the weights, from the scores' slopes (tile, others)."""
    _, _, query, key, _, ways, groups = score
    query, key = query + entry_offset(offsets, BARE_QUERY, entry), key + entry_offset(offsets, BARE_KEY, entry)
    tile_pack, other_pack = (query, key) if FOR_QUERIES else (key, query)
    tile_count, other_count = (sizes[0], sizes[1]) if FOR_QUERIES else (sizes[1], sizes[0])
    first = entry.to(tl.int64) * groups * tile_count
    for group in range(groups):
        a0, a1, a2, a3 = four_features(tile_pack, group, tile, tile_count)
        b0, b1, b2, b3 = four_features(other_pack, group, others, other_count)
        way = tl.load(ways + group)
        if RATE == 0:
            s0, t0 = leaky_relu_gradients(slopes, a0, b0, LEAK)
            s1, t1 = leaky_relu_gradients(slopes, a1, b1, LEAK)
            s2, t2 = leaky_relu_gradients(slopes, a2, b2, LEAK)
            s3, t3 = leaky_relu_gradients(slopes, a3, b3, LEAK)
        else:
            # Each way has its own sums: values that leave a branch are moved to the layout after it, a whole tile through shared memory.
            if way == PLAIN:
                s0, s1, s2, s3, t0, t1, t2, t3 = sigmoid_gradients(
                    slopes, logistic(a0, b0), logistic(a1, b1), logistic(a2, b2), logistic(a3, b3)
                )
            elif way == CAPPED:
                y0, y1, y2, y3 = one_plus_exp(a0, b0), one_plus_exp(a1, b1), one_plus_exp(a2, b2), one_plus_exp(a3, b3)
                r0, r1, r2, r3 = inverses(cap(y0), cap(y1), cap(y2), cap(y3))
                s0, s1, s2, s3, t0, t1, t2, t3 = sigmoid_gradients(slopes, r0, r1, r2, r3)
            else:
                r0, r1, r2, r3 = inverses(
                    one_plus_exp(a0, b0), one_plus_exp(a1, b1), one_plus_exp(a2, b2), one_plus_exp(a3, b3)
                )
                s0, s1, s2, s3, t0, t1, t2, t3 = sigmoid_gradients(slopes, r0, r1, r2, r3)
        add(d_tile, first, group, tile, tile_count, s0, s1, s2, s3)
        if FOR_QUERIES:
            add(d_shares, first, group, tile, tile_count, t0, t1, t2, t3)


@triton.jit
def add(to, first, group, tile, count, s0, s1, s2, s3):
    """Add four features of the tile to sums in the layout of packs. No other program writes there, so the order is fixed."""
    sums = tl.reshape(tl.join(tl.join(s0, s2), tl.join(s1, s3)), (tile.shape[0], 4))
    at = (first + tl.full((), group, tl.int64) * count + tile)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.atomic_add(to + at, sums, mask=(tile < count)[:, None], sem="relaxed")


@triton.jit
def sigmoid_gradients(slopes, r0, r1, r2, r3):
    """For tanh and sigmoid, r = 1 / (1 + e^x) with derivative -r (1 - r): four sums of r (1 - r) over the others, four of r."""
    s0, s1 = tl.sum(slopes * (r0 - r0 * r0), 1), tl.sum(slopes * (r1 - r1 * r1), 1)
    s2, s3 = tl.sum(slopes * (r2 - r2 * r2), 1), tl.sum(slopes * (r3 - r3 * r3), 1)
    return s0, s1, s2, s3, tl.sum(slopes * r0, 1), tl.sum(slopes * r1, 1), tl.sum(slopes * r2, 1), tl.sum(slopes * r3, 1)


@triton.jit
def leaky_relu_gradients(slopes, a, b, LEAK: tl.constexpr):
    """For max(x, LEAK · x): sums of its derivative and of its value, over the others."""
    x = a[:, None] + b[None, :]
    return tl.sum(tl.where(x > 0, slopes, LEAK * slopes), 1), tl.sum(slopes * tl.maximum(x, LEAK * x), 1)


@triton.jit
def bias_gradient(
    score, value, upstream, mask, bias, inverse_temperature, seed, lse, delta, offsets, sizes, width, value_strides, d_bias,
    sharing, sharers, shape,
    RATE: tl.constexpr, LEAK: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, DROPOUT: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, ROWWISE: tl.constexpr, KEYWISE: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of a bias tensor, summed over all entries that share it, and over queries or keys if it broadcasts."""
    first_row, first_key = tl.program_id(0) * ROWS, tl.program_id(1) * KEYS
    last_row, last_key = first_row + 1 if ROWWISE else sizes[0], first_key + 1 if KEYWISE else sizes[1]
    number: tl.constexpr = lse.dtype.element_ty
    total = tl.zeros((ROWS, KEYS), number)
    for sharer in range(sharers):
        entry = tl.load(sharing + tl.program_id(2) * sharers + sharer)
        for row_start in range(first_row, last_row, ROWS):
            for key_start in range(first_key, last_key, KEYS):
                rows, keys = row_start + tl.arange(0, ROWS), key_start + tl.arange(0, KEYS)
                some = allowed_pairs(mask, STEPS, FIRSTS, entry, rows[:, None], keys[None, :], sizes)
                if any_allowed(some, STEPS):
                    known = score, value, upstream, bias, inverse_temperature, seed, lse, delta, offsets, width, value_strides
                    slopes, _, _ = score_gradients(
                        known, some, RATE, LEAK, False, DROPOUT, entry, rows, keys, sizes, WIDTH, True
                    )
                    total += slopes
    rows, keys = first_row + tl.arange(0, ROWS), first_key + tl.arange(0, KEYS)
    if not ROWWISE:
        total, rows = tl.sum(total, 0)[None, :] + tl.zeros((ROWS, KEYS), number), tl.arange(0, ROWS)
    if not KEYWISE:
        total, keys = tl.sum(total, 1)[:, None] + tl.zeros((ROWS, KEYS), number), tl.arange(0, KEYS)
    at = tl.program_id(2).to(tl.int64) * shape[0] * shape[1] + rows.to(tl.int64)[:, None] * shape[1] + keys[None, :]
    tl.store(d_bias + at, total, mask=(rows < shape[0])[:, None] & (keys < shape[1])[None, :])


@triton.jit
def distance_gradient(
    score, value, upstream, mask, bias, inverse_temperature, seed, lse, delta, offsets, sizes, width, value_strides, d_bias,
    sharing, sharers,
    RATE: tl.constexpr, LEAK: tl.constexpr, STEPS: tl.constexpr, FIRSTS: tl.constexpr, DROPOUT: tl.constexpr,
    SIDE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of a bias by distance, for SIDE distances, summed over all entries that share it.

    In SIDE rows these distances extend over 2 · SIDE keys, so two square tiles, whose diagonals are summed.
    """
    first = tl.program_id(0) * SIDE
    side = tl.arange(0, SIDE)
    number: tl.constexpr = lse.dtype.element_ty
    total = tl.zeros((SIDE,), number)
    for sharer in range(sharers):
        entry = tl.load(sharing + tl.program_id(1) * sharers + sharer)
        for row_start in range(0, sizes[0], SIDE):
            low = first + row_start - (sizes[0] - 1)
            for key_start in range(tl.maximum(low, 0), tl.minimum(low + 2 * SIDE, sizes[1]), SIDE):
                rows, keys = row_start + side, key_start + side
                some = allowed_pairs(mask, STEPS, FIRSTS, entry, rows[:, None], keys[None, :], sizes)
                if any_allowed(some, STEPS):
                    known = score, value, upstream, bias, inverse_temperature, seed, lse, delta, offsets, width, value_strides
                    slopes, _, _ = score_gradients(
                        known, some, RATE, LEAK, True, DROPOUT, entry, rows, keys, sizes, WIDTH, True
                    )
                    column = low + side[:, None] + side[None, :] - key_start  # for each row (SIDE, 1) and distance (1, SIDE)
                    along = tl.gather(slopes, tl.minimum(tl.maximum(column, 0), SIDE - 1), 1)
                    total += tl.sum(tl.where((column >= 0) & (column < SIDE), along, 0), 0)
    distances = sizes[0] + sizes[1] - 1
    at = tl.program_id(1).to(tl.int64) * distances + first + side
    tl.store(d_bias + at, total, mask=first + side < distances)
