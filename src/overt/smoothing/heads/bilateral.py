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
) -> RowMoments:
    """Attend to points near in time and in value: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (x_i − x_j)²/2h_x²), y_i = Σ_j W_ij x_j.

    The bilateral filter (Tomasi and Manduchi 1998, section 2). ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)²/h_x².

    Keys are the points with |t_i − t_j| <= window; of side="past" those of t_j <= t_i, of "future" of t_j >= t_i. Keys more than
    nine h_t beyond the nearest one are negligible. h_t may be infinite: then time enters through the window only.

    times (n,) ascending, values (n,), weights (n,) above 0 (None for 1). Returns (n,) each. Time O(n·window), memory O(n).

    >>> step = np.array([0.0, 0.2, 0.1, 8.0, 8.1])
    >>> attend_both(np.arange(5.0), step, None, 2.0, 0.5).values.round(2)
    array([0.09, 0.11, 0.11, 8.05, 8.05])
    """
    if side not in ("both", "past", "future"):
        raise InputError('side "both", "past" or "future"', got=repr(side), fix="choose one of them")
    keys, reach = BothKeys(TimeKeys(bandwidth_time), ValueKeys(bandwidth_value)), window * (1 + 1e-9)
    weights = None if weights is None or (weights == 1).all() else weights / weights.max()
    points = KeyPoints(np.ascontiguousarray(times), np.ascontiguousarray(values), weights)
    rates, reach = (0.5 / bandwidth_time**2, 0.5 / bandwidth_value**2), min(reach, keys.radius)
    outputs = RowMoments(*(np.full(times.size, np.nan) for _ in RowMoments._fields))
    if native.available() and side == "both":
        native.module().bilateral(*points, *rates, reach, native.threads(), *outputs)
        return outputs
    start = np.searchsorted(times, times if side == "future" else times - reach, side="left")
    stop = np.searchsorted(times, times if side == "past" else times + reach, side="right")
    key_range, rows = KeyRange(start, stop), np.arange(times.size)
    if native.available():
        native.module().bilateral_rows(*points, *rates, *points[:2], *key_range, rows, native.threads(), *outputs)
        return outputs
    for block in reached_blocks(key_range):
        for column, part in zip(outputs, _attend_block(keys, points, block, key_range.part(block)), strict=True):
            column[block] = part
    return outputs


def reached_blocks(key_range: KeyRange) -> Iterator[Indices]:
    """Blocks of rows, ascending in time, without those that reach no key."""
    rows = np.flatnonzero(key_range.stop > key_range.start)
    rows = rows[np.argsort(key_range.start[rows], kind="stable")]
    return (rows[block] for block in row_blocks(key_range.part(rows)))


def _attend_block(keys: BothKeys, key: KeyPoints, rows: Indices, key_range: KeyRange) -> RowMoments:
    """Some rows in NumPy."""
    span, first = key_range.span, key_range.span.start
    query = Points(key.times[rows], key.values[rows])
    scores = keys.scores(query, Points(key.times[span], key.values[span]))
    if key.weights is not None:
        scores += np.log(key.weights[span])
    column = np.arange(first, span.stop)
    scores[(column < key_range.start[:, None]) | (column >= key_range.stop[:, None])] = -np.inf
    weights = softmax(scores)  # (rows, keys)
    self_weights = weights[np.arange(rows.size), rows - first]
    step = key.values[span] - query.values[:, None]
    shift = (weights * step).sum(axis=1)  # y_i − x_i
    return RowMoments(query.values + shift, self_weights, (weights * (step - shift[:, None]) ** 2).sum(axis=1))
