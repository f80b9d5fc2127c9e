"""The default smoother on the kinds of noise that real series carry, beside the best of its peers for each single series.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.noise_kinds [--half development|test] [--log FILE] [--out FILE]
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.noise_kinds --points 200 --out docs/results/noise-kinds-short.json
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.noise_kinds --kind white --draws 5 --out docs/results/noise-white-draws.json
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.noise_kinds --periodic --out docs/results/noise-kinds-periodic.json
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.noise_kinds --own FILE [--before FILE]

A cell is one series of 1,024 points, or as many as `--points` says (`smoothing/kinds.py`): the error over that of the best of the peers,
which is picked afterwards, for each series, and "by case" for all draws of a signal and a level by their mean error; the stated risk over
the true error; and the share of the truth inside the 95% band. `--log` keeps the errors of peers, which do not depend on this library, as
they come: a run that was stopped goes on, and later ones measure only what changed. `--periodic` takes signals that repeat
(`smoothing/periodic.py`). `--own` measures no peers: it writes what this library does on each cell, and compares it with what an earlier
version wrote (`--before`).
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import results
from benchmarks.smoothing.peers import ALL_PEERS, usable
from benchmarks.smoothing.signals import periodic
from benchmarks.smoothing.signals.kinds import HALVES, KINDS, POINTS, levels, series

SIGNALS = {each.__name__: each for halves in (HALVES, periodic.HALVES) for half in halves.values() for each in half}


class Cell(NamedTuple):
    """One series: a signal of one half under one kind of noise."""

    half: str
    signal: str
    noise: str
    seed: int
    points: int

    def series(self) -> tuple[np.ndarray, np.ndarray]:
        """The truth and the noisy series (n,)."""
        return series(SIGNALS[self.signal], self.noise, self.seed, self.points)


class Cells(NamedTuple):
    """Which signals, by half, under which kinds of noise, of how many points, and how often each level is drawn."""

    halves: dict[str, list[Any]]
    kinds: list[str]
    points: int
    draws: int = 1

    def of(self, half: str) -> list[Cell]:
        """All of one half."""
        return [
            Cell(half, each.__name__, noise, seed, self.points)
            for noise in self.kinds
            for each in self.halves[half]
            for seed in range(self.draws * levels(noise))
        ]


def of_peer(job: tuple[Cell, str]) -> float | None:
    """The error of one peer; None where it fails."""
    warnings.simplefilter("ignore")
    truth, x = job[0].series()
    try:
        return float(np.mean((ALL_PEERS[job[1]].smooth(x) - truth) ** 2))
    except Exception:
        return None


def of_ours(cell: Cell) -> dict[str, Any]:
    """Our error, the risk that we state, and the share of the truth inside the band, None where there is none."""
    from overt.smoothing import analyze

    warnings.simplefilter("ignore")
    truth, x = cell.series()
    result = analyze(x)
    inside = None if result.lower is None else float(np.mean((result.lower <= truth) & (truth <= result.upper)))
    return cell._asdict() | {"error": float(np.mean((result.values - truth) ** 2)), "risk": result.risk, "inside": inside}


class Log:
    """The errors of peers, as lines of JSON in a file, or in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.errors = path, {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                *job, error = json.loads(line)
                self.errors[tuple(job)] = error

    def __contains__(self, job: tuple[Cell, str]) -> bool:
        return (*job[0], job[1]) in self.errors

    def add(self, job: tuple[Cell, str], error: float | None) -> None:
        """Keep one."""
        self.errors[(*job[0], job[1])] = error
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps([*job[0], job[1], error]) + "\n")

    def of(self, cell: Cell) -> dict[str, float]:
        """The errors of one cell, by peer."""
        result = {name: self.errors.get((*cell, name)) for name in ALL_PEERS}
        return {name: error for name, error in result.items() if error is not None}


