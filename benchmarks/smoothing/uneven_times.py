"""The default smoother at uneven times, beside the best of its peers for each single series.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.uneven_times [--out docs/results/uneven-times.json]

Five kinds of times, 1,024 of each, in mean steps; white noise; signals by time, half of which repeat, in two halves. The settings were
chosen on the development half; the test half was written before it was measured. A ratio is our error over that of the best peer that
takes times, picked afterwards: SciPy's smoothing spline by cross-validation, and a Matérn-3/2 process by likelihood (celerite2).
"""

import argparse
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.denoising.peers import gaussian_process, spline
from benchmarks.smoothing.noise_kinds import summary
from benchmarks.smoothing.signals.kinds import HALVES as AT_LENGTH
from benchmarks.smoothing.signals.kinds import POINTS, RATIOS, Draw


def grid_with_gaps(draw: Draw) -> np.ndarray:
    """A third of the times of a grid."""
    return np.sort(draw.choice(np.arange(3 * POINTS), POINTS, replace=False)) / 3


def nights(draw: Draw) -> np.ndarray:
    """Ten times in the first third of every ten steps."""
    return np.sort(np.arange(POINTS) // 10 * 10 + draw.uniform(0, 3.5, POINTS))


TIMES: dict[str, Callable[[Draw], np.ndarray]] = {
    "random": lambda draw: np.sort(draw.uniform(0, POINTS, POINTS)),
    "jittered": lambda draw: np.arange(POINTS) + draw.uniform(-0.4, 0.4, POINTS),
    "in bursts": lambda draw: np.cumsum(draw.gamma(0.5, 2, POINTS)),
    "a third of a grid": grid_with_gaps,
    "at night": nights,
}


def tone(t, draw):
    """A sine of 3 to 12 steps on a line."""
    return np.sin(2 * np.pi * (t / draw.uniform(3, 12) + draw.uniform())) + draw.normal() * t / POINTS


def pulsation(t, draw):
    """A quick rise and a slow fall, as of a Cepheid."""
    phase = (t / draw.uniform(4, 20) + draw.uniform()) % 1
    return np.where(phase < 0.3, phase / 0.3, (1 - phase) / 0.7)


def pulses(t, draw):
    """A narrow pulse in each 12 to 35 steps, and a smaller one beside it. Written when dips of the test half had been lost."""
    phase = (t / draw.uniform(12, 35) + draw.uniform()) % 1
    width = draw.uniform(0.02, 0.06)
    return np.exp(-0.5 * ((phase - 0.4) / width) ** 2) + 0.3 * np.exp(-0.5 * ((phase - 0.6) / width) ** 2)


def week(t, draw):
    """A level for each step of seven, on a slow wave."""
    return draw.normal(size=7)[np.floor(t % 7).astype(int)] + np.cos(3 * t / POINTS + draw.uniform(0, 6))


def eclipses(t, draw):
    """Two dips in each 15 to 40 steps."""
    phase = (t / draw.uniform(15, 40) + draw.uniform()) % 1
    return -np.exp(-0.5 * ((phase - 0.3) / 0.04) ** 2) - 0.4 * np.exp(-0.5 * ((phase - 0.8) / 0.04) ** 2)


def tides(t, draw):
    """Two near tones that beat, and one of twice their period."""
    near = np.sin(2 * np.pi * t / 6.21 + draw.uniform(0, 6)) + 0.46 * np.sin(2 * np.pi * t / 6 + draw.uniform(0, 6))
    return near + 0.5 * np.sin(2 * np.pi * t / 12.7 + draw.uniform(0, 6))


def dying(t, draw):
    """A tone of 4 to 9 steps that dies away."""
    return np.exp(-draw.uniform(1, 3) * t / POINTS) * np.sin(2 * np.pi * t / draw.uniform(4, 9))


SIGNALS: dict[str, list[Callable[[np.ndarray, Draw], Any]]] = {
    "development": [tone, pulsation, pulses, *AT_LENGTH["development"][:6]],
    "test": [week, eclipses, tides, dying, *AT_LENGTH["test"][:4]],
}
REPEATING = (tone, pulsation, pulses, week, eclipses, tides, dying)


def series(half: str, kind: str, index: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, the truth and the noisy series (n,)."""
    signal = SIGNALS[half][index]
    draw = np.random.default_rng([seed, *signal.__name__.encode(), *kind.encode()])
    times = TIMES[kind](draw)
    truth = signal(times if signal in REPEATING else (times - times[0]) / (times[-1] - times[0]), draw)
    truth = truth / truth.std()
    return times, truth, truth + draw.standard_normal(POINTS) / RATIOS[seed]


PEERS = {"spline": spline, "Matérn": gaussian_process}


def error_of(name: str, times: np.ndarray, truth: np.ndarray, x: np.ndarray) -> float | None:
    """The error of a peer; None where it fails, as the spline does where two times are very near."""
    try:
        return float(np.mean((PEERS[name](x, times) - truth) ** 2))
    except (ValueError, ArithmeticError):
        return None


def cell(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """Errors of all on one series, the risk that we state, and the share of the truth inside the band."""
    from overt.smoothing import analyze

    warnings.simplefilter("ignore")
    times, truth, x = series(*job)
    result = analyze(x, times=times)
    inside = None if result.lower is None else float(np.mean((result.lower <= truth) & (truth <= result.upper)))
    peers = {name: error for name in PEERS if (error := error_of(name, times, truth, x)) is not None}
    error, seasonal = (float(np.mean((each.values - truth) ** 2)) for each in (result, analyze(x, times=times, period="auto")))
    return {
        "kind": job[1],
        "signal": SIGNALS[job[0]][job[2]].__name__,
        "error": error,
        "risk": result.risk,
        "inside": inside,
        "peers": peers,
        "seasonal": seasonal / error,
    }


def main() -> None:
    """Run both halves."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=SIGNALS, help="only this half")
    options.add_argument("--processes", type=int, default=2)
    results.takes_out(options)
    requested, halves = options.parse_args(), {}
    for half in [requested.half] if requested.half else SIGNALS:
        jobs = [
            (half, kind, index, seed) for kind in TIMES for index in range(len(SIGNALS[half])) for seed in range(len(RATIOS))
        ]
        with ProcessPoolExecutor(requested.processes) as pool:
            rows = list(pool.map(cell, jobs, chunksize=4))
        halves[half] = {kind: of_kind(half, kind, rows) for kind in TIMES}
    results.write(requested.out, points=POINTS, peers=list(PEERS), halves=halves)


def of_kind(half: str, kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print one kind of times, and return what it comes to: with `period="auto"`, too, on the signals that repeat."""
    rows = [each for each in rows if each["kind"] == kind]
    repeating = [each["seasonal"] for each in rows if each["signal"] in {signal.__name__ for signal in REPEATING}]
    result = summary(rows) | {'error with period="auto"': round(float(np.exp(np.mean(np.log(repeating)))), 3)}
    print(f"{half:12} {kind:18} {result}", flush=True)
    return result


if __name__ == "__main__":
    main()
