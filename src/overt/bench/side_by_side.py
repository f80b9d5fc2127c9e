"""One case: everybody made ready, compared, and only where all agree timed."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from overt.bench import cases, compared
from overt.bench.cases import Case, Inputs
from overt.bench.compared import Wanted, disagreement
from overt.bench.contenders import additive, dots, libraries, summaries
from overt.bench.contenders.contender import Contender, Run, Unable
from overt.bench.gpu import device as gpu
from overt.bench.memory import in_fresh_process
from overt.bench.turns import Times, in_turns, use_threads

_ADDITIVE = [additive.native(), additive.blocked(), additive.eager(), additive.compiled(), libraries.keops(), libraries.keras()]
CONTENDERS: dict[str, list[Contender]] = {
    "additive": _ADDITIVE,
    "gradients": _ADDITIVE,
    "memory": [additive.native()],
    "summary": [summaries.native(), summaries.blocked(), summaries.yardstick()],
    **{work: dots.contenders(work) for work in cases.DOTS},
}

_GPU_ADDITIVE = [additive.triton(), additive.eager(), additive.compiled()]
GPU_CONTENDERS: dict[str, list[Contender]] = {
    "additive": _GPU_ADDITIVE,
    "gradients": _GPU_ADDITIVE,
    "memory": [additive.triton()],
    "summary": [summaries.triton(), summaries.yardstick()],
}

Tell = Callable[[str], None]
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Options:
    """How every case is measured: at most so many runs, as many of each contender, in about so many seconds a case.

    `dtype` is that of cases without one of their own.
    """

    dtype: torch.dtype
    threads: int
    runs: int
    seconds: float
    device: torch.device = _CPU

    def dtype_of(self, case: Case) -> torch.dtype:
        """The number type that the case is measured in."""
        return case.dtype or self.dtype


@dataclass
class Result:
    """What came of a case, by contender: times, or why there are none, and what disagreed. Disagreement leaves no times at all."""

    case: Case
    compared: str = ""
    times: dict[str, Times] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    unable: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # bytes above the inputs
    kind: str = "cpu"  # of device

    def fastest(self, *, ours: bool) -> str | None:
        """The contender of least median, among overt's own or among the others."""
        asked = {contender.name for contender in _contenders(self.case.work, self.kind) if contender.ours == ours}
        return min(asked & set(self.times), key=lambda name: self.times[name].median, default=None)

    def ratio(self, name: str) -> float | None:
        """How many times as fast as the fastest other."""
        other = self.fastest(ours=False)
        return None if other is None else self.times[other].median / self.times[name].median


def measure(case: Case, options: Options, tell: Tell = lambda what: None) -> Result:
    """Compare everybody who can run the case, then time them in turns. `tell` hears what is being done."""
    kind = options.device.type
    if case.work == "memory" and kind == "cpu":
        return _memory(case, options, tell)
    inputs = drawn(case, options)
    tell("computing what is wanted")
    expected = _wanted(case, inputs)
    result = Result(case, compared=expected.told, kind=kind)
    runs = {}
    for contender in _contenders(case.work, kind):
        tell(f"comparing {contender.name}")
        run = _compare(contender, inputs, expected, result)
        if run is not None:
            runs[contender.name] = run
    if not result.wrong:
        use_threads(options.threads)
        tell("timing")
        timed = {name: (lambda run=run: run(inputs.upstream)) for name, run in runs.items()}
        if case.work == "memory":
            result.memory = {name: gpu.peak(run) for name, run in timed.items()}
        result.times = in_turns(timed, options.runs, options.seconds, kind)
    return result


def drawn(case: Case, options: Options) -> Inputs:
    """The inputs of a case."""
    if case.work in cases.DOTS:
        return dots.drawn(case, options.dtype_of(case))
    return cases.drawn(case, options.dtype_of(case), options.device)


def _wanted(case: Case, inputs: Inputs) -> Wanted:
    if case.work in cases.DOTS:
        return dots.wanted(case, inputs)
    return summaries.wanted(inputs) if case.work == "summary" else compared.wanted(case, inputs)


def _contenders(work: str, kind: str) -> list[Contender]:
    return (CONTENDERS if kind == "cpu" else GPU_CONTENDERS)[work]


def _compare(contender: Contender, inputs: Inputs, expected: Wanted, result: Result) -> Run | None:
    """The contender's run, once what it gave has been compared; None if it cannot run. The first run compiles what it has to."""
    try:
        run, note = contender.prepare(inputs)
        found = run(expected.upstream)
    except Unable as why:
        result.unable[contender.name] = str(why)
        return None
    except Exception as error:
        if contender.ours:
            raise
        result.unable[contender.name] = f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return None
    if note:
        result.notes[contender.name] = note
    wrong = disagreement(found, expected, inputs.query.dtype)
    if wrong:
        result.wrong[contender.name] = wrong
    return run


def _memory(case: Case, options: Options, tell: Tell) -> Result:
    result = Result(case)
    for contender in CONTENDERS["memory"]:
        tell(f"running {contender.name} in a process of its own")
        try:
            seconds, taken, wrong = in_fresh_process(case, options.dtype, options.threads)
        except Unable as why:
            result.unable[contender.name] = str(why)
            continue
        if wrong:
            result.wrong[contender.name] = wrong
        else:
            result.times[contender.name], result.memory[contender.name] = Times((seconds,)), taken
    return result
