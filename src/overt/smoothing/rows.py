"""Attention over a series, a block of rows at a time: memory is linear in the number of points, never n×n."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt.smoothing.even import attend_even, serves
from overt.smoothing.head import Head, Outputs
from overt.smoothing.keys import DotKeys, Points, Row
from overt.smoothing.normalize import plain_sum, softmax
from overt.smoothing.series import Floats, Indices, Series

# Scores held at a time: 2 MB of float64, so that a block and its temporaries stay in a processor's cache.
CELLS = 2**18
# Shorter blocks would spend their time in Python, however few keys they reach.
SHORTEST = 64


class Mix(NamedTuple):
    """A missing point as a mixture of its neighbours: (1 − share)·left + share·right; −1 where there is no neighbour."""

    left: Indices
    right: Indices
    share: Floats


def attend_rows(series: Series, head: Head, rows: Indices | None = None) -> Outputs:
    """y_i = Σ_j W_ij x_j and its derivative ∂y_i/∂x_i for the given rows (all by default), W = softmax_j(s).

    A missing point is no key. As a query it has its time; where the score needs its value as well, it becomes the
    straight line between the smoothed neighbours. It stays NaN where it may attend to nothing. Rows are ascending.
    """
    rows = np.arange(series.times.size) if rows is None else rows
    if not serves(series, head):
        return attend_directly(series, head, rows)
    outputs = Outputs(*(column[rows] for column in attend_even(series, head)))
    left = np.flatnonzero(np.isnan(outputs.values))
    if left.size:
        outputs.values[left], outputs.slopes[left] = attend_directly(series, head, rows[left])
    return outputs


def attend_directly(series: Series, head: Head, rows: Indices, cells: int = CELLS) -> Outputs:
    """The same by its definition, blocks of rows of at most about `cells` scores."""
    outputs = Outputs(np.full(rows.size, np.nan), np.full(rows.size, np.nan))
    missing = np.isnan(series.values[rows])
    direct = np.flatnonzero(~missing) if head.keys.needs_value else np.arange(rows.size)
    start, stop = intervals(series, head, rows[direct])
    for block in _blocks(start, stop, cells):
        found = _attend_block(series, head, rows[direct[block]], start[block], stop[block])
        outputs.values[direct[block]], outputs.slopes[direct[block]] = found
    if head.keys.needs_value and missing.any():
        outputs.values[missing] = _fill(series, head, rows[missing], cells)
    return outputs


def row_weights(series: Series, head: Head, row: int) -> Floats:
    """The weights W_ij of one row over all points (n,), zero where the point is missing or barred."""
    weights = np.zeros(series.times.size)
    if head.keys.needs_value and np.isnan(series.values[row]):
        mix = neighbours(series, head, np.array([row]))
        for neighbour, share in ((mix.left[0], 1 - mix.share[0]), (mix.right[0], mix.share[0])):
            if neighbour >= 0 and share > 0:
                weights += share * row_weights(series, head, int(neighbour))
        return weights
    start, stop = intervals(series, head, np.array([row]))
    found, first = _weights(series, head, np.array([row]), start, stop)
    weights[series.present[first : first + found.shape[1]]] = found[0]
    return weights


def intervals(series: Series, head: Head, rows: Indices) -> tuple[Indices, Indices]:
    """The keys that each row may attend to, as start and stop of a range of the present points."""
    times, key_times = series.times[rows], series.key_times
    reach = np.minimum(head.reach, _radius(series, head, rows))
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


def _radius(series: Series, head: Head, rows: Indices) -> Floats:
    """Distance beyond which a key weighs nothing beside the nearest one, which is the point itself if it is present."""
    times, key_times = series.times[rows], series.key_times
    after = np.minimum(np.searchsorted(key_times, times), key_times.size - 1)
    before = np.maximum(after - 1, 0)
    before_only = head.causal | (np.abs(times - key_times[before]) < np.abs(key_times[after] - times))
    nearest = np.where(before_only, times - key_times[before], key_times[after] - times)
    nearest = np.where(np.isnan(series.values[rows]), np.abs(nearest), 0.0)
    # Relative to the nearest key's weight: exp(−(d² − nearest²)/2h²) is negligible where d² > nearest² + radius².
    return np.hypot(nearest, head.keys.radius)


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


def _attend_block(series: Series, head: Head, rows: Indices, start: Indices, stop: Indices) -> Outputs:
    weights, first = _weights(series, head, rows, start, stop)
    values = series.key_values[first : first + weights.shape[1]]
    outputs = weights @ values  # (rows,)
    outputs[start == stop] = np.nan
    slopes = np.full(rows.size, np.nan)
    here = np.flatnonzero(~np.isnan(series.values[rows]))
    own = np.searchsorted(series.present, rows[here]) - first
    # Summing squares of differences, not taking the difference of squares, keeps the variance's digits.
    variance = (
        ((values - outputs[here, None]) ** 2 * weights[here]).sum(axis=1) if head.keys.needs_value else np.zeros(here.size)
    )
    row = Row(weights[here, own], variance, series.values[rows[here]], outputs[here])
    slopes[here] = head.keys.slope(row)
    return Outputs(outputs, slopes)


def _weights(series: Series, head: Head, rows: Indices, start: Indices, stop: Indices) -> tuple[Floats, int]:
    """Weights of a block over the range of keys that its rows reach together, and where that range starts."""
    first, last = int(start.min()), int(stop.max())
    plain = isinstance(head.keys, DotKeys) and head.keys.plain_sum
    query = Points(series.times[rows], series.values[rows])
    key = Points(series.key_times[first:last], series.key_values[first:last])
    scores = head.keys.scores(query, key)  # (rows, last - first)
    if head.causal or np.isfinite(head.window):
        column = np.arange(first, last)
        barred = (column < start[:, None]) | (column >= stop[:, None])
        scores[barred] = 0.0 if plain else -np.inf
    return (plain_sum(scores) if plain else softmax(scores)), first


def _fill(series: Series, head: Head, rows: Indices, cells: int) -> Floats:
    mix = neighbours(series, head, rows)
    needed = np.unique(np.concatenate([mix.left, mix.right]))
    needed = needed[needed >= 0]
    smoothed = np.full(series.times.size + 1, np.nan)  # the last entry stands for "no neighbour"
    smoothed[needed] = attend_directly(series, head, needed, cells).values
    left, right = smoothed[mix.left], smoothed[mix.right]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    return left + mix.share * (right - left)
