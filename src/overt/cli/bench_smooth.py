"""`overt bench smooth`: the error that smoothers leave, the time they take, and what ours does on real series."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from overt.bench.provenance import provenance
from overt.bench.smoothing import accuracy, heads, peers, real, speed
from overt.bench.smoothing.accuracy import CASES, Accuracy, Case, geometric_mean
from overt.bench.smoothing.peers import OURS, Smoother, smoother
from overt.bench.smoothing.published import best_published
from overt.bench.smoothing.real import LINE, Found
from overt.bench.smoothing.speed import Speed
from overt.bench.written import lines
from overt.cli.console import report_console
from overt.drawing.letters import ROOM_FOR_A_BAR, Ink, Piece
from overt.errors import InputError
from overt.files import separate, whole

PARTS = ("accuracy", "speed", "heads", "real")

Tell = Callable[[str, int, int], None]  # what is being done, the pieces done, and of all


@dataclass
class _Results:
    """What was measured, for the file."""

    accuracy: Accuracy | None = None
    speed: dict[str, Speed] = field(default_factory=dict)
    heads: dict[str, Speed] = field(default_factory=dict)
    real: list[Found] = field(default_factory=list)


def bench_smooth(
    part: Annotated[
        list[str] | None,
        typer.Option(help="accuracy, speed, heads or real; may be given again. (default: all there is data for)"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Draws of the noise, of which scores are means.", min=1)] = 100,
    case: Annotated[
        list[str] | None, typer.Option(help="A signal and SNR as in blocks 3, or how several begin; may be given again.")
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(help="A peer; may be given again. (default: all)")] = None,
    processes: Annotated[int, typer.Option(help="Processes for the accuracy; times are taken in one.", min=1)] = 2,
    data: Annotated[
        Path | None, typer.Option(envvar="OVERT_DATA", help="The folder that holds the real series in its folder `series`.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write every score and every time into this JSON file.")] = None,
) -> None:
    """Compare smoothing with other smoothers: the error left, the time taken, single heads, and real series.

    All are as automatic as they come: nobody is told the signal or the noise. Signals have 1,024 points and white noise of
    standard deviation sd(f)/SNR; a score is 10⁴·Σ(f̂ − f)²/Σf², and lower is better.
    """
    parts, cases = _parts(part, data), _cases(case or [])
    place = real.folder(data) if "real" in parts and data else None
    taking = [each for each in _peers(peer or []) if not each.missing]
    separate({"--out": out}, real.files(place) if place else {})
    console, names, results = report_console(out), [OURS.name, *(each.name for each in taking)], _Results()
    # A file that cannot be written is refused before the work.
    with whole(out) if out else nullcontext() as file:
        if "accuracy" in parts:
            results.accuracy = _scores(cases, names, seeds, processes)
            console.print(Piece(lambda ink: _accuracy(ink, results.accuracy, seeds)))
        if "speed" in parts:
            results.speed = _speeds([OURS, *taking])
            console.print(Piece(lambda ink: _speed(ink, "everything chosen by the smoother itself", results.speed)))
        if "heads" in parts:
            results.heads = _speeds([each for each in heads.HEADS if not each.missing])
            console.print(Piece(lambda ink: _speed(ink, "one head, its bandwidth given", results.heads)))
        if place:
            results.real = _found(place, [each.name for each in (OURS, *taking) if each.fills])
            console.print(Piece(lambda ink: _real(ink, results.real)))
        if file:
            file.write_text(_numbers(results), encoding="utf-8")
    missing = [each.missing for each in _peers(peer or []) if each.missing]
    console.print(Piece(lambda ink: (line for told in missing for line in ink.prose(told, "dim", "- "))), end="")
    if out:
        console.print(Piece(lambda ink: ink.prose(f"→ {out}", lead="")))
    if any(OURS.name in each.unable for each in (results.accuracy, *results.real) if each):
        raise typer.Exit(1)


def _parts(asked: list[str] | None, data: Path | None) -> list[str]:
    for name in asked or []:
        if name not in PARTS:
            raise InputError("--part is one of " + ", ".join(PARTS), got=repr(name), fix="name one of them")
    if "real" in (asked or []) and data is None:
        fix = "name the folder that holds `series` by --data or OVERT_DATA"
        raise InputError("real series are read from a folder of the user's", got="none", fix=fix)
    return asked or [name for name in PARTS if name != "real" or data]


def _cases(begun: list[str]) -> list[Case]:
    chosen = [case for case in CASES if not begun or any(case.name.startswith(name) for name in begun)]
    if not chosen:
        known = ", ".join(dict.fromkeys(case.signal for case in CASES))
        raise InputError(
            "--case is how the name of a case begins", got=", ".join(begun), fix=f"name one of {known}, with SNR 1 or 3"
        )
    return chosen


def _peers(asked: list[str]) -> list[Smoother]:
    known = {each.name: each for each in peers.PEERS}
    for name in asked:
        if name not in known:
            raise InputError("--peer is one of " + ", ".join(known), got=repr(name), fix="name one of them")
    return [known[name] for name in asked or known]


@contextmanager
def _telling() -> Iterator[Tell]:
    """A bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True, highlight=False)
    bars = [BarColumn(), TimeRemainingColumn()] if console.width >= ROOM_FOR_A_BAR else []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), *bars)
    # It moves only when told: a bar that moves by itself takes time from what is measured.
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None)
        yield lambda doing, done, work: bar.update(task, description=doing, completed=done, total=work, refresh=True)


