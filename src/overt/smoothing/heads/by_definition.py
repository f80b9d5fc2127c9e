"""Attention over a series by its definition, a block of rows at a time, for scores without a faster method.

Memory is linear in the number of points, never n×n.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices, Series
from overt.smoothing.heads.blocks import CELLS, KeyRange, reached_blocks
from overt.smoothing.heads.head import Outputs, SeriesHead
from overt.smoothing.heads.keys import DotKeys, KeyPoints, Points, RowMoments, SeriesKeys
from overt.smoothing.heads.normalize import plain_sum, softmax


class Interpolation(NamedTuple):
    """A missing point between its neighbours: (1 − share)·left + share·right; the index −1 if there is no neighbour."""

    left: Indices
    right: Indices
    share: Floats


def attend_by_definition(series: Series, head: SeriesHead, keys: SeriesKeys, rows: Indices, cells: int = CELLS) -> Outputs:
    """y_i = Σ_j W_ij x_j and ∂y_i/∂x_i of present points, in blocks of at most about `cells` scores."""
    points = KeyPoints(series.key_times, series.key_values, None)
    query, self_index = Points(series.times[rows], series.values[rows]), np.searchsorted(series.present, rows)
    moments = attend_points(keys, points, query, self_index, intervals(series, head, keys, rows), cells)
    return Outputs(moments.values, keys.leverage(moments, query.values))


def attend_points(
    keys: SeriesKeys, points: KeyPoints, query: Points, self_index: Indices, key_range: KeyRange, cells: int = CELLS
) -> RowMoments:
    """The moments of points (m,) that attend to their ranges of keys (n,), with their indices among the keys; NaN without a key."""
    moments = RowMoments(*(np.full(self_index.size, np.nan) for _ in RowMoments._fields))
    for rows in reached_blocks(key_range, cells):
        block, part = key_range.part(rows), Points(query.times[rows], query.values[rows])
        weights, first = block_weights(keys, points, part, block), block.span.start
        step = points.values[block.span] - part.values[:, None]
        shift = (weights * step).sum(axis=1)  # y_i − x_i
        moments.values[rows], moments.self_weights[rows] = (
            part.values + shift,
            weights[np.arange(rows.size), self_index[rows] - first],
        )
        # A sum of squared differences, not a difference of sums of squares, which would lose the variance's digits.
        moments.variances[rows] = (weights * (step - shift[:, None]) ** 2).sum(axis=1)
    return moments


def block_weights(keys: SeriesKeys, points: KeyPoints, query: Points, key_range: KeyRange) -> Floats:
    """W_ij (rows, keys) over all keys that any of the rows reaches."""
    span, plain = key_range.span, isinstance(keys, DotKeys) and keys.plain_sum
    scores = keys.scores(query, Points(points.times[span], points.values[span]))
    if points.weights is not None:
        scores = scores + np.log(points.weights[span])
    column = np.arange(span.start, span.stop)
    scores[(column < key_range.start[:, None]) | (column >= key_range.stop[:, None])] = 0.0 if plain else -np.inf
    return (plain_sum if plain else softmax)(scores)


def intervals(series: Series, head: SeriesHead, keys: SeriesKeys, rows: Indices) -> KeyRange:
    """The range of present points that each row may attend to."""
    times, key_times = series.times[rows], series.key_times
    reach = np.minimum(head.reach, keys.radius)
    start = np.searchsorted(key_times, times - reach, side="left")
    stop = np.searchsorted(key_times, times if head.causal else times + reach, side="right")
    return KeyRange(start, np.maximum(start, stop))


def interpolation(series: Series, head: SeriesHead, rows: Indices) -> Interpolation:
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
