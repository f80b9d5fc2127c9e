"""Missing values: what fills them best is what fills values best that were deleted in gaps of like length."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.heads.normalize import softmax
from overt.smoothing.heads.single_row import time_row

# Bandwidths in steps and degrees; 0 is the straight line between the two neighbours. Polynomials of degree 3 and 4 bend across a gap as
# the curve bends on both of its sides; of wide ones lines and parabolas are enough.
BANDWIDTHS = (0.7 * 2.0 ** (np.arange(11) / 2)).tolist()
HEADS = ((0.0, 1), *product(BANDWIDTHS, (1, 2)), *product(BANDWIDTHS[2:7], (3, 4)))
# The keys nearest to a target from which such a polynomial is fitted, half of them on either side.
NEAREST = 24
# Gaps are judged together up to these lengths, in steps, by deleted gaps of the lengths after them.
LENGTHS = ((1.5, 1), (3.5, 2), (6.5, 5), (12.5, 9), (24.5, 18), (np.inf, 36))
# Longer gaps are no longer like those that are deleted: what is good there may run away. The curve is joined across them, see `joined`.
LONG = 49.5
# Blocks on either side of a long gap whose means tell how the curve bends across it, and how few are enough.
BLOCKS, FEWEST_BLOCKS = 4, 2
# Deleted gaps of a kind, at most and at least, the most points among which they are, and from which length they are halved in short series.
MOST, LEAST, STRETCH, HALVED = 100, 8, 8192, 18
# The temperature of a single gap, as in the mixture of heads.
TEMPERATURE = 4.0
# The heads take the place of the curve where their errors are smaller by this many standard errors, and how sharply; smaller shares
# than the last do not count.
ERRORS, STEEPNESS, SLIGHT = 2.0, 2.0, 0.1
# Smaller shares of heads are left out.
NEGLIGIBLE = 1e-4


class Keys(NamedTuple):
    """The present points (n,): times in steps, ascending, what remains of the values without seasons, the seasons, and weights."""

    times: Floats
    rest: Floats
    season: Floats
    weights: Floats | None

    def without(self, rows: Indices) -> "Keys":
        """The keys but for some."""
        weights = None if self.weights is None else np.delete(self.weights, rows)
        return Keys(np.delete(self.times, rows), np.delete(self.rest, rows), np.delete(self.season, rows), weights)

    def predict(self, targets: Floats, season: Floats, head: tuple[float, int]) -> Floats:
        """A head at targets (2, m): of the rest, to which their season is added, and of the whole."""
        return np.stack([self._attend(self.rest, targets, head) + season, self._attend(self.rest + self.season, targets, head)])

    def _attend(self, values: Floats, targets: Floats, head: tuple[float, int]) -> Floats:
        bandwidth, degree = head
        if not bandwidth:
            return np.interp(targets, self.times, values)
        if degree > 2:
            near, weights = polynomial_rows(self.times, self.weights, targets, bandwidth, degree)
            return (weights * values[near]).sum(axis=1)
        return attend_time(self.times, values, self.weights, bandwidth, degree=degree, targets=targets).values


@dataclass(frozen=True)
class Filling:
    """Missing points, filled by heads by time and by the curve that was there; without a judgement all is left to the curve.

    In a gap that is joined the curve is the straight line between its values at both ends, to which in a long one a bend is added.
    """

    values: Floats  # (m,) the part of the heads
    curve: Floats  # (m,) the share of the curve
    shares: Floats  # (m, 2, heads) of the rest and of the whole
    errors: Floats  # (m,) expected squared distance from a value that would be measured there, 0 where it was not judged
    joined: NDArray[np.bool_]  # (m,) whether the gap is joined: a long one, or one that could not be judged


def fill_gaps(keys: Keys, targets: Floats, season: Floats, curve_without: Callable[[Indices], Floats]) -> Filling:
    """Fill gaps by heads by time, mixed by softmax(−N r/4r_min) of the error r at N deleted gaps of like length, or the curve.

    The risk of a curve is that at its points, and a head that follows them closely may fill a gap badly. So values are deleted in
    gaps, and what predicts them counts (Craven and Wahba 1979, section 1, for single values).

    targets (m,), the missing points, ascending, with their seasons; `curve_without` returns the curve at keys that it did not see.
    """
    kinds, edges, inside = _kinds(keys.times, targets)
    deleted = _deleted(keys.times.size, {int(kind): LENGTHS[kind][1] for kind in np.unique(kinds)})
    # Beyond the ends there is nothing to join.
    joined = (inside > LONG) | ((inside > 0) & ~np.isin(kinds, [*deleted]))
    empty = np.zeros((targets.size, 2, len(HEADS)))
    filling = Filling(np.zeros(targets.size), np.ones(targets.size), empty, np.zeros(targets.size), joined)
    filling.values[joined] = bent(keys, targets[joined])
    if not deleted:
        return filling
    gaps = np.concatenate([windows.ravel() for windows in deleted.values()])
    rows = np.sort(gaps)
    others, curve = keys.without(rows), curve_without(rows)
    by_heads = np.stack(
        [others.predict(keys.times[rows], keys.season[rows], head) for head in HEADS], axis=1
    )  # (2, heads, deleted)
    residuals = np.concatenate([curve[None], by_heads.reshape(-1, rows.size)]) - (keys.rest + keys.season)[rows]
    residuals = residuals[:, np.searchsorted(rows, gaps)]
    start = 0
    for kind, windows in deleted.items():
        part, points = residuals[:, start : start + windows.size], np.flatnonzero(kinds == kind)
        start += windows.size
        line = keys.rest[windows] - np.interp(keys.times[windows], others.times, others.rest)
        filling.errors[points] = _errors(line, edges[points])
        points = points[~joined[points]]
        bends = (inside[points] > 0) & np.isfinite(LENGTHS[kind][0])
        for group, bent_too in ((points[bends], True), (points[~bends], False)):
            if group.size:
                shares = _shares(part.reshape(-1, *windows.shape), bends=bent_too)
                filling.errors[group] = _errors((shares @ part).reshape(windows.shape), edges[group])
                _mix(filling, shares, group, keys, targets[group], season[group])
    return filling


def _mix(filling: Filling, shares: Floats, group: Indices, keys: Keys, targets: Floats, season: Floats) -> None:
    """Fill a group of missing points by the curve and the heads with their shares (1 + 2 · heads,)."""
    filling.curve[group], filling.shares[group] = shares[0], shares[1:].reshape(2, -1)
    for head in np.flatnonzero(filling.shares[group[0]].any(axis=0)):
        filling.values[group] += filling.shares[group[0], :, head] @ keys.predict(targets, season, HEADS[head])


class Bend(NamedTuple):
    """A parabola across a long gap, without its straight line between the gap's ends: curvature · (u² − 1/4) at u gaps from the middle."""

    middle: float
    length: float
    near: slice  # the keys that are used
    row: Floats  # their weights in the curvature

    def at(self, targets: Floats) -> Floats:
        """What each unit of curvature bends at targets (m,)."""
        return ((targets - self.middle) / self.length) ** 2 - 0.25


