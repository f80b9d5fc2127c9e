"""Noise whose neighbours are correlated: its ρ, and the effect of ρ on a head's risk."""

import functools
from math import comb
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats

# FAR, NEAR: steps of the differences that are compared with differences over one step; NEAR for noise that alternates.
FAR, NEAR = 16, 4
# _STRONGEST: far differences do not distinguish a larger ρ from a signal or a random walk: one random walk in twenty of _STRONGEST_OF
# points seems to have a smaller ρ.
_STRONGEST, _STRONGEST_OF = (0.74, 0.83, 0.87), (200, 400, 1000)
# RHO_ERROR: standard error of a negative ρ from 1,000 points; whitening uses a ρ this much nearer to 0, or the level would be too low.
RHO_ERROR = 0.05
_GRID = np.linspace(-0.9, 0.995, 380)
# The fit to a spectrum: _RHOS: its ρ; _SHARES, _POWERS: shares of the signal and its powers of 1/ω; _TREND: how many of the lowest
# frequencies are ignored, as a trend's; _FREQUENCIES: how many frequencies are fitted at most.
_RHOS = np.concatenate([np.linspace(-0.9, 0.9, 73), [0.92, 0.94, 0.96, 0.98, 0.99]])
_SHARES = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 25)])
_POWERS = (4, 2)
_TREND, _FREQUENCIES = 4, 512
_FAR_OUT = 5.0  # times the model: more at one frequency is a wave of the signal
_LIKELY = 2.0  # below the largest log-likelihood, of every second frequency: two standard errors
# _BAND, _TOO_MUCH: a quick signal exceeds the model over _BAND neighbouring frequencies by _TOO_MUCH standard errors of their mean.
_BAND, _TOO_MUCH = 10, 5.0
# _OF_A_WALK: a ρ that may be this large may be a random walk. _SMALLEST: a smaller ρ may be 0.
_OF_A_WALK, _SMALLEST = 0.95, 0.15
# POSSIBLE: the ρ that few points may have; PRIOR: their prior is exp(−|ρ|/PRIOR); _FEW_SHARES: shares of the signal.
POSSIBLE, PRIOR = np.linspace(-0.4, 0.8, 9), 0.3
_FEW_SHARES = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 8)])
# Autoregressions beneath white noise: _HIDDEN_RHOS: ρ; _HIDDEN_PARTS: parts of the noise's variance; _HIDDEN_SHARES: shares of a signal.
_HIDDEN_RHOS, _HIDDEN_PARTS = np.array([0.4, 0.6, 0.75, 0.85, 0.92]), np.array([0.15, 0.3, 0.5, 0.7, 0.85, 1.0])
_HIDDEN_SHARES = np.concatenate([[0.0], np.geomspace(1e-4, 1e6, 16)])
# _LEAST_FREQUENCIES: fewer frequencies show no correlation.
_LEAST_FREQUENCIES = 3
# Messages on noise that is smoothed as an autoregression, but may be part of the signal or a random walk.
BENEATH = (
    "The noise may be part of the signal: the spectrum shows an autoregression with a correlation of {rho:.2g} beneath the waves of a "
    "signal, as which it was smoothed. Differences do not tell it from them."
)
WALK = (
    "The noise may be a random walk: its spectrum tells one hardly from an autoregression with a correlation of {rho:.2g}, as which it was "
    "smoothed."
)


class Spectral(NamedTuple):
    """The ρ of an autoregression by a spectrum, with the least and the largest likely ρ."""

    rho: float
    least: float
    most: float

    @property
    def may_be_a_walk(self) -> bool:
        """Whether a random walk is also likely."""
        return self.most >= _OF_A_WALK

    @property
    def shows(self) -> bool:
        """Whether the spectrum shows an autoregression."""
        return self.rho > _SMALLEST and not self.may_be_a_walk


def strongest(count: int) -> float:
    """The largest ρ that far differences distinguish from a random walk of `count` points.

    >>> strongest(200), strongest(100_000)
    (0.74, 0.87)
    """
    return float(np.interp(count, _STRONGEST_OF, _STRONGEST))


