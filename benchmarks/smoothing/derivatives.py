"""The derivative of a smoothed series beside PyNumDiff's methods, each tuned with the truth: errors and coverage of the band.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.derivatives [--half development frozen] [--points 150] [--draws 2] [--out FILE]

Every peer has the best error of its grid of options for each series, which needs the true derivative; the smoother has no option. The
ratio is that of root mean square errors, over the best method of all series and over the best one of each series. The halves have other
signals and other seeds. Needs `pip install pynumdiff`.
"""

import argparse
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from benchmarks import results
from overt.smoothing import analyze

Draw = np.random.Generator
Signal = Callable[[np.ndarray, Draw], np.ndarray]
DEVELOPMENT: dict[str, Signal] = {
    "sine": lambda t, draw: np.sin(2 * np.pi * draw.uniform(1.5, 5) * t + draw.uniform(0, 6)),
    "two sines": lambda t, draw: np.sin(2 * np.pi * draw.uniform(1, 3) * t) + 0.4 * np.sin(2 * np.pi * draw.uniform(5, 9) * t),
    "damped": lambda t, draw: np.exp(-draw.uniform(1, 4) * t) * np.cos(2 * np.pi * draw.uniform(4, 8) * t),
    "chirp": lambda t, draw: np.sin(2 * np.pi * (1.5 * t + draw.uniform(3, 7) * t**2)),
    "logistic": lambda t, draw: 1 / (1 + np.exp(-draw.uniform(10, 35) * (t - draw.uniform(0.35, 0.65)))),
    "peaks": lambda t, draw: peaks(t, draw.uniform(0.05, 0.95, 4), draw.uniform(0.02, 0.06, 4)),
    "parabola": lambda t, draw: 4 * (t - draw.uniform(0.2, 0.8)) ** 2 + draw.uniform(-1, 1) * t,
    "line": lambda t, draw: draw.choice([-1.0, 1.0]) * t,
    "exponential": lambda t, draw: np.exp(draw.uniform(1, 3) * t),
    "resonance": lambda t, draw: 1 / (1 + ((t - draw.uniform(0.3, 0.7)) / draw.uniform(0.03, 0.1)) ** 2) + 0.3 * t,
    "triangle": lambda t, draw: np.abs((t * draw.uniform(2, 4) + draw.random()) % 2 - 1),
    "beats": lambda t, draw: (1 + 0.8 * np.sin(3 * np.pi * t)) * np.sin(2 * np.pi * draw.uniform(6, 11) * t),
}
FROZEN: dict[str, Signal] = {
    "cosines": lambda t, draw: np.cos(2 * np.pi * draw.uniform(1, 6) * t) + 0.3 * np.cos(2 * np.pi * draw.uniform(2, 4) * t**2),
    "wave that starts": lambda t, draw: np.sin(2 * np.pi * draw.uniform(6, 10) * t) / (1 + np.exp(-40 * (t - 0.55))) + 0.5 * t,
    "slowing wave": lambda t, draw: np.sin(2 * np.pi * draw.uniform(4, 8) * np.sqrt(t + 0.05)),
    "sum of steps": lambda t, draw: sum(np.tanh(draw.uniform(15, 50) * (t - middle)) for middle in (0.25, 0.5, 0.8)),
    "dispersion": lambda t, draw: (t - 0.5) / (draw.uniform(0.003, 0.02) + (t - 0.5) ** 2),
    "inverse": lambda t, draw: 1 / (draw.uniform(0.05, 0.3) + t),
    "two resonances": lambda t, draw: sum(1 / (1 + ((t - middle) / draw.uniform(0.02, 0.06)) ** 2) for middle in (0.3, 0.7)),
    "logarithm": lambda t, draw: np.log(draw.uniform(0.01, 0.1) + t),
}  # fmt: skip
HALVES = {"development": (DEVELOPMENT, 70_000), "frozen": (FROZEN, 80_000)}
NOISES = (
    "white, ratio 3",
    "white, ratio 10",
    "white, ratio 30",
    "t with 3 degrees of freedom, ratio 10",
    "3% outliers, ratio 10",
)
GRIDS: dict[str, dict[str, list[Any]]] = {
    "kerneldiff": {
        "kernel": ["gaussian", "friedrichs", "uniform"],
        "window_size": [5, 9, 15, 23, 31, 41, 51, 71],
        "num_iterations": [1, 3],
    },
    "butterdiff": {"filter_order": [1, 2, 3, 5], "cutoff_freq": [*np.geomspace(0.005, 0.5, 16)], "num_iterations": [1]},
    "savgoldiff": {"degree": [2, 3, 5, 7], "window_size": [11, 21, 31, 51, 71, 91, 131], "smoothing_win": [3, 11, 31]},
    "splinediff": {"degree": [3, 4, 5], "s": [0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3]},
    "spectraldiff": {
        "extension": [None, "even", "detrend", "odd"],
        "pad_to_flat": [True, False],
        "cutoff_freq": [*np.geomspace(0.004, 0.5, 18)],
    },
    "waveletdiff": {"wavelet": ["db8", "sym8"], "mode": ["reflect", "antireflect"], "threshold": [0.7, 1, 1.5, 2, 3]},
    "rtsdiff": {"forwardbackward": [False], "order": [1, 2, 3], "log_qr_ratio": [float(power) for power in range(-9, 4)]},
}


