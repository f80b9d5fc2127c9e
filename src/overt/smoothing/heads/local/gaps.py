"""Missing values, filled by the method that best predicts values deleted in gaps of similar length."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices, Series
from overt.smoothing.heads.local.autoregression import ORDERS, EqualSteps, Gappy, equal_steps
from overt.smoothing.heads.local.long_gaps import LONG, bend_across, bent
from overt.smoothing.heads.local.polynomial import polynomial_rows
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.heads.normalize import softmax
from overt.smoothing.operators.base import Operator, extension, fillings, lines, restriction, row_operator
from overt.smoothing.operators.rows import time_row

# FITS: bandwidth, in steps, and degree; 0 is the straight line between the two neighbours. Degrees 3 and 4 bend across a gap as the curve
# bends on both sides; wide heads need only lines and parabolas.
BANDWIDTHS = (0.7 * 2.0 ** (np.arange(11) / 2)).tolist()
FITS = ((0.0, 1), *product(BANDWIDTHS, (1, 2)), *product(BANDWIDTHS[2:7], (3, 4)))
# SCALES, DEGREES: of all heads, which are the local fits and the autoregressions.
SCALES, DEGREES = np.array([*FITS, *[(np.inf, np.inf)] * len(ORDERS)]).T
AUTOREGRESSED = np.isinf(DEGREES)
# MARGIN: keys that heads attend to on either side of deleted keys.
MARGIN = 512
# LENGTHS: the longest gap of each class and the length of its deleted gaps, in steps. Across gaps beyond LONGEST, or beyond LONG without
# deleted gaps, the curve is joined, with the errors of the class up to LONG (LAST), which ends have, too.
LENGTHS = ((1.5, 1), (3.5, 2), (6.5, 5), (12.5, 9), (24.5, 18), (49.5, 36), (99.5, 72), (199.5, 144))
LONGEST = LENGTHS[-1][0]
LAST = [most for most, _ in LENGTHS].index(LONG)
# Deleted gaps of a class: at least LEAST_AT_ONCE at a time; ENOUGH if the heads gain less than PROMISING standard errors, else MANY (24
# raise the squared errors at single points of 39 real series by 6%); in MOST_SETS sets and STRETCH points at most; gaps of HALVED steps or
# more are halved in short series; in long ones the first set has AT_FIRST gaps.
LEAST_AT_ONCE, ENOUGH, MANY, MOST_SETS, STRETCH, HALVED, AT_FIRST = 2, 24, 200, 6, 8192, 18, 50
PROMISING = 0.5
TEMPERATURE = 4.0  # of a single gap, as in the mixture of heads
# ERRORS, STEEPNESS, SLIGHT: heads replace the curve if they gain ERRORS standard errors (logistic with slope STEEPNESS; shares below SLIGHT
# are 0). At 2 single points follow white noise, by 5% in 2,048 points; at 3 real series gain less.
ERRORS, STEEPNESS, SLIGHT = 2.5, 2.0, 0.1
# EXACT: the part of the median error that is added to all errors before comparison, since the size of tiny errors is chance.
EXACT = 0.1
# NEGLIGIBLE: smaller shares of heads are set to 0.
NEGLIGIBLE = 1e-4


class GapKeys(NamedTuple):
    """The present points (n,): ascending times in steps, the values without seasons, the seasons, and weights.

    `steps` is the grid of keys and targets; None if they are not at equal steps.
    """

    times: Floats
    rest: Floats
    season: Floats
    weights: Floats | None
    steps: EqualSteps | None = None

    def without(self, rows: Indices) -> "GapKeys":
        """The keys without some rows."""
        return self._taken(lambda column: np.delete(column, rows))

    def part(self, rows: slice) -> "GapKeys":
        """Some of the keys."""
        return self._taken(lambda column: column[rows])

    def _taken(self, take: Callable[[Floats], Floats]) -> "GapKeys":
        return GapKeys(*(None if column is None else take(column) for column in self[:4]), self.steps)  # type: ignore[arg-type]

    def predict(self, targets: Floats, season: Floats, heads: Indices) -> Floats:
        """Some heads at targets (2, heads, m), of the rest, plus the season, and of the whole values; NaN if a head cannot be fitted."""
        rest = self._heads(self.rest, targets, heads)
        return np.stack([rest + season, self._heads(self.rest + self.season, targets, heads) if self.season.any() else rest])

    def attend(self, values: Floats, targets: Floats, bandwidths: Floats, degree: int) -> Floats:
        """Local fits of one degree to values at the keys (n,), at targets (bandwidths, m)."""
        if degree > 2:
            near, weights = polynomial_rows(self.times, self.weights, targets, bandwidths, degree)
            return np.asarray((weights * values[near]).sum(axis=-1))
        keys = self.times, values, self.weights
        return np.stack([
            attend_time(*keys, bandwidth, degree=degree, targets=targets).values if bandwidth else np.interp(targets, *keys[:2])
            for bandwidth in bandwidths.tolist()
        ])  # fmt: skip

    def gappy(self, values: Floats, targets: Floats) -> tuple[Gappy, Indices]:
        """Values at the keys (n,) between missing ones, at equal steps, and the positions of targets (m,) among them."""
        assert self.steps is not None  # the caller has looked for them
        known = self.steps.at(self.times)
        grid = Gappy.from_positions(known - known[0], values, LONGEST)
        return grid, np.clip(self.steps.at(targets) - known[0], 0, grid.values.size - 1)

    def _heads(self, values: Floats, targets: Floats, heads: Indices) -> Floats:
        outputs = np.full((heads.size, targets.size), np.nan)
        for degree in range(1, 5):
            members = DEGREES[heads] == degree
            if members.any():
                outputs[members] = self.attend(values, targets, SCALES[heads[members]], degree)
        if self.steps is not None and heads[-1] >= len(FITS):
            grid, at = self.gappy(values, targets)
            fitted = grid.fit()
            for output, order in zip(outputs, heads - len(FITS), strict=True):
                if 0 <= order < len(fitted):
                    output[:] = grid.whole(fitted[order].values)[at]
        return outputs


def gap_keys(series: Series, seasonal: Floats) -> GapKeys:
    """The present points of a series without its seasons, whose sum at all points is `seasonal` (n,)."""
    season = seasonal[series.present]
    return GapKeys(series.key_times, series.key_values, season, series.key_weights, equal_steps(series.times))


@dataclass(frozen=True)
class Filling:
    """Missing points, filled by heads by time and by the curve; only by the curve if no gaps could be deleted.

    In a joined gap the curve is the straight line between its values at both ends, in a long gap a parabola through them.
    """

    values: Floats  # (m,) the part of the heads
    curve: Floats  # (m,) the share of the curve
    shares: Floats  # (m, 2, heads) of the rest and of the whole
    errors: Floats  # (m,) expected squared distance from a value measured there, 0 if not judged
    joined: NDArray[np.bool_]  # (m,) whether the gap is joined: it is long, or could not be judged


def fill_gaps(
    keys: GapKeys,
    targets: Floats,
    season: Floats,
    curves_without: Callable[[list[Indices]], list[Floats]],
    *,
    white: bool = True,
) -> Filling:
    """Fill gaps by heads by time, mixed by softmax(−N r/4r_min) of the error r at N deleted gaps of similar length, or by the curve.

    The risk of a curve is its risk at the points, and a head that follows them closely may fill a gap badly. So values are deleted in
    gaps, and the error of predicting them counts (Craven and Wahba 1979, section 1, for single values). `white`: the noise is white, or
    its correlation is known; otherwise the curve is one of the heads.

    targets (m,), the missing points, ascending, with their seasons; `curves_without` returns, for each set of keys, the curve at these
    keys, computed without them.
    """
    kinds, edges, inside = _kinds(keys.times, targets)
    lengths = {int(kind): LENGTHS[kind][1] for kind in np.unique(np.minimum(kinds, LAST))}
    judged = _judged(keys, _rounds(keys.times.size, lengths), curves_without, white=white)
    for kind in np.unique(kinds[kinds > LAST]).tolist():
        rounds = _rounds(keys.times.size, {kind: LENGTHS[kind][1]}, whole=True)
        judged |= _judged(keys, rounds, curves_without, white=white, joined=True)
    # Beyond the ends there is nothing to join.
    joined = (inside > LONG) | ((inside > 0) & ~np.isin(kinds, [*judged]))
    empty = np.zeros((targets.size, 2, DEGREES.size))
    filling = Filling(np.zeros(targets.size), np.ones(targets.size), empty, np.zeros(targets.size), joined)
    for kind, (by_line, residuals) in judged.items():
        points = np.flatnonzero(np.where(np.isin(kinds, [*judged]), kinds, np.minimum(kinds, LAST)) == kind)
        filling.errors[points] = _errors(by_line, edges[points])
        points = points[~joined[points] | (kind > LAST)]
        at_ends, bends, steady = inside[points] == 0, kind < LAST, DEGREES < 3
        for group, allowed in ((points[at_ends], steady), (points[~at_ends], steady | bends | AUTOREGRESSED)):
            if group.size:
                shares = _shares(residuals, allowed, white=white)
                filling.errors[group] = _errors(np.tensordot(shares, np.nan_to_num(residuals), axes=1), edges[group])
                filling.curve[group], filling.shares[group] = shares[0], shares[1:].reshape(2, -1)
    filling.values[joined] = filling.curve[joined] * bent(keys.times, keys.rest, targets[joined])
    heads = np.flatnonzero(filling.shares.any(axis=(0, 1)))
    if heads.size:
        filling.values[:] += np.einsum("mkh,khm->m", filling.shares[..., heads], keys.predict(targets, season, heads))
    return filling


def _judged(
    keys: GapKeys,
    rounds: list[dict[int, Indices]],
    curves_without: Callable[[list[Indices]], list[Floats]],
    *,
    white: bool,
    joined: bool = False,
) -> dict[int, tuple[Floats, Floats]]:
    """The errors at deleted gaps of the line (gaps, length), and of the curve and the heads (1 + 2 · heads, gaps, length), by class.

    With `joined` the curve is the straight line between its values at both ends of a gap. If the noise is white, sets are deleted only
    as long as the heads are promising.
    """
    missed: dict[int, tuple[Floats, Floats]] = {}
    sets = [np.sort(np.concatenate([windows.ravel() for windows in deleted.values()])) for deleted in rounds]
    curves: list[Floats] = []
    for index, (deleted, rows) in enumerate(zip(rounds, sets, strict=True)):
        if index == len(curves):
            if white and missed and all(map(_keeps_curve, missed.values())):
                break
            enough = -(-ENOUGH // min(map(len, deleted.values())))
            curves += curves_without(sets[index : index + enough] if 2 * enough <= len(sets) else sets[index:])
        near = slice(max(0, int(rows[0]) - MARGIN), int(rows[-1]) + MARGIN)
        others = keys.part(near).without(rows - near.start)
        by_heads = others.predict(keys.times[rows], keys.season[rows], np.arange(DEGREES.size)).reshape(-1, rows.size)
        curve = curves[index]
        for windows in deleted.values() if joined else ():
            for window in np.searchsorted(rows, windows):
                curve[window] = np.linspace(curve[window[0]], curve[window[-1]], window.size)
        residuals = np.concatenate([curve[None], by_heads]) - (keys.rest + keys.season)[rows]
        by_line = keys.rest[rows] - np.interp(keys.times[rows], others.times, others.rest)
        for kind, windows in deleted.items():
            at = np.searchsorted(rows, windows)
            before = missed.get(kind, (by_line[at[:0]], residuals[:, at[:0]]))
            missed[kind] = np.concatenate([before[0], by_line[at]]), np.concatenate([before[1], residuals[:, at]], axis=1)
    return missed


def _keeps_curve(missed: tuple[Floats, Floats]) -> bool:
    """Whether enough gaps were deleted, and the heads gain so little there that more gaps would hardly let them replace the curve."""
    _, residuals = missed
    shares = _by_risk(residuals[1:], np.ones(2 * DEGREES.size, bool))
    return residuals.shape[1] >= ENOUGH and _gain(residuals, shares) < PROMISING


def _errors(residuals: Floats, edges: Indices) -> Floats:
    """Expected squared errors at points by their steps to the nearer end (m,), from residuals at deleted gaps (gaps, length).

    Beyond the middle of the deleted gaps they grow with the square of the distance, as a line departs from a curve.
    """
    errors = np.mean(residuals**2, axis=0)
    middle = (errors.size - 1) // 2
    return errors[np.clip(edges, 0, middle)] * np.maximum((edges + 1) / (middle + 1), 1.0) ** 2


def _shares(residuals: Floats, allowed: NDArray[np.bool_], *, white: bool) -> Floats:
    """The shares of the curve and the heads (1 + 2 · heads,), from residuals at deleted gaps (1 + 2 · heads, gaps, length).

    Some heads are not allowed: polynomials of degree 3 and 4 diverge beyond the ends and in gaps longer than the deleted gaps, and
    autoregressions were not judged beyond the ends.

    The mixture of the heads replaces the curve as far as it is better by more than chance: its share is logistic in the standard errors
    by which the logarithm of its squared residuals is smaller, a half at `ERRORS`. A mean of squares would depend on the few gaps at
    jumps or in bursts. If the noise is not white, the curve smooths too much or too little, and has the share that its residuals give
    it, as a head has.
    """
    there = np.tile(allowed, 2)
    if not white:
        return _by_risk(residuals, np.append(True, there))
    shares = _by_risk(residuals[1:], there)
    share = 1 / (1 + np.exp(-STEEPNESS * np.clip(_gain(residuals, shares) - ERRORS, -10.0, 10.0)))
    share = 0.0 if share < SLIGHT else share
    return np.concatenate([[1 - share], share * shares])


def _gain(residuals: Floats, shares: Floats) -> float:
    """By how many standard errors the logarithms of squared residuals of a mixture of heads are smaller than the curve's."""
    squares = np.stack([residuals[0], np.tensordot(shares, np.nan_to_num(residuals[1:]), axes=1)]) ** 2
    errors = np.mean(squares, axis=2)  # (2, gaps)
    errors += max(EXACT * float(np.median(errors)), np.finfo(float).tiny)
    gains = -np.diff(np.log(errors), axis=0)
    return float(gains.mean()) / max(float(gains.std()) / np.sqrt(gains.size), np.finfo(float).tiny)


