"""`overt smooth`: columns of a file, smoothed by attention to themselves, each group of rows by itself."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from overt.cli.console import report_console
from overt.drawing.letters import ROOM_FOR_A_BAR, Ink, Piece, sparkline
from overt.errors import InputError
from overt.files import is_stream, make_folder, separate, whole
from overt.smoothing.batch import Task, processors, smooth_many
from overt.smoothing.data.curve import Curve
from overt.smoothing.data.options import Bandwidth
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.table import Table, read_table
from overt.smoothing.plot import Panel, check_picture, draw
from overt.smoothing.report import duration

# Series that a terminal shows one by one; of more, the others are counted.
SHOWN = 20


class Chosen(NamedTuple):
    """One series of the table: a column's rows of one group, and what came of it."""

    name: str
    column: str
    rows: Indices
    given: Floats
    times: NDArray[Any]  # row numbers where the table has no times
    curve: Curve


def smooth(
    file: Annotated[Path, typer.Argument(help="A CSV file whose first line names the columns, or a Parquet file.")],
    column: Annotated[
        list[str] | None, typer.Option("--column", "-c", help="The column to smooth; may be given again.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="The column of times: numbers, or dates such as 2024-12-31.")] = None,
    group: Annotated[
        str | None, typer.Option(help="The column that names each row's group; each is smoothed by itself.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the file here with the curves and bands as columns more.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw data, curve and band into this .png, .svg or .pdf.")] = None,
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="Let each point attend to its present and past alone. (What is not given is still chosen from the whole series.)",
        ),
    ] = False,
    robust: Annotated[bool, typer.Option("--robust", help="Give outliers less weight.")] = False,
    keys: Annotated[str | None, typer.Option(help="What similar means: auto, time, value, both or patch.")] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(help="How near is near, in the unit of the times (seconds for dates) or values; time,value for both."),
    ] = None,
    degree: Annotated[int | None, typer.Option(help="Of the polynomial fitted to what is near in time: 0, 1 or 2.")] = None,
    window: Annotated[float | None, typer.Option(help="How far in time a point sees, in the unit of the times.")] = None,
    noise: Annotated[float | None, typer.Option(help="The noise's standard deviation, where it is known.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the series; by default as are worth starting.")
    ] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler whose workers share the series.")] = None,
) -> None:
    """Smooth columns of a CSV or Parquet file by attention to themselves.

    Each value becomes a weighted mean of those that are like it; what counts
    as like it is chosen for the least estimated error. A row without a value
    is filled from its neighbours. A job of many series that was stopped and is
    started again goes on where it was.
    """
    separate({"--out": out, "--plot": plot}, {"FILE": file})
    table = read_table(file)
    if not column:
        raise InputError("a column is named", got="no --column", fix="pass one of: " + ", ".join(table.header))
    options = _options(causal=causal, robust=robust, keys=keys, degree=degree, window=window, noise=noise)
    if bandwidth is not None:
        options["bandwidth"] = _bandwidth(bandwidth)
    if out:
        table.check_target(out, [f"{name}_{part}" for name in column for part in ("smooth", "lower", "upper")])
    times = table.times(time) if time else None
    tasks, rows = _tasks(table, list(dict.fromkeys(column)), times, group, options)
    if plot:
        check_picture(plot, len(tasks))
    parts = out.with_name(f"{out.name}.parts") if out and len(tasks) > 1 and not is_stream(out) else None
    with ExitStack() as files:
        # A file that cannot be written is refused before the work, and all of them appear together after it.
        table_file, picture = (files.enter_context(whole(path)) if path else None for path in (out, plot))
        curves = _curves(tasks, jobs or _worth(tasks), dask, parts)
        places = np.arange(1, table.length + 1) if times is None else times
        chosen = [
            Chosen(task.name, name, at, task.values, places[at], curve)
            for task, (name, at), curve in zip(tasks, rows, curves, strict=True)
        ]
        if table_file:
            table.write(table_file, _columns(chosen, table.length))
        if picture:
            draw(picture, [Panel(one.name, one.times, one.given, one.curve) for one in chosen], x=time or "row")
    _sweep(parts)
    title = f"{file.name} · {', '.join(dict.fromkeys(column))}" + (f" by {time}" if time else "")
    written = [str(path) for path in (out, plot) if path]
    report_console(out, plot).print(Piece(lambda ink: _page(ink, title, chosen, written)))


