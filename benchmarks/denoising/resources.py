"""The default in processes of their own: what the whole command takes for many short series, and the memory of a long one.

Run as a module it is such a process: it smooths one series and prints its peak memory above the input.
"""

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.denoising.accuracy import noisy
from benchmarks.denoising.signals import sampled
from benchmarks.peak_memory import NO_MEMORY, seconds_and_memory
from overt.smoothing import smooth

SERIES, POINTS = 1000, 100
RUNS = 5  # of the command


@dataclass(frozen=True)
class Resources:
    """The seconds of each run of the command on `series` series of `points` points; bytes above the input of one series, by length."""

    series: int
    points: int
    seconds: list[float]
    memory: dict[int, int]
    unable: str = ""


def measure(sizes: tuple[int, ...], notify: Callable[[str], None] = lambda doing: None) -> Resources:
    """Time `overt smooth --group` from its start to its end, and measure the memory of the default at each length."""
    notify(f"{SERIES:,} series of {POINTS} points")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "series.csv"
        _write_series(table)
        seconds = [_seconds_of_command(table) for _ in range(RUNS)]
    memory: dict[int, int] = {}
    for size in () if NO_MEMORY else sizes:
        notify(f"{size:,} points")
        memory[size] = int(_output("-m", __name__, str(size)))
    return Resources(SERIES, POINTS, seconds, memory, NO_MEMORY)


def _write_series(path: Path) -> None:
    """Waves of different lengths, each with noise, one row a point."""
    random, steps = np.random.default_rng(0), np.arange(POINTS)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sensor", "t", "value"])
        for sensor in range(SERIES):
            values = np.sin(steps / random.uniform(5, 30) + random.uniform(0, 6)) + random.normal(0, 0.3, POINTS)
            rows.writerows((f"sensor {sensor}", t, f"{value:.5f}") for t, value in zip(steps, values, strict=True))


def _seconds_of_command(table: Path) -> float:
    arguments = ["--column", "value", "--time", "t", "--group", "sensor", "--out", os.fspath(table.with_name("smooth.csv"))]
    start = time.perf_counter()
    _output("-m", "overt", "smooth", os.fspath(table), *arguments)
    return time.perf_counter() - start


def _output(*arguments: str) -> str:
    """What a new Python prints; an error with its message where it fails."""
    process = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
    if process.returncode != 0:
        raise RuntimeError(f"a process failed:\n{process.stderr}")
    return process.stdout


def _main(size: int) -> int:
    series = noisy(sampled("doppler", size), 3, 0)
    smooth(series[:100])  # loads libraries and starts threads
    _, memory = seconds_and_memory(lambda: smooth(series))
    return memory


if __name__ == "__main__":
    print(_main(int(sys.argv[1])))
