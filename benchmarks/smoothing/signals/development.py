"""Signals on which the heads and constants of the bank were chosen, beside the development half of `kinds`: drawn anew for every series."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.smoothing.signals.kinds import NOISES, Draw, Signal

POINTS = 1024
RATIOS = (1.5, 6.0)  # signal to noise


def packets(t, draw):
    """Four packets of waves, of different lengths."""

    def packet(centre):
        return np.cos(2 * np.pi * (draw.uniform(20, 50) * (t - centre) + draw.uniform())) * np.exp(
            -0.5 * ((t - centre) / draw.uniform(0.02, 0.08)) ** 2
        )

    return sum(draw.uniform(0.5, 1) * packet(centre) for centre in draw.uniform(0.1, 0.9, 4))


def modulated(t, draw):
    """A wave whose frequency goes up and down."""
    return np.sin(2 * np.pi * (draw.uniform(4, 8) * t + draw.uniform(0.5, 1.5) * np.sin(2 * np.pi * draw.uniform(1, 3) * t)))


def ramps(t, draw):
    """Four to seven straight lines with jumps between."""
    return pieces(t, draw, draw.integers(3, 7), lambda u: draw.normal() + 3 * draw.normal() * u)


def quadratics(t, draw):
    """Five parabolas with jumps between."""
    return pieces(t, draw, 4, lambda u: draw.normal() + 10 * draw.normal() * u + 40 * draw.normal() * u * u)


def pieces(t: np.ndarray, draw: Draw, edges: int, piece: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Pieces of functions of the time since the last edge."""
    bounds = np.concatenate([[0], np.sort(draw.uniform(size=edges)), [1]])
    inside = [(start <= t) & (t < stop) for start, stop in itertools.pairwise(bounds)]
    return np.sum([piece(t - start) * part for start, part in zip(bounds[:-1], inside, strict=True)], axis=0)


def process(t, draw):
    """A Gaussian process, infinitely smooth, of a random length of correlation."""
    waves = np.arange(1, 60)
    falling = np.exp(-0.5 * (np.pi * waves * draw.uniform(0.02, 0.1)) ** 2)
    return (falling * draw.normal(size=59)) @ np.cos(np.pi * np.outer(waves, t) + draw.uniform(0, np.pi))


def rough(t, draw):
    """A process with one derivative: two exponential means of white noise, one after the other."""
    decay, level, slope = np.exp(-1 / (t.size * draw.uniform(0.01, 0.05))), 0.0, 0.0
    path = np.empty(t.size)
    for i, step in enumerate(draw.normal(size=t.size)):
        slope = decay * slope + step
        path[i] = level = decay * level + slope
    return path


def ring(t, draw):
    """Silence, then a wave that dies away."""
    start = draw.uniform(0.1, 0.4)
    after = np.maximum(t - start, 0)
    return np.exp(-draw.uniform(4, 10) * after) * np.sin(2 * np.pi * draw.uniform(6, 16) * after)


def growth(t, draw):
    """A bend into a slope, with a wave."""
    bend = np.log1p(np.exp(draw.uniform(8, 20) * (t - draw.uniform(0.3, 0.6)))) / 10
    return bend + 0.2 * np.sin(2 * np.pi * draw.uniform(1, 3) * t)


def tones(t, draw):
    """Two waves of 6 to 25 periods."""
    return sum(draw.uniform(0.3, 1) * np.sin(2 * np.pi * (draw.uniform(6, 25) * t + draw.uniform())) for _ in range(2))


def slow(t, draw):
    """A cubic with less than one wave."""
    return np.polynomial.polynomial.polyval(t, [0, *draw.normal(size=3)]) + 0.3 * np.sin(2 * np.pi * draw.uniform(0.5, 1) * t)


SIGNALS: list[Signal] = [packets, modulated, ramps, quadratics, process, rough, ring, growth, tones, slow]


def development_series(signal: Signal, noise: str, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """The truth and the noisy series (n,)."""
    draw = np.random.default_rng([7, *signal.__name__.encode(), list(NOISES).index(noise), int(10 * ratio)])
    truth = signal((np.arange(POINTS) + 0.5) / POINTS, draw)
    truth = (truth - truth.mean()) / truth.std()
    return truth, truth + NOISES[noise](truth, draw) / ratio
