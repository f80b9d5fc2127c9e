"""The default smoother: a bank of heads over one series, mixed point by point by estimated risk, in four stages.

In the first stage heads compare the noisy series itself: by time, with parabolas of many bandwidths; and, in short ones,
by patches. Their mixture is a pilot curve. In the second stage guided heads compare the pilot, which has little noise, and average the
series; all heads are mixed again. The third stage repeats this with the better pilot. In the fourth the pilot tells which waves are
signal (`wiener`), and one more head attends within segments (`segments`).
"""

import functools
import math
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.operators.base import Operator, fillings, gather, lines, restriction, row_operator
from overt.smoothing.selection.bank.candidates import (
    LONG,
    LONG_PILOT_BANDWIDTHS,
    PILOT_BANDWIDTHS,
    WideHeads,
    guided_heads,
    pilot_count,
    pilot_heads,
    wide_heads,
    write_heads,
)
from overt.smoothing.selection.bank.mixture import Mixture, bank_risks, mix, mix_pilot
from overt.smoothing.selection.bank.noisy_series import NamedHeads, NoisySeries, RowWeights, coarser_grid
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations
from overt.smoothing.selection.bank.segments import NAME, Segments, segment_heads
from overt.smoothing.selection.bank.wiener import Windows, in_gaps, lost_waves, wiener_heads, wiener_lengths
from overt.smoothing.selection.correlation import (
    RHO_ERROR,
    colored,
    coloring,
    covariance_factors,
    risk_variance_factor,
    white_level,
    whitened,
)

# GUIDED: bandwidths of time of the guided heads, in steps, in the second stage, which only improves the pilot, and in the third.
# 16 and 64 for 32 change nothing (with segments). Without 256 the error of 4,096 points rises by 4%.
GUIDED = ((32.0,), (16.0, 64.0, 256.0))
# PREMIUM: extra cost of a degree of freedom, in parts of Stein's 2σ² (`mixture.mix`), a prior of exp(−0.22) for each. A noise level that is
# too low lowers the risks of narrow heads at all points alike, so no average removes it; on smooth signals most of the error is theirs.
# 0.2 lowers the error by 8%, on parabolas by 27% (development half of noise_kinds.py; 64 to 16,384 points). 0.45 is 1.5% better than 0.3
# on these signals, drawn again, and under nearly all kinds of noise, and costs 2% on peaks. Causal curves do not gain.
PREMIUM = 0.45
# PATCHED: most points with patches next to segments; without segments patches always join. Without patches the error of 1,024 points of
# white noise is 0.7% lower, of 4,096 the same, of 64 a tenth higher (the development half).
PATCHED = 512
# STRETCH: most points of one of the equal stretches of a long series; MARGIN: its margin on either side, in points. Both are multiples of
# BLOCK, a multiple of the blocks of risks (`mixture`), which therefore do not depend on the division.
BLOCK = 1920
STRETCH, MARGIN = 51 * BLOCK, 3 * BLOCK
# TOGETHER: short series in a batch; the outputs of all heads of series of 100 points then take 7 MB.
TOGETHER = 32
# BETWEEN: the outputs that are interpolated if all known points are on a coarser grid.
BETWEEN = ("values", "leverages", "variances")


class Workspace:
    """Memory for the outputs of all heads of a stretch; all stretches share it, since allocating it is slower than filling it."""

    def __init__(self) -> None:
        self._memory = np.empty((len(HeadOutputs._fields), 0))

    def outputs(self, *shape: int) -> HeadOutputs:
        """Uninitialized outputs of heads (series, heads, points)."""
        size = math.prod(shape)
        if self._memory.shape[1] < size:
            self._memory = np.empty((len(HeadOutputs._fields), size))
        return HeadOutputs(*(column[:size].reshape(shape) for column in self._memory))


