"""Beyond the data: how often the band of `Smoothing.at` holds the truth one season ahead, on ends that were kept aside.

python -m benchmarks.smoothing.ends [--half development | frozen] [--series 150] [--out FILE]

Series of 120 to 600 points with a season of 7, 12 or 24 steps, on seven kinds of trends, with white noise. The last season is kept
aside; its error is compared with that of the last level and with that of the last level and slope of the curve, both with the same season.
"""

import argparse
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks.results import takes_out, write
from overt.smoothing import analyze
from overt.smoothing.selection.bands import NORMAL_QUANTILE

SEEDS = {"development": 50_000, "frozen": 60_000}
TRENDS = ("level", "line", "walk", "local line", "parabola", "growth", "slow wave")


def trend(kind: str, count: int, random: np.random.Generator) -> np.ndarray:
    """A trend of `count` points whose noise has deviation 1."""
    t, size = np.linspace(0.0, 1.0, count), random.uniform(2, 15)
    if kind == "walk":
        return np.cumsum(random.uniform(0.02, 0.2) * random.normal(size=count))
    if kind == "local line":
        return np.cumsum(np.convolve(random.normal(size=count), 0.95 ** np.arange(60))[:count]) * random.uniform(0.005, 0.03)
    shapes = {
        "level": 0 * t,
        "line": random.choice([-1, 1]) * t,
        "parabola": random.choice([-1, 1]) * (t - random.uniform(0, 1)) ** 2 * 2,
        "growth": 1 / (1 + np.exp(-8 * (t - random.uniform(0.3, 1.0)))),
        "slow wave": np.sin(2 * np.pi * (random.uniform(1, 5) * t + random.random())) / 2,
    }
    return size * shapes[kind]


def series(seed: int, kind: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Noisy values (n,), their truth (n,), and the period."""
    random = np.random.default_rng([seed, TRENDS.index(kind)])
    period = int(random.choice([7, 12, 24]))
    count = max(int(np.exp(random.uniform(np.log(120), np.log(600)))), 7 * period)
    shape = np.cumsum(random.normal(size=period)) if random.random() < 0.5 else np.sin(2 * np.pi * np.arange(period) / period)
    season = random.uniform(0.5, 5) * (shape - shape.mean()) / max(shape.std(), 1e-9)
    truth = trend(kind, count, random) + np.resize(season, count)
    return truth + random.normal(size=count), truth, period


def measured(kind: str, seeds: range) -> Iterator[tuple[float, ...]]:
    """Of each series: coverage of the truth and of the values, mean squares of the error, of two peers, and the band's half width."""
    for seed in seeds:
        values, truth, period = series(seed, kind)
        known, times = values[:-period], np.arange(values.size - period, values.size, dtype=float)
        result = analyze(known, period=period)
        curve, lower, upper = result.at(times, band=True)
        if lower is None or upper is None:
            continue
        after = result.seasons.at(times).sum(axis=0) * result.series.spread if result.seasons is not None else 0.0
        level = result.trend[-1] + after
        line = level + np.arange(1, period + 1) * (result.trend[-1] - result.trend[-1 - period]) / period
        wide = NORMAL_QUANTILE * np.hypot((upper - lower) / (2 * NORMAL_QUANTILE), result.noise)
        inside = (
            np.mean((lower <= truth[-period:]) & (truth[-period:] <= upper)),
            np.mean(abs(values[-period:] - curve) <= wide),
        )
        squares = (np.mean((one - truth[-period:]) ** 2) for one in (curve, level, line))
        yield tuple(float(number) for number in (*inside, *squares, np.mean(upper - lower) / 2))


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=SEEDS, default="development")
    options.add_argument("--series", type=int, default=150)
    takes_out(options)
    chosen = options.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    seeds, rows = range(SEEDS[chosen.half], SEEDS[chosen.half] + -(-chosen.series // len(TRENDS))), []
    for kind in TRENDS:
        table = np.array([*measured(kind, seeds)])
        truth, values, *squares, half = table.mean(axis=0)
        error, level, line = np.sqrt(squares)
        rows.append({"trend": kind, "series": len(table), "truth inside": truth, "values inside": values, "error": error})
        rows[-1] |= {"of the last level": level, "of the last slope": line, "half width": half}
        print("  ".join(f"{name} {value:.3f}" if isinstance(value, float) else f"{value}" for name, value in rows[-1].items()))
    rows.sort(key=lambda row: abs(row["truth inside"] - 0.95), reverse=True)
    print(f"{chosen.half}: truth inside {np.mean([row['truth inside'] for row in rows]):.3f}")
    write(chosen.out, rows=rows)


if __name__ == "__main__":
    main()
