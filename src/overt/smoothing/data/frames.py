"""Series and tables of pandas and polars: their numbers, their times, and the conversion of curves to the same kind of object.

Neither library is imported. The times are a pandas index of dates, periods, lengths of time or numbers, or the only column of a table
with dates or lengths of time. Columns of times are not smoothed and stay unchanged; text is refused by name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError, KindError, MissingExtra
from overt.smoothing.data.series import Floats, read_values
from overt.smoothing.data.times import Times

if TYPE_CHECKING:
    from pandas import DataFrame

# _DATE: text such as 2024-12-31, 31.12.2024 or 01/02/2024 14:05.
_DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}(\2\d{1,2})?|\d{1,2}([-/.])\d{1,2}\4\d{4})([T ,].*)?")
_TIMES = ("datetime", "date", "timestamp", "period[", "timedelta", "duration")


@dataclass(frozen=True)
class Input:
    """A series or table as passed: its numbers, its times, and `wrap`, which turns curves into the same kind of object."""

    values: Floats  # (n,) or (n, columns)
    times: Any | None
    wrap: Callable[[Floats], Any]
    index: Any | None = None  # index of a pandas object
    columns: tuple[Any, ...] = ()  # the names of a table's columns of values
    times_column: Any | None = None  # the name of the column that holds the times

    def one_series(self) -> "Input":
        """This input, or a table with one column of values as a series (n,); an error if there are several columns."""
        if self.values.ndim == 1:
            return self
        if len(self.columns) == 1:  # if the times are a column, the index has no meaning
            return replace(self, values=self.values[:, 0], index=self.index if self.times_column is None else None)
        fix = "analyze its columns one by one"
        if self.columns and self.times_column is None:
            fix = f"analyze one column: analyze(x[{self.columns[0]!r}])"
        elif self.columns:
            fix = f"analyze one column with its times: analyze(x[{self.columns[0]!r}], times=x[{self.times_column!r}])"
        raise InputError("one series of shape (n,)", got=f"shape {self.values.shape}", fix=fix)


def read_input(x: Any, times: Any | None = None) -> Input:
    """Read an array, or a series or table of pandas or polars; `times` replaces its own times if passed."""
    library = type(x).__module__.partition(".")[0]
    if library == "pandas" and hasattr(x, "index") and hasattr(x, "to_numpy"):
        return _read_pandas(x, times)
    if library == "polars":
        return _read_polars(x, times)
    return Input(read_values(x), times, lambda curves: curves)


def data_frame(columns: dict[str, Any], index: Any) -> "DataFrame":
    """Columns (n,) as a pandas DataFrame with an index, or with `Times` as the index, in their time zone if they have one."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingExtra("a DataFrame", needs="pandas", extra="smooth") from error
    if not isinstance(index, Times):
        return pandas.DataFrame(columns, index=index)
    times = index.as_passed
    in_zone = times if index.zone is None else pandas.DatetimeIndex(times).tz_localize("UTC").tz_convert(index.zone)
    return pandas.DataFrame(columns, index=in_zone)


def _read_pandas(x: Any, times: Any | None) -> Input:
    if x.ndim == 1:
        values = read_values(_column_numbers(x, "the series"))
        times = _times_of_index(x.index) if times is None else times
        return Input(values, times, lambda curve: type(x)(curve, index=x.index, name=x.name), x.index)
    dated = [at for at in range(x.shape[1]) if _holds_times(x.iloc[:, at])]
    column = None
    if times is None:
        column = _only(dated, list(x.columns), _holds_times(x.index))
        times = _times_of_index(x.index) if column is None else x.iloc[:, column]
    numeric = [at for at in range(x.shape[1]) if at not in dated]
    columns = [_column_numbers(x.iloc[:, at], f"column {x.columns[at]!r}") for at in numeric]

    def wrap(curves: Floats) -> Any:
        smoothed = x.copy()
        for at, curve in zip(numeric, curves.T, strict=True):
            smoothed.isetitem(at, curve)
        return smoothed

    names = tuple(x.columns[at] for at in numeric)
    return Input(read_values(_joined(columns)), times, wrap, x.index, names, None if column is None else x.columns[column])


