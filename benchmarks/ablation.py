"""What each part and constant of the default smoother brings: its error without it, or with another, over its error as it is.

    OMP_NUM_THREADS=1 python benchmarks/ablation.py [--processes N] [--out docs/results/smoothing-ablation.json]

On the development signals (smoothing/development.py) of 1,024 points under four kinds of noise, at two ratios of signal to noise.
"""

import argparse
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import results
from smoothing.development import POINTS, RATIOS, SIGNALS, development_series

from overt.smoothing import analyze
from overt.smoothing.selection.bank import candidates, mixture, noisy_series, segments, stages, wiener
from overt.smoothing.selection.bank.risk_sums import HeadOutputs

NOISES = ("white", "5% outliers", "bursts", "autoregression, −0.4")
ANALYSIS, NOISE = "overt.smoothing.analysis", "overt.smoothing.selection.noise"


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


def patches(*kinds: tuple[int, np.ndarray]) -> list[Any]:
    """Patches of these kinds, though the series are long."""
    return [patch.object(candidates, "PATCHES", kinds), patch.object(stages, "PATCHED", np.inf)]


NARROW_LINES = [(float(h), 1, "both") for h in candidates.NARROW]
ONE_SIDED = [(2.0**h, degree, side) for h in range(8) for degree in (0, 1) for side in ("past", "future")]
PATCHES, ELEVEN = candidates.PATCHES, (5, 2.0 ** np.arange(0.5, 2.5, 0.5))
VARIANTS: dict[str, Callable[[], list[Any]]] = {
    "all": list,
    "without wide lines": lambda: without("line, "),
    "without parabolas": lambda: without("parabola"),
    "without extrapolated parabolas": lambda: without("extrapolated"),
    "without bandwidths of the whole series": lambda: [patch.object(candidates, "WHOLE", ())],
    "narrow lines too": lambda: time_heads_too(*NARROW_LINES),
    "means and lines of one side too": lambda: time_heads_too(*ONE_SIDED),
    "patches, as in short series": lambda: patches(*PATCHES),
    "patches, those of 11 points too": lambda: patches(*PATCHES, ELEVEN),
    "patches at every other bandwidth": lambda: patches(*((half, scales[::2]) for half, scales in PATCHES)),
    "patches within 30 points": lambda: [*patches(*PATCHES), patch.object(candidates, "PATCH_WINDOW", 30)],
    "patches within 120 points": lambda: [*patches(*PATCHES), patch.object(candidates, "PATCH_WINDOW", 120)],
    "segments under tails as under normal noise": lambda: [patch.object(noisy_series, "FAR_OUT", np.inf)],
    "without guided heads": lambda: [patch.object(stages, "GUIDED", ((), ()))],
    "guided heads once": lambda: [patch.object(stages, "GUIDED", stages.GUIDED[-1:])],
    "guided heads without 256 steps": lambda: [patch.object(stages, "GUIDED", (stages.GUIDED[0], stages.GUIDED[1][:2]))],
    "first guided by 16 and 64 steps": lambda: [patch.object(stages, "GUIDED", ((16.0, 64.0), stages.GUIDED[1]))],
    "a guided window of 1.5 bandwidths": lambda: [patch.object(candidates, "GUIDED_WINDOW", 1.5)],
    "a guided window of 3 bandwidths": lambda: [patch.object(candidates, "GUIDED_WINDOW", 3.0)],
    "one bandwidth of the pilot, 0.6": lambda: pilot_bandwidths(0.6),
    "two bandwidths of the pilot, 1.0 and 0.4": lambda: pilot_bandwidths(1.0, 0.4),
    "four bandwidths of the pilot, 1.6 to 0.2": lambda: pilot_bandwidths(1.6, 0.8, 0.4, 0.2),
    "without segments": lambda: [patch.object(stages, "_segments", lambda *inputs: None)],
    "segments of 32 points": lambda: [patch.object(segments, "LENGTH", 32)],
    "segments at the cost of other heads": lambda: [patch.object(segments, "SEARCH", 1.0)],
    "without waves and segments": lambda: [patch.object(stages, "wiener_lengths", lambda points: ())],
    "waves of 16 to 256 points": lambda: [patch.object(wiener, "LENGTHS", wiener.LENGTHS[:-2])],
    "waves of 32, 128 and 512 points": lambda: [patch.object(wiener, "LENGTHS", wiener.LENGTHS[1::2])],
    "half as many windows": lambda: [patch.object(wiener, "OVERLAP", 4)],
    "averages of 240 points alone": lambda: [patch.object(mixture, "WIDTHS", (240, 1920))],
    "averages of 1,920 points alone": lambda: [patch.object(mixture, "WIDTHS", (1920,))],
    "a temperature of 3": lambda: [patch.object(mixture, "TEMPERATURE", 3.0)],
    "a temperature of 2": lambda: [patch.object(mixture, "TEMPERATURE", 2.0)],
    "without a premium": lambda: [patch.object(stages, "PREMIUM", 0.0)],
    "a premium of 0.3": lambda: [patch.object(stages, "PREMIUM", 0.3)],
    "one level of noise": lambda: [patch(f"{NOISE}.varying_levels", lambda *inputs: None)],
    "no second look at the level": lambda: [patch(f"{ANALYSIS}.residual_levels", lambda *inputs: None)],
    "no third look at the level": lambda: [patch(f"{ANALYSIS}.LEVEL_PASSES", 1)],
    "correlation not estimated": lambda: [patch(f"{NOISE}.MIN_CORRELATED", np.inf)],
    "outliers kept": list,
}


def errors(variant: str) -> dict[str, list[float]]:
    """The mean squared errors of a variant, by noise, in the order of signals and ratios."""
    warnings.simplefilter("ignore")
    robust = False if variant == "outliers kept" else "auto"
    cells = [(signal, ratio) for signal in SIGNALS for ratio in RATIOS]
    by_noise: dict[str, list[float]] = {noise: [] for noise in NOISES}
    with ExitStack() as stack:
        for changed in VARIANTS[variant]():
            stack.enter_context(changed)
        for noise in NOISES:
            for signal, ratio in cells:
                truth, x = development_series(signal, noise, ratio)
                by_noise[noise].append(float(np.mean((analyze(x, robust=robust).values - truth) ** 2)))
    return by_noise


def main() -> None:
    """Measure all variants, each in one process."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--processes", type=int, default=2)
    results.takes_out(options)
    requested = options.parse_args()
    with ProcessPoolExecutor(requested.processes) as pool:
        measured = dict(zip(VARIANTS, pool.map(errors, VARIANTS), strict=True))
    table: dict[str, dict[str, Any]] = {}
    for variant, by_noise in measured.items():
        table[variant] = {}
        for noise, each in by_noise.items():
            ratios = np.array(each) / np.array(measured["all"][noise])
            table[variant][noise] = {
                "geometric mean": round(float(np.exp(np.log(ratios).mean())), 3),
                "largest": round(float(ratios.max()), 2),
            }
        print(f"{variant:40} {[cell['geometric mean'] for cell in table[variant].values()]}", flush=True)
    results.write(requested.out, points=POINTS, cells=len(SIGNALS) * len(RATIOS), variants=table)


if __name__ == "__main__":
    main()
