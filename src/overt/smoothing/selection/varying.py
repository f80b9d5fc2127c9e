"""Noise whose level varies: a test for it, its level around each point, and its law from the residuals of a curve."""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats, Indices
from overt.smoothing.selection.contrasts import LINES, TRIM, TRIMMED_MEAN_SQUARE, contrasts, trimmed_deviation, trimmed_squares
from overt.smoothing.selection.variance_laws import best_law

# MIN_POINTS: fewest points that show a level that varies.
MIN_POINTS = 64
# FITS: predictors of a value: neighbours on either side, and the degree of the polynomial through them.
FITS = ((1, 1), (2, 2), (3, 2), (5, 2), (8, 2))
# FITTED: predictors at equal steps, from two neighbours on either side, which follow a quick wave, too: values nearby to which the
# coefficients are fitted, and the share of white noise's variance in their errors (simulated, to 0.5%).
FITTED = {16: 0.714, 32: 0.851}
# WINDOW: squares in the shortest window; STEP: squares from one window to the next; TOGETHER: shortest windows in the compared ones.
WINDOW, STEP, TOGETHER = 17, 4, (1, 5, 13, 29, 61, 125)
# ABOVE: least rise of a window's log level over most windows, in units of √(2 log n/squares in it); BELOW: least fall, over ABOVE. None
# of 156 white series of 100 and 200 points on the development signals differs, 71 of 78 with bursts at 200 points, and 28 at 100.
ABOVE, BELOW = 1.0, 1.1
# ALONG_VALUES: ABOVE for windows along sorted values, where predictors need not agree and a lower level is no evidence: 0.85 to 1.3 if the
# noise grows with a wave, 0.25 under correlation.
ALONG_VALUES = 0.8
# AGREE: largest difference of the predictors' log levels in a window without a signal: 0.28 in the median within bursts of white noise, 0.6
# to 1.3 next to jumps and narrow peaks. AGREE_ON_WAVES: AGREE on a quick wave, where neighbours have other noise levels: 0.36 in the
# median, above 0.69 if a wave is left (300 points of a Doppler signal).
AGREE, AGREE_ON_WAVES = 0.34, 0.42
# MAX_SQUARES: squares compared in a longer series, whose windows then cover longer stretches.
MAX_SQUARES = 8192
# MOST: largest factor between the local and the overall level: the local level of rounded values can be 0.
MOST = 20.0
# MOST_FOLLOWED: largest leverage in the correction of residuals; TRIM_TWICE: squares of residuals are signal beyond this multiple of the
# first levels, which may be too low by a factor of √2.
MOST_FOLLOWED, TRIM_TWICE = 0.9, TRIM * 2.0**0.5
# REACH: squares on either side, whose highest level decides which squares are signal.
REACH = 32
# PILOT: points of the running mean that estimates the signal.
PILOT = 15


