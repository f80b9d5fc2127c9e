"""`overt smooth`: a column of a CSV file, smoothed by attention to itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from overt.errors import InputError
from overt.lens.letters import Ink, Piece, sparkline
from overt.smoothing import Smoothing, analyze
from overt.smoothing.options import Bandwidth
from overt.smoothing.picture import check_picture, draw
from overt.smoothing.series import Floats, Indices
from overt.smoothing.table import read_table
from overt.smoothing.telling import duration


def smooth(
    file: Annotated[Path, typer.Argument(help="A file of comma-separated values whose first line names the columns.")],
    column: Annotated[str | None, typer.Option("--column", "-c", help="The column to smooth.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of times: numbers, or dates such as 2024-12-31.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the file here with the curve as one column more.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw data and curve into this .png, .svg or .pdf.")] = None,
    keys: Annotated[str, typer.Option(help="What similar means: time, value or both.")] = "time",
    bandwidth: Annotated[
        str,
        typer.Option(help="How near is near, in the unit of the times (seconds for dates) or values; time,value for both."),
    ] = "auto",
    causal: Annotated[bool, typer.Option("--causal", help="Let no point see its future.")] = False,
) -> None:
    """Smooth a column of a CSV file by attention to itself.

    Each value becomes the mean of those near it, weighted by how near; how near is chosen for the least estimated error. A
    row without a value is filled from its neighbours.
    """
    table = read_table(file)
    if column is None:
        raise InputError("a column is named", got="no --column", cure="pass one of: " + ", ".join(table.header))
    given = table.numbers(column)
    times = table.times(time) if time else np.arange(1, given.size + 1)
    if plot:
        check_picture(plot)
    found = analyze(given, times=times if time else None, keys=keys, bandwidth=_bandwidth(bandwidth), causal=causal)
    if out:
        table.write(out, f"{column}_smooth", found.values)
    if plot:
        draw(plot, times, given, found.values, x=time or "row", y=column)
    order = np.argsort(times, kind="stable")
    title = f"{file.name} · {column}" + (f" by {time}" if time else "")
    written = [str(path) for path in (out, plot) if path]
    Console(highlight=False).print(Piece(lambda ink: _page(ink, title, found, given, order, written)))


def _bandwidth(text: str) -> Bandwidth:
    if text == "auto":
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        cure = 'pass a number, two for --keys both as in 3,0.5, or "auto"'
        raise InputError("a bandwidth is a number above 0", got=repr(text), cure=cure) from error
    return (numbers[0], numbers[1]) if len(numbers) == 2 else numbers[0]


def _page(ink: Ink, title: str, found: Smoothing, given: Floats, order: Indices, written: list[str]) -> Iterable[Text]:
    yield ink.line(ink.text(title, "bold"))
    yield ink.line()
    rows = [[ink.text(name, "dim"), ink.text(value), ink.text(remark, "dim")] for name, value, remark in _facts(found, given)]
    yield from ink.table(rows, right=[False, False, False])
    yield ink.line()
    yield from _sparklines(ink, found, given, order)
    yield ink.line()
    yield from ink.prose(found.sentence, lead="")
    if written:
        yield ink.line()
        yield from ink.prose("→ " + ", ".join(written), lead="")


def _facts(found: Smoothing, given: Floats) -> list[tuple[str, str, str]]:
    missing = int(np.isnan(given).sum())
    error = f"{np.sqrt(found.risk):.3g}" if found.risk > 0 else "about 0"
    freedom = f"{found.degrees_of_freedom:.3g}"
    return [
        ("points", str(given.size), f"{missing} missing, {found.filled} filled" if missing else ""),
        ("keys", found.options.keys, "causal" if found.options.causal else "past and future"),
        ("bandwidth", _width(found), "given" if found.options.bandwidths else "chosen"),
        ("noise", f"{found.noise:.3g}", "standard deviation, estimated"),
        ("error left", error, "root mean square, estimated"),
        ("freedom", freedom, "degrees"),
    ]


def _width(found: Smoothing) -> str:
    if isinstance(found.bandwidth, tuple):
        return f"{duration(found.bandwidth[0], found.unit)}, {found.bandwidth[1]:.3g}"
    width = found.bandwidth or 0.0
    return f"{width:.3g}" if found.options.keys == "value" else duration(width, found.unit)


def _sparklines(ink: Ink, found: Smoothing, given: Floats, order: Indices) -> Iterable[Text]:
    """Some of the points before and after, on one scale: as many as there is room for, evenly drawn, not averaged."""
    shown = order[np.unique(np.linspace(0, order.size - 1, min(order.size, ink.width - 8, 72)).astype(int))]
    low, high = float(np.nanmin(given)), float(np.nanmax(given))
    for name, values in (("before", given), ("after", found.values)):
        yield ink.line(ink.text(f"{name:<8}", "dim"), ink.text(sparkline(values[shown].tolist(), low, high)))