class BankOutputs(NamedTuple):
    """The bank's outputs (…, n), and the weight of each head, averaged over equal runs of points (…, heads, cells)."""

    values: Floats
    leverages: Floats
    variances: Floats
    names: list[str]
    mixture: Floats

    def one(self, row: int) -> "BankOutputs":
        """The outputs of one of several series."""
        values, leverages, variances = (column[row] for column in self[:3])
        return BankOutputs(values, leverages, variances, self.names, self.mixture[row])


def attend_bank(series: NoisySeries, *, causal: bool = False, correlation: float = 0.0, cells: int = 400) -> BankOutputs:
    """Smooth one series by the bank, in stretches if it is long, or several short ones of one grid at once.

    With `causal` all heads and all averages of risks use the past only; the overall level still depends on the whole series.
    `correlation` is the ρ of autoregressive noise: a positive ρ changes the risks; noise of a negative ρ is whitened first.

    A short series spends most of its time in the overhead of calls, which several series of one batch share; the compiled kernels
    divide them among threads.

    >>> steps = np.repeat([0.0, 5.0], 100)
    >>> noisy = steps + np.random.default_rng(0).normal(size=200)
    >>> outputs = attend_bank(NoisySeries.single(np.arange(200.0), noisy, np.ones(200), np.ones(200)))
    >>> bool(np.abs(outputs.values[0] - steps).mean() < 0.25)
    True
    """
    rows = None if causal else coarser_grid(series)
    if rows is not None:
        outputs = attend_bank(_in_steps(series.part(rows)), correlation=correlation, cells=cells)
        times = series.times, series.times[rows]
        return outputs._replace(
            **{name: np.stack([np.interp(*times, row) for row in getattr(outputs, name)]) for name in BETWEEN}
        )
    if correlation < 0:
        # Heads that compare values would win by following alternating noise, so they get the whitened series.
        rho = min(correlation + RHO_ERROR, -RHO_ERROR / 2)
        outputs = attend_bank(_whitened(series, rho), cells=cells)
        leverages = outputs.leverages * covariance_factors(outputs.leverages, rho)  # in units of the noise's own variance
        return outputs._replace(values=np.stack([colored(row, rho) for row in outputs.values]), leverages=leverages)
    count = series.times.size
    wide, windows, segments = _wide(series, causal), _windows(count, causal), _segments(series, causal, correlation)
    cells, workspace = min(cells, count), Workspace()
    sampled = np.unique(np.linspace(0, count - 1, min(count, 4 * cells)).astype(np.intp))
    cell = sampled * cells // count

    def attend(inner: slice) -> tuple[slice, Floats, list[str], Indices, Floats]:
        outer = _with_margin(inner, count)
        mixed, _, names, _ = attend_stretch(
            *(series.part(outer), wide.part(outer), windows, segments and segments.part(outer)),
            *(causal, correlation, workspace),
        )
        columns = np.stack([column[:, inner.start - outer.start :][:, : inner.stop - inner.start] for column in mixed[:3]])
        inside = (sampled >= inner.start) & (sampled < inner.stop)
        return inner, columns, names, cell[inside], mixed.weights(sampled[inside] - outer.start)

    outputs, mixture, names = np.empty((3, *series.values.shape)), np.zeros(0), []
    for inner, columns, names, index, weights in map(attend, _stretches(count)):
        outputs[..., inner] = columns
        mixture = mixture if mixture.size else np.zeros((len(series.values), len(names), cells))
        starts = np.flatnonzero(np.diff(index, prepend=-1))
        mixture[..., index[starts]] += np.add.reduceat(weights, starts, axis=-1)
    return BankOutputs(outputs[0], outputs[1], outputs[2], names, mixture / np.bincount(cell, minlength=cells))


def _in_steps(series: NoisySeries) -> NoisySeries:
    return series._replace(times=np.arange(float(series.times.size)))


