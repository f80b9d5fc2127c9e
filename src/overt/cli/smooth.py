"""`overt smooth`: columns of a file, smoothed by attention to themselves, each group of rows separately."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, tzinfo
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from overt.cli.shared.console import report_console
from overt.cli.shared.smooth_report import as_options, report_page
from overt.cli.shared.tables.findings import write_reports
from overt.cli.shared.tables.notation import Notation, split_missing
from overt.cli.shared.tables.series import (
    SLOPES,
    input_paths,
    list_files,
    output_paths,
    read_series,
    read_tables,
    smoothed_columns,
)
from overt.cli.shared.tables.smoothed import SmoothedSeries, axis_label, json_content, smoothed_series
from overt.drawing.letters import ROOM_FOR_A_BAR, Piece
from overt.errors import InputError
from overt.files import is_stream, make_folder, separate, whole
from overt.reading import is_numeral
from overt.smoothing.batch import Task, Workers, processors, smooth_many, start_workers
from overt.smoothing.data.options import Bandwidth
from overt.smoothing.data.periods import Periods
from overt.smoothing.reporting.curve import Curve
from overt.smoothing.reporting.page import check_page, write_page
from overt.smoothing.reporting.plot import Panel, check_picture, draw

# Starting a process takes as long as smoothing _WORTH_A_PROCESS points, or reading _WORTH_AN_EARLY_START bytes of a table with groups.
_WORTH_A_PROCESS, _WORTH_AN_EARLY_START = 100_000, 1_000_000


def smooth(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="A CSV file, also as .gz, a Parquet or Excel file, or - for standard input. Several files, or a folder, are a group each.",
        ),
    ],
    column: Annotated[list[str] | None, typer.Option("--column", "-c", help="The column to smooth; may be repeated.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="The column of times: numbers, or dates such as 2024-12-31; date,clock for a time of day in a column of its own."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="The column with the group of each row; groups are smoothed separately. - means that there are none."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the file here, or to - for standard output, with curves and bands as new columns; several files into a folder."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw data, curve and band into this .png, .svg or .pdf.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Draw them into this .html, to zoom and read off in a browser, offline.")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write reports, curves and bands as JSON.")] = None,
    sep: Annotated[str | None, typer.Option(help="The character between cells, or tab. (default: recognised)")] = None,
    decimal: Annotated[
        str | None, typer.Option(help="The decimal mark, . or , and recognised where the cells show it.")
    ] = None,
    date_format: Annotated[
        str | None,
        typer.Option(help="How dates are written, as %d.%m.%Y %H:%M, excel or number; recognised where it is clear."),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="How missing values are written, as -999,ERR, besides the usual spellings; may be repeated."),
    ] = None,
    errors: Annotated[
        str,
        typer.Option(help="What a cell that cannot be read is: ask refuses the file, missing counts it as a missing value."),
    ] = "ask",
    causal: Annotated[
        bool,
        typer.Option(
            "--causal",
            help="Let each point attend to the present and past only. (Automatic choices still use the whole series.)",
        ),
    ] = False,
    robust: Annotated[
        bool | None, typer.Option(help="Give outliers less weight, or keep all values. (default: remove isolated outliers)")
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
    scale: Annotated[
        str | None,
        typer.Option(
            help="The scale of equal noise: log, sqrt or logit; linear for the values as they are. (default: recognised)"
        ),
    ] = None,
    bounds: Annotated[
        str | None, typer.Option(help="Bounds that the values keep, as 0,1; 0, where there is no upper one.")
    ] = None,
    circular: Annotated[
        float | None, typer.Option(help="A full turn of angles or times of day: 360 for degrees, 24 for hours.")
    ] = None,
    period: Annotated[
        list[str] | None,
        typer.Option(help="The length of a season: a number, or 7D or 12h for dates; may be repeated. auto searches for one."),
    ] = None,
    derivative: Annotated[
        bool, typer.Option("--derivative", help="Write the slope of the curve with its band as columns of --out and --json.")
    ] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Report where the level or the slope changes, also in --json.")
    ] = False,
    anomalies: Annotated[
        Path | None, typer.Option(help="Write outliers, stuck and missing values into this .csv, a row each.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Report the heads, the points that they attend to and the degrees of freedom, too."),
    ] = False,
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
    out, json_out = (Path("/dev/stdout") if str(path) == "-" else path for path in (out, json_out))
    files = list_files([Path("/dev/stdin") if str(path) == "-" else path for path in paths])
    several = len(files) > 1 or paths[0].is_dir()
    outputs = {"--plot": plot, "--html": html, "--json": json_out, "--anomalies": anomalies}
    separate(outputs | output_paths(files, out, several), input_paths(files))
    workers = jobs if dask or (group in (None, "-") and not several) else _workers(context, files, jobs)
    notation = Notation({"tab": "\t", r"\t": "\t"}.get(sep or "", sep), decimal, date_format, split_missing(missing), errors)
    columns = list(dict.fromkeys(column or ()))
    tables = read_tables(files, notation, columns, time, group)
    if not columns:
        raise InputError("a column to smooth", got="no --column", fix=f"pass one of: {tables[0].listed_columns}")
    choices = {"keys": keys, "bandwidth": _bandwidth(bandwidth), "degree": degree, "window": _number(window)}
    choices |= {"span": _number(span), "causal": causal or None, "robust": robust, "circular": circular}
    choices |= {"noise": _number(noise), "period": _period(period), "scale": scale, "bounds": _bounds(bounds)}
    options = {name: value for name, value in choices.items() if value is not None}  # others have defaults in `analyze`
    targets = list(output_paths(files, out, several, make=True).values())
    for table, target in zip(tables, targets, strict=bool(out)):
        table.check_target(target, [f"{name}_{part}" for name in columns for part in _parts(period, derivative)])
    members, accounts = read_series(tables, columns, time, group)
    _check_pictures(plot, html, len(members))
    title = f"{f'{len(files)} files' if several else files[0].name} · {', '.join(columns)}{f' by {time}' if time else ''}"
    wanted = tuple(compress(("derivative", "anomalies", "changes"), (derivative, anomalies or html, changes)))
    tasks = [Task(member.name, member.values, member.times_in_zone, options, wanted) for member in members]
    parts = out.with_name(f"{out.name}.parts") if out and len(members) > 1 and (several or not is_stream(out)) else None
    with ExitStack() as stack:
        # A read-only file is refused before the work; all files appear together after it.
        written = [stack.enter_context(whole(path)) if path else None for path in (*outputs.values(), *targets)]
        curves = _curves(tasks, workers, dask, parts)
        series = [smoothed_series(member, curve) for member, curve in zip(members, curves, strict=True)]
        for table, target in zip(tables, written[4:], strict=bool(out)):
            if target:
                table.write(target, smoothed_columns(members, curves, table))
        write_reports(written[2], written[3], json_content(paths[0].name, accounts, series), series)
        zone = UTC if any(member.zone for member in members) else None
        _draw(written[0], written[1], series, zone, axis_label(time, series), title)
    _remove_parts(parts)
    named = [path for path in (out, *outputs.values()) if path]
    read = [sentence for account in accounts for sentence in account.sentences(several)]
    report_console(*named).print(Piece(lambda ink: report_page(ink, title, series, read, named, explain=explain)))


def _parts(period: list[str] | None, derivative: bool) -> tuple[str, ...]:
    return ("smooth", "lower", "upper", *(("trend", "seasonal") if period else ()), "outlier", *(SLOPES if derivative else ()))


def _workers(context: typer.Context, files: list[Path], jobs: int | None) -> int | Workers | None:
    """Workers that start while a large table is read and end with the command; `jobs` for a small one."""
    count = jobs or processors()
    large = sum(file.stat().st_size for file in files if file.is_file()) >= _WORTH_AN_EARLY_START
    return context.with_resource(start_workers(count)) if large and count > 1 else jobs


def _number(text: str | None) -> float | str | None:
    """The number in a text; other text, a length of time or the name of a kind of noise, is unchanged."""
    return float(text) if text is not None and is_numeral(text) else text


def _bandwidth(text: str | None) -> Bandwidth | None:
    """A number or a length of time, or two parts, for time and value; or "auto"."""
    parts: list[Any] = [] if text is None else [_number(part) for part in text.split(",")]
    return None if text is None else parts[0] if len(parts) == 1 else tuple(parts)


def _bounds(text: str | None) -> tuple[float | None, float | None] | None:
    """Two numbers separated by a comma; either may be empty."""
    if text is None:
        return None
    low, comma, high = text.partition(",")
    if not comma or not all(part == "" or is_numeral(part) for part in (low, high)):
        raise InputError(
            "two numbers with a comma between them as --bounds", got=text, fix="write 0,1, or 0, without an upper one"
        )
    return float(low) if low else None, float(high) if high else None


def _period(texts: list[str] | None) -> Periods | None:
    """Numbers, or lengths of time as text; "auto" is the only other word."""
    if not texts:
        return None
    periods: Any = [_number(text) for text in texts]
    return periods[0] if len(periods) == 1 else periods


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
        write_page(page, panels, x=x, title=title, wording=as_options)


def _remove_parts(parts: Path | None) -> None:
    """Remove the stored parts of a finished job."""
    if parts:
        for path in parts.glob("*.npz"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # the folder has other files
            parts.rmdir()