def _by_risk(residuals: Floats, allowed: NDArray[np.bool_]) -> Floats:
    """The shares of the allowed heads (heads,), from residuals at deleted gaps (heads, gaps, length)."""
    risks = np.mean(residuals**2, axis=(1, 2))
    risks = np.where(allowed & np.isfinite(risks), risks, np.inf)
    least = max(float(risks.min()), np.finfo(float).tiny)
    shares = softmax(-(residuals.shape[1] / TEMPERATURE * (risks / least - 1))[None])[0]
    return np.where(shares < NEGLIGIBLE, 0.0, shares) / shares[shares >= NEGLIGIBLE].sum()


def gap_row(keys: GapKeys, values: Floats, target: float, shares: Floats) -> Floats:
    """The weights of the keys (n,) in heads with these shares (heads,), fitted to values at the keys (n,), at a target."""
    row = np.zeros(keys.times.size)
    for head in np.flatnonzero(shares * ~AUTOREGRESSED):
        row += shares[head] * _fit_row(keys, target, FITS[head])
    orders = shares[AUTOREGRESSED]
    if orders.any():
        grid, [position] = keys.gappy(values, np.array([target]))
        row += sum(share * grid.row(one.model, int(position)) for share, one in zip(orders, grid.fit(), strict=False) if share)
    return row


