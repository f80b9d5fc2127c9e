"""The bank over many short series of one grid at once: the arrays of `stages`, with one axis more.

One short series spends most of its time in calls, not in their arithmetic. Here a call serves all series, of NumPy and of the compiled
kernels, which share them among threads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt import native
from overt.smoothing.data.series import Floats, Indices, overall_level
from overt.smoothing.heads.guided import GuidedInputs
from overt.smoothing.heads.guided import attend_several as attend_guides
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.heads.local.short_grid import LONGEST, attend_short_grid
from overt.smoothing.heads.patches import PatchInputs, reflected
from overt.smoothing.heads.patches import attend_several as attend_patches
from overt.smoothing.selection.bank.candidates import (
    GUIDED_WINDOW,
    PATCH_WINDOW,
    PATCHES,
    PILOT_BANDWIDTHS,
    NoisySeries,
    family_by_time,
    guided_name,
    patches_name,
    time_heads,
    units_of,
    wide_time_heads,
)
from overt.smoothing.selection.bank.mixture import Pilot, bank_risks, mix, mix_pilot
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations
from overt.smoothing.selection.bank.segments import NAME, attend_segments
from overt.smoothing.selection.bank.stages import GUIDED, PREMIUM, BankOutputs
from overt.smoothing.selection.bank.wiener import attend_wiener, wiener_lengths, wiener_name

# Series at a time: the outputs of all heads of series of 100 points then take 7 MB.
TOGETHER = 32


class Grid(NamedTuple):
    """What series have in common that go through the bank at once."""

    points: int
    span: float  # in steps


def grid_of(series: NoisySeries) -> Grid | None:
    """The grid of a short series with all its values and times at equal steps; None for others, and without the native core."""
    points = series.values.size
    if not 2 <= points <= LONGEST or not native.available() or not (series.weights == 1).all() or not on_grid(series.times):
        return None
    return Grid(points, float(series.times[-1] - series.times[0]))


@dataclass(frozen=True)
class Series:
    """Several series of one grid, and the units in which the heads compare their values."""

    grid: Grid
    times: Floats  # (n,) in steps of the grid
    values: Floats  # (series, n)
    levels: Floats  # (series, n)
    units: tuple[tuple[float, ...], ...]  # of each series, the units in which its points compare values
    unit: Floats  # (series, n), the unit of each point

    @classmethod
    def of(cls, several: Sequence[NoisySeries]) -> "Series":
        """The values and levels of several, one below the other."""
        grid = grid_of(several[0])
        assert grid is not None
        unit = np.stack([units_of(one, overall_level(one.levels)) for one in several])
        units = tuple((float(row[0]),) if (row == row[0]).all() else tuple(np.unique(row).tolist()) for row in unit)
        values, levels = (np.stack(column) for column in zip(*((one.values, one.levels) for one in several), strict=True))
        return cls(grid, np.arange(float(grid.points)), values, levels, units, unit)

    def each(self) -> Iterator[tuple[Indices, Floats, NDArray[np.bool_] | None]]:
        """The indices (s,) of some series with one unit of each (s,), and the points of this unit (s, n); None for all points."""
        several = np.array([len(units) > 1 for units in self.units])
        if not several.all():
            index = np.flatnonzero(~several)
            yield index, self.unit[index, 0], None
        for index in np.flatnonzero(several):
            units = np.array(self.units[index])
            yield np.full(units.size, index), units, self.unit[index] == units[:, None]


def attend_banks(several: Sequence[NoisySeries]) -> list[BankOutputs]:
    """`stages.attend_bank` of several series of one grid with white noise.

    >>> draw = np.random.default_rng(0)
    >>> several = [NoisySeries(np.arange(50.0), draw.normal(size=50), np.ones(50), np.ones(50)) for _ in range(3)]
    >>> [outputs.values.shape for outputs in attend_banks(several)]
    [(50,), (50,), (50,)]
    """
    series = Series.of(several)
    count, points = series.values.shape
    names = list(_names(series.grid))
    windows = wiener_lengths(points)
    late = len(windows) + 1 if windows else 0
    final = len(GUIDED[-1]) * len(PILOT_BANDWIDTHS) + late
    outputs = HeadOutputs(*(np.empty((count, len(names) + final, points)) for _ in HeadOutputs._fields))
    _write_pilot_heads(outputs.part(0, len(names)), series)
    observed, first = Observations(series.values, series.levels), len(names)
    risks = of_first = bank_risks(outputs.part(0, first), observed, premium=PREMIUM)
    stop = first
    for bandwidths in GUIDED:
        pilot = mix_pilot(outputs.part(0, stop), observed, premium=PREMIUM, risks=risks)
        for number, bandwidth in enumerate(bandwidths):
            start, stop = first + number * len(PILOT_BANDWIDTHS), first + (number + 1) * len(PILOT_BANDWIDTHS)
            _write_guided(outputs.part(start, stop), series, pilot, bandwidth)
        risks = np.concatenate([of_first, bank_risks(outputs.part(first, stop), observed, premium=PREMIUM)], axis=1)
    if windows:
        pilot = mix_pilot(outputs.part(0, stop), observed, premium=PREMIUM, risks=risks)
        added = outputs.part(stop, stop + late)
        _write_late(added, series, pilot, windows)
        risks, stop = np.concatenate([risks, bank_risks(added, observed, premium=PREMIUM)], axis=1), stop + late
    mixed = mix(outputs.part(0, stop), observed, premium=PREMIUM, risks=risks)
    names += [guided_name(bandwidth, scale) for bandwidth in GUIDED[-1] for scale in PILOT_BANDWIDTHS]
    names += [*(wiener_name(length) for length in windows), NAME] if windows else []
    mixture = mixed.weights(np.arange(points))
    columns = zip(mixed.values, mixed.leverages, mixed.variances, mixture, strict=True)
    return [BankOutputs(values, leverages, variances, names, shares) for values, leverages, variances, shares in columns]


def _names(grid: Grid) -> Iterator[str]:
    """The heads before the guided ones, in the order of `stages`."""
    yield "itself"
    yield from (f"{family_by_time(degree, side)}, {h:.3g} steps" for h, degree, side in time_heads(False))
    yield from (patches_name(2 * half + 1, scale) for half, scales in PATCHES for scale in scales)
    yield from (f"{family_by_time(degree, side)}, {h:.3g} steps" for h, degree, side in wide_time_heads(grid.span, False))


def _write_pilot_heads(outputs: HeadOutputs, series: Series) -> None:
    """The heads that compare the noisy series themselves."""
    squares = series.levels[:, None] ** 2
    outputs.values[:, 0], outputs.leverages[:, 0], outputs.variances[:, 0] = series.values, 1.0, squares[:, 0]
    narrow, wide = tuple(time_heads(False)), wide_time_heads(series.grid.span, False)
    step = series.grid.span / (series.grid.points - 1)
    local = attend_short_grid(series.values, tuple((h / step, degree, side) for h, degree, side in narrow + wide))
    first, stop = 1 + len(narrow), outputs.values.shape[1]
    for rows, part in ((slice(1, first), slice(None, len(narrow))), (slice(stop - len(wide), stop), slice(len(narrow), None))):
        outputs.values[:, rows], outputs.leverages[:, rows] = local.values[:, part], local.leverages[part]
        np.multiply(local.unit_variances[part], squares, out=outputs.variances[:, rows])
    for half, scales in PATCHES:
        rows = slice(first, first + len(scales))
        _write_patches(outputs.part(rows.start, rows.stop), series, half, scales)
        first = rows.stop


def _write_patches(outputs: HeadOutputs, series: Series, half: int, scales: Floats) -> None:
    points = series.grid.points
    window, profile, ones = min(PATCH_WINDOW, points - 1), np.ones(2 * half + 1), np.ones(points)
    source = reflected(points, half, False)
    for index, unit, chosen in series.each():
        values, rates = series.values[index], 0.5 / (scales * unit[:, None]) ** 2
        patches = attend_patches(PatchInputs(values, ones, values[:, source], source, profile, rates, window, False))
        _write_chosen(outputs, index, chosen, patches.values, patches.leverages)
    _write_variances(outputs, series)


def _write_guided(outputs: HeadOutputs, series: Series, pilot: Pilot, bandwidth: float) -> None:
    """Means over points near in time and similar in the pilot, see `candidates.guided_heads`."""
    scales = np.array(PILOT_BANDWIDTHS)
    in_steps = bandwidth * (series.grid.points - 1) / series.grid.span
    window = GUIDED_WINDOW * in_steps
    for index, unit, chosen in series.each():
        guide, bandwidths = pilot.values[index], scales * unit[:, None]
        means = attend_guides(
            GuidedInputs(series.times, guide, series.values[index], None, bandwidths, in_steps, window, "both", even=True)
        )
        leverages = means.self_weights + pilot.leverages[index][:, None] * means.covariance / bandwidths[..., None] ** 2
        _write_chosen(outputs, index, chosen, means.values, leverages)
    _write_variances(outputs, series)


def _write_late(outputs: HeadOutputs, series: Series, pilot: Pilot, windows: tuple[int, ...]) -> None:
    """Waves and segments."""
    for index, length in enumerate(windows):
        outputs.values[:, index], outputs.leverages[:, index] = attend_wiener(
            series.values, series.levels**2, pilot.values, length
        )
    times = np.broadcast_to(series.times, series.values.shape)
    outputs.values[:, -1], outputs.leverages[:, -1] = attend_segments(times, series.values, 1 / series.levels**2)
    _write_variances(outputs, series)


def _write_chosen(
    outputs: HeadOutputs, index: Indices, chosen: NDArray[np.bool_] | None, values: Floats, leverages: Floats
) -> None:
    """The outputs of some series (s, heads, n), at the points that `chosen` (s, n) marks."""
    if chosen is None:
        outputs.values[index], outputs.leverages[index] = values, leverages
        return
    for row, marked, of_values, of_leverages in zip(index, chosen, values, leverages, strict=True):
        outputs.values[row][:, marked], outputs.leverages[row][:, marked] = of_values[:, marked], of_leverages[:, marked]


def _write_variances(outputs: HeadOutputs, series: Series) -> None:
    """Of heads that compare values, approximated: Σ_j W_ij² is at most W_ii for most smoothers."""
    np.multiply(np.maximum(outputs.leverages, 0.0), series.levels[:, None] ** 2, out=outputs.variances)
