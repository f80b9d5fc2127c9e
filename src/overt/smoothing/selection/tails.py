"""Noise with heavy tails: the ratio of its root mean square to its trimmed level."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import LINES, contrasts, trimmed_deviation

# MIN_POINTS: fewer points do not show the tails.
MIN_POINTS = 150
# STRETCHES, STRETCH: number and points of the stretches that represent a long series.
STRETCHES, STRETCH = 24, 2048
# MEDIAN_OF, STEEP, REACH: the signal is steep if the medians of MEDIAN_OF values before and after a point differ by more than STEEP
# standard errors; contrasts within REACH points of it may contain signal.
MEDIAN_OF, STEEP, REACH = 6, 2.5, 4
# MEDIAN_VARIANCE: variance of the median of six normal values over the variance of their mean, 1.3 to 1.5; the larger one excludes less.
MEDIAN_VARIANCE = 1.5
# MIN_CONTRASTS: the least sample. LARGEST: a factor's excess over it is due to narrow recurring peaks, and is subtracted; otherwise white
# noise on these peaks has up to 3 times the error. At 200 and 300 points of the frozen signals the squared error is 0.96 and 0.92 (t noise,
# 3 degrees of freedom), 0.97 and 0.94 (Laplace) and 1.00 (white noise) times the error without a factor.
MIN_CONTRASTS, LARGEST = 200, 1.35


def tail_factor(times: Floats, values: Floats, noise: Floats) -> float:
    """The root mean square of noise over its trimmed level: 1 for normal noise, more for heavy tails.

    Stein's estimate of a head's risk contains 2σ²∂y_i/∂x_i, in which σ² is the mean square of the noise, whatever its distribution. The
    trimmed level of `estimate_noise` is lower under heavy tails, so that narrow heads look better than they are, by the same amount
    everywhere: no average over neighbours removes it. Here both levels are of the same contrasts, away from jumps, peaks and steep
    slopes, where only noise is large.

    times (n,) ascending, values (n,) without isolated outliers, noise (n,): the trimmed σ_i.

    >>> draw, points = np.random.default_rng(0), np.arange(4000.0)
    >>> tail_factor(points, draw.normal(size=4000), np.ones(4000)).__round__(2)
    1.0
    >>> tail_factor(points, np.clip(draw.laplace(size=4000), -4, 4), np.full(4000, 1.2)).__round__(2)
    1.06
    """
    if values.size < MIN_POINTS or noise.min() <= 0:
        return 1.0
    part = _represented(values.size)
    times, values, noise = times[part], values[part], noise[part]
    even = np.ptp(np.diff(times)) <= 1e-9 * (times[1] - times[0])
    flat, squares = ~_near_steep(values / noise), []
    for offsets in LINES:
        residuals = contrasts(None if even else times, values, 1 / noise**2, offsets)
        if residuals.size == values.size - offsets[-1]:  # none is missing because of equal times
            squares.append(residuals[flat[offsets[1] :][: residuals.size]] ** 2)
    inside = np.concatenate(squares) if squares else np.empty(0)
    trimmed = trimmed_deviation(np.sqrt(inside))
    if inside.size < MIN_CONTRASTS or trimmed == 0:
        return 1.0
    factor = float(np.sqrt(inside.mean())) / trimmed
    return max(min(factor, 2 * LARGEST - factor), 1.0)


def _represented(count: int) -> NDArray[np.intp]:
    """The indices (m,) of all points, or of the points of stretches at equal distances."""
    if count <= STRETCHES * STRETCH:
        return np.arange(count)
    starts = np.linspace(0, count - STRETCH, STRETCHES).astype(np.intp)
    return (starts[:, None] + np.arange(STRETCH)).ravel()


def _near_steep(values: Floats) -> NDArray[np.bool_]:
    """Whether the medians before and after a point nearby differ clearly (n,); values in units of the noise."""
    padded = np.pad(values, MEDIAN_OF, mode="edge")
    medians = np.median(np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_OF), axis=1)
    difference = np.abs(medians[MEDIAN_OF + 1 :][: values.size] - medians[: values.size])
    steep = difference > STEEP * (2 * MEDIAN_VARIANCE / MEDIAN_OF) ** 0.5
    return np.convolve(steep, np.ones(2 * REACH + 1), mode="same") > 0
