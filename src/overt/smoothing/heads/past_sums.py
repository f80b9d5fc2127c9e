"""Attention by value to the past alone in O(n log n): every past is a few blocks, each one sum over all its keys at once."""

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.fast_sums import gaussian_sums
from overt.smoothing.heads.keys import RowMoments

# Below so many keys, pair by pair is as fast.
SHORTEST = 4096
# Points of the smallest block; a past ends with fewer, which are summed pair by pair, in so many rows at a time.
BLOCK, ROWS = 64, 4096


def attend_past(times: Floats, values: Floats, weights: Floats | None, bandwidth: float) -> RowMoments:
    """Attention of values (n,) to those that are not later: W_ij ∝ w_j exp(−(x_i − x_j)²/2h²) over t_j ≤ t_i.

    A past of m keys is the blocks that m is written with in binary, of `BLOCK` · 2^l keys each, and a rest. Each block of a
    level is attended to by fast Gauss transform (`fast_sums.gaussian_sums`), whose errors these have.

    times (n,) ascending, equal ones allowed, weights (n,) above 0, None for 1.

    >>> attend_past(np.arange(3.0), np.array([0.0, 4.0, 1.0]), None, 1.0).values.round(4)
    array([0.    , 3.9987, 0.6457])
    """
    weights = np.ones(values.size) if weights is None else weights
    counts = np.searchsorted(times, times, side="right")  # of the keys in each past
    sums = _rests(values, weights, counts, bandwidth)
    size = BLOCK
    while size <= values.size:
        inside = np.flatnonzero(counts // size % 2)  # counts ascend, so that rows of one block stand beside each other
        for rows in np.split(inside, np.flatnonzero(np.diff(counts[inside] // size)) + 1) if inside.size else []:
            stop = counts[rows[0]] // size * size
            sums[:, rows] += _of_block(values, weights, slice(stop - size, stop), rows, bandwidth)
        size *= 2
    total, first, second = sums[0], sums[1] / sums[0], sums[2] / sums[0]
    variances = np.maximum(second - first**2, 0.0) * bandwidth**2
    return RowMoments(values + first * bandwidth, weights / total, variances)


def _of_block(values: Floats, weights: Floats, block: slice, rows: Indices, bandwidth: float) -> Floats:
    """Σ_j w_j exp(−u²/2) u^p over the keys of a block, u = (x_j − x_i)/h, for p = 0, 1, 2 (3, rows)."""
    keys, queries = np.argsort(values[block], kind="stable"), np.argsort(values[rows], kind="stable")
    sums = np.empty((3, rows.size))
    charges = weights[block][keys][None]
    sums[:, queries] = gaussian_sums(values[block][keys], charges, values[rows][queries], bandwidth, 2)[:, 0]
    return sums


def _rests(values: Floats, weights: Floats, counts: Indices, bandwidth: float) -> Floats:
    """The same over the keys that are in no whole block (3, n)."""
    sums = np.empty((3, values.size))
    for start in range(0, values.size, ROWS):
        rows = slice(start, start + ROWS)
        keys = (counts[rows] // BLOCK * BLOCK)[:, None] + np.arange(BLOCK)  # (rows, BLOCK)
        entered, keys = keys < counts[rows, None], np.minimum(keys, values.size - 1)
        u = (values[keys] - values[rows, None]) / bandwidth
        kernel = np.where(entered, weights[keys] * np.exp(-u * u / 2), 0.0)
        sums[:, rows] = kernel.sum(axis=1), (kernel * u).sum(axis=1), (kernel * u * u).sum(axis=1)
    return sums