def _scores(cases: list[Case], names: list[str], seeds: int, processes: int) -> Accuracy:
    with _telling() as tell:
        return accuracy.measure(cases, names, seeds, processes, lambda done, work: tell("scores", done, work))


def _speeds(taking: list[Smoother]) -> dict[str, Speed]:
    found: dict[str, Speed] = {}
    with _telling() as tell:
        for each in taking:
            told = partial(_tell_of, tell, each.name, len(found), len(taking))
            found[each.name] = speed.measure(each, speed.SIZES, told)
    return found


def _found(place: Path, names: list[str]) -> list[Found]:
    found: list[Found] = []
    with _telling() as tell:
        for name in real.SERIES:
            told = partial(_tell_of, tell, name, len(found), len(real.SERIES))
            found.append(real.measure(place, name, names, told))
    return found


def _tell_of(tell: Tell, what: str, done: int, work: int, doing: str) -> None:
    tell(f"{what}: {doing}", done, work)


def _accuracy(ink: Ink, found: Accuracy | None, seeds: int) -> Iterable[Text]:
    if found is None:
        return
    yield from ink.prose(f"Error left: 10⁴·Σ(f̂ − f)²/Σf² of 1,024 points, mean of {seeds} seeds", "bold", "")
    if OURS.name in found.scores:
        yield from _beside_the_best(ink, found)
    if len(found.scores) > 1:
        yield from _everybody(ink, found)
    for name, what in found.unable.items():
        yield from ink.prose(f"{name}: {what}", "dim", "- ")
    yield ink.line()


def _beside_the_best(ink: Ink, found: Accuracy) -> Iterable[Text]:
    """Our scores beside those of the best peer and the best published."""
    rows = [_heads(ink, "", OURS.name, "× peer", "", "best peer", "× published", "", "best published")]
    published: dict[str, float] = {}
    for case in found.cases:
        own, best = found.mean(OURS.name, case), best_published(case.signal, case.snr)
        if best:
            published[case.name] = own / best[1]
        cells = [*_against(ink, own, found.best_peer(case)), *_against(ink, own, best)]
        rows.append([ink.text(case.name), ink.text(f"{own:.1f}", "bold"), *cells])
    yield from ink.table(rows, right=[False, True, True, True, False, True, True, False])
    if published:
        worst = max(published, key=lambda name: published[name])
        told = f"over the best published: {geometric_mean(published.values()):.2f} in geometric mean of {len(published)} cases"
        yield from ink.prose(f"{told}, {published[worst]:.2f} at worst ({worst}).")


