"""The changes of level and slope of a smoothed series, in the caller's units."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.series import Floats, key_noise
from overt.smoothing.operators.changes import SLOPE, LocatedChange, locate
from overt.smoothing.operators.derivative import unit_of_slope

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

LEAST_POINTS = 10
_SLACK = 1e-12


class Change(NamedTuple):
    """A change of level or slope: the first point after it, an interval that contains it with 95%, its size and its probability."""

    time: Any  # as passed
    lower: Any
    upper: Any
    kind: str  # "level" or "slope"
    size: float  # after − before, in the unit of the values; for a slope per unit of time, as in `Smoothing.derivative`
    probability: float  # that the series changes there


def find_changes(result: "Smoothing") -> list[Change]:
    """The changes whose probability is ½ or more, by time."""
    if result.scaled is None:
        rows, located, factor = _located(result)
        sizes = [factor[change.kind == SLOPE] * (change.after - change.before) for change in located]
    else:
        first, scale = result.scaled
        rows, located, factor = _located(first)
        sizes = [_on_scale(first, scale, change, factor, int(rows[change.position])) for change in located]
    times, changes = result.times.as_passed, []
    for change, size in zip(located, sizes, strict=True):
        kind, moments = "slope" if change.kind == SLOPE else "level", [times[rows[point]] for point in change[:3]]
        changes.append(Change(moments[0], moments[1], moments[2], kind, float(size), min(change.probability, 1.0)))
    return changes


def known_changes(result: "Smoothing") -> list[Change] | None:
    """The changes of a smoothing if they are computed, else None: the search takes longer than the smoothing."""
    return vars(result).get("changes")


def _located(result: "Smoothing") -> tuple[Any, list[LocatedChange], tuple[float, float]]:
    """The rows of the points that count, their changes, and the factors from a level and a slope to the caller's units."""
    series = result.series
    out = (result.outliers | result.repeats.out)[series.order][series.present]
    present = series.present[~out]
    if present.size < LEAST_POINTS:
        fix = "pass a longer series"
        raise InputError(f"{LEAST_POINTS} values or more to look for changes", got=str(present.size), fix=fix)
    levels = key_noise(series, result.unit_levels)[~out]
    relative = np.maximum(levels / max(float(np.median(levels)), _SLACK), _SLACK)
    per, _ = unit_of_slope(result, None)
    located = locate(series.times[present], series.values[present], relative)
    return series.order[present], located, (series.spread, series.spread * per / series.step)


def _on_scale(first: "Smoothing", scale: Any, change: LocatedChange, factor: tuple[float, float], row: int) -> float:
    """The size, in the caller's unit, of a change on another scale."""
    if change.kind == SLOPE:
        slope: Floats = scale.slope(first.values[[row]])
        return float(factor[1] * (change.after - change.before) * slope[0])
    ends = first.series.center + factor[0] * np.array([change.before, change.after])
    if first.seasons is not None:
        ends += first.components[row].sum()
    before, after = (ends if scale.turn else scale.mean(ends)).tolist()
    return after - before
