"""Patch keys: two points are similar where the stretches of the series around them are, non-local means in one dimension.

The distance of two patches depends on both places only through squared differences x_p − x_{p+lag}, so the work goes lag by
lag: one row of squares a lag, summed under the profile, serves every pair of points that far apart, in both directions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices

# A row whose weights add up to less than this has no key near it; they are then taken relative to the nearest one's.
FAINT = 2.0**-900
# Numbers held at a time where whole rows are built.
CELLS = 2**18


class Patches(NamedTuple):
    """Bandwidth by bandwidth, all (k, n): y_i, ∂y_i/∂x_i (NaN where x_i is missing), and W_ii."""

    values: Floats
    slopes: Floats
    own: Floats


@dataclass(frozen=True)
class Task:
    """What is attended, ready for arithmetic: x_p is padded[p + profile.size // 2], and stands for point source[the same]."""

    values: Floats  # (n,)
    charges: Floats  # (n,) w_j, 0 where a value is missing
    padded: Floats  # (n + 2p,)
    source: Indices  # (n + 2p,)
    profile: Floats  # (2p + 1,)
    rates: Floats  # (k,) 1 / 2h²
    window: int
    past: bool

    @property
    def half(self) -> int:
        """p, how far a patch reaches."""
        return self.profile.size // 2


class Sums(NamedTuple):
    """Row by row, all (k, n): Σ_j v_ij of these, v_ij = w_j exp(−d_ij/2h²) and u_ij = g_{i−j} (x_{2i−j} − x_i)."""

    total: Floats  # 1
    first: Floats  # x_j − x_i
    second: Floats  # (x_j − x_i)²
    bend: Floats  # u_ij, over j ≠ i
    tilt: Floats  # u_ij (x_j − x_i)


def attend_patch(
    values: Floats,
    present: np.ndarray,
    weights: Floats | None = None,
    *,
    profile: ArrayLike,
    bandwidths: ArrayLike,
    window: int,
    side: str = "both",
) -> Patches:
    """Attend over points whose surroundings are alike: W_ij ∝ w_j exp(−d_ij/2h²), d_ij = Σ_m g_m (x_{i+m} − x_{j+m})².

    Non-local means (Buades, Coll and Morel 2005, section 3) in one dimension, with its full derivative. Moving x_i moves its
    own patch and that of every key whose patch contains i:

        ∂y_i/∂x_i = W_ii + [g_0 Var_{W_i}(x) + Σ_{j≠i} W_ij g_{i−j} (x_{2i−j} − x_i)(x_j − y_i)] / h²

    Keys are the present points j with |i − j| ≤ window, for side="past" those of j ≤ i. Beyond its ends the series is taken
    as reflected (x_{−1} = x_1), for side="past", where that would be the future, as constant; the derivative knows of it.

    values (n,), in sequence order, hold something reasonable where `present` (n,) is False: there a patch may look, but no weight
    goes; the derivative takes them for constants. weights (n,) are w_j, 0 or more; None for 1. profile (2p + 1,) is g_{−p} … g_p, 0 or
    more; bandwidths (k,) are h, in the unit of the values times √Σg. They cost least in ascending order by factors of √2 or 2: then
    the exponentials of each are those of the next, squared. Returns values, slopes and own weights (k, n); rows that reach no key
    are NaN. Time O(n·window·(p + k)), memory O(n·k).

    InputError for a profile that looks ahead with side="past".

    >>> up_and_down = np.array([0.0, 4.0, 0.0, 4.0, 0.0, 5.0])
    >>> attend_patch(up_and_down, up_and_down >= 0, profile=[1, 1, 1], bandwidths=[0.5], window=5).values.round(1)
    array([[0. , 4.1, 0. , 4.1, 0. , 4.8]])
    """
    profile, bandwidths = np.asarray(profile, np.float64), np.asarray(bandwidths, np.float64)
    _check(profile, bandwidths, side)
    half, past = profile.size // 2, side == "past"
    source = np.pad(np.arange(values.size), half, mode="edge" if past else "reflect")
    charges = np.where(present, 1.0 if weights is None else weights, 0.0)
    window = min(window, values.size - 1)
    task = Task(values, charges, values[source], source, profile, 0.5 / bandwidths**2, window, past)
    attend, attend_at = (_natively, _rows_natively) if native.available() else (attend_by_lag, attend_rows)
    found = attend(task)
    # Near a reflected end x_i appears more than once in a patch.
    place = np.arange(values.size)
    ends = (place <= half) | (place >= values.size - 1 - half) if not past else np.zeros(values.size, bool)
    rows = np.flatnonzero(ends | np.isnan(found.values).any(axis=0))
    for column, redone in zip(found, attend_at(task, rows), strict=True):
        column[:, rows] = redone
    found.slopes[:, ~np.asarray(present)] = np.nan
    return found


def _check(profile: Floats, bandwidths: Floats, side: str) -> None:
    if profile.ndim != 1 or profile.size % 2 == 0 or not (np.isfinite(profile) & (profile >= 0)).all():
        fix = "pass g_{−p} … g_p"
        raise InputError("a profile is an odd number of finite weights, 0 or more", got=np.array2string(profile), fix=fix)
    if bandwidths.ndim != 1 or not (bandwidths > 0).all():
        raise InputError("bandwidths are numbers above 0", got=np.array2string(bandwidths), fix="pass a list of them")
    if side not in ("both", "past"):
        raise InputError('a side is "both" or "past"', got=repr(side), fix="choose one of them")
    if side == "past" and profile[profile.size // 2 + 1 :].any():
        fix = 'make g_m = 0 for m > 0, or pass side="both"'
        raise InputError('with side="past" a patch reaches into the past only', got=np.array2string(profile), fix=fix)


def _natively(task: Task) -> Patches:
    """`attend_by_lag` in C++."""
    charges = None if (task.charges == 1).all() else task.charges
    found = Patches(*(np.empty((task.rates.size, task.values.size)) for _ in Patches._fields))
    arguments = task.padded, charges, task.profile, task.rates, task.window, task.past
    native.module().patch(*arguments, native.threads(), *found)
    return found


def _rows_natively(task: Task, rows: Indices) -> Patches:
    """`attend_rows` in C++."""
    found = Patches(*(np.empty((task.rates.size, rows.size)) for _ in Patches._fields))
    arguments = task.padded, task.source, task.charges, task.profile, task.rates, task.window, task.past, rows
    native.module().patch_rows(*arguments, native.threads(), *found)
    return found


def attend_by_lag(task: Task) -> Patches:
    """The rows whose patches stay within the series; NaN where a row's weights underflow."""
    sums = Sums(*(np.zeros((task.rates.size, task.values.size)) for _ in Sums._fields))
    sums.total[:] = task.charges  # a point's own distance is 0
    for lag in range(1, task.window + 1):
        squares = (task.padded[lag:] - task.padded[:-lag]) ** 2
        distances = np.correlate(squares, task.profile, "valid")  # (n - lag,) of the points i and i + lag
        for bandwidth, rate in enumerate(task.rates):
            row = Sums(*(column[bandwidth] for column in sums))
            _add_lag(task, row, np.exp(-rate * distances), lag)
    return _settle(task, sums)


def _add_lag(task: Task, sums: Sums, similar: Floats, lag: int) -> None:
    """Add what points a lag apart give to each other; `similar` (n − lag,) are exp(−d_ij/2h²)."""
    x, p = task.values, task.half
    step = x[lag:] - x[:-lag]
    early, late = slice(None, -lag), slice(lag, None)
    _add(sums, late, similar * task.charges[early], -step)
    if not task.past:
        _add(sums, early, similar * task.charges[late], step)
    if lag > p:
        return
    # x_{2i−j}, on the other side of i.
    ahead, behind = task.padded[p + 2 * lag : p + lag + x.size], task.padded[p - lag : p - 2 * lag + x.size]
    _add_bend(sums, late, similar * task.charges[early] * task.profile[p + lag] * (ahead - x[late]), -step)
    if not task.past:
        _add_bend(sums, early, similar * task.charges[late] * task.profile[p - lag] * (behind - x[early]), step)


def _add(sums: Sums, rows: slice, weights: Floats, step: Floats) -> None:
    sums.total[rows] += weights
    weights = weights * step
    sums.first[rows] += weights
    weights *= step
    sums.second[rows] += weights


def _add_bend(sums: Sums, rows: slice, weights: Floats, step: Floats) -> None:
    sums.bend[rows] += weights
    sums.tilt[rows] += weights * step


def _settle(task: Task, sums: Sums) -> Patches:
    total = np.where(sums.total < FAINT, np.nan, sums.total)
    shift = sums.first / total  # y_i − x_i
    variance = sums.second / total - shift**2
    own = task.charges / total
    moved = task.profile[task.half] * variance + (sums.tilt - shift * sums.bend) / total
    return Patches(task.values + shift, own + 2 * task.rates[:, None] * moved, own)


def attend_rows(task: Task, rows: Indices) -> Patches:
    """The same by its definition, for some rows: at the ends, and far from all keys, where weights are relative to the largest."""
    found = Patches(*(np.empty((task.rates.size, rows.size)) for _ in Patches._fields))
    length = max(1, CELLS // ((2 * task.window + 1) * task.profile.size))
    for start in range(0, rows.size, length):
        part = slice(start, start + length)
        for column, block in zip(found, _attend_block(task, rows[part]), strict=True):
            column[:, part] = block
    return found


def _attend_block(task: Task, rows: Indices) -> Patches:
    keys = rows[:, None] + np.arange(-task.window, 1 if task.past else task.window + 1)  # (rows, keys)
    inside = (keys >= 0) & (keys < task.values.size)
    keys = np.where(inside, keys, rows[:, None])
    charges = np.where(inside, task.charges[keys], 0.0)
    distances, pulls = _distances(task, rows, keys)
    outputs = []
    for rate in task.rates:
        scores = np.where(charges > 0, -rate * distances, -np.inf)
        peak = scores.max(axis=1, keepdims=True)
        weights = charges * np.exp(scores - np.where(np.isinf(peak), 0.0, peak))
        total = weights.sum(axis=1, keepdims=True)
        weights /= np.where(total > 0, total, np.nan)
        step = task.values[keys] - task.values[rows, None]
        shift = (weights * step).sum(axis=1)
        own = weights[:, task.window]
        slopes = own - 2 * rate * (weights * pulls * (step - shift[:, None])).sum(axis=1)
        outputs.append((task.values[rows] + shift, slopes, own))
    return Patches(*(np.stack(column) for column in zip(*outputs, strict=True)))


def _distances(task: Task, rows: Indices, keys: Indices) -> tuple[Floats, Floats]:
    """d_ij and ½ ∂d_ij/∂x_i, both (rows, keys)."""
    patches, places = (sliding_window_view(along, task.profile.size) for along in (task.padded, task.source))  # (n, 2p + 1)
    difference = patches[rows, None] - patches[keys]  # (rows, keys, 2p + 1)
    moves = (places[rows, None] == rows[:, None, None]).astype(float) - (places[keys] == rows[:, None, None])
    return difference**2 @ task.profile, (difference * moves) @ task.profile
