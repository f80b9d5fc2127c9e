"""Noise whose level varies with time or with the value: whether it does, and by which simple law."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats, Indices
from overt.smoothing.selection.contrasts import (
    LINES,
    MAX_CONTRASTS,
    TRIM,
    TRIMMED_MEAN_SQUARE,
    contrasts,
    trimmed_deviation,
    trimmed_squares,
)
from overt.smoothing.selection.variance_laws import best_law

# Fewer points show no law.
MIN_POINTS = 64
# In a short series a quick part of the signal is as long as a burst. Predictions fitted to so many points tell most apart, and
# one window must differ by more standard deviations before any law is looked for.
FITTED, CLEARLY_ABOVE = 32, 6.5
# What these predictions leave of white noise's variance (simulated, to 0.5%).
FITTED_MEAN_SQUARE = 0.85
# Differences of these orders: a wave of the signal raises the low ones, a jump or a spike the high ones, noise raises all.
ORDERS = (2, 3, 5)
# The shortest window whose level is compared with the level around it, along time and along sorted values.
SHORTEST_IN_TIME, SHORTEST_IN_VALUE = 32, 64
# The log of the least of three trimmed levels of W points has, for white normal noise, this mean and standard deviation times 1/√W
# (simulated from W = 32 to 1,024; its upper tail is light, its lower one heavy).
LOG_MEAN, LOG_DEVIATION = -0.28, 1.22
# Standard deviations from which a window's level differs, above and below: about one window in 10,000 of white noise.
ABOVE, BELOW = 3.5, 4.8
# Of a longer series this many squares are enough: the level of the shortest window then is that of a longer stretch.
MAX_SQUARES = 8192
# The level varies by no more than this factor from the overall one: rounded values have a level of 0 here and there.
MOST = 20.0
# Where a curve follows its points more closely, their residuals are counted as if it followed them by so much. Squares of residuals are
# signal beyond this many first levels, which may be too low by a factor of √2.
MOST_FOLLOWED, TRIM_TWICE = 0.9, TRIM * 2.0**0.5
# The level that decides what is signal is the highest within so many squares.
BESIDE = 32
# A running mean of this many points stands for the value of the signal.
PILOT = 15


class Squares(NamedTuple):
    """Squared contrasts, of unit expectation at σ = 1, a row for each order (orders, …, m), and the points in their middle (m,)."""

    rows: Floats
    points: Indices


def varying_levels(
    times: Floats | None, values: Floats, weights: Floats, level: float, signal: Floats | None = None
) -> Floats | None:
    """The noise's standard deviation at weight 1 of each point (n,); None where nothing speaks against the one `level`.

    First the level is scanned: in windows of all lengths, halved from half of the series down to `SHORTEST_IN_TIME`, along time and
    along the sorted values of a running mean, the least trimmed level of three orders of differences is compared with that of the
    window around it. If no window differs clearly, or in a short series by `CLEARLY_ABOVE`, the level is constant. Otherwise `best_law`
    chooses by a penalised likelihood. Squares that the scan calls signal do not count. At last the law's scale is the trimmed level of
    the standardised contrasts, so that it is as accurate as a constant one.

    times (n,) ascending, None for equal steps; values (n,) without NaN; weights (n,) above 0; signal (n,): the values with the waves that
    were taken off, if any.

    >>> draw = np.random.default_rng(0).normal(size=1000)
    >>> varying_levels(None, draw, np.ones(1000), 1.0) is None
    True
    >>> levels = varying_levels(None, np.where(np.arange(1000) < 600, 1, 4) * draw, np.ones(1000), 1.6)
    >>> levels[[100, 900]].round(1)
    array([1. , 3.5])
    """
    if values.size < MIN_POINTS or level <= 0:
        return None
    times = None if times is None or (np.diff(times) <= 0).any() else times
    squares = _squares(times, values, weights)
    pilot = _running_mean(values if signal is None else signal)[squares.points]
    if values.size < SHORT and not _differs(squares, pilot, np.array(level)):
        return None
    order = np.argsort(pilot, kind="stable")
    constant = np.full(squares.points.size, np.log(level))
    in_time, in_value = _scan(squares.rows, constant, SHORTEST_IN_TIME), np.empty_like(constant)
    in_value[order] = _scan(squares.rows[:, order], constant, SHORTEST_IN_VALUE)
    likelihoods = [_likelihood(squares.rows, scanned) for scanned in (constant, in_time, in_value)]
    if max(likelihoods) == likelihoods[0]:
        return None
    scanned = (constant, in_time, in_value)[int(np.argmax(likelihoods))]
    row = squares.rows[int(np.argmin([trimmed_deviation(np.sqrt(row)) for row in squares.rows]))]
    for _ in range(2):  # the second time, what is signal is decided by the law
        logs = best_law(row / TRIMMED_MEAN_SQUARE, pilot, row <= TRIM**2 * np.exp(2 * highest_beside(scanned)))
        if logs is None:
            return None
        scanned = logs
    shape = np.exp(np.interp(np.arange(values.size), squares.points, scanned))
    shape = np.clip(shape, level / MOST, level * MOST)
    return shape * trimmed_deviation(np.concatenate([contrasts(times, values, weights / shape**2, line) for line in LINES]))


def may_vary(values: Floats, levels: Floats) -> NDArray[np.bool_]:
    """Whether `varying_levels` looks for a law in each of several short series (series,).

    values (series, n) at equal steps, levels (series,) above 0.
    """
    if values.shape[1] < MIN_POINTS:
        return np.zeros(values.shape[0], dtype=bool)
    squares = _squares(None, values, np.ones(values.shape[1]))
    return _differs(squares, _running_mean(values)[:, squares.points], levels)


def _differs(squares: Squares, pilot: Floats, levels: Floats) -> NDArray[np.bool_]:
    """Whether some window's level is clearly off the constant one, by `CLEARLY_ABOVE` (…,); pilot (…, m), levels (…,)."""
    by_value = np.take_along_axis(squares.rows, np.argsort(pilot, axis=-1, kind="stable")[None], axis=-1)
    differs = np.zeros(levels.shape, dtype=bool)
    for rows, shortest in ((squares.rows, SHORTEST_IN_TIME), (by_value, SHORTEST_IN_VALUE)):
        for length in _lengths(squares.points.size, shortest):
            _, windows = _windows(squares.points.size, length)
            differences = _log_levels(rows, windows) - np.log(levels)[..., None]
            differs |= _clearly_off(differences, length, CLEARLY_ABOVE).any(axis=-1)
    return differs