def bent(keys: Keys, targets: Floats) -> Floats:
    """What parabolas bend at targets (m,), ascending, in gaps that are joined."""
    after = np.searchsorted(keys.times, targets)
    values = np.empty(targets.size)
    starts = np.flatnonzero(np.diff(after, prepend=-1))
    for start, stop in pairwise([*starts, targets.size]):
        bend = bend_across(keys, int(after[start]))
        values[start:stop] = bend.at(targets[start:stop]) * (bend.row @ keys.rest[bend.near])
    return values


def bend_across(keys: Keys, end: int) -> Bend:
    """The parabola across the long gap that ends before key `end`, by least squares through the means of blocks of a quarter of its length.

    Four blocks on either side are fitted. The curvature is shrunk by 1 − (its standard error/itself)², as far as that is above 0 (the
    positive part of James and Stein 1961, section 2): where the means leave a parabola by far, it says nothing.
    """
    first, last = keys.times[[end - 1, end]]
    length, middle = float(last - first), float(first + last) / 2
    offsets = length / 4 * np.arange(BLOCKS + 1)
    before = np.searchsorted(keys.times, (first - offsets)[::-1], side="right")
    after = np.searchsorted(keys.times, last + offsets)
    edges = [*pairwise(before), *pairwise(after)]
    near = slice(int(before[0]), int(after[-1]))
    means = np.zeros((len(edges), near.stop - near.start))
    for block, (start, stop) in zip(means, edges, strict=True):
        block[start - near.start : stop - near.start] = 1 / max(stop - start, 1)
    used = np.asarray(means.any(axis=1))
    nothing = Bend(middle, length, near, np.zeros(means.shape[1]))
    if length <= LONG + 1 or min(used[:BLOCKS].sum(), used[BLOCKS:].sum()) < FEWEST_BLOCKS:
        return nothing
    means = means[used]
    powers = means @ ((keys.times[near] - middle) / length)[:, None] ** np.arange(3)
    fit = np.linalg.pinv(powers)
    values = means @ keys.rest[near]
    residuals, curvature = values - powers @ (fit @ values), float(fit[2] @ values)
    variance = float(residuals @ residuals) / (values.size - 3) * float(fit[2] @ fit[2])
    return nothing._replace(row=max(1 - variance / curvature**2, 0.0) * (fit[2] @ means)) if curvature else nothing


