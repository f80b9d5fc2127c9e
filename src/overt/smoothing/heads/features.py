"""Keys of several features: attention in more dimensions than time, a mean or a plane fitted with its weights."""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.blocks import CELLS
from overt.smoothing.heads.normalize import softmax

# FLAT: a direction in which the keys near a target vary by less than this part of the bandwidth gets no slope.
FLAT = 1e-3


class Sample(NamedTuple):
    """The points: features (n, d), values (n,), weights above 0 (n,)."""

    features: Floats
    values: Floats
    weights: Floats


class Fitted(NamedTuple):
    """For each target: y_i, the leverage ∂y_i/∂x_i if the target is point i of the sample, else NaN, and Σ_j l_ij²/w_j."""

    values: Floats
    leverages: Floats
    unit_variances: Floats


def attend_features(sample: Sample, bandwidth: float, degree: int, targets: Floats | None = None) -> Fitted:
    """Attend to points near in all features: W_ij ∝ w_j exp(−|z_i − z_j|²/2h²), y_i = Σ_j W_ij x_j or a plane through them.

    Degree 0 is the mean. Degree 1 is β_0 of the plane Σ_j W_ij (x_j − β_0 − β·(z_j − z_i))² → min, with a ridge on the slope for
    directions in which the keys hardly vary: y_i = x̄_i + (z_i − z̄_i)ᵀ(C_i + (0.001 h)² I)⁻¹c_i, with the means, the covariance C_i of
    z and c_i of z with x under the weights W_i. (Ruppert and Wand 1994, section 1, for the plane.)

    targets (m, d); None for the points of the sample. Time O(n·m·d²), memory O(n·d²).

    >>> z = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> plane = Sample(z, 1 + 2 * z[:, 0] - z[:, 1], np.ones(4))
    >>> attend_features(plane, 1.0, 1, np.array([[0.5, 0.0]])).values.round(4)
    array([2.])
    """
    points = sample.features if targets is None else targets
    fitted = Fitted(np.empty(len(points)), np.full(len(points), np.nan), np.empty(len(points)))
    length = max(1, CELLS // len(sample.values))
    for start in range(0, len(points), length):
        part = slice(start, start + length)
        rows = _rows(sample, bandwidth, degree, points[part])
        fitted.values[part] = rows @ sample.values
        fitted.unit_variances[part] = rows**2 @ (1 / sample.weights)
        if targets is None:
            fitted.leverages[part] = rows[np.arange(len(rows)), np.arange(len(points))[part]]
    return fitted


def choose_bandwidth(sample: Sample, degree: int) -> float:
    """The bandwidth of least leave-one-out error, Σ_i w_i ((x_i − y_i)/(1 − ∂y_i/∂x_i))², over a geometric grid.

    The grid is from a tenth of the points' root mean square distance from their mean to thirty times this distance, at which the
    weights are nearly equal and the plane is the plane of least squares.
    """
    center = np.average(sample.features, axis=0, weights=sample.weights)
    spread = float(np.sqrt(np.average((sample.features - center) ** 2, axis=0, weights=sample.weights).sum()))
    grid = (spread or 1.0) * np.geomspace(0.1, 30.0, 20)
    errors = [_leave_one_out_error(sample, attend_features(sample, bandwidth, degree)) for bandwidth in grid]
    # Of equal errors the last, the widest bandwidth: the simpler surface.
    return float(grid[len(errors) - 1 - int(np.argmin(errors[::-1]))])


def _leave_one_out_error(sample: Sample, fitted: Fitted) -> float:
    # A point of leverage 1 is not predicted by the others: its error is the distance from the mean.
    error = (sample.values - fitted.values) / np.maximum(1 - fitted.leverages, 1e-9)
    mean = np.average(sample.values, weights=sample.weights)
    interpolated = fitted.leverages > 1 - 1e-9
    return float(np.average(np.where(interpolated, sample.values - mean, error) ** 2, weights=sample.weights))


def noise_variance(sample: Sample, at_points: Fitted) -> float:
    """The variance of a value of weight 1: Σ_i w_i (x_i − y_i)²/(n − Σ_i ∂y_i/∂x_i)."""
    freedom = max(len(sample.values) - float(at_points.leverages.sum()), 1.0)
    return float(sample.weights @ (sample.values - at_points.values) ** 2) / freedom


def _rows(sample: Sample, bandwidth: float, degree: int, targets: Floats) -> Floats:
    """The derivatives l_ij of y_i by every point (m, n), so that y_i = Σ_j l_ij x_j."""
    weights = softmax(_scores(sample, bandwidth, targets))  # (m, n)
    if degree == 0:
        return weights
    n, d = sample.features.shape
    center = weights @ sample.features  # (m, d)
    products = (sample.features[:, :, None] * sample.features[:, None, :]).reshape(n, d * d)
    covariance = (weights @ products).reshape(-1, d, d) - center[:, :, None] * center[:, None, :]  # (m, d, d)
    covariance += (FLAT * bandwidth) ** 2 * np.eye(d)
    slope_weights = np.linalg.solve(covariance, (targets - center)[:, :, None])[:, :, 0]  # (m, d)
    # l_ij = W_ij (1 + (z_j − z̄_i)·slope_weights_i)
    weights *= 1 + slope_weights @ sample.features.T - (slope_weights * center).sum(axis=1, keepdims=True)
    return weights


def _scores(sample: Sample, bandwidth: float, targets: Floats) -> Floats:
    squares = -2.0 * (targets @ sample.features.T)  # (m, n)
    squares += (targets**2).sum(axis=1)[:, None]
    squares += (sample.features**2).sum(axis=1)
    squares *= -0.5 / bandwidth**2
    squares += np.log(sample.weights)
    return squares
