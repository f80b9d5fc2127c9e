"""The error and the time of smoothers, and results on real series: `python -m benchmarks.denoising.compare --help`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from benchmarks.command import app_of
from benchmarks.denoising import accuracy, heads, peers, real_series, resources, speed
from benchmarks.denoising.accuracy import CASES, Accuracy, Case, geometric_mean
from benchmarks.denoising.peers import OURS, Smoother, smoother
from benchmarks.denoising.published import best_published
from benchmarks.denoising.real_series import LINE, SeriesResult
from benchmarks.denoising.resources import Resources
from benchmarks.denoising.speed import Speed
from overt.bench.compact_json import compact_json
from overt.bench.provenance import provenance
from overt.cli.shared.console import report_console
from overt.drawing.letters import ROOM_FOR_A_BAR, Ink, Piece
from overt.errors import InputError
from overt.files import separate, whole

PARTS = ("accuracy", "speed", "heads", "resources", "real")

ShowProgress = Callable[[str, int, int], None]  # the current step, the number of steps done, and of all steps


@dataclass
class _Results:
    """All measurements, for the file."""

    accuracy: Accuracy | None = None
    speed: dict[str, Speed] = field(default_factory=dict)
    heads: dict[str, Speed] = field(default_factory=dict)
    resources: Resources | None = None
    real: list[SeriesResult] = field(default_factory=list)


def compare(
    part: Annotated[
        list[str] | None,
        typer.Option(help="accuracy, speed, heads, resources or real; may be repeated. (default: all that have data)"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Draws of the noise; scores are means over them.", min=1)] = 100,
    case: Annotated[
        list[str] | None, typer.Option(help="A signal and SNR such as blocks 3, or a prefix of several; may be repeated.")
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(help="A peer; may be repeated. (default: all)")] = None,
    processes: Annotated[int, typer.Option(help="Processes for the accuracy; times are measured in one.", min=1)] = 2,
    data: Annotated[
        Path | None, typer.Option(envvar="OVERT_DATA", help="The folder with the real series in its subfolder `series`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every score and every time into this JSON file.")] = None,
) -> None:
    """Compare smoothing with other smoothers: remaining error, time, single heads, and real series.

    All run with automatic settings, without the signal or the noise level. Signals have 1,024 points and white noise of
    standard deviation sd(f)/SNR; a score is 10⁴·Σ(f̂ − f)²/Σf², and lower is better.
    """
    parts, cases = _parts(part, data), _cases(case or [])
    folder = real_series.folder(data) if "real" in parts and data else None
    taking = [contender for contender in _peers(peer or []) if not contender.missing]
    separate({"--out": out}, real_series.files(folder) if folder else {})
    console, names, results = report_console(out), [OURS.name, *(contender.name for contender in taking)], _Results()
    # A file that cannot be written is refused before the work.
    with whole(out) if out else nullcontext() as file:
        if "accuracy" in parts:
            with _progress() as show:
                step = partial(show, "scores")
                results.accuracy = accuracy.measure(cases, names, seeds, processes, step)
            console.print(Piece(lambda ink: _accuracy(ink, results.accuracy, seeds)))
        if "speed" in parts:
            results.speed = _speeds([OURS, speed.WITH_GAPS, *taking])
            console.print(Piece(lambda ink: _speed(ink, "all settings automatic", results.speed)))
        if "heads" in parts:
            results.heads = _speeds([head for head in heads.HEADS if not head.missing])
            console.print(Piece(lambda ink: _speed(ink, "one head with a given bandwidth", results.heads)))
        if "resources" in parts:
            with _progress() as show:
                results.resources = resources.measure(speed.SIZES[-3:], lambda doing: show(doing, 0, 1))
            console.print(Piece(lambda ink: _resources(ink, results.resources)))
        if folder:
            results.real = _measure_real(folder, [contender.name for contender in (OURS, *taking) if contender.fills])
            console.print(Piece(lambda ink: _real(ink, results.real)))
        if file:
            file.write_text(_numbers(results), encoding="utf-8")
    missing = [contender.missing for contender in _peers(peer or []) if contender.missing]
    console.print(Piece(lambda ink: (line for reason in missing for line in ink.prose(reason, "dim", "- "))), end="")
    if out:
        console.print(Piece(lambda ink: ink.prose(f"→ {out}", lead="")))
    if any(OURS.name in scored.unable for scored in (results.accuracy, *results.real) if scored):
        raise typer.Exit(1)


def _parts(names: list[str] | None, data: Path | None) -> list[str]:
    for name in names or []:
        if name not in PARTS:
            raise InputError("--part " + " or ".join(PARTS), got=repr(name), fix="choose one of them")
    if "real" in (names or []) and data is None:
        fix = "pass the folder that contains `series` with --data or OVERT_DATA"
        raise InputError("a data folder for --part real", got="none", fix=fix)
    return names or [name for name in PARTS if name != "real" or data]


def _cases(prefixes: list[str]) -> list[Case]:
    chosen = [case for case in CASES if not prefixes or any(case.name.startswith(name) for name in prefixes)]
    if not chosen:
        known = ", ".join(dict.fromkeys(case.signal for case in CASES))
        fix = f"choose one of {known}, with SNR 1 or 3"
        raise InputError("--case with the name of a case, or its beginning", got=", ".join(prefixes), fix=fix)
    return chosen


def _peers(names: list[str]) -> list[Smoother]:
    known = {peer.name: peer for peer in peers.PEERS}
    for name in names:
        if name not in known:
            raise InputError("--peer " + " or ".join(known), got=repr(name), fix="choose one of them")
    return [known[name] for name in names or known]


@contextmanager
def _progress() -> Iterator[ShowProgress]:
    """A progress bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True, highlight=False)
    bars = [BarColumn(), TimeRemainingColumn()] if console.width >= ROOM_FOR_A_BAR else []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), *bars)
    # Without automatic refresh, which would take time from the measurement.
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None)
        yield lambda doing, done, work: bar.update(task, description=doing, completed=done, total=work, refresh=True)


