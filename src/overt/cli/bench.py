"""`overt bench`: time overt and other libraries on this machine, after comparing their results."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from overt.bench import ceilings
from overt.bench.bounds import Bound
from overt.bench.cases import select_cases
from overt.bench.ceilings import Ceilings
from overt.bench.compact_json import compact_json
from overt.bench.comparison import Effort, Result, measure
from overt.bench.gpu import ceilings as gpu_ceilings
from overt.bench.gpu import device as gpu
from overt.bench.gpu.bounds import GpuBound
from overt.bench.gpu.ceilings import GpuCeilings
from overt.bench.machine import machine
from overt.bench.provenance import provenance
from overt.bench.timing import use_threads
from overt.bench.works import WORKS
from overt.cli.shared.console import report_console, say
from overt.drawing.letters import Ink, Piece
from overt.errors import InputError
from overt.files import whole

_QUICK_RUNS, _QUICK_SECONDS = 5, 5.0
_DTYPES = {"cpu": ("float32", "float64"), "cuda": ("float32", "bfloat16", "float64")}


def bench(
    case: Annotated[
        list[str] | None, typer.Option(help="A case, or the start of several names. Repeatable. (default: six quick ones)")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the cases and exit.")] = False,
    runs: Annotated[int, typer.Option(help="Maximum number of runs; the same for every library.", min=1)] = 21,
    seconds: Annotated[float, typer.Option(help="Time limit for the runs of one case.", min=0.001)] = 60.0,
    threads: Annotated[int | None, typer.Option(help="Number of threads. (default: torch's)", min=1)] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32 or float64, and bfloat16 on a GPU. (default: float32; on a GPU, the type of each case)"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda, cuda:1 and so on, which have other cases.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Few runs, 5 s a case; the default without --case.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write all times and machine limits to this JSON file.")] = None,
) -> None:
    """Time overt and other libraries on this machine.

    All libraries get the same inputs, and their results are first compared with float64. If results disagree, no times are shown for
    the case, and the command exits with 1. Then the libraries run in turns. A rate is in 10⁹ terms per second: a term is one
    activation, and there are B · Q · K · D of them. The bound is the shortest time that this machine's arithmetic and memory allow.
    """
    kind = gpu.kind(device)
    requested = _dtype(dtype, kind)
    quick = quick or not (case or listed)
    cases = select_cases(case or [], quick, kind, requested)
    console = report_console(out)
    if listed:
        rows = [(entry.name, WORKS[entry.work].description) for entry in cases]
        table = Piece(
            lambda ink: ink.table([[ink.text(name, "bold"), ink.text(work, "dim")] for name, work in rows], [False] * 2)
        )
        console.print(table)
        return
    if quick:
        runs, seconds = min(runs, _QUICK_RUNS), min(seconds, _QUICK_SECONDS)
    options = Effort(requested or torch.float32, threads or torch.get_num_threads(), runs, seconds, gpu.select_device(device))
    results: list[tuple[Result, Bound | GpuBound | None]] = []
    # A file that cannot be written is refused before the work.
    with whole(out) if out else nullcontext() as output:
        use_threads(options.threads)
        with _status("the machine") as show:
            show("measuring its limits")
            limits = ceilings.measured(options.threads) if kind == "cpu" else gpu_ceilings.measured()
        console.print(Piece(lambda ink: _machine(ink, options, limits)))
        for number, benchmark in enumerate(cases, 1):
            with _status(f"{number} of {len(cases)} · {benchmark.name}") as show:
                result = measure(benchmark, options, show)
            limit = WORKS[benchmark.work].bound(benchmark, options.case_dtype(benchmark), limits)
            results.append((result, limit))
            console.print(Piece(lambda ink: _case(ink, *results[-1])))
        if output:
            output.write_text(_numbers(options, limits, results), encoding="utf-8")
    if out:
        say(console, f"→ {out}")
    if any(result.wrong for result, _ in results):
        raise typer.Exit(1)


def _dtype(name: str | None, kind: str) -> torch.dtype | None:
    """The number type of --dtype; None without the option."""
    if name is None:
        return None
    if name not in _DTYPES[kind]:
        raise InputError("--dtype to be one of " + ", ".join(_DTYPES[kind]), got=repr(name), fix="choose one of them")
    return getattr(torch, name)


@contextmanager
def _status(what: str) -> Iterator[Callable[[str], None]]:
    """Show the current step on a terminal, and nothing in a pipe."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda step: None
        return
    # Without animation, which would disturb the measurement.
    with Live(console=console, auto_refresh=False, transient=True) as line:
        yield lambda step: line.update(f"{what}: {step} …", refresh=True)