def bank_operator(series: NoisySeries, *, causal: bool = False, correlation: float = 0.0) -> Operator:
    """The bank as an operator from the values of one series to its curve; missing values are filled."""
    count = series.times.size
    coarse = None if causal else coarser_grid(series)
    if coarse is not None:
        coarse_operator = bank_operator(_in_steps(series.part(coarse)), correlation=correlation)
        return lines(series.times[coarse], series.times) @ coarse_operator @ restriction(coarse, count)
    filling = fillings(series.times, series.weights[0] > 0, causal=causal)
    if correlation >= 0:
        return _mixture_operator(series, causal, correlation) @ filling
    rho = min(correlation + RHO_ERROR, -RHO_ERROR / 2)
    taps, points = coloring(rho), np.arange(count)
    before = np.append(1, points[:-1])  # the first value is whitened by the second
    white = gather(np.stack([points, before], axis=1), np.tile([1.0, -rho], (count, 1)) / (1 - rho), count)
    color = gather(np.maximum(points[:, None] - np.arange(taps.size), 0), np.tile(taps, (count, 1)), count)
    return color @ _mixture_operator(_whitened(series, rho), False, 0.0) @ white @ filling


def _mixture_operator(series: NoisySeries, causal: bool, correlation: float) -> Operator:
    """The rows of all heads times the heads' weights; a head that reaches no key returns the point itself."""
    count, gaps = series.times.size, in_gaps(series.weights[0])
    wide, windows, segments = _wide(series, causal), _windows(count, causal), _segments(series, causal, correlation)
    whole_names = {*wide.names, NAME}

    @functools.lru_cache(maxsize=1)
    def mixed(start: int, stop: int) -> tuple[Mixture, Mixture | None, list[str], list[RowWeights]]:
        outer = slice(start, stop)
        parts = series.part(outer), wide.part(outer), windows, segments and segments.part(outer)
        return attend_stretch(*parts, causal, correlation, Workspace())

    def row(point: int) -> Floats:
        outer = _with_margin(next(inner for inner in _stretches(count) if point < inner.stop), count)
        mixture, pilot, names, rows = mixed(outer.start, outer.stop)
        at, total = np.array([point - outer.start]), np.zeros(count)
        head_weights = mixture.weights(at)[0, :, 0]
        if gaps[point] and pilot:  # there the heads of the fourth stage are the pilot
            pilot_weights = pilot.weights(at)[0, :, 0]
            late = head_weights[pilot_weights.size :]
            head_weights = np.concatenate([head_weights[: pilot_weights.size] + late.sum() * pilot_weights, 0 * late])
        for head_weight, name, row_weights in zip(head_weights, names, rows, strict=True):
            weights, whole = np.zeros(count), name in whole_names
            weights[slice(None) if whole else outer] = row_weights(point if whole else point - outer.start)
            total += head_weight * (weights if weights.any() else np.eye(1, count, point)[0])
        return total

    return row_operator((count, count), row)