def _speeds(taking: list[Smoother]) -> dict[str, Speed]:
    speeds: dict[str, Speed] = {}
    with _progress() as show:
        for contender in taking:
            show_size = partial(_show_step, show, contender.name, len(speeds), len(taking))
            speeds[contender.name] = speed.measure(contender, speed.SIZES, show_size)
    return speeds


def _measure_real(folder: Path, names: list[str]) -> list[SeriesResult]:
    results: list[SeriesResult] = []
    with _progress() as show:
        for name in real_series.SERIES:
            show_size = partial(_show_step, show, name, len(results), len(real_series.SERIES))
            results.append(real_series.measure(folder, name, names, show_size))
    return results


def _show_step(show: ShowProgress, what: str, done: int, work: int, doing: str) -> None:
    show(f"{what}: {doing}", done, work)


def _accuracy(ink: Ink, result: Accuracy | None, seeds: int) -> Iterable[Text]:
    if result is None:
        return
    yield from ink.prose(f"Remaining error: 10⁴·Σ(f̂ − f)²/Σf² of 1,024 points, mean of {seeds} seeds", "bold", "")
    if OURS.name in result.scores:
        yield from _best_and_published(ink, result)
    if len(result.scores) > 1:
        yield from _all_scores(ink, result)
    for name, what in result.unable.items():
        yield from ink.prose(f"{name}: {what}", "dim", "- ")
    yield ink.line()


def _best_and_published(ink: Ink, result: Accuracy) -> Iterable[Text]:
    """Our scores and those of the best peer and the best published result."""
    rows = [_heads(ink, "", OURS.name, "× peer", "", "best peer", "× published", "", "best published")]
    published: dict[str, float] = {}
    for case in result.cases:
        ours, best = result.mean(OURS.name, case), best_published(case.signal, case.snr)
        if best:
            published[case.name] = ours / best[1]
        cells = [*_against(ink, ours, result.best_peer(case)), *_against(ink, ours, best)]
        rows.append([ink.text(case.name), ink.text(f"{ours:.1f}", "bold"), *cells])
    yield from ink.table(rows, right=[False, True, True, True, False, True, True, False])
    if published:
        worst = max(published, key=lambda name: published[name])
        summary = (
            f"over the best published: {geometric_mean(published.values()):.2f} in geometric mean of {len(published)} cases"
        )
        yield from ink.prose(f"{summary}, {published[worst]:.2f} at worst ({worst}).")


def _against(ink: Ink, ours: float, best: tuple[str, float] | None) -> list[Text]:
    if best is None:
        return [ink.text("")] * 3
    return [ink.text(f"{ours / best[1]:.2f}"), ink.text(f"{best[1]:.1f}"), ink.text(best[0], "dim")]