def _read_polars(x: Any, times: Any | None) -> Input:
    if hasattr(x, "collect"):
        raise KindError("a table in memory", got="a LazyFrame", fix="pass x.collect()")
    if not hasattr(x, "columns"):
        return Input(read_values(_column_numbers(x, "the series")), times, lambda curve: type(x)(x.name, curve))
    names = x.columns
    dated = [at for at, name in enumerate(names) if _holds_times(x[name])]
    column = _only(dated, names, False) if times is None else None
    times = times if column is None else x[names[column]]
    numeric = [name for at, name in enumerate(names) if at not in dated]
    columns = [_column_numbers(x[name], f"column {name!r}") for name in numeric]

    def wrap(curves: Floats) -> Any:
        return x.with_columns([type(x[name])(name, curve) for name, curve in zip(numeric, curves.T, strict=True)])

    return Input(read_values(_joined(columns)), times, wrap, None, tuple(numeric), None if column is None else names[column])


def _times_of_index(index: Any) -> Any | None:
    """The times in an index; None for names and for the numbers 0, 1, 2, …"""
    if index.nlevels > 1:
        fix = "smooth each group, x.groupby(level=0, group_keys=False).apply(…), or drop a level, x.droplevel(0)"
        raise InputError("an index of one level", got=f"{index.nlevels} levels: {list(index.names)}", fix=fix)
    counts = hasattr(index, "step") and (index.start, index.step) == (0, 1)
    if counts or not (_holds_times(index) or getattr(index.dtype, "kind", "") in "iuf"):
        return None
    back = np.flatnonzero(index[1:] < index[:-1])
    if back.size:
        at = 1 + int(back[0])
        fix = "sort it with x.sort_index(), smooth each group separately, or call x.reset_index(drop=True) if it is no time"
        raise InputError("an index that does not go back in time", got=f"{index[at]} after {index[at - 1]} at [{at}]", fix=fix)
    return index


def _holds_times(column: Any) -> bool:
    """Whether a column or an index holds dates, periods or lengths of time."""
    dtype = str(column.dtype).lower()
    return dtype.startswith(_TIMES) or (dtype == "object" and len(column) > 0 and isinstance(np.asarray(column)[0], date))


def _only(dated: list[int], names: list[Any], index_is_dated: bool) -> int | None:
    """The only column of times of a table, or None; an error if there are several, or also times in the index."""
    if not dated or (len(dated) == 1 and not index_is_dated):
        return dated[0] if dated else None
    listed = ", ".join(repr(names[at]) for at in dated)
    got = f"an index of times and the column {listed}" if index_is_dated else f"{len(dated)}: {listed}"
    fix = f"pass the time of the rows, as in times=x[{names[dated[0]]!r}]"
    raise InputError("one column of times, or an index of times", got=got, fix=fix)


def _column_numbers(column: Any, name: str) -> NDArray[Any]:
    """A column as float64, missing values as NaN; an error if it holds text or dates."""
    dtype = str(column.dtype)
    if not (_holds_times(column) or dtype.startswith(("complex", "String", "Time", "str"))):
        try:
            if hasattr(column, "isna"):
                return column.to_numpy(dtype=np.float64, na_value=np.nan)
            return column.cast(float).to_numpy()
        except Exception as error:  # polars has a class of its own
            message = str(error).splitlines()[0]
            fix = "select the numeric columns, or convert it to float"
            raise KindError(f"real numbers in {name}", got=f"an error: {message}", fix=fix) from error
    fix = "select the numeric columns, or convert it to float first"
    if name != "the series" and _DATE.fullmatch(next((cell for cell in column if isinstance(cell, str)), "")):
        fix = "convert it with pandas.to_datetime (polars: str.to_datetime)"
    raise KindError(f"real numbers in {name}", got=f"dtype {dtype}", fix=fix)


def _joined(columns: list[NDArray[Any]]) -> NDArray[Any]:
    if not columns:
        raise InputError("a column of numbers", got="none", fix="pass a table with one")
    return np.stack(columns, axis=1)
