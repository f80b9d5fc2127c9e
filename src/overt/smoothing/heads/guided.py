"""Keys of time and of a guide: the joint bilateral filter, which compares a smoothed curve and averages the noisy values.

A filter that compares noisy values tends to keep the noise: few points are similar to an outlying one. A smoothed pilot curve
shows better which points are similar.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.blocks import KeyRange, reached_blocks
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.heads.normalize import softmax

SIDES = ("both", "past", "future")
# UNDERFLOW: the distance in bandwidths beyond which a weight is below 2^-970, which is negligible.
UNDERFLOW = 37.0
# SQUARINGS: the most squarings in sequence, since every squaring doubles the relative error.
SQUARINGS = 4


class GuidedOutputs(NamedTuple):
    """For each bandwidth, all (…, k, n): y_i, W_ii, and Σ_j W_ij (g_j − g_i)(x_j − y_i)."""

    values: Floats
    self_weights: Floats
    covariance: Floats


@dataclass(frozen=True)
class GuidedInputs:
    """The inputs, normalized: times in steps if they are evenly spaced, bandwidths in descending order."""

    times: Floats  # (n,) ascending
    guide: Floats  # (s, n)
    values: Floats  # (s, n)
    weights: Floats | None  # (s, n) 0 or more, the largest of every series 1; None: all 1
    bandwidths: Floats  # (s, k), of the same ratios for all series
    bandwidth_time: float
    window: float
    side: str
    even: bool  # times are 0, 1, 2, …

    @property
    def rate_time(self) -> float:
        """1 / 2h_t²."""
        return 0.5 / self.bandwidth_time**2

    def one(self, row: int) -> "GuidedInputs":
        """One of the series (n,), without the first axis."""
        weights = None if self.weights is None else self.weights[row]
        return replace(self, guide=self.guide[row], values=self.values[row], weights=weights, bandwidths=self.bandwidths[row])


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
) -> GuidedOutputs:
    """Attend to points near in time and similar in a guide: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (g_i − g_j)²/2h²).

    The joint bilateral filter (Petschnigg et al. 2004, section 4.1; Eisemann and Durand 2004), y_i = Σ_j W_ij x_j. If g_i depends
    on x_i, and all other g_j are treated as constants,

        ∂y_i/∂x_i = W_ii + ∂g_i/∂x_i · Σ_j W_ij (g_j − g_i)(x_j − y_i) / h²,

    which for g = x is the bilateral filter's own derivative.

    Keys are the points with |t_i − t_j| <= window; for side="past" also t_j <= t_i, for "future" t_j >= t_i. h_t may be infinite: then
    time enters through the window only.

    times (n,) ascending, guide and values (n,), weights (n,) 0 or more (None for 1), bandwidths (k,) h, in the guide's unit. Outputs
    are (k, n), also for points of weight 0, whose self weight is 0; a row without a key within range is NaN. Time O(n·window), fastest
    for bandwidths that are powers of two apart; memory O(n·k). Several series at once have one more axis, the first, in guide, values
    and weights (s, n), bandwidths (s, k), with the same ratios for all series, and outputs (s, k, n).

    >>> guide, noisy = np.array([0.0, 0.0, 0.0, 8.0, 8.0]), np.array([0.0, 0.2, 0.1, 8.0, 8.2])
    >>> attend_guided(np.arange(5.0), guide, noisy, None, [0.5], bandwidth_time=np.inf, window=4.0).values
    array([[0.1, 0.1, 0.1, 8.1, 8.1]])
    """
    requested = np.asarray(bandwidths, np.float64)
    if requested.ndim != guide.ndim or requested.size == 0 or not (requested > 0).all():
        raise InputError("one or more bandwidths above 0", got=np.array2string(requested), fix="pass a list of them")
    if side not in SIDES:
        raise InputError('side "both", "past" or "future"', got=repr(side), fix="choose one of them")
    if weights is not None:
        largest = weights.max(axis=-1, keepdims=True, initial=0.0)
        weights = None if (weights == 1).all() else np.atleast_2d(weights / np.where(largest > 0, largest, 1.0))
    guides, several, requested = (np.atleast_2d(column) for column in (guide, values, requested))
    descending = np.argsort(-requested[0], kind="stable")
    inputs = GuidedInputs(times, guides, several, weights, requested[:, descending], bandwidth_time, window, side, even=False)
    outputs = attend_inputs(in_steps(inputs))
    if (descending[1:] < descending[:-1]).any():
        outputs = GuidedOutputs(*(column[:, np.argsort(descending)] for column in outputs))
    return outputs if guide.ndim > 1 else GuidedOutputs(*(column[0] for column in outputs))


def in_steps(inputs: GuidedInputs) -> GuidedInputs:
    """The inputs with times 0, 1, 2, … if they are evenly spaced."""
    if not on_grid(inputs.times):
        return inputs
    step, index = (inputs.times[-1] - inputs.times[0]) / (inputs.times.size - 1), np.arange(float(inputs.times.size))
    return replace(inputs, times=index, bandwidth_time=inputs.bandwidth_time / step, window=inputs.window / step, even=True)


def attend_inputs(inputs: GuidedInputs) -> GuidedOutputs:
    """Attend in C++, with one exponential for both directions of a pair; rows whose weights underflow there are computed in NumPy."""
    if not native.available():
        each = [attend_rows(inputs.one(row), np.arange(inputs.times.size)) for row in range(len(inputs.values))]
        return GuidedOutputs(*map(np.stack, zip(*each, strict=True)))
    outputs = GuidedOutputs(*(np.empty((*inputs.bandwidths.shape, inputs.times.size)) for _ in GuidedOutputs._fields))
    if inputs.times.size == 0:
        return outputs
    reach = min(inputs.window * (1 + 1e-9), UNDERFLOW * inputs.bandwidth_time, inputs.times[-1] - inputs.times[0])
    lags = np.arange(np.floor(reach) + 1 if inputs.even else 0)
    native.module().guided(
        *(np.ascontiguousarray(column) for column in (inputs.times, inputs.guide, inputs.values)),
        None if inputs.weights is None else np.ascontiguousarray(inputs.weights),
        *(inputs.rate_time, reach, np.exp(-inputs.rate_time * lags**2)),
        *(0.5 / inputs.bandwidths**2, squarings(inputs.bandwidths[0])),
        *(SIDES.index(inputs.side), native.threads()),
        *outputs,
    )
    faint = np.asarray(np.isnan(outputs.values).any(axis=1))  # (s, n)
    for index in np.flatnonzero(faint.any(axis=1)):
        rows = np.flatnonzero(faint[index])
        for column, exact in zip(outputs, attend_rows(inputs.one(int(index)), rows), strict=True):
            column[index][:, rows] = exact
    return outputs


def squarings(bandwidths: Floats) -> Indices:
    """For each bandwidth, how often exp(−d²/2h²) of the previous bandwidth is squared; 0 if it is computed directly.

    >>> squarings(np.array([4.0, 2.0, 1.0, 0.5, 0.3]))
    array([0, 2, 2, 0, 0])
    """
    counts = np.zeros(bandwidths.size, np.intp)
    in_a_row = 0
    for b, (wider, narrower) in enumerate(pairwise(bandwidths), start=1):
        times = 2 * np.log2(wider / narrower)
        if times == np.rint(times) and 0 < times <= SQUARINGS - in_a_row:
            counts[b] = times
        in_a_row = in_a_row + counts[b] if counts[b] else 0
    return counts


def attend_rows(inputs: GuidedInputs, rows: Indices) -> GuidedOutputs:
    """Some rows of one series, in NumPy, in blocks; weights are relative to the largest of the row."""
    outputs = GuidedOutputs(*(np.full((inputs.bandwidths.size, rows.size), np.nan) for _ in GuidedOutputs._fields))
    times, window = inputs.times[rows], inputs.window * (1 + 1e-9)
    start = np.searchsorted(inputs.times, times if inputs.side == "future" else times - window, side="left")
    stop = np.searchsorted(inputs.times, times if inputs.side == "past" else times + window, side="right")
    key_range = KeyRange(start, stop)
    for part in reached_blocks(key_range):
        block_outputs = _attend_block(inputs, rows[part], key_range.part(part))
        for column, block in zip(outputs, block_outputs, strict=True):
            column[:, part] = block
    return outputs


def _attend_block(inputs: GuidedInputs, rows: Indices, key_range: KeyRange) -> GuidedOutputs:
    near = key_range.span
    keys = np.arange(near.start, near.stop)
    allowed = (keys >= key_range.start[:, None]) & (keys < key_range.stop[:, None])
    weights = np.ones(keys.size) if inputs.weights is None else inputs.weights[near]
    gap, rise, step = (column[near] - column[rows, None] for column in (inputs.times, inputs.guide, inputs.values))
    scores = np.where(allowed & (weights > 0), -inputs.rate_time * gap**2, -np.inf)  # (rows, keys)
    scores += np.log(np.where(weights > 0, weights, 1.0))
    by_bandwidth = []
    for bandwidth in inputs.bandwidths:
        shares = softmax(scores - 0.5 * (rise / bandwidth) ** 2)
        shares[~shares.any(axis=1)] = np.nan
        shift = (shares * step).sum(axis=1)  # y_i − x_i
        self_weights = shares[np.arange(rows.size), rows - near.start]
        by_bandwidth.append((inputs.values[rows] + shift, self_weights, (shares * rise * (step - shift[:, None])).sum(axis=1)))
    return GuidedOutputs(*(np.stack(column) for column in zip(*by_bandwidth, strict=True)))
