"""What comes in: numbers, times, pandas objects; read once, checked once, made ready to attend."""

from dataclasses import dataclass, replace
from datetime import UTC, date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError, KindError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# The square of anything larger is near the end of float64.
LARGEST = 1e150
# Seconds; 2⁶³ nanoseconds are little more.
CENTURIES = 9e9


@dataclass(frozen=True)
class Series:
    """One series, sorted by time, in units of its own.

    values = (given − center) / spread, NaN where missing; times count typical steps from the first. The smoothers do
    not depend on these units, but the arithmetic does: a constant series becomes exact zeros, and small squares do not
    underflow.
    """

    times: Floats  # (n,) ascending
    values: Floats  # (n,)
    weights: Floats | None  # (n,) 1/variance of a value, above 0 where present, as multiples of `weight`; None: all 1
    present: Indices  # (m,) where values are not missing
    order: Indices  # (n,) given[order] is sorted
    center: float
    spread: float
    start: float  # the first time, in the caller's unit
    step: float  # the typical step between two times, in the caller's unit
    weight: float = 1.0  # the typical weight, in the caller's unit

    @property
    def noise_unit(self) -> float:
        """What a standard deviation at weight 1 counts in the caller's units."""
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
    def own_key(self) -> Indices:
        """Where among the keys each point is, −1 where its value is missing (n,)."""
        own = np.full(self.times.size, -1)
        own[self.present] = np.arange(self.present.size)
        return own

    def part(self, rows: slice) -> "Series":
        """Some consecutive points, in the same units, as a series of its own."""
        weights = None if self.weights is None else self.weights[rows]
        values = self.values[rows]
        present, order = np.flatnonzero(~np.isnan(values)), np.arange(values.size)
        return replace(self, times=self.times[rows], values=values, weights=weights, present=present, order=order)

    def with_values(self, values: Floats) -> "Series":
        """The same series with other values where it has some, in its own units."""
        return replace(self, values=values)

    def restore(self, outputs: Floats) -> Floats:
        """Outputs in the caller's unit and order."""
        given = np.empty_like(outputs)
        given[self.order] = self.center + self.spread * outputs
        return given


def arrange(values: Floats, times: Floats, weights: Floats | None = None, *, shift: bool = True) -> Series:
    """Sort a series by time and put it into its own units; `shift=False` leaves the values as they are.

    A value of weight 0 counts as missing.

    >>> arrange(np.array([3.0, 1.0, 2.0]), np.array([20.0, 0.0, 10.0])).values
    array([-1.,  0.,  1.])
    """
    if weights is not None:
        values = np.where(weights > 0, values, np.nan)
    known = values[~np.isnan(values)]
    if known.size == 0:
        fix = "give at least one value that is not NaN"
        raise InputError("a series needs at least one value", got="none" if values.size == 0 else "only NaN", fix=fix)
    center = float(np.median(known)) if shift else 0.0
    spread = float(np.max(np.abs(known - center))) if shift else 1.0
    spread = spread if spread > np.finfo(float).tiny else 1.0
    order = np.argsort(times, kind="stable")
    ordered, moments = values[order], times[order]
    steps = np.diff(moments)
    steps = steps[steps > 0]
    # A middle step that is there, not the mean of two: times on a grid then count in its steps.
    step = float(np.quantile(steps, 0.5, method="lower")) if steps.size else 1.0
    start = float(moments[0])
    moments, ordered = (moments - start) / step, (ordered - center) / spread
    present = np.flatnonzero(~np.isnan(ordered))
    weighed = np.ones(values.size) if weights is None else weights[order]
    weight = float(np.median(weighed[present]))
    weighed = None if (weighed[present] == weight).all() else weighed / weight
    return Series(moments, ordered, weighed, present, order, center, spread, start, step, weight)


def filled_values(series: Series, *, causal: bool = False) -> Floats:
    """The values, missing ones on the line between their neighbours; with `causal`, as the last one that was there."""
    missing = np.isnan(series.values)
    if not missing.any():
        return series.values
    if not causal:
        return np.where(missing, np.interp(series.times, series.key_times, series.key_values), series.values)
    before = np.maximum(np.cumsum(~missing) - 1, 0)
    return np.where(missing, series.key_values[before], series.values)


def read_values(x: ArrayLike) -> Floats:
    """Numbers of one or more series as float64, (n,) or (n, columns); pandas objects too."""
    if is_pandas(x):
        x = _of_pandas(x)
    try:
        array = np.asarray(x)
        values = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError) as error:
        raise KindError("a series holds real numbers", got=str(error), fix="convert it to float first") from error
    if values is None:
        raise KindError("a series holds real numbers", got=f"dtype {array.dtype}", fix="convert it to float first")
    if isinstance(x, np.ma.MaskedArray):
        values[np.ma.getmaskarray(x)] = np.nan
    if values.ndim not in (1, 2) or values.size == 0:
        rule = "a series is (n,), several are (n, columns), and n is at least 1"
        raise InputError(rule, got=f"shape {values.shape}", fix="pass one number a point in time, along axis 0")
    large = np.abs(values) > LARGEST
    if large.any():
        place = ", ".join(map(str, np.argwhere(large)[0]))
        rule = f"a series holds numbers up to {LARGEST:g}, or NaN where one is missing"
        raise InputError(rule, got=f"{values[large][0]:g} at [{place}]", fix="mend that value, or measure in a larger unit")
    return values


class Times(NamedTuple):
    """Times as numbers and their unit: "steps" where none are given, "seconds" for dates, "" for plain numbers."""

    moments: Floats  # (n,)
    unit: str
    origin: np.datetime64 | None = None  # the date that seconds count from


