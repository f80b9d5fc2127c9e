"""Robust weights, from the distance of each value from the median of its neighbours."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.medians import medians

# Neighbours to either side.
NEIGHBOURS = 4
# Median absolute deviations beyond which the weight is 0 (Cleveland 1979, section 2.2).
CUTOFF = 6.0
# The standard deviation of a value's distance from the median of the two on either side, of normal noise of 1.
BESIDE_DEVIATION = 1.14
# Isolated values count as outliers from this many standard deviations, in series of this many points and more. In shorter ones, down to
# `SHORTEST`, peaks of the signal may have a single point: only values beyond `FAR_ALONE` count, and only if those beyond `FAR` are so few.
FAR, SHORT = 4.5, 400
FAR_ALONE, SHORTEST, SHARE_OF_SHORT = 8.0, 16, 0.01
# An isolated value is this many times further from the points beside it than they are from those around them. A peak of the signal
# raises its neighbours too: one that falls to a half over one step has a ratio of 2.
RATIO = 4.0
# Where so large a share was found, wild values are part of the noise: they are looked for again without those that were found, with a lower
# ratio, and two of them side by side where chance puts so many pairs into the series.
OFTEN, RATIO_AGAIN, EXPECTED_PAIRS, PASSES = 0.004, 2.2, 0.2, 4
# It is also off to one side of the medians of three on its left and on its right, by this part of the distance at least: a jump is not.
BOTH_SIDES = 0.5
# Isolated values are moved to this many standard deviations from the points beside them; closer where so many of them reach as far that
# the noise has heavy tails. Of normal noise 0.27% reach beyond 3.
CLIP, CLIP_HEAVY, NORMAL_SHARE, HEAVY_ERRORS = 3.0, 1.8, 0.0027, 3.5
# The median distance among this many neighbours to either side is the least level: within a burst of noise all distances are large.
NEAR = 12
# The median of what normal noise of 1 differs by from the nearer of the medians of the seven values before it and after it.
SEVEN_MEDIAN = 0.49


def downweight_outliers(values: Floats, times: Floats, weights: Floats | None) -> Floats:
    """The weights (n,) (1 where None), reduced for outliers; values in any order of their times, NaN where missing."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.argsort(times[known], kind="stable")]
    reduced = np.ones(values.size) if weights is None else weights.copy()
    reduced[known] *= outlier_weights(values[known])
    return reduced


