"""What each head, detector and constant of the default smoother brings: its error without it, or with another, over its error as it is.

    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.ablation [--minutes 60] [--log FILE] [--out docs/results/smoothing-ablation.json]
    OMP_NUM_THREADS=1 python -m benchmarks.smoothing.ablation --quick

A cell is one series: a development signal (`smoothing/kinds.py`, `smoothing/development.py`) of 200, 400, 1,024 or 4,096 points under one
kind of noise, those of `noise_kinds` and four more; every cell is smoothed in all variants. Cells are taken in a fixed random order, so
that a run that stops after some minutes is a sample of all signals, sizes and kinds; `--log` stores them, and a later run goes on.
`--quick` takes one series of each kind of noise, of 200 points. A part "goes" where it brings less than 2% in every kind and less than
1.2 in every cell; "carried" counts the cells that are worse without it by more than 2%, "misstated" those whose stated error is below a
third of the true one only without it.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks import results
from benchmarks.smoothing.signals import development, periodic
from benchmarks.smoothing.signals.kinds import HALVES, KINDS, POISSON, RATIOS, TOPS, Draw, series
from overt.smoothing import analyze
from overt.smoothing.selection.bank import candidates, mixture, noisy_series, segments, stages, wiener
from overt.smoothing.selection.bank.risk_sums import HeadOutputs
from overt.smoothing.selection.correlation import Spectral
from overt.smoothing.selection.outliers import Cleaned, clean

POINTS = (200, 400, 1024, 4096)
SMOOTHING = "overt.smoothing"
ANALYSIS, NOISE, VARYING, CORRELATION, OUTLIERS, PEAKS, REST, NOISE_KINDS, REPEATED, BANK_STAGES = (
    f"{SMOOTHING}.{module}"
    for module in (
        "analysis", "selection.noise", "selection.varying", "selection.correlation", "selection.outliers", "noise.peaks", "seasons.rest",
        "noise", "data.repeats", "selection.bank.stages",
    )
)  # fmt: skip
SIGNALS = {signal.__name__: signal for signal in (*HALVES["development"], *development.SIGNALS)}
REPEATING = {signal.__name__: signal for signal in periodic.HALVES["development"]}


def codes(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """An error code far away, in runs of one to six."""
    x = truth + draw.standard_normal(truth.size) / ratio
    for start in draw.choice(truth.size - 6, max(truth.size // 100, 2), replace=False):
        x[start : start + draw.integers(1, 7)] = -20.0
    return truth, x


def decades(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Positive values over three decades, with noise in proportion."""
    truth = 10 ** (3 * (truth - truth.min()) / np.ptp(truth))
    return truth, truth * np.exp(draw.standard_normal(truth.size) * 0.5 / ratio)


