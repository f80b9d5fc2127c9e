"""A table's series with its curve, for the report, the pictures and `--json`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.cli.shared.tables.findings import in_rows
from overt.cli.shared.tables.series import SLOPES, Account, TableSeries
from overt.smoothing.data.condition import find_condition
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.times import read_times
from overt.smoothing.reporting.curve import Curve


class SmoothedSeries(NamedTuple):
    """One series of a table, the rows of one group in a column, with its curve."""

    name: str
    column: str
    file: str
    rows: Indices
    data: Floats
    times: NDArray[Any]  # row numbers if the table has no times, hours for times of day
    is_clock: bool  # whether the times are times of day
    curve: Curve
    by_row: bool  # whether the table has no times


def smoothed_series(member: TableSeries, curve: Curve) -> SmoothedSeries:
    """A series with its curve."""
    times: NDArray[Any] = member.rows + 1 if member.times is None else member.times
    is_clock = times.dtype.kind == "m"
    times = times / np.timedelta64(1, "h") if is_clock else times
    return SmoothedSeries(
        member.name,
        member.column,
        member.table.path.name,
        member.rows,
        member.values,
        times,
        is_clock,
        curve,
        member.times is None,
    )


def axis_label(time: str | None, series: Sequence[SmoothedSeries]) -> str:
    """The label of the time axis."""
    return f"{time or 'row'} (hours)" if any(member.is_clock for member in series) else time or "row"


def json_content(file: str, accounts: Sequence[Account], series: Sequence[SmoothedSeries]) -> dict[str, Any]:
    """The content of `--json`."""
    return {"file": file, "read": [account.facts() for account in accounts], "series": [_content(member) for member in series]}


def _content(member: SmoothedSeries) -> dict[str, Any]:
    curve = {
        "smooth": member.curve.values,
        "lower": member.curve.lower,
        "upper": member.curve.upper,
        **member.curve.components(),
    }
    names = {"name": member.name, "column": member.column, "file": member.file, "rows": member.rows, "data": member.data}
    numbered = member.times.dtype.kind in "iu"
    moments = None if numbered else member.times * np.timedelta64(3_600_000, "ms") if member.is_clock else member.times
    condition = find_condition(member.data, read_times(moments, member.data.size))
    report = {"sentence": member.curve.sentence, "report": member.curve.report, "explanation": member.curve.explanation}
    report |= {"steps": [*member.curve.steps], "facts": member.curve.facts, "condition": condition.facts()}
    more: dict[str, Any] = {"outlier": None if member.curve.outliers is None else member.curve.outliers.astype(int)}
    if member.curve.slope is not None:
        more |= dict(zip(SLOPES, member.curve.slope, strict=True))
    findings = {"anomalies": member.curve.anomalies, "changes": member.curve.changes}
    more |= {name: in_rows(rows, member.rows if member.by_row else None) for name, rows in findings.items() if rows is not None}
    return names | curve | more | report
