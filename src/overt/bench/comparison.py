"""One case: all contenders are prepared and compared with the reference, and timed only if all agree."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from overt.bench import cases
from overt.bench.cases import Case, Inputs
from overt.bench.contenders import additive, derivatives, dot_libraries, dots, libraries, scores, summaries
from overt.bench.contenders.contender import Contender, Run, Unable
from overt.bench.gpu import device as gpu
from overt.bench.memory import in_fresh_process
from overt.bench.reference import Reference, additive_reference, disagreement
from overt.bench.timing import Times, time_alternating, use_threads

_ADDITIVE = [
    additive.overt_path("native"),
    additive.overt_path("blocked"),
    additive.eager(),
    additive.compiled(),
    libraries.keops(),
    libraries.keras(),
]
CONTENDERS: dict[str, list[Contender]] = {
    "additive": _ADDITIVE,
    "gradients": _ADDITIVE,
    "memory": [additive.overt_path("native")],
    "summary": [summaries.overt_path("native"), summaries.overt_path("blocked"), summaries.forward_pass()],
    **{work: [*dots.contenders(work), *dot_libraries.contenders(work)] for work in cases.DOTS},
    **{work: derivatives.contenders(work) for work in cases.DERIVATIVES},
    **{work: scores.contenders(work) for work in cases.SCORES},
}

_GPU_ADDITIVE = [additive.overt_path("triton"), additive.eager(), additive.compiled()]
GPU_CONTENDERS: dict[str, list[Contender]] = {
    "additive": _GPU_ADDITIVE,
    "gradients": _GPU_ADDITIVE,
    "memory": [additive.overt_path("triton")],
    "summary": [summaries.overt_path("triton"), summaries.forward_pass()],
}

Notify = Callable[[str], None]  # what is being done
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Options:
    """How every case is measured: at most `runs` of each contender, in about `seconds` for each case.

    `dtype` is that of cases that name none.
    """

    dtype: torch.dtype
    threads: int
    runs: int
    seconds: float
    device: torch.device = _CPU

    def dtype_of(self, case: Case) -> torch.dtype:
        """The number type of a case."""
        return case.dtype or self.dtype


@dataclass
class Result:
    """The result of a case, by contender: times, or why there are none, and disagreements. With a disagreement there are no times."""

    case: Case
    compared: str = ""
    times: dict[str, Times] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # bytes above the inputs
    kind: str = "cpu"  # of device

    def fastest(self, *, ours: bool) -> str | None:
        """The contender with the smallest median, among overt's or among the others."""
        names = {contender.name for contender in _contenders(self.case.work, self.kind) if contender.ours == ours}
        return min(names & set(self.times), key=lambda name: self.times[name].median, default=None)

    def ratio(self, name: str) -> float | None:
        """How many times as fast as the fastest contender that is not overt's."""
        other = self.fastest(ours=False)
        return None if other is None else self.times[other].median / self.times[name].median


def measure(case: Case, options: Options, notify: Notify = lambda doing: None) -> Result:
    """Compare all contenders that can run the case, then time them in alternation."""
    kind = options.device.type
    if case.work == "memory" and kind == "cpu":
        return _memory(case, options, notify)
    use_threads(options.threads)  # first: what is compiled is compiled for so many
    inputs = random_inputs(case, options)
    notify("computing the reference")
    expected = _reference(case, inputs)
    result = Result(case, compared=expected.description, kind=kind)
    runs = {}
    for contender in _contenders(case.work, kind):
        notify(f"comparing {contender.name}")
        run = _compare(contender, inputs, expected, result)
        if run is not None:
            runs[contender.name] = run
    if not result.wrong:
        notify("timing")
        calls = {name: (lambda run=run: run(inputs.upstream)) for name, run in runs.items()}
        if case.work == "memory":
            result.memory = {name: gpu.peak(run) for name, run in calls.items()}
        result.times = time_alternating(calls, options.runs, options.seconds, kind)
    return result


def random_inputs(case: Case, options: Options) -> Inputs:
    """The inputs of a case."""
    if case.work in cases.DOTS:
        return dots.random_inputs(case, options.dtype_of(case))
    if case.work in cases.DERIVATIVES:
        return derivatives.random_inputs(case, options.dtype_of(case))
    return cases.random_inputs(case, options.dtype_of(case), options.device)


def _reference(case: Case, inputs: Inputs) -> Reference:
    if case.work in cases.DOTS:
        return dots.reference(case, inputs)
    if case.work in cases.DERIVATIVES:
        return derivatives.reference(case, inputs)
    if case.work in cases.SCORES:
        return scores.reference(case, inputs)
    return summaries.reference(inputs) if case.work == "summary" else additive_reference(case, inputs)


def _contenders(work: str, kind: str) -> list[Contender]:
    return (CONTENDERS if kind == "cpu" else GPU_CONTENDERS)[work]


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


def _memory(case: Case, options: Options, notify: Notify) -> Result:
    result = Result(case)
    for contender in CONTENDERS["memory"]:
        notify(f"running {contender.name} in a separate process")
        try:
            seconds, size, wrong = in_fresh_process(case, options.dtype, options.threads)
        except Unable as reason:
            result.unable[contender.name] = str(reason)
            continue
        if wrong:
            result.wrong[contender.name] = wrong
        else:
            result.times[contender.name], result.memory[contender.name] = Times((seconds,)), size
    return result
