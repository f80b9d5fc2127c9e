"""Noise whose neighbours are correlated: how strongly, and what that does to a head's risk."""

from math import comb

import numpy as np

from overt.smoothing.data.series import Floats

# Differences over so many steps are compared with those over one: the far ones, and where a signal raises these, nearer ones.
FAR, BETWEEN, NEAR = 16, 8, 4
# Stronger correlation cannot be told from a signal or a random walk by differences over so many steps: one random walk of 1,000 points
# in twenty seems to have less.
STRONGEST = {NEAR: 0.69, BETWEEN: 0.81, FAR: 0.87}
# The standard error of a negative ρ from 1,000 points. Too strong a correlation makes the level too low: so much nearer to 0 is whitened.
RHO_ERROR = 0.05
_GRID = np.linspace(-0.9, 0.995, 380)


def autoregression(ratio: float, order: int, far: int) -> tuple[float, float]:
    """The ρ of an autoregression ε_i = ρ ε_{i−1} + white, and the factor from the level of differences over one step to that of ε.

    `ratio` is log(level over `far` steps / level over 1) of differences of this order. It grows with ρ; a signal raises it too, so that
    of several orders the one of the smallest ρ is right. A random walk has log √`far`.

    >>> [round(number, 2) for number in autoregression(0.7, 2, 16)]
    [0.68, 2.02]
    """
    one = _levels(order, 1)
    rho = float(np.interp(ratio, np.log(_levels(order, far) / one), _GRID))
    return rho, float(1 / np.interp(rho, _GRID, one))


def whitened(values: Floats, rho: float) -> Floats:
    """(x_i − ρ x_{i−1})/(1 − ρ) of values (n,) at equal steps: a constant stays as it is, and the noise is white.

    For negative ρ this is a mean of neighbours; a signal is hardly changed, and what is left of the noise is `white_level` of it. For
    positive ρ it would be a difference, that makes a spike of each jump.

    >>> whitened(np.array([1.0, 1.0, 1.0, 4.0]), -0.5)
    array([1., 1., 1., 3.])
    """
    before = np.concatenate([values[1:2], values[:-1]]) if values.size > 1 else values
    return (values - rho * before) / (1 - rho)


def white_level(rho: float) -> float:
    """The level of whitened noise, over that of the noise: √(1 − ρ²)/(1 − ρ)."""
    return float(np.sqrt(1 - rho**2) / (1 - rho))


def coloring(rho: float) -> Floats:
    """The taps c_k = (1 − ρ) ρ^k that undo the whitening: x_i = Σ_k c_k x̃_{i−k}, where the first x̃ stands for all before it.

    >>> taps = coloring(-0.5)
    >>> float(taps[0]), round(float(taps.sum()), 12)
    (1.5, 1.0)
    """
    count = 1 + int(np.ceil(np.log(1e-17) / np.log(abs(rho))))
    return (1 - rho) * rho ** np.arange(count, dtype=np.float64)


def colored(values: Floats, rho: float) -> Floats:
    """The inverse of `whitened` (n,), for values that begin with a constant.

    >>> colored(np.array([1.0, 1.0, 1.0, 3.0]), -0.5).round(9)
    array([1., 1., 1., 4.])
    """
    taps = coloring(rho)
    return np.convolve(np.pad(values, (taps.size - 1, 0), mode="edge"), taps, mode="valid")


def _levels(order: int, lag: int) -> Floats:
    """The level of differences of an order over some steps, for each ρ of the grid and a level of 1 of ε.

    Its square is Σ_ab c_a c_b ρ^(lag |a − b|), with the normalised binomials c.
    """
    binomials = np.array([(-1) ** k * comb(order, k) for k in range(order + 1)], dtype=np.float64)
    binomials /= np.sqrt(np.sum(binomials**2))
    distance = np.abs(np.subtract.outer(np.arange(order + 1), np.arange(order + 1)))
    return np.sqrt(np.einsum("a,b,gab->g", binomials, binomials, _GRID[:, None, None] ** (lag * distance)))


def covariance_factors(leverages: Floats, rho: float) -> Floats:
    """Σ_j W_ij ρ^|i − j| / W_ii for heads of these leverages, as if W_ij were a Gaussian of i − j with its peak at the leverage.

    With the noise's covariance σ²ρ^|i − j|, the risk has σ² Σ_j W_ij ρ^|i − j| where white noise has σ² W_ii (Opsomer, Wang and Yang
    2001, section 3). 1 for leverages of 1 and more: such a head follows its point.

    >>> covariance_factors(np.array([1.0, 0.5, 0.01]), 0.5).round(2)
    array([1.  , 1.48, 3.  ])
    """
    widths = np.geomspace(0.05, 4000, 400)  # standard deviations of the Gaussian, in steps
    lags = np.arange(1, 2 + int(np.ceil(np.log(1e-4) / np.log(max(abs(rho), 1e-3)))))
    factors = 1 + 2 * (np.exp(-(lags**2) / (2 * widths[:, None] ** 2)) * rho**lags).sum(axis=1)
    reach = np.arange(1, 60)
    peaks = 1 / (1 + 2 * np.exp(-(reach**2) / (2 * np.minimum(widths, 20)[:, None] ** 2)).sum(axis=1))
    peaks = np.where(widths > 10, 1 / (widths * np.sqrt(2 * np.pi)), peaks)  # leverages, falling with the width
    inside = np.clip(leverages, peaks[-1], 1.0)
    return np.where(leverages > 1, 1.0, np.interp(-inside, -peaks, factors))


def risk_variance_factor(rho: float) -> float:
    """By how much the variance of a mean of squares of correlated noise exceeds that of white noise: Σ_k ρ^(2|k|)."""
    return (1 + rho**2) / (1 - rho**2)
