"""Keys that are single numbers, any distance apart, in O(n): Gaussian sums, and attention by value."""

from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.chebyshev import between, over, polynomials
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.direct import attend_time
from overt.smoothing.heads.local.native import TERMS, cut, natively

# Boxes of targets worked on together.
TOGETHER = 2048


class Scalar(NamedTuple):
    """Target by target: y_i = Σ_j W_ij x_j, W_ii (NaN for targets that are no keys), and Σ_j W_ij (x_j − y_i)²."""

    values: Floats
    own: Floats
    variance: Floats


def gaussian_sums(sources: Floats, charges: Floats, targets: Floats, bandwidth: float, moments: int = 0) -> Floats:
    """Σ_j q_j exp(−u²/2) u^p with u = (s_j − t_i)/h, for p = 0 … moments (4 at most), in O(n + m) for any bandwidth.

    Sources (n,) and targets (m,) are ascending, charges (c, n): gives (moments + 1, c, m). The fast Gauss transform (Greengard
    and Strain 1991), in one dimension and by Chebyshev polynomials. Errors are below 2e-14 · Σ_j |q_j| over the sources
    within twelve bandwidths of a target, and below 1e-17 · Σ_j |q_j| over all others.

    >>> gaussian_sums(np.array([0.0, 1.0]), np.array([[1.0, 2.0]]), np.array([0.0]), 1.0).round(4)
    array([[[2.2131]]])
    """
    if native.available():
        powers = [natively(sources, charge, charge, targets, bandwidth, (moments + 1) // 2, raw=True) for charge in charges]
        return np.stack(powers, axis=1)[: moments + 1] if len(powers) > 1 else powers[0][: moments + 1, None]
    return _by_boxes(sources, charges, targets, bandwidth, moments)


def attend_scalar(
    keys: Floats, values: Floats, weights: Floats | None, bandwidth: float, targets: Floats | None = None
) -> Scalar:
    """Attention by one number a point: W_ij ∝ w_j exp(−(k_i − k_j)²/2h²), in O(n); keys (n,) in any order.

    Without targets (m,), the keys attend to each other. Errors are below 1e-13 of max|x|; where the values are the keys
    themselves, those of the variance are relative to h², else to max|x|².

    >>> keys = np.array([0.0, 9.0, 1.0])
    >>> attend_scalar(keys, keys, None, 1.0).values.round(4)
    array([0.3775, 9.    , 0.6225])
    """
    order = np.argsort(keys)
    ordered, weight = keys[order], None if weights is None else weights[order]
    if targets is None and np.array_equal(keys, values):
        charge = np.ones(keys.size) if weight is None else weight
        total, first, second = gaussian_sums(ordered, charge[None], ordered, bandwidth, 2)[:, 0]  # (keys,) each
        first /= total
        second /= total
        variance = np.maximum(second - first * first, 0.0)
        found = [first * bandwidth + ordered, charge / total, variance * bandwidth**2]
    else:
        found = [*_attend(ordered, values[order], weight, bandwidth, targets)]
    if targets is not None:
        return Scalar(*found)
    return Scalar(*(_put(column, order) for column in found))


def attend_dot(values: Floats, scale: float) -> Scalar:
    """The literal recipe W = softmax_j(β x_i x_j) of values (n,), in O(n) for a scale β of any sign and size.

    Its row's largest score is at one end e of the values: W_ij ∝ exp(−s_i r_j) with s_i = |β x_i| and r_j = |x_j − e|, which for
    s and r between two powers of two is a short sum of polynomials. Errors are below 1e-13 of max|x|.

    >>> attend_dot(np.array([1.0, 0.0, -1.0]), 1e6).values.round(6) + 0.0
    array([ 1.,  0., -1.])
    """
    found = np.empty((3, values.size))
    rising = scale * values >= 0
    for rows, end, sign in ((rising, values.max(), -1.0), (~rising, values.min(), 1.0)):
        if not rows.any():
            continue
        away, steepness = np.abs(values - end), np.abs(scale * values[rows])
        total, first, second = _decays(away, np.stack([np.ones(values.size), away, away**2]), steepness)
        mean = first / total
        own = np.exp(-steepness * away[rows]) / total
        found[:, rows] = end + sign * mean, own, np.maximum(second / total - mean**2, 0)
    return Scalar(*found)


def _decays(away: Floats, charges: Floats, steepness: Floats) -> Floats:
    """Σ_j q_j exp(−s_i r_j), (charges, rows), for r and s of 0 or more."""
    # Below the least of the powers of two, s r stays below 1.
    lowest = 1 / max(steepness.max(), 1 / max(away.max(), 1e-300)), 1 / max(away.max(), 1e-300)
    of_key, of_row = _octaves(away, lowest[0]), _octaves(steepness, lowest[1])
    sums = [
        np.stack([(charges[:, one] * column).sum(axis=1) for column in polynomials(_place(away[one], ends), TERMS)], axis=1)
        for ends, one in of_key
    ]  # each (charges, TERMS)
    found = np.empty((len(charges), steepness.size))
    for ends, rows in of_row:
        told = sum(
            of_box @ over(lambda r, s: np.exp(-r * s), key_ends, ends, TERMS)
            for of_box, (key_ends, _) in zip(sums, of_key, strict=True)
        )
        found[:, rows] = told @ polynomials(_place(steepness[rows], ends), TERMS)
    return found


def _octaves(numbers: Floats, lowest: float) -> list[tuple[tuple[float, float], Indices]]:
    """The intervals 0 … lowest, lowest … 2·lowest and so on that hold numbers, and which."""
    with np.errstate(divide="ignore"):
        octave = np.maximum(np.floor(np.log2(numbers / lowest)) + 1, 0).astype(int)
    order = np.argsort(octave, kind="stable")
    levels, start = np.unique(octave[order], return_index=True)
    ends = [(0.0, lowest) if level == 0 else (lowest * 2.0 ** (level - 1), lowest * 2.0**level) for level in levels.tolist()]
    return list(zip(ends, np.split(order, start[1:]), strict=True))


def _place(points: Floats, ends: tuple[float, float]) -> Floats:
    """Places in [−1, 1] of points in an interval."""
    return (2 * points - ends[0] - ends[1]) / (ends[1] - ends[0])


def _attend(keys: Floats, values: Floats, weights: Floats | None, bandwidth: float, targets: Floats | None) -> Floats:
    """Values, own weights and variance (3, m); keys ascending."""
    center = values.mean()
    centered = values - center
    rank = None if targets is None else np.argsort(targets)
    ascending = None if targets is None or rank is None else targets[rank]
    first = attend_time(keys, centered, weights, bandwidth, degree=0, targets=ascending)
    second = attend_time(keys, centered**2, weights, bandwidth, degree=0, targets=ascending)
    found = np.stack([first.values + center, first.own, np.maximum(second.values - first.values**2, 0)])
    if rank is None:
        return found
    return np.stack([_put(column, rank) for column in found])


def _put(column: Floats, order: Indices) -> Floats:
    """The column in the order before it was sorted."""
    given = np.empty_like(column)
    given[order] = column
    return given


def _by_boxes(sources: Floats, charges: Floats, targets: Floats, bandwidth: float, moments: int) -> Floats:
    origin, width = cut(float(sources[0]), bandwidth)
    ratio = width / bandwidth
    boxes, sums = _box_sums(sources, charges, origin, width)
    places, start = np.unique(np.floor((targets - origin) / width), return_index=True)  # the boxes that hold targets
    stop = np.append(start[1:], targets.size)
    reach = int(np.ceil(NEGLIGIBLE / ratio))
    away = np.arange(-reach, reach + 1)
    told = [
        np.stack([between(lambda u, p=p: np.exp(-u * u / 2) * u**p, step * ratio, ratio, TERMS) for step in away])
        for p in range(moments + 1)
    ]  # each (away, TERMS, TERMS)
    found = np.empty((moments + 1, len(charges), targets.size))
    for first in range(0, places.size, TOGETHER):
        some = places[first : first + TOGETHER]
        here = slice(int(start[first]), int(stop[first + some.size - 1]))
        at = np.searchsorted(boxes, some[:, None] + away)  # (boxes, away)
        there = boxes[np.minimum(at, boxes.size - 1)] == some[:, None] + away
        near = np.where(there[..., None], sums[:, np.where(there, at, 0)], 0.0)  # (charges, boxes, away, TERMS)
        box = np.searchsorted(some, np.floor((targets[here] - origin) / width))
        table = polynomials(_within(targets[here], some[box], origin, width), TERMS)  # (TERMS, targets)
        for p, matrices in enumerate(told):
            read = np.einsum("cbak,akl->cbl", near, matrices, optimize=True)
            found[p, :, here] = np.einsum("ctl,lt->ct", read[:, box], table)
    return found


def _box_sums(sources: Floats, charges: Floats, origin: float, width: float) -> tuple[Floats, Floats]:
    """The boxes that hold sources, and their sums (charges, boxes, TERMS)."""
    boxes, box = np.unique(np.floor((sources - origin) / width), return_inverse=True)
    place = _within(sources, boxes[box], origin, width)
    sums = np.empty((len(charges), boxes.size, TERMS))
    before, now = place, np.ones(sources.size)
    for k in range(TERMS):
        for charge, of_charge in zip(charges, sums, strict=True):
            of_charge[:, k] = np.bincount(box, charge * now, boxes.size)
        before, now = now, 2 * place * now - before
    return boxes, sums


def _within(points: Floats, box: Floats, origin: float, width: float) -> Floats:
    """Places in [−1, 1] of points within their boxes."""
    return (points - (origin + box * width)) * (2 / width) - 1
