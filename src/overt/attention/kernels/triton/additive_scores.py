"""Additive scores of a tile on a GPU without tanh: sum_d w_d tanh(q_d + k_d) = sum_d w_d - 2 sum_d w_d / (1 + e^2q_d e^2k_d).

The exponentials are computed once a query and once a key (`packing`). With y_d = (1 + e^2q_d e^2k_d) / w_d, one multiply-add each, four
terms share one reciprocal, 1/a + 1/b = (a + b) / ab applied twice: special-function units are used once instead of four times. A
sigmoid is the same with e^q e^k and without the 2. Features come in groups of four, adjacent in memory: (groups, rows, 4). Tiles are
queries by keys, or keys by queries.
"""

import triton
import triton.language as tl

from overt.attention.kernels.flat import operator as flat_operator
from overt.attention.kernels.triton.tiles import KEY, QUERY, WEIGHT, entry_offset

# SHARED, CAPPED, PLAIN: how to compute a group of features, by the range of its exponents over all queries and keys.
#   shared  four terms share a reciprocal
#   capped  the same, with each term limited to CAP, so that the product of four is finite
#   plain   each term has its own exponential, since those of query or key overflow
SHARED, CAPPED, PLAIN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
CAP, WIDE_CAP = tl.constexpr(2.0**29), tl.constexpr(2.0**240)  # 1 / CAP is negligible next to 1: float32, float64
INTERPRETED = tl.constexpr(flat_operator.INTERPRETED)


@triton.jit
def additive_scores(score, RATE: tl.constexpr, LEAK: tl.constexpr, offsets, entry, rows, keys, sizes, KEYS_LAST: tl.constexpr):
    """The scores of a tile, (rows, keys) or (keys, rows). RATE is 2 for tanh, 1 for a sigmoid, 0 for max(x, LEAK · x)."""
    query, key, weight, ways, groups = entry_packs(score, offsets, entry)
    if KEYS_LAST:
        total = feature_sum(query, rows, sizes[0], key, keys, sizes[1], weight, ways, groups, RATE, LEAK)
    else:
        total = feature_sum(key, keys, sizes[1], query, rows, sizes[0], weight, ways, groups, RATE, LEAK)
    return tl.load(weight + 8 * groups) + tl.load(weight + 8 * groups + 1) * total


@triton.jit
def entry_packs(score, offsets, entry):
    """An entry's packs: queries, keys, and weights with their shares, inverse shares, constant and factor."""
    query, key, _, _, weight, ways, groups = score
    return (
        query + entry_offset(offsets, QUERY, entry),
        key + entry_offset(offsets, KEY, entry),
        weight + entry_offset(offsets, WEIGHT, entry),
        ways,
        groups,
    )


@triton.jit
def feature_sum(
    first, firsts, first_count, last, lasts, last_count, weight, ways, groups, RATE: tl.constexpr, LEAK: tl.constexpr
):
    """The sum over all features of 1 / y_d, or of w_d · max(x_d, LEAK · x_d): (A, B).

    A thread has tiles of 4 by 4 pairs, which read the fewest features: dimensions of size 4 come first, the outer ones last, along
    which Triton distributes threads.
    """
    A: tl.constexpr = firsts.shape[0] // 4
    B: tl.constexpr = lasts.shape[0] // 4
    total = tl.zeros((4, 4, A, B), weight.dtype.element_ty)
    firsts, lasts = tl.trans(tl.reshape(firsts, (A, 4))), tl.trans(tl.reshape(lasts, (B, 4)))
    shares = weight if RATE == 0 else weight + 4 * groups  # or inverse shares
    for group in range(groups):
        a0, a1, a2, a3 = four_features(first, group, firsts, first_count)
        b0, b1, b2, b3 = four_features(last, group, lasts, last_count)
        s0, s1, s2, s3 = load_shares(shares, group)
        way = tl.load(ways + group)
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
    return tl.reshape(tl.permute(total, (2, 1, 3, 0)), (4 * A, 4 * B))


@triton.jit
def four_features(pack, group, index, count):
    """The four features of a group, separately, each of the index's shape; beyond the last row, the last row's."""
    at = pack + tl.full((), group, tl.int64) * count * 4 + tl.minimum(index, count - 1) * 4
    # One return: Triton also compiles the code after a branch that returns.
    if INTERPRETED or pack.dtype.element_ty != tl.float32:
        four = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    else:
        # One instruction loads all four, exactly for the rows that a thread computes: nothing goes through shared memory.
        four = tl.inline_asm_elementwise(
            "ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];",
            "=r,=r,=r,=r,l",
            [at.to(tl.int64)],
            dtype=(tl.float32,) * 4,
            is_pure=True,
            pack=1,
        )
    return four


@triton.jit
def load_shares(shares, group):
    """Load the four shares of a group."""
    start = shares + 4 * group
    return tl.load(start), tl.load(start + 1), tl.load(start + 2), tl.load(start + 3)


@triton.jit
def term(a, b, over):
    """y_d of a feature, from a (4, A) and b (4, B): (4, 4, A, B)."""
    return a[None, :, :, None] * b[:, None, None, :] + over


@triton.jit
def add_inverses(total, y0, y1, y2, y3):
    """Add the sum of 1 / y for four y, by one reciprocal."""
    y01, y23 = y0 * y1, y2 * y3
    return tl.fma(reciprocal(y01 * y23), (y0 + y1) * y23 + (y2 + y3) * y01, total)


@triton.jit
def cap(y):
    """y limited to the cap in absolute value; NaN stays."""
    LIMIT: tl.constexpr = WIDE_CAP if y.dtype == tl.float64 else CAP
    y = tl.minimum(y, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(y, -LIMIT, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def reciprocal(x):
    """1 / x. The approximate instruction is accurate to one unit in the last place, and flushes subnormals to 0."""
    # One return: Triton also compiles the code after a branch that returns.
    if INTERPRETED or x.dtype == tl.float64:
        inverse = 1 / x
    else:
        inverse = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return inverse


@triton.jit
def plain(a, b, over):
    """1 / y for exponents too large in absolute value to be exponentiated separately."""
    return 1 / (over * (1 + tl.exp(a[None, :, :, None] + b[:, None, None, :])))


@triton.jit
def leaky_relu(a, b, LEAK: tl.constexpr):
    """max(x, LEAK · x)."""
    x = a[None, :, :, None] + b[:, None, None, :]
    return tl.maximum(x, LEAK * x, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def one_plus_exp(a, b):
    """1 + e^x from the exponentials of query and key: (A, B)."""
    return a[:, None] * b[None, :] + 1


@triton.jit
def inverses(y0, y1, y2, y3):
    """1 / y for four y, by one reciprocal."""
    y01, y23 = y0 * y1, y2 * y3
    over = reciprocal(y01 * y23)
    over01, over23 = over * y23, over * y01
    return over01 * y1, over01 * y0, over23 * y3, over23 * y2


@triton.jit
def logistic(a, b):
    """The same for exponents too large to be exponentiated separately; 0 if they are infinities whose sum is NaN."""
    inverse = 1 / (1 + tl.exp(a[:, None] + b[None, :]))
    return tl.where(inverse == inverse, inverse, 0)