def _against(ink: Ink, own: float, best: tuple[str, float] | None) -> list[Text]:
    if best is None:
        return [ink.text("")] * 3
    return [ink.text(f"{own / best[1]:.2f}"), ink.text(f"{best[1]:.1f}"), ink.text(best[0], "dim")]


def _everybody(ink: Ink, found: Accuracy) -> Iterable[Text]:
    """Every mean score, and each smoother's overall."""
    yield ink.line()
    rows = [_heads(ink, "", *found.scores)]
    rows += [
        [ink.text(case.name), *(ink.text(f"{found.mean(name, case):.1f}") for name in found.scores)] for case in found.cases
    ]
    yield from ink.table(rows, right=[False, *[True] * len(found.scores)], gap=1)
    yield ink.line()
    rows = [_heads(ink, "", "mean", "worst", "at", "")]
    for name in found.scores:
        mean = geometric_mean(found.mean(name, case) for case in found.cases)
        worst, at = max(
            (found.mean(name, case) / best[1], case.name) for case in found.cases if (best := found.best_peer(case))
        )
        told = ink.text(smoother(name).told, "dim")
        rows.append([ink.text(name), ink.text(f"{mean:.1f}"), ink.text(f"{worst:.2f}"), ink.text(at), told])
    yield from ink.table(rows, right=[False, True, True, False, False])
    yield from ink.prose("mean: geometric, of the scores above; worst: the largest ratio to the best peer.", "dim")


def _speed(ink: Ink, how: str, found: dict[str, Speed]) -> Iterable[Text]:
    """Seconds by length."""
    yield from ink.prose(f"Seconds, the least of {speed.RUNS} runs: {how}", "bold", "")
    rows = [_heads(ink, "", *(f"{size:,} points" for size in speed.SIZES))]
    for name, one in found.items():
        rows.append(
            [ink.text(name), *(ink.text(f"{one.seconds[size]:.3g}" if size in one.seconds else "") for size in speed.SIZES)]
        )
    yield from ink.table(rows, right=[False, *[True] * len(speed.SIZES)])
    for name, one in found.items():
        if one.unable:
            yield from ink.prose(f"{name}: {one.unable}", "dim", "- ")
    yield ink.line()


def _real(ink: Ink, found: list[Found]) -> Iterable[Text]:
    """How near the points left out are come to, and what ours says of each series."""
    yield from ink.prose("Points left out, a tenth: mean squared error over the series' variance", "bold", "")
    names = list(dict.fromkeys(name for one in found for name in (OURS.name, LINE, *one.errors) if name in one.errors))
    rows = [_heads(ink, "", "points", *names)]
    for one in found:
        errors = (f"{one.errors[name]:.4f}" if name in one.errors else "" for name in names)
        rows.append([ink.text(one.name), ink.text(f"{one.points:,}"), *(ink.text(error) for error in errors)])
    yield from ink.table(rows, right=[False, *[True] * (len(names) + 1)])
    for one in found:
        yield from ink.prose(f"{one.name}: {one.sentence}", lead="  ")
        for name, what in one.unable.items():
            yield from ink.prose(f"{name}: {what}", "dim", "- ")
    yield ink.line()


def _heads(ink: Ink, *heads: str) -> list[Text]:
    return [ink.text(head, "dim") for head in heads]


def _numbers(results: _Results) -> str:
    """Everything as JSON: each score, seconds by length, errors on real series."""
    found = results.accuracy
    versions = {package: version for each in peers.PEERS for package, version in each.versions.items()}
    told: dict[str, Any] = provenance(**versions)
    told["runs"] = speed.RUNS
    told["speed"] = {name: asdict(one) for name, one in results.speed.items()}
    told["heads"] = {name: asdict(one) for name, one in results.heads.items()}
    if found:
        scores = {name: {case.name: of[case] for case in found.cases} for name, of in found.scores.items()}
        told["accuracy"] = {"scores": scores, "unable": found.unable}
    return lines(told | {"real": [asdict(one) for one in results.real]})
