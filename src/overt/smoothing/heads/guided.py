"""Keys of time and of a guide: the bilateral filter, where what is compared is a curve that is already smooth.

Comparing noisy values, a filter tends to keep the noise: a point that is far off finds few that are alike. A first, smoothed
curve says better which points belong together; averaged are still the values themselves.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.bilateral import Reach, blocks
from overt.smoothing.heads.normalize import softmax

SIDES = ("both", "past", "future")
# Beyond this many bandwidths a weight is below 2^-970: less than any that counts.
UNDERFLOW = 37.0
# Squarings in a row: each doubles an error.
SQUARINGS = 4


class Guided(NamedTuple):
    """Bandwidth by bandwidth, all (k, n): y_i, W_ii, and Σ_j W_ij (g_j − g_i)(x_j − y_i)."""

    values: Floats
    own: Floats
    covariance: Floats


@dataclass(frozen=True)
class Task:
    """What is attended, ready for arithmetic: times in steps where they are even, bandwidths widest first."""

    times: Floats  # (n,) ascending
    guide: Floats  # (n,)
    values: Floats  # (n,)
    weights: Floats | None  # (n,) 0 or more, the largest 1; None: all 1
    bandwidths: Floats  # (k,)
    bandwidth_time: float
    window: float
    side: str
    even: bool  # times are 0, 1, 2, …

    @property
    def rate_time(self) -> float:
        """1 / 2h_t²."""
        return 0.5 / self.bandwidth_time**2


def attend_guided(
    times: Floats,
    guide: Floats,
    values: Floats,
    weights: Floats | None,
    bandwidths: ArrayLike,
    *,
    bandwidth_time: float,
    window: float,
    side: str = "both",
) -> Guided:
    """Attend to what is near in time and where a guide is alike: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (g_i − g_j)²/2h²).

    The joint bilateral filter (Petschnigg et al. 2004, section 4.1; Eisemann and Durand 2004), y_i = Σ_j W_ij x_j. If g_i moves
    with x_i, and what else the guide does is taken as given,

        ∂y_i/∂x_i = W_ii + ∂g_i/∂x_i · Σ_j W_ij (g_j − g_i)(x_j − y_i) / h²,

    which for g = x is the bilateral filter's own derivative.

    Keys are the points with |t_i − t_j| <= window; of side="past" those of t_j <= t_i, of "future" of t_j >= t_i. h_t may be infinite:
    then time counts through the window only.

    times (n,) ascending, guide and values (n,), weights (n,) 0 or more (None for 1), bandwidths (k,) h, in the guide's unit. All have
    outputs (k, n), those of weight 0 too, with own weight 0; a row without a key in reach is NaN. Time O(n·window), and least for
    bandwidths that are powers of two apart; memory O(n·k).

    >>> guide, noisy = np.array([0.0, 0.0, 0.0, 8.0, 8.0]), np.array([0.0, 0.2, 0.1, 8.0, 8.2])
    >>> attend_guided(np.arange(5.0), guide, noisy, None, [0.5], bandwidth_time=np.inf, window=4.0).values
    array([[0.1, 0.1, 0.1, 8.1, 8.1]])
    """
    given = np.asarray(bandwidths, np.float64)
    if given.ndim != 1 or given.size == 0 or not (given > 0).all():
        raise InputError("bandwidths are one or more numbers above 0", got=np.array2string(given), fix="pass a list of them")
    if side not in SIDES:
        raise InputError('a side is "both", "past" or "future"', got=repr(side), fix="choose one of them")
    largest = 1.0 if weights is None else weights.max(initial=0.0)
    if weights is not None:
        weights = None if (weights == 1).all() else weights / (largest or 1.0)
    widest = np.argsort(-given, kind="stable")
    task = in_steps(Task(times, guide, values, weights, given[widest], bandwidth_time, window, side, even=False))
    found = attend_pairs(task) if native.available() else attend_rows(task, np.arange(times.size))
    return Guided(*(column[np.argsort(widest)] for column in found))


def in_steps(task: Task) -> Task:
    """The same with times 0, 1, 2, … where they are even."""
    count = task.times.size
    step = (task.times[-1] - task.times[0]) / (count - 1) if count > 1 else 0.0
    place = np.arange(count, dtype=np.float64)
    if not step > 0 or np.abs(task.times - task.times[0] - step * place).max() > 1e-9 * step:
        return task
    return replace(task, times=place, bandwidth_time=task.bandwidth_time / step, window=task.window / step, even=True)


def attend_pairs(task: Task) -> Guided:
    """In C++, where one exponential serves both directions of a pair; rows whose weights underflow there as in NumPy."""
    count = task.times.size
    found = Guided(*(np.empty((task.bandwidths.size, count)) for _ in Guided._fields))
    if count == 0:
        return found
    reach = min(task.window * (1 + 1e-9), UNDERFLOW * task.bandwidth_time, task.times[-1] - task.times[0])
    lags = np.arange(np.floor(reach) + 1 if task.even else 0)
    native.module().guided(
        *(np.ascontiguousarray(column) for column in (task.times, task.guide, task.values)),
        None if task.weights is None else np.ascontiguousarray(task.weights),
        *(task.rate_time, reach, np.exp(-task.rate_time * lags**2)),
        *(0.5 / task.bandwidths**2, squarings(task.bandwidths)),
        *(SIDES.index(task.side), native.threads()),
        *found,
    )
    rows = np.flatnonzero(np.isnan(found.values).any(axis=0))
    for column, redone in zip(found, attend_rows(task, rows), strict=True):
        column[:, rows] = redone
    return found


def squarings(bandwidths: Floats) -> Indices:
    """How often exp(−d²/2h²) of the bandwidth before is squared to be that of each; 0 where it is computed anew.

    >>> squarings(np.array([4.0, 2.0, 1.0, 0.5, 0.3]))
    array([0, 2, 2, 0, 0])
    """
    found = np.zeros(bandwidths.size, np.intp)
    in_a_row = 0
    for b, (wider, narrower) in enumerate(pairwise(bandwidths), start=1):
        times = 2 * np.log2(wider / narrower)
        if times == np.rint(times) and 0 < times <= SQUARINGS - in_a_row:
            found[b] = times
        in_a_row = in_a_row + found[b] if found[b] else 0
    return found


def attend_rows(task: Task, rows: Indices) -> Guided:
    """Some rows, in NumPy, in blocks; weights are relative to a row's largest."""
    found = Guided(*(np.full((task.bandwidths.size, rows.size), np.nan) for _ in Guided._fields))
    times, window = task.times[rows], task.window * (1 + 1e-9)
    start = np.searchsorted(task.times, times if task.side == "future" else times - window, side="left")
    stop = np.searchsorted(task.times, times if task.side == "past" else times + window, side="right")
    for part in blocks(Reach(start, stop)):
        result = _attend_block(task, rows[part], Reach(start[part], stop[part]))
        for column, block in zip(found, result, strict=True):
            column[:, part] = block
    return found


def _attend_block(task: Task, rows: Indices, reach: Reach) -> Guided:
    near = slice(int(reach.start.min()), int(reach.stop.max()))
    place = np.arange(near.start, near.stop)
    allowed = (place >= reach.start[:, None]) & (place < reach.stop[:, None])
    weights = np.ones(place.size) if task.weights is None else task.weights[near]
    gap, rise, step = (column[near] - column[rows, None] for column in (task.times, task.guide, task.values))
    scores = np.where(allowed & (weights > 0), -task.rate_time * gap**2, -np.inf)  # (rows, keys)
    scores += np.log(np.where(weights > 0, weights, 1.0))
    found = []
    for bandwidth in task.bandwidths:
        shares = softmax(scores - 0.5 * (rise / bandwidth) ** 2)
        shares[~shares.any(axis=1)] = np.nan
        shift = (shares * step).sum(axis=1)  # y_i − x_i
        own = shares[np.arange(rows.size), rows - near.start]
        found.append((task.values[rows] + shift, own, (shares * rise * (step - shift[:, None])).sum(axis=1)))
    return Guided(*(np.stack(column) for column in zip(*found, strict=True)))
