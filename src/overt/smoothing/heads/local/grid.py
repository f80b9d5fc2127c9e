"""Local polynomials on even steps: a convolution with one row of weights, with other rows at the ends and next to missing values."""

import functools

import numpy as np
from numpy.typing import NDArray

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.convolution import convolve
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# PAIRS: most pairs of an edge's rows and keys that are summed one by one.
PAIRS = 3e6
# WIDE: keys in a bandwidth from which convolutions are faster than sums key by key; over both sides boxes of time are even faster.
WIDE = 16.0
# FEW: if Σ_j k_j is smaller, the nearest key is far away: the sums have lost digits, and are computed key by key.
FEW = 1.0
# SHARE: the most points, in parts of all, that are computed key by key next to missing values while the others are convolutions.
SHARE = 0.5


def attend_even_grid(values: Floats, scale: float, degree: int, window: float, side: Side) -> Floats:
    """Values, c_0 and unit variances (3, n) of the fits of degree 0 to 2 at all points.

    Weights are exp(−(j − i)²/2·scale²) over |j − i| ≤ window, on one side or both.

    >>> attend_even_grid(np.array([0.0, 1.0, 4.0, 9.0]), 1.0, 2, np.inf, "both")[0].round(9) + 0.0
    array([0., 1., 4., 9.])
    """
    limits = _limits(side, float(np.floor(window * (1 + 1e-9))))
    before, after = (int(min(end, np.ceil(NEGLIGIBLE * scale), values.size)) for end in limits)
    # Around their own mean, values keep the digits that a large offset would take.
    center = values.mean()
    centered, outputs, edges = values - center, np.empty((3, values.size)), [slice(0, values.size)]
    if before + after < values.size:
        coefficients, outputs[2] = _whole_row(scale, degree, before, after)
        outputs[0], outputs[1] = convolve(centered, lambda u: _kernel(u, coefficients), scale, *limits), coefficients[0]
        edges = [slice(0, before), slice(values.size - after, values.size)]
    for edge in edges:
        if edge.start < edge.stop:
            outputs[:, edge] = _edge(centered, edge, scale, degree, limits, (before, after))
    outputs[0] += center
    return outputs


def _limits(side: Side, window: float) -> tuple[float, float]:
    """How far a row reaches before its point, and after it."""
    return (0.0 if side == "future" else window), (0.0 if side == "past" else window)


def _kernel(u: Floats, coefficients: tuple[float, ...]) -> Floats:
    """exp(−u²/2) Σ_p c_p u^p."""
    return np.exp(-u * u / 2) * functools.reduce(lambda total, c: total * u + c, reversed(coefficients))


@functools.lru_cache(maxsize=512)
def _whole_row(scale: float, degree: int, before: int, after: int) -> tuple[tuple[float, ...], float]:
    """Coefficients and unit variance of a row that does not reach the ends of the series."""
    fitted = fit(_end_sums(np.array([before]), before + after + 1, scale, degree, (before, after)))
    return tuple(fitted.coefficients[:, 0].tolist()), float(fitted.unit_variances[0])


def _end_sums(rows: Indices, points: int, scale: float, degree: int, reach: tuple[int, int]) -> PowerSums:
    """The sums of rows with this reach, cut off at the ends of the series, without the sums of the values."""
    weights = np.repeat(np.eye(2 * degree + 1)[:, :1], rows.size, axis=1)  # k = 1 and u = 0 at the point itself
    squares = weights.copy()
    for sign, longest, steps in (
        (-1, reach[0], np.minimum(rows, reach[0])),
        (1, reach[1], np.minimum(points - 1 - rows, reach[1])),
    ):
        u = sign * np.arange(1.0, longest + 1) / scale
        terms = np.exp(-u * u / 2) * u ** np.arange(2 * degree + 1)[:, None]
        for sums, column in ((weights, terms), (squares, terms * np.exp(-u * u / 2))):
            sums += np.pad(np.cumsum(column, axis=1), ((0, 0), (1, 0)))[:, steps]
    return PowerSums(weights, np.zeros((degree + 1, rows.size)), squares, weights[0])


