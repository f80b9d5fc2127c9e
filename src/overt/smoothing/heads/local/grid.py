"""Local polynomials where points are evenly spaced: one row of weights, slid along the series, and other rows at its ends."""

import functools

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.native import natively
from overt.smoothing.heads.local.polynomial import Side, Sums, fit
from overt.smoothing.heads.local.sliding import slide

# Pairs of an edge and its keys that are summed one by one.
PAIRS = 3e6


def attend_grid(values: Floats, scale: float, degree: int, window: float, side: Side) -> Floats:
    """Values, c_0 and squares (3, n) of the fits of degree 0 to 2 at all points.

    Weights are exp(−(j − i)²/2·scale²) over |j − i| ≤ window, on one side or both.

    >>> attend_grid(np.array([0.0, 1.0, 4.0, 9.0]), 1.0, 2, np.inf, "both")[0].round(9) + 0.0
    array([0., 1., 4., 9.])
    """
    window = np.floor(window * (1 + 1e-9))
    before, after = (0.0 if side == "future" else window), (0.0 if side == "past" else window)
    ends = Ends(values.size, scale, before, after)
    # Around their own mean, values keep the digits that a far offset would take.
    center = values.mean()
    centered = values - center
    found = np.empty((3, values.size))
    first, last = ends.before, values.size - ends.after
    if first < last:
        _inner(found, slice(first, last), centered, ends, degree)
        edges = [slice(0, first), slice(last, values.size)]
    else:
        edges = [slice(0, values.size)]
    for edge in edges:
        if edge.start < edge.stop:
            _edge(found, edge, centered, ends, degree)
    found[0] += center
    return found


class Ends:
    """How far a row reaches, in points, and what that leaves of it near the ends of the series."""

    def __init__(self, points: int, scale: float, before: float, after: float) -> None:
        self.points, self.scale, self.cut = points, scale, (before, after)
        self.before, self.after = (int(min(end, np.ceil(NEGLIGIBLE * scale), points)) for end in self.cut)

    @property
    def side(self) -> Side:
        """Which side of a row counts."""
        return "past" if self.cut[1] == 0 < self.cut[0] else "future" if self.cut[0] == 0 < self.cut[1] else "both"

    def sums(self, rows: Indices, degree: int) -> Sums:
        """The sums of rows, all but those of the values."""
        past = _running(np.arange(-1.0, -self.before - 1, -1), self.scale, degree)
        future = _running(np.arange(1.0, self.after + 1), self.scale, degree)
        own = np.eye(2 * degree + 1)[:, :1]  # k = 1 and u = 0
        earlier, later = np.minimum(rows, self.before), np.minimum(self.points - 1 - rows, self.after)
        weights, squares = (own + before[:, earlier] + after[:, later] for before, after in zip(past, future, strict=True))
        return Sums(weights, np.zeros((degree + 1, rows.size)), squares, weights[0])


def _running(steps: Floats, scale: float, degree: int) -> tuple[Floats, Floats]:
    """Σ k u^p and Σ k² u^p over none, one, two … of the steps, (2·degree + 1, steps + 1)."""
    u = steps / scale
    kernel = np.exp(-u * u / 2)
    terms = kernel * u ** np.arange(2 * degree + 1)[:, None]
    weights, squares = (np.pad(np.cumsum(some, axis=1), ((0, 0), (1, 0))) for some in (terms, terms * kernel))
    return weights, squares


def _inner(found: Floats, rows: slice, values: Floats, ends: Ends, degree: int) -> None:
    coefficients, squares = _whole_row(ends.scale, degree, ends.before, ends.after)
    c = (*coefficients, *[0.0] * (2 - degree))

    def weight(u: Floats) -> Floats:
        return np.exp(-u * u / 2) * (c[0] + u * (c[1] + u * c[2]))

    found[0, rows] = slide(values, weight, ends.scale, *ends.cut)[rows]
    found[1, rows], found[2, rows] = c[0], squares


@functools.lru_cache(maxsize=512)
def _whole_row(scale: float, degree: int, before: int, after: int) -> tuple[tuple[float, ...], float]:
    """Coefficients and squares of a row that no end cuts off."""
    u = np.arange(-before, after + 1) / scale
    kernel = np.exp(-u * u / 2)
    terms = kernel * u ** np.arange(2 * degree + 1)[:, None]
    weights, squares = terms.sum(axis=1, keepdims=True), (terms * kernel).sum(axis=1, keepdims=True)
    fitted = fit(Sums(weights, np.zeros((degree + 1, 1)), squares, weights[0]))
    return tuple(fitted.coefficients[:, 0].tolist()), float(fitted.squares[0])


def _edge(found: Floats, rows: slice, values: Floats, ends: Ends, degree: int) -> None:
    near = slice(max(rows.start - ends.before, 0), min(rows.stop + ends.after, values.size))
    # Without a window, boxes make it O(rows); else all pairs are summed, which many rows leave to the slid sums.
    open_ended = ends.side == "both" and np.isinf(max(ends.cut))
    if native.available() and (open_ended or (rows.stop - rows.start) * (near.stop - near.start) <= PAIRS):
        places = np.arange(near.start, near.stop, dtype=np.float64)
        options = {"window": float(max(ends.cut)), "side": ends.side}
        targets = places[rows.start - near.start : rows.stop - near.start]
        found[:, rows] = natively(places, values[near], None, targets, ends.scale, degree, **options)
        return
    here = slice(rows.start - near.start, rows.stop - near.start)
    sums = ends.sums(np.arange(rows.start, rows.stop), degree)
    for p in range(degree + 1):
        sums.values[p] = slide(values[near], lambda u, p=p: np.exp(-u * u / 2) * u**p, ends.scale, *ends.cut)[here]
    found[:, rows] = fit(sums).results(sums)
