"""Whether outliers are peaks of the signal: peaks recur, or their neighbours rise with them; an error does not change its neighbours."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats

# NEAR: neighbours of an outlier on either side; FAR: reach, in points, of the other values, to whose median neighbours are compared.
NEAR, FAR = 2, 9
# LEAST: fewest outliers; LEVELS, ERRORS: least mean rise of their neighbours, in units (the noise level or the spread farther away) and in
# standard errors. 36 of 41 series with narrow peaks keep them, none of 595 with outliers on 31 other signals.
LEAST, LEVELS, ERRORS = 3, 1.5, 3.0
# MOST: largest rise that counts for a neighbour; LEAST_DEVIATION: least standard deviation of the rises; both in units.
MOST, LEAST_DEVIATION = 4.0, 0.25
# RECUR: fewest outliers that recur; WIDEST: largest distance of points of one peak; MOSTLY: least share on one side, and within IRREGULAR
# of an interval from a grid of equal intervals. Fewer than one of 1,000 sets of random outliers recur.
RECUR, WIDEST, MOSTLY, IRREGULAR = 8, 3, 0.8, 0.06
# REPEATED: least autocorrelation of marks of outliers above and below that also recur; random marks have at most half of it.
REPEATED = 0.6
# SHARE_OF_SHORT, MOST_OF_SHORT: outliers of a short series may be peaks of a single point above the first share if they are mostly on one
# side (errors are on both), or above the second share. The tails of the noise are not moved then.
SHARE_OF_SHORT, MOST_OF_SHORT = 0.01, 0.08
# Outliers that may be peaks resemble peaks above FEW_OF_SHORT (share of all points), DIFFER (standard errors by which neighbours differ) or
# SURE (log evidence of a grid of equal intervals, of at least SHORTEST_INTERVAL points, with outliers within ON_GRID points). 6 of 1,140
# short series under white noise lose a peak; of as many with 1 and 3% outliers 150 would keep theirs with 19 times the error.
FEW_OF_SHORT, DIFFER, SURE, ON_GRID, SHORTEST_INTERVAL = 0.05, 3.0, 2.0, 0.75, 4


def why_peaks(values: Floats, outliers: NDArray[np.bool_], level: float) -> str:
    """The reason why outliers (n,) are peaks of the signal; "" if they are not."""
    if _recur(outliers, above_others(values, outliers)):
        return "they recur at equal intervals, as peaks of a signal do"
    return "their neighbours rise or fall with them, as those of a peak do" if have_shoulders(values, outliers, level) else ""


def have_shoulders(values: Floats, outliers: NDArray[np.bool_], level: float) -> bool:
    """Whether the neighbours of outliers (n,) that are no outliers themselves deviate to the same side, in noise of `level`.

    >>> noise, times = 0.05 * np.random.default_rng(0).normal(size=600), np.arange(600)
    >>> peaks = np.exp(-0.5 * ((times % 50 - 25) / 1.2) ** 2)
    >>> have_shoulders(peaks + noise, peaks > 0.6, 0.05), have_shoulders((peaks > 0.9) + noise, peaks > 0.9, 0.05)
    (True, False)
    """
    if not outliers.any() or not level > 0:
        return False
    above = _neighbours_above(values, outliers, level, NEAR, FAR)
    above = above[~np.isnan(above).all(axis=1)]
    if len(above) < LEAST:
        return False
    means = np.nanmean(above, axis=1)
    error = max(float(means.std(ddof=1)), LEAST_DEVIATION) / means.size**0.5
    return bool(means.mean() > max(LEVELS, ERRORS * error))


def _neighbours_above(values: Floats, outliers: NDArray[np.bool_], level: float, near: int, far: int) -> Floats:
    """Distances of neighbours from the median of points farther away, positive to the side of the outlier, in units (outliers, …)."""
    marked, away = np.flatnonzero(outliers), np.abs(np.arange(-far, far + 1))
    padded = np.pad(np.where(outliers, np.nan, values), far, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * far + 1)[marked]
    there = ~np.isnan(windows[:, away > near]).all(axis=1)
    windows, others = windows[there], windows[there][:, away > near]
    middle = np.nanmedian(others, axis=1, keepdims=True)
    unit = np.maximum(np.nanmedian(np.abs(others - middle), axis=1, keepdims=True) / 0.6744897501960817, level)
    return np.clip(np.sign(values[marked[there], None] - middle) * (windows[:, away <= near] - middle) / unit, -MOST, MOST)


def _recur(outliers: NDArray[np.bool_], above: Floats) -> bool:
    """Whether outliers (n,), higher than the others by `above`, recur at equal intervals on one side, or in a pattern that repeats.

    >>> marks = np.zeros(500, dtype=bool)
    >>> marks[np.rint(np.arange(3, 490, 40.3)).astype(int)] = True
    >>> marks[[124, 200]] = False, True
    >>> _recur(marks, np.ones(500)), _recur(np.random.default_rng(0).random(500) < 0.03, np.ones(500))
    (True, False)
    """
    marked = np.flatnonzero(outliers)
    if marked.size >= RECUR and _repeat(np.where(outliers, np.sign(above), 0.0)):
        return True
    if marked.size < RECUR or not _mostly_on_one_side(above[marked]):
        return False
    first = marked[np.append(True, np.diff(marked) > WIDEST)]  # the first point of a peak
    steps = np.diff(first)
    turns = np.append(0, np.cumsum(np.rint(steps / np.median(steps)))) if steps.size else np.zeros(1)
    if turns[-1] < RECUR:
        return False
    near, slope, distances = np.ones(first.size, dtype=bool), 0.0, np.zeros(first.size)
    for _ in range(3):
        slope, start = np.polyfit(turns[near], first[near], 1)
        distances = np.abs(first - start - slope * turns)
        near = distances <= np.quantile(distances, MOSTLY)
    return bool(np.mean(distances < IRREGULAR * slope) >= MOSTLY)


def _repeat(marks: Floats) -> bool:
    """Whether marks (n,), 1 above and −1 below, repeat after some lag, up to one point of jitter.

    >>> pulse = np.where(np.arange(400) % 37 < 2, 1.0, 0.0) - np.where(np.arange(400) % 37 == 5, 1.0, 0.0)
    >>> _repeat(pulse), _repeat(np.random.default_rng(0).permutation(pulse))
    (True, False)
    """
    products = autocovariances(np.clip(np.convolve(marks, np.ones(3), "same"), -1, 1))
    return bool(products[2 * WIDEST :].max(initial=0.0) > REPEATED * products[0])


def autocovariances(values: Floats) -> Floats:
    """The autocovariances of values (n,) at lags below n/3 (n // 3,): at every lag the mean of the available products."""
    count, lags = values.size, np.arange(values.size // 3)
    return np.asarray(np.fft.irfft(np.abs(np.fft.rfft(values - values.mean(), 2 * count)) ** 2)[: lags.size] / (count - lags))


def to_one_side(values: Floats, outliers: NDArray[np.bool_]) -> bool:
    """Whether outliers (n,) are enough to recur, and mostly above the other values (n,) or mostly below."""
    return bool(outliers.sum() >= RECUR) and _mostly_on_one_side(above_others(values, outliers)[outliers])


def _mostly_on_one_side(above: Floats) -> bool:
    return abs(float(np.mean(above > 0)) - 0.5) >= MOSTLY - 0.5


def may_be_peaks(above: Floats) -> bool:
    """Whether the outliers, higher than the other values by `above` (n,), are several on one side, or too many."""
    fewer, more = sorted((int(np.sum(above > 0)), int(np.sum(above < 0))))
    on_one_side = more > max(1, int(SHARE_OF_SHORT * above.size)) and fewer < more / 4
    return on_one_side or fewer + more > MOST_OF_SHORT * above.size


def resemble_peaks(values: Floats, outliers: NDArray[np.bool_], level: float) -> bool:
    """Whether outliers (n,) of a short series that may be peaks are many, change their neighbours, or recur at equal intervals.

    >>> noise, points = np.random.default_rng(0).normal(size=150), np.arange(150)
    >>> beats, errors = points % 29 == 7, np.isin(points, [20, 41, 118])
    >>> resemble_peaks(noise + 20 * beats, beats, 1.0), resemble_peaks(noise + 20 * errors, errors, 1.0)
    (True, False)
    """
    marked = np.flatnonzero(outliers)
    if marked.size > FEW_OF_SHORT * values.size or _at_equal_intervals(marked):
        return True
    differences = _neighbours_above(values, outliers, level, 1, SHORTEST_INTERVAL + 1)
    differences = differences[~np.isnan(differences)]
    if differences.size < 2:
        return False
    return bool(abs(differences.mean()) > DIFFER * max(float(differences.std()), 1.0) / differences.size**0.5)


def _at_equal_intervals(marked: NDArray[np.intp]) -> bool:
    """Whether most of the ascending points (k,) are on a grid of equal intervals, with gaps, beyond chance."""
    others = marked[1:] - marked[:1]
    turns = np.arange(2, others[-1] // SHORTEST_INTERVAL + 1) if others.size > 1 else np.zeros(0)
    if not turns.size:
        return False
    intervals = ((others[-1] + ON_GRID * np.linspace(-1, 1, 5)[:, None]) / turns).reshape(-1, 1)
    on_grid = np.abs(others / intervals - np.rint(others / intervals)) * intervals <= ON_GRID
    evidence = on_grid.sum(axis=1) * np.log(np.maximum(intervals[:, 0] / (2 * ON_GRID), 1.0))
    return bool(evidence[on_grid.mean(axis=1) >= MOSTLY].max(initial=0.0) > SURE + np.log(turns.size))


def above_others(values: Floats, outliers: NDArray[np.bool_]) -> Floats:
    """Heights of outliers above the lines between the other values (n,); 0 for the other values."""
    above, marked, known = np.zeros(values.size), np.flatnonzero(outliers), np.flatnonzero(~outliers)
    above[marked] = values[marked] - np.interp(marked, known, values[known])
    return above