def filled(
    curve: Operator, keys: GapKeys, filling: Filling, times: Floats, missing: Indices
) -> tuple[Operator, Operator, Floats]:
    """The curve of values without seasons, with missing points (m,) filled; the part of whole values; the share of seasons (n,)."""
    points, targets = times.size, times[missing]
    key_values = restriction(np.setdiff1d(np.arange(points), missing), points)
    known, share, seasonal = np.ones(points, bool), np.ones(points), np.ones(points)
    known[missing], share[missing], seasonal[missing] = ~filling.joined, filling.curve, 1 - filling.shares[:, 1].sum(axis=1)

    def at_missing(row: Callable[[int], Floats]) -> Operator:
        return extension(missing, points) @ row_operator((missing.size, keys.times.size), row) @ key_values

    def bend_row(index: int) -> Floats:
        row = np.zeros(keys.times.size)
        if filling.joined[index]:
            bend = bend_across(keys.times, keys.rest, int(np.searchsorted(keys.times, targets[index])))
            row[bend.near] = filling.curve[index] * bend.at(targets[index]) * bend.row
        return row

    heads, whole = (
        at_missing(lambda index, kind=kind, values=values: gap_row(keys, values, targets[index], filling.shares[index, kind]))
        for kind, values in enumerate((keys.rest, keys.rest + keys.season))
    )
    return (fillings(times, known) @ curve).times(share) + heads + at_missing(bend_row), whole, seasonal


