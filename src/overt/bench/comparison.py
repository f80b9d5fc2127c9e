"""One case: all contenders are prepared and compared with the reference, and timed only if all agree."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from overt.bench.cases import Case, Inputs
from overt.bench.contenders.contender import Contender, Run, Unable
from overt.bench.reference import Reference, disagreement
from overt.bench.timing import RunTimes, time_alternating, use_threads
from overt.bench.works import WORKS

Notify = Callable[[str], None]  # receives the current step
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Effort:
    """How each case is measured: at most `runs` of each contender, in about `seconds` for each case.

    `dtype` is for cases without their own.
    """

    dtype: torch.dtype
    threads: int
    runs: int
    seconds: float
    device: torch.device = _CPU

    def case_dtype(self, case: Case) -> torch.dtype:
        """The number type of a case."""
        return case.dtype or self.dtype


@dataclass
class Result:
    """The results of a case by contender: times, or why there are none, and disagreements. With a disagreement there are no times."""

    case: Case
    compared: str = ""
    times: dict[str, RunTimes] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # bytes above the inputs
    kind: str = "cpu"  # kind of device

    def fastest(self, *, ours: bool) -> str | None:
        """The contender with the smallest median, among overt's or among the others."""
        names = {contender.name for contender in _contenders(self.case.work, self.kind) if contender.ours == ours}
        return min(names & set(self.times), key=lambda name: self.times[name].median, default=None)

    def ratio(self, name: str) -> float | None:
        """The speed relative to the fastest contender that is not overt's."""
        other = self.fastest(ours=False)
        return None if other is None else self.times[other].median / self.times[name].median


# MEASURES: measuring functions for kinds of work that are not timed in alternation; benchmarks add theirs.
MEASURES: dict[str, Callable[[Case, Effort, Notify], Result]] = {}


def measure(case: Case, options: Effort, notify: Notify = lambda doing: None) -> Result:
    """Compare all contenders that can run the case, then time them in alternation."""
    if case.work in MEASURES:
        return MEASURES[case.work](case, options, notify)
    result, calls = compared(case, options, notify)
    if not result.wrong:
        notify("timing")
        result.times = time_alternating(calls, options.runs, options.seconds, result.kind)
    return result


def compared(case: Case, options: Effort, notify: Notify) -> tuple[Result, dict[str, Callable[[], object]]]:
    """The comparison of the contenders' results, and their calls by name."""
    use_threads(options.threads)  # first, since code is compiled for this number of threads
    work = WORKS[case.work]
    inputs = work.random_inputs(case, options.case_dtype(case), options.device)
    notify("computing the reference")
    expected = work.reference(case, inputs)
    result = Result(case, compared=expected.description, kind=options.device.type)
    calls: dict[str, Callable[[], object]] = {}
    for contender in _contenders(case.work, result.kind):
        notify(f"comparing {contender.name}")
        run = _compare(contender, inputs, expected, result)
        if run is not None:
            calls[contender.name] = partial(run, inputs.upstream)
    return result, calls


def _contenders(work: str, kind: str) -> list[Contender]:
    return WORKS[work].contenders if kind == "cpu" else WORKS[work].gpu_contenders


def _compare(contender: Contender, inputs: Inputs, expected: Reference, result: Result) -> Run | None:
    """The contender's run, after a comparison of its results; None if it cannot run. The first run includes any compilation."""
    try:
        run, note = contender.prepare(inputs)
        results = run(expected.upstream)
    except Unable as reason:
        result.unable[contender.name] = str(reason)
        return None
    except Exception as error:
        if contender.ours:
            raise
        result.unable[contender.name] = f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return None
    if note:
        result.notes[contender.name] = note
    wrong = disagreement(results, expected, inputs.query.dtype)
    if wrong:
        result.wrong[contender.name] = wrong
    return run
