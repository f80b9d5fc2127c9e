"""Changes of level and slope: F1 at ± 2 points, false alarms, and how well probabilities are calibrated.

    pip install ruptures skchange numba
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.changes [--half development | frozen] [--signals 150] [--out FILE]

Signals of 200 to 2,000 points with 0 to 8 changes of level, slope or both, under white, AR(1), heavy-tailed (t with 3 or 5 degrees) and
heavy-tailed AR(1) noise; the frozen half has other seeds, which no choice was made on. Smooth curves, sines, bumps, logistic steps and
exponentials under white noise, have no change. Detectors of ruptures and skchange, where they are installed, get the values in
units of their differences' median, and the penalty, in log n, that is best for them on the development half.
"""

import argparse
import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from benchmarks.results import takes_out, write
from overt.smoothing.operators.changes import LocatedChange, locate

SEEDS = {"development": (10_000, 30_000), "frozen": (20_000, 40_000)}
CURVES, SMOOTH = ("sine", "bump", "logistic", "exponential"), 24
TOLERANCE = 2
PENALTIES, SHORTEST = tuple(2.0**power for power in range(1, 11)), 5
Detector = Callable[[np.ndarray, float], Sequence[int]]


def noise_of(random: np.random.Generator, count: int) -> tuple[np.ndarray, float]:
    """Noise of standard deviation about 1, and its correlation."""
    kind = random.choice(["white", "white", "ar", "heavy", "heavy ar"])
    correlation = random.uniform(0.3, 0.9) if kind.endswith("ar") else 0.0
    heavy = kind.startswith("heavy")
    noise = random.standard_t(random.choice([3, 5]), size=count + 300) / 1.35 if heavy else random.normal(size=count + 300)
    for index in range(1, noise.size):
        noise[index] += correlation * noise[index - 1]
    return noise[300:] * np.sqrt(1 - correlation**2), correlation


