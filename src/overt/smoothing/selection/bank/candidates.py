"""The heads of the bank: by time with many bandwidths, by patches, and guided by a pilot curve."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.guided import GuidedOutputs, attend_guided
from overt.smoothing.heads.local.grid import attend_grid_with_gaps, attend_weighted_grid, favors_convolutions
from overt.smoothing.heads.local.polynomial import Local, Side
from overt.smoothing.heads.local.regression import attend_time, on_grid
from overt.smoothing.heads.local.short_grid import (
    EXTRAPOLATED,
    EXTRAPOLATED_VARIANCE,
    LONGEST,
    TimeHead,
    attend_short_grid,
    extrapolate,
    parabola_indices,
)
from overt.smoothing.heads.patches import PatchOutputs, attend_patch
from overt.smoothing.operators.rows import guided_row, patch_row, time_row
from overt.smoothing.selection.bank.coarse import CoarseHead, coarse_heads
from overt.smoothing.selection.bank.mixture import Pilot
from overt.smoothing.selection.bank.noisy_series import (
    NamedHeads,
    NoisySeries,
    RowWeights,
    comparison_units,
    squares_far_out,
    write_value_heads,
)
from overt.smoothing.selection.bank.risk_sums import HeadOutputs
from overt.smoothing.selection.bank.threads import map_in_threads

# NARROW: narrow bandwidths of the parabolas by time, in steps. Lines as well raise the error by 1%, means and lines of one side change it
# by less than 0.1% (here and below: benchmarks/smoothing/ablation.py, and the same signals at 30 to 4,096 points).
NARROW = 0.5 * np.sqrt(2.0) ** np.arange(16)  # 0.5 … 91
# FIRST_EXTRAPOLATED: index in NARROW of the narrowest extrapolated head; narrower ones see three points or fewer.
FIRST_EXTRAPOLATED = 3
# WHOLE: the widest bandwidths of time, in spans of the series.
WHOLE = (0.5, 1.0, 8.0)
# PATCHES: points to either side, and bandwidths in σ for the root of the sum of squares. Patches of 11 as well: no change from 256 points
# on, 0.7% less error at 64 to 100 points; with only every other bandwidth, 2 to 3% more there.
PATCHES = ((2, 2.0 ** np.arange(0, 2, 0.5)), (10, 2.0 ** np.arange(1, 3, 0.5)))
# PATCH_WINDOW: the largest distance between compared patches, in points.
PATCH_WINDOW = 60
# PILOT_BANDWIDTHS: bandwidths of guided heads in the pilot, in σ. With segments one costs up to 1% (17% where it costs most), two up to
# 2% (59%); four gain nothing and take a third more time.
PILOT_BANDWIDTHS = (1.2, 0.6, 0.3)
# LONG: most points of a stretch (`stages`); longer series with segments use LONG_PILOT_BANDWIDTHS. At 100,000 points the error of white
# noise falls by 1.4% and rises by 4% at most, under bursts it falls by 5%; guided heads took a fifth of the time.
LONG, LONG_PILOT_BANDWIDTHS = 97_920, (0.6,)
# GUIDED_WINDOW: window of guided heads, in bandwidths of time. 1.5 to 3 give the same errors to three thousandths, in proportional time.
GUIDED_WINDOW = 2.0


class WideHeads(NamedTuple):
    """Heads computed once over the whole series; `part` cuts out one stretch."""

    names: list[str]
    write_part: Callable[[slice, HeadOutputs], None]
    rows: list[RowWeights]

    def part(self, stretch: slice) -> NamedHeads:
        """The heads on a stretch of the points."""
        return NamedHeads(self.names, partial(self.write_part, stretch), self.rows)


def pilot_heads(series: NoisySeries, causal: bool, patches: bool) -> Iterator[NamedHeads]:
    """Yield the heads that compare the noisy series itself: the identity, narrow bandwidths of time, and patches if `patches`."""
    yield _identity(series)
    yield _by_time(series, tuple(time_heads(causal)))
    if patches:
        yield from (_by_patches(series, half, scales, causal) for half, scales in PATCHES)


def pilot_count(causal: bool, patches: bool) -> int:
    """The number of heads that `pilot_heads` yields."""
    return 1 + len(tuple(time_heads(causal))) + (sum(len(scales) for _, scales in PATCHES) if patches else 0)


def wide_heads(series: NoisySeries, causal: bool, *, long: bool = False) -> WideHeads:
    """Heads by time with bandwidths from 128 steps to eight spans of the series, where a polynomial fits all points alike.

    If `long` (the series is smoothed in stretches), they take little memory: on a grid they are computed at few points
    (`bank.coarse`); elsewhere leverages and variances, which only risks use, are float32.
    """
    wide = wide_time_heads(float(series.times[-1] - series.times[0]), causal)
    heads = _by_time(series, wide)
    if long and (coarse := coarse_heads(series.times, series.values[0], series.weights[0], wide)):
        return WideHeads(heads.names, partial(_write_coarse, series, coarse), heads.rows)
    risk_dtype: Any = np.float32 if long else np.float64
    shape = series.values.shape[0], len(heads.names), series.times.size
    outputs = HeadOutputs(*(np.empty(shape, part) for part in (np.float64, risk_dtype, risk_dtype)))
    heads.write(outputs)
    return WideHeads(heads.names, partial(_copy_part, outputs), heads.rows)


def _copy_part(whole: HeadOutputs, stretch: slice, outputs: HeadOutputs) -> None:
    for column, source in zip(outputs, whole, strict=True):
        column[...] = source[..., stretch]


def _write_coarse(series: NoisySeries, coarse: list[CoarseHead], stretch: slice, outputs: HeadOutputs) -> None:
    weights, squares = series.weights[:, None, stretch], series.levels[:, stretch] ** 2
    for index, head in enumerate(coarse):
        head.write(stretch, [column[0, index] for column in outputs])
    if not (weights == 1).all():
        outputs.leverages[...] *= weights
    outputs.variances[...] *= squares[:, None]


def wide_time_heads(span: float, causal: bool) -> tuple[TimeHead, ...]:
    """Bandwidth, degree and side of the wide heads of a series of this span, in steps."""
    span = max(span, 1.0)
    octaves = int(np.log2(span / 4 / 128)) if span >= 512 else -1
    sides: tuple[Side, ...] = ("past",) if causal else ("both",)
    degrees = (0, 1, 2) if causal else (2,)
    bandwidths = 128.0 * 2.0 ** np.arange(octaves + 1)
    if not causal:  # a bandwidth that depends on the length would depend on the future
        bandwidths = np.concatenate([bandwidths, span * np.array(WHOLE)])
        bandwidths = bandwidths[bandwidths > NARROW[-1]]
    return tuple(product(bandwidths.tolist(), degrees, sides))


def guided_heads(
    series: NoisySeries, pilot: Pilot, bandwidth: float, pilot_bandwidths: tuple[float, ...], causal: bool
) -> NamedHeads:
    """Means over points near in time and similar in the pilot p, with the leverage W_ii + ∂p_i/∂x_i Cov_W(p, x)/h².

    The dependence of p_j on x_i for j ≠ i is neglected.
    """
    scales = np.array(pilot_bandwidths)
    options = {"bandwidth_time": bandwidth, "window": GUIDED_WINDOW * bandwidth, "side": "past" if causal else "both"}
    units = comparison_units(series)

    def attend(rows: Indices, unit: Floats) -> GuidedOutputs:
        columns = series.times, pilot.values[rows], series.values[rows], series.weights[rows]
        return attend_guided(*columns, scales * unit[:, None], **options)

    def write(outputs: HeadOutputs) -> None:
        guided = _by_unit(units, attend)
        squares = (scales[:, None] * units[:, None]) ** 2
        leverages = guided.self_weights + pilot.leverages[:, None] * guided.covariance / squares
        write_value_heads(outputs, series, guided.values, leverages)

    columns = series.times, pilot.values[0], series.weights[0]
    rows: list[RowWeights] = [partial(_row_of_unit, guided_row, columns, scale * units[0], options) for scale in scales]
    return NamedHeads([guided_name(bandwidth, scale) for scale in scales], write, rows)


def guided_name(bandwidth: float, scale: float) -> str:
    """The name of a guided head: its bandwidths of time, in steps, and of the pilot, in units of the noise."""
    return f"guided, {bandwidth:.3g} steps and {scale:.3g} σ"


def patches_name(points: int, scale: float) -> str:
    """The name of a head that compares patches of this many points."""
    return f"patches of {points}, {scale:.3g} σ"


def _by_unit(units: Floats, attend: Callable[[Indices, Floats], Any]) -> Any:
    """The outputs of heads whose bandwidth depends on the point: every point takes the outputs computed with its unit (s, n).

    `attend` computes the series of some indices (r,), with one unit for each (r,).
    """
    outputs = attend(np.arange(len(units)), units[:, 0])
    for row in np.flatnonzero((units != units[:, :1]).any(axis=1)):
        for unit in np.unique(units[row][units[row] != units[row, 0]]):
            chosen = units[row] == unit
            for column, values in zip(outputs, attend(np.array([row]), np.array([unit])), strict=True):
                column[row][:, chosen] = values[0][:, chosen]
    return outputs


def _row_of_unit(
    attend_row: Callable[..., Floats], columns: tuple[Floats, ...], bandwidths: Floats, options: dict[str, Any], row: int
) -> Floats:
    """The weights of one point, computed with the bandwidth at that point."""
    return attend_row(*columns, row, bandwidth=float(bandwidths[row]), **options)


def write_heads(outputs: HeadOutputs, parts: Iterable[NamedHeads], start: int) -> tuple[list[str], list[RowWeights]]:
    """Write the outputs of all parts in order, from head `start` on, and return the names and rows of all heads."""
    names: list[str] = []
    rows: list[RowWeights] = []
    for part in parts:
        first = start + len(names)
        part.write(outputs.part(first, first + len(part.names)))
        names, rows = names + part.names, rows + part.rows
    return names, rows


def time_heads(causal: bool) -> Iterator[TimeHead]:
    """Yield bandwidth, degree and side of the narrow heads by time, which every series has."""
    if causal:
        for h, degree in product(NARROW, (0, 1, 2)):
            yield float(h), degree, "past"
        return
    for h in NARROW:
        yield float(h), 2, "both"
    for h in NARROW[FIRST_EXTRAPOLATED:-1]:
        yield float(h), EXTRAPOLATED, "both"


def _identity(series: NoisySeries) -> NamedHeads:
    def write(outputs: HeadOutputs) -> None:
        outputs.values[:, 0], outputs.leverages[:, 0] = series.values, 1.0
        outputs.variances[:, 0] = series.levels**2 / np.where(series.weights > 0, series.weights, 1.0)

    return NamedHeads(["itself"], write, [lambda row: np.eye(1, series.times.size, row)[0] * (series.weights[0] > 0)])


def _by_time(series: NoisySeries, heads: tuple[TimeHead, ...]) -> NamedHeads:
    """Heads by time."""
    names = [f"{family_by_time(degree, side)}, {h:.3g} steps" for h, degree, side in heads]
    return NamedHeads(names, partial(_write_by_time, series, heads), [partial(_row_by_time, series, *head) for head in heads])


def _write_by_time(series: NoisySeries, heads: tuple[TimeHead, ...], outputs: HeadOutputs) -> None:
    alike = bool((series.weights == 1).all())
    step = float(series.times[-1] - series.times[0]) / (series.times.size - 1) if on_grid(series.times) else None
    squares = series.levels[:, None] ** 2
    if step and alike and series.times.size <= LONGEST:
        in_steps: tuple[TimeHead, ...] = tuple((h / step, degree, side) for h, degree, side in heads)
        _write_local(outputs, attend_short_grid(series.values, in_steps), squares)
        return

    def write(position: tuple[int, int]) -> None:
        row, index = position
        local = _attend_time(series, row, *heads[index], alike=alike, step=step)
        _write_local(HeadOutputs(*(column[position] for column in outputs)), local, squares[row, 0])

    fitted = [index for index, head in enumerate(heads) if head[1] != EXTRAPOLATED]
    map_in_threads(write, [*product(range(len(series.values)), fitted)], points=series.times.size)
    for index, head in enumerate(heads):
        if head[1] == EXTRAPOLATED:
            narrow, wide = parabola_indices(heads, head)
            for column in outputs[:2]:
                column[:, index] = extrapolate(column[:, narrow], column[:, wide])
            outputs.variances[:, index] = EXTRAPOLATED_VARIANCE * outputs.variances[:, narrow]


def family_by_time(degree: int, side: Side) -> str:
    """The first words of the name of a head by time."""
    if degree == EXTRAPOLATED:
        return "extrapolated parabola"
    return ("mean", "line", "parabola")[degree] + ("" if side == "both" else f" of the {side}")


def _write_local(outputs: HeadOutputs, local: Local, squares: Floats) -> None:
    """Write the outputs of heads by time; `squares` are the noise's σ_i²."""
    outputs.values[...], outputs.leverages[...] = local.values, local.leverages
    np.multiply(local.unit_variances, squares, out=outputs.variances, casting="same_kind")


