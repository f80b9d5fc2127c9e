"""Sums over all pairs of numbers in O(n): the fast Gauss transform, attention by value, also to the past only, and the dot score."""

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.chebyshev import interpolate_difference, interpolate_kernel, polynomials
from overt.smoothing.heads.keys import NEGLIGIBLE, RowMoments
from overt.smoothing.heads.local.compiled import TERMS, attend_compiled, box_grid

# TOGETHER: boxes of targets that are computed at a time.
TOGETHER = 2048
# SHORTEST: keys from which `attend_past` is faster than pair by pair.
SHORTEST = 4096
# BLOCK: points of the smallest block; fewer points at the end of a past are summed pair by pair, for ROWS rows at a time.
BLOCK, ROWS = 64, 4096


def gaussian_sums(sources: Floats, charges: Floats, targets: Floats, bandwidth: float, moments: int = 0) -> Floats:
    """Σ_j q_j exp(−u²/2) u^p with u = (s_j − t_i)/h, for p = 0 … moments (4 at most), in O(n + m) for any bandwidth.

    Sources (n,) and targets (m,) are ascending, charges are (c, n); returns (moments + 1, c, m). The fast Gauss transform (Greengard
    and Strain 1991), in one dimension and by Chebyshev polynomials. Errors are below 2e-14 · Σ_j |q_j| over the sources
    within twelve bandwidths of a target, and below 1e-17 · Σ_j |q_j| over all others.

    >>> gaussian_sums(np.array([0.0, 1.0]), np.array([[1.0, 2.0]]), np.array([0.0]), 1.0).round(4)
    array([[[2.2131]]])
    """
    if native.available():
        powers = [
            attend_compiled(sources, charge, charge, targets, bandwidth, (moments + 1) // 2, raw=True) for charge in charges
        ]
        return np.stack(powers, axis=1)[: moments + 1] if len(powers) > 1 else powers[0][: moments + 1, None]
    return _by_boxes(sources, charges, targets, bandwidth, moments)


def attend_scalar(values: Floats, weights: Floats | None, bandwidth: float) -> RowMoments:
    """Attention of values (n,) in any order to each other: W_ij ∝ w_j exp(−(x_i − x_j)²/2h²), in O(n).

    Errors are below 1e-13 of max|x|, errors of the variance below 1e-13 of h².

    >>> attend_scalar(np.array([0.0, 9.0, 1.0]), None, 1.0).values.round(4)
    array([0.3775, 9.    , 0.6225])
    """
    order = np.argsort(values)
    ordered, charge = values[order], np.ones(values.size) if weights is None else weights[order]
    total, first, second = gaussian_sums(ordered, charge[None], ordered, bandwidth, 2)[:, 0]  # (n,) each
    first, second = first / total, second / total
    columns = np.empty((3, values.size))
    variances = np.maximum(second - first * first, 0.0) * bandwidth**2
    columns[:, order] = first * bandwidth + ordered, charge / total, variances
    return RowMoments(*columns)


def attend_past(times: Floats, values: Floats, weights: Floats | None, bandwidth: float) -> RowMoments:
    """Attention of values (n,) to values that are not later: W_ij ∝ w_j exp(−(x_i − x_j)²/2h²) over t_j ≤ t_i.

    A past of m keys is divided into blocks of `BLOCK` · 2^l keys, one for each digit 1 of m in binary, and fewer than `BLOCK` last keys.
    Blocks are summed by the fast Gauss transform (`gaussian_sums`), with its errors.

    times (n,) ascending, equal ones allowed, weights (n,) above 0, None for 1.

    >>> attend_past(np.arange(3.0), np.array([0.0, 4.0, 1.0]), None, 1.0).values.round(4)
    array([0.    , 3.9987, 0.6457])
    """
    weights = np.ones(values.size) if weights is None else weights
    counts = np.searchsorted(times, times, side="right")  # of the keys in each past
    sums = _rests(values, weights, counts, bandwidth)
    size = BLOCK
    while size <= values.size:
        inside = np.flatnonzero(counts // size % 2)  # counts ascend, so that rows of one block are next to each other
        for rows in np.split(inside, np.flatnonzero(np.diff(counts[inside] // size)) + 1) if inside.size else []:
            stop = counts[rows[0]] // size * size
            sums[:, rows] += _block_moments(values, weights, slice(stop - size, stop), rows, bandwidth)
        size *= 2
    total, first, second = sums[0], sums[1] / sums[0], sums[2] / sums[0]
    variances = np.maximum(second - first**2, 0.0) * bandwidth**2
    return RowMoments(values + first * bandwidth, weights / total, variances)


def attend_dot(values: Floats, scale: float) -> RowMoments:
    """The literal recipe W = softmax_j(β x_i x_j) of values (n,), in O(n) for a scale β of any sign and size.

    The largest score of a row is at one end e of the values: W_ij ∝ exp(−s_i r_j) with s_i = |β x_i| and r_j = |x_j − e|, which for
    s and r between two powers of two is a short sum of polynomials. Errors are below 1e-13 of max|x|.

    >>> attend_dot(np.array([1.0, 0.0, -1.0]), 1e6).values.round(6) + 0.0
    array([ 1.,  0., -1.])
    """
    columns = np.empty((3, values.size))
    rising = scale * values >= 0
    for rows, end, sign in ((rising, values.max(), -1.0), (~rising, values.min(), 1.0)):
        if not rows.any():
            continue
        away, steepness = np.abs(values - end), np.abs(scale * values[rows])
        total, first, second = _decays(away, np.stack([np.ones(values.size), away, away**2]), steepness)
        mean = first / total
        self_weights = np.exp(-steepness * away[rows]) / total
        columns[:, rows] = end + sign * mean, self_weights, np.maximum(second / total - mean**2, 0)
    return RowMoments(*columns)


def _block_moments(values: Floats, weights: Floats, block: slice, rows: Indices, bandwidth: float) -> Floats:
    """Σ_j w_j exp(−u²/2) u^p over the keys of a block, u = (x_j − x_i)/h, for p = 0, 1, 2 (3, rows)."""
    keys, queries = np.argsort(values[block], kind="stable"), np.argsort(values[rows], kind="stable")
    sums = np.empty((3, rows.size))
    charges = weights[block][keys][None]
    sums[:, queries] = gaussian_sums(values[block][keys], charges, values[rows][queries], bandwidth, 2)[:, 0]
    return sums


def _rests(values: Floats, weights: Floats, counts: Indices, bandwidth: float) -> Floats:
    """The sums of `_block_moments` over the keys that are in no whole block (3, n)."""
    sums = np.empty((3, values.size))
    for start in range(0, values.size, ROWS):
        rows = slice(start, start + ROWS)
        keys = (counts[rows] // BLOCK * BLOCK)[:, None] + np.arange(BLOCK)  # (rows, BLOCK)
        entered, keys = keys < counts[rows, None], np.minimum(keys, values.size - 1)
        u = (values[keys] - values[rows, None]) / bandwidth
        kernel = np.where(entered, weights[keys] * np.exp(-u * u / 2), 0.0)
        sums[:, rows] = kernel.sum(axis=1), (kernel * u).sum(axis=1), (kernel * u * u).sum(axis=1)
    return sums


def _decays(away: Floats, charges: Floats, steepness: Floats) -> Floats:
    """Σ_j q_j exp(−s_i r_j), (charges, rows), for r and s of 0 or more."""
    # Up to the smallest power of two, s r stays below 1.
    lowest = 1 / max(steepness.max(), 1 / max(away.max(), 1e-300)), 1 / max(away.max(), 1e-300)
    key_octaves, row_octaves = _octaves(away, lowest[0]), _octaves(steepness, lowest[1])
    sums = [
        np.stack(
            [(charges[:, keys] * column).sum(axis=1) for column in polynomials(_to_unit_interval(away[keys], ends), TERMS)],
            axis=1,
        )
        for ends, keys in key_octaves
    ]  # each (charges, TERMS)
    decays = np.empty((len(charges), steepness.size))
    for ends, rows in row_octaves:
        coefficients = sum(
            box_sum @ interpolate_kernel(lambda r, s: np.exp(-r * s), key_ends, ends, TERMS)
            for box_sum, (key_ends, _) in zip(sums, key_octaves, strict=True)
        )
        decays[:, rows] = coefficients @ polynomials(_to_unit_interval(steepness[rows], ends), TERMS)
    return decays


def _octaves(numbers: Floats, lowest: float) -> list[tuple[tuple[float, float], Indices]]:
    """The intervals 0 … lowest, lowest … 2·lowest and so on that are not empty, and the indices of the numbers in each."""
    with np.errstate(divide="ignore"):
        octave = np.maximum(np.floor(np.log2(numbers / lowest)) + 1, 0).astype(int)
    order = np.argsort(octave, kind="stable")
    levels, start = np.unique(octave[order], return_index=True)
    ends = [(0.0, lowest) if level == 0 else (lowest * 2.0 ** (level - 1), lowest * 2.0**level) for level in levels.tolist()]
    return list(zip(ends, np.split(order, start[1:]), strict=True))


def _to_unit_interval(points: Floats, ends: tuple[float, float]) -> Floats:
    """Points of an interval, mapped to [−1, 1]."""
    return (2 * points - ends[0] - ends[1]) / (ends[1] - ends[0])


def _by_boxes(sources: Floats, charges: Floats, targets: Floats, bandwidth: float, moments: int) -> Floats:
    origin, width = box_grid(float(sources[0]), bandwidth)
    ratio = width / bandwidth
    boxes, sums = _box_sums(sources, charges, origin, width)
    target_boxes, start = np.unique(np.floor((targets - origin) / width), return_index=True)  # the boxes with targets
    stop = np.append(start[1:], targets.size)
    reach = int(np.ceil(NEGLIGIBLE / ratio))
    away = np.arange(-reach, reach + 1)
    translations = [
        np.stack(
            [interpolate_difference(lambda u, p=p: np.exp(-u * u / 2) * u**p, step * ratio, ratio, TERMS) for step in away]
        )
        for p in range(moments + 1)
    ]  # each (away, TERMS, TERMS)
    powers = np.empty((moments + 1, len(charges), targets.size))
    for first in range(0, target_boxes.size, TOGETHER):
        some = target_boxes[first : first + TOGETHER]
        here = slice(int(start[first]), int(stop[first + some.size - 1]))
        at = np.searchsorted(boxes, some[:, None] + away)  # (boxes, away)
        there = boxes[np.minimum(at, boxes.size - 1)] == some[:, None] + away
        near = np.where(there[..., None], sums[:, np.where(there, at, 0)], 0.0)  # (charges, boxes, away, TERMS)
        box = np.searchsorted(some, np.floor((targets[here] - origin) / width))
        table = polynomials(_in_box(targets[here], some[box], origin, width), TERMS)  # (TERMS, targets)
        for p, matrices in enumerate(translations):
            read = np.einsum("cbak,akl->cbl", near, matrices, optimize=True)
            powers[p, :, here] = np.einsum("ctl,lt->ct", read[:, box], table)
    return powers


def _box_sums(sources: Floats, charges: Floats, origin: float, width: float) -> tuple[Floats, Floats]:
    """The boxes with sources, and their sums (charges, boxes, TERMS)."""
    boxes, box = np.unique(np.floor((sources - origin) / width), return_inverse=True)
    position = _in_box(sources, boxes[box], origin, width)
    sums = np.empty((len(charges), boxes.size, TERMS))
    previous, current = position, np.ones(sources.size)
    for k in range(TERMS):
        for charge, box_sums in zip(charges, sums, strict=True):
            box_sums[:, k] = np.bincount(box, charge * current, boxes.size)
        previous, current = current, 2 * position * current - previous
    return boxes, sums


def _in_box(points: Floats, box: Floats, origin: float, width: float) -> Floats:
    """Points mapped to [−1, 1] within their boxes."""
    return (points - (origin + box * width)) * (2 / width) - 1
