"""Runs in turns, so that whatever else the machine does meets every contender alike."""

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from overt.bench.gpu import device as gpu

_FEWEST = 3  # rounds, unless one takes all the time that there is
_PAUSE = 0.01  # seconds in which the threads of the last run stop spinning
_SHORT = 0.01  # seconds: what takes less is run so often in one go


@dataclass(frozen=True)
class Times:
    """Seconds of each run.

    >>> times = Times((2.0, 1.0, 4.0, 3.0, 5.0))
    >>> times.median, times.quartiles
    (3.0, (2.0, 4.0))
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the runs took no longer."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the runs took no longer than the first, a quarter no less than the second."""
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


def in_turns(runs: dict[str, Callable[[], object]], count: int, seconds: float, kind: str = "cpu") -> dict[str, Times]:
    """Time at most `count` runs of each, one of each in a round, every other round the other way about.

    All have as many runs: after the round in which the time of the case is used up none begins, except that there are three
    rounds, unless one takes all the time.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    timed = _timed if kind == "cpu" else gpu.timed
    for number in range(count):
        used = sum(map(sum, taken.values()))
        if used >= seconds and (number >= _FEWEST or used >= number * seconds):
            break
        for name in list(runs) if number % 2 == 0 else reversed(runs):
            taken[name].append(timed(runs[name]))
    return {name: Times(tuple(found)) for name, found in taken.items()}


def _timed(run: Callable[[], object]) -> float:
    """Seconds of a run; of a short one the mean of several, one right after the other: threads that sleep wake up once, not each time."""
    time.sleep(_PAUSE)
    once = _passed(run)
    times = int(_SHORT / max(once, _SHORT / 1000))
    return once if times < 2 else sum(_passed(run) for _ in range(times)) / times


def _passed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = run()
    passed = time.perf_counter() - start
    del kept
    return passed


def use_threads(count: int) -> None:
    """Let torch, and every other OpenMP runtime that has been loaded, use so many threads."""
    torch.set_num_threads(count)
    maps = Path("/proc/self/maps")
    files = {line.split()[-1] for line in maps.read_text().splitlines() if "gomp" in line} if maps.exists() else set()
    for file in files:
        ctypes.CDLL(file).omp_set_num_threads(count)