def _attend_time(
    series: NoisySeries, row: int, bandwidth: float, degree: int, side: Side, *, alike: bool, step: float | None
) -> Local:
    """One head by time of one series; `alike`: all weights are 1; `step`: the grid's step, None without a grid."""
    if alike:
        return attend_time(series.times, series.values[row], None, bandwidth, degree=degree, side=side)
    values, leverages, variances = _attend_weighted(series, row, bandwidth, degree, side, step)
    # Without a key on this side, the output is the point itself.
    isolated = np.isnan(values)
    values, variances = np.where(isolated, series.values[row], values), np.where(isolated, 1.0, variances)
    return Local(values, np.where(np.isnan(leverages), 0.0, leverages), variances)


def _attend_weighted(series: NoisySeries, row: int, bandwidth: float, degree: int, side: Side, step: float | None) -> Local:
    """One head by time of a series with missing or weighted values; NaN at points without a key on the side."""
    weights, values, columns = series.weights[row], series.values[row], None
    is_key = weights > 0
    if step:
        scale = bandwidth / step
        if (weights[is_key] == 1).all():
            columns = attend_grid_with_gaps(values, is_key, scale, degree, side)
        if columns is None and favors_convolutions(is_key.mean() * scale, degree, side):
            columns = attend_weighted_grid(values, weights, scale, degree, side)
    if columns is not None:
        return Local(columns[0], columns[1] * weights, columns[2])
    self_index = np.where(is_key, np.cumsum(is_key) - 1, -1)
    keys = series.times[is_key], values[is_key], weights[is_key]
    return attend_time(*keys, bandwidth, degree=degree, side=side, targets=series.times, self_index=self_index)


