"""A curve beyond its data: its last level, a local trend as far as trends have lasted before, and the expected error.

The rise of the curve over the last length L predicts its rise over the next h: y(t+h) − y(t) ≈ s (y(t) − y(t−L)). The share s is the
least squares share over all times t of the curve, from 0, the last level, to h/L, a straight line. Several L, and no trend, are averaged
by how well they would have predicted; their mean squared error in the past, and their disagreement, widen the band.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats

# LENGTHS: lengths of the local trend, in lengths of the curve.
LENGTHS = (1 / 3, 1 / 6, 1 / 12, 1 / 24, 1 / 48)
# DISTANCES: distances at which the forecast is computed; ORIGINS: times of the past from which the forecasts are evaluated.
DISTANCES, ORIGINS = 48, 256
# FURTHEST: the furthest distance, in lengths of the curve: beyond it the past has fewer than two examples.
FURTHEST = 1 / 2


class LastLine(NamedTuple):
    """The line through the last n = 4 σ²/v points, whose last value has the variance v under noise of the variance σ².

    >>> LastLine(0.04, 1.0).grown(np.array([0.0, 50.0])).round(3)
    array([0.  , 0.09])
    """

    variance: float
    noise: float

    @property
    def _points(self) -> float:
        return max(4 * self.noise / self.variance, 1.0) if self.variance > 0 else np.inf

    @property
    def slope_variance(self) -> float:
        """The variance of the line's slope: 3 v/n²."""
        return 3 * self.variance / self._points**2

    def grown(self, distances: Floats) -> Floats:
        """The growth v(h) − v of the variance at distances h (m,) beyond the last point: v(h) = v (1 + 3 (1 + 2h/n)²)/4."""
        return 0.75 * self.variance * ((1 + 2 * distances / self._points) ** 2 - 1)


class Beyond(NamedTuple):
    """The forecast of a curve at ascending distances beyond its end (d,)."""

    distances: Floats
    rises: Floats  # of the curve, from its end
    missed: Floats  # the mean square of the error of the rise
    lasting: Floats  # the part of the slope at the end that goes on, from 0 to 1

    def at(self, distances: Floats) -> tuple[Floats, Floats, Floats]:
        """`rises`, `missed` and `lasting` at other distances (m,), NaN beyond the furthest."""
        columns = (self.rises, self.missed, self.lasting)
        return tuple(np.interp(distances, self.distances, column, right=np.nan) for column in columns)  # type: ignore[return-value]


def beyond(times: Floats, curve: Floats, slope_variance: float = 0.0) -> Beyond:
    """The forecast of a curve (n,) beyond the last of its ascending times (n,); its slope there has this variance.

    >>> line = np.arange(100.0)
    >>> rises, missed, _ = beyond(line, 2 * line).at(np.array([10.0]))
    >>> rises.round(3), missed.round(3)
    (array([20.]), array([0.]))
    """
    span = float(times[-1] - times[0])
    if times.size < 3 or span <= 0:
        return Beyond(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
    step = span / (times.size - 1)
    distances = np.geomspace(min(step, span * FURTHEST / 2), span * FURTHEST, DISTANCES)
    lengths = [0.0, *(span * part for part in LENGTHS if span * part >= 2 * step)]
    parts = [_length_forecast(times, curve, length, distances, slope_variance) for length in lengths]
    rises, missed, lasting = (np.stack(column) for column in zip(*parts, strict=True))  # (lengths, d)
    # Past examples that do not overlap: mean squares are compared, and are uncertain, as means over this many examples.
    examples = span / distances
    floor = 1e-12 * max(float(np.var(curve)), np.finfo(float).tiny)
    logs = -0.5 * examples * np.log(missed + floor)
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    rise = (weights * rises).sum(axis=0)
    spread = (weights * (missed + (rises - rise) ** 2)).sum(axis=0) * (1 + 2 / examples)
    columns = (rise, spread, (weights * lasting).sum(axis=0))
    return Beyond(np.append(0.0, distances), *(np.append(0.0, column) for column in columns))


def _length_forecast(
    times: Floats, curve: Floats, length: float, distances: Floats, slope_variance: float
) -> tuple[Floats, Floats, Floats]:
    """The rise predicted from the rise over the last `length` at each distance (d,), its past mean squared error, and its lasting part."""
    begin = times[0] + length
    origins = begin + np.linspace(0.0, 1.0, ORIGINS) * np.maximum(times[-1] - distances - begin, 0.0)[:, None]  # (d, origins)
    here = np.interp(origins, times, curve)
    ahead = np.interp(origins + distances[:, None], times, curve) - here
    if not length:
        return np.zeros(distances.size), np.mean(ahead**2, axis=1), np.zeros(distances.size)
    risen = here - np.interp(origins - length, times, curve)
    squares = np.maximum((risen**2).sum(axis=1), np.finfo(float).tiny)
    shares = np.clip((ahead * risen).sum(axis=1) / squares, 0.0, distances / length)
    shares *= squares / (squares + ORIGINS * length**2 * slope_variance)  # the last slope is less certain than earlier slopes
    last = curve[-1] - np.interp(times[-1] - length, times, curve)
    return shares * last, np.mean((ahead - shares[:, None] * risen) ** 2, axis=1), shares * length / distances
