"""`overt smooth`: columns of a file, smoothed by attention to themselves, each group of rows separately."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from overt.cli.shared.console import report_console
from overt.cli.shared.tables.read_table import read_table
from overt.cli.shared.tables.table import Table, is_numeral
from overt.drawing.letters import ROOM_FOR_A_BAR, Ink, Piece, sparkline
from overt.errors import InputError
from overt.files import is_stream, make_folder, separate, whole
from overt.smoothing.batch import Task, Workers, processors, smooth_many, start_workers
from overt.smoothing.data.notation import Notation
from overt.smoothing.data.options import Bandwidth
from overt.smoothing.data.periods import Periods, length_in_words
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.reporting.curve import Curve, in_short
from overt.smoothing.reporting.interactive import check_page, write_page
from overt.smoothing.reporting.plot import Panel, check_picture, draw

# Series listed in a terminal; the others are counted.
SHOWN = 20
# A process takes as long to start as to smooth about so many points, or to read a table with groups of so many bytes.
_WORTH_A_PROCESS, _WORTH_AN_EARLY_START = 100_000, 1_000_000


class SmoothedSeries(NamedTuple):
    """One series of the table, the rows of one group in a column, with its curve."""

    name: str
    column: str
    rows: Indices
    data: Floats
    times: NDArray[Any]  # row numbers where the table has no times
    curve: Curve


def smooth(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="A CSV file whose first line names the columns, also as .gz, a Parquet or Excel file, or - for standard input."
        ),
    ],
    column: Annotated[list[str] | None, typer.Option("--column", "-c", help="The column to smooth; may be repeated.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of times: numbers, or dates such as 2024-12-31.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="The column with the group of each row; groups are smoothed separately. - means that there are none."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the file here, or to - for standard output, with curves and bands as new columns."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw data, curve and band into this .png, .svg or .pdf.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Draw them into this .html, to zoom and read off in a browser, offline.")
    ] = None,
    sep: Annotated[
        str | None, typer.Option(help="The character between cells, or tab; recognised from the first line.")
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(help="The decimal mark, . or , and recognised where the cells show it.")
    ] = None,
    date_format: Annotated[
        str | None, typer.Option(help="How dates are written, as %d.%m.%Y %H:%M; recognised where it is clear.")
    ] = None,
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="Let each point attend to the present and past only. (Automatic choices still use the whole series.)",
        ),
    ] = False,
    robust: Annotated[
        bool | None,
        typer.Option(help="Give outliers less weight, or keep every value as it is (default: leave out isolated wild values)."),
    ] = None,
    keys: Annotated[str | None, typer.Option(help="How points are compared: auto, time, value, both or patch.")] = None,
    span: Annotated[
        str | None,
        typer.Option(
            help="Average over this length: 7d, 12h or a number. The report warns where this is estimated to raise the error."
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="The bandwidth: 7d, 12h or a number in the unit of the times (seconds for dates) or values; time,value for both."
        ),
    ] = None,
    degree: Annotated[int | None, typer.Option(help="The degree of the local polynomial in time: 0, 1 or 2.")] = None,
    window: Annotated[
        str | None,
        typer.Option(
            help="The largest distance in time that a point attends over: 7d, 12h or a number in the unit of the times "
            "(seconds for dates)."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="The noise's standard deviation, if known; poisson for counts, gaussian if the values are not counts."
        ),
    ] = None,
    period: Annotated[
        list[str] | None,
        typer.Option(
            help="The length of a season: a number in the unit of the times, or 7D or 12h where these are dates; may be repeated. "
            "auto looks for one."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the series; by default as many as are useful.")
    ] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler whose workers share the series.")] = None,
) -> None:
    """Smooth columns of a CSV, Excel or Parquet file by attention to themselves.

    Each value becomes a weighted mean of similar values; the measure of
    similarity is chosen for the least estimated error. A row without a value
    is filled from its neighbours. A job of many series that was stopped
    continues where it was when it is started again.
    """
    file = Path("/dev/stdin") if str(file) == "-" else file
    out = Path("/dev/stdout") if str(out) == "-" else out
    separate({"--out": out, "--plot": plot, "--html": html}, {"FILE": file})
    workers = jobs if dask or group in (None, "-") else _workers(context, file, jobs)
    table = read_table(file, Notation({"tab": "\t", r"\t": "\t"}.get(sep or "", sep), decimal, date_format))
    if not column:
        raise InputError("a column to smooth", got="no --column", fix=f"pass one of: {table.listed_columns}")
    choices = {"keys": keys, "bandwidth": _bandwidth(bandwidth), "degree": degree, "window": _number(window)}
    choices |= {
        "span": _number(span),
        "causal": causal or None,
        "robust": robust,
        "noise": _number(noise),
        "period": _period(period),
    }
    options = {name: value for name, value in choices.items() if value is not None}  # `analyze` has defaults for the others
    if out:
        parts = ("smooth", "lower", "upper", *(("trend", "seasonal") if period else ()))
        table.check_target(out, [f"{name}_{part}" for name in column for part in parts])
    times = table.times(time) if time else None
    _ask_for_groups(table, time, times, group)
    tasks, rows = _tasks(table, list(dict.fromkeys(column)), times, None if group == "-" else group, options)
    _check_pictures(plot, html, len(tasks))
    title = f"{file.name} · {', '.join(dict.fromkeys(column))}" + (f" by {time}" if time else "")
    parts = out.with_name(f"{out.name}.parts") if out and len(tasks) > 1 and not is_stream(out) else None
    with ExitStack() as files:
        # A file that cannot be written is refused before the work; all files appear together after it.
        table_file, picture, page = (files.enter_context(whole(path)) if path else None for path in (out, plot, html))
        curves = _curves(tasks, workers, dask, parts)
        positions = np.arange(1, table.length + 1) if times is None else times
        series = [
            SmoothedSeries(task.name, name, group_rows, task.values, positions[group_rows], curve)
            for task, (name, group_rows), curve in zip(tasks, rows, curves, strict=True)
        ]
        if table_file:
            table.write(table_file, _columns(series, table.length))
        _draw(picture, page, series, UTC if time and table.has_zone(time) else None, time or "row", title)
    _remove_parts(parts)
    written = [str(path) for path in (out, plot, html) if path]
    report_console(out, plot, html).print(Piece(lambda ink: _page(ink, title, series, written)))


def _workers(context: typer.Context, file: Path, jobs: int | None) -> int | Workers | None:
    """Workers that start while a large table is read and end with the command; `jobs` for a small one."""
    count = jobs or processors()
    large = file.is_file() and file.stat().st_size >= _WORTH_AN_EARLY_START
    return context.with_resource(start_workers(count)) if large and count > 1 else jobs


def _number(text: str | None) -> float | str | None:
    """A number where the text is one, else the text: a length of time, or the name of a kind of noise."""
    return float(text) if text is not None and is_numeral(text) else text


def _bandwidth(text: str | None) -> Bandwidth | None:
    """A number or a length of time, or two parts, of time and of value; or "auto"."""
    parts: list[Any] = [] if text is None else [_number(part) for part in text.split(",")]
    return None if text is None else parts[0] if len(parts) == 1 else tuple(parts)


def _period(texts: list[str] | None) -> Periods | None:
    """Numbers where they are numbers, else lengths of time as they are; "auto" stands alone."""
    if not texts:
        return None
    periods: Any = [_number(text) for text in texts]
    return periods[0] if len(periods) == 1 else periods


def _ask_for_groups(table: Table, time: str | None, times: NDArray[Any] | None, group: str | None) -> None:
    """Refuse times that repeat, with no word on groups, in a table with a column of text that may be the groups."""
    if group is not None or times is None or np.unique(times).size == times.size:
        return
    texts = [name for name in table.text_columns() if name != time]
    if texts:
        first = int(np.setdiff1d(np.arange(times.size), np.unique(times, return_index=True)[1])[0])
        got = f"one that is there twice, first at {table.row_label(first)}, and the text in column {', '.join(texts)}"
        fix = f"pass --group {texts[0]}, or --group - if the rows are one series"
        raise InputError(f"different times in column {time}, or a --group", got=got, fix=fix)


def _tasks(
    table: Table, columns: list[str], times: NDArray[Any] | None, group: str | None, options: dict[str, Any]
) -> tuple[list[Task], list[tuple[str, Indices]]]:
    """One task per column and group, with its column and its rows."""
    groups = {"": np.arange(table.length)} if group is None else _group_rowsof(table.names(group))
    tasks, origins = [], []
    for column in columns:
        values = table.numbers(column)
        for name, group_rows in groups.items():
            both = [column, name] if len(columns) > 1 and name else [name or column]
            tasks.append(Task(" · ".join(both), values[group_rows], None if times is None else times[group_rows], options))
            origins.append((column, group_rows))
    if all(np.isnan(task.values).all() for task in tasks):
        raise InputError("a series with at least one value", got="only NaN", fix="pass at least one number that is not NaN")
    return tasks, origins


def _group_rowsof(names: list[str]) -> dict[str, Indices]:
    """The rows of each group, in the order of first appearance."""
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        groups.setdefault(name, []).append(row)
    return {name: np.array(rows) for name, rows in groups.items()}


def _curves(tasks: list[Task], jobs: int | Workers | None, dask: str | None, parts: Path | None) -> list[Curve]:
    if parts:
        make_folder(parts)
    jobs = jobs or min(processors(), 1 + sum(task.values.size for task in tasks) // _WORTH_A_PROCESS)
    curves: dict[int, Curve] = {}
    with _progress(len(tasks)) as advance:
        for index, curve in smooth_many(tasks, jobs=jobs, dask=dask, parts=parts):
            curves[index] = curve
            advance()
    return [curves[index] for index in range(len(tasks))]


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A progress bar on a terminal, removed at the end; nothing in a pipe."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bars = [BarColumn(), TimeElapsedColumn()] if console.width >= ROOM_FOR_A_BAR else []
    parts = (SpinnerColumn(), TextColumn("smoothing"), MofNCompleteColumn(), *bars)
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _columns(series: list[SmoothedSeries], length: int) -> dict[str, Floats]:
    """The columns to write: each curve with its band, in its rows."""
    columns: dict[str, Floats] = {}
    for one in series:
        band = (("smooth", one.curve.values), ("lower", one.curve.lower), ("upper", one.curve.upper))
        for part, values in (*band, *one.curve.components().items()):
            name = f"{one.column}_{part}"
            if name not in columns:
                columns[name] = np.full(length, np.nan)
            if values is not None:
                columns[name][one.rows] = values
    return columns


def _check_pictures(plot: Path | None, html: Path | None, panels: int) -> None:
    if plot:
        check_picture(plot, panels)
    if html:
        check_page(html, panels)


def _draw(
    picture: Path | None, page: Path | None, series: list[SmoothedSeries], zone: tzinfo | None, x: str, title: str
) -> None:
    panels = [Panel(one.name, one.times, one.data, one.curve, zone) for one in series] if picture or page else []
    if picture:
        draw(picture, panels, x=x)
    if page:
        write_page(page, panels, x=x, title=title)


def _remove_parts(parts: Path | None) -> None:
    """Remove the stored parts of a finished job."""
    if parts:
        for path in parts.glob("*.npz"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # the folder has other files
            parts.rmdir()


def _page(ink: Ink, title: str, series: list[SmoothedSeries], written: list[str]) -> Iterable[Text]:
    yield ink.line(ink.text(title, "bold"))
    yield ink.line()
    yield from _single_series(ink, series[0]) if len(series) == 1 else _many_series(ink, series)
    if written:
        yield ink.line()
        yield from ink.prose("→ " + ", ".join(written), lead="")


def _single_series(ink: Ink, one: SmoothedSeries) -> Iterable[Text]:
    missing, facts = int(np.isnan(one.data).sum()), one.curve.facts
    rows = [
        ("points", str(one.data.size), f"{missing} missing, {facts['filled']} filled" if missing else ""),
        ("keys", facts["keys"], "causal" if facts["causal"] else "past and future"),
        ("bandwidth", _width(facts), "given" if facts["bandwidth_passed"] else "chosen"),
        ("period", ", ".join(length_in_words(period, facts["unit"]) for period in facts["periods"]), "of the season"),
        ("noise", f"{facts['noise']:.3g}", f"standard deviation{_noise_source(facts)}"),
        ("remaining error", _error(facts), _remark(facts)),
        ("freedom", f"{facts['degrees_of_freedom']:.3g}", "degrees"),
    ]
    cells = [[ink.text(name, "dim"), ink.text(value), ink.text(remark, "dim")] for name, value, remark in rows if value]
    yield from ink.table(cells, right=[False, False, False])
    yield ink.line()
    yield from _sparklines(ink, one)
    yield ink.line()
    yield from ink.prose(one.curve.sentence, lead="")


def _noise_source(facts: dict[str, Any]) -> str:
    if facts["counts"]:
        return " of counts, on average"
    return ", given" if facts["noise_passed"] else ", estimated"


def _many_series(ink: Ink, series: list[SmoothedSeries]) -> Iterable[Text]:
    names = ["series", "points", "missing", "noise", "error", "freedom", "band"]
    rows = [[ink.text(name, "dim") for name in names]]
    for one in series[:SHOWN]:
        facts = one.curve.facts
        numbers = [f"{facts['noise']:.3g}", _error(facts), f"{facts['degrees_of_freedom']:.3g}"] if facts else ["", "", ""]
        band = "none" if one.curve.lower is None else "95%"
        missing = int(np.isnan(one.data).sum())
        cells = [one.name, str(one.data.size), str(missing or ""), *numbers, band if facts else "no values"]
        rows.append([ink.text(part) for part in cells])
    yield from ink.table(rows, right=[False, True, True, True, True, True, False])
    if len(series) > SHOWN:
        yield from ink.prose(f"… and {len(series) - SHOWN} more series", lead="")
    withheld = [one for one in series if one.curve.facts.get("withheld")]
    if withheld:
        first = withheld[0]
        yield ink.line()
        yield from ink.prose(
            f"{len(withheld)} of {len(series)} series have no band. {first.name}: {first.curve.facts['withheld']}", lead=""
        )


def _error(facts: dict[str, Any]) -> str:
    """The remaining error: a number if it can be estimated, else its upper bound, or "unknown"."""
    if facts["withheld"]:
        return "unknown"
    if facts["estimable"]:
        return f"{np.sqrt(facts['risk']):.3g}"
    bound = np.sqrt(facts["risk_upper_bound"])
    return f"< {bound:.3g}" if bound < facts["noise"] else "unknown"


def _remark(facts: dict[str, Any]) -> str:
    if facts["withheld"]:
        return in_short(facts["withheld"])
    if facts["estimable"]:
        return "root mean square, estimated"
    return "root mean square; not told from 0" if _error(facts) != "unknown" else "too few points to estimate it"


def _width(facts: dict[str, Any]) -> str:
    width = facts["bandwidth"]
    if isinstance(width, list):
        return f"{length_in_words(width[0], facts['unit'])}, {width[1]:.3g}"
    if width is None:
        return ""
    return f"{width:.3g}" if facts["keys"] == "value" else length_in_words(width, facts["unit"])


def _sparklines(ink: Ink, one: SmoothedSeries) -> Iterable[Text]:
    """Points before and after on one scale: as many as fit, evenly sampled, not averaged."""
    order = np.argsort(one.times, kind="stable")
    shown = order[np.unique(np.linspace(0, order.size - 1, min(order.size, ink.width - 8, 72)).astype(int))]
    low, high = float(np.nanmin(one.data)), float(np.nanmax(one.data))
    for name, values in (("before", one.data), ("after", one.curve.values)):
        yield ink.line(ink.text(f"{name:<8}", "dim"), ink.text(sparkline(values[shown].tolist(), low, high)))