def outlier_weights(values: Floats) -> Floats:
    """Bisquare weights (1 − (r/6s)²)² of values (n,) in the order of their times; 0 where |r| ≥ 6s.

    The residual r is the distance from the median of four neighbours on either side, s the median of all |r|: the weights of
    Cleveland's robust regression (1979, section 2.2), with residuals that outliers do not influence. If more than half of the
    values equal their neighbours' median (s = 0), these have weight 1 and the others 0.

    >>> outlier_weights(np.array([1.0, 2.0, 1.0, 2.0, 90.0, 2.0, 1.0, 2.0, 1.0])).round(1)
    array([0.9, 1. , 0.9, 1. , 0. , 1. , 0.9, 1. , 0.9])
    """
    count = values.size
    if count < 3:
        return np.ones(count)
    half = min(NEIGHBOURS, (count - 1) // 2)
    padded = np.pad(values, half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)  # (n, 2·half + 1)
    residuals = np.abs(values - np.median(np.delete(windows, half, axis=1), axis=1))
    scale = CUTOFF * np.median(residuals)
    if scale == 0:
        return (residuals == 0).astype(np.float64)
    return np.maximum(1 - (residuals / scale) ** 2, 0.0) ** 2


class Cleaned(NamedTuple):
    """A series without its outliers: values (n,) with heavy tails cut, and which of them are outliers (n,)."""

    values: Floats
    outliers: NDArray[np.bool_]


def clean(values: Floats, level: float) -> Cleaned:
    """Find isolated wild values (n,), in the order of their times, and bring the tails of the noise near its middle.

    A value's distance is that from the median of the two values on either side, in units of the noise's `level` or, where that is more,
    of the median distance nearby. Only isolated values count: a peak of the signal has neighbours that rise with it, and a jump has
    one side on which it is near. White normal noise of 1,024 points loses one value in 40 series, and a quarter of a percent is
    moved. Where there are several, they are looked for again among what is left, and tails are moved again; where there are many, pairs
    and those beside others are found too. In fewer than 400 points only values far out are outliers, if they and lesser ones are at most
    one in a hundred or a single one, and no tails are moved.

    >>> values = np.sin(np.arange(500) / 40) + 0.1 * np.random.default_rng(0).normal(size=500)
    >>> values[250] += 3
    >>> np.flatnonzero(clean(values, 0.1).outliers)
    array([250])
    """
    count = values.size
    if count < SHORT or level <= 0:
        wild = far_alone(values, level, FAR_ALONE)
        few = not wild.any() or far_alone(values, level, FAR).sum() <= most_of_short(count)
        return Cleaned(values, wild & few)
    outlying = np.zeros(count, dtype=bool)
    current, clipped, heavy = values, values, False
    for pass_number in range(PASSES):
        beside, distances, isolated = _isolated(current, RATIO_AGAIN if pass_number else RATIO)
        # Wild values raise the distances around them: without those that were found, others beside them stand out.
        unit = _unit(distances, level)
        if not pass_number:
            share = np.mean(isolated & (distances > CLIP * unit))
            heavy = share > NORMAL_SHARE + HEAVY_ERRORS * (NORMAL_SHARE / count) ** 0.5
        if heavy or not pass_number:
            limit = (CLIP_HEAVY if heavy else CLIP) * unit
            clipped = np.where(isolated & (distances > limit), beside + np.sign(current - beside) * limit, clipped)
        wild = isolated & (distances > FAR * unit)
        if count * outlying.mean() ** 2 > EXPECTED_PAIRS:
            wild |= _pairs(current, FAR * unit) | _among_others(current, BESIDE_DEVIATION * level)
        elif count * wild.mean() ** 2 < EXPECTED_PAIRS:
            wild &= ~_beside(wild)
        if not (wild & ~outlying).any() or (wild | outlying).mean() < OFTEN:
            outlying |= wild
            break
        outlying |= wild
        current = values.copy()
        current[outlying] = np.interp(np.flatnonzero(outlying), np.flatnonzero(~outlying), values[~outlying])
    return Cleaned(clipped, outlying)


def _unit(distances: Floats, level: float) -> Floats:
    """What distances are measured in (n,): the noise's level, or the median distance nearby, if that is more."""
    near = _shifted(distances, NEAR, NEAR)
    return np.maximum(BESIDE_DEVIATION * level, medians(near) / 0.6744897501960817)


def _shifted(values: Floats, before: int, after: int) -> list[Floats]:
    """The values `before` points earlier (n,), one point nearer, and so on to `after` points later; a series is reflected at its ends."""
    padded = np.pad(values, (before, after), mode="reflect")
    return [padded[start : start + values.size] for start in range(before + 1 + after)]


def most_of_short(count: int) -> int:
    """How many values of a short series of `count` points may be outliers."""
    return max(1, int(SHARE_OF_SHORT * count))


def far_alone(values: Floats, level: float, far: float) -> NDArray[np.bool_]:
    """Which values of a short series (n,) are isolated, and more than `far` standard deviations from those beside them.

    >>> np.flatnonzero(far_alone(np.where(np.arange(50) == 20, 9.0, 0.0), 0.5, FAR_ALONE))
    array([20])
    """
    # A value is no further from the median of four others than from the furthest of them.
    steps = [np.abs(values[lag:] - values[:-lag]).max() for lag in (1, 2)] if values.size >= SHORTEST else []
    if level <= 0 or max(steps, default=0.0) <= far * BESIDE_DEVIATION * level:
        return np.zeros(values.size, dtype=bool)
    _, distances, isolated = _isolated(values, RATIO)
    return isolated & (distances > far * _unit(distances, level))


def _isolated(values: Floats, ratio: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The median of the two values on either side of each (n,), the distance from it, and whether the value stands alone."""
    near = _shifted(values, 6, 6)  # the value itself at 6
    beside, around = medians([*near[4:6], *near[7:9]]), medians([*near[:4], *near[9:]])
    left, right = values - medians(near[3:6]), values - medians(near[7:10])
    distances = np.abs(values - beside)
    return beside, distances, _stands_out(left, right, distances) & (distances > ratio * np.abs(beside - around))


def _beside(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the value before or after each is marked (n,)."""
    return np.append(False, marked[:-1]) | np.append(marked[1:], False)


def _stands_out(left: Floats, right: Floats, distances: Floats) -> NDArray[np.bool_]:
    return (np.sign(left) == np.sign(right)) & (np.minimum(np.abs(left), np.abs(right)) > BOTH_SIDES * distances)


def _pairs(values: Floats, far: Floats) -> NDArray[np.bool_]:
    """Neighbours that both stand far out, to one side, from the three values before and after them (n,)."""
    near = _shifted(values, 6, 7)  # a pair at 6 and 7
    before, after = medians(near[3:6]), medians(near[8:11])
    beside, around = medians([*near[3:6], *near[8:11]]), medians([*near[:3], *near[11:]])
    first, second = near[6] - beside, near[7] - beside
    nearer = np.where(np.abs(first) < np.abs(second), first, second)
    distances = np.abs(nearer)
    wild = (np.sign(first) == np.sign(second)) & (distances > far) & (distances > RATIO_AGAIN * np.abs(beside - around))
    wild &= _stands_out(nearer + beside - before, nearer + beside - after, distances)
    wild[-1] = False
    return wild | np.append(False, wild[:-1])


def _among_others(values: Floats, level: float) -> NDArray[np.bool_]:
    """Values far out, to one side, from the medians of the seven before and after them, also beside other wild ones (n,).

    A peak is told by its company: of the four values beside a wild one, one at most is near it.
    """
    near = _shifted(values, 7, 7)
    left, right = values - medians(near[:7]), values - medians(near[8:])
    distances = np.minimum(np.abs(left), np.abs(right))
    unit = np.maximum(level, medians(_shifted(distances, NEAR, NEAR)) / SEVEN_MEDIAN)
    company = sum((np.abs(each - values) < distances / 2).astype(np.intp) for each in (*near[5:7], *near[8:10]))
    return (np.sign(left) == np.sign(right)) & (distances > FAR * unit) & (company <= 1)