def outcomes(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """0 or 1, with a probability that follows the signal."""
    chance = 0.05 + 0.9 * (truth - truth.min()) / np.ptp(truth)
    return chance, (draw.random(truth.size) < chance).astype(float)


def coarse(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """White noise, rounded to two or three times its level."""
    step = draw.uniform(2, 3) / ratio
    return truth, step * np.round((truth + draw.standard_normal(truth.size) / ratio) / step)


MORE = {"error codes": codes, "three decades": decades, "outcomes": outcomes, "rounded": coarse}
REPEATING_KINDS = {f"repeating signals, {kind}": kind for kind in ("white", "5% outliers")}
ALL_KINDS = [*KINDS, *MORE, *REPEATING_KINDS]


class Cell(NamedTuple):
    """One series."""

    signal: str
    kind: str
    points: int
    seed: int

    def series(self) -> tuple[np.ndarray, np.ndarray]:
        """The truth and the noisy series (n,)."""
        if self.kind in MORE:
            draw = np.random.default_rng([self.seed, *self.signal.encode(), *self.kind.encode(), self.points])
            truth = SIGNALS[self.signal]((np.arange(self.points) + 0.5) / self.points, draw)
            return MORE[self.kind]((truth - truth.mean()) / truth.std(), RATIOS[self.seed % len(RATIOS)], draw)
        signal = (REPEATING if self.kind in REPEATING_KINDS else SIGNALS)[self.signal]
        return series(signal, REPEATING_KINDS.get(self.kind, self.kind), self.seed, self.points)


def cells(*, quick: bool, draws: int) -> list[Cell]:
    """All, in a fixed random order, so that the first ones are a sample of them."""
    every = [
        Cell(signal, kind, points, 1000 + seed)
        for kind in ALL_KINDS
        for signal in (REPEATING if kind in REPEATING_KINDS else SIGNALS)
        for points in POINTS
        for seed in range(draws * len(TOPS if kind == POISSON else RATIOS))
    ]
    order = np.random.default_rng(0).permutation(len(every))
    taken = [every[index] for index in order]
    if not quick:
        return taken
    short = [cell for cell in taken if cell.points == min(POINTS)]
    return [next(cell for cell in short if cell.kind == kind) for kind in ALL_KINDS]


def without(family: str) -> list[Any]:
    """The first stage and the wide heads without those whose names begin like that."""

    def others(names: list[str]) -> list[int]:
        return [i for i, name in enumerate(names) if not name.startswith(family)]

    def chosen(part: candidates.NamedHeads) -> candidates.NamedHeads:
        index = others(part.names)

        def write(outputs: HeadOutputs) -> None:
            every = HeadOutputs(*(np.empty((len(column), len(part.names), column.shape[2])) for column in outputs))
            part.write(every)
            for column, source in zip(outputs, every, strict=True):
                column[...] = source[:, index]

        return candidates.NamedHeads([part.names[i] for i in index], write, [part.rows[i] for i in index])

    def chosen_wide(part: candidates.WideHeads) -> candidates.WideHeads:
        def write_part(stretch: slice, outputs: HeadOutputs) -> None:
            chosen(part.part(stretch)).write(outputs)

        index = others(part.names)
        return candidates.WideHeads([part.names[i] for i in index], write_part, [part.rows[i] for i in index])

    first, wide = stages.pilot_heads, stages.wide_heads
    return [
        patch.object(stages, "pilot_heads", lambda *inputs: (chosen(part) for part in first(*inputs))),
        patch.object(stages, "wide_heads", lambda *inputs, **options: chosen_wide(wide(*inputs, **options))),
    ]


def time_heads_too(*more: tuple[float, int, str]) -> list[Any]:
    """With more heads by time in the first stage."""
    first = candidates.time_heads
    return [patch.object(candidates, "time_heads", lambda causal: [*first(causal), *more])]


def pilot_bandwidths(*scales: float) -> list[Any]:
    """Other bandwidths of the pilot in guided heads."""
    return [patch.object(module, "PILOT_BANDWIDTHS", scales) for module in (candidates, stages)]


class Part(NamedTuple):
    """A function of the smoother, by its name in a module, and what a variant has in its place."""

    target: str
    replacement: Callable[..., Any]

    def observer(self, active: set["Part"]) -> Callable[..., Any]:
        """The function itself, which adds this part to the active ones when its replacement returns another value."""
        module, name = self.target.rsplit(".", 1)
        function = getattr(import_module(module), name)

        def observed(*inputs: Any, **options: Any) -> Any:
            output = function(*inputs, **options)
            if not same(output, self.replacement(*inputs, **options)):
                active.add(self)
            return output

        return observed


def same(one: Any, other: Any) -> bool:
    """Whether two outputs are equal: numbers, arrays, None, or tuples of these."""
    if one is None or other is None:
        return one is other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=False))


def unclipped() -> list[Any]:
    """Outliers are removed as they are, and no tails are moved."""

    def with_tails(values: np.ndarray, level: float) -> Any:
        return clean(values, level)._replace(values=values)

    return [Part(f"{REST}.clean", with_tails)]