def attend_stretch(
    series: NoisySeries,
    wide: NamedHeads,
    windows: Windows,
    segments: Segments | None,
    causal: bool,
    correlation: float,
    workspace: Workspace,
) -> tuple[Mixture, Mixture | None, list[str], list[RowWeights]]:
    """Run all four stages on one stretch; return the mixture, the last pilot's mixture if there are gaps, and the heads' names and rows."""
    observed, patches = series.observed, not series.by_time and (segments is None or series.times.size <= PATCHED)
    scales = LONG_PILOT_BANDWIDTHS if segments and windows.points > LONG else PILOT_BANDWIDTHS
    most = pilot_count(causal, patches) + len(wide.names) + len(GUIDED[-1]) * len(scales) + len(windows.lengths) + 1
    outputs = workspace.outputs(len(series.values), most, series.times.size)
    averages: dict[str, Any] = {"causal": causal, "premium": 0.0 if causal else PREMIUM}
    options: dict[str, Any] = {**averages, "risk_variance": risk_variance_factor(correlation)}

    def write_risks(start: int, stop: int, correlation: float) -> Floats:
        """The risks of written heads; their leverages become covariances."""
        part = outputs.part(start, stop)
        _covariances(part, observed, correlation)
        return bank_risks(part, observed, **averages)

    names, rows = write_heads(outputs, chain(pilot_heads(series, causal, patches), [wide]), 0)
    count = stop = len(names)
    risks = first_risks = write_risks(0, count, correlation)
    guided: tuple[list[str], list[RowWeights]] = [], []
    for bandwidths in () if series.by_time else GUIDED:
        pilot = mix_pilot(outputs.part(0, stop), observed, risks=risks, **options)
        guided = write_heads(outputs, [guided_heads(series, pilot, width, scales, causal) for width in bandwidths], count)
        stop = count + len(guided[0])
        risks = np.concatenate([first_risks, write_risks(count, stop, correlation)], axis=1)
    names, rows = names + guided[0], rows + guided[1]
    last = None
    if windows.lengths and not series.by_time:
        before = outputs.part(0, stop), observed
        last = mix(*before, risks=risks, **options) if in_gaps(series.weights).any() else None
        pilot = last or mix_pilot(*before, risks=risks, **options)
        late = [wiener_heads(series, pilot.values + lost_waves(series, pilot.values), windows, correlation)]
        late += [segments.heads(series, pilot.values)] if segments else []
        added = write_heads(outputs, late, stop)
        names, rows = names + added[0], rows + added[1]
        risks = np.concatenate([risks, write_risks(stop, len(names), 0.0)], axis=1)  # waves bring covariances
        stop = len(names)
    mixed = mix(outputs.part(0, stop), observed, risks=risks, **options)
    return mixed, last, names, rows


def _wide(series: NoisySeries, causal: bool) -> WideHeads:
    """The heads that see the whole series."""
    return wide_heads(series, causal, long=series.times.size > STRETCH)


def _windows(count: int, causal: bool) -> Windows:
    """The windows that fit into every stretch; none with `causal`, since they see the future."""
    shortest = min(outer.stop - outer.start for outer in (_with_margin(inner, count) for inner in _stretches(count)))
    return Windows(() if causal else wiener_lengths(shortest), count)


def _segments(series: NoisySeries, causal: bool, correlation: float) -> Segments | None:
    """The head within segments; None if `causal` (it sees the future), for correlated noise (it would follow it), or without waves."""
    return segment_heads(series) if not causal and correlation == 0 and wiener_lengths(series.times.size) else None


def _covariances(outputs: HeadOutputs, observed: Observations, correlation: float) -> None:
    """Turn leverages into covariances with the noise, in the units of risks, and raise the variances if the noise is correlated."""
    if correlation > 0:
        factors = covariance_factors(outputs.leverages, correlation)
        np.multiply(outputs.leverages, factors, out=outputs.leverages)
        np.multiply(outputs.variances, factors, out=outputs.variances)
    if np.ndim(observed.factors):
        np.multiply(outputs.leverages, np.asarray(observed.factors)[:, None], out=outputs.leverages)


def _whitened(series: NoisySeries, rho: float) -> NoisySeries:
    """The series whitened for a negative ρ; a value is missing if it or the one before it is missing."""
    weights = np.minimum(series.weights, np.concatenate([series.weights[:, :1], series.weights[:, :-1]], axis=1))
    levels, level = (column * white_level(rho) for column in (series.levels, series.level))
    values = np.stack([whitened(row, rho) for row in series.values])
    return series._replace(values=values, weights=weights, levels=levels, level=level)


def _stretches(count: int) -> list[slice]:
    """As few stretches as possible, of nearly equal length."""
    length = -(-count // -(-count // STRETCH))
    length = -(-length // BLOCK) * BLOCK
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _with_margin(inner: slice, count: int) -> slice:
    return slice(max(0, inner.start - MARGIN), min(count, inner.stop + MARGIN))
