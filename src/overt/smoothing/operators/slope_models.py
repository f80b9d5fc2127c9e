"""Models of a derivative: Gaussian processes with a squared exponential covariance, next to the splines of `heads.state_space`.

A spline follows a curve with few derivatives. A curve with all derivatives, such as a wave or a peak, has a Gaussian process prior with
the covariance a² exp(−(t − t′)²/2l²). In an interval longer than the series the process is a sum of sines with normal coefficients, whose
variances are the spectral density at their frequencies (Solin and Särkkä 2020), so that regression on these sines and a line is the
posterior mean. As attention, the score of two points is the product of their sines, weighted by the precision of each sine.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.state_space import States, log_densities_without

# LENGTHS: length scales l in spans of the series, from LEAST_STEPS steps on; AMPLITUDES: a in standard deviations of the values.
LENGTHS, LEAST_STEPS, AMPLITUDES = 2.0 ** np.arange(-6, 2.1, 0.5), 1.5, (0.3, 1.0, 3.0, 10.0)
# Half the interval is BOUNDARY half spans and WIDER length scales; SINES sines for each length scale in it, and MORE_SINES, MOST_SINES at
# most (Riutort-Mayol et al. 2023, section 4.2).
BOUNDARY, WIDER, SINES, MORE_SINES, MOST_SINES = 1.25, 1.6, 1.75, 12, 250
# OF_THE_LINE: prior variances of the line's coefficients, over the values' variance. NEGLIGIBLE: the least used share of the largest prior.
OF_THE_LINE, NEGLIGIBLE = (100.0, 300.0), 1e-14


class Models(NamedTuple):
    """Models of a derivative at each point."""

    log_densities: Floats  # (models, n) of each value, predicted from all others
    freedom: Floats  # (models, 1) mean degrees of freedom of a value
    means: Floats  # (models, n) of the derivative
    variances: Floats  # (models, n)

    @classmethod
    def joined(cls, several: Sequence["Models"]) -> "Models":
        """All models of several."""
        return cls(*(np.concatenate(column) for column in zip(*several, strict=True)))

    @classmethod
    def from_states(cls, states: States, values: Floats, variances: Floats, order: int) -> "Models":
        """The models of splines at the times of values (n,) with noise of these variances (n,)."""
        freedom = (states.variances[0] / variances).mean(axis=1, keepdims=True)
        return cls(states.log_densities(values, variances), freedom, states.means[order], states.variances[order])


def squared_exponentials(times: Floats, values: Floats, variances: Floats, order: int) -> Models | None:
    """The models of all length scales and amplitudes, for values (n,) at ascending times (n,) with noise of these variances (n,).

    `order` is 1 for slopes and 2 for curvatures. None for fewer than three times.

    >>> t = np.arange(100.0)
    >>> models = squared_exponentials(t, np.sin(t / 8), np.full(100, 0.01), 1)
    >>> best = models.log_densities.sum(axis=1).argmax()
    >>> bool(np.abs(models.means[best] - np.cos(t / 8) / 8)[5:95].max() < 0.005)
    True
    """
    if times.size < 3:
        return None
    unit = max(float(np.var(values)), float(np.mean(variances)))
    models = [
        _regressed(columns, slopes, priors * unit, values, variances)
        for columns, slopes, densities in _sines(times, order)
        for priors in (np.concatenate([OF_THE_LINE, amplitude**2 * densities]) for amplitude in AMPLITUDES)
    ]
    return Models(*(np.stack(column) for column in zip(*models, strict=True)))


def _sines(times: Floats, order: int) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield for each length scale a line and sines (n, 2 + m), their derivatives (n, 2 + m), and the sines' variances (m,)."""
    half, middle = (times[-1] - times[0]) / 2, (times[-1] + times[0]) / 2
    line = np.stack([np.ones(times.size), (times - middle) / half], axis=1)
    line_slopes = np.zeros(line.shape)
    line_slopes[:, 1] = 1 / half if order == 1 else 0.0
    for length in 2 * half * LENGTHS[2 * half * LENGTHS >= min(LEAST_STEPS * 2 * half / times.size, 2 * half)]:
        boundary = BOUNDARY * half + WIDER * length
        count = min(int(SINES * boundary / length) + MORE_SINES, MOST_SINES, times.size)
        frequencies = np.pi / (2 * boundary) * np.arange(1, count + 1)
        phases = np.outer(times - middle + boundary, frequencies)
        slopes = frequencies * np.cos(phases) if order == 1 else -(frequencies**2) * np.sin(phases)
        columns = (np.concatenate(pair, axis=1) for pair in ((line, np.sin(phases)), (line_slopes, slopes)))
        densities = np.sqrt(2 * np.pi) * length / boundary * np.exp(-0.5 * (frequencies * length) ** 2)
        yield (*columns, densities)  # type: ignore[misc]


def _regressed(columns: Floats, slopes: Floats, priors: Floats, values: Floats, variances: Floats) -> Models:
    """One model, by regression on columns (n, k) with coefficients of these prior variances (k,)."""
    used = priors > NEGLIGIBLE * priors.max()
    roots = np.sqrt(priors[used])
    white = columns[:, used] * roots / np.sqrt(variances)[:, None]
    eigenvalues, vectors = np.linalg.eigh(white.T @ white)
    white, slopes = white @ vectors, (slopes[:, used] * roots) @ vectors
    shares = 1 / (1 + np.maximum(eigenvalues, 0.0))  # posterior over prior variance
    leverages = white**2 @ shares
    coefficients = shares * (white.T @ (values / np.sqrt(variances)))
    residuals = values - np.sqrt(variances) * (white @ coefficients)
    log_densities = log_densities_without(residuals, variances, leverages)
    return Models(log_densities, leverages.mean(keepdims=True), slopes @ coefficients, slopes**2 @ shares)
