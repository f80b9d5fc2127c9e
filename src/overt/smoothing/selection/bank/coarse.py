"""Heads of wide bandwidths on a long grid: smooth curves, computed at few points and interpolated between them.

A weighted mean with a Gaussian of bandwidth h changes little over h/16, so the polynomial of degree 7 through eight points at that
distance matches the curve to ten digits of its noise. Only these points are computed and stored.
"""

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.polynomial import cofactors
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.heads.local.short_grid import TimeHead

# TAPS: points of an interpolating polynomial; IN_BANDWIDTH: computed points in a bandwidth. For noise, the error of curves is 3e-10 of
# their standard deviation and of leverages 4e-7 of the largest, at the ends of the series; elsewhere ten times less.
TAPS, IN_BANDWIDTH = 8, 16
# LONGEST_STEP: the largest distance of computed points, in points of the series: with a larger one a stretch would have few cells.
LONGEST_STEP = 4096


class CoarseHead(NamedTuple):
    """Values, leverages at weight 1, and unit variances (3, points) at every `step`-th point of the series, from the first on."""

    columns: Floats
    step: int

    def write(self, points: slice, outputs: Sequence[Floats]) -> None:
        """Write the columns at a range of points of the series into three arrays (n,).

        >>> steps, cubes = np.arange(20.0), np.empty((3, 3))
        >>> CoarseHead(np.stack([steps, steps**2, steps**3]), 8).write(slice(80, 83), cubes)
        >>> cubes[2].round(6).tolist()
        [1000.0, 1037.970703, 1076.890625]
        """
        cells = np.arange(points.start // self.step, (points.stop - 1) // self.step + 1)
        first = np.clip(cells - (TAPS // 2 - 1), 0, self.columns.shape[1] - TAPS)
        # Consecutive cells at the same position among their TAPS points share one matrix.
        runs = np.flatnonzero(np.diff(cells - first, prepend=-1)).tolist()
        inside = slice(points.start - cells[0] * self.step, points.stop - cells[0] * self.step)
        whole = inside.start == 0 and inside.stop == cells.size * self.step
        for column, output in zip(self.columns, outputs, strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(column, TAPS)[first]  # (cells, TAPS)
            fine = output.reshape(cells.size, self.step) if whole else np.empty((cells.size, self.step))
            for start, stop in pairwise([*runs, cells.size]):
                np.matmul(windows[start:stop], _lagrange(int(cells[start] - first[start]), self.step), out=fine[start:stop])
            if not whole:
                output[...] = fine.reshape(-1)[inside]


@functools.lru_cache(maxsize=64)
def _lagrange(cell: int, step: int) -> Floats:
    """The polynomials that are 1 at one of the points 0 … TAPS − 1 and 0 at the others, in steps of a cell (TAPS, step)."""
    positions, nodes = cell + np.arange(step) / step, np.arange(float(TAPS))
    return np.stack([
        np.prod([(positions - other) / (node - other) for other in nodes if other != node], axis=0) for node in nodes
    ])  # fmt: skip


def coarse_heads(times: Floats, values: Floats, weights: Floats, heads: tuple[TimeHead, ...]) -> list[CoarseHead] | None:
    """Heads of degree 1 or 2 over both sides on a grid; None if they have to be computed at every point.

    That is: without the native core, without a grid, or with a gap as long as the smallest bandwidth, where lines replace parabolas.
    """
    if not native.available() or any(side != "both" for _, _, side in heads) or not on_grid(times):
        return None
    keys, step = np.flatnonzero(weights > 0), float(times[-1] - times[0]) / (times.size - 1)
    longest_gap = np.diff(keys, prepend=-1, append=times.size).max()
    if longest_gap >= min(bandwidth for bandwidth, _, _ in heads) / step:
        return None
    alike = bool((weights[keys] == 1).all())
    center = values[keys].mean()
    inputs = keys.astype(np.float64), values[keys] - center, None if alike else weights[keys]
    return [_coarse_head(inputs, center, times.size, bandwidth / step, degree) for bandwidth, degree, _ in heads]


def _coarse_head(
    keys: tuple[Floats, Floats, Floats | None], center: float, points: int, scale: float, degree: int
) -> CoarseHead:
    step = min(LONGEST_STEP, 2 ** int(np.log2(min(scale, points - 1) / IN_BANDWIDTH)))
    targets = np.arange(0.0, points - 1 + step, step)
    columns = attend_compiled(*keys, targets, scale, degree)
    columns[0] += center
    # The leverage c_0 by its definition, since `attend_compiled` returns it only at keys.
    determinant, factors = cofactors(attend_compiled(*keys, targets, scale, degree, raw=True), degree)
    columns[1] = factors[0] / determinant
    return CoarseHead(columns, step)