def _errors(residuals: Floats, edges: Indices) -> Floats:
    """Expected squares at points so many steps from the nearer end (m,), from residuals at deleted gaps (gaps, length).

    Beyond the middle of those they grow with the square of the distance, as a line departs from a curve.
    """
    errors = np.mean(residuals**2, axis=0)
    middle = (errors.size - 1) // 2
    return errors[np.clip(edges, 0, middle)] * np.maximum((edges + 1) / (middle + 1), 1.0) ** 2


def joined_row(times: Floats, target: float) -> tuple[tuple[int, int], float]:
    """The keys before and after a target, and the share of the later one in the straight line between them."""
    after = int(np.searchsorted(times, target, side="right"))
    left, right = max(after - 1, 0), min(after, times.size - 1)
    share = float(np.interp(target, times[[left, right]], [0.0, 1.0])) if times[right] > times[left] else 0.0
    return (left, right), share


def _shares(residuals: Floats, *, bends: bool) -> Floats:
    """The shares of the curve and the heads (1 + 2 · heads,), from residuals at deleted gaps (1 + 2 · heads, gaps, length).

    Without `bends` polynomials of degree 3 and 4 have none: beyond the ends, and in gaps longer than those that are deleted, they run away.

    The heads are mixed by their risk. The mixture takes the place of the curve as far as it is better by more than chance: its share
    is logistic in the standard errors by which its squared residuals are smaller, a half at `ERRORS`.
    """
    risks = np.mean(residuals[1:] ** 2, axis=(1, 2))
    risks = np.where([bends or degree < 3 for _, degree in 2 * HEADS], risks, np.inf)
    least = max(float(risks.min()), np.finfo(float).tiny)
    shares = softmax(-(residuals.shape[1] / TEMPERATURE * (risks / least - 1))[None])[0]
    shares = np.where(shares < NEGLIGIBLE, 0.0, shares) / shares[shares >= NEGLIGIBLE].sum()
    gains = np.mean(residuals[0] ** 2 - np.tensordot(shares, residuals[1:], axes=1) ** 2, axis=1)  # (gaps,)
    error = max(float(gains.std()) / np.sqrt(gains.size), np.finfo(float).tiny)
    share = 1 / (1 + np.exp(-STEEPNESS * np.clip(float(gains.mean()) / error - ERRORS, -10.0, 10.0)))
    share = 0.0 if share < SLIGHT else share
    return np.concatenate([[1 - share], share * shares])


def gap_row(keys: Keys, target: float, shares: Floats) -> Floats:
    """The weights of the keys (2, n) in the part of the heads: of the rest, and of the whole."""
    rows = np.zeros((2, keys.times.size))
    for head in np.flatnonzero(shares.any(axis=0)):
        bandwidth, degree = HEADS[head]
        if degree > 2:
            [near], [weights] = polynomial_rows(keys.times, keys.weights, np.array([target]), bandwidth, degree)
            row = np.bincount(near, weights, keys.times.size)
        else:
            row = (
                time_row(keys.times, keys.weights, target, bandwidth, degree=degree) if bandwidth else _line(keys.times, target)
            )
        rows += shares[:, [head]] * row
    return rows


