"""The input: numbers, weights and noise, read and checked once, and sorted by time into a `Series`."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError, KindError
from overt.smoothing.data.clock import Clock

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# LARGEST: largest value; the square of a larger one is near the range of float64.
LARGEST = 1e150
# SHORT: fewer points make a series short: it shows less of its noise, and a single point may be a peak.
SHORT = 400
# NOISELESS: noise level used instead of 0, in units of a series' spread.
NOISELESS = 1e-9


@dataclass(frozen=True)
class Series:
    """One series, sorted by time, in its own units.

    values = (x − center) / spread, NaN if missing; times are in typical steps from the first time. The smoothers do not depend on
    these units, but rounding does: a constant series becomes exact zeros, and small squares do not underflow.
    """

    times: Floats  # (n,) ascending
    values: Floats  # (n,)
    weights: Floats | None  # (n,) 1/variance of a value, above 0 if present, in units of `weight`; None: all 1
    order: Indices  # (n,) x[order] is sorted by time
    center: float
    spread: float
    start: float  # the first time, in the caller's unit
    step: float  # the typical step between two times, in the caller's unit
    weight: float = 1.0  # the typical weight, in the caller's unit
    clock: Clock | None = None  # local time that seasons follow

    @cached_property
    def present(self) -> Indices:
        """The indices of the values that are not missing (m,)."""
        return np.flatnonzero(~np.isnan(self.values))

    @property
    def noise_unit(self) -> float:
        """The standard deviation 1 at weight 1, in the caller's units."""
        return self.spread * float(np.sqrt(self.weight))

    @property
    def key_times(self) -> Floats:
        """Times of the points that serve as keys (m,)."""
        return self.times[self.present]

    @property
    def key_values(self) -> Floats:
        """Values of the points that serve as keys (m,)."""
        return self.values[self.present]

    @property
    def key_weights(self) -> Floats | None:
        """Weights of the points that serve as keys (m,)."""
        return None if self.weights is None else self.weights[self.present]

    @property
    def key_index(self) -> Indices:
        """The index of every point among the keys, −1 if its value is missing (n,)."""
        index = np.full(self.times.size, -1)
        index[self.present] = np.arange(self.present.size)
        return index

    @property
    def ties(self) -> Indices:
        """The index of every point's time among the distinct times (n,)."""
        return np.cumsum(np.append(False, np.diff(self.times) > 0))

    def tied(self, column: Floats) -> Floats:
        """A column (n,) averaged over the points at the same time, without NaN."""
        ties = self.ties
        if ties[-1] == ties.size - 1:
            return column
        known = ~np.isnan(column)
        counts, sums = np.bincount(ties, known), np.bincount(ties, np.where(known, column, 0.0))
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)[ties]

    def part(self, rows: slice) -> "Series":
        """A series of consecutive points, in the same units."""
        times, values = self.times[rows], self.values[rows]
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, times=times, values=values, weights=weights, order=np.arange(values.size))

    def with_values(self, values: Floats) -> "Series":
        """The series with other values, in its own units."""
        return replace(self, values=values)

    def restore(self, outputs: Floats) -> Floats:
        """Outputs in the caller's unit and order."""
        return self.unsort(self.center + self.spread * outputs)

    def unsort(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column (n,) in the caller's order."""
        unsorted = np.empty_like(column)
        unsorted[self.order] = column
        return unsorted


def arrange(values: Floats, times: Floats, weights: Floats | None = None, *, shift: bool = True) -> Series:
    """Sort a series by time and scale it to its own units; `shift=False` leaves the values unchanged.

    A value of weight 0 counts as missing.

    >>> arrange(np.array([3.0, 1.0, 2.0]), np.array([20.0, 0.0, 10.0])).values
    array([-1.,  0.,  1.])
    """
    if weights is not None:
        values = np.where(weights > 0, values, np.nan)
    known = values[~np.isnan(values)]
    if known.size == 0:
        got = "none" if values.size == 0 else "only NaN"
        raise InputError("a series with at least one value", got=got, fix="pass at least one number that is not NaN")
    center = float(np.median(known)) if shift else 0.0
    spread = float(np.max(np.abs(known - center))) if shift else 1.0
    spread = spread if spread > np.finfo(float).tiny else 1.0
    order = np.argsort(times, kind="stable")
    ordered, moments = values[order], times[order]
    steps = np.diff(moments)
    steps = steps[steps > 0]
    # The median is one of the steps, not the mean of two, so that times on a grid are whole numbers.
    middle = (steps.size - 1) // 2
    step = float(np.partition(steps, middle)[middle]) if steps.size else 1.0
    start = float(moments[0])
    moments, ordered = (moments - start) / step, (ordered - center) / spread
    series = Series(moments, ordered, None, order, center, spread, start, step)
    if weights is None:
        return series
    weights = weights[order]
    weight = float(np.median(weights[series.present]))
    return replace(series, weights=None if (weights[series.present] == weight).all() else weights / weight, weight=weight)


def filled_values(series: Series, *, causal: bool = False) -> Floats:
    """The values (n,), with missing ones interpolated linearly, or equal to the last known value if `causal`."""
    missing = np.isnan(series.values)
    if not missing.any():
        return series.values
    if not causal:
        return np.where(missing, np.interp(series.times, series.key_times, series.key_values), series.values)
    before = np.maximum(np.cumsum(~missing) - 1, 0)
    return np.where(missing, series.key_values[before], series.values)


def read_values(x: ArrayLike) -> Floats:
    """The numbers of one or more series as float64, (n,) or (n, columns)."""
    try:
        array = np.asarray(x)
        values = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError) as error:
        raise KindError("a series of real numbers", got=f"an error: {error}", fix="convert it to float first") from error
    if values is None:
        raise KindError("a series of real numbers", got=f"dtype {array.dtype}", fix="convert it to float first")
    if isinstance(x, np.ma.MaskedArray):
        values[np.ma.getmaskarray(x)] = np.nan
    if values.ndim not in (1, 2) or values.size == 0:
        expected = "one series (n,) or several (n, columns), with n of at least 1"
        raise InputError(expected, got=f"shape {values.shape}", fix="pass one number per point in time, along axis 0")
    large = np.abs(values) > LARGEST
    if large.any():
        position = ", ".join(map(str, np.argwhere(large)[0]))
        expected = f"numbers up to {LARGEST:g}, or NaN for a missing value"
        fix = "correct that value, or use a larger unit"
        raise InputError(expected, got=f"{values[large][0]:g} at [{position}]", fix=fix)
    return values


