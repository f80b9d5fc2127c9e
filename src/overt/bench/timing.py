"""Alternating runs, so that other load on the machine affects every contender equally."""

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from overt.bench.gpu import device as gpu

RUNS = 7  # runs whose best shows a peak rate
_MIN_ROUNDS = 3  # unless one round uses up the time
_PAUSE = 0.01  # seconds, until the threads of the previous run stop spinning
_SHORT = 0.01  # seconds: shorter runs are repeated until they take this long


@dataclass(frozen=True)
class RunTimes:
    """Seconds of each run.

    >>> times = RunTimes((2.0, 1.0, 4.0, 3.0, 5.0))
    >>> times.median, times.quartiles
    (3.0, (2.0, 4.0))
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the runs."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile of the runs."""
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


def time_alternating(
    runs: dict[str, Callable[[], object]], count: int, seconds: float, kind: str = "cpu"
) -> dict[str, RunTimes]:
    """Time at most `count` runs of each, one of each in a round, every second round in reverse order.

    All get equally many runs. No round begins after `seconds` are used up, but there are at least three
    rounds, unless one uses up the time.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    timed = _timed if kind == "cpu" else gpu.timed
    for number in range(count):
        used = sum(map(sum, times.values()))
        if used >= seconds and (number >= _MIN_ROUNDS or used >= number * seconds):
            break
        for name in list(runs) if number % 2 == 0 else reversed(runs):
            times[name].append(timed(runs[name]))
    return {name: RunTimes(tuple(seconds)) for name, seconds in times.items()}


def peak_rate(amount: float, run: Callable[[], object], kind: str = "cpu") -> float:
    """A rate per second: the best of a few runs, after one that may compile or allocate."""
    timed = _elapsed if kind == "cpu" else gpu.timed
    run()
    return amount / min(timed(run) for _ in range(RUNS))


def _timed(run: Callable[[], object]) -> float:
    """Seconds of a run; for a short run the mean of several without a pause, so that sleeping threads wake up only once."""
    time.sleep(_PAUSE)
    once = _elapsed(run)
    times = int(_SHORT / max(once, _SHORT / 1000))
    return once if times < 2 else sum(_elapsed(run) for _ in range(times)) / times


def _elapsed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = run()
    elapsed = time.perf_counter() - start
    del result  # deallocation is not timed
    return elapsed


def use_threads(count: int) -> None:
    """Set the number of threads of torch and of every other loaded OpenMP runtime."""
    torch.set_num_threads(count)
    maps = Path("/proc/self/maps")
    files = {line.split()[-1] for line in maps.read_text().splitlines() if "gomp" in line} if maps.exists() else set()
    for file in files:
        ctypes.CDLL(file).omp_set_num_threads(count)