def polynomial_rows(
    times: Floats, weights: Floats | None, targets: Floats, bandwidth: float, degree: int
) -> tuple[Indices, Floats]:
    """The nearest keys of each target (m, keys), and their weights in the value of a polynomial fitted to them by weighted least squares.

    The weights are Gaussian and relative to the nearest key's, so that they do not vanish inside a gap. Beyond the first and the last key
    the nearest one counts alone.

    >>> times = np.array([0.0, 1, 2, 3, 7, 8, 9, 10])
    >>> near, weights = polynomial_rows(times, None, np.array([5.0]), 2.0, 3)
    >>> float((weights * times[near] ** 3).sum().round(6))
    125.0
    """
    near = np.searchsorted(times, targets)[:, None] + np.arange(-NEAREST // 2, NEAREST // 2)
    there = (near >= 0) & (near < times.size)
    near = np.clip(near, 0, times.size - 1)
    away = np.where(there, (times[near] - targets[:, None]) / bandwidth, np.inf)
    kernel = np.exp(-0.5 * (away**2 - (away**2).min(axis=1, keepdims=True)))
    kernel = kernel if weights is None else kernel * weights[near]
    powers = np.where(there, away, 0.0)[..., None] ** np.arange(degree + 1)  # (m, keys, degree + 1)
    weighted = kernel[..., None] * powers
    moments = np.swapaxes(powers, 1, 2) @ weighted
    moments += 1e-13 * np.trace(moments, axis1=1, axis2=2)[:, None, None] * np.eye(degree + 1)  # few keys are no error
    rows = (weighted @ np.linalg.solve(moments, np.eye(degree + 1)[:, :1]))[..., 0]
    outside = (targets < times[0]) | (targets > times[-1])
    rows[outside] = np.eye(NEAREST)[np.abs(np.where(there, away, np.inf)).argmin(axis=1)][outside]
    return near, rows


def _line(times: Floats, target: float) -> Floats:
    """The weights (n,) of the straight line between two neighbours."""
    (left, right), share = joined_row(times, target)
    row = np.zeros(times.size)
    row[left] += 1 - share
    row[right] += share
    return row


def _kinds(times: Floats, targets: Floats) -> tuple[Indices, Indices, Floats]:
    """The class of the length of each target's gap (m,), the steps to its nearer end, from 0, and the length, 0 beyond the ends.

    Beyond the ends the class is that of twice the distance from the end.
    """
    bounds = np.searchsorted(times, targets)
    before = np.where(bounds > 0, targets - times[np.maximum(bounds - 1, 0)], np.inf)
    after = np.where(bounds < times.size, times[np.minimum(bounds, times.size - 1)] - targets, np.inf)
    nearer = np.minimum(before, after)
    lengths = np.where(np.isinf(before + after), 2 * nearer, before + after - 1)
    inside = np.where(np.isinf(before + after), 0.0, lengths)
    return np.searchsorted([most for most, _ in LENGTHS], lengths), np.rint(nearer).astype(np.intp) - 1, inside


def _deleted(count: int, lengths: dict[int, int]) -> dict[int, Indices]:
    """Keys to delete, in gaps of each kind (gaps, length), far from each other; shorter ones, or none, of a kind with too few."""
    start, stop = max(1, (count - STRETCH) // 2), min(count - 1, (count + STRETCH) // 2)
    cycle = sum(3 * length + 6 for length in lengths.values())
    gaps = min(MOST, (stop - start) // cycle) if lengths else 0
    if gaps < LEAST:
        *shorter, (last, length) = lengths.items() if lengths else ((0, 0),)
        halved = {last: length // 2} if length >= HALVED else {}
        return _deleted(count, dict(shorter) | halved) if shorter or halved else {}
    cycles = np.linspace(start, stop - cycle, gaps).astype(np.intp)
    deleted, offset = {}, 3
    for kind, length in lengths.items():
        deleted[kind] = cycles[:, None] + offset + length + np.arange(length)
        offset += 3 * length + 6
    return deleted
