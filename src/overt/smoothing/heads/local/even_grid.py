"""Local polynomials on evenly spaced points: a convolution with one row of weights, and other rows at the ends."""

import functools

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.convolution import convolve
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# Pairs of an edge and its keys that are summed one by one.
PAIRS = 3e6


def attend_even_grid(values: Floats, scale: float, degree: int, window: float, side: Side) -> Floats:
    """Values, c_0 and unit variances (3, n) of the fits of degree 0 to 2 at all points.

    Weights are exp(−(j − i)²/2·scale²) over |j − i| ≤ window, on one side or both.

    >>> attend_even_grid(np.array([0.0, 1.0, 4.0, 9.0]), 1.0, 2, np.inf, "both")[0].round(9) + 0.0
    array([0., 1., 4., 9.])
    """
    window = np.floor(window * (1 + 1e-9))
    before, after = (0.0 if side == "future" else window), (0.0 if side == "past" else window)
    ends = Ends(values.size, scale, before, after)
    # Around their own mean, values keep the digits that a large offset would take.
    center = values.mean()
    centered = values - center
    outputs = np.empty((3, values.size))
    first, last = ends.before, values.size - ends.after
    if first < last:
        _inner(outputs, slice(first, last), centered, ends, degree)
        edges = [slice(0, first), slice(last, values.size)]
    else:
        edges = [slice(0, values.size)]
    for edge in edges:
        if edge.start < edge.stop:
            _edge(outputs, edge, centered, ends, degree)
    outputs[0] += center
    return outputs


class Ends:
    """The range of a row in points, and its sums near the ends of the series, where it is cut off."""

    def __init__(self, points: int, scale: float, before: float, after: float) -> None:
        self.points = points
        self.scale = scale
        self.limits: tuple[float, float] = (before, after)
        self.before: int
        self.after: int
        self.before, self.after = (int(min(end, np.ceil(NEGLIGIBLE * scale), points)) for end in self.limits)

    @property
    def side(self) -> Side:
        """The side of a row that has weights."""
        return "past" if self.limits[1] == 0 < self.limits[0] else "future" if self.limits[0] == 0 < self.limits[1] else "both"

    def sums(self, rows: Indices, degree: int) -> PowerSums:
        """The sums of rows, without those of the values."""
        past = _running(np.arange(-1.0, -self.before - 1, -1), self.scale, degree)
        future = _running(np.arange(1.0, self.after + 1), self.scale, degree)
        at_zero = np.eye(2 * degree + 1)[:, :1]  # k = 1 and u = 0
        earlier, later = np.minimum(rows, self.before), np.minimum(self.points - 1 - rows, self.after)
        weights, squares = (at_zero + before[:, earlier] + after[:, later] for before, after in zip(past, future, strict=True))
        return PowerSums(weights, np.zeros((degree + 1, rows.size)), squares, weights[0])


def _running(steps: Floats, scale: float, degree: int) -> tuple[Floats, Floats]:
    """Σ k u^p and Σ k² u^p over the first 0, 1, 2 … steps, (2·degree + 1, steps + 1)."""
    u = steps / scale
    kernel = np.exp(-u * u / 2)
    terms = kernel * u ** np.arange(2 * degree + 1)[:, None]
    weights, squares = (np.pad(np.cumsum(each, axis=1), ((0, 0), (1, 0))) for each in (terms, terms * kernel))
    return weights, squares


def _inner(outputs: Floats, rows: slice, values: Floats, ends: Ends, degree: int) -> None:
    coefficients, variance = _whole_row(ends.scale, degree, ends.before, ends.after)
    c = (*coefficients, *[0.0] * (2 - degree))

    def weight(u: Floats) -> Floats:
        return np.exp(-u * u / 2) * (c[0] + u * (c[1] + u * c[2]))

    outputs[0, rows] = convolve(values, weight, ends.scale, *ends.limits)[rows]
    outputs[1, rows], outputs[2, rows] = c[0], variance


@functools.lru_cache(maxsize=512)
def _whole_row(scale: float, degree: int, before: int, after: int) -> tuple[tuple[float, ...], float]:
    """Coefficients and unit variance of a row that is not cut off."""
    u = np.arange(-before, after + 1) / scale
    kernel = np.exp(-u * u / 2)
    terms = kernel * u ** np.arange(2 * degree + 1)[:, None]
    weights, squares = terms.sum(axis=1, keepdims=True), (terms * kernel).sum(axis=1, keepdims=True)
    fitted = fit(PowerSums(weights, np.zeros((degree + 1, 1)), squares, weights[0]))
    return tuple(fitted.coefficients[:, 0].tolist()), float(fitted.unit_variances[0])


def _edge(outputs: Floats, rows: slice, values: Floats, ends: Ends, degree: int) -> None:
    near = slice(max(rows.start - ends.before, 0), min(rows.stop + ends.after, values.size))
    # Without a window, boxes take O(rows). With one all pairs are summed; for many rows convolutions are faster.
    open_ended = ends.side == "both" and np.isinf(max(ends.limits))
    if native.available() and (open_ended or (rows.stop - rows.start) * (near.stop - near.start) <= PAIRS):
        positions = np.arange(near.start, near.stop, dtype=np.float64)
        options = {"window": float(max(ends.limits)), "side": ends.side}
        targets = positions[rows.start - near.start : rows.stop - near.start]
        outputs[:, rows] = attend_compiled(positions, values[near], None, targets, ends.scale, degree, **options)
        return
    here = slice(rows.start - near.start, rows.stop - near.start)
    sums = ends.sums(np.arange(rows.start, rows.stop), degree)
    for p in range(degree + 1):
        sums.values[p] = convolve(values[near], lambda u, p=p: np.exp(-u * u / 2) * u**p, ends.scale, *ends.limits)[here]
    outputs[:, rows] = fit(sums).results(sums)