def _edge(
    values: Floats, rows: slice, scale: float, degree: int, limits: tuple[float, float], reach: tuple[int, int]
) -> Floats:
    """The outputs of rows that are cut off at an end of the series (3, rows)."""
    near = slice(max(rows.start - reach[0], 0), min(rows.stop + reach[1], values.size))
    here = slice(rows.start - near.start, rows.stop - near.start)
    # Without a window, boxes take O(rows). With one all pairs are summed; for many rows convolutions are faster.
    open_ended = np.isinf(min(limits))
    if native.available() and (open_ended or (rows.stop - rows.start) * (near.stop - near.start) <= PAIRS):
        positions = np.arange(near.start, near.stop, dtype=np.float64)
        side: Side = "both" if limits[0] == limits[1] else "past" if limits[0] else "future"
        return attend_compiled(*(positions, values[near], None, positions[here], scale, degree), window=max(limits), side=side)
    sums = _end_sums(np.arange(rows.start, rows.stop), values.size, scale, degree, reach)
    for p in range(degree + 1):
        power = (0.0,) * p + (1.0,)
        sums.values[p] = convolve(values[near], lambda u, power=power: _kernel(u, power), scale, *limits)[here]
    return fit(sums).results(sums)


def attend_grid_with_gaps(values: Floats, present: NDArray[np.bool_], scale: float, degree: int, side: Side) -> Floats | None:
    """Values, c_0 and unit variances (3, n) of the fits at all points if few values are missing; None if many are missing.

    Far from missing values the rows are those of a complete grid; near them sums are key by key.

    >>> steps, present = np.arange(200.0), np.arange(200) != 100
    >>> attend_grid_with_gaps(np.where(present, steps, 0.0), present, 1.0, 1, "both")[0][98:103].round(9).tolist()
    [98.0, 99.0, 100.0, 101.0, 102.0]
    """
    if not native.available():
        return None
    reach, steps = int(np.ceil(NEGLIGIBLE * scale)), np.arange(present.size)
    missing = np.concatenate([[0], np.cumsum(~present)])
    first, last = (steps if side == "future" else steps - reach), (steps if side == "past" else steps + reach)
    near = missing[np.minimum(last + 1, present.size)] > missing[np.maximum(first, 0)]
    if near.mean() > SHARE:
        return None
    columns = attend_even_grid(values, scale, degree, np.inf, side)
    center = values[present].mean()
    keys, targets = (steps[present].astype(np.float64), values[present] - center, None), steps[near].astype(np.float64)
    columns[:, near] = attend_compiled(*keys, targets, scale, degree, side=side)
    columns[0, near] += center
    return columns


def favors_convolutions(keys_in_bandwidth: float, degree: int, side: Side) -> bool:
    """Whether convolutions are faster than sums key by key and boxes of time."""
    return native.available() and side != "both" and degree <= 1 and keys_in_bandwidth >= WIDE


def attend_weighted_grid(values: Floats, weights: Floats, scale: float, degree: int, side: Side) -> Floats:
    """Values, c_0 and unit variances (3, n) of the fits of degree 0 or 1 at all points, also at points of weight 0, which are no keys.

    Weights are w_j exp(−(j − i)²/2·scale²) on one side or both. NaN without a key on the side.

    >>> attend_weighted_grid(np.array([0.0, 9.0, 2.0, 3.0]), np.array([1.0, 0.0, 1.0, 1.0]), 16.0, 1, "both")[0].round(9) + 0.0
    array([0., 1., 2., 3.])
    """
    is_key = weights > 0
    limits = _limits(side, np.inf)

    def moments(column: Floats, highest: int, squared: bool = False) -> Floats:
        """Σ_j column_j k_j u_j^p, or with k_j², for p up to the highest."""
        factor = np.sqrt(0.5) if squared else 1.0  # k² is a kernel of this part of the bandwidth
        return np.stack([
            convolve(column, lambda u, p=p: np.exp(-u * u / 2) * (factor * u) ** p, scale * factor, *limits)
            for p in range(highest + 1)
        ])  # fmt: skip

    # Around their own mean, values keep the digits that a large offset would take.
    center = values[is_key].mean()
    weight_sums = moments(weights, 2 * degree)
    kernel = weight_sums[0] if (weights[is_key] == 1).all() else moments(is_key.astype(np.float64), 0)[0]
    value_sums = moments(np.where(is_key, weights * (values - center), 0.0), degree)
    sums = PowerSums(weight_sums, value_sums, moments(weights, 2 * degree, squared=True), kernel)
    columns = fit(sums).results(sums)
    few = kernel < FEW
    if few.any():
        steps = np.arange(float(values.size))
        keys = steps[is_key], values[is_key] - center, weights[is_key]
        columns[:, few] = attend_compiled(*keys, steps[few], scale, degree, side=side)
    columns[0] += center
    return columns
