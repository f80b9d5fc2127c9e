"""Where the default smoother falls off a cliff: one property of a series changes in small steps, and neighbouring steps are compared.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.cliffs [--dial NAME …] [--draws 2] [--log FILE] [--out docs/results/cliffs.json]

A dial is one property of the series: the range of its values, the share of outliers, the level of counts, …. For each setting, over the
development signals (`smoothing/kinds.py`, `smoothing/development.py`), the table has the error over that of the best peer, the stated risk
over the true error, and the share of series whose band is withheld. A jump is a factor above 1.5 from one setting to the next in either
ratio; it is silent if most bands after it are there. `--log` stores every series, so that a run that was stopped goes on.
"""

import argparse
import itertools
import json
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import results
from benchmarks.smoothing.peers import ALL_PEERS, usable
from benchmarks.smoothing.signals import development, kinds
from overt.smoothing import analyze

POINTS, RATIO, JUMP = 400, 3.0, 1.5
SIGNALS = {each.__name__: each for each in (*kinds.HALVES["development"], *development.SIGNALS)}
Draw = np.random.Generator
Made = tuple[np.ndarray, np.ndarray]  # the truth and the series (n,), NaN where a value is missing


class Case(NamedTuple):
    """One series: a setting of a dial, a signal and a seed."""

    dial: str
    setting: float
    signal: str
    seed: int

    def series(self) -> Made:
        """The truth and the noisy series; noise and places are the same for all settings of a dial."""
        draw = np.random.default_rng([self.seed, *self.signal.encode(), *self.dial.encode()])
        return DIALS[self.dial].make(self.setting, SIGNALS[self.signal], draw)


class Dial(NamedTuple):
    """A property of a series, its settings in small steps, and the series at one of them."""

    settings: tuple[float, ...]
    make: Callable[[float, kinds.Signal, Draw], Made]


def shape(signal: kinds.Signal, draw: Draw, points: int = POINTS) -> np.ndarray:
    """The signal (n,) with mean 0 and variance 1."""
    truth = np.asarray(signal((np.arange(points) + 0.5) / points, draw), dtype=float)
    return (truth - truth.mean()) / max(truth.std(), 1e-12)


def white(signal: kinds.Signal, draw: Draw, points: int = POINTS, ratio: float = RATIO) -> Made:
    """The signal under white noise of this ratio of signal to noise."""
    truth = shape(signal, draw, points)
    return truth, truth + draw.standard_normal(points) / ratio


def value_range(largest: float, signal: kinds.Signal, draw: Draw) -> Made:
    """Positive values whose largest is so many times the smallest, with noise of a tenth of each value."""
    truth = shape(signal, draw)
    truth = largest ** ((truth - truth.min()) / np.ptp(truth))
    return truth, truth * np.exp(0.1 * draw.standard_normal(POINTS))


def with_outliers(share: float, signal: kinds.Signal, draw: Draw, length: int = 1, noise: str = "white") -> Made:
    """A share of the points, in runs of equal length, 10 standard deviations of the noise away."""
    truth = shape(signal, draw)
    x = truth + kinds.NOISES[noise](truth, draw) / RATIO
    starts = draw.permutation(POINTS - length)[: round(share * POINTS / length)]
    for start, sign in zip(starts, draw.choice([-1, 1], starts.size), strict=True):
        x[start : start + length] += sign * 10 / RATIO
    return truth, x


def one_bad_value(size: float, signal: kinds.Signal, draw: Draw) -> Made:
    """One value that is this large."""
    truth, x = white(signal, draw)
    x[draw.integers(POINTS)] = size
    return truth, x


def counts(level: float, signal: kinds.Signal, draw: Draw) -> Made:
    """Poisson counts of this mean."""
    truth = shape(signal, draw)
    truth = level * (0.1 + 1.8 * (truth - truth.min()) / np.ptp(truth))
    return truth, draw.poisson(truth).astype(float)


def correlated(rho: float, signal: kinds.Signal, draw: Draw) -> Made:
    """An autoregression of order one."""
    truth = shape(signal, draw)
    return truth, truth + kinds.autoregression(truth, draw, rho) / RATIO