def autoregression(ratio: float, order: int, far: int) -> tuple[float, float]:
    """The ρ of an autoregression ε_i = ρ ε_{i−1} + white, and the level of ε over the level of differences over one step.

    `ratio` is log(level over `far` steps / level over 1) of differences of this order. It grows with ρ; a signal also raises it, so the
    order with the smallest ρ is right. A random walk has log √`far`.

    >>> [round(number, 2) for number in autoregression(0.7, 2, 16)]
    [0.68, 2.02]
    """
    rho = float(np.interp(ratio, np.log(_levels(order, far) / _levels(order, 1)), _GRID))
    return rho, autoregression_level(rho, order)


def autoregression_level(rho: float, order: int) -> float:
    """The level of an autoregression over the level of its differences of this order over one step."""
    return float(1 / np.interp(rho, _GRID, _levels(order, 1)))


def spectral_autoregression(values: Floats) -> Spectral:
    """The ρ of an autoregression whose spectrum lies beneath the spectrum of a signal, and its likely range.

    The spectrum of the noise, and c ω^−4 or c ω^−2 for a smooth or a broken signal, is fitted to the periodogram by Whittle's likelihood
    (1953). A frequency at which there is more than five times the model is a wave of the signal, and counts as five, so that waves do not
    raise ρ as they raise differences. values (n,) at equal steps.

    >>> noise, wave = np.random.default_rng(0).normal(size=1000), np.sin(np.arange(1000) / 5)
    >>> red = np.convolve(noise, 0.8 ** np.arange(40))[:1000]
    >>> [round(rho, 2) for rho in spectral_autoregression(red + 3 * wave)]
    [0.8, 0.72, 0.85]
    """
    frequencies, periodogram = _spectrum(values)
    losses = np.full(_RHOS.size, np.inf)
    for power in _POWERS:
        losses = np.minimum(losses, _fits(frequencies, periodogram, _red(frequencies, _RHOS), power)[0].min(axis=1))
    likely = _RHOS[losses < losses.min() + _LIKELY]
    return Spectral(float(_RHOS[losses.argmin()]), float(likely[0]), float(likely[-1]))


def possible_correlations(values: Floats) -> Floats:
    """The posterior probabilities of the `POSSIBLE` ρ of an autoregression (ρ,), for few values (n,) at equal steps.

    Fewer than 250 points do not show whether neighbours are correlated; an error stated for white noise is then too small. The
    likelihood is Whittle's, as in `spectral_autoregression`, averaged over the shares of a signal.

    >>> noise = np.random.default_rng(0).normal(size=150)
    >>> red = np.convolve(noise, 0.5 ** np.arange(40))[:150]
    >>> [round(float(possible_correlations(series) @ POSSIBLE), 1) for series in (red, noise + red)]
    [0.3, 0.1]
    """
    logs = -np.abs(POSSIBLE) / PRIOR
    frequencies, periodogram = _spectrum(values)
    if frequencies.size >= _LEAST_FREQUENCIES and np.median(periodogram) > 0:
        noises = _red(frequencies, POSSIBLE)
        losses = np.concatenate([_fits(frequencies, periodogram, noises, power, _FEW_SHARES)[0] for power in _POWERS], axis=1)
        logs = logs + np.log(np.exp(losses.min() - losses).mean(axis=1) + np.finfo(float).tiny)
    likely = np.exp(logs - logs.max())
    return likely / likely.sum()


def variance_factors(leverages: Floats, probabilities: Floats) -> Floats:
    """The variances of a curve of these leverages (n,) over its variances under white noise, for `POSSIBLE` ρ; 1 at least.

    Differences of neighbours show the level √(1 − 4ρ/3 + ρ²/3) of this noise, and its mean over a Gaussian's points varies more.

    >>> variance_factors(np.array([0.05, 0.5]), np.eye(POSSIBLE.size)[5]).round(1)
    array([3.6, 2.7])
    """
    grid, tables = _variance_tables()
    return np.maximum(np.interp(leverages, grid, probabilities @ tables), 1.0)


def level_factor(probabilities: Floats) -> float:
    """The level of noise over the level that differences show, in expectation over `POSSIBLE` ρ; 1 at least."""
    return max(float(np.sqrt(probabilities @ (1 / _visible_part(POSSIBLE)))), 1.0)


