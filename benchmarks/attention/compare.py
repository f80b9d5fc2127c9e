"""`overt bench` with further kinds of work and other libraries: `python -m benchmarks.attention.compare --list`."""

from dataclasses import replace

from benchmarks.attention import additive_libraries, derivatives, dot_libraries, memory, normalizers, scores, summaries
from benchmarks.command import app_of
from overt.bench import cases, comparison
from overt.bench.cases import DOTS
from overt.bench.contenders.contender import Contender
from overt.bench.works import WORKS
from overt.cli.bench import bench


def register() -> None:
    """Add the kinds of work, and the other libraries to those that `overt bench` times."""
    for kinds in (memory, summaries, normalizers, derivatives, scores):
        WORKS.update(kinds.WORKS)
        cases.BACKWARD.update(kinds.BACKWARD)
        cases.CASES.extend(kinds.CASES)
        cases.GPU_CASES.extend(kinds.GPU_CASES)
    comparison.MEASURES["memory"] = memory.measure
    for work in ("additive", "gradients"):
        _join(work, [additive_libraries.keops(), additive_libraries.keras()])
    for work in DOTS:
        _join(work, dot_libraries.contenders(work))


def _join(work: str, others: list[Contender]) -> None:
    WORKS[work] = replace(WORKS[work], contenders=[*WORKS[work].contenders, *others])


app = app_of(bench)

if __name__ == "__main__":
    register()
    app()