def nowhere(values: np.ndarray, *_: Any) -> np.ndarray:
    """No point (n,)."""
    return np.zeros(values.shape, dtype=bool)


def never(*_: Any, **__: Any) -> bool:
    """No hypothesis holds."""
    return False


def nothing(*_: Any, **__: Any) -> None:
    """No level or law."""


NO_SPECTRUM = Spectral(0.0, 0.0, 0.0)
NARROW_LINES = [(float(h), 1, "both") for h in candidates.NARROW]
HYPOTHESES: dict[str, Callable[[], list[Any]]] = {
    "no error codes": lambda: [Part(f"{NOISE_KINDS}.codes.find_codes", nowhere)],
    "no outcomes": lambda: [Part(f"{NOISE_KINDS}.outcomes.are_outcomes", never)],
    "no amounts": lambda: [Part(f"{NOISE_KINDS}.amounts.recognize_amounts", nothing)],
    "no counts": lambda: [Part(f"{NOISE_KINDS}.counts.are_counts", never)],
    "no logarithms": lambda: [Part(f"{NOISE_KINDS}.logarithms.are_proportional", never)],
    "counts once": lambda: [patch(f"{NOISE_KINDS}.counts.PASSES", 1)],
    "no flat runs": lambda: [Part(f"{REPEATED}.flat_runs", nowhere), Part(f"{NOISE}.flat_runs", nowhere)],
    "no flat runs in the noise": lambda: [Part(f"{NOISE}.flat_runs", nowhere)],
    "no held values": lambda: [Part(f"{REPEATED}.hold_length", lambda values: 1)],
    "no rare events": lambda: [Part(f"{REPEATED}.event_length", lambda values: 1)],
    "no rounding": lambda: [Part(f"{NOISE}.rounded_level", nothing)],
    "no repeated values": lambda: [Part(f"{NOISE}.repeated_level", nothing), Part(f"{REST}.repeated_level", nothing)],
    "no waves in the noise": lambda: [Part(f"{NOISE}.find_waves", lambda times, values: np.zeros(values.size))],
    "no waves among outliers": lambda: [Part(f"{REST}.find_waves", lambda times, values: np.zeros(values.size))],
}
LEVELS: dict[str, Callable[[], list[Any]]] = {
    "one level of noise": lambda: [Part(f"{NOISE}.varying_levels", nothing)],
    "no predictions by fitted coefficients": lambda: [patch(f"{VARYING}.FITTED", {})],
    "peaks among levels": lambda: [patch(f"{VARYING}.AGREE", np.inf)],
    "no laws from contrasts": lambda: [patch(f"{VARYING}.SHORT", np.inf)],
    "no second look at the level": lambda: [Part(f"{ANALYSIS}.residual_levels", nothing)],
    "no tail factor": lambda: [Part(f"{ANALYSIS}.tail_factor", lambda *inputs: 1.0)],
    "segments under tails as under normal noise": lambda: [patch.object(noisy_series, "FAR_OUT", np.inf)],
    "correlation not estimated": lambda: [patch(f"{NOISE}.MIN_CORRELATED", np.inf)],
    "no hints of correlation": lambda: [patch(f"{NOISE}.SUGGESTED", np.inf)],
    "no spectrum beneath a signal": lambda: [
        Part(f"{NOISE}.spectral_autoregression", lambda values: NO_SPECTRUM)
    ],
    "no test of the spectrum's fit": lambda: [Part(f"{NOISE}.fits_the_spectrum", lambda *inputs: True)],
}  # fmt: skip
TAILS: dict[str, Callable[[], list[Any]]] = {
    "outliers kept": lambda: [Part(f"{REST}.clean", lambda values, level: Cleaned(values, nowhere(values)))],
    "tails not moved": unclipped,
    "no heavy tails": lambda: [patch(f"{OUTLIERS}.HEAVY_ERRORS", np.inf)],
    "outliers looked for once": lambda: [patch(f"{OUTLIERS}.PASSES", 1)],
    "no pairs of outliers": lambda: [Part(f"{OUTLIERS}._pairs", lambda values, far: nowhere(values))],
    "no outliers among others": lambda: [Part(f"{OUTLIERS}._among_others", lambda values, level, **_: nowhere(values))],
    "no outliers in quick signals": lambda: [Part(f"{OUTLIERS}._hidden", nowhere)],
    "no recurring peaks": lambda: [Part(f"{PEAKS}._recur", never)],
    "no peaks by their shoulders": lambda: [Part(f"{PEAKS}.have_shoulders", never)],
    "no peaks in short series": lambda: [Part(f"{OUTLIERS}.may_be_peaks", never)],
    "pairs are no peaks": lambda: [patch(f"{OUTLIERS}.CHANCE_OF_A_PAIR", 0.0)],
    "no outliers of one side": lambda: [Part(f"{REST}.to_one_side", never)],
}
HEADS: dict[str, Callable[[], list[Any]]] = {
    "without parabolas": lambda: without("parabola"),
    "without extrapolated parabolas": lambda: without("extrapolated"),
    "without bandwidths of the whole series": lambda: [patch.object(candidates, "WHOLE", ())],
    "narrow lines too": lambda: time_heads_too(*NARROW_LINES),
    "without patches": lambda: [patch.object(stages, "PATCHED", 0)],
    "without guided heads": lambda: [patch.object(stages, "GUIDED", ((), ()))],
    "guided heads once": lambda: [patch.object(stages, "GUIDED", stages.GUIDED[-1:])],
    "guided heads without 256 steps": lambda: [patch.object(stages, "GUIDED", (stages.GUIDED[0], stages.GUIDED[1][:2]))],
    "one bandwidth of the pilot, 0.6": lambda: pilot_bandwidths(0.6),
    "without segments": lambda: [patch.object(stages, "_segments", nothing)],
    "segments of 32 points": lambda: [patch.object(segments, "LENGTH", 32)],
    "segments at the cost of other heads": lambda: [patch.object(segments, "SEARCH", 1.0)],
    "without waves and segments": lambda: [patch.object(stages, "wiener_lengths", lambda points: ())],
    "waves of 32, 128 and 512 points": lambda: [patch.object(wiener, "LENGTHS", wiener.LENGTHS[1::2])],
    "without waves that the pilot lost": lambda: [
        Part(f"{BANK_STAGES}.lost_waves", lambda series, pilot: np.zeros(pilot.shape))
    ],
    "half as many windows": lambda: [patch.object(wiener, "OVERLAP", 4)],
    "averages of 240 points alone": lambda: [patch.object(mixture, "WIDTHS", (240, 1920))],
    "a temperature of 3": lambda: [patch.object(mixture, "TEMPERATURE", 3.0)],
    "without a premium": lambda: [patch.object(stages, "PREMIUM", 0.0)],
    "a premium of 0.3": lambda: [patch.object(stages, "PREMIUM", 0.3)],
}
PARTS = {"hypotheses": HYPOTHESES, "levels": LEVELS, "outliers": TAILS, "heads": HEADS}
VARIANTS: dict[str, Callable[[], list[Any]]] = {"all": list, **HYPOTHESES, **LEVELS, **TAILS, **HEADS}