def _visible_part(rhos: Floats) -> Floats:
    """The part of an autoregression's variance that second differences show (ρ,)."""
    return 1 - 4 / 3 * rhos + rhos**2 / 3


@functools.cache
def _variance_tables() -> tuple[Floats, Floats]:
    """Leverages, ascending (m,), and their factors for each possible ρ (ρ, m)."""
    grid = np.geomspace(1e-3, 1.0, 60)
    # The sum of squared weights of a Gaussian is the leverage of a Gaussian √2 times as wide.
    factors = [covariance_factors(grid / 2**0.5, rho) if abs(rho) > 1e-9 else np.ones(grid.size) for rho in POSSIBLE]
    return grid, np.array(factors) / _visible_part(POSSIBLE)[:, None]


def fits_the_spectrum(values: Floats, rho: float) -> bool:
    """Whether no ten neighbouring frequencies clearly exceed this autoregression and a signal, as the frequencies of a quick signal do.

    >>> noise = np.random.default_rng(0).normal(size=300)
    >>> red, signal = np.convolve(noise, 0.5 ** np.arange(40))[:300], 3 * np.sin(np.arange(300) ** 2 / 400)
    >>> fits_the_spectrum(red, 0.5), fits_the_spectrum(noise + signal, 0.5)
    (True, False)
    """
    frequencies, periodogram = _spectrum(values)
    fits = [_fits(frequencies, periodogram, _red(frequencies, np.array([rho])), power) for power in _POWERS]
    ratios = min(((losses.min(), tuple(ratios[0, losses.argmin()])) for losses, ratios in fits))[1]
    means = np.convolve(ratios, np.ones(_BAND), "valid") / _BAND
    return bool(means.max(initial=0.0) < 1 + _TOO_MUCH / _BAND**0.5)


def hidden_correlation(values: Floats, rho: float) -> float:
    """The gain in log-likelihood if the noise is an autoregression plus white noise, instead of an autoregression with this ρ.

    Differences of neighbours hardly show an autoregression beneath white noise, or one of a higher order, and a curve follows it like a
    quick signal. Its spectrum is level at low frequencies, where the signals of `spectral_autoregression` rise. values (n,) at equal
    steps.

    >>> white, drive = np.random.default_rng(0).normal(size=(2, 1000))
    >>> red = np.convolve(drive, 0.8 ** np.arange(40))[:1000]
    >>> hidden_correlation(white, 0.0) < 1 < 5 < hidden_correlation(white + red, 0.0)
    True
    """
    frequencies, periodogram = _spectrum(values)
    parts = 1 + _HIDDEN_PARTS[:, None, None] * (_red(frequencies, _HIDDEN_RHOS) - 1)
    noises = np.concatenate([_red(frequencies, np.array([rho])), parts.reshape(-1, frequencies.size)])
    losses = np.min(
        [_fits(frequencies, periodogram, noises, power, _HIDDEN_SHARES)[0].min(axis=1) for power in _POWERS], axis=0
    )
    return float(losses[0] - losses[1:].min())


