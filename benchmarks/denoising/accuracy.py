"""The errors of smoothers on noisy signals; each gets only the noisy values."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from benchmarks.denoising.peers import OURS, smoother
from benchmarks.denoising.signals import SIGNALS, sampled
from overt.smoothing.data.series import Floats

Notify = Callable[[int, int], None]  # batches done, and in all

_BATCH = 10  # seeds


@dataclass(frozen=True)
class Case:
    """A signal with noise of standard deviation sd(f)/snr."""

    signal: str
    snr: int

    @property
    def name(self) -> str:
        """The name in tables, such as "blocks 3"."""
        return f"{self.signal} {self.snr}"


CASES = [Case(signal, snr) for signal in SIGNALS for snr in (1, 3)]


@dataclass(frozen=True)
class Accuracy:
    """Every score of every smoother, and the reasons of those that failed."""

    cases: list[Case]
    scores: dict[str, dict[Case, list[float]]]  # by smoother and case, one for each seed
    unable: dict[str, str]

    def mean(self, name: str, case: Case) -> float:
        """The mean score of a smoother over the seeds."""
        return float(np.mean(self.scores[name][case]))

    def best_peer(self, case: Case) -> tuple[str, float] | None:
        """The peer with the smallest mean score, and that score."""
        means = [(name, self.mean(name, case)) for name in self.scores if name != OURS.name]
        return min(means, key=lambda item: item[1], default=None)


def noisy(truth: Floats, snr: float, seed: int) -> Floats:
    """The truth with white Gaussian noise of standard deviation sd(f)/snr, the same for every smoother."""
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


def measure(
    cases: list[Case], names: list[str], seeds: int, processes: int, notify: Notify = lambda done, work: None
) -> Accuracy:
    """Score each smoother on each case and seed, in `processes` processes; one that fails is omitted, with the reason."""
    batches = [list(range(first, min(first + _BATCH, seeds))) for first in range(0, seeds, _BATCH)]
    work = [(name, case, batch) for case in cases for name in names for batch in batches]
    scores: dict[str, dict[Case, list[float]]] = {name: {case: [] for case in cases} for name in names}
    unable: dict[str, str] = {}
    for done, (name, case, result) in enumerate(_run(work, processes), 1):
        if isinstance(result, str):
            unable[name] = result
        else:
            scores[name][case] += result
        notify(done, len(work))
    return Accuracy(cases, {name: scores[name] for name in names if name not in unable}, unable)


Work = tuple[str, Case, list[int]]
Done = tuple[str, Case, list[float] | str]


def _run(work: list[Work], processes: int) -> Iterator[Done]:
    if processes == 1:
        yield from map(_score_batch, work)
        return
    # Spawned, not forked: a fork would wait for threads that exist only in its parent.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_one_thread) as pool:
        yield from pool.map(_score_batch, work)


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # one thread for each process


def _score_batch(work: Work) -> Done:
    name, case, seeds = work
    truth, curve = sampled(case.signal), smoother(name).smooth
    try:
        return name, case, [score(curve(noisy(truth, case.snr, seed)), truth) for seed in seeds]
    except Exception as error:  # any error of another library is reported, and the others go on
        return name, case, f"failed on {case.name}: {type(error).__name__}: {error}"