def measure_peers(jobs: list[tuple[Cell, str]], log: Log, processes: int, until: float) -> bool:
    """Fill the log; whether all of it was done in time."""
    jobs = [job for job in jobs if job not in log]
    with ProcessPoolExecutor(processes) as pool:
        for start in range(0, len(jobs), 8 * processes):
            part = jobs[start : start + 8 * processes]
            for job, error in zip(part, pool.map(of_peer, part), strict=True):
                log.add(job, error)
            if time.monotonic() > until:
                return start + len(part) >= len(jobs)
    return True


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What one kind of noise comes to."""
    ratios = np.array([each["error"] / min(each["peers"].values()) for each in rows])
    stated = np.array([each["risk"] / each["error"] for each in rows])
    inside = [each["inside"] for each in rows if each["inside"] is not None]
    winners = [min(each["peers"], key=each["peers"].get) for each in rows]
    return {
        "cells": len(rows),
        "geometric mean": round(float(np.exp(np.log(ratios).mean())), 3),
        "worst": round(float(ratios.max()), 2),
        "worst signal": rows[int(ratios.argmax())]["signal"],
        "ahead": round(float(np.mean(ratios <= 1)), 2),
        "most often best of the peers": max(sorted(set(winners)), key=winners.count),
        "stated over true": [round(float(each), 2) for each in np.quantile(stated, [0.1, 0.5, 0.9])],
        "stated over true, means": round(float(np.mean([e["risk"] for e in rows]) / np.mean([e["error"] for e in rows])), 2),
        "within a factor of 2": round(float(np.mean((stated > 0.5) & (stated < 2))), 2),
        "inside the band": round(float(np.mean(inside)), 3) if inside else None,
        "least inside": round(min(inside), 2) if inside else None,
        "withheld": len(rows) - len(inside),
    }


def by_case(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same with the mean error over all draws of a signal and a level, and the peer of the least mean error."""
    cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in rows:
        cases.setdefault((each["signal"], each["seed"] % levels(each["noise"])), []).append(each)
    ratios = {}
    for case, draws in cases.items():
        names = set.intersection(*(set(each["peers"]) for each in draws))
        best = min(np.mean([each["peers"][name] for each in draws]) for name in names)
        ratios[case] = float(np.mean([each["error"] for each in draws]) / best)
    worst = max(ratios, key=lambda case: ratios[case])
    return {
        "cases": len(ratios),
        "draws": len(rows) // len(ratios),
        "geometric mean": round(float(np.exp(np.mean(np.log([*ratios.values()])))), 3),
        "worst": round(ratios[worst], 2),
        "worst signal": worst[0],
    }


