"""Convolution of evenly spaced values with a smooth row of weights, in O(n) for any length of the row."""

import math
from collections.abc import Callable

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.chebyshev import MULTIPLE, TERMS, interpolate_difference, polynomials
from overt.smoothing.heads.keys import NEGLIGIBLE

# At most so many weights, or so many products in all, are summed directly: that is faster than making a plan.
SHORT, FEW = 160, 2e7
# Blocks computed together, whose sums stay in a processor's cache.
TOGETHER = 256


def convolve(values: Floats, weight: Callable[[Floats], Floats], scale: float, before: float, after: float) -> Floats:
    """y_i = Σ_j f((j − i)/scale) x_j over −before ≤ j − i ≤ after, where f is exp(−u²/2) times a polynomial of degree 2 at most.

    Values (n,) give outputs (n,); beyond its ends a series counts as zeros. Before and after are whole numbers of points, or inf.
    Errors are below 1e-14 · max|f| · Σ_j |x_j|, over the points within nine scales.

    >>> convolve(np.array([0.0, 0.0, 1.0, 0.0]), lambda u: np.exp(-u * u / 2), 1.0, 0, np.inf).round(4)
    array([0.1353, 0.6065, 1.    , 0.    ])
    """
    back, ahead = (int(min(end, math.ceil(NEGLIGIBLE * scale), values.size - 1)) for end in (before, after))
    if back + ahead <= SHORT or (native.available() and (back + ahead) * values.size <= FEW):
        return _directly(values, weight(np.arange(-back, ahead + 1) / scale), back)
    plans = (BlockPlan(values.size, scale, width, before, after) for width in TERMS if width * scale >= MULTIPLE)
    return _by_blocks(values, weight, min(plans, key=lambda plan: plan.cost))


class BlockPlan:
    """Blocks of `size` points, and how blocks at each distance enter: by polynomials, point by point, or not at all."""

    def __init__(self, points: int, scale: float, width: float, before: float, after: float) -> None:
        whole_series = -(-points // MULTIPLE) * MULTIPLE
        self.scale = scale
        self.size: int = min(int(width * scale) // MULTIPLE * MULTIPLE, whole_series)
        self.terms: int = TERMS[width]
        reach = math.ceil(NEGLIGIBLE * scale)
        # Where weights are negligible, no limit is needed.
        self.first: float = -before if before < reach else -np.inf
        self.last: float = after if after < reach else np.inf
        farthest = min(reach, points - 1) // self.size + 1
        away = np.arange(-farthest, farthest + 1)
        nearest, farthest = (away - 1) * self.size + 1, (away + 1) * self.size - 1
        whole = (self.first <= nearest) & (farthest <= self.last)
        self.whole: Indices = away[whole]
        self.cut: Indices = away[~whole & (farthest >= self.first) & (nearest <= self.last)]
        # Multiplications per point.
        self.cost: float = 2 * self.terms + self.whole.size * self.terms**2 / self.size + self.cut.size * self.size

    def matrices(self, weight: Callable[[Floats], Floats]) -> Floats:
        """From the sums of all blocks that enter whole, one after the other, to polynomials: (whole · terms, terms)."""
        width = self.size / self.scale
        matrices = [interpolate_difference(weight, float(away) * width, width, self.terms) for away in self.whole]
        return np.concatenate(matrices) if matrices else np.zeros((0, self.terms))

    def corners(self, weight: Callable[[Floats], Floats]) -> Floats:
        """Weights from each point of a block that is cut to each point of the target block: (cut, size, size)."""
        point = np.arange(self.size)
        offset = self.cut[:, None, None] * self.size + point[:, None] - point
        return np.where((self.first <= offset) & (offset <= self.last), weight(offset / self.scale), 0.0)


def _directly(values: Floats, taps: Floats, before: int) -> Floats:
    if native.available():
        outputs = np.empty(values.size)
        native.module().filter(values, taps, before, native.threads(), outputs)
        return outputs
    padded = np.pad(values, (before, taps.size - 1 - before))
    return np.convolve(padded, taps[::-1], "valid")


def _by_blocks(values: Floats, weight: Callable[[Floats], Floats], plan: BlockPlan) -> Floats:
    reading = polynomials((2 * np.arange(plan.size) - plan.size + 1) / plan.size, plan.terms)  # (terms, size)
    table = np.ascontiguousarray(reading.T)
    matrices, corners = plan.matrices(weight), plan.corners(weight)
    if not native.available():
        return _by_matrix_products(values, plan, table, matrices, corners)
    outputs = np.empty(values.size)
    first = int(plan.whole[0]) if plan.whole.size else 0
    native.module().slide(
        *(values, table, reading, first, matrices, plan.cut.tolist(), corners.reshape(-1), native.threads(), outputs)
    )
    return outputs


def _by_matrix_products(values: Floats, plan: BlockPlan, table: Floats, matrices: Floats, corners: Floats) -> Floats:
    """The same in NumPy, as matrix products."""
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
