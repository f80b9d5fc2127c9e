"""Keys of time and value together: the bilateral filter, over the keys within a window."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import BothKeys, Points, TimeKeys, ValueKeys
from overt.smoothing.heads.normalize import softmax

# Scores held at a time, and the fewest rows worth a block.
CELLS = 2**18
SHORTEST = 64


class Pairs(NamedTuple):
    """Row by row: y_i, W_ii, and Σ_j W_ij (x_j − y_i)²."""

    values: Floats
    own: Floats
    variance: Floats


class Reach(NamedTuple):
    """The keys that each row may attend to: start <= j < stop."""

    start: Indices
    stop: Indices


class Charged(NamedTuple):
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
) -> Pairs:
    """Attend to what is near in time and in value: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (x_i − x_j)²/2h_x²), y_i = Σ_j W_ij x_j.

    The bilateral filter (Tomasi and Manduchi 1998, section 2). ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)²/h_x².

    Keys are the points with |t_i − t_j| <= window; of side="past" those of t_j <= t_i, of "future" of t_j >= t_i. They are counted up
    to nine h_t beyond the nearest one. h_t may be infinite: then time counts through the window only.

    times (n,) ascending, values (n,), weights (n,) 0 or more (None for 1); `targets` other points, in any order, (m,) times and
    values; None for the points themselves. Returns values, own and variance, (m,): own is 0 for a point of weight 0 and NaN
    for targets, and a row without a key in reach is NaN. Time O(n·window), memory O(n).

    >>> step = np.array([0.0, 0.2, 0.1, 8.0, 8.1])
    >>> attend_both(np.arange(5.0), step, None, 2.0, 0.5).values.round(2)
    array([0.09, 0.11, 0.11, 8.05, 8.05])
    """
    if side not in ("both", "past", "future"):
        raise InputError('a side is "both", "past" or "future"', got=repr(side), fix="choose one of them")
    key, charged = _charged(times, values, weights)
    keys = BothKeys(TimeKeys(bandwidth_time), ValueKeys(bandwidth_value))
    if targets is not None:
        reach = _reach(key.times, targets.times, keys.radius, window, side)
        found = _attend_rows(keys, key, targets, reach, np.full(targets.times.size, -1))
        return found._replace(own=np.full(targets.times.size, np.nan))
    points, place = Points(times, values), np.where(charged, np.cumsum(charged) - 1, -1)
    if side != "both" or not native.available():
        return _attend_rows(keys, key, points, _reach(key.times, times, keys.radius, window, side), place)
    mutual = _attend_mutually(keys, key, min(window * (1 + 1e-9), keys.radius))
    if charged.all():
        return mutual
    rest = Points(times[~charged], values[~charged])
    others = _attend_rows(keys, key, rest, _reach(key.times, rest.times, keys.radius, window, side), place[~charged])
    found = Pairs(*(np.empty(times.size) for _ in Pairs._fields))
    for column, theirs, ours in zip(found, mutual, others, strict=True):
        column[charged], column[~charged] = theirs, ours
    return found


def _charged(times: Floats, values: Floats, weights: Floats | None) -> tuple[Charged, np.ndarray]:
    """The points that serve as keys, the largest weight 1, and which they are."""
    if weights is None or (weights == 1).all():
        return Charged(times, values, None), np.ones(times.size, bool)
    charged = weights > 0
    return Charged(times[charged], values[charged], weights[charged] / weights.max(initial=0.0)), charged


def _reach(key_times: Floats, times: Floats, radius: float, window: float, side: str) -> Reach:
    if key_times.size == 0:
        return Reach(np.zeros(times.size, np.intp), np.zeros(times.size, np.intp))
    after = np.minimum(np.searchsorted(key_times, times, side="left"), key_times.size - 1)
    before = np.maximum(np.searchsorted(key_times, times, side="right") - 1, 0)
    ahead, behind = np.abs(key_times[after] - times), np.abs(times - key_times[before])
    nearest = {"both": np.minimum(ahead, behind), "past": behind, "future": ahead}[side]
    reach = np.minimum(window * (1 + 1e-9), np.hypot(nearest, radius))
    start = np.searchsorted(key_times, times if side == "future" else times - reach, side="left")
    stop = np.searchsorted(key_times, times if side == "past" else times + reach, side="right")
    return Reach(start, np.maximum(start, stop))


def _attend_mutually(keys: BothKeys, key: Charged, reach: float) -> Pairs:
    """Keys that attend to each other, in C++."""
    found = Pairs(*(np.empty(key.times.size) for _ in Pairs._fields))
    native.module().bilateral(*map(_whole, key), *_rates(keys), reach, native.threads(), *found)
    return found


def _attend_rows(keys: BothKeys, key: Charged, query: Points, reach: Reach, place: Indices) -> Pairs:
    """Row by row; `place` is where among the keys the point itself is, −1 where it is none."""
    if not native.available():
        return attend_blocks(keys, key, query, reach, place)
    found = Pairs(*(np.empty(place.size) for _ in Pairs._fields))
    rows = *map(_whole, query), *reach, place
    native.module().bilateral_rows(*map(_whole, key), *_rates(keys), *rows, native.threads(), *found)
    return found


def _whole(numbers: Floats | None) -> Floats | None:
    return None if numbers is None else np.ascontiguousarray(numbers)


def _rates(keys: BothKeys) -> tuple[float, float]:
    return 0.5 / keys.time.bandwidth**2, 0.5 / keys.value.bandwidth**2


def attend_blocks(keys: BothKeys, key: Charged, query: Points, reach: Reach, place: Indices) -> Pairs:
    """The same in NumPy, in blocks of rows."""
    found = Pairs(*(np.full(place.size, np.nan) for _ in Pairs._fields))
    for rows in blocks(reach):
        block = Reach(*(column[rows] for column in reach))
        result = _attend_block(keys, key, Points(*(column[rows] for column in query)), block, place[rows])
        for column, part in zip(found, result, strict=True):
            column[rows] = part
    return found


def blocks(reach: Reach) -> Iterator[Indices]:
    """Runs of rows, ascending in time, whose scores together fit into CELLS; rows that reach no key are left out."""
    rows = np.flatnonzero(reach.stop > reach.start)
    rows = rows[np.argsort(reach.start[rows], kind="stable")]
    while rows.size:
        count = min(max(SHORTEST, int(reach.stop[rows[0]] - reach.start[rows[0]])), rows.size)
        while count > 1 and count * _width(reach, rows[:count]) > CELLS:
            count = (count + 1) // 2
        yield rows[:count]
        rows = rows[count:]


def _width(reach: Reach, rows: Indices) -> int:
    return int(reach.stop[rows].max() - reach.start[rows].min())


def _attend_block(keys: BothKeys, key: Charged, query: Points, reach: Reach, place: Indices) -> Pairs:
    first, last = int(reach.start.min()), int(reach.stop.max())
    scores = keys.scores(query, Points(key.times[first:last], key.values[first:last]))
    if key.weights is not None:
        scores += np.log(key.weights[first:last])
    column = np.arange(first, last)
    scores[(column < reach.start[:, None]) | (column >= reach.stop[:, None])] = -np.inf
    weights = softmax(scores)  # (rows, last - first)
    own = np.where(place >= 0, weights[np.arange(place.size), np.maximum(place - first, 0)], 0.0)
    step = key.values[first:last] - query.values[:, None]
    shift = (weights * step).sum(axis=1)  # y_i − x_i
    return Pairs(query.values + shift, own, (weights * (step - shift[:, None]) ** 2).sum(axis=1))
