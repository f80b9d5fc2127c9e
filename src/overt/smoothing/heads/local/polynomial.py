"""A local polynomial from the sums that determine it, of a lower degree if the sums do not determine it."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overt.smoothing.data.series import Floats, Indices

Side = Literal["both", "past", "future"]
SIDES = ("both", "past", "future")

# SINGULAR: the least ratio of the determinant to the product of the diagonal; a smaller one loses three digits or more.
SINGULAR = 1e-3
# NEAREST: keys next to a target, half of them on either side, to which `polynomial_rows` fits.
NEAREST = 24
# ROUNDING: tolerance for variances that equal their bound exactly.
ROUNDING = 1 + 1e-9


class Local(NamedTuple):
    """For each target: the value y_i, the leverage ∂y_i/∂x_i of the target's own point, and Σ_j l_ij² / w_j."""

    values: Floats
    leverages: Floats
    unit_variances: Floats


class PowerSums(NamedTuple):
    """Sums over the keys of each target, with k_j = exp(−u_j²/2) and u_j = (t_j − t_i)/h; a row for each power p of u_j.

    All k of one target may share a factor: no output depends on it.
    """

    weights: Floats  # Σ_j w_j k_j u_j^p, (2·degree + 1, m)
    values: Floats  # Σ_j w_j k_j u_j^p x_j, (degree + 1, m)
    squares: Floats  # Σ_j w_j k_j² u_j^p, (2·degree + 1, m)
    kernel: Floats  # Σ_j k_j, (m,)


class PolynomialFit(NamedTuple):
    """Rows l of the fits, for each target: l_j = w_j k_j Σ_p c_p u_j^p; NaN without a key."""

    coefficients: Floats  # c_p, (degree + 1, m)
    unit_variances: Floats  # Σ_j l_j² / w_j, (m,)

    def results(self, sums: PowerSums) -> Floats:
        """β_0 = Σ_j l_j x_j, c_0, and the unit variances, (3, m)."""
        return np.stack([(self.coefficients * sums.values).sum(axis=0), self.coefficients[0], self.unit_variances])


def fit(sums: PowerSums) -> PolynomialFit:
    """The polynomials of the largest degree that is determined and has no large variance, at each target.

    With S_pq = Σ_j w_j k_j u_j^(p+q), c is the first column of S⁻¹. Determined: det S > 0.001 · Π_p S_pp. No large variance:
    Σ_j l_j²/w_j is at most Σ_j k_j / Σ_j w_j k_j, the mean of 1/w_j under the weights themselves.

    >>> three = PowerSums(np.array([[3.0], [0.0], [2.0]]), np.array([[6.0], [2.0]]), np.array([[3.0], [0.0], [2.0]]), np.array([3.0]))
    >>> fit(three).results(three).round(3).tolist()
    [[2.0], [0.333], [0.333]]
    """
    degrees, size = len(sums.values), sums.kernel.size
    fitted = PolynomialFit(np.full((degrees, size), np.nan), np.full(size, np.nan))
    unfitted = np.ones(size, bool)
    for degree in reversed(range(degrees)):
        determinant, factors = cofactors(sums.weights, degree)
        diagonal = sums.weights[0 : 2 * degree + 1 : 2]
        with np.errstate(all="ignore"):  # undetermined fits are not accepted
            c = factors / determinant  # (degree + 1, m)
            pairs = [(p, q) for p in range(degree + 1) for q in range(degree + 1)]
            variances = np.sum([c[p] * c[q] * sums.squares[p + q] for p, q in pairs], axis=0)
            accepted = unfitted & (diagonal > 0).all(axis=0) & (determinant > SINGULAR * diagonal.prod(axis=0))
            accepted &= (variances * sums.weights[0] <= ROUNDING * sums.kernel) if degree else True
        fitted.coefficients[: degree + 1, accepted], fitted.coefficients[degree + 1 :, accepted] = c[:, accepted], 0.0
        fitted.unit_variances[accepted] = variances[accepted]
        unfitted &= ~accepted
    return fitted


def cofactors(weights: Floats, degree: int) -> tuple[Floats, Floats]:
    """The determinant (m,) of the matrices S_pq = weights[p + q], and the cofactors of their first row (degree + 1, m).

    >>> cofactors(np.array([[2.0], [1.0], [3.0]]), 1)
    (array([5.]), array([[ 3.],
           [-1.]]))
    """
    s = weights
    if degree == 0:
        return s[0], np.ones((1, s.shape[1]))
    if degree == 1:
        first = np.stack([s[2], -s[1]])
    else:
        first = np.stack([s[2] * s[4] - s[3] ** 2, s[2] * s[3] - s[1] * s[4], s[1] * s[3] - s[2] ** 2])
    return (first * s[: degree + 1]).sum(axis=0), first


def polynomial_rows(
    times: Floats, weights: Floats | None, targets: Floats, bandwidths: ArrayLike, degree: int
) -> tuple[Indices, Floats]:
    """The nearest keys of each target (m, keys), and their weights (bandwidths, m, keys) in polynomials fitted by weighted least squares.

    The weights of the fit are Gaussian, relative to the weight of the nearest key, so that they do not vanish inside a gap. Beyond the
    first and the last key only the nearest key counts.

    >>> times = np.array([0.0, 1, 2, 3, 7, 8, 9, 10])
    >>> near, weights = polynomial_rows(times, None, np.array([5.0]), [2.0, 9.0], 3)
    >>> (weights * times[near] ** 3).sum(axis=-1).round(6)
    array([[125.],
           [125.]])
    """
    near = np.searchsorted(times, targets)[:, None] + np.arange(-NEAREST // 2, NEAREST // 2)
    there = (near >= 0) & (near < times.size)
    near = np.clip(near, 0, times.size - 1)
    away = np.where(there, times[near] - targets[:, None], np.inf) / np.asarray(bandwidths, np.float64)[:, None, None]
    kernel = np.exp(-0.5 * (away**2 - (away**2).min(axis=-1, keepdims=True)))
    kernel = kernel if weights is None else kernel * weights[near]
    away = np.where(there, away, 0.0)
    sums, terms = np.empty((2 * degree + 1, *kernel.shape[:2])), kernel
    for power in range(2 * degree + 1):
        sums[power] = terms.sum(axis=-1)
        terms = terms * away
    orders = np.arange(degree + 1)
    moments = np.moveaxis(sums[orders[:, None] + orders], (0, 1), (-2, -1))
    # A small ridge, so that too few keys are no error.
    moments = moments + 1e-13 * np.trace(moments, axis1=-2, axis2=-1)[..., None, None] * np.eye(degree + 1)
    coefficients = np.linalg.solve(moments, np.eye(degree + 1)[:, :1])[..., 0]
    rows = np.zeros_like(kernel)
    for power in reversed(range(degree + 1)):
        rows = rows * away + coefficients[..., power, None]
    rows *= kernel
    outside = (targets < times[0]) | (targets > times[-1])
    nearest = np.abs(np.where(there, away[0], np.inf)).argmin(axis=1)
    rows[:, outside] = np.eye(NEAREST)[nearest[outside]]
    return near, rows
