"""The error that smoothers leave on signals with noise, each told nothing but the noisy values."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from overt.bench.smoothing.peers import OURS, smoother
from overt.bench.smoothing.signals import SIGNALS, sampled
from overt.smoothing.data.series import Floats

Tell = Callable[[int, int], None]  # pieces of work done, and of all

_TOGETHER = 10  # seeds in a piece of work


@dataclass(frozen=True)
class Case:
    """A signal with noise of standard deviation sd(f)/snr."""

    signal: str
    snr: int

    @property
    def name(self) -> str:
        """As the tables have it, such as "blocks 3"."""
        return f"{self.signal} {self.snr}"


CASES = [Case(signal, snr) for signal in SIGNALS for snr in (1, 3)]


@dataclass(frozen=True)
class Accuracy:
    """Every score of every smoother; what could not be done is said by name."""

    cases: list[Case]
    scores: dict[str, dict[Case, list[float]]]  # by smoother and case, one a seed
    unable: dict[str, str]

    def mean(self, name: str, case: Case) -> float:
        """The mean score of a smoother over the seeds."""
        return float(np.mean(self.scores[name][case]))

    def best_peer(self, case: Case) -> tuple[str, float] | None:
        """The peer of least mean score, and that."""
        means = [(name, self.mean(name, case)) for name in self.scores if name != OURS.name]
        return min(means, key=lambda item: item[1], default=None)


def noisy(truth: Floats, snr: float, seed: int) -> Floats:
    """The truth with white Gaussian noise of standard deviation sd(f)/snr, the same for everybody."""
    return truth + np.random.default_rng(seed).normal(0.0, truth.std() / snr, truth.size)


def score(curve: Floats, truth: Floats) -> float:
    """10⁴·Σ(f̂ − f)²/Σf²: the squared error in ten-thousandths of the signal's square.

    >>> score(np.array([1.0, 2.1]), np.array([1.0, 2.0]))  # doctest: +ELLIPSIS
    20.00...
    """
    return float(1e4 * np.sum((curve - truth) ** 2) / np.sum(truth**2))


def geometric_mean(numbers: Iterable[float]) -> float:
    """exp of the mean logarithm, in which halving one error weighs as much as halving another.

    >>> round(geometric_mean([1.0, 4.0]), 12)
    2.0
    """
    return math.exp(np.mean(np.log(list(numbers))))


def measure(cases: list[Case], names: list[str], seeds: int, processes: int, tell: Tell = lambda done, work: None) -> Accuracy:
    """Score each smoother on each case and seed, in so many processes; one that fails is left out with its reason."""
    work = [(name, case, some) for case in cases for name in names for some in _together(seeds)]
    scores: dict[str, dict[Case, list[float]]] = {name: {case: [] for case in cases} for name in names}
    unable: dict[str, str] = {}
    for done, (name, case, found) in enumerate(_done(work, processes), 1):
        if isinstance(found, str):
            unable[name] = found
        else:
            scores[name][case] += found
        tell(done, len(work))
    return Accuracy(cases, {name: scores[name] for name in names if name not in unable}, unable)


def _together(seeds: int) -> list[list[int]]:
    return [list(range(first, min(first + _TOGETHER, seeds))) for first in range(0, seeds, _TOGETHER)]


Work = tuple[str, Case, list[int]]
Done = tuple[str, Case, list[float] | str]


def _done(work: list[Work], processes: int) -> Iterator[Done]:
    if processes == 1:
        yield from map(_piece, work)
        return
    # Processes that are spawned, not forked: a fork takes over threads that only its parent can wake.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_one_thread) as pool:
        yield from pool.map(_piece, work)


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # the processes share the processors among themselves


def _piece(work: Work) -> Done:
    name, case, seeds = work
    truth, takes_part = sampled(case.signal), smoother(name)
    try:
        return name, case, [score(takes_part.smooth(noisy(truth, case.snr, seed)), truth) for seed in seeds]
    except Exception as error:  # whatever goes wrong in another library is told, and ends only its own part
        return name, case, f"failed on {case.name}: {type(error).__name__}: {error}"
