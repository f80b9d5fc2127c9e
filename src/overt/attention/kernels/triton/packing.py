"""Pack queries and keys for additive kernels on a GPU: exponentials, in groups of four adjacent features.

This module makes the reciprocal form of `additive_scores` safe: the range of each feature's exponents over all queries and keys
decides whether its group of four is shared, capped or plain. Exponents far from 0 are shifted to their middle, the keys' in
opposite direction, so that e^q and e^k are finite whenever e^(q + k) is.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from overt.attention.kernels.triton.additive_scores import CAPPED, PLAIN, SHARED

RATES = {"tanh": 2, "sigmoid": 1, "relu": 0, "leaky_relu": 0}
LEAKS = {"relu": 0.0, "leaky_relu": 0.2}
ROWS = 64  # queries or keys packed by one program

FILLING = tl.constexpr(2.0**-10)  # the share of the padding features of a group; the constant subtracts it again
LOG2E = tl.constexpr(1.4426950408889634)


class PackedTensors(NamedTuple):
    """The packed inputs of the kernels, in the computation's dtype, with each tensor's own entries in sequence."""

    query: Tensor  # (..., G, Q, 4), divided by shares
    key: Tensor  # (..., G, K, 4)
    bare_query: Tensor | None  # (..., G, Q, 4), undivided and with 0 for NaN: the gradients' input
    bare_key: Tensor | None
    weight: Tensor  # (..., 8 G + 2): shares of the largest weight, inverse shares, a constant, a factor
    ways: Tensor  # (G,) int32


def packed(query: Tensor, key: Tensor, weight: Tensor, activation: str, bare: bool = False) -> PackedTensors:
    """Pack queries (..., Q, D) and keys (..., K, D) of any dtype for weights (..., D) of the computation's dtype."""
    rate, features = RATES[activation], query.shape[-1]
    groups, entries = -(-features // 4), math.prod(weight.shape[:-1])
    workspace = weight.new_empty(*weight.shape[:-1], 8 * groups + 2)
    ways = weight.new_empty(groups, dtype=torch.int32)
    middle = weight.new_empty(4 * groups)
    limits = [limit for tensor in (query, key) for limit in _limits(tensor)]
    block = triton.next_power_of_2(max(groups, 1))
    _weigh[(1,)](weight.contiguous(), *limits, workspace, ways, middle, entries, features, groups, block, rate)
    divided = query
    if rate and entries > 1:  # each query is divided by its entry's weights
        divided = query.expand(*torch.broadcast_shapes(query.shape[:-2], weight.shape[:-1]), *query.shape[-2:])
    shared = workspace, ways, middle, rate
    pair = (
        _raised(divided, *shared, SIGN=-1, OVER_SHARES=True, CLEAN=False),
        _raised(key, *shared, SIGN=1, OVER_SHARES=False, CLEAN=False),
    )
    bares = (_raised(array, *shared, SIGN=sign, OVER_SHARES=False, CLEAN=True) for array, sign in ((query, -1), (key, 1)))
    return PackedTensors(*pair, *(bares if bare else (None, None)), workspace, ways)


def _limits(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The minimum and maximum of each feature over all rows of all entries; NaN if any is NaN."""
    rows = tensor.detach().flatten(0, -2)
    return torch.aminmax(rows, dim=0) if len(rows) else (rows.new_zeros(rows.shape[-1]),) * 2


def _raised(tensor: Tensor, workspace: Tensor, ways: Tensor, middle: Tensor, rate: int, **how: bool | int) -> Tensor:
    """The exponentials of a tensor (..., N, D), or its exponents in plain groups: (..., G, N, 4)."""
    rows, features, groups = *tensor.shape[-2:], len(ways)
    pack = workspace.new_empty(*tensor.shape[:-2], groups, rows, 4)
    entries = tensor.numel() // max(rows * features, 1)
    if not pack.numel():
        return pack
    flat, weight_entries = (
        tensor.detach().reshape(entries, rows, features),
        torch.arange(workspace[..., 0].numel(), device=workspace.device),
    )
    many = bool(how["OVER_SHARES"]) and len(weight_entries) > 1  # each query is divided by its entry's weights
    weight_entries = (
        weight_entries.reshape(workspace.shape[:-1]).expand(tensor.shape[:-2]).reshape(-1) if many else weight_entries
    )
    grid = (triton.cdiv(rows, ROWS), entries)
    _raise[grid](
        flat, *flat.stride(), pack, workspace, ways, middle, weight_entries, rows, features, groups, ROWS=ROWS, RATE=rate, MANY=many, **how
    )  # fmt: skip
    return pack


@triton.jit
def _weigh(
    weight, q_low, q_high, k_low, k_high, workspace, ways, middle, entries, features, groups, GROUPS: tl.constexpr,
    RATE: tl.constexpr
):  # fmt: skip
    """In one program: shares, inverse shares, constant and factor of each entry's weights, and the way of each group of features."""
    WIDE: tl.constexpr = weight.dtype.element_ty == tl.float64
    EXPONENT: tl.constexpr = 700.0 if WIDE else 87.0  # e^x and e^-x are finite up to here
    BUDGET: tl.constexpr = 1000.0 if WIDE else 120.0  # a product of four stays below this power of two
    group = tl.arange(0, GROUPS)
    feature = group[:, None] * 4 + tl.arange(0, 4)[None, :]  # (GROUPS, 4)
    real, there = feature < features, feature < 4 * groups
    cost = tl.zeros((GROUPS, 4), weight.dtype.element_ty)  # log2 of the largest inverse
    for entry in range(entries):
        weights = tl.load(weight + entry * features + feature, mask=real, other=0)
        record = workspace + entry * (8 * groups + 2)
        if RATE == 0:
            tl.store(record + feature, weights, mask=there)
            tl.store(record + 8 * groups, 0)
            tl.store(record + 8 * groups + 1, 1)
        else:
            cost = tl.maximum(cost, _share(weights, record, feature, real, there, features, groups, RATE))
    if RATE > 0:
        low = tl.load(q_low + feature, mask=real, other=0).to(cost.dtype) * RATE
        high = tl.load(q_high + feature, mask=real, other=0).to(cost.dtype) * RATE
        shift = _middle(low, high, EXPONENT, WIDE)
        tl.store(middle + feature, shift, mask=there)
        low, high = low - shift, high - shift
        least = tl.load(k_low + feature, mask=real, other=0).to(cost.dtype) * RATE + shift
        most = tl.load(k_high + feature, mask=real, other=0).to(cost.dtype) * RATE + shift
        # All comparisons with NaN are false.
        within = (low >= -EXPONENT) & (high + cost / LOG2E <= EXPONENT) & (least >= -EXPONENT) & (most <= EXPONENT)
        power = cost + tl.maximum(0, (high + most) * LOG2E) + 1
        small = tl.sum(tl.where(real, power, -tl.log2(FILLING)), 1) <= BUDGET
        way = tl.where(tl.min(within.to(tl.int32), 1) == 0, PLAIN, tl.where(small, SHARED, CAPPED))
        tl.store(ways + group, way, mask=group < groups)


@triton.jit
def _share(weights, record, feature, real, there, features, groups, RATE: tl.constexpr):
    """Write one entry's record; returns log2 of the inverse shares."""
    total = tl.sum(tl.sum(weights.to(tl.float64), 1), 0)
    # LEAST: as shares of the largest weight no y is below 1. Weights near 0 alternately become LEAST and -LEAST, so that the errors
    # of many capped terms cancel. Weights that are not finite stay as they are, and make every group plain.
    LEAST: tl.constexpr = 2.0**-100 if weights.dtype == tl.float64 else 2.0**-33
    unit = tl.max(tl.max(tl.abs(weights), 1), 0)
    finite = total - total == 0
    factor = -RATE * tl.where(finite, unit, 1)
    share = weights / tl.where(finite & (unit > 0), unit, 1)
    share = tl.where(tl.abs(share) < LEAST, tl.where(feature % 2 == 0, LEAST, -LEAST), share)
    share = tl.where(real, share, FILLING)
    tl.store(record + feature, share, mask=there)
    tl.store(record + 4 * groups + feature, 1 / share, mask=there)
    tl.store(record + 8 * groups, (total - factor.to(tl.float64) * ((4 * groups - features) * FILLING)).to(weights.dtype))
    tl.store(record + 8 * groups + 1, factor)
    return tl.where(finite, tl.where(real, -tl.log2(tl.abs(share)), 0), float("inf"))


@triton.jit
def _middle(low, high, EXPONENT: tl.constexpr, WIDE: tl.constexpr):
    """The shift of exponents: 0 near 0, and 0 if their range is too large for a shift to help."""
    NEAR: tl.constexpr = 300.0 if WIDE else 40.0
    far = (tl.maximum(high, -low) > NEAR) & (high / 2 - low / 2 <= EXPONENT)
    return tl.where(far, low / 2 + high / 2, 0)


@triton.jit
def _raise(
    tensor, entry_stride, row_stride, feature_stride, pack, workspace, ways, middle, weight_entries, rows, features, groups,
    ROWS: tl.constexpr, RATE: tl.constexpr, SIGN: tl.constexpr, OVER_SHARES: tl.constexpr, CLEAN: tl.constexpr,
    MANY: tl.constexpr,
):  # fmt: skip
    """Pack a block of rows of one entry."""
    entry = tl.program_id(1).to(tl.int64)
    index, fourth = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, 4)[None, :]
    record = workspace + (tl.load(weight_entries + entry) if MANY else 0) * (8 * groups + 2)
    for group in range(groups):
        feature = group * 4 + fourth
        at = entry * entry_stride + index.to(tl.int64) * row_stride + feature * feature_stride
        x = tl.load(tensor + at, mask=(index < rows) & (feature < features), other=0).to(pack.dtype.element_ty)
        if CLEAN:
            # A masked pair's slope is 0, and 0 · NaN is NaN. A visible pair's slope is itself NaN.
            x = tl.where((x == x) & ((RATE > 0) | (tl.abs(x) < float("inf"))), x, 0)
        if RATE > 0:
            x = x * RATE + SIGN * tl.load(middle + feature)
            if tl.load(ways + group) != PLAIN:
                x = tl.where(feature < features, tl.exp(x), 0)
                if OVER_SHARES:
                    x = x * tl.load(record + 4 * groups + feature)
            else:
                x = tl.where(feature < features, x, -float("inf"))
        tl.store(pack + ((entry * groups + group) * rows + index) * 4 + fourth, x, mask=index < rows)
