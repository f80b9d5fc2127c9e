"""What comes in: numbers, times, pandas objects; read once, checked once, made ready to attend."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError, KindError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# The square of anything larger is near the end of float64.
LARGEST = 1e150


@dataclass(frozen=True)
class Series:
    """One series, sorted by time, in units of its own.

    values = (given − center) / spread, NaN where missing; times count typical steps from the first. The smoothers do
    not depend on these units, but the arithmetic does: a constant series becomes exact zeros, and small squares do not
    underflow.
    """

    times: Floats  # (n,) ascending
    values: Floats  # (n,)
    present: Indices  # (m,) where values are not missing
    order: Indices  # (n,) given[order] is sorted
    center: float
    spread: float
    step: float  # the typical step between two times, in the caller's unit
    even: bool  # whether all times lie on one grid of steps, at most three quarters of it holes

    @property
    def key_times(self) -> Floats:
        """Times of the points that serve as keys (m,)."""
        return self.times[self.present]

    @property
    def key_values(self) -> Floats:
        """Values of the points that serve as keys (m,)."""
        return self.values[self.present]

    def restore(self, outputs: Floats) -> Floats:
        """Outputs in the caller's unit and order."""
        given = np.empty_like(outputs)
        given[self.order] = self.center + self.spread * outputs
        return given


def arrange(values: Floats, times: Floats, *, shift: bool = True) -> Series:
    """Sort a series by time and put it into its own units; `shift=False` leaves the values as they are.

    >>> arrange(np.array([3.0, 1.0, 2.0]), np.array([20.0, 0.0, 10.0])).values
    array([-1.,  0.,  1.])
    """
    known = values[~np.isnan(values)]
    if known.size == 0:
        cure = "give at least one value that is not NaN"
        raise InputError("a series needs at least one value", got="none" if values.size == 0 else "only NaN", cure=cure)
    center = float(np.median(known)) if shift else 0.0
    spread = float(np.max(np.abs(known - center))) if shift else 1.0
    spread = spread if spread > np.finfo(float).tiny else 1.0
    order = np.argsort(times, kind="stable")
    ordered, moments = values[order], times[order]
    steps = np.diff(moments)
    steps = steps[steps > 0]
    # A middle step that is there, not the mean of two: times on a grid then count in its steps.
    step = float(np.quantile(steps, 0.5, method="lower")) if steps.size else 1.0
    moments, ordered = (moments - moments[0]) / step, (ordered - center) / spread
    even = moments[-1] <= 4 * moments.size and bool(np.all(np.abs(moments - np.rint(moments)) < 1e-9))
    return Series(moments, ordered, np.flatnonzero(~np.isnan(ordered)), order, center, spread, step, even)


def read_values(x: ArrayLike) -> Floats:
    """Numbers of one or more series as float64, (n,) or (n, columns); pandas objects too."""
    if is_pandas(x):
        x = _of_pandas(x)
    array = np.asarray(x)
    if array.dtype.kind not in "biufO":
        raise KindError("a series holds real numbers", got=f"dtype {array.dtype}", cure="convert it to float first")
    try:
        values = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise KindError("a series holds real numbers", got=str(error), cure="convert it to float first") from error
    if values.ndim not in (1, 2) or values.size == 0:
        rule = "a series is (n,), several are (n, columns), and n is at least 1"
        raise InputError(rule, got=f"shape {values.shape}", cure="pass one number a point in time, along axis 0")
    large = np.abs(values) > LARGEST
    if large.any():
        place = ", ".join(map(str, np.argwhere(large)[0]))
        rule = f"a series holds numbers up to {LARGEST:g}, or NaN where one is missing"
        raise InputError(rule, got=f"{values[large][0]:g} at [{place}]", cure="mend that value, or measure in a larger unit")
    return values


def read_times(times: ArrayLike | None, x: ArrayLike, length: int) -> tuple[Floats, str]:
    """Times as float64 and their unit: "steps" where none are given, "seconds" for dates, "" for plain numbers.

    A pandas DatetimeIndex of `x` counts as given.
    """
    index = getattr(x, "index", None) if is_pandas(x) else None
    if times is None and getattr(getattr(index, "dtype", None), "kind", "") == "M":
        times = np.asarray(index, dtype="datetime64[ns]")
    if times is None:
        return np.arange(length, dtype=np.float64), "steps"
    if getattr(getattr(times, "dtype", None), "kind", "") == "M":
        times = np.asarray(times, dtype="datetime64[ns]")
    array = np.asarray(times)
    if array.shape != (length,):
        rule = "there is one time for each point"
        raise InputError(rule, got=f"times of shape {array.shape} for {length} points", cure="pass times of the series' length")
    if array.dtype.kind == "M":
        return _seconds(array), "seconds"
    if array.dtype.kind not in "iuf":
        cure = "pass floats, or dates as numpy.datetime64"
        raise KindError("times are numbers or dates", got=f"dtype {array.dtype}", cure=cure)
    moments = array.astype(np.float64)
    if not np.isfinite(moments).all():
        at = int(np.flatnonzero(~np.isfinite(moments))[0])
        raise InputError("every point has a finite time", got=f"{moments[at]} at [{at}]", cure="drop that point or date it")
    return moments, ""


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
        raise KindError("a series holds real numbers", got=str(error), cure="select the columns that are numbers") from error


def _seconds(dates: NDArray[Any]) -> Floats:
    if np.isnat(dates).any():
        at = int(np.flatnonzero(np.isnat(dates))[0])
        raise InputError("every point has a time", got=f"NaT at [{at}]", cure="drop that point or date it")
    # Subtracting before dividing keeps nanoseconds that a float of seconds since 1970 would round away.
    return (dates - dates.min()) / np.timedelta64(1, "s")
