"""Patch keys: two points are similar if their surroundings are, non-local means in one dimension.

The distance of two patches depends on both positions only through squared differences x_p − x_{p+lag}, so the native core goes lag by
lag: one row of squares per lag, weighted by the profile, serves every pair of points at that lag, in both directions.
"""

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.normalize import softmax

# CELLS: numbers in memory at a time if whole rows are built in NumPy.
CELLS = 2**18


class PatchOutputs(NamedTuple):
    """For each bandwidth, all (…, k, n): y_i, the leverage ∂y_i/∂x_i (NaN if x_i is missing), and W_ii."""

    values: Floats
    leverages: Floats
    self_weights: Floats


@dataclass(frozen=True)
class PatchInputs:
    """The inputs, padded: x_i is padded[i + profile.size // 2], and padded[i] is the value of point source[i]."""

    values: Floats  # (s, n)
    key_weights: Floats  # (s, n) w_j, 0 if a value is missing
    padded: Floats  # (s, n + 2p)
    source: Indices  # (n + 2p,)
    profile: Floats  # (2p + 1,)
    rates: Floats  # (s, k) 1 / 2h²
    window: int
    past: bool

    def part(self, rows: int | slice) -> "PatchInputs":
        """Some of the series, or one series (n,) without the first axis."""
        columns = {name: getattr(self, name)[rows] for name in ("values", "key_weights", "padded", "rates")}
        return replace(self, **columns)

    @property
    def half(self) -> int:
        """p, the half width of a patch."""
        return self.profile.size // 2


def attend_patch(
    values: Floats,
    present: np.ndarray,
    weights: Floats | None = None,
    *,
    profile: ArrayLike,
    bandwidths: ArrayLike,
    window: int,
    side: str = "both",
) -> PatchOutputs:
    """Attend to points with similar surroundings: W_ij ∝ w_j exp(−d_ij/2h²), d_ij = Σ_m g_m (x_{i+m} − x_{j+m})².

    Non-local means (Buades, Coll and Morel 2005, section 3) in one dimension, with its full derivative. A change of x_i
    changes the patch of i and the patch of every key that contains i:

        ∂y_i/∂x_i = W_ii + [g_0 Var_{W_i}(x) + Σ_{j≠i} W_ij g_{i−j} (x_{2i−j} − x_i)(x_j − y_i)] / h²

    Keys are the present points j with |i − j| ≤ window, for side="past" also j ≤ i. Beyond its ends the series is reflected
    (x_{−1} = x_1); for side="past" it is constant, since a reflection would use the future. The derivative includes this.

    values (n,), in sequence order, hold interpolated values where `present` (n,) is False: patches compare them, but they get no
    weight, and the derivative treats them as constants. weights (n,) are w_j, 0 or more; None for 1. profile (2p + 1,) is
    g_{−p} … g_p, 0 or more; bandwidths (k,) are h, in the unit of the values times √Σg. Ascending bandwidths by factors of √2 or 2
    are fastest: then the exponentials of a bandwidth are those of the next one, squared. Returns values, leverages and self
    weights (k, n); rows that reach no key are NaN. Time O(n·window·(p + k)), memory O(n·k). Several series at once have one more axis,
    the first, in values, `present` and weights (s, n), bandwidths (s, k) and outputs (s, k, n).

    InputError for a profile that covers later points with side="past".

    >>> up_and_down = np.array([0.0, 4.0, 0.0, 4.0, 0.0, 5.0])
    >>> attend_patch(up_and_down, up_and_down >= 0, profile=[1, 1, 1], bandwidths=[0.5], window=5).values.round(1)
    array([[0. , 4.1, 0. , 4.1, 0. , 4.8]])
    """
    profile, bandwidths = np.asarray(profile, np.float64), np.asarray(bandwidths, np.float64)
    _check(profile, bandwidths, side)
    half, past = profile.size // 2, side == "past"
    several = np.atleast_2d(values)
    source = reflected(several.shape[1], half, past)
    key_weights = np.atleast_2d(np.where(present, 1.0 if weights is None else weights, 0.0))
    rates, window = 0.5 / np.atleast_2d(bandwidths) ** 2, min(window, several.shape[1] - 1)
    outputs = attend_inputs(PatchInputs(several, key_weights, several[:, source], source, profile, rates, window, past))
    np.copyto(outputs.leverages, np.nan, where=~np.atleast_2d(present)[:, None])
    return outputs if values.ndim > 1 else PatchOutputs(*(column[0] for column in outputs))


def attend_inputs(inputs: PatchInputs) -> PatchOutputs:
    """`attend_patch` of padded inputs: lag by lag in the native core, by definition at the ends and for rows whose weights underflow."""
    if not native.available():
        outputs = [attend_rows(inputs.part(row), np.arange(inputs.values.shape[-1])) for row in range(len(inputs.values))]
        return PatchOutputs(*map(np.stack, zip(*outputs, strict=True)))
    outputs, ends = attend_by_lag(inputs), _near_reflected_ends(inputs)
    rows = np.flatnonzero(ends)
    for column, exact in zip(outputs, _attend_compiled(inputs, rows), strict=True):
        column[..., rows] = exact
    faint = np.isnan(outputs.values).any(axis=1) & ~ends  # (s, n)
    for index in np.flatnonzero(faint.any(axis=1)):
        rows = np.flatnonzero(faint[index])
        for column, exact in zip(outputs, _attend_compiled(inputs.part(slice(index, index + 1)), rows), strict=True):
            column[index][:, rows] = exact[0]
    return outputs