def rounded(distinct: float, signal: kinds.Signal, draw: Draw) -> Made:
    """Values rounded to so many distinct ones."""
    truth, x = white(signal, draw)
    step = np.ptp(x) / (distinct - 1)
    return truth, x.min() + step * np.round((x - x.min()) / step)


def with_zeros(share: float, signal: kinds.Signal, draw: Draw) -> Made:
    """Zeros at a share of the points, amounts at the others; the truth is the mean of both."""
    mean = 1 + 0.8 * kinds.scaled(shape(signal, draw)) / 3
    return mean * (1 - share), np.where(draw.random(POINTS) < share, 0.0, mean * draw.gamma(4, 0.25, POINTS))


def missing(share: float, signal: kinds.Signal, draw: Draw) -> Made:
    """A share of the values missing, one by one."""
    truth, x = white(signal, draw)
    x[draw.permutation(POINTS)[: round(share * POINTS)]] = np.nan
    return truth, x


def gap(length: float, signal: kinds.Signal, draw: Draw) -> Made:
    """One gap of so many points."""
    truth, x = white(signal, draw)
    start = draw.integers(20, POINTS - 20 - int(length))
    x[start : start + int(length)] = np.nan
    return truth, x


def cycles(count: float, signal: kinds.Signal, draw: Draw) -> Made:
    """A pattern of 24 values, so many times, on the signal."""
    points = 24 * int(count)
    truth = 0.5 * shape(signal, draw, points) + np.tile(np.cumsum(draw.standard_normal(24)) / 3, int(count))
    return truth, truth + draw.standard_normal(points) / RATIO


DIALS: dict[str, Dial] = {
    "ratio of signal to noise": Dial(
        (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 30, 100), lambda ratio, *made: white(*made, ratio=ratio)
    ),
    "range of the values": Dial((1.5, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 1e5, 1e6), value_range),
    "share of outliers": Dial((0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.3), with_outliers),
    "run of outliers": Dial(tuple(range(1, 13)), lambda length, *made: with_outliers(0.03, *made, int(length))),
    "size of one bad value": Dial(tuple(10.0**power for power in (0, 0.5, 1, 2, 3, 5, 8, 10, 15, 20, 30)), one_bad_value),
    "level of counts": Dial((0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 100, 1e3, 1e4, 1e5), counts),
    "correlation": Dial((-0.9, -0.6, -0.3, 0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), correlated),
    "distinct values": Dial((2, 3, 4, 6, 8, 12, 20, 40, 80, 200, 1000), rounded),
    "share of zeros": Dial((0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), with_zeros),
    "share missing": Dial((0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), missing),
    "length of a gap": Dial((1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200), gap),
    "cycles": Dial((2, 3, 4, 5, 6, 8, 12, 16, 24, 40, 80), cycles),
    "length": Dial(
        (2, 3, 4, 5, 8, 12, 20, 32, 50, 64, 100, 128, 200, 256, 400, 600, 1000, 3000, 10_000, 100_000),
        lambda points, signal, draw: white(signal, draw, int(points)),
    ),
    "share of outliers under AR 0.5": Dial(
        (0, 0.01, 0.02, 0.05, 0.1, 0.2), lambda share, *made: with_outliers(share, *made, noise="autoregression, 0.5")
    ),
    "share of outliers under bursts": Dial(
        (0, 0.01, 0.02, 0.05, 0.1, 0.2), lambda share, *made: with_outliers(share, *made, noise="bursts")
    ),
}
PEERS = ("spline", "SavGol", "Whittaker", "LOWESS", "Matérn", "TV", "Hampel, spline", "Hampel, SavGol")
# These take 9 to 13 s for 10,000 points: they are left out of series longer than LONGEST.
SLOW, LONGEST = ("spline", "LOWESS", "Hampel, spline"), 3000


