"""Anomalies and changes of a table's series, as CSV and as rows."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from overt.cli.shared.json_output import write_json
from overt.smoothing.data.series import Indices
from overt.smoothing.reporting.anomalies import Anomaly

if TYPE_CHECKING:
    from overt.cli.shared.tables.smoothed import SmoothedSeries

_TIMES = ("time", "until", "lower", "upper")


def in_rows(findings: Sequence[dict[str, Any]], rows: Indices | None) -> list[dict[str, Any]]:
    """Anomalies or changes; if the table has no times, their times become row numbers, counted from 1.

    >>> in_rows([{"time": 2.0, "size": 5.0}], np.array([10, 11, 12]))
    [{'time': 13, 'size': 5.0}]
    """
    if rows is None:
        return list(findings)
    return [{name: int(rows[int(value)]) + 1 if name in _TIMES else value for name, value in row.items()} for row in findings]


def write_reports(
    json_out: Path | None, table: Path | None, content: dict[str, Any], series: "Sequence[SmoothedSeries]"
) -> None:
    """Write reports and curves as JSON, and anomalies as CSV, if a path is passed."""
    if json_out:
        write_json(json_out, "smooth", content)
    if table:
        write_anomalies(table, series)


def write_anomalies(path: Path, series: "Sequence[SmoothedSeries]") -> None:
    """Write the anomalies of all series as CSV, a row each, with the name of the series."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["series", *Anomaly._fields])
        writer.writeheader()
        for member in series:
            for row in in_rows(member.curve.anomalies or (), member.rows if member.by_row else None):
                cells = {name: "" if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
                writer.writerow({"series": member.name or member.column, **cells, "points": int(row["points"])})


def changes_in_words(member: "SmoothedSeries", most: int) -> str:
    """A sentence for each change of level or slope, at most `most`; "" if changes were not searched."""
    if member.curve.changes is None:
        return ""
    sentences = [
        f"The {change['kind']} changes by {change['size']:.3g} at {change['time']} "
        f"({change['lower']} to {change['upper']}, probability {change['probability']:.2f})."
        for change in in_rows(member.curve.changes, member.rows if member.by_row else None)
    ]
    more = [f"… and {len(sentences) - most} more changes."] if len(sentences) > most else []
    return " ".join([*sentences[:most], *more]) or "No change of level or slope was found."
