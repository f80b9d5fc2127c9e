"""Additive scores of a tile on a GPU, without one tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).

The exponentials are taken once a query and once a key (`packing`). With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four terms
share one reciprocal, 1/a + 1/b = (a + b) / ab twice over: the special-function units are used once where they would be four times. A
sigmoid is the same with e^q e^k and without the 2. Features come in groups of four, which lie beside each other in memory: (groups, rows,
4). All of it holds for tiles of queries by keys and of keys by queries.
"""

import triton
import triton.language as tl

from overt.attention.kernels.flat import operator as flat_operator
from overt.attention.kernels.triton.tiles import KEY, QUERY, WEIGHT, offset_of

# How a group of features is computed, by the range of its exponents over all queries and keys.
#   shared  four terms share a reciprocal
#   capped  so they do, each term held at CAP, so that the product of four is a number
#   plain   each has an exponential of its own, since those of query or key leave the number type
SHARED, CAPPED, PLAIN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
CAP, WIDE_CAP = tl.constexpr(2.0**29), tl.constexpr(2.0**240)  # 1 / CAP is nothing beside 1: of float32, of float64
INTERPRETED = tl.constexpr(flat_operator.INTERPRETED)


@triton.jit
def additive_scores(score, RATE: tl.constexpr, LEAK: tl.constexpr, offsets, entry, rows, keys, sizes, KEYS_LAST: tl.constexpr):
    """The scores of a tile, (rows, keys) or else (keys, rows). RATE is 2 for tanh, 1 for a sigmoid, 0 for max(x, LEAK · x)."""
    query, key, weight, ways, groups = packs_of_entry(score, offsets, entry)
    if KEYS_LAST:
        total = sum_of_features(query, rows, sizes[0], key, keys, sizes[1], weight, ways, groups, RATE, LEAK)
    else:
        total = sum_of_features(key, keys, sizes[1], query, rows, sizes[0], weight, ways, groups, RATE, LEAK)
    return tl.load(weight + 8 * groups) + tl.load(weight + 8 * groups + 1) * total


@triton.jit
def packs_of_entry(score, offsets, entry):
    """An entry's own packs: of queries, of keys, and of weights, their shares, the inverses of those, the constant and the factor."""
    query, key, _, _, weight, ways, groups = score
    return (
        query + offset_of(offsets, QUERY, entry),
        key + offset_of(offsets, KEY, entry),
        weight + offset_of(offsets, WEIGHT, entry),
        ways,
        groups,
    )


@triton.jit
def sum_of_features(
    first, firsts, first_count, last, lasts, last_count, weight, ways, groups, RATE: tl.constexpr, LEAK: tl.constexpr
):
    """Over all features, the sum of 1 / y_d, or of w_d · max(x_d, LEAK · x_d): (A, B).

    The next group is loaded before one is computed, which hides how long memory takes.
    """
    total = tl.zeros((firsts.shape[0], lasts.shape[0]), weight.dtype.element_ty)
    shares = weight if RATE == 0 else weight + 4 * groups  # or their inverses
    a, b, way = load_group(first, firsts, first_count, last, lasts, last_count, ways, 0, groups)
    s0, s1, s2, s3 = load_shares(shares, 0, groups)
    for group in range(groups):
        next_a, next_b, next_way = load_group(first, firsts, first_count, last, lasts, last_count, ways, group + 1, groups)
        next_s0, next_s1, next_s2, next_s3 = load_shares(shares, group + 1, groups)
        a0, a1, a2, a3 = four_of(a)
        b0, b1, b2, b3 = four_of(b)
        if RATE == 0:
            total += s0 * leaky_relu(a0, b0, LEAK) + s1 * leaky_relu(a1, b1, LEAK)
            total += s2 * leaky_relu(a2, b2, LEAK) + s3 * leaky_relu(a3, b3, LEAK)
        elif way == SHARED:
            total = add_inverses(total, term(a0, b0, s0), term(a1, b1, s1), term(a2, b2, s2), term(a3, b3, s3))
        elif way == CAPPED:
            y0, y1, y2, y3 = term(a0, b0, s0), term(a1, b1, s1), term(a2, b2, s2), term(a3, b3, s3)
            total = add_inverses(total, cap(y0), cap(y1), cap(y2), cap(y3))
        else:
            total += plain(a0, b0, s0) + plain(a1, b1, s1) + plain(a2, b2, s2) + plain(a3, b3, s3)
        a, b, way, s0, s1, s2, s3 = next_a, next_b, next_way, next_s0, next_s1, next_s2, next_s3
    return total


