"""Seasons beside STL and MSTL: simulated series whose truth is known, real ones by points left out, and periods found in noise.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.seasons [--half development|test] [--part simulated|real|alarms]
        [--data FOLDER] [--out FILE]

STL and MSTL (statsmodels) take no missing values: these are interpolated linearly first, or filled in five rounds with what the
decomposition says of them. The settings of `overt.smooth(period=…)` were chosen on the development half; the test half has other
seasons, trends, periods and seeds, and was frozen before. The real series are `nyc_taxi.csv` (github numenta/NAB) and `ETTh1.csv`
(github zhouhaoyi/ETDataset) in FOLDER/series, and monthly CO2 of statsmodels. A ratio is our error over that of the best peer, picked
afterwards.
"""

import argparse
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results

SEEDS, LEVELS = 3, (0.2, 0.5, 1.0)
Draw = np.random.Generator


def harmonics(phase, draw):
    """Two sines."""
    return np.sin(2 * np.pi * (phase + draw.uniform())) + 0.5 * np.sin(4 * np.pi * (phase + draw.uniform()))


def rough(phase, draw):
    """A value of its own for each twelfth."""
    return draw.normal(size=12)[(phase * 12).astype(int)]


def growing(phase, draw):
    """Harmonics that double."""
    return harmonics(phase, draw) * np.linspace(0.7, 1.4, phase.size)


def pulse(phase, draw):
    """A short peak and a dip."""
    centre = draw.uniform(0.2, 0.5)
    return np.exp(-0.5 * ((phase - centre) / 0.06) ** 2) - 0.5 * np.exp(-0.5 * ((phase - centre - 0.3) / 0.04) ** 2)


def hours(phase, draw):
    """On between two phases, off else, with a slope."""
    return ((phase > 0.3) & (phase < 0.7)) * (0.7 + phase) * draw.uniform(0.8, 1.2)


def drifting(phase, draw):
    """One pattern that becomes another."""
    share = np.linspace(0, 1, phase.size)
    return (1 - share) * harmonics(phase, draw) + share * harmonics(phase, draw)


def line_and_wave(t, draw):
    """A line and a slow wave."""
    return draw.normal() * 3 * t + np.sin(2 * np.pi * (draw.uniform(0.5, 2) * t + draw.uniform()))


def walk(t, draw):
    """A random walk."""
    return np.cumsum(draw.normal(size=t.size)) / np.sqrt(t.size) * 3


def kink(t, draw):
    """Two straight lines."""
    return np.abs(t - draw.uniform(0.3, 0.7)) * draw.choice([-4, 4])


def jump(t, draw):
    """A jump on a line."""
    return 2.0 * (t > draw.uniform(0.3, 0.7)) + draw.normal() * t


def growth(t, draw):
    """Logistic growth."""
    return 3 / (1 + np.exp(-draw.uniform(6, 14) * (t - draw.uniform(0.3, 0.7))))


def bumps(t, draw):
    """Three bumps."""
    return sum(np.exp(-0.5 * ((t - draw.uniform()) / draw.uniform(0.02, 0.1)) ** 2) for _ in range(3))


Shape = Callable[[np.ndarray, Draw], np.ndarray]
HALVES: dict[str, tuple[list[Shape], list[Shape], list[tuple[int, ...]], int]] = {
    "development": ([harmonics, rough, growing], [line_and_wave, walk, kink], [(12,), (24,), (24, 168)], 1),
    "test": ([pulse, hours, drifting], [jump, growth, bumps], [(7,), (52,), (48, 336)], 2),
}
LEFT_OUT = ("none", "10% of the points", "gaps of 6")