def _near_reflected_ends(inputs: PatchInputs) -> NDArray[np.bool_]:
    """The points whose patch may contain a point twice (n,)."""
    near = np.zeros(inputs.values.shape[-1], dtype=bool)
    if not inputs.past:
        near[: inputs.half + 1] = near[max(0, near.size - 1 - inputs.half) :] = True
    return near


@functools.lru_cache(maxsize=16)
def reflected(points: int, half: int, past: bool) -> Indices:
    """The index of the point whose value a series extended beyond its ends has at each position (n + 2·half,)."""
    return np.pad(np.arange(points), half, mode="edge" if past else "reflect")


def _check(profile: Floats, bandwidths: Floats, side: str) -> None:
    if profile.ndim != 1 or profile.size % 2 == 0 or not (np.isfinite(profile) & (profile >= 0)).all():
        fix = "pass g_{−p} … g_p"
        raise InputError("a profile of an odd number of finite weights, 0 or more", got=np.array2string(profile), fix=fix)
    if bandwidths.ndim not in (1, 2) or not (bandwidths > 0).all():
        raise InputError("bandwidths above 0", got=np.array2string(bandwidths), fix="pass a list of them")
    if side not in ("both", "past"):
        raise InputError('side "both" or "past"', got=repr(side), fix="choose one of them")
    if side == "past" and profile[profile.size // 2 + 1 :].any():
        fix = 'make g_m = 0 for m > 0, or pass side="both"'
        raise InputError('with side="past", a profile of 0 for later points', got=np.array2string(profile), fix=fix)


def attend_by_lag(inputs: PatchInputs) -> PatchOutputs:
    """The rows of all series whose patches stay within the series; NaN if a row's weights underflow."""
    return _attend_compiled(inputs, None)


def _attend_compiled(inputs: PatchInputs, rows: Indices | None) -> PatchOutputs:
    """Attend in the native core: lag by lag, or some rows by definition."""
    key_weights = None if (inputs.key_weights == 1).all() else inputs.key_weights
    count = inputs.values.shape[-1] if rows is None else rows.size
    outputs = PatchOutputs(*(np.empty((*inputs.rates.shape, count)) for _ in PatchOutputs._fields))
    arguments = key_weights, inputs.profile, inputs.rates, inputs.window, inputs.past
    if rows is None:
        native.module().patch(inputs.padded, *arguments, native.threads(), *outputs)
    else:
        native.module().patch_rows(inputs.padded, inputs.source, *arguments, rows, native.threads(), *outputs)
    return outputs


def attend_rows(inputs: PatchInputs, rows: Indices) -> PatchOutputs:
    """Some rows of one series by definition, in NumPy; weights are relative to the largest."""
    outputs = PatchOutputs(*(np.empty((inputs.rates.size, rows.size)) for _ in PatchOutputs._fields))
    length = max(1, CELLS // ((2 * inputs.window + 1) * inputs.profile.size))
    for start in range(0, rows.size, length):
        part = slice(start, start + length)
        for column, block in zip(outputs, _attend_block(inputs, rows[part]), strict=True):
            column[:, part] = block
    return outputs


def _attend_block(inputs: PatchInputs, rows: Indices) -> PatchOutputs:
    keys = rows[:, None] + np.arange(-inputs.window, 1 if inputs.past else inputs.window + 1)  # (rows, keys)
    inside = (keys >= 0) & (keys < inputs.values.size)
    keys = np.where(inside, keys, rows[:, None])
    key_weights = np.where(inside, inputs.key_weights[keys], 0.0)
    distances, pulls = _distances(inputs, rows, keys)
    outputs = []
    for rate in inputs.rates:
        weights = softmax(
            np.where(key_weights > 0, np.log(np.where(key_weights > 0, key_weights, 1.0)) - rate * distances, -np.inf)
        )
        weights[~weights.any(axis=1)] = np.nan
        step = inputs.values[keys] - inputs.values[rows, None]
        shift = (weights * step).sum(axis=1)
        self_weights = weights[:, inputs.window]
        leverages = self_weights - 2 * rate * (weights * pulls * (step - shift[:, None])).sum(axis=1)
        outputs.append((inputs.values[rows] + shift, leverages, self_weights))
    return PatchOutputs(*(np.stack(column) for column in zip(*outputs, strict=True)))


def _distances(inputs: PatchInputs, rows: Indices, keys: Indices) -> tuple[Floats, Floats]:
    """d_ij and ½ ∂d_ij/∂x_i, both (rows, keys)."""
    patches, points = (
        sliding_window_view(along, inputs.profile.size) for along in (inputs.padded, inputs.source)
    )  # (n, 2p + 1)
    difference = patches[rows, None] - patches[keys]  # (rows, keys, 2p + 1)
    moves = (points[rows, None] == rows[:, None, None]).astype(float) - (points[keys] == rows[:, None, None])
    return difference**2 @ inputs.profile, (difference * moves) @ inputs.profile