def varying_levels(
    times: Floats | None, values: Floats, weights: Floats, level: float, signal: Floats | None = None
) -> Floats | None:
    """The noise's standard deviation at weight 1 for every point (n,); None if there is no evidence against a constant `level`.

    A value is predicted from its neighbours by several predictors. The noise level in a window is the trimmed level of the best predictor,
    since a signal that one predictor follows is no noise. If some window clearly differs from most windows (`ABOVE`), the levels of the
    shortest windows are interpolated between their middles. Their common factor is the level of standardised contrasts, which is as
    accurate as a constant level. If waves were subtracted, windows along the sorted values of a running mean are tried, too.

    times (n,) ascending, None for equal steps; values (n,) without NaN; weights (n,) above 0; signal (n,): the values including the
    subtracted waves, None without waves.

    >>> draw = np.random.default_rng(0).normal(size=1000)
    >>> varying_levels(None, draw, np.ones(1000), 1.0) is None
    True
    >>> levels = varying_levels(None, np.where(np.arange(1000) < 600, 1, 4) * draw, np.ones(1000), 1.6)
    >>> bool(0.7 < levels[:550].mean() < 1.1), bool(3.3 < levels[650:].mean() < 4.3)
    (True, True)
    """
    if values.size < MIN_POINTS or level <= 0:
        return None
    times = None if times is None or (np.diff(times) <= 0).any() else times
    squares, points = _squares(times, values, weights), _compared_points(values.size)
    padded = np.pad(values if signal is None else signal, PILOT // 2, mode="edge")
    pilot = _running_sums(padded, PILOT)[points] / PILOT
    order, agree, used = np.arange(pilot.size), AGREE, np.arange(pilot.size)
    if signal is not None and not _differs(squares):
        middles, predictor_logs = _window_logs(squares)
        no_signal = np.interp(order, middles, np.ptp(predictor_logs, axis=0)) < AGREE_ON_WAVES
        order, agree = np.argsort(pilot, kind="stable"), np.inf
        used = np.flatnonzero(no_signal[order])
    if used.size < MIN_POINTS or not _differs(squares[:, order[used]], agree):
        return None
    middles, predictor_logs = _window_logs(squares[:, order[used]])
    noise = np.ptp(predictor_logs, axis=0) < agree  # other windows get the level of their neighbours
    levels = _smoothed(np.interp(middles, middles[noise], predictor_logs.min(axis=0)[noise]))
    logs = np.empty(order.size)
    logs[order] = np.interp(np.arange(order.size), used[middles], levels)
    logs = np.clip(logs, np.log(level / MOST), np.log(level * MOST))
    if values.size >= SHORT:
        row = squares[int(np.argmin([trimmed_deviation(np.sqrt(row)) for row in squares]))]
        for _ in range(2):  # in the second round the law of the first decides which squares are signal
            law = best_law(row / TRIMMED_MEAN_SQUARE, pilot, row <= TRIM**2 * np.exp(2 * _highest(logs)))
            if law is None:
                return None
            logs = np.clip(law, np.log(level / MOST), np.log(level * MOST))
    shape = np.exp(np.interp(np.arange(values.size), points, logs))
    return shape * trimmed_deviation(np.concatenate([contrasts(times, values, weights / shape**2, line) for line in LINES]))


def may_vary(values: Floats) -> NDArray[np.bool_]:
    """Whether the level of series may vary (series,); values (series, n) at equal steps."""
    if values.shape[1] < MIN_POINTS:
        return np.zeros(values.shape[0], dtype=bool)
    return _differs(_squares(None, values, np.ones(values.shape[1])))


def residual_levels(residuals: Floats, leverages: Floats, curve: Floats, levels: Floats) -> Floats | None:
    """The noise level (n,) by a law (`best_law`) of the residuals of a first curve, which are less noisy; None if they show no law.

    If x_i − y_i has the share 1 − ∂y_i/∂x_i of the noise's variance, (x_i − y_i)²/(1 − ∂y_i/∂x_i) has the expectation σ_i² (Davidian and
    Carroll 1987, section 3). Squares beyond `TRIM_TWICE` first levels (n,) count as signal that the curve missed.

    >>> draw = np.random.default_rng(0).normal(size=1000)
    >>> levels = np.where(np.arange(1000) < 600, 1.0, 4.0)
    >>> residual_levels(levels * draw, np.zeros(1000), np.zeros(1000), 0.8 * levels)[[100, 900]].round(1)
    array([0.9, 3.8])
    """
    points = _compared_points(residuals.size)
    squares = (residuals**2 / (1 - np.clip(leverages, 0.0, MOST_FOLLOWED)))[points]
    logs = best_law(squares, curve[points], squares <= (TRIM_TWICE * _highest(levels[points])) ** 2)
    if logs is None:
        return None
    shape = np.exp(np.interp(np.arange(residuals.size), points, logs))
    shape = np.clip(shape, levels.min() / MOST, levels.max() * MOST)
    return shape * trimmed_deviation(np.sqrt(squares) / shape[points])


def _highest(levels: Floats) -> Floats:
    """The highest level (m,) within `REACH` on either side: otherwise a burst starts late, because its first squares seem signal."""
    return sliding_window_view(np.pad(levels, REACH, mode="edge"), 2 * REACH + 1).max(axis=1)


def _differs(rows: Floats, agree: float = AGREE) -> NDArray[np.bool_]:
    """Whether the level of some window clearly differs from most windows (…,); rows (predictors, …, m). Signals are excluded (`AGREE`)."""
    _, predictor_logs = _window_logs(rows)
    noise = np.ptp(predictor_logs, axis=0) < agree
    count, differs = rows.shape[-1], np.zeros(noise.shape[:-1], dtype=bool)
    usual = _medians(np.where(noise, predictor_logs.mean(axis=0), np.inf), noise.sum(axis=-1, keepdims=True))
    above, below = (ABOVE, BELOW * ABOVE) if np.isfinite(agree) else (ALONG_VALUES, np.inf)
    for windows in TOGETHER:
        if windows == 1 or WINDOW + STEP * (windows - 1) <= count / 2:
            counts = _running_sums(noise, windows)
            known = np.maximum(counts, 1)
            logs = (_running_sums(np.where(noise, predictor_logs, 0.0), windows) / known).min(axis=0) - usual
            unit = np.sqrt(2 * np.log(count) / (WINDOW + STEP * (known - 1)))
            differs |= (((logs > above * unit) | (logs < -below * unit)) & (2 * counts > windows)).any(axis=-1)
    return differs


def _medians(rows: Floats, counts: Indices) -> Floats:
    """The medians of the `counts` (…, 1) smallest numbers in rows (…, windows); infinite if a count is 0."""
    middles = np.concatenate([np.maximum(counts - 1, 0) // 2, np.minimum(counts // 2, rows.shape[-1] - 1)], axis=-1)
    return np.take_along_axis(np.sort(rows, axis=-1), middles, axis=-1).mean(axis=-1, keepdims=True)


def share_of_noise(times: Floats | None, values: Floats, weights: Floats) -> float:
    """The share of windows in which the values (n,) look like white noise to all predictors; it is small for a random walk."""
    agreement = np.ptp(_window_logs(_squares(times, values, weights))[1], axis=0)
    return float(np.mean(agreement < AGREE)) if agreement.size else 1.0


def _window_logs(rows: Floats) -> tuple[Indices, Floats]:
    """The middles of the shortest windows (windows,), and the log levels of the predictors in them (predictors, …, windows)."""
    starts = np.arange(0, rows.shape[-1] - WINDOW + 1, STEP)
    squares = rows[..., starts[:, None] + np.arange(WINDOW)]
    variances = trimmed_squares(squares.reshape(-1, WINDOW), most=8).reshape(squares.shape[:-1])
    return starts + WINDOW // 2, np.log(np.maximum(variances, np.finfo(float).tiny)) / 2


def _running_sums(columns: NDArray[Any], length: int) -> NDArray[Any]:
    """Sums of `length` neighbours (…, n − length + 1)."""
    sums = _prefix_sums(columns)
    return sums[..., length:] - sums[..., :-length]


def _prefix_sums(columns: NDArray[Any]) -> NDArray[Any]:
    """Sums of the first 0 to n numbers (…, n + 1)."""
    sums = np.zeros((*columns.shape[:-1], columns.shape[-1] + 1), dtype=np.result_type(columns, np.intp))
    np.cumsum(columns, axis=-1, out=sums[..., 1:])
    return sums


def _smoothed(logs: Floats) -> Floats:
    """Averages of three neighbours (windows,), with the weight of the middle one doubled."""
    padded = np.pad(logs, 1, mode="edge")
    return (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4


def _compared_points(count: int) -> Indices:
    """The points (m,) of `count` whose squares are compared: at most `MAX_SQUARES`."""
    return np.arange(0, count, -(-count // MAX_SQUARES))


def _squares(times: Floats | None, values: Floats, weights: Floats) -> Floats:
    """Squared errors of predictions, of unit expectation at σ = 1, one row per predictor (predictors, …, m)."""
    count, alike = values.shape[-1], times is None and np.ptp(weights) == 0
    points, times = _compared_points(count), np.arange(float(count)) if times is None else times
    rows = []
    for reach, degree in FITS:
        fit = _even_fit(count, reach, degree) if alike else _fit(times, weights, reach, degree)
        residuals = values[..., points] - np.einsum("...mk,mk->...m", values[..., fit.near], fit.shares)
        rows.append(residuals**2 * (weights[0] if alike else 1.0) / fit.variances)
    if alike:
        rows += [weights[0] * predicted_squares(values, fitted)[..., points] for fitted in FITTED]
    return np.stack(rows)


class NeighbourFit(NamedTuple):
    """Predictions Σ_k shares_ik x_{near_ik}, both (m, neighbours), and the variances of their errors (m,)."""

    near: Indices
    shares: Floats
    variances: Floats


@functools.lru_cache(maxsize=32)
def _even_fit(count: int, reach: int, degree: int) -> NeighbourFit:
    return _fit(np.arange(float(count)), np.ones(count), reach, degree)


def _fit(times: Floats, weights: Floats, reach: int, degree: int) -> NeighbourFit:
    """Least-squares polynomials through neighbours at ascending times (n,); variances of errors for values of variance 1/w_i (n,)."""
    count, points = times.size, _compared_points(times.size)
    near = np.clip(points - reach, 0, count - 2 * reach - 1)[:, None] + np.arange(2 * reach + 1)
    near = near[near != points[:, None]].reshape(points.size, 2 * reach)
    away = times[near] - times[points, None]
    reaches = np.maximum(np.abs(away).max(axis=1, keepdims=True), np.finfo(float).tiny)
    powers = (away / reaches)[..., None] ** np.arange(degree + 1)
    weighted = weights[near][..., None] * powers
    moments = np.swapaxes(powers, 1, 2) @ weighted
    # Times that nearly coincide would make the matrix singular.
    moments += 1e-12 * np.trace(moments, axis1=1, axis2=2)[:, None, None] * np.eye(degree + 1)
    shares = (weighted @ np.linalg.solve(moments, np.eye(degree + 1)[:, :1]))[..., 0]
    return NeighbourFit(near, shares, 1 / weights[points] + (shares**2 / weights[near]).sum(axis=1))


def predicted_squares(values: Floats, fitted: int) -> Floats:
    """(x_i − p_i)² (…, n), of unit expectation at σ = 1, with p_i = a(x_{i−1} + x_{i+1}) + b(x_{i−2} + x_{i+2}) + c fitted nearby.

    For white noise p_i is nearly the mean. A wave, even a quick one, and a smooth peak are predicted well, though they raise differences.
    """
    values = values - values.mean(axis=-1, keepdims=True)  # so that sums of products lose no digits
    near = np.pad(values, [*[(0, 0)] * (values.ndim - 1), (2, 2)], mode="reflect")
    columns = np.stack([near[..., 1:-3] + near[..., 3:-1], near[..., :-4] + near[..., 4:], values])
    count = values.shape[-1]
    starts = np.clip(np.arange(count) - fitted // 2, 0, count - fitted)

    def near_means(rows: Floats) -> Floats:
        sums = _prefix_sums(rows)
        return (sums[..., starts + fitted] - sums[..., starts]) / fitted

    means, first, second = near_means(columns), [0, 0, 1, 0, 1], [0, 1, 1, 2, 2]
    aa, ab, bb, ax, bx = near_means(columns[first] * columns[second]) - means[first] * means[second]
    determinant = aa * bb - ab**2
    determinant = np.where(determinant > 1e-9 * aa * bb, determinant, np.inf)
    one, two, residuals = columns - means
    residuals = residuals - ((ax * bb - bx * ab) * one + (bx * aa - ax * ab) * two) / determinant
    return residuals**2 / FITTED[fitted]
