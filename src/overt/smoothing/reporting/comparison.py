"""The difference of two smoothed curves, with a band that contains the whole difference at once."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import with_zone
from overt.smoothing.noise.scale import wrapped
from overt.smoothing.reporting.anomalies import runs_of_marks
from overt.smoothing.selection.bands import NORMAL_QUANTILE

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# CONFIDENCE: probability that the whole difference is inside its band.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class CurveDifference:
    """The difference of two curves, first − second, at `times` (m,), with a simultaneous 95% band; all (m,).

    >>> comparison = CurveDifference(np.arange(3.0), np.array([0.0, 2.0, 3.0]), np.array([-1.0, 1.0, 2.0]), np.array([1.0, 3.0, 4.0]))
    >>> comparison.differ, comparison.stretches
    (array([False,  True,  True]), [(np.float64(1.0), np.float64(2.0))])
    """

    times: Any
    difference: Floats
    lower: Floats
    upper: Floats

    @property
    def differ(self) -> NDArray[np.bool_]:
        """The mask of times at which the band excludes 0 (m,)."""
        return (self.lower > 0) | (self.upper < 0)

    @property
    def stretches(self) -> list[tuple[Any, Any]]:
        """The first and the last times of the stretches in which the curves differ."""
        return [(self.times[run[0]], self.times[run[-1]]) for run in runs_of_marks(self.differ)]


def compare(first: "Smoothing", second: "Smoothing") -> CurveDifference:
    """The difference of the curves of two smoothings, at all times of either that are within the range of both.

    The band is simultaneous: d ± c √(s₁² + s₂²), with c the two-sided normal quantile of 1 − (1 − 0.95)^(1/k) (Šidák 1967). k is the sum
    of the curves' degrees of freedom, at least 1 for a curve: about as many places of a curve vary independently. The band assumes curves
    without bias. Raises InputError if a curve has no band, or the times differ in kind or have no common range.

    >>> from overt.smoothing import analyze
    >>> draw, times = np.random.default_rng(0), np.arange(200.0)
    >>> one = analyze(np.sin(times / 30) + 0.1 * draw.normal(size=200))
    >>> other = analyze(np.sin(times / 30) + 0.5 * (times > 120) + 0.1 * draw.normal(size=200))
    >>> [(start > 110, stop) for start, stop in compare(one, other).stretches]
    [(np.True_, np.float64(199.0))]
    """
    for name, smoothing in (("first", first), ("second", second)):
        if smoothing.withheld:
            fix = "pass noise=, or smooth series whose noise is independent"
            raise InputError("two smoothings with a band", got=f"none in the {name}: {smoothing.withheld}", fix=fix)
    if (first.times.kind, first.times.zone is None) != (second.times.kind, second.times.zone is None):
        got = f"{first.times.kind} and {second.times.kind}"
        fix = "pass both series with the same kind"
        raise InputError("times of one kind, with a time zone both or neither", got=got, fix=fix)
    times = _common(first.times.as_passed, second.times.as_passed)
    turn = first.options.circular
    if turn != second.options.circular:
        got, fix = f"circular={turn} and {second.options.circular}", "smooth both with the same circular="
        raise InputError("values that are both angles of one turn, or neither", got=got, fix=fix)
    curves = [smoothing.at(with_zone(times, smoothing.times.zone), band=True) for smoothing in (first, second)]
    difference = curves[0].values - curves[1].values
    difference = difference if turn is None else wrapped(difference, turn)
    halves = [(curve.upper - curve.lower) / 2 for curve in curves]  # type: ignore[operator]
    freedom = sum(max(smoothing.degrees_of_freedom, 1.0) for smoothing in (first, second))
    quantile = NormalDist().inv_cdf(0.5 + 0.5 * CONFIDENCE ** (1 / freedom))
    half = quantile / NORMAL_QUANTILE * np.hypot(*halves)
    return CurveDifference(times, difference, difference - half, difference + half)


def _common(first: Any, second: Any) -> Any:
    """All times of either series within the range of both, ascending."""
    low, high = max(first.min(), second.min()), min(first.max(), second.max())
    times = np.unique(np.concatenate([first, second]))
    times = times[(times >= low) & (times <= high)]
    if not times.size:
        got = f"{first.min()} to {first.max()}, and {second.min()} to {second.max()}"
        raise InputError("two series that overlap in time", got=got, fix="shift the times of one, as to days since an event")
    return times