def signal(seed: int, amount: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values (n,) and the first points after their changes."""
    random = np.random.default_rng(seed)
    count = int(np.exp(random.uniform(np.log(200), np.log(2000))))
    gap, amount = max(15, count // 25), int(random.integers(0, 9)) if amount is None else amount
    changes = np.sort(random.choice(np.arange(gap, count - gap), amount, replace=False))
    while amount > 1 and np.diff(changes).min() < gap:
        changes = np.sort(random.choice(np.arange(gap, count - gap), amount, replace=False))
    mode = random.choice(["level", "slope", "both"])
    noise, correlation = noise_of(random, count)
    larger = ((1 + correlation) / (1 - correlation)) ** 0.35
    bounds = np.concatenate([[0], changes, [count]])
    lengths, curve, level, slope = (
        np.diff(bounds),
        np.zeros(count),
        0.0,
        0.0 if mode == "level" else random.normal() * 3 / count,
    )
    for index, (start, stop) in enumerate(itertools.pairwise(bounds)):
        if index and (mode == "level" or (mode == "both" and random.random() < 0.5)):
            level += random.choice([-1, 1]) * random.uniform(1.5, 5) * larger
        elif index:
            slope += random.choice([-1, 1]) * random.uniform(4, 14) * larger / lengths[index - 1 : index + 1].min()
        curve[start:stop] = level + slope * np.arange(stop - start)
        level += slope * (stop - start)
    return curve + noise, changes


def hits(positions: Sequence[int], changes: np.ndarray) -> int:
    """How many changes have a reported one within the tolerance, one each."""
    left = [*changes]
    for position in positions:
        near = [point for point in left if abs(point - position) <= TOLERANCE]
        if near:
            left.remove(min(near, key=lambda point: abs(point - position)))
    return len(changes) - len(left)


def located_in(values: np.ndarray) -> list[LocatedChange]:
    """The changes of values (n,) at equal steps."""
    return locate(np.arange(float(values.size)), values, np.ones(values.size))


def detectors() -> dict[str, Detector]:
    """Those that are installed: values (n,) and a penalty to the first points after changes."""
    peers: dict[str, Detector] = {}
    if find_spec("ruptures"):
        ruptures = import_module("ruptures")
        kernel = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
        hinges = ruptures.BottomUp(model="clinear", min_size=SHORTEST, jump=1)
        peers["ruptures, KernelCPD of means"] = lambda x, penalty: kernel.fit(x).predict(pen=penalty)[:-1]
        peers["ruptures, BottomUp of lines that meet"] = lambda x, penalty: hinges.fit(x).predict(pen=penalty)[:-1]
    if find_spec("skchange"):
        searches, scores = import_module("skchange.detectors"), import_module("skchange.interval_scorers")

        def changes_by(search: type, score: type, x: np.ndarray, penalty: float) -> Sequence[int]:
            return search(score(), penalty=penalty).fit_predict(x[:, None])

        for name, search, score in (
            ("PELT of means", searches.PELT, scores.L2Cost),
            ("PELT of lines", searches.PELT, scores.LinearTrendCost),
            ("seeded segmentation of lines that meet", searches.SeededBinarySegmentation, scores.ContinuousLinearTrendScore),
        ):
            peers[f"skchange, {name}"] = partial(changes_by, search, score)
    return peers


def compared(detector: Detector, factor: float, half: str, signals: int) -> dict[str, object]:
    """The same numbers of another detector with this penalty, in log n."""
    warnings.simplefilter("ignore")

    def positions(values: np.ndarray) -> list[int]:
        unit = float(np.median(np.abs(np.diff(values)))) / (0.6744897501960817 * np.sqrt(2))
        return [int(position) for position in detector(values / unit, factor * np.log(values.size))]

    counts, (changing, still) = np.zeros(3), SEEDS[half]
    for seed in range(changing, changing + signals):
        values, changes = signal(seed)
        located = positions(values)
        counts += hits(located, changes), len(located), len(changes)
    alarms = sum(bool(positions(signal(seed, 0)[0])) for seed in range(still, still + signals)) if half == "frozen" else None
    return {
        "penalty": factor,
        "F1": float(2 * counts[0] / (counts[1] + counts[2])),
        "series without changes that have one": alarms,
    }


def smooth_curve(kind: str, half: str, seed: int) -> np.ndarray:
    """A smooth curve under noise of deviation 1 (n,)."""
    random = np.random.default_rng([CURVES.index(kind), SEEDS[half][0], seed])
    t = np.linspace(0.0, 1.0, int(np.exp(random.uniform(np.log(150), np.log(800)))))
    center, width, size = random.uniform(0.3, 0.7), random.uniform(0.04, 0.2), 10 ** random.uniform(0.3, 1.2)
    curve = {
        "sine": np.sin(2 * np.pi * (random.uniform(0.6, 4) * t + center)),
        "bump": np.exp(-0.5 * ((t - center) / width) ** 2),
        "logistic": 1 / (1 + np.exp(-(t - center) / width)),
        "exponential": np.exp(-t * random.uniform(2, 8)),
    }[kind]
    return size * curve + random.normal(size=t.size)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=SEEDS, default="development")
    options.add_argument("--signals", type=int, default=150)
    takes_out(options)
    chosen = options.parse_args()
    changing, still = SEEDS[chosen.half]
    counts, scores = np.zeros(3), []
    for seed in range(changing, changing + chosen.signals):
        values, changes = signal(seed)
        located = located_in(values)
        counts += hits([one.position for one in located], changes), len(located), len(changes)
        scores += [(one.probability - np.any((one.lower <= changes) & (changes <= one.upper))) ** 2 for one in located]
    alarms = sum(bool(located_in(signal(seed, 0)[0])) for seed in range(still, still + chosen.signals))
    score = {
        "F1": float(2 * counts[0] / (counts[1] + counts[2])),
        "hits, reported, true": counts.astype(int).tolist(),
        "Brier score of intervals": float(np.mean(scores)),
        "series without changes that have one": [alarms, chosen.signals],
    }
    curves = {
        kind: [
            sum(bool(located_in(smooth_curve(kind, chosen.half, seed))) for seed in range(SMOOTH)),
            SMOOTH,
        ]
        for kind in CURVES
    }
    print(f"{chosen.half}: {score}\nsmooth curves with a change: {curves}")
    peers = {}
    for name, detector in detectors().items():
        trials = [compared(detector, factor, "development", chosen.signals) for factor in PENALTIES]
        best = max(trials, key=lambda trial: trial["F1"])
        peers[name] = compared(detector, best["penalty"], chosen.half, chosen.signals)
        print(name, peers[name], flush=True)
    write(chosen.out, half=chosen.half, **score, smooth=curves, peers=peers)


if __name__ == "__main__":
    main()