def simulated(half: str, season: str, trend: str, periods: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The truth and the noisy series (n,), of 6, 12 or 24 cycles of the longest period."""
    seasons, trends, _, number = HALVES[half]
    draw = np.random.default_rng([number, *season.encode(), *trend.encode(), *periods, seed])
    count = periods[-1] * (6 * 2**seed if len(periods) == 1 else 6)
    truth = next(each for each in trends if each.__name__ == trend)(np.arange(count) / count, draw)
    for period in periods:
        shape = next(each for each in seasons if each.__name__ == season)((np.arange(count) % period) / period, draw)
        truth = truth + (shape - shape.mean()) / shape.std()
    return truth, truth + LEVELS[seed] * draw.normal(size=count)


def hidden(count: int, how: str, seed: int) -> np.ndarray:
    """Which points are left out (n,)."""
    draw, left_out = np.random.default_rng([77, seed]), np.zeros(count, bool)
    if how == "gaps of 6":
        for start in draw.choice((count - 12) // 12, max(1, count // 60), replace=False) * 12 + 6:
            left_out[start : start + 6] = True
    elif how != "none":
        left_out[draw.choice(count - 2, count // 10, replace=False) + 1] = True
    return left_out


def interpolated(x: np.ndarray) -> np.ndarray:
    """Missing values on the line between their neighbours."""
    known = np.flatnonzero(~np.isnan(x))
    return np.interp(np.arange(x.size), known, x[known])


def stl(x: np.ndarray, periods: tuple[int, ...], *, robust: bool = False, rounds: int = 1) -> np.ndarray:
    """Trend and season of STL, or MSTL for several periods."""
    from statsmodels.tsa.seasonal import MSTL, STL

    filled = interpolated(x)
    for _ in range(rounds):
        if len(periods) == 1:
            parts = STL(filled, period=periods[0], robust=robust).fit()
        else:
            parts = MSTL(filled, periods=periods, stl_kwargs={"robust": robust}).fit()
        curve = np.asarray(parts.observed - parts.resid)
        filled = np.where(np.isnan(x), curve, x)
    return curve


PEERS: dict[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "STL": lambda x, periods: stl(x, periods),
    "STL, robust": lambda x, periods: stl(x, periods, robust=True),
    "STL, filled in rounds": lambda x, periods: stl(x, periods, rounds=5),
    "a line": lambda x, periods: interpolated(x),
}


def errors(x: np.ndarray, periods: tuple[int, ...], truth: np.ndarray, judged: np.ndarray) -> dict[str, float]:
    """Mean squared errors at the judged points, ours first."""
    import overt

    warnings.simplefilter("ignore")
    curves = {"overt": overt.smooth(x, period=list(periods)), "overt without a period": overt.smooth(x)}
    curves |= {name: smooth(x, periods) for name, smooth in PEERS.items()}
    return {name: float(np.mean((curve - truth)[judged] ** 2)) for name, curve in curves.items()}


def simulated_cell(half: str, season: str, trend: str, periods: tuple[int, ...], seed: int, how: str) -> dict[str, float]:
    """The errors against the truth, at all points or at those left out."""
    truth, x = simulated(half, season, trend, periods, seed)
    left_out = hidden(x.size, how, seed)
    judged = left_out if left_out.any() else ~left_out
    return errors(np.where(left_out, np.nan, x), periods, truth, judged)


def real(data: Path, name: str) -> tuple[np.ndarray, tuple[int, ...]]:
    """A real series and its periods."""
    if name == "CO2, monthly":
        from statsmodels.datasets import co2

        return co2.load_pandas().data["co2"].resample("MS").mean().to_numpy(), (12,)
    import pandas as pd

    file, column, periods = {
        "taxi, half-hourly": ("nyc_taxi.csv", "value", (48, 336)),
        "transformer load, hourly": ("ETTh1.csv", "HUFL", (24, 168)),
        "oil temperature, hourly": ("ETTh1.csv", "OT", (24,)),
    }[name]
    return pd.read_csv(data / "series" / file)[column].to_numpy(float)[:10320], periods


REAL = ("CO2, monthly", "taxi, half-hourly", "transformer load, hourly", "oil temperature, hourly")


def real_cell(data: Path, name: str, how: str) -> dict[str, float]:
    """The errors at points left out, over the variance of the series."""
    x, periods = real(data, name)
    left_out = hidden(x.size, how, 0) & ~np.isnan(x)
    result = errors(np.where(left_out, np.nan, x), periods, x, left_out)
    return {each: error / float(np.nanvar(x)) for each, error in result.items()}


def autoregression(draw: Draw, count: int, rho: float) -> np.ndarray:
    """An autoregression of order one."""
    white, noise = draw.normal(size=count + 100), np.zeros(count + 100)
    for i in range(1, noise.size):
        noise[i] = rho * noise[i - 1] + white[i]
    return noise[100:]


def gaussian_process(draw: Draw, count: int) -> np.ndarray:
    """A smooth curve, with noise or without."""
    length = max(3, int(count / draw.uniform(15, 60)))
    kernel = np.exp(-0.5 * (np.arange(-4 * length, 4 * length + 1) / length) ** 2)
    curve = np.convolve(draw.normal(size=count + 8 * length), kernel, "valid")[:count] / np.sqrt((kernel**2).sum())
    return curve + draw.choice([0, 0.1, 0.5]) * draw.normal(size=count)


ALARMS: dict[str, Callable[[Draw, int], np.ndarray]] = {
    "white": lambda draw, n: draw.normal(size=n),
    "t with 3 degrees of freedom": lambda draw, n: draw.standard_t(3, n),
    "autoregression, 0.5": lambda draw, n: autoregression(draw, n, 0.5),
    "autoregression, 0.9": lambda draw, n: autoregression(draw, n, 0.9),
    "autoregression, −0.5": lambda draw, n: autoregression(draw, n, -0.5),
    "random walk and noise": lambda draw, n: np.cumsum(draw.normal(size=n)) + draw.uniform(0, 3) * draw.normal(size=n),
    "trends": lambda draw, n: (
        np.polyval(draw.normal(size=3), np.linspace(-2, 2, n)) + draw.uniform(0.05, 1) * draw.normal(size=n)
    ),
    "steps": lambda draw, n: (
        sum(2 * draw.normal() * (np.arange(n) > edge * n) for edge in draw.random(6))
        + draw.uniform(0.05, 1) * draw.normal(size=n)
    ),
    "smooth curves": gaussian_process,
    "peaks": lambda draw, n: (
        sum(np.exp(-0.5 * ((np.arange(n) / n - draw.random()) / 10 ** draw.uniform(-2.2, -1.3)) ** 2) for _ in range(7))
        + draw.uniform(0.02, 0.5) * draw.normal(size=n)
    ),
    "chirps": lambda draw, n: (
        np.sin(2 * np.pi * (draw.uniform(1, 3) * np.arange(n) / n + draw.uniform(8, 16) * (np.arange(n) / n) ** 2))
        + draw.uniform(0.05, 0.5) * draw.normal(size=n)
    ),
}
ALARM_SERIES = 200  # of each kind


def alarms(half: str, kind: str) -> int:
    """Series of a kind, a quarter of them with missing values, in which a period was found."""
    from overt.smoothing.data.series import arrange
    from overt.smoothing.seasons.detect import find_periods

    total = 0
    for seed in range(ALARM_SERIES):
        draw = np.random.default_rng([HALVES[half][3], seed, *kind.encode()])
        count = int(draw.choice([60, 128, 400, 1024]))
        x = ALARMS[kind](draw, count)
        if seed % 4 == 3:
            x[draw.random(count) < 0.1] = np.nan
        total += bool(find_periods(arrange(x, np.arange(float(count))), False))
    return total


def summary(cells: list[dict[str, float]]) -> dict[str, Any]:
    """What cells come to: ours over the best peer, and over each."""
    ours = np.array([each["overt"] for each in cells])
    best = np.array([min(error for name, error in each.items() if name in PEERS) for each in cells])
    return {
        "cells": len(cells),
        "geometric mean": round(float(np.exp(np.log(ours / best).mean())), 3),
        "worst": round(float((ours / best).max()), 2),
        "over": {
            name: round(float(np.exp(np.mean(np.log(ours / [each[name] for each in cells])))), 3)
            for name in cells[0]
            if name != "overt"
        },
    }


def simulated_part(half: str, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Every season with every trend and period of a half."""
    seasons, trends, periods, _ = HALVES[half]
    jobs = [
        (half, season.__name__, trend.__name__, each, seed, how)
        for how in LEFT_OUT
        for season in seasons
        for trend in trends
        for each in periods
        for seed in range(SEEDS if len(each) == 1 else 1)
    ]
    cells = list(pool.map(simulated_cell, *zip(*jobs, strict=True)))
    kinds: dict[str, Any] = {
        how: summary([cell for job, cell in zip(jobs, cells, strict=True) if job[5] == how]) for how in LEFT_OUT
    }
    for column, values in ((1, seasons), (2, trends)):
        for value in values:
            kinds[value.__name__] = summary(
                [cell for job, cell in zip(jobs, cells, strict=True) if job[column] == value.__name__]
            )
    return kinds


def main() -> None:
    """Run all parts of both halves, or some."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=HALVES, help="only this half")
    options.add_argument("--part", choices=("simulated", "real", "alarms"), help="only this part")
    options.add_argument("--data", type=Path, default=os.environ.get("OVERT_DATA"), help="the folder that holds `series`")
    results.takes_out(options)
    requested = options.parse_args()
    halves = [requested.half] if requested.half else list(HALVES)
    content: dict[str, Any] = {}
    with ProcessPoolExecutor() as pool:
        if requested.part in (None, "simulated"):
            content["simulated"] = {half: simulated_part(half, pool) for half in halves}
        if requested.part in (None, "real"):
            names = [name for name in REAL if requested.data or name.startswith("CO2")]
            jobs = [(Path(requested.data or "."), name, how) for name in names for how in LEFT_OUT[1:]]
            cells = pool.map(real_cell, *zip(*jobs, strict=True))
            content["real"] = {f"{name}, {how}": cell for (_, name, how), cell in zip(jobs, cells, strict=True)}
        if requested.part in (None, "alarms"):
            content["alarms"] = {
                half: dict(zip(ALARMS, pool.map(alarms, [half] * len(ALARMS), ALARMS), strict=True)) for half in halves
            }
            content["alarm series"] = ALARM_SERIES
    for part, measured in content.items():
        for name, value in measured.items() if isinstance(measured, dict) else [("", measured)]:
            print(
                part,
                name,
                *([value] if not isinstance(value, dict) else [f"\n   {key}: {each}" for key, each in value.items()]),
            )
    results.write(requested.out, **content)


if __name__ == "__main__":
    main()
