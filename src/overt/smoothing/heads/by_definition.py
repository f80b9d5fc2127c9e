"""Attention over a series by its definition, a block of rows at a time, for the scores that have no faster method.

Memory is linear in the number of points, never n×n.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices, Series
from overt.smoothing.heads.blocks import CELLS, KeyRange, row_blocks
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import DotKeys, Keys, Points, RowMoments
from overt.smoothing.heads.normalize import plain_sum, softmax


class Interpolation(NamedTuple):
    """A missing point between its neighbours: (1 − share)·left + share·right; the index −1 where there is no neighbour."""

    left: Indices
    right: Indices
    share: Floats


def attend_by_definition(series: Series, head: Head, keys: Keys, rows: Indices, cells: int = CELLS) -> Outputs:
    """y_i = Σ_j W_ij x_j and ∂y_i/∂x_i of present points, in blocks of at most about `cells` scores. Rows are ascending."""
    outputs = Outputs(np.empty(rows.size), np.empty(rows.size))
    key_range = intervals(series, head, keys, rows)
    for block in row_blocks(key_range, cells):
        outputs.values[block], outputs.leverages[block] = _attend_block(series, head, keys, rows[block], key_range.part(block))
    return outputs


def intervals(series: Series, head: Head, keys: Keys, rows: Indices) -> KeyRange:
    """The range of present points that each row may attend to."""
    times, key_times = series.times[rows], series.key_times
    reach = np.minimum(head.reach, keys.radius)
    start = np.searchsorted(key_times, times - reach, side="left")
    stop = np.searchsorted(key_times, times if head.causal else times + reach, side="right")
    return KeyRange(start, np.maximum(start, stop))


def interpolation(series: Series, head: Head, rows: Indices) -> Interpolation:
    """The present points before and after each missing row, within its window and on its side of time."""
    times, key_times = series.times[rows], series.key_times
    before = np.searchsorted(series.present, rows) - 1
    after = before + 1
    has_before, has_after = before >= 0, (after < key_times.size) & (not head.causal)
    before, after = np.maximum(before, 0), np.minimum(after, key_times.size - 1)
    has_before &= times - key_times[before] <= head.reach
    has_after &= key_times[after] - times <= head.reach
    gap = key_times[after] - key_times[before]
    share = np.where(gap > 0, (times - key_times[before]) / np.where(gap > 0, gap, 1.0), 0.5)
    share = np.where(has_before & has_after, share, np.where(has_after, 1.0, 0.0))
    left, right = np.where(has_before, series.present[before], -1), np.where(has_after, series.present[after], -1)
    return Interpolation(left, right, share)


def _attend_block(series: Series, head: Head, keys: Keys, rows: Indices, key_range: KeyRange) -> Outputs:
    span, inputs = key_range.span, series.values[rows]
    query = Points(series.times[rows], inputs)
    scores = keys.scores(query, Points(series.key_times[span], series.key_values[span]))  # (rows, keys)
    plain = isinstance(keys, DotKeys) and keys.plain_sum
    if head.causal or np.isfinite(head.window):
        column = np.arange(span.start, span.stop)
        masked = (column < key_range.start[:, None]) | (column >= key_range.stop[:, None])
        scores[masked] = 0.0 if plain else -np.inf
    weights, values = (plain_sum if plain else softmax)(scores), series.key_values[span]
    outputs = weights @ values  # (rows,)
    self_weights = weights[np.arange(rows.size), np.searchsorted(series.present, rows) - span.start]
    # A sum of squared differences, not a difference of sums of squares, which would lose the variance's digits.
    variances = ((values - outputs[:, None]) ** 2 * weights).sum(axis=1)
    return Outputs(outputs, keys.leverage(RowMoments(outputs, self_weights, variances), inputs))
