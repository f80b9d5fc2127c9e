"""A long gap, across which no head is judged: a straight line between its ends, and a parabola where the values on both sides bend."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats

# LONG: the steps of the longest gap that heads fill; only longer ones are bridged by a parabola.
LONG = 49.5
# BLOCKS: blocks on either side of a long gap whose means show how the curve bends across it; FEWEST_BLOCKS: how few are enough.
BLOCKS, FEWEST_BLOCKS = 4, 2


class Bend(NamedTuple):
    """A parabola across a long gap, without its straight line between the gap's ends: curvature · (u² − 1/4) at u gaps from the middle."""

    middle: float
    length: float
    near: slice  # the keys that are used
    row: Floats  # their weights in the curvature

    def at(self, targets: Floats) -> Floats:
        """The bend at targets (m,) for a curvature of 1."""
        return ((targets - self.middle) / self.length) ** 2 - 0.25


def bent(times: Floats, values: Floats, targets: Floats) -> Floats:
    """The bends of the parabolas at ascending targets (m,) in joined gaps of values (n,)."""
    after = np.searchsorted(times, targets)
    bends = np.empty(targets.size)
    starts = np.flatnonzero(np.diff(after, prepend=-1))
    for start, stop in pairwise([*starts, targets.size]):
        bend = bend_across(times, values, int(after[start]))
        bends[start:stop] = bend.at(targets[start:stop]) * (bend.row @ values[bend.near])
    return bends


def bend_across(times: Floats, values: Floats, end: int) -> Bend:
    """The parabola across the long gap that ends before key `end`, by least squares through the means of blocks of a quarter of its length.

    Four blocks on either side are fitted. The curvature is shrunk by 1 − (its standard error/itself)², as far as that is above 0 (the
    positive part of James and Stein 1961, section 2): it is 0 if the means are far from a parabola.
    """
    first, last = times[[end - 1, end]]
    length, middle = float(last - first), float(first + last) / 2
    offsets = length / 4 * np.arange(BLOCKS + 1)
    before = np.searchsorted(times, (first - offsets)[::-1], side="right")
    after = np.searchsorted(times, last + offsets)
    edges = [*pairwise(before), *pairwise(after)]
    near = slice(int(before[0]), int(after[-1]))
    means = np.zeros((len(edges), near.stop - near.start))
    for block, (start, stop) in zip(means, edges, strict=True):
        block[start - near.start : stop - near.start] = 1 / max(stop - start, 1)
    used = np.asarray(means.any(axis=1))
    nothing = Bend(middle, length, near, np.zeros(means.shape[1]))
    if length <= LONG + 1 or min(used[:BLOCKS].sum(), used[BLOCKS:].sum()) < FEWEST_BLOCKS:
        return nothing
    means = means[used]
    powers = means @ ((times[near] - middle) / length)[:, None] ** np.arange(3)
    fit = np.linalg.pinv(powers)
    heights = means @ values[near]
    residuals, curvature = heights - powers @ (fit @ heights), float(fit[2] @ heights)
    variance = float(residuals @ residuals) / (heights.size - 3) * float(fit[2] @ fit[2])
    return nothing._replace(row=max(1 - variance / curvature**2, 0.0) * (fit[2] @ means)) if curvature else nothing