def _options(**asked: Any) -> dict[str, Any]:
    """What was asked for; the rest is left to `analyze`."""
    return {name: value for name, value in asked.items() if value is not None and value is not False}


def _bandwidth(text: str) -> Bandwidth:
    if text == "auto":
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        fix = 'pass a number, two for --keys both as in 3,0.5, or "auto"'
        raise InputError("a bandwidth is a number above 0", got=repr(text), fix=fix) from error
    return numbers[0] if len(numbers) == 1 else tuple(numbers)  # type: ignore[return-value]


def _tasks(
    table: Table, columns: list[str], times: NDArray[Any] | None, group: str | None, options: dict[str, Any]
) -> tuple[list[Task], list[tuple[str, Indices]]]:
    """One task a column and group, with the column and the rows that it came from."""
    groups = {"": np.arange(table.length)} if group is None else _rows_of(table.names(group))
    tasks, rows = [], []
    for column in columns:
        values = table.numbers(column)
        for name, at in groups.items():
            both = [column, name] if len(columns) > 1 and name else [name or column]
            tasks.append(Task(" · ".join(both), values[at], None if times is None else times[at], options))
            rows.append((column, at))
    if all(np.isnan(task.values).all() for task in tasks):
        fix = "give at least one value that is not NaN"
        raise InputError("a series needs at least one value", got="only NaN", fix=fix)
    return tasks, rows