def peaks(t: np.ndarray, middles: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """A sum of normal densities of height 1 (n,)."""
    return np.exp(-0.5 * ((t[:, None] - middles) / widths) ** 2).sum(axis=1)


class Case(NamedTuple):
    """One series."""

    half: str
    signal: str
    noise: str
    points: int
    draw: int

    def series(self) -> tuple[np.ndarray, np.ndarray]:
        """Noisy values (n,) of a signal of variance 1, and its derivative for each step (n,)."""
        signals, seed = HALVES[self.half]
        seeds = [seed + self.draw, self.points, *self.signal.encode(), *self.noise.encode()]
        t, near = (np.arange(self.points) + 0.5) / self.points, 1e-5
        before, truth, after = (signals[self.signal](t + shift, np.random.default_rng(seeds)) for shift in (-near, 0.0, near))
        noise = unit_noise(self.noise, self.points, np.random.default_rng([*seeds, 1])) / float(self.noise.split()[-1])
        return truth / truth.std() + noise, (after - before) / (2 * near * self.points * truth.std())


def unit_noise(kind: str, points: int, draw: Draw) -> np.ndarray:
    """Noise of variance 1, but for its outliers (n,)."""
    if kind.startswith("t "):
        return draw.standard_t(3, points) / 3**0.5
    noise = draw.standard_normal(points)
    if "outliers" in kind:
        bad = draw.random(points) < 0.03
        noise[bad] += draw.choice([-1, 1], bad.sum()) * draw.uniform(8, 30, bad.sum())
    return noise


def tuned(method: Callable[..., Any], grid: dict[str, list[Any]], x: np.ndarray, slope: np.ndarray) -> float:
    """The least root mean square error over a grid of options; infinite where the method fails with all."""
    best = np.inf
    for chosen in itertools.product(*grid.values()):
        options = dict(zip(grid, chosen, strict=True))
        if options.get("window_size", 0) <= x.size // 2:
            try:
                error = float(np.sqrt(np.mean((method(x, 1.0, **options)[1] - slope) ** 2)))
            except Exception:
                continue
            best = min(best, error) if np.isfinite(error) else best
    return best


def measured(case: Case) -> dict[str, Any]:
    """The errors of all methods on one series, and how much of the truth the band holds."""
    warnings.simplefilter("ignore")
    x, slope = case.series()
    derivative, methods = analyze(x).derivative(), import_module("pynumdiff")
    inside = None
    if derivative.lower is not None and derivative.upper is not None:
        inside = float(np.mean((derivative.lower <= slope) & (slope <= derivative.upper)))
    errors = {name: tuned(getattr(methods, name), grid, x, slope) for name, grid in GRIDS.items()}
    return case._asdict() | {
        "error": float(np.sqrt(np.mean((derivative.values - slope) ** 2))),
        "inside": inside,
        "peers": errors,
    }


def summarized(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of ratios, and the mean share of the truth in the bands that are there."""
    errors = np.log([row["error"] for row in rows])
    peers = {name: np.log([row["peers"][name] for row in rows]) for name in GRIDS}
    best = min(peers, key=lambda name: float(peers[name].mean()))
    of_each = np.minimum.reduce([*peers.values()])
    inside = [row["inside"] for row in rows if row["inside"] is not None]
    return {
        "series": len(rows),
        "over the best of each series": round(float(np.exp((errors - of_each).mean())), 3),
        "over the best method": round(float(np.exp((errors - peers[best]).mean())), 3),
        "best method": best,
        "inside the band": round(float(np.mean(inside)), 3) if inside else None,
        "withheld": len(rows) - len(inside),
    }


def parts(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """All rows, and those of each noise and of each signal."""
    yield "all", rows
    for column in ("noise", "signal"):
        for name in dict.fromkeys(row[column] for row in rows):
            yield name, [row for row in rows if row[column] == name]


def main() -> None:
    """Measure, print and write; the largest losses come first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", nargs="+", choices=HALVES, default=list(HALVES))
    options.add_argument("--points", type=int, nargs="+", default=[150])
    options.add_argument("--draws", type=int, default=2)
    options.add_argument("--processes", type=int, default=2)
    results.takes_out(options)
    requested = options.parse_args()
    tables = {}
    with ProcessPoolExecutor(requested.processes) as pool:
        for half in requested.half:
            chosen = itertools.product([half], HALVES[half][0], NOISES, requested.points, range(requested.draws))
            rows = list(pool.map(measured, itertools.starmap(Case, chosen)))
            table = {name: summarized(part) for name, part in parts(rows)}
            order = sorted(table, key=lambda name: (name != "all", -table[name]["over the best method"]))
            tables[half] = {name: table[name] for name in order}
            for name in order:
                print(f"{half:12} {name:40} {json.dumps(table[name])}", flush=True)
    results.write(requested.out, points=requested.points, draws=requested.draws, halves=tables)


if __name__ == "__main__":
    main()