def measured(job: tuple[Cell, list[str]]) -> dict[str, Any]:
    """The mean squared error of each variant in one cell; an infinite one where a variant fails, but the smoother as it is must not.

    A variant all of whose parts return in this cell what takes their place is not smoothed again: nothing changes.
    """
    warnings.simplefilter("ignore")
    cell, names = job
    truth, x = cell.series()
    changes = {name: VARIANTS[name]() for name in names}
    active: set[Part] = set()
    errors: dict[str, float] = {}
    stated: dict[str, float | None] = {}
    for name, changed in changes.items():
        if name != "all" and changed and not active.intersection(changed) and all(isinstance(one, Part) for one in changed):
            errors[name], stated[name] = errors["all"], stated["all"]
            continue
        with ExitStack() as stack:
            for part in {one for every in changes.values() for one in every if isinstance(one, Part)} if name == "all" else ():
                stack.enter_context(patch(part.target, part.observer(active)))
            for one in changed:
                stack.enter_context(patch(*one) if isinstance(one, Part) else one)
            try:
                result = analyze(x)
                errors[name] = float(np.mean((result.values - truth) ** 2))
                stated[name] = float(result.risk) if result.estimable else None
            except Exception:
                if name == "all":
                    raise
                errors[name], stated[name] = float("inf"), None
    return cell._asdict() | {"errors": errors, "stated": stated}


