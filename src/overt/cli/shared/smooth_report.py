"""The terminal report of `overt smooth`, for one series or a table of many, at any width."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from overt.cli.shared.tables.findings import changes_in_words
from overt.cli.shared.tables.smoothed import SmoothedSeries
from overt.drawing.letters import Ink, sparkline
from overt.smoothing.data.periods import length_in_words
from overt.smoothing.reporting.limits import limits
from overt.smoothing.reporting.sentences import NO_FORECAST

# SHOWN: series listed in a terminal; the others are counted.
SHOWN = 20
# SECTIONS: the titles of a report's sections.
SECTIONS = {
    "read": "read",
    "noise": "noise",
    "error": "error left",
    "outliers": "outliers",
    "season": "season",
    "changes": "changes",
    "caution": "take care",
}
# _KEYWORD: a keyword of Python, with its value if it has one, in the sentences of a report.
_KEYWORD = re.compile(
    r"\b(robust|noise|period|missing|circular|causal|scale|bounds|span)="
    r"""(?:(True|False)|"([^"]*)"|\[([^\]]*)\]|\(([^)]*)\)|([\w.+-]*\w))?"""
)

_FILLED = re.compile(r"Missing points filled from their neighbours: \d+\.")


def as_options(text: str) -> str:
    """A sentence with command-line options in place of Python keywords.

    >>> as_options('period="7D" separates this season (robust=False keeps all values); an error code? missing=[85, 86]')
    '--period 7D separates this season (--no-robust keeps all values); an error code? --missing 85,86'
    """
    return _KEYWORD.sub(_as_option, text)


def _as_option(match: re.Match[str]) -> str:
    name, switch, *values = match.groups()
    if switch:
        return f"--{name}" if switch == "True" else f"--no-{name}"
    value = next((value for value in values if value), "")
    return f"--{name} {value.replace(', ', ',')}".rstrip()


def report_page(
    ink: Ink, title: str, series: Sequence[SmoothedSeries], read: Sequence[str], written: Sequence[Path], *, explain: bool
) -> Iterable[Text]:
    """The lines of the report; `read` are sentences about the input files, `written` the output files."""
    yield ink.line(ink.text(title, "bold"))
    yield ink.line()
    if len(series) == 1:
        yield from _single_series(ink, series[0], read, explain=explain)
    else:
        yield from _many_series(ink, series, read, explain=explain)
    if written:
        yield ink.line()
        yield from ink.prose("→ " + ", ".join(map(str, written)), lead="")


def _single_series(ink: Ink, member: SmoothedSeries, read: Sequence[str], *, explain: bool) -> Iterable[Text]:
    curve = member.curve
    report = {**(curve.report or {"read": curve.sentence})}
    report["read"] = " ".join([report["read"], *_at_most(read)])
    report["changes"] = changes_in_words(member, SHOWN)
    rows = [(SECTIONS[name], as_options(text)) for name, text in report.items() if text]
    rows += [("method", as_options(curve.explanation))] if explain and curve.explanation else []
    yield from ink.table([[ink.text(name, "dim"), ink.text(text)] for name, text in rows], right=[False, False])
    yield ink.line()
    yield from _strips(ink, member)


def _many_series(ink: Ink, series: Sequence[SmoothedSeries], read: Sequence[str], *, explain: bool) -> Iterable[Text]:
    if read:
        yield from ink.prose(" ".join(_at_most(read)), lead="")
        yield ink.line()
    names = ["series", "points", "missing", "noise", "error", *(["freedom"] if explain else []), "outliers", "period", "band"]
    rows = [[ink.text(name, "dim") for name in names]]
    rows += [[ink.text(part) for part in _cells(member, explain=explain)] for member in series[:SHOWN]]
    yield from ink.table(rows, right=[False, *[name not in ("period", "band") for name in names[1:]]])
    if len(series) > SHOWN:
        yield from ink.prose(f"… and {len(series) - SHOWN} more series", lead="")
    yield from _notes(ink, series)


def _notes(ink: Ink, series: Sequence[SmoothedSeries]) -> Iterable[Text]:
    """Notes on the series, grouped if they are equal; and, once, why bands are withheld."""
    names: dict[str, list[str]] = {}
    for member in series:
        names.setdefault(_note(member), []).append(member.name)
    names.pop("", None)
    notes = [f"{', '.join(members)}: {note}" for note, members in names.items()]
    withheld = [member for member in series if member.curve.facts.get("withheld")]
    if withheld:
        reason = f"{withheld[0].name}: {withheld[0].curve.facts['withheld']}"
        notes.append(f"{len(withheld)} of {len(series)} series have no band. {reason}")
    if notes:
        yield ink.line()
    for note in notes[:SHOWN]:
        yield from ink.prose(as_options(note), lead="")
    if len(notes) > SHOWN:
        yield from ink.prose(f"… and {len(notes) - SHOWN} more notes", lead="")


def _cells(member: SmoothedSeries, *, explain: bool) -> list[str]:
    facts, missing = member.curve.facts, int(np.isnan(member.data).sum())
    cells = [member.name, str(member.data.size), str(missing or "")]
    if not facts:
        return [*cells, *[""] * (3 + explain), "", "no values"]
    numbers = [f"{facts['noise']:.3g}", error_left(facts), *([f"{facts['degrees_of_freedom']:.3g}"] if explain else [])]
    periods = ", ".join(length_in_words(period, facts["unit"]) for period in facts["periods"])
    outliers = 0 if member.curve.outliers is None else int(member.curve.outliers.sum())
    return [*cells, *numbers, str(outliers or ""), periods, "none" if member.curve.lower is None else "95%"]


def _note(member: SmoothedSeries) -> str:
    """The note on one of many series: everything in its sections that the table's row does not show."""
    report, facts = member.curve.report, member.curve.facts
    if not report:
        return ""
    others = _FILLED.sub("", report["read"].partition(". ")[2])
    outliers = "" if report["outliers"].startswith("No ") else report["outliers"]
    season = "" if facts["periods"] else report["season"]
    caution = report["caution"].removesuffix(NO_FORECAST)
    parts = (others, outliers, season, changes_in_words(member, SHOWN), caution)
    return " ".join(part.strip() for part in parts if part.strip())


def _at_most(sentences: Sequence[str]) -> list[str]:
    more = [f"… and {len(sentences) - SHOWN} more."] if len(sentences) > SHOWN else []
    return [*sentences[:SHOWN], *more]


def error_left(facts: dict[str, Any]) -> str:
    """The remaining error: a number if it can be estimated, else its upper bound, or "unknown"."""
    if facts["withheld"]:
        return "unknown"
    if facts["estimable"]:
        return f"{np.sqrt(facts['risk']):.3g}"
    bound = np.sqrt(facts["risk_upper_bound"])
    return f"< {bound:.3g}" if bound < facts["noise"] else "unknown"


def _strips(ink: Ink, member: SmoothedSeries) -> Iterable[Text]:
    """Points before and after smoothing on one scale: as many as fit, evenly sampled, not averaged; outliers do not set the scale."""
    order, curve = np.argsort(member.times, kind="stable"), member.curve
    shown = order[np.unique(np.linspace(0, order.size - 1, min(order.size, ink.width - 8, 72)).astype(int))]
    low, high = limits(member.data, curve.outliers, curve.values)
    for name, values in (("before", member.data), ("after", curve.values)):
        yield ink.line(ink.text(f"{name:<8}", "dim"), ink.text(sparkline(values[shown].tolist(), low, high)))