def _fit_row(keys: GapKeys, target: float, head: tuple[float, int]) -> Floats:
    """The weights (n,) of the keys in a local fit."""
    bandwidth, degree = head
    if not bandwidth:
        return lines(keys.times, np.array([target])).row(0)
    if degree < 3:
        return time_row(keys.times, keys.weights, target, bandwidth, degree=degree)
    [near], [[weights]] = polynomial_rows(keys.times, keys.weights, np.array([target]), [bandwidth], degree)
    return np.bincount(near, weights, keys.times.size).astype(np.float64)


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
    kinds = np.searchsorted([most for most, _ in LENGTHS], lengths)
    kinds = np.where((inside > 0) & (inside <= LONGEST), kinds, np.minimum(kinds, LAST))
    return kinds, np.rint(nearer).astype(np.intp) - 1, inside


def _rounds(count: int, lengths: dict[int, int], *, whole: bool = False) -> list[dict[int, Indices]]:
    """Sets of keys to delete at once, in gaps of every class (gaps, length), far apart; shorter gaps, or none, if there are too few.

    With `whole` there are no shorter gaps.
    """
    cycle = sum(3 * length + 6 for length in lengths.values())
    around = min(STRETCH, MANY * cycle)
    start, stop = max(1, (count - around) // 2), min(count - 1, (count + around) // 2)
    gaps = (stop - start) // cycle if lengths else 0
    if gaps < LEAST_AT_ONCE:
        *shorter, (last, length) = lengths.items() if lengths else ((0, 0),)
        halved = {last: length // 2} if length >= HALVED and not whole else {}
        return _rounds(count, dict(shorter) | halved) if shorter or halved else []
    sets = min(MOST_SETS, round(MANY / gaps))
    starts = [np.arange(start + index * cycle // sets, stop - cycle + 1, cycle) for index in range(sets)]
    rounds = []
    for cycles in starts if sets > 1 else np.split(starts[0], [AT_FIRST]):
        deleted, offset = {}, 3
        for kind, length in lengths.items():
            deleted[kind] = cycles[:, None] + offset + length + np.arange(length)
            offset += 3 * length + 6
        rounds.append(deleted)
    return rounds