def _row_by_time(series: NoisySeries, bandwidth: float, degree: int, side: Side, row: int) -> Floats:
    """The weights of one point of a head by time (n,)."""
    if degree == EXTRAPOLATED:
        return extrapolate(*(_row_by_time(series, h, 2, side, row) for h in (bandwidth, np.sqrt(2.0) * bandwidth)))
    is_key = series.weights[0] > 0
    weights = np.zeros(is_key.size)
    keys = series.times[is_key], series.weights[0, is_key]
    weights[is_key] = time_row(*keys, series.times[row], bandwidth, degree=degree, side=side)
    return weights


def _by_patches(series: NoisySeries, half: int, scales: Floats, causal: bool) -> NamedHeads:
    profile = np.ones(2 * half + 1)
    if causal:
        profile[half + 1 :] = 0.0
    window, side = min(PATCH_WINDOW, series.times.size - 1), ("past" if causal else "both")
    options = {"profile": profile, "window": window, "side": side}
    present = series.weights > 0
    units = comparison_units(series)

    def attend(rows: Indices, unit: Floats) -> PatchOutputs:
        columns = series.values[rows], present[rows], series.weights[rows]
        return attend_patch(*columns, bandwidths=scales * unit[:, None], **options)

    def write(outputs: HeadOutputs) -> None:
        patches = _by_unit(units, attend)
        leverages = patches.leverages if causal else patches.leverages * squares_far_out(series)[:, None]
        write_value_heads(outputs, series, patches.values, leverages)

    names = [patches_name(int(profile.sum()), scale) for scale in scales]
    rows: list[RowWeights] = [
        partial(_row_of_unit, patch_row, (series.values[0], series.weights[0]), scale * units[0], options) for scale in scales
    ]
    return NamedHeads(names, write, rows)