def misstated(row: dict[str, Any], variant: str) -> bool:
    """Whether the stated error is below a third of the true one."""
    stated = row["stated"][variant]
    return stated is not None and stated < row["errors"][variant] / 3


def summarized(rows: list[dict[str, Any]], variants: list[str]) -> dict[str, dict[str, Any]]:
    """Each variant: what it comes to in each kind of noise, its worst cell, and whether what it is without brings nothing."""
    table: dict[str, dict[str, Any]] = {}
    for variant in variants:
        ratios = {
            kind: np.array([row["errors"][variant] / row["errors"]["all"] for row in rows if row["kind"] == kind])
            for kind in ALL_KINDS
        }
        of_all = np.concatenate([*ratios.values()])
        means = {kind: round(float(np.exp(np.log(of_kind).mean())), 3) for kind, of_kind in ratios.items() if of_kind.size}
        at = int(of_all.argmax())
        table[variant] = {
            "geometric mean": round(float(np.exp(np.log(of_all).mean())), 4),
            "largest": round(float(of_all.max()), 2),
            "carried": int((of_all > 1.02).sum()),
            "hindered": int((of_all < 1 / 1.02).sum()),
            "misstated": sum(misstated(row, variant) and not misstated(row, "all") for row in rows),
            "goes": bool(max(means.values()) < 1.02 and of_all.max() < 1.2),
            "largest of": [row["signal"] for kind in ALL_KINDS for row in rows if row["kind"] == kind][at],
            "kinds": means,
        }
    return table


def main() -> None:
    """Measure every cell in all variants, as long as there is time."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--draws", type=int, default=1, help="of each signal, size, kind and level")
    options.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="only these variants")
    options.add_argument("--quick", action="store_true", help="one short series of each kind of noise")
    options.add_argument("--minutes", type=float, default=np.inf, help="stop after so many minutes")
    options.add_argument("--log", type=Path, help="store every cell here, and read those that are there")
    results.takes_out(options)
    requested = options.parse_args()
    names = ["all", *(name for part in requested.part for name in PARTS[part])]
    lines = requested.log.read_text().splitlines() if requested.log and requested.log.exists() else []
    rows = [row for row in map(json.loads, lines) if [*row["errors"]] == names]
    done, until = {tuple(row[field] for field in Cell._fields) for row in rows}, time.monotonic() + 60 * requested.minutes
    jobs = [(cell, names) for cell in cells(quick=requested.quick, draws=requested.draws) if tuple(cell) not in done]
    with ProcessPoolExecutor(requested.processes) as pool:
        for start in range(0, len(jobs), 4 * requested.processes):
            for row in pool.map(measured, jobs[start : start + 4 * requested.processes]):
                rows.append(row)
                if requested.log:
                    with requested.log.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            if time.monotonic() > until:
                break
    table = summarized(rows, names)
    for variant, row in table.items():
        print(f"{variant:44} {row['geometric mean']:7.4f} {row['largest']:9.2f} {row['largest of']:10} {row['carried']:5} "
              f"{row['hindered']:5} {row['misstated']:5} {'goes' if row['goes'] else ''}", flush=True)  # fmt: skip
    results.write(requested.out, points=POINTS, cells=len(rows), kinds=ALL_KINDS, variants=table)


if __name__ == "__main__":
    main()
