"""Convolution of evenly spaced values with a smooth row of weights, in O(n) for any length of the row."""

import math
from collections.abc import Callable

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.chebyshev import MULTIPLE, TERMS, interpolate_difference, polynomials
from overt.smoothing.heads.keys import NEGLIGIBLE

# SHORT, FEW: up to SHORT weights, or FEW products in all, are summed directly, which is faster than making a plan.
SHORT, FEW = 160, 2e7
# TRANSFORMED: without the native core, more weights than this are convolved by Fourier transforms.
TRANSFORMED = 2048


def convolve(values: Floats, weight: Callable[[Floats], Floats], scale: float, before: float, after: float) -> Floats:
    """y_i = Σ_j f((j − i)/scale) x_j over −before ≤ j − i ≤ after, where f is exp(−u²/2) times a polynomial of degree 2 at most.

    Values (n,) give outputs (n,); beyond its ends a series counts as zeros. Before and after are whole numbers of points, or inf.
    Errors are below 1e-14 · max|f| · Σ_j |x_j|, over the points within nine scales.

    >>> convolve(np.array([0.0, 0.0, 1.0, 0.0]), lambda u: np.exp(-u * u / 2), 1.0, 0, np.inf).round(4)
    array([0.1353, 0.6065, 1.    , 0.    ])
    """
    back, ahead = (int(min(end, math.ceil(NEGLIGIBLE * scale), values.size - 1)) for end in (before, after))
    if not native.available() or back + ahead <= SHORT or (back + ahead) * values.size <= FEW:
        return directly(values, weight(np.arange(-back, ahead + 1) / scale), back)
    plans = (BlockPlan(values.size, scale, width, before, after) for width in TERMS if width * scale >= MULTIPLE)
    return _by_blocks(values, weight, min(plans, key=lambda plan: plan.cost))


class BlockPlan:
    """Blocks of `size` points; `whole` and `cut` are the distances of the blocks summed by polynomials and point by point."""

    def __init__(self, points: int, scale: float, width: float, before: float, after: float) -> None:
        whole_series = -(-points // MULTIPLE) * MULTIPLE
        self.scale = scale
        self.size: int = min(int(width * scale) // MULTIPLE * MULTIPLE, whole_series)
        self.terms: int = TERMS[width]
        reach = math.ceil(NEGLIGIBLE * scale)
        # Beyond negligible weights, no limit is needed.
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
        """Matrices from the sums of all whole blocks, in order, to polynomials (whole · terms, terms)."""
        width = self.size / self.scale
        matrices = [interpolate_difference(weight, float(away) * width, width, self.terms) for away in self.whole]
        return np.concatenate(matrices) if matrices else np.zeros((0, self.terms))

    def corners(self, weight: Callable[[Floats], Floats]) -> Floats:
        """Weights from each point of a cut block to each point of the target block (cut, size, size)."""
        point = np.arange(self.size)
        offset = self.cut[:, None, None] * self.size + point[:, None] - point
        return np.where((self.first <= offset) & (offset <= self.last), weight(offset / self.scale), 0.0)


def directly(values: Floats, taps: Floats, before: int) -> Floats:
    """y_i = Σ_k taps_k x_(i − before + k) of values (n,); beyond its ends a series counts as zeros."""
    if native.available():
        outputs = np.empty(values.size)
        native.module().filter(values, taps, before, native.threads(), outputs)
        return outputs
    if taps.size <= TRANSFORMED:
        return np.convolve(np.pad(values, (before, taps.size - 1 - before)), taps[::-1], "valid")
    size = 1 << (values.size + taps.size).bit_length()  # of the transforms, with zeros beyond the ends
    spectrum = np.fft.rfft(values, size) * np.fft.rfft(taps[::-1], size)
    return np.fft.irfft(spectrum, size)[taps.size - 1 - before :][: values.size]


def _by_blocks(values: Floats, weight: Callable[[Floats], Floats], plan: BlockPlan) -> Floats:
    reading = polynomials((2 * np.arange(plan.size) - plan.size + 1) / plan.size, plan.terms)  # (terms, size)
    table = np.ascontiguousarray(reading.T)
    matrices, corners = plan.matrices(weight), plan.corners(weight)
    outputs = np.empty(values.size)
    first = int(plan.whole[0]) if plan.whole.size else 0
    native.module().slide(
        *(values, table, reading, first, matrices, plan.cut.tolist(), corners.reshape(-1), native.threads(), outputs)
    )
    return outputs