def by_peer(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of each peer, the geometric mean of its error over ours."""
    ratios = {
        name: [np.log(each["peers"][name] / each["error"]) for each in rows if name in each["peers"]] for name in ALL_PEERS
    }
    return {name: round(float(np.exp(np.mean(logs))), 2) for name, logs in ratios.items() if logs}


def measure_overt(path: Path, processes: int, every: Cells) -> list[dict[str, Any]]:
    """What this version does on each cell of both halves, also written as lines of JSON."""
    with ProcessPoolExecutor(processes) as pool:
        rows = list(pool.map(of_ours, [cell for half in every.halves for cell in every.of(half)], chunksize=8))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def change(rows: list[dict[str, Any]], before: Path | None, every: Cells) -> dict[str, Any]:
    """Print, and return by half and kind, the error over that of an earlier version, and what is stated."""
    lines = [] if before is None else [json.loads(line) for line in before.read_text().splitlines()]
    earlier = {tuple(line[key] for key in Cell._fields): line["error"] for line in lines}
    result: dict[str, Any] = {half: {} for half in every.halves}
    for half, noise in [(half, noise) for half in every.halves for noise in every.kinds]:
        cell_rows = [row for row in rows if (row["half"], row["noise"]) == (half, noise)]
        inside = [row["inside"] for row in cell_rows if row["inside"] is not None]
        stated = np.array([row["risk"] / row["error"] for row in cell_rows])
        cell = {
            "cells": len(cell_rows),
            "stated over true": [round(float(each), 2) for each in np.quantile(stated, [0.1, 0.5, 0.9])],
            "within a factor of 2": round(float(np.mean((stated > 0.5) & (stated < 2))), 2),
            "inside the band": round(float(np.mean(inside)), 3) if inside else None,
            "withheld": len(cell_rows) - len(inside),
        }
        if earlier:
            ratios = np.array([row["error"] / earlier[tuple(row[key] for key in Cell._fields)] for row in cell_rows])
            cell["error over before"] = round(float(np.exp(np.log(ratios).mean())), 3)
            cell["worst"], cell["worst signal"] = round(float(ratios.max()), 2), cell_rows[int(ratios.argmax())]["signal"]
            cell["best"] = round(float(ratios.min()), 2)
        result[half][noise] = cell
        print(f"{half:12} {noise:34} {cell}", flush=True)
    return result


def main() -> None:
    """Run both halves, or one."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=HALVES, help="only this half")
    options.add_argument("--periodic", action="store_true", help="signals that repeat, under eight kinds of noise")
    options.add_argument("--points", type=int, default=POINTS, help="of each series")
    options.add_argument("--kind", choices=KINDS, help="only this kind of noise")
    options.add_argument("--draws", type=int, default=1, help="of each signal and level")
    options.add_argument("--log", type=Path, help="keep the errors of the peers here, and read those that are there")
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--minutes", type=float, default=np.inf, help="stop measuring peers after so many minutes")
    options.add_argument("--own", type=Path, help="measure no peers, and write our errors here")
    options.add_argument("--before", type=Path, help="with --own: those of an earlier version")
    options.add_argument("--cells", action="store_true", help="print every cell")
    results.takes_out(options)
    requested = options.parse_args()
    signals, kinds = (periodic.HALVES, periodic.KINDS) if requested.periodic else (HALVES, KINDS)
    every = Cells(signals, [requested.kind] if requested.kind else kinds, requested.points, requested.draws)
    if requested.own:
        changed = change(measure_overt(requested.own, requested.processes, every), requested.before, every)
        results.write(requested.out, points=requested.points, halves=changed)
        return
    log, halves, names = Log(requested.log), {}, usable()
    until = time.monotonic() + 60 * requested.minutes
    for half in [requested.half] if requested.half else every.halves:
        of_half = every.of(half)
        if not measure_peers([(cell, name) for name in names for cell in of_half], log, requested.processes, until):
            raise SystemExit("Stopped before all peers were measured: the same command goes on.")
        with ProcessPoolExecutor(requested.processes) as pool:
            rows = [each | {"peers": log.of(cell)} for cell, each in zip(of_half, pool.map(of_ours, of_half), strict=True)]
        halves[half] = {noise: show(half, noise, rows, requested.cells) for noise in every.kinds}
    results.write(requested.out, points=requested.points, peers=names, halves=halves)


def show(half: str, noise: str, rows: list[dict[str, Any]], each_cell: bool) -> dict[str, Any]:
    """Print one kind of noise, and return what it comes to."""
    rows = [each for each in rows if each["noise"] == noise]
    result = summary(rows)
    print(f"{half:12} {noise:34} {result}", flush=True)
    for each in rows if each_cell else ():
        best = min(each["peers"], key=each["peers"].get)
        ratio, stated = each["error"] / each["peers"][best], each["risk"] / each["error"]
        inside = "" if each["inside"] is None else f"{each['inside']:.2f}"
        print(f"    {each['signal']:10} {each['seed']} {ratio:7.2f} of {best:9} stated {stated:7.2f} inside {inside}")
    return result | {"by case": by_case(rows), "each peer over ours": by_peer(rows)}


if __name__ == "__main__":
    main()
