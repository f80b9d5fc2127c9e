"""Keys of time and value together: the bilateral filter, over the keys within a window."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.blocks import KeyRange, row_blocks
from overt.smoothing.heads.keys import BothKeys, Points, RowMoments, TimeKeys, ValueKeys
from overt.smoothing.heads.normalize import softmax


class KeyPoints(NamedTuple):
    """Points that serve as keys: times ascending, values, and weights above 0, all (n,)."""

    times: Floats
    values: Floats
    weights: Floats | None  # None: all 1


def attend_both(
    times: Floats,
    values: Floats,
    weights: Floats | None,
    bandwidth_time: float,
    bandwidth_value: float,
    *,
    window: float = np.inf,
    side: str = "both",
    targets: Points | None = None,
) -> RowMoments:
    """Attend to points near in time and in value: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (x_i − x_j)²/2h_x²), y_i = Σ_j W_ij x_j.

    The bilateral filter (Tomasi and Manduchi 1998, section 2). ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)²/h_x².

    Keys are the points with |t_i − t_j| <= window; of side="past" those of t_j <= t_i, of "future" of t_j >= t_i. Keys more than
    nine h_t beyond the nearest one are negligible. h_t may be infinite: then time enters through the window only.

    times (n,) ascending, values (n,), weights (n,) 0 or more (None for 1); `targets` other points, in any order, (m,) times and
    values; None for the points themselves. Returns (m,) each: self weights are 0 for a point of weight 0 and NaN for
    targets, and a row without a key within range is NaN. Time O(n·window), memory O(n).

    >>> step = np.array([0.0, 0.2, 0.1, 8.0, 8.1])
    >>> attend_both(np.arange(5.0), step, None, 2.0, 0.5).values.round(2)
    array([0.09, 0.11, 0.11, 8.05, 8.05])
    """
    if side not in ("both", "past", "future"):
        raise InputError('side "both", "past" or "future"', got=repr(side), fix="choose one of them")
    key, is_key = _key_points(times, values, weights)
    keys = BothKeys(TimeKeys(bandwidth_time), ValueKeys(bandwidth_value))
    if targets is not None:
        outputs = _attend_rows(keys, key, targets, window, side, np.full(targets.times.size, -1))
        return outputs._replace(self_weights=np.full(targets.times.size, np.nan))
    points, self_index = Points(times, values), np.where(is_key, np.cumsum(is_key) - 1, -1)
    if side != "both" or not native.available():
        return _attend_rows(keys, key, points, window, side, self_index)
    mutual = _attend_mutually(keys, key, min(window * (1 + 1e-9), keys.radius))
    if is_key.all():
        return mutual
    others = _attend_rows(keys, key, Points(times[~is_key], values[~is_key]), window, side, self_index[~is_key])
    outputs = RowMoments(*(np.empty(times.size) for _ in RowMoments._fields))
    for column, at_keys, elsewhere in zip(outputs, mutual, others, strict=True):
        column[is_key], column[~is_key] = at_keys, elsewhere
    return outputs


def _key_points(times: Floats, values: Floats, weights: Floats | None) -> tuple[KeyPoints, np.ndarray]:
    """The points that serve as keys, with the largest weight scaled to 1, and which points these are."""
    if weights is None or (weights == 1).all():
        return KeyPoints(times, values, None), np.ones(times.size, bool)
    is_key = weights > 0
    return KeyPoints(times[is_key], values[is_key], weights[is_key] / weights.max(initial=0.0)), is_key


def _key_range(key_times: Floats, times: Floats, radius: float, window: float, side: str) -> KeyRange:
    if key_times.size == 0:
        return KeyRange(np.zeros(times.size, np.intp), np.zeros(times.size, np.intp))
    after = np.minimum(np.searchsorted(key_times, times, side="left"), key_times.size - 1)
    before = np.maximum(np.searchsorted(key_times, times, side="right") - 1, 0)
    ahead, behind = np.abs(key_times[after] - times), np.abs(times - key_times[before])
    nearest = {"both": np.minimum(ahead, behind), "past": behind, "future": ahead}[side]
    reach = np.minimum(window * (1 + 1e-9), np.hypot(nearest, radius))
    start = np.searchsorted(key_times, times if side == "future" else times - reach, side="left")
    stop = np.searchsorted(key_times, times if side == "past" else times + reach, side="right")
    return KeyRange(start, np.maximum(start, stop))


def _attend_mutually(keys: BothKeys, key: KeyPoints, reach: float) -> RowMoments:
    """Keys that attend to each other, in C++."""
    outputs = RowMoments(*(np.empty(key.times.size) for _ in RowMoments._fields))
    native.module().bilateral(*map(_contiguous, key), *_rates(keys), reach, native.threads(), *outputs)
    return outputs


def _attend_rows(keys: BothKeys, key: KeyPoints, query: Points, window: float, side: str, self_index: Indices) -> RowMoments:
    """Row by row; `self_index` is the index of the point itself among the keys, −1 where it is none."""
    key_range = _key_range(key.times, query.times, keys.radius, window, side)
    if not native.available():
        return attend_blocks(keys, key, query, key_range, self_index)
    outputs = RowMoments(*(np.empty(self_index.size) for _ in RowMoments._fields))
    rows = *map(_contiguous, query), *key_range, self_index
    native.module().bilateral_rows(*map(_contiguous, key), *_rates(keys), *rows, native.threads(), *outputs)
    return outputs


def _contiguous(numbers: Floats | None) -> Floats | None:
    return None if numbers is None else np.ascontiguousarray(numbers)


def _rates(keys: BothKeys) -> tuple[float, float]:
    return 0.5 / keys.time.bandwidth**2, 0.5 / keys.value.bandwidth**2


def attend_blocks(keys: BothKeys, key: KeyPoints, query: Points, key_range: KeyRange, self_index: Indices) -> RowMoments:
    """The same in NumPy, in blocks of rows."""
    outputs = RowMoments(*(np.full(self_index.size, np.nan) for _ in RowMoments._fields))
    for rows in reached_blocks(key_range):
        block = Points(query.times[rows], query.values[rows])
        block_outputs = _attend_block(keys, key, block, key_range.part(rows), self_index[rows])
        for column, part in zip(outputs, block_outputs, strict=True):
            column[rows] = part
    return outputs


def reached_blocks(key_range: KeyRange) -> Iterator[Indices]:
    """Blocks of rows, ascending in time, without those that reach no key."""
    rows = np.flatnonzero(key_range.stop > key_range.start)
    rows = rows[np.argsort(key_range.start[rows], kind="stable")]
    return (rows[block] for block in row_blocks(key_range.part(rows)))


def _attend_block(keys: BothKeys, key: KeyPoints, query: Points, key_range: KeyRange, self_index: Indices) -> RowMoments:
    span, first = key_range.span, key_range.span.start
    scores = keys.scores(query, Points(key.times[span], key.values[span]))
    if key.weights is not None:
        scores += np.log(key.weights[span])
    column = np.arange(first, span.stop)
    scores[(column < key_range.start[:, None]) | (column >= key_range.stop[:, None])] = -np.inf
    weights = softmax(scores)  # (rows, keys)
    self_weights = np.where(self_index >= 0, weights[np.arange(self_index.size), np.maximum(self_index - first, 0)], 0.0)
    step = key.values[span] - query.values[:, None]
    shift = (weights * step).sum(axis=1)  # y_i − x_i
    return RowMoments(query.values + shift, self_weights, (weights * (step - shift[:, None]) ** 2).sum(axis=1))