def read_times(times: ArrayLike | None, x: ArrayLike, length: int) -> Times:
    """Read times, one for each of `length` points. A pandas DatetimeIndex of `x` counts as given."""
    index = getattr(x, "index", None) if is_pandas(x) else None
    if times is None and getattr(getattr(index, "dtype", None), "kind", "") == "M":
        times = index
    if times is None:
        return Times(np.arange(length, dtype=np.float64), "steps")
    array = _array_of(times)
    if array.shape != (length,):
        rule = "there is one time for each point"
        raise InputError(rule, got=f"times of shape {array.shape} for {length} points", fix="pass times of the series' length")
    if array.dtype.kind == "M":
        origin = array.min()
        return Times(_seconds(array, origin), "seconds", origin)
    return Times(_numbers(array), "")


def read_moments(times: ArrayLike, like: Times) -> Floats:
    """Other times of the same kind as a series' own, as numbers from the same origin (m,)."""
    array = np.atleast_1d(_array_of(times))
    if array.ndim != 1:
        raise InputError("times are (m,)", got=f"shape {array.shape}", fix="pass one after the other")
    if (array.dtype.kind == "M") != (like.origin is not None):
        kind = "numbers" if like.origin is None else "dates"
        got = {"M": "dates", "f": "numbers", "i": "numbers"}.get(array.dtype.kind, f"dtype {array.dtype}")
        raise KindError(f"a series whose times are {kind} is asked at {kind}", got=got, fix=f"pass {kind}")
    return _numbers(array) if like.origin is None else _seconds(array, like.origin)


def _array_of(times: Any) -> NDArray[Any]:
    """Times as an array; dates, of Python, NumPy or pandas, as datetime64, in UTC where they have a zone."""
    kind: Any = getattr(times, "dtype", None)
    zoned = getattr(kind, "kind", "") == "M" and not isinstance(kind, np.dtype)
    array = np.asarray(times, dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]" if zoned else None)
    if array.dtype == object and array.size and all(isinstance(one, date) for one in array.flat):
        plain = [one.astimezone(UTC).replace(tzinfo=None) if getattr(one, "tzinfo", None) else one for one in array.flat]
        return np.array(plain, dtype="datetime64[us]").reshape(array.shape)
    return array


def _numbers(array: NDArray[Any]) -> Floats:
    if array.dtype.kind not in "iuf":
        fix = "pass floats, or dates as numpy.datetime64"
        raise KindError("times are numbers or dates", got=f"dtype {array.dtype}", fix=fix)
    moments = array.astype(np.float64)
    if not np.isfinite(moments).all():
        at = int(np.flatnonzero(~np.isfinite(moments))[0])
        raise InputError("every point has a finite time", got=f"{moments[at]} at [{at}]", fix="drop that point or date it")
    return moments


def read_weights(weights: ArrayLike | None, length: int) -> Floats | None:
    """Weights as float64 (n,), None where all are alike."""
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf":
        raise KindError(
            "weights are numbers", got=f"dtype {array.dtype}", fix="pass floats, 1/variance of each value up to a factor"
        )
    if array.shape != (length,):
        rule = "there is one weight for each point"
        raise InputError(
            rule, got=f"weights of shape {array.shape} for {length} points", fix="pass weights of the series' length"
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InputError(
            "a weight is finite and 0 or more", got=f"{array[at]} at [{at}]", fix="give a value that does not count weight 0"
        )
    return array.astype(np.float64)


def read_noise(noise: ArrayLike, length: int) -> Floats:
    """Standard deviations of the noise as float64 (n,), from one number or one for each point."""
    array = np.asarray(noise)
    if array.dtype.kind not in "biuf":
        raise KindError("noise is numbers", got=f"dtype {array.dtype}", fix="pass floats, a standard deviation for each point")
    if array.ndim and array.shape != (length,):
        rule, got = "noise is one number, or one for each point", f"shape {array.shape} for {length} points"
        raise InputError(rule, got=got, fix="pass noise of the series' length")
    each = np.broadcast_to(array, (length,)).astype(np.float64)
    wrong = ~(np.isfinite(each) & (each >= 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        rule = "noise is a standard deviation, finite and 0 or more"
        raise InputError(rule, got=f"{each[at]:g} at [{at}]", fix="pass such ones, or None to have it estimated")
    return each


def is_pandas(x: Any) -> bool:
    """Whether `x` is a pandas Series or DataFrame, asked without importing pandas."""
    return type(x).__module__.partition(".")[0] == "pandas" and hasattr(x, "index") and hasattr(x, "to_numpy")


def dressed_like(x: Any, values: Floats) -> Any:
    """`values` with the index and names of `x` where it is a pandas object, plain otherwise."""
    if not is_pandas(x):
        return values
    names = {"columns": x.columns} if values.ndim == 2 else {"name": x.name}
    return type(x)(values, index=x.index, **names)


def _of_pandas(x: Any) -> NDArray[Any]:
    try:
        return x.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise KindError("a series holds real numbers", got=str(error), fix="select the columns that are numbers") from error


def _seconds(dates: NDArray[Any], origin: Any) -> Floats:
    if np.isnat(dates).any():
        at = int(np.flatnonzero(np.isnat(dates))[0])
        raise InputError("every point has a time", got=f"NaT at [{at}]", fix="drop that point or date it")
    seconds = (dates.astype("datetime64[s]") - origin.astype("datetime64[s]")).astype(np.float64)
    if np.abs(seconds).max(initial=0.0) > CENTURIES:
        return seconds
    # Subtracting before dividing keeps nanoseconds that a float of seconds since 1970 would round away.
    return (dates - origin).astype("timedelta64[ns]") / np.timedelta64(1, "s")
