"""A row of weights slid over evenly spaced values, in O(n) however far it reaches, where the weights are smooth."""

import math
from collections.abc import Callable

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.chebyshev import MULTIPLE, TERMS, between, polynomials
from overt.smoothing.heads.keys import NEGLIGIBLE

# So few weights are summed one by one, which is quicker; and more where there are few sums: a plan takes as long as these products.
SHORT, FEW = 160, 2e7
# Stretches worked on together, whose sums stay in a processor's cache.
TOGETHER = 256


def slide(values: Floats, weight: Callable[[Floats], Floats], scale: float, before: float, after: float) -> Floats:
    """y_i = Σ_j f((j − i)/scale) x_j over −before ≤ j − i ≤ after, where f is exp(−u²/2) times a polynomial of degree 2 at most.

    Values (n,) give outputs (n,); beyond its ends a series counts as zeros. Before and after are whole numbers of points, or inf.
    Errors are below 1e-14 · max|f| · Σ_j |x_j|, over the points within nine scales.

    >>> slide(np.array([0.0, 0.0, 1.0, 0.0]), lambda u: np.exp(-u * u / 2), 1.0, 0, np.inf).round(4)
    array([0.1353, 0.6065, 1.    , 0.    ])
    """
    back, forth = (int(min(end, math.ceil(NEGLIGIBLE * scale), values.size - 1)) for end in (before, after))
    if back + forth <= SHORT or (native.available() and (back + forth) * values.size <= FEW):
        return _one_by_one(values, weight(np.arange(-back, forth + 1) / scale), back)
    plans = (Plan(values.size, scale, width, before, after) for width in TERMS if width * scale >= MULTIPLE)
    return _by_stretches(values, weight, min(plans, key=lambda plan: plan.cost))


class Plan:
    """Stretches of `size` points, and how those so many stretches `away` count: by polynomials, point by point, or not at all."""

    def __init__(self, points: int, scale: float, width: float, before: float, after: float) -> None:
        whole_series = -(-points // MULTIPLE) * MULTIPLE
        self.scale, self.size, self.terms = scale, min(int(width * scale) // MULTIPLE * MULTIPLE, whole_series), TERMS[width]
        reach = math.ceil(NEGLIGIBLE * scale)
        # Where weights are negligible, they need not be cut off.
        self.first, self.last = (-before if before < reach else -np.inf), (after if after < reach else np.inf)
        farthest = min(reach, points - 1) // self.size + 1
        away = np.arange(-farthest, farthest + 1)
        nearest, farthest = (away - 1) * self.size + 1, (away + 1) * self.size - 1
        whole = (self.first <= nearest) & (farthest <= self.last)
        self.whole = away[whole]
        self.cut = away[~whole & (farthest >= self.first) & (nearest <= self.last)]
        # Multiplications a point.
        self.cost = 2 * self.terms + self.whole.size * self.terms**2 / self.size + self.cut.size * self.size

    def matrices(self, weight: Callable[[Floats], Floats]) -> Floats:
        """From the sums of all stretches that count whole, one after the other, to polynomials: (whole · terms, terms)."""
        width = self.size / self.scale
        found = [between(weight, float(away) * width, width, self.terms) for away in self.whole]
        return np.concatenate(found) if found else np.zeros((0, self.terms))

    def corners(self, weight: Callable[[Floats], Floats]) -> Floats:
        """From each point of a stretch that is cut to each of the one that reads: (cut, size, size)."""
        point = np.arange(self.size)
        offset = self.cut[:, None, None] * self.size + point[:, None] - point
        return np.where((self.first <= offset) & (offset <= self.last), weight(offset / self.scale), 0.0)


def _one_by_one(values: Floats, taps: Floats, before: int) -> Floats:
    if native.available():
        outputs = np.empty(values.size)
        native.module().filter(values, taps, before, native.threads(), outputs)
        return outputs
    padded = np.pad(values, (before, taps.size - 1 - before))
    return np.convolve(padded, taps[::-1], "valid")


def _by_stretches(values: Floats, weight: Callable[[Floats], Floats], plan: Plan) -> Floats:
    reading = polynomials((2 * np.arange(plan.size) - plan.size + 1) / plan.size, plan.terms)  # (terms, size)
    table = np.ascontiguousarray(reading.T)
    matrices, corners = plan.matrices(weight), plan.corners(weight)
    if not native.available():
        return _by_products(values, plan, table, matrices, corners)
    outputs = np.empty(values.size)
    first = int(plan.whole[0]) if plan.whole.size else 0
    native.module().slide(
        *(values, table, reading, first, matrices, plan.cut.tolist(), corners.reshape(-1), native.threads(), outputs)
    )
    return outputs


def _by_products(values: Floats, plan: Plan, table: Floats, matrices: Floats, corners: Floats) -> Floats:
    """The same as NumPy's matrix products."""
    count = -(-values.size // plan.size)
    margin = int(max(np.abs(plan.whole).max(initial=0), np.abs(plan.cut).max(initial=0)))
    padded = np.zeros((count + 2 * margin, plan.size))
    padded[margin : margin + count].reshape(-1)[: values.size] = values
    sums = padded @ table
    outputs = np.zeros((count, plan.size))
    for start in range(0, count, TOGETHER):
        rows = slice(start, min(start + TOGETHER, count))
        if plan.whole.size:
            near = np.lib.stride_tricks.sliding_window_view(sums[margin + plan.whole[0] :], (plan.whole.size, plan.terms))
            outputs[rows] = near[rows, 0].reshape(rows.stop - start, -1) @ matrices @ table.T
        for away, corner in zip(plan.cut, corners, strict=True):
            outputs[rows] += padded[margin + start + away : margin + rows.stop + away] @ corner
    return outputs.reshape(-1)[: values.size]