def _machine(ink: Ink, options: Effort, limits: Ceilings | GpuCeilings) -> Iterable[Text]:
    """The machine and its measured limits."""
    if isinstance(limits, GpuCeilings):
        yield from _gpu(ink, limits)
        return
    facts = machine()
    level = f", {limits.level}" if limits.level else ""
    software = f"{options.threads} threads{level} · {_named(options.dtype)} · torch {facts['torch']}"
    yield from ink.prose(f"{facts['processor']} · {software}", "bold", "")
    ceilings = [f"matmul {limits.matmul / 1e9:.0f} GFLOP/s", f"copy {limits.copy / 1e9:.1f} GB/s"]
    if limits.multiply_adds is not None and limits.divisions is not None:
        ceilings.insert(1, f"multiply-adds {limits.multiply_adds / 1e9:.1f}·10⁹/s")
        ceilings.insert(2, f"divisions {limits.divisions / 1e9:.1f}·10⁹/s")
    yield from ink.prose("limits: " + " · ".join(ceilings), "dim", "")


def _gpu(ink: Ink, limits: GpuCeilings) -> Iterable[Text]:
    facts = gpu.facts()
    software = f"torch {torch.__version__} · CUDA {facts['cuda']} · Triton {facts['triton']}"
    yield from ink.prose(f"{facts['gpu']} · {facts['multiprocessors']} multiprocessors · {software}", "bold", "")
    matmuls = f"matmul {limits.matmul / 1e12:.1f} TFLOP/s, in bfloat16 {limits.matmul_bfloat16 / 1e12:.0f}"
    rates = {"multiply-adds": limits.multiply_adds, "reciprocals": limits.reciprocals, "tanh": limits.tanhs}
    measured = [f"{name} {rate / 1e12:.3g}·10¹²/s" for name, rate in rates.items() if rate is not None]
    yield from ink.prose("limits: " + " · ".join([matmuls, *measured, f"copy {limits.copy / 1e12:.2f} TB/s"]), "dim", "")


def _case(ink: Ink, result: Result, limit: Bound | GpuBound | None) -> Iterable[Text]:
    """One case: its times, or disagreements of results, and reasons for missing libraries."""
    yield ink.line()
    yield ink.line(ink.text(result.case.name, "bold"), "  ", ink.text(WORKS[result.case.work].description, "dim"))
    for name, what in result.wrong.items():
        yield from ink.prose(f"{name}: {what}", "bold", "✗ ")
    if result.wrong:
        yield from ink.prose("No times are shown, because results disagree.", lead="  ")
    elif result.times:
        yield from ink.table(list(_times(ink, result, limit)), right=[False, *[True] * 6])
        yield from _comparison(ink, result, limit)
    for name, what in (result.notes | result.unable).items():
        yield from ink.prose(f"{name}: {what}", "dim", "- ")


def _times(ink: Ink, result: Result, limit: Bound | GpuBound | None) -> Iterator[list[Text]]:
    """A row for each library, the fastest first."""
    last = "memory" if result.memory else "of bound"
    heads = ("", "median", "quartiles", "runs", "10⁹/s", "× best", last)
    yield [ink.text(head, "dim") for head in heads]
    for name, times in sorted(result.times.items(), key=lambda item: item[1].median):
        low, high = times.quartiles
        unit = 1 if times.median >= 1 else 1e3  # the median's unit
        ratio = result.ratio(name)
        share = 100 * limit.seconds / times.median if limit else None
        cells = (
            _duration(times.median),
            f"{low * unit:.4g} – {high * unit:.4g}",
            str(len(times.seconds)),
            _rate(result.case.terms / times.median / 1e9),
            _short(ratio),
            f"{result.memory[name] / 1e6:.1f} MB" if name in result.memory else _short(share) + " %" * (share is not None),
        )
        yield [ink.text(name), ink.text(cells[0], "bold"), *(ink.text(cell) for cell in cells[1:])]