def _spectrum(values: Floats) -> tuple[Floats, Floats]:
    """Frequencies and the windowed periodogram of values (n,) without their line, of every second frequency (m,) each."""
    count = values.size
    window = np.hanning(count)
    time = np.linspace(-1, 1, count)
    periodogram = np.abs(np.fft.rfft(window * (values - np.polynomial.Polynomial.fit(time, values, 1)(time)))) ** 2
    # Neighbouring frequencies of a windowed series are dependent.
    chosen = np.arange(_TREND, periodogram.size - 1, max(2, periodogram.size // _FREQUENCIES))
    return 2 * np.pi * chosen / count, periodogram[chosen]


def _red(frequencies: Floats, rhos: Floats) -> Floats:
    """The spectra of autoregressions of variance 1 (ρ, m)."""
    rhos = rhos[:, None]
    return np.asarray((1 - rhos**2) / (1 + rhos**2 - 2 * rhos * np.cos(frequencies)))


def _fits(
    frequencies: Floats, periodogram: Floats, noises: Floats, power: int, shares: Floats = _SHARES
) -> tuple[Floats, Floats]:
    """The losses (noises, shares) of noises of these spectra (noises, m) with a signal c ω^−power, and periodogram/model."""
    signal = (2 * np.sin(frequencies / 2)) ** -power
    model = noises[:, None, :] + shares[:, None] * signal / np.median(signal)  # (noises, shares, m)
    ratios = periodogram / model
    level = np.median(ratios, axis=2, keepdims=True) / np.log(2)
    for _ in range(4):
        level *= np.minimum(ratios / level, _FAR_OUT).mean(axis=2, keepdims=True) / (1 - np.exp(-_FAR_OUT))
    terms = np.log(model) + np.log(level) + np.minimum(ratios / level, _FAR_OUT)
    return terms.sum(axis=2), ratios / level


def whitened(values: Floats, rho: float) -> Floats:
    """(x_i − ρ x_{i−1})/(1 − ρ) of values (n,) at equal steps: a constant stays as it is, and the noise is white.

    For negative ρ this is a mean of neighbours: it hardly changes a signal, and multiplies the noise's level by `white_level`. For
    positive ρ it would be a difference, which turns every jump into a spike.

    >>> whitened(np.array([1.0, 1.0, 1.0, 4.0]), -0.5)
    array([1., 1., 1., 3.])
    """
    before = np.concatenate([values[1:2], values[:-1]]) if values.size > 1 else values
    return (values - rho * before) / (1 - rho)


def white_level(rho: float) -> float:
    """The level of whitened noise over the noise's level: √(1 − ρ²)/(1 − ρ)."""
    return float(np.sqrt(1 - rho**2) / (1 - rho))


def coloring(rho: float) -> Floats:
    """The taps c_k = (1 − ρ) ρ^k that undo the whitening: x_i = Σ_k c_k x̃_{i−k}, where the first x̃ replaces all before it.

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
    """The level of differences of an order over `lag` steps, for each ρ of the grid and ε of level 1.

    Its square is Σ_ab c_a c_b ρ^(lag |a − b|), with the normalised binomials c.
    """
    binomials = np.array([(-1) ** k * comb(order, k) for k in range(order + 1)], dtype=np.float64)
    binomials /= np.sqrt(np.sum(binomials**2))
    distance = np.abs(np.subtract.outer(np.arange(order + 1), np.arange(order + 1)))
    return np.sqrt(np.einsum("a,b,gab->g", binomials, binomials, _GRID[:, None, None] ** (lag * distance)))


def covariance_factors(leverages: Floats, rho: float) -> Floats:
    """Σ_j W_ij ρ^|i − j| / W_ii for heads of these leverages, as if W_ij were a Gaussian of i − j with its peak at the leverage.

    With the noise's covariance σ²ρ^|i − j|, σ² Σ_j W_ij ρ^|i − j| replaces the σ² W_ii of white noise in the risk (Opsomer, Wang and
    Yang 2001, section 3). 1 for leverages above 1 or below 0, which no Gaussian has: the derivative of the weights makes these heads
    follow their point or turn away from it.

    >>> covariance_factors(np.array([1.0, 0.5, 0.01, -0.2]), 0.5).round(2)
    array([1.  , 1.48, 3.  , 1.  ])
    """
    widths = np.geomspace(0.05, 4000, 400)  # standard deviations of the Gaussian, in steps
    lags = np.arange(1, 2 + int(np.ceil(np.log(1e-4) / np.log(max(abs(rho), 1e-3)))))
    factors = 1 + 2 * (np.exp(-(lags**2) / (2 * widths[:, None] ** 2)) * rho**lags).sum(axis=1)
    reach = np.arange(1, 60)
    peaks = 1 / (1 + 2 * np.exp(-(reach**2) / (2 * np.minimum(widths, 20)[:, None] ** 2)).sum(axis=1))
    peaks = np.where(widths > 10, 1 / (widths * np.sqrt(2 * np.pi)), peaks)  # leverages, falling with the width
    inside = np.clip(leverages, peaks[-1], 1.0)
    return np.where((leverages > 1) | (leverages < 0), 1.0, np.interp(-inside, -peaks, factors))


def risk_variance_factor(rho: float) -> float:
    """The variance of a mean of squares of correlated noise over its variance for white noise: Σ_k ρ^(2|k|)."""
    return (1 + rho**2) / (1 - rho**2)
