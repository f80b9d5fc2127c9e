"""Missing values at equal steps, filled by their expectation under an autoregression, from the values on both sides within its order."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.operators.base import lines

# ORDERS: the orders that are tried; PER_COEFFICIENT: known values needed for every coefficient.
ORDERS, PER_COEFFICIENT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96), 3
# FITTED: coefficients are fitted to at most this many values, in the middle of the series.
FITTED = 2**13
# LEAST_SHARE: the share of the grid's positions that must have a time for an autoregression.
LEAST_SHARE = 1 / 3
# UNEVEN: how far, in parts of the mean step, steps that all count as one step may be from it (months have 28 to 31 days).
# WHOLE: how far, in steps, times on a grid with gaps may be from whole numbers of steps.
UNEVEN, WHOLE = 0.25, 1e-6
# PRECISION: conjugate gradients end if the residual has fallen by this factor, or after MOST_STEPS steps.
PRECISION, MOST_STEPS = 1e-8, 200
# DENSE: the most equations solved by elimination; more by conjugate gradients, which for 250 take two thirds of the time.
DENSE = 64


class EqualSteps(NamedTuple):
    """Times, ascending, and the position of each on a grid of equal steps."""

    times: Floats
    positions: Indices

    def at(self, times: Floats) -> Indices:
        """The positions of some of the times."""
        return self.positions[np.searchsorted(self.times, times)]


def equal_steps(times: Floats) -> EqualSteps | None:
    """The positions of ascending times, in steps; None if they are not at equal steps.

    >>> equal_steps(np.array([0.0, 1.0, 4.0, 5.0])).positions
    array([0, 1, 4, 5])
    >>> equal_steps(np.array([0.0, 0.97, 1.87, 2.86])).positions  # months
    array([0, 1, 2, 3])
    >>> equal_steps(np.array([0.0, 0.4, 1.9]))
    """
    steps = np.diff(times)
    if times.size < 2 or not steps.min() > 0:
        return None
    if np.abs(steps / steps.mean() - 1).max() <= UNEVEN:
        return EqualSteps(times, np.arange(times.size))
    whole = np.rint(times - times[0])
    if np.abs(times - times[0] - whole).max() <= WHOLE and times.size >= LEAST_SHARE * whole[-1]:
        return EqualSteps(times, whole.astype(np.intp))
    return None


class Gappy(NamedTuple):
    """Values at equal steps (n,), with missing values interpolated linearly; ascending positions to fill (m,); which values are known.

    Positions that are neither known nor to fill are in a long gap, whose straight line only serves to fill other gaps.
    """

    values: Floats
    missing: Indices
    known: NDArray[np.bool_]

    @staticmethod
    def from_positions(positions: Indices, values: Floats, longest: float) -> "Gappy":
        """Build from the known values and their positions, ascending from 0; gaps longer than `longest` are not to be filled."""
        grid = np.arange(positions[-1] + 1)
        known = np.zeros(grid.size, bool)
        known[positions] = True
        between = np.searchsorted(positions, grid)
        lengths = positions[between] - positions[np.maximum(between - 1, 0)] - 1
        return Gappy(np.interp(grid, positions, values), np.flatnonzero(~known & (lengths <= longest)), known)

    def fit(self) -> list["Filled"]:
        """Autoregressions by Burg's method, of all orders with enough values; each is fitted to values that the previous one filled."""
        start = max(0, (self.values.size - FITTED) // 2)
        part = slice(start, start + FITTED)
        inner = np.flatnonzero((self.missing >= part.start) & (self.missing < part.stop))
        middle = Gappy(self.values[part], self.missing[inner] - start, self.known[part])
        mean = float(self.values[self.known].mean())
        values = np.where(middle.known, middle.values, np.nan)
        values[middle.missing] = middle.values[middle.missing]
        fitted: list[Filled] = []
        for order in ORDERS:
            if order * PER_COEFFICIENT > middle.known.sum():
                break
            model = Autoregression(mean, _burg(values - mean, order))
            values[middle.missing] = middle.filled(model)
            filling = self.filled(model) if middle.values.size < self.values.size else values[middle.missing]
            fitted.append(Filled(model, filling))
        return fitted

    def filled(self, model: "Autoregression") -> Floats:
        """The missing values (m,) with the least mean square error of prediction, forward and backward in time.

        This is their expectation under normal noise (Janssen, Veldhuis and Vries 1986, section II).
        """
        if not self.missing.size:
            return np.zeros(0)
        near, missing = self._near(model)
        start = self.values[near] - model.mean
        wanted = -_errors_of_errors(model.coefficients, start)[missing]
        return start[missing] + model.mean + _solved(model.coefficients, near.size, missing, wanted)

    def whole(self, filling: Floats) -> Floats:
        """All values (n,), with the missing values (m,) filled."""
        values = self.values.copy()
        values[self.missing] = filling
        return values

    def row(self, model: "Autoregression", position: int) -> Floats:
        """The weights of the known values in the missing value at a position; the model's mean is a mean of the known values, too."""
        near, missing = self._near(model)
        unit = (self.missing == position).astype(np.float64)
        column = np.zeros(near.size)
        column[missing] = _solved(model.coefficients, near.size, missing, unit)
        weights = np.zeros(self.values.size)
        weights[near] = -_errors_of_errors(model.coefficients, column)
        weights[self.missing] = 0.0
        known_weights = lines(np.flatnonzero(self.known).astype(np.float64), np.arange(float(weights.size))).pull(weights)
        return known_weights + (1 - known_weights.sum()) / known_weights.size

    def _near(self, model: "Autoregression") -> tuple[Indices, Indices]:
        """The positions that missing values depend on directly, and the indices of the missing positions among them."""
        order = model.coefficients.size - 1
        reach = np.zeros(self.values.size + 1, np.intp)
        np.add.at(reach, np.maximum(self.missing - order, 0), 1)
        np.add.at(reach, np.minimum(self.missing + order + 1, self.values.size), -1)
        near = np.flatnonzero(np.cumsum(reach[:-1]))
        return near, np.searchsorted(near, self.missing)


class Autoregression(NamedTuple):
    """Σ_k a_k (x_{t−k} − mean) is white noise; a_0 = 1."""

    mean: float
    coefficients: Floats  # (order + 1,)


class Filled(NamedTuple):
    """An autoregression, and the missing values (m,) filled by it."""

    model: Autoregression
    values: Floats


def _burg(values: Floats, order: int) -> Floats:
    """The coefficients of least error of prediction, forward and backward, order by order (Burg 1975); errors with NaN do not count.

    >>> draw, wave = np.random.default_rng(0), np.sin(np.arange(400) * 0.3)
    >>> _burg(wave + 1e-6 * draw.normal(size=400), 2).round(2)  # 1 − 2 cos 0.3 z + z²
    array([ 1.  , -1.91,  1.  ])
    """
    coefficients = np.ones(1)
    forward, backward = values[1:], values[:-1]
    whole = np.isfinite(values).all()
    for _ in range(order):
        there = slice(None) if whole else np.isfinite(forward + backward)
        ahead, behind = forward[there], backward[there]
        power = float(ahead @ ahead + behind @ behind)
        reflection = -2 * float(ahead @ behind) / power if power > 0 else 0.0
        longer = np.append(coefficients, 0.0)
        coefficients = longer + reflection * longer[::-1]
        forward, backward = (forward + reflection * backward)[1:], (backward + reflection * forward)[:-1]
    return coefficients


def _errors_of_errors(coefficients: Floats, values: Floats) -> Floats:
    """Half the gradient of the squared errors of prediction, forward and backward, by the values (n,).

    Away from the ends both directions have the same gradient, a convolution with the coefficients' autocorrelation.
    """
    order = coefficients.size - 1
    if values.size <= 6 * order:
        return _near_ends(coefficients, values)
    gradient = 2 * np.convolve(values, np.convolve(coefficients, coefficients[::-1]), "same")
    gradient[:order] = _near_ends(coefficients, values[: 3 * order])[:order]
    gradient[-order:] = _near_ends(coefficients, values[-3 * order :])[-order:]
    return gradient


def _near_ends(coefficients: Floats, values: Floats) -> Floats:
    """The gradient of `_errors_of_errors` from the errors themselves, which are fewer near the ends."""
    reversed_ = coefficients[::-1]
    forward, backward = np.convolve(values, coefficients, "valid"), np.convolve(values, reversed_, "valid")
    return np.convolve(forward, reversed_) + np.convolve(backward, coefficients)


def _solved(coefficients: Floats, count: int, missing: Indices, wanted: Floats) -> Floats:
    """The values at missing positions (m,) whose gradient is `wanted` (m,): few by elimination, many by conjugate gradients."""
    if missing.size <= DENSE:
        solution = _eliminated(coefficients, count, missing, wanted)
        if solution is not None:
            return solution
    solution, residual = np.zeros(missing.size), wanted
    direction, grid = residual, np.zeros(count)
    square = float(residual @ residual)
    enough = PRECISION**2 * square
    for _ in range(MOST_STEPS):
        if square <= enough:
            break
        grid[missing] = direction
        image = _errors_of_errors(coefficients, grid)[missing]
        curvature = float(direction @ image)
        if not curvature > 0:  # for a pure wave, by rounding
            break
        step = square / curvature
        solution, residual = solution + step * direction, residual - step * image
        square, before = float(residual @ residual), square
        direction = residual + square / before * direction
    return solution


def _eliminated(coefficients: Floats, count: int, missing: Indices, wanted: Floats) -> Floats | None:
    """The solution by the matrix of the squared errors; None if it is singular, for example for a pure wave."""
    order, apart = coefficients.size - 1, np.abs(missing[:, None] - missing)
    products = np.correlate(coefficients, coefficients, "full")[order:]
    matrix = 2 * np.where(apart <= order, products[np.minimum(apart, order)], 0.0)
    # Errors that would reach beyond the ends do not count.
    lags = np.concatenate([np.arange(order), np.arange(count, count + order)])[:, None] - missing
    inside = (lags >= 0) & (lags <= order)
    for one in (coefficients, coefficients[::-1]):
        beyond = np.where(inside, one[np.clip(lags, 0, order)], 0.0)
        matrix -= beyond.T @ beyond
    try:
        solution: Floats = np.asarray(np.linalg.solve(matrix, wanted), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    return solution if np.abs(matrix @ solution - wanted).max() <= PRECISION * np.abs(wanted).max() else None
