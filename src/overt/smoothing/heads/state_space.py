"""Curves with derivatives by state-space models: the m-th derivative is a Wiener process, whose intensity is one head's bandwidth.

The state is (f, f′, …) at a time; filtering forward (Kalman 1960) and smoothing backward (Bierman 1973) give its mean and variance at every
time from all values. With m = 2 the mean is the cubic smoothing spline, with m = 3 the quintic one (Wahba 1978). All heads of one order go
through the series together.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats

# DIFFUSE: the variance of an unknown state, over the variance of the values.
DIFFUSE = 1e2
# LEAST_LEFT: the least share of a value's noise in its residual; a value that the curve follows counts as of 1,000 times the level.
LEAST_LEFT = 1e-6


class States(NamedTuple):
    """The mean and the variance of every derivative, for each head and point (derivatives, heads, n)."""

    means: Floats
    variances: Floats

    def at(self, times: Floats, targets: Floats) -> "States":
        """The states at other times (m,), interpolated linearly between the states at ascending times (n,)."""
        after = np.clip(np.searchsorted(times, targets), 1, times.size - 1)
        share = np.clip(
            (targets - times[after - 1]) / np.maximum(times[after] - times[after - 1], np.finfo(float).tiny), 0.0, 1.0
        )
        return States(*((1 - share) * column[..., after - 1] + share * column[..., after] for column in self))

    def log_densities(self, values: Floats, variances: Floats) -> Floats:
        """The log density (heads, n) of each value (n,), predicted from all others, for noise of these variances (n,)."""
        return log_densities_without(values - self.means[0], variances, self.variances[0] / variances)


def log_densities_without(residuals: Floats, variances: Floats, leverages: Floats) -> Floats:
    """The log density (…, n) of each value predicted from all others, by its residual from a linear smoother and its leverage (…, n)."""
    left = np.maximum(1 - leverages, LEAST_LEFT)  # the share of a value's noise in its residual
    spread = variances / left
    return -0.5 * (np.log(2 * np.pi * spread) + (residuals / left) ** 2 / spread)


def smoothed_states(times: Floats, values: Floats, variances: Floats, bandwidths: Floats, order: int) -> States:
    """The states of models of one order at ascending times (n,), from values (n,) whose noise has these variances (n,).

    A head of bandwidth h has the intensity q = σ²/h^(2m−1) for each unit of time, with which its spline averages over about h of time
    under the mean noise. A bandwidth of more than some hundred steps loses its digits.

    >>> t = np.arange(50.0)
    >>> states = smoothed_states(t, 0.5 * t, np.ones(50), np.array([10.0]), 2)
    >>> states.means[1, 0, [0, 25]].round(3)
    array([0.5, 0.5])
    """
    noise = float(np.mean(variances))
    # With time in units of the bandwidth, a head's intensity is the noise's variance, and the numbers of its state are of one size.
    steps = np.diff(times, prepend=times[0])[:, None] / bandwidths
    means, covariances = _backward(steps, _filtered(steps, values, variances, noise, order))
    units = (bandwidths ** np.arange(order)[:, None])[..., None]  # (derivatives, heads, 1)
    diagonal = np.maximum(np.diagonal(covariances, axis1=2, axis2=3), 0.0)
    return States(means.transpose(2, 1, 0) / units, diagonal.transpose(2, 1, 0) / units**2)


def _transitions(steps: Floats, noise: float, order: int) -> tuple[Floats, Floats]:
    """The transition matrices of the states over steps (heads,), and the covariances added for the intensity `noise`; (heads, m, m)."""
    factorials = np.cumprod([1.0, *range(1, 2 * order)])
    row, column = np.indices((order, order))
    power, left, right = np.maximum(column - row, 0), order - 1 - row, order - 1 - column
    moved = np.where(column >= row, steps[:, None, None] ** power / factorials[power], 0.0)
    together = left + right + 1
    return moved, noise * steps[:, None, None] ** together / (together * factorials[left] * factorials[right])


class _Passed(NamedTuple):
    """The results of filtering forward at each point: state and covariance after its value, gain, residual and residual variance."""

    means: Floats  # (n, heads, m)
    covariances: Floats  # (n, heads, m, m)
    gains: Floats  # (n, heads, m)
    residuals: Floats  # (n, heads)
    totals: Floats  # (n, heads)


def _filtered(steps: Floats, values: Floats, variances: Floats, noise: float, order: int) -> _Passed:
    shape = *steps.shape, order
    passed = _Passed(np.zeros(shape), np.zeros((*shape, order)), np.zeros(shape), np.zeros(steps.shape), np.zeros(steps.shape))
    mean, scale = np.zeros(shape[1:]), DIFFUSE * max(float(np.var(values)), noise)
    mean[:, 0] = values[0]
    covariance = np.broadcast_to(np.diag(np.full(order, scale)), (shape[1], order, order)).copy()
    for point, value in enumerate(values.tolist()):
        if point:
            moved, added = _transitions(steps[point], noise, order)
            mean = (moved @ mean[:, :, None])[:, :, 0]
            covariance = moved @ covariance @ moved.transpose(0, 2, 1) + added
        residual, total = value - mean[:, 0], covariance[:, 0, 0] + variances[point]
        gain = covariance[:, :, 0] / total[:, None]
        mean = mean + gain * residual[:, None]
        covariance = covariance - total[:, None, None] * gain[:, :, None] * gain[:, None, :]
        for column, part in zip(passed, (mean, covariance, gain, residual, total), strict=True):
            column[point] = part
    return passed


def _backward(steps: Floats, passed: _Passed) -> tuple[Floats, Floats]:
    """Means (n, heads, m) and covariances (n, heads, m, m) from all values, without an inverse (Bierman 1973, modified Bryson–Frazier)."""
    means, covariances = passed.means.copy(), passed.covariances.copy()
    vector, matrix = np.zeros(means.shape[1:]), np.zeros(covariances.shape[1:])
    for point in range(len(steps) - 1, -1, -1):
        before = passed.covariances[point]
        means[point] -= (before @ vector[:, :, None])[:, :, 0]
        covariances[point] -= before @ matrix @ before
        gain, total = passed.gains[point], passed.totals[point]
        # The information of the value on the state before it: C = I − K H.
        vector, matrix = vector.copy(), matrix.copy()
        pulled = (matrix @ gain[:, :, None])[:, :, 0]
        vector[:, 0] -= (gain * vector).sum(axis=1) + passed.residuals[point] / total
        matrix[:, 0, 0] += (gain * pulled).sum(axis=1) + 1 / total
        matrix[:, 0, :] -= pulled
        matrix[:, :, 0] -= pulled
        moved, _ = _transitions(steps[point], 0.0, means.shape[2])
        vector = (moved.transpose(0, 2, 1) @ vector[:, :, None])[:, :, 0]
        matrix = moved.transpose(0, 2, 1) @ matrix @ moved
    return means, covariances