def _all_scores(ink: Ink, result: Accuracy) -> Iterable[Text]:
    """Every mean score, and the summary of each smoother."""
    yield ink.line()
    rows = [_heads(ink, "", *result.scores)]
    rows += [
        [ink.text(case.name), *(ink.text(f"{result.mean(name, case):.1f}") for name in result.scores)] for case in result.cases
    ]
    yield from ink.table(rows, right=[False, *[True] * len(result.scores)], gap=1)
    yield ink.line()
    rows = [_heads(ink, "", "mean", "worst", "at", "")]
    for name in result.scores:
        mean = geometric_mean(result.mean(name, case) for case in result.cases)
        worst, at = max(
            (result.mean(name, case) / best[1], case.name) for case in result.cases if (best := result.best_peer(case))
        )
        description = ink.text(smoother(name).description, "dim")
        rows.append([ink.text(name), ink.text(f"{mean:.1f}"), ink.text(f"{worst:.2f}"), ink.text(at), description])
    yield from ink.table(rows, right=[False, True, True, False, False])
    yield from ink.prose("mean: geometric, of the scores above; worst: the largest ratio to the best peer.", "dim")


def _speed(ink: Ink, how: str, speeds: dict[str, Speed]) -> Iterable[Text]:
    """Seconds by length."""
    yield from ink.prose(f"Seconds, minimum of {speed.RUNS} runs: {how}", "bold", "")
    rows = [_heads(ink, "", *(f"{size:,} points" for size in speed.SIZES))]
    for name, one in speeds.items():
        rows.append(
            [ink.text(name), *(ink.text(f"{one.seconds[size]:.3g}" if size in one.seconds else "") for size in speed.SIZES)]
        )
    yield from ink.table(rows, right=[False, *[True] * len(speed.SIZES)])
    for name, one in speeds.items():
        if one.unable:
            yield from ink.prose(f"{name}: {one.unable}", "dim", "- ")
    yield ink.line()


def _resources(ink: Ink, result: Resources | None) -> Iterable[Text]:
    """Seconds of the command on many short series, and memory by length."""
    if result is None:
        return
    yield from ink.prose("The default in a process: the whole command, median; one series, peak memory above it", "bold", "")
    rows = [(f"{result.series:,} series of {result.points} points", f"{median(result.seconds):.3g} s")]
    rows += [(f"{size:,} points", f"{memory / 1e6:.0f} MB") for size, memory in result.memory.items()]
    yield from ink.table([[ink.text(cell) for cell in row] for row in rows], right=[False, True])
    if result.unable:
        yield from ink.prose(result.unable, "dim", "- ")
    yield ink.line()


def _real(ink: Ink, results: list[SeriesResult]) -> Iterable[Text]:
    """The error at points left out, and our report of each series."""
    yield from _left_out(ink, "A tenth of the points left out", [(one, one.errors) for one in results])
    yield from _left_out(ink, f"A tenth left out in gaps of {real_series.GAP}", [(one, one.gap_errors) for one in results])
    for one in results:
        yield from ink.prose(f"{one.name}: {one.sentence}", lead="  ")
        for name, what in one.unable.items():
            yield from ink.prose(f"{name}: {what}", "dim", "- ")
    yield ink.line()


def _left_out(ink: Ink, what: str, rows: list[tuple[SeriesResult, dict[str, float]]]) -> Iterable[Text]:
    """The errors of each smoother at points of each series that it did not see."""
    yield from ink.prose(f"{what}: their mean squared error, relative to the series' variance", "bold", "")
    names = list(dict.fromkeys(name for _, errors in rows for name in (OURS.name, LINE, *errors) if name in errors))
    cells = [
        [
            ink.text(one.name),
            ink.text(f"{one.points:,}"),
            *(ink.text(f"{errors[name]:.4f}" if name in errors else "") for name in names),
        ]
        for one, errors in rows
    ]
    yield from ink.table([_heads(ink, "", "points", *names), *cells], right=[False, *[True] * (len(names) + 1)])


def _heads(ink: Ink, *heads: str) -> list[Text]:
    return [ink.text(head, "dim") for head in heads]


def _numbers(results: _Results) -> str:
    """Everything as JSON: each score, seconds by length, errors on real series."""
    result = results.accuracy
    versions = {package: version for peer in peers.PEERS for package, version in peer.versions.items()}
    content: dict[str, Any] = provenance(**versions)
    content["runs"] = speed.RUNS
    content["speed"] = {name: asdict(one) for name, one in results.speed.items()}
    content["heads"] = {name: asdict(one) for name, one in results.heads.items()}
    if results.resources:
        content["resources"] = asdict(results.resources)
    if result:
        scores = {name: {case.name: of[case] for case in result.cases} for name, of in result.scores.items()}
        content["accuracy"] = {"scores": scores, "unable": result.unable}
    return compact_json(content | {"real": [asdict(one) for one in results.real]})


app = app_of(compare)

if __name__ == "__main__":
    app()