def read_weights(weights: ArrayLike | None, length: int) -> Floats | None:
    """Weights as float64 (n,); None if none are passed."""
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf":
        fix = "pass floats, 1/variance of each value up to a factor"
        raise KindError("weights as numbers", got=f"dtype {array.dtype}", fix=fix)
    if array.shape != (length,):
        got = f"weights of shape {array.shape} for {length} points"
        raise InputError("one weight for each point", got=got, fix="pass as many weights as the series has points")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        fix = "pass weight 0 for a value to leave out"
        raise InputError("finite weights of 0 or more", got=f"{array[at]} at [{at}]", fix=fix)
    return array.astype(np.float64)


def check_noise_of_weights(noise: object, weights: Floats | None) -> None:
    """Refuse one noise per point together with weights that differ: both would scale the variance."""
    if weights is None or np.unique(weights[weights > 0]).size < 2 or np.ndim(noise) == 0:  # type: ignore[arg-type]
        return
    fix = "pass noise for a point of weight 1, or leave weights out"
    raise InputError("noise as one number with weights", got="one for each point", fix=fix)


def read_noise(noise: ArrayLike, length: int) -> Floats:
    """Standard deviations of the noise as float64 (n,), from one number or one per point."""
    array = np.asarray(noise)
    if array.dtype.kind not in "biuf":
        raise KindError("noise as numbers", got=f"dtype {array.dtype}", fix="pass floats, a standard deviation for each point")
    if array.ndim and array.shape != (length,):
        got = f"shape {array.shape} for {length} points"
        raise InputError("noise as one number, or one for each point", got=got, fix="pass as many as the series has points")
    each = np.broadcast_to(array, (length,)).astype(np.float64)
    wrong = ~(np.isfinite(each) & (each >= 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        fix = "pass standard deviations, or None to estimate the noise"
        raise InputError("finite noise of 0 or more", got=f"{each[at]:g} at [{at}]", fix=fix)
    return each


def key_noise(series: Series, levels: Floats) -> Floats:
    """The noise's standard deviation σ_i of the present points (m,)."""
    noise = levels[series.present]
    return noise if series.key_weights is None else noise / np.sqrt(series.key_weights)


def overall_level(levels: Floats) -> float:
    """The root mean square of the levels, above 0."""
    largest = max(float(levels.max(initial=0.0)), NOISELESS)
    return max(largest * float(np.sqrt(np.mean((levels / largest) ** 2))), NOISELESS)