@triton.jit
def load_group(first, firsts, first_count, last, lasts, last_count, ways, group, groups):
    """A group's features of both tiles, and how it is computed; zeros after the last group."""
    return (
        load_features(first, group, groups, firsts, first_count),
        load_features(last, group, groups, lasts, last_count),
        tl.load(ways + group, mask=group < groups, other=0),
    )


@triton.jit
def load_features(pack, group, groups, index, count):
    """The four features of a group beside each other, (A, 4)."""
    start = (tl.full((), group, tl.int64) * count) * 4
    at = start + index.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    return tl.load(pack + at, mask=(index < count)[:, None] & (group < groups), other=0)


@triton.jit
def load_shares(shares, group, groups):
    """The four numbers of a group."""
    start, there = shares + 4 * group, group < groups
    return (
        tl.load(start, mask=there, other=0),
        tl.load(start + 1, mask=there, other=0),
        tl.load(start + 2, mask=there, other=0),
        tl.load(start + 3, mask=there, other=0),
    )


@triton.jit
def four_of(features):
    """The four features of a group apart, (A,) each."""
    even, odd = tl.split(tl.reshape(features, (features.shape[0], 2, 2)))  # (A, 2)
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def term(a, b, over):
    """y_d of a feature, (A, B)."""
    return a[:, None] * b[None, :] + over


@triton.jit
def add_inverses(total, y0, y1, y2, y3):
    """Add the sum of 1 / y of each of four, by one reciprocal."""
    y01, y23 = y0 * y1, y2 * y3
    return tl.fma(reciprocal(y01 * y23), (y0 + y1) * y23 + (y2 + y3) * y01, total)


@triton.jit
def cap(y):
    """y, no further from 0 than the cap; NaN stays."""
    LIMIT: tl.constexpr = WIDE_CAP if y.dtype == tl.float64 else CAP
    y = tl.minimum(y, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(y, -LIMIT, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def reciprocal(x):
    """1 / x. The approximate instruction is right to one unit in the last place, and its subnormals are 0."""
    # One return: Triton compiles what follows a branch that returns, too.
    if INTERPRETED or x.dtype == tl.float64:
        inverse = 1 / x
    else:
        inverse = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return inverse


@triton.jit
def plain(a, b, over):
    """1 / y of exponents that are too far from 0 to be raised apart."""
    return 1 / (over * (1 + tl.exp(a[:, None] + b[None, :])))


@triton.jit
def leaky_relu(a, b, LEAK: tl.constexpr):
    """max(x, LEAK · x)."""
    x = a[:, None] + b[None, :]
    return tl.maximum(x, LEAK * x, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def one_plus_exp(a, b):
    """1 + e^x from the exponentials of both: (A, B)."""
    return a[:, None] * b[None, :] + 1


@triton.jit
def inverses(y0, y1, y2, y3):
    """1 / y of each of four, by one reciprocal."""
    y01, y23 = y0 * y1, y2 * y3
    over = reciprocal(y01 * y23)
    over01, over23 = over * y23, over * y01
    return over01 * y1, over01 * y0, over23 * y3, over23 * y2


@triton.jit
def logistic(a, b):
    """The same of exponents that are too far from 0 to be raised apart; 0 where they are infinities that leave no number."""
    inverse = 1 / (1 + tl.exp(a[:, None] + b[None, :]))
    return tl.where(inverse == inverse, inverse, 0)