def measured(job: tuple[Case, list[str]]) -> dict[str, Any]:
    """The error, the stated risk and whether there is a band, of this library; the least error of the peers."""
    warnings.simplefilter("ignore")
    (case, names), (truth, x) = job, job[0].series()
    floor = 1e-9 * float(np.var(truth))
    result = analyze(x)
    row = {
        "error": max(floor, float(np.mean((result.values - truth) ** 2))),
        "risk": result.risk,
        "band": result.lower is not None,
        "inside": None if result.lower is None else float(np.mean((result.lower <= truth) & (truth <= result.upper))),
    }
    peers: dict[str, float] = {}
    for name in names:
        if (x.size <= LONGEST or name not in SLOW) and (not np.isnan(x).any() or ALL_PEERS[name].fills):
            try:
                peers[name] = max(floor, float(np.mean((ALL_PEERS[name].smooth(x) - truth) ** 2)))
            except Exception:
                continue
    return case._asdict() | row | {"peer": min(peers.values(), default=None)}


def summarized(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of one setting: geometric means and the largest ratio."""
    ratios = np.array([row["error"] / row["peer"] for row in rows if row["peer"] and np.isfinite(row["peer"])])
    inside = [row["inside"] for row in rows if row["inside"] is not None]
    stated = np.array([row["risk"] / row["error"] for row in rows if row["risk"] is not None and row["risk"] > 0])
    return {
        "error over the best peer": round(float(np.exp(np.log(ratios).mean())), 3) if ratios.size else None,
        "worst": round(float(ratios.max()), 2) if ratios.size else None,
        "stated over true": round(float(np.median(stated)), 3) if stated.size else None,
        "inside the band": round(float(np.mean(inside)), 3) if inside else None,
        "withheld": round(1 - float(np.mean([row["band"] for row in rows])), 2),
    }


def jumps(table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The neighbouring settings between which a ratio changes by more than JUMP."""
    jumped, settings = [], list(table)
    for before, after in itertools.pairwise(settings):
        for column in ("error over the best peer", "stated over true"):
            first, second = table[before][column], table[after][column]
            if first and second and max(first / second, second / first) > JUMP:
                worse = after if (second > first) == (column != "stated over true") else before
                jumped.append(
                    {
                        "from": before,
                        "to": after,
                        "of": column,
                        "factor": round(second / first, 2),
                        "silent": table[worse]["withheld"] < 0.5,
                    }
                )
    return jumped


def main() -> None:
    """Turn the dials."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dial", nargs="+", choices=DIALS, default=list(DIALS), help="only these")
    options.add_argument("--draws", type=int, default=2, help="series of each signal and setting")
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--log", type=Path, help="store every series here, and read those that are there")
    results.takes_out(options)
    requested = options.parse_args()
    available = usable()
    names = [name for name in PEERS if name in available]
    lines = (
        [json.loads(line) for line in requested.log.read_text().splitlines()]
        if requested.log and requested.log.exists()
        else []
    )
    done = {tuple(line[field] for field in Case._fields): line for line in lines}
    dials: dict[str, Any] = {}
    with ProcessPoolExecutor(requested.processes) as pool:
        for dial in requested.dial:
            cases = [
                Case(dial, setting, signal, seed)
                for setting in DIALS[dial].settings
                for signal in SIGNALS
                for seed in range(requested.draws)
            ]
            for row in pool.map(measured, [(case, names) for case in cases if case not in done], chunksize=4):
                done[tuple(row[field] for field in Case._fields)] = row
                if requested.log:
                    with requested.log.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            table = {
                f"{setting:g}": summarized([done[case] for case in cases if case.setting == setting])
                for setting in DIALS[dial].settings
            }
            dials[dial] = {"settings": table, "jumps": jumps(table)}
            print(f"\n{dial}")
            for setting, row in table.items():
                print(f"  {setting:>8} {row}", flush=True)
            for jump in dials[dial]["jumps"]:
                print(f"  jump {jump}", flush=True)
    results.write(requested.out, points=POINTS, signals=list(SIGNALS), draws=requested.draws, peers=names, dials=dials)


if __name__ == "__main__":
    main()