def residual_levels(residuals: Floats, leverages: Floats, curve: Floats, levels: Floats) -> Floats | None:
    """The same laws, from the residuals of a first curve, which are less noisy evidence than contrasts (n,); None if they show none.

    Where x_i − y_i leaves 1 − ∂y_i/∂x_i of the noise's variance, (x_i − y_i)²/(1 − ∂y_i/∂x_i) has the expectation σ_i² (Davidian and
    Carroll 1987, section 3). Squares beyond `TRIM` of the first levels (n,) count as signal that the curve missed.

    >>> draw = np.random.default_rng(0).normal(size=1000)
    >>> levels = np.where(np.arange(1000) < 600, 1.0, 4.0)
    >>> residual_levels(levels * draw, np.zeros(1000), np.zeros(1000), 0.8 * levels)[[100, 900]].round(1)
    array([0.9, 3.8])
    """
    points = np.arange(0, residuals.size, -(-residuals.size // MAX_SQUARES))
    squares = (residuals**2 / (1 - np.clip(leverages, 0.0, MOST_FOLLOWED)))[points]
    logs = best_law(squares, curve[points], squares <= (TRIM_TWICE * highest_beside(levels[points])) ** 2)
    if logs is None:
        return None
    shape = np.exp(np.interp(np.arange(residuals.size), points, logs))
    shape = np.clip(shape, levels.min() / MOST, levels.max() * MOST)
    return shape * trimmed_deviation(np.sqrt(squares) / shape[points])


def highest_beside(levels: Floats) -> Floats:
    """The highest level (m,) within `BESIDE` to either side of each: a burst's edge is found late where its first squares are signal."""
    return sliding_window_view(np.pad(levels, BESIDE, mode="edge"), 2 * BESIDE + 1).max(axis=1)


def _squares(times: Floats | None, values: Floats, weights: Floats) -> Squares:
    rows = [contrasts(times, values, weights, range(order + 1)) ** 2 for order in ORDERS]
    count, stride = min(row.shape[-1] for row in rows), -(-(values.shape[-1] - ORDERS[-1]) // MAX_CONTRASTS)
    every = -(-count // MAX_SQUARES)
    points = np.arange(0, count, every) * stride + ORDERS[-1] // 2
    rows = [row[..., :count:every] for row in rows]
    if values.shape[-1] < SHORT and times is None and np.ptp(weights) == 0:
        rows.append(weights[0] * _predicted_squares(values)[..., points])
    return Squares(np.stack(rows), points)


def _predicted_squares(values: Floats) -> Floats:
    """(x_i − p_i)² (…, n), of unit expectation at σ = 1, with p_i = a(x_{i−1} + x_{i+1}) + b(x_{i−2} + x_{i+2}) + c fitted nearby.

    Of white noise p_i is nearly the mean. A wave, however quick, and a smooth peak are predicted well, though they raise differences.
    """
    values = values - values.mean(axis=-1, keepdims=True)  # so that sums of products lose no digits
    near = np.pad(values, [*[(0, 0)] * (values.ndim - 1), (2, 2)], mode="reflect")
    columns = near[..., 1:-3] + near[..., 3:-1], near[..., :-4] + near[..., 4:], values
    count = values.shape[-1]
    starts = np.clip(np.arange(count) - FITTED // 2, 0, count - FITTED)

    def near_mean(column: Floats) -> Floats:
        sums = np.pad(np.cumsum(column, axis=-1), [*[(0, 0)] * (values.ndim - 1), (1, 0)])
        return (sums[..., starts + FITTED] - sums[..., starts]) / FITTED

    means = [near_mean(column) for column in columns]
    aa, ab, bb, ax, bx = (
        near_mean(columns[i] * columns[j]) - means[i] * means[j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2))
    )
    determinant = aa * bb - ab**2
    determinant = np.where(determinant > 1e-9 * aa * bb, determinant, np.inf)
    one, two, residuals = (column - mean for column, mean in zip(columns, means, strict=True))
    residuals = residuals - ((ax * bb - bx * ab) * one + (bx * aa - ax * ab) * two) / determinant
    return residuals**2 / FITTED_MEAN_SQUARE


def _running_mean(values: Floats) -> Floats:
    """The mean of `PILOT` values around each (…, n), with the first and the last repeated."""
    beyond = [(0, 0)] * (values.ndim - 1)
    padded = np.pad(values, [*beyond, (PILOT // 2, PILOT // 2)], mode="edge")
    sums = np.pad(np.cumsum(padded, axis=-1), [*beyond, (1, 0)])
    return (sums[..., PILOT:] - sums[..., :-PILOT]) / PILOT


def _scan(rows: Floats, logs: Floats, shortest: int) -> Floats:
    """The log of the level of each square (m,), in the order of the rows' columns; `logs` where no window clearly differs."""
    count, least = logs.size, logs - np.log(MOST)
    for length in _lengths(count, shortest):
        starts, windows = _windows(count, length)
        differences = _log_levels(rows, windows) - logs[windows].mean(axis=1)
        clear = _clearly_off(differences, length, ABOVE)
        if clear.any():
            nearest = np.clip(np.round((np.arange(count) - length / 2) / (length // 4)).astype(int), 0, starts.size - 1)
            logs = np.maximum(logs + np.where(clear, differences, 0.0)[nearest], least)
    return logs


def _windows(count: int, length: int) -> tuple[Indices, Indices]:
    """The first squares of windows that overlap by three quarters (windows,), and all of theirs (windows, length)."""
    starts = np.unique(np.append(np.arange(0, count - length + 1, length // 4), count - length))
    return starts, starts[:, None] + np.arange(length)


def _log_levels(rows: Floats, windows: Indices) -> Floats:
    """The log of the level in each window, the least of the orders, of one series or of several: rows (orders, …, m) to (…, windows)."""
    of_orders = (trimmed_squares(row[..., windows].reshape(-1, windows.shape[1]), most=8) for row in rows)
    levels = functools.reduce(np.minimum, of_orders).reshape(*rows.shape[1:-1], -1)
    return 0.5 * np.log(np.maximum(levels, np.finfo(float).tiny)) - LOG_MEAN / windows.shape[1] ** 0.5


def _clearly_off(differences: Floats, length: int, above: float) -> NDArray[np.bool_]:
    deviation = LOG_DEVIATION / length**0.5
    return (differences > above * deviation) | (differences < -BELOW * deviation)


def _lengths(count: int, shortest: int) -> Iterator[int]:
    length = count // 2
    while length >= max(shortest, count // 1024):
        yield length
        length //= 2


def _likelihood(rows: Floats, logs: Floats) -> float:
    """The log-likelihood of the squares under these log levels; a square of more than 30 variances counts as one of 30."""
    standardised = np.minimum(rows.min(axis=0) / np.exp(2 * logs), 30.0)
    return float(np.sum(-logs - standardised / 2))