def _rows_of(names: list[str]) -> dict[str, Indices]:
    """The rows of each group, groups in the order in which they first come."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return {name: np.array(rows) for name, rows in found.items()}


def _worth(tasks: list[Task]) -> int:
    """How many processes to start: each takes about as long to start as 100,000 points take to smooth."""
    return min(processors(), 1 + sum(task.values.size for task in tasks) // 100_000)


def _curves(tasks: list[Task], jobs: int, dask: str | None, parts: Path | None) -> list[Curve]:
    if parts:
        make_folder(parts)
    curves: dict[int, Curve] = {}
    with _progress(len(tasks)) as advance:
        for place, curve in smooth_many(tasks, jobs=jobs, dask=dask, parts=parts):
            curves[place] = curve
            advance()
    return [curves[place] for place in range(len(tasks))]


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, which goes when all is done; nothing in a pipe."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bars = [BarColumn(), TimeElapsedColumn()] if console.width >= ROOM_FOR_A_BAR else []
    parts = (SpinnerColumn(), TextColumn("smoothing"), MofNCompleteColumn(), *bars)
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _columns(chosen: list[Chosen], length: int) -> dict[str, Floats]:
    """The columns to write: each curve with its band, put back into the rows that it came from."""
    columns: dict[str, Floats] = {}
    for one in chosen:
        for part, values in (("smooth", one.curve.values), ("lower", one.curve.lower), ("upper", one.curve.upper)):
            whole = columns.setdefault(f"{one.column}_{part}", np.full(length, np.nan))
            if values is not None:
                whole[one.rows] = values
    return columns


def _sweep(parts: Path | None) -> None:
    """Remove the parts of a job that is done."""
    if parts:
        for path in parts.glob("*.npz"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds something that is not ours
            parts.rmdir()


def _page(ink: Ink, title: str, chosen: list[Chosen], written: list[str]) -> Iterable[Text]:
    yield ink.line(ink.text(title, "bold"))
    yield ink.line()
    yield from _one(ink, chosen[0]) if len(chosen) == 1 else _all(ink, chosen)
    if written:
        yield ink.line()
        yield from ink.prose("→ " + ", ".join(written), lead="")


def _one(ink: Ink, one: Chosen) -> Iterable[Text]:
    rows = [[ink.text(name, "dim"), ink.text(value), ink.text(remark, "dim")] for name, value, remark in _facts(one)]
    yield from ink.table(rows, right=[False, False, False])
    yield ink.line()
    yield from _sparklines(ink, one)
    yield ink.line()
    yield from ink.prose(one.curve.sentence, lead="")


def _all(ink: Ink, chosen: list[Chosen]) -> Iterable[Text]:
    names = ["series", "points", "missing", "noise", "error left", "freedom", "band"]
    rows = [[ink.text(name, "dim") for name in names]]
    for one in chosen[:SHOWN]:
        facts = one.curve.facts
        numbers = [f"{facts['noise']:.3g}", _error(facts), f"{facts['freedom']:.3g}"] if facts else ["", "", ""]
        band = "withheld" if one.curve.lower is None else "95%"
        missing = int(np.isnan(one.given).sum())
        told = [one.name, str(one.given.size), str(missing or ""), *numbers, band if facts else "no value at all"]
        rows.append([ink.text(part) for part in told])
    yield from ink.table(rows, right=[False, True, True, True, True, True, False])
    if len(chosen) > SHOWN:
        yield from ink.prose(f"… and {len(chosen) - SHOWN} series more", lead="")
    withheld = [one for one in chosen if one.curve.facts.get("withheld")]
    if withheld:
        count = f"{len(withheld)} of {len(chosen)} bands are withheld"
        yield ink.line()
        yield from ink.prose(
            f"{count}, the first, of {withheld[0].name}, since: {withheld[0].curve.facts['withheld']}", lead=""
        )


def _facts(one: Chosen) -> list[tuple[str, str, str]]:
    missing, facts = int(np.isnan(one.given).sum()), one.curve.facts
    rows = [
        ("points", str(one.given.size), f"{missing} missing, {facts['filled']} filled" if missing else ""),
        ("keys", facts["keys"], "causal" if facts["causal"] else "past and future"),
        ("bandwidth", _width(facts), "given" if facts["given"] else "chosen"),
        (
            "noise",
            f"{facts['noise']:.3g}",
            "standard deviation, given" if facts["noise_given"] else "standard deviation, estimated",
        ),
        ("error left", _error(facts), _remark(facts)),
        ("freedom", f"{facts['freedom']:.3g}", "degrees"),
    ]
    return [row for row in rows if row[1]]


def _error(facts: dict[str, Any]) -> str:
    """The error that is left: a number where it can be estimated, else what it hardly exceeds; nothing where the noise is not white."""
    if facts["withheld"]:
        return "unknown"
    if facts["estimable"]:
        return f"{np.sqrt(facts['risk']):.3g}"
    most = np.sqrt(facts["most_risk"])
    return f"< {most:.3g}" if most < facts["noise"] else "unknown"


def _remark(facts: dict[str, Any]) -> str:
    if facts["withheld"]:
        return "the noise is not independent"
    if facts["estimable"]:
        return "root mean square, estimated"
    return "root mean square, too small to estimate" if _error(facts) != "unknown" else "too few points to estimate it"


def _width(facts: dict[str, Any]) -> str:
    width = facts["bandwidth"]
    if isinstance(width, list):
        return f"{duration(width[0], facts['unit'])}, {width[1]:.3g}"
    if width is None:
        return ""
    return f"{width:.3g}" if facts["keys"] == "value" else duration(width, facts["unit"])


def _sparklines(ink: Ink, one: Chosen) -> Iterable[Text]:
    """Some of the points before and after, on one scale: as many as there is room for, evenly drawn, not averaged."""
    order = np.argsort(one.times, kind="stable")
    shown = order[np.unique(np.linspace(0, order.size - 1, min(order.size, ink.width - 8, 72)).astype(int))]
    low, high = float(np.nanmin(one.given)), float(np.nanmax(one.given))
    for name, values in (("before", one.given), ("after", one.curve.values)):
        yield ink.line(ink.text(f"{name:<8}", "dim"), ink.text(sparkline(values[shown].tolist(), low, high)))
