"""Conversion from a scale to the mean of the values: E g⁻¹(y + ε) differs from g⁻¹(y) by the noise ε around the curve y.

For logarithms with noise of variance σ² the mean is exp(y + σ²/2). A single σ² is biased if the noise of the logarithms varies with the
values (Manning 1998), and the normal law is biased if the noise is skewed (Duan 1983). So the variance follows the curve, and the curve
is shifted until the values scatter evenly around their mean, as far as the values show a shift.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.noise.scale import NAMES, Scale, Transform

# NODES, WEIGHTS: Gauss–Hermite quadrature, exact for polynomials of twice the degree, and to 1e-9 for exponentials of noise of level 2.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
# STEPS: Newton's steps to the shift: three from 0 to −0.26, for exponential noise, leave 1e-5. MOST_RESIDUALS: residuals used, at most.
STEPS, MOST_RESIDUALS = 3, 65_536
_TINY = np.finfo(float).tiny


class Noisy(NamedTuple):
    """A transform, and normal noise around curves on its scale, of variance exp(`logarithm` + `growth` · y) at y within the limits."""

    transform: Transform
    logarithm: float
    growth: float = 0.0
    limits: tuple[float, float] = (-np.inf, np.inf)
    shift: float = 0.0

    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        """The mean of values around the curve y, its derivative, and their standard deviation, in the caller's units.

        >>> draw = np.random.default_rng(0)
        >>> values = np.exp(np.log(3) + 0.5 * draw.normal(size=100_000))
        >>> mean, _, deviation = Noisy(Transform("log", 0.0, np.inf), np.log(0.25)).moments(np.array([np.log(3)]))
        >>> bool(abs(mean - values.mean()) < 0.02), bool(abs(deviation - values.std()) < 0.02)
        (True, True)
        """
        level, inside = self.level(y), (self.limits[0] <= y) & (y <= self.limits[1])
        growth = np.where(inside, self.growth / 2 * level, 0.0)
        mean, slope, square = (np.zeros_like(y) for _ in range(3))
        unit = np.abs(self.transform.inverse(y + self.shift)) + _TINY  # whose square would overflow
        for node, weight in zip(NODES.tolist(), WEIGHTS.tolist(), strict=True):
            at = y + self.shift + node * level
            value = self.transform.inverse(at)
            mean += weight * value
            square += weight * (value / unit) ** 2
            slope += weight * self.transform.slope(at) * (1 + node * growth)
        deviation = unit * np.sqrt(np.maximum(square - (mean / unit) ** 2, 0.0))
        return mean, slope, np.nan_to_num(deviation, nan=np.inf)

    def mean(self, y: Floats) -> Floats:
        """The mean of values around the curve y."""
        return self.moments(y)[0]

    def slope(self, y: Floats) -> Floats:
        """The derivative of the mean."""
        return self.moments(y)[1]

    def level(self, y: Floats) -> Floats:
        """The standard deviation of the noise on the scale."""
        return np.exp((self.logarithm + (self.growth * np.clip(y, *self.limits) if self.growth else 0.0)) / 2)

    @property
    def scale(self) -> Scale:
        """The scale whose curves come back as means."""
        return Scale(NAMES[self.transform.name], self.transform.forward, self.mean, self.slope)


@np.errstate(over="ignore", invalid="ignore")
def fit_noise(transform: Transform, curve: Floats, levels: Floats, residuals: Floats) -> Noisy:
    """The noise around a curve (n,), of levels (n,) and residuals (n,), all on the scale.

    A line is fitted to the logarithms of the levels and keeps the levels' mean square. The shift solves the quasi-likelihood equation for
    a constant, Σ mean′ (value − mean)/variance = 0 (Wedderburn 1974), and is shrunk by 1 − (standard error/shift)², at least 0 (the
    positive part of James and Stein 1961, section 2): normal noise shows no shift and keeps its better estimate.

    >>> noise = np.log(np.random.default_rng(0).exponential(size=400))
    >>> curve = np.full(400, noise.mean())
    >>> noisy = fit_noise(Transform("log", 0.0, np.inf), curve, np.full(400, noise.std()), noise - curve)
    >>> np.exp(noise).mean().round(2), noisy.mean(curve[:1]).round(2), noisy._replace(shift=0.0).mean(curve[:1]).round(2)
    (np.float64(1.13), array([1.13]), array([1.56]))
    """
    centred, squares = curve - curve.mean(), np.maximum(levels, np.sqrt(_TINY)) ** 2
    growth = float(centred @ np.log(squares)) / (float(centred @ centred) or 1.0) if np.ptp(levels) else 0.0
    # The limits keep the growth of the mean between ½ and 1½ of the growth of the curve.
    growth = float(np.clip(growth, -1 / squares.max(), 1 / squares.max()))
    logarithm = float(np.log(squares.mean() / np.exp(growth * centred).mean()) - growth * curve.mean())
    noisy = Noisy(transform, logarithm, growth, (float(curve.min()), float(curve.max())))
    # No step of Newton is larger than the noise.
    every, most = slice(None, None, -(-curve.size // MOST_RESIDUALS)), float(np.sqrt(squares.mean()))
    curve, values, shift, error = curve[every], transform.inverse(curve + residuals)[every], 0.0, 0.0
    for _ in range(STEPS):
        means, slopes, deviations = noisy._replace(shift=shift).moments(curve)
        deviations += np.finfo(float).eps * np.abs(means).max() + _TINY
        slopes /= deviations
        steps = slopes * ((values - means) / deviations) / (float(slopes @ slopes) or 1.0)  # steps from single values
        shift, error = shift + float(np.clip(steps.sum(), -most, most)), float(steps @ steps)
    shrunk = shift * max(1 - error / shift**2, 0.0) if shift else 0.0
    return noisy._replace(shift=shrunk if np.isfinite(shrunk) else 0.0)  # no shift if numbers overflow
