"""Attention over a series by its definition, a block of rows at a time, for the scores that nothing quicker serves.

Memory is linear in the number of points, never n×n.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices, Series
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import DotKeys, Keys, Points, Row
from overt.smoothing.heads.normalize import plain_sum, softmax

# Scores held at a time: 2 MB of float64, so that a block and its temporaries stay in a processor's cache.
CELLS = 2**18
# Shorter blocks would spend their time in Python, however few keys they reach.
SHORTEST = 64


class Mix(NamedTuple):
    """A missing point as a mixture of its neighbours: (1 − share)·left + share·right; −1 where there is no neighbour."""

    left: Indices
    right: Indices
    share: Floats


def attend_directly(series: Series, head: Head, keys: Keys, rows: Indices, cells: int = CELLS) -> Outputs:
    """y_i = Σ_j W_ij x_j and ∂y_i/∂x_i of present points, in blocks of at most about `cells` scores. Rows are ascending."""
    outputs = Outputs(np.empty(rows.size), np.empty(rows.size))
    start, stop = intervals(series, head, keys, rows)
    for block in _blocks(start, stop, cells):
        found = _attend_block(series, head, keys, rows[block], start[block], stop[block])
        outputs.values[block], outputs.slopes[block] = found
    return outputs


def intervals(series: Series, head: Head, keys: Keys, rows: Indices) -> tuple[Indices, Indices]:
    """The keys that each row may attend to, as start and stop of a range of the present points."""
    times, key_times = series.times[rows], series.key_times
    reach = np.minimum(head.reach, keys.radius)
    start = np.searchsorted(key_times, times - reach, side="left")
    stop = np.searchsorted(key_times, times if head.causal else times + reach, side="right")
    return start, np.maximum(start, stop)


def neighbours(series: Series, head: Head, rows: Indices) -> Mix:
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
    return Mix(np.where(has_before, series.present[before], -1), np.where(has_after, series.present[after], -1), share)


def _blocks(start: Indices, stop: Indices, cells: int) -> Iterator[slice]:
    """Runs of rows whose scores together fit into `cells`, each run about as long as the range of keys it reaches."""
    first = 0
    while first < start.size:
        count = min(max(SHORTEST, int(stop[first] - start[first])), start.size - first)
        while count > 1 and count * _width(start[first : first + count], stop[first : first + count]) > cells:
            count = (count + 1) // 2
        yield slice(first, first + count)
        first += count


def _width(start: Indices, stop: Indices) -> int:
    return int(stop.max() - start.min())


def _attend_block(series: Series, head: Head, keys: Keys, rows: Indices, start: Indices, stop: Indices) -> Outputs:
    weights, first = _weights(series, head, keys, rows, start, stop)
    values = series.key_values[first : first + weights.shape[1]]
    outputs = weights @ values  # (rows,)
    own = weights[np.arange(rows.size), np.searchsorted(series.present, rows) - first]
    # Summing squares of differences, not taking the difference of squares, keeps the variance's digits.
    variance = ((values - outputs[:, None]) ** 2 * weights).sum(axis=1)
    return Outputs(outputs, keys.slope(Row(own, variance, series.values[rows], outputs)))


def _weights(series: Series, head: Head, keys: Keys, rows: Indices, start: Indices, stop: Indices) -> tuple[Floats, int]:
    """Weights of a block over the range of keys that its rows reach together, and where that range starts."""
    first, last = int(start.min()), int(stop.max())
    plain = isinstance(keys, DotKeys) and keys.plain_sum
    query = Points(series.times[rows], series.values[rows])
    key = Points(series.key_times[first:last], series.key_values[first:last])
    scores = keys.scores(query, key)  # (rows, last - first)
    if head.causal or np.isfinite(head.window):
        column = np.arange(first, last)
        barred = (column < start[:, None]) | (column >= stop[:, None])
        scores[barred] = 0.0 if plain else -np.inf
    return (plain_sum(scores) if plain else softmax(scores)), first