def _rate(billions: float) -> str:
    return f"{billions:.3g}" if billions < 1000 else f"{billions:.0f}"


def _duration(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.{2 if number < 1 else 1 if number < 100 else 0}f}"


def _comparison(ink: Ink, result: Result, limit: Bound | GpuBound | None) -> Iterable[Text]:
    """The comparison with the fastest other library, and the bound of the case."""
    best, ours = result.fastest(ours=False), result.fastest(ours=True)
    if best is not None and ours is not None:
        ratio = result.ratio(ours) or 0.0
        speed = f"is {ratio:.1f} times as fast as" if ratio >= 1 else f"takes {1 / ratio:.2f} times as long as"
        sentence = f"{ours} {speed} {best}, the fastest other library."
        yield from ink.prose(sentence, lead="  ")
    if isinstance(limit, GpuBound):
        yield from _gpu_bound(ink, limit, (ours, result.times[ours].median) if ours else None)
    elif limit is not None:
        sentence = f"bound: {_duration(limit.seconds)} of {limit.applies}"
        if limit.applies == "multiply-adds":
            sentence += (
                f" ({_duration(limit.with_sums)} with sums; the divisions, at the same time, take {_duration(limit.division)})"
            )
        yield from ink.prose(sentence, "dim")
    if result.compared:
        yield from ink.prose(f"compared: {result.compared}", "dim")


def _gpu_bound(ink: Ink, limit: GpuBound, ours: tuple[str, float] | None) -> Iterable[Text]:
    """The bound of the case, and the time that one hardware tanh per term would take."""
    reciprocals = (
        "" if limit.reciprocals is None else f" (the reciprocals, at the same time, take {_duration(limit.reciprocals)})"
    )
    yield from ink.prose(f"bound: {_duration(limit.seconds)} of {limit.applies}{reciprocals}", "dim")
    if limit.tanhs is not None:
        share = f"; {ours[0]} takes {_short(100 * ours[1] / limit.tanhs)} % of that" if ours else ""
        yield from ink.prose(f"one float32 hardware tanh per term would take {_duration(limit.tanhs)}{share}", "dim")


def _numbers(options: Effort, limits: Ceilings | GpuCeilings, results: list[tuple[Result, Bound | GpuBound | None]]) -> str:
    """All results as JSON, in seconds, bytes and operations per second."""
    content = {
        **provenance(threads=options.threads, **(gpu.facts() if isinstance(limits, GpuCeilings) else {})),
        "device": str(options.device),
        "dtype": ", ".join(dict.fromkeys(_named(options.case_dtype(result.case)) for result, _ in results)),
        "ceilings": asdict(limits),
        "cases": [_facts(result, limit) | {"dtype": _named(options.case_dtype(result.case))} for result, limit in results],
    }
    return compact_json(content)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _facts(result: Result, limit: Bound | GpuBound | None) -> dict[str, Any]:
    times = {
        name: {
            "median": times.median,
            "quartiles": times.quartiles,
            "runs": times.seconds,
            "terms_a_second": result.case.terms / times.median,
            "times_best_other": result.ratio(name),
            "share_of_bound": limit.seconds / times.median if limit else None,
            "bytes_above_inputs": result.memory.get(name),
        }
        for name, times in result.times.items()
    }
    facts = {"name": result.case.name, "work": result.case.work, "shape": result.case.shape, "terms": result.case.terms}
    bounded = asdict(limit) | {"applies": limit.applies} if limit else None
    checks = {"compared": result.compared, "wrong": result.wrong, "unable": result.unable, "notes": result.notes}
    return facts | {"bound": bounded, "contenders": times} | checks
