"""Series with the kinds of noise that real ones carry, in two halves: eight families of signals each, drawn anew for every series.

The settings of the smoother were chosen on the development half; the test half was frozen before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

POINTS = 1024
RATIOS = (1.5, 3.0, 6.0)  # signal to noise, by seed in turn
TOPS = (4, 15, 60, 200)  # of Poisson counts
Draw = np.random.Generator
Signal = Callable[[np.ndarray, Draw], Any]


def waves(t, draw):
    """Three sines of 1 to 9 periods."""
    return sum(draw.uniform(0.3, 1) * np.sin(2 * np.pi * (draw.uniform(1, 9) * t + draw.uniform())) for _ in range(3))


def hinges(t, draw):
    """Straight lines that meet at six points."""
    return np.interp(t, np.sort(np.concatenate([[0], draw.uniform(size=6), [1]])), draw.normal(size=8))


def sigmoids(t, draw):
    """Four smooth steps of different steepness."""
    return sum(
        draw.choice([-1, 1]) * draw.uniform(0.4, 1) / (1 + np.exp(-(t - draw.uniform(0.1, 0.9)) * 10 ** draw.uniform(1.2, 2.6)))
        for _ in range(4)
    )


def steps(t, draw):
    """Seven jumps between constants."""
    return np.sum([draw.normal() * (t > edge) for edge in draw.uniform(0.03, 0.97, 7)], axis=0)


def peaks(t, draw):
    """Seven Gaussian peaks."""
    return sum(
        draw.uniform(0.4, 1) * np.exp(-0.5 * ((t - draw.uniform(0.05, 0.95)) / 10 ** draw.uniform(-2.4, -1.5)) ** 2)
        for _ in range(7)
    )


def beats(t, draw):
    """A periodic pulse with a dip and an echo."""
    phase = t * draw.uniform(8, 16) % 1
    bumps = ((1, 0.5, 0.03), (-0.3, 0.6, 0.05), (0.2, 0.8, 0.08))
    return sum(height * np.exp(-0.5 * ((phase - centre) / width) ** 2) for height, centre, width in bumps)


def chirp(t, draw):
    """A wave that grows quicker and larger."""
    return np.sin(2 * np.pi * (draw.uniform(1, 3) * t + draw.uniform(8, 16) * t**2)) * (0.3 + t)


def parabola(t, draw):
    """A parabola."""
    return draw.uniform(-3, 3) * (t - draw.uniform(0.2, 0.8)) ** 2 + draw.uniform(-1, 1) * t


def saw(t, draw):
    """A sawtooth."""
    return (draw.uniform(3, 7) * t + draw.uniform()) % 1 * draw.uniform(0.5, 1)


def decay(t, draw):
    """A wave that dies away."""
    return np.exp(-draw.uniform(2, 6) * t) * np.cos(2 * np.pi * draw.uniform(4, 10) * t)


def ripple(t, draw):
    """A cardinal sine."""
    return np.sinc((t - draw.uniform(0.3, 0.7)) * draw.uniform(8, 20))


def cusp(t, draw):
    """A cusp on rectified waves."""
    return np.sqrt(np.abs(t - draw.uniform(0.2, 0.8))) + 0.5 * np.abs(np.sin(np.pi * draw.uniform(2, 4) * t))


def plateaus(t, draw):
    """Constants joined by slopes."""
    edges, heights = np.sort(draw.uniform(size=10)), np.repeat(draw.normal(size=6), 2)
    return np.interp(t, np.concatenate([[0], edges, [1]]), heights)


def bursts(t, draw):
    """Three packets of quick waves."""
    return sum(
        np.sin(2 * np.pi * draw.uniform(15, 40) * t) * np.exp(-0.5 * ((t - draw.uniform(0.1, 0.9)) / 0.05) ** 2)
        for _ in range(3)
    )


def logistic(t, draw):
    """Logistic growth with a wave."""
    return 1 / (1 + np.exp(-draw.uniform(6, 14) * (t - draw.uniform(0.3, 0.7)))) + 0.15 * np.sin(
        2 * np.pi * draw.uniform(2, 5) * t
    )


def walk(t, draw):
    """A smoothed random walk."""
    window = np.hanning(9) / np.hanning(9).sum()
    path = np.convolve(np.pad(np.cumsum(draw.normal(size=64)), 4, mode="edge"), window, "valid")
    return np.interp(t, np.linspace(0, 1, 64), path)


HALVES: dict[str, list[Signal]] = {
    "development": [waves, hinges, sigmoids, steps, peaks, beats, chirp, parabola],
    "test": [saw, decay, ripple, cusp, plateaus, bursts, logistic, walk],
}


def scaled(shape: np.ndarray) -> np.ndarray:
    """The shape with a root mean square of 1."""
    return shape / np.sqrt(np.mean(shape**2))


def outliers(truth: np.ndarray, draw: Draw, share: float) -> np.ndarray:
    """White noise, a share of it with 6 to 14 standard deviations more."""
    noise = draw.standard_normal(truth.size)
    struck = draw.choice(truth.size, int(share * truth.size), replace=False)
    noise[struck] += draw.choice([-1, 1], struck.size) * draw.uniform(6, 14)
    return noise


def ramp(truth: np.ndarray, draw: Draw) -> np.ndarray:
    """A level that grows or falls exponentially."""
    level = np.exp(np.linspace(-1, 1, truth.size) * draw.uniform(0.7, 1.4) * draw.choice([-1, 1]))
    return scaled(level) * draw.standard_normal(truth.size)


def burst(truth: np.ndarray, draw: Draw) -> np.ndarray:
    """A level of 3 to 6 within two stretches."""
    t, level = np.arange(truth.size) / truth.size, np.ones(truth.size)
    for _ in range(2):
        centre, half = draw.uniform(0.1, 0.9), draw.uniform(0.03, 0.08)
        level = np.where(np.abs(t - centre) < half, draw.uniform(3, 6), level)
    return level * draw.standard_normal(truth.size)


def by_value(truth: np.ndarray, draw: Draw) -> np.ndarray:
    """A level that grows with the signal."""
    level = 0.2 + draw.uniform(1, 2) * (truth - truth.min()) / np.ptp(truth)
    return scaled(level) * draw.standard_normal(truth.size)


def autoregression(truth: np.ndarray, draw: Draw, rho: float) -> np.ndarray:
    """An autoregression of order one, of variance 1."""
    white, noise = draw.standard_normal(truth.size + 50), np.zeros(truth.size + 50)
    for i in range(1, noise.size):
        noise[i] = rho * noise[i - 1] + white[i]
    return np.sqrt(1 - rho**2) * noise[50:]


def moving_average(truth: np.ndarray, draw: Draw) -> np.ndarray:
    """A moving average of three, of variance 1."""
    return np.convolve(draw.standard_normal(truth.size + 2), np.array([1.0, 0.7, 0.4]) / np.sqrt(1.65), "valid")


NOISES: dict[str, Callable[[np.ndarray, Draw], np.ndarray]] = {
    "white": lambda truth, draw: draw.standard_normal(truth.size),
    "t with 3 degrees of freedom": lambda truth, draw: draw.standard_t(3, truth.size) / np.sqrt(3),
    "Laplace": lambda truth, draw: draw.laplace(size=truth.size) / np.sqrt(2),
    "1% outliers": lambda truth, draw: outliers(truth, draw, 0.01),
    "5% outliers": lambda truth, draw: outliers(truth, draw, 0.05),
    "a level that ramps": ramp,
    "bursts": burst,
    "a level that grows with the value": by_value,
    "autoregression, 0.5": lambda truth, draw: autoregression(truth, draw, 0.5),
    "autoregression, 0.8": lambda truth, draw: autoregression(truth, draw, 0.8),
    "autoregression, −0.4": lambda truth, draw: autoregression(truth, draw, -0.4),
    "Poisson counts": lambda truth, draw: draw.poisson(truth) - truth,
    # Added when the first twelve had been measured; a kind's position is part of its draws.
    "autoregression, 0.95": lambda truth, draw: autoregression(truth, draw, 0.95),
    "moving average": moving_average,
}
POISSON = "Poisson counts"


def nights(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Stretches of the smallest value without noise, at equal distances."""
    period, share = draw.choice([16, 24, 48, 96, 200]), draw.uniform(0.2, 0.6)
    day = (np.arange(truth.size) + draw.integers(period)) % period >= share * period
    truth = np.where(day, truth, truth.min())
    return truth, truth + day * draw.standard_normal(truth.size) / ratio


def stuck(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """One stretch of 30 points to half of the series that stands still, without noise."""
    first, length = draw.integers(truth.size // 2), draw.integers(30, truth.size // 2)
    moves = (np.arange(truth.size) < first) | (np.arange(truth.size) >= first + length)
    truth = np.where(moves, truth, truth[first])
    return truth, truth + moves * draw.standard_normal(truth.size) / ratio


def zero_order_hold(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Every second to sixth value, with its noise, repeated up to the next."""
    every = draw.integers(2, 7)
    noisy = truth + draw.standard_normal(truth.size) / ratio
    return truth, np.repeat(noisy[::every], every)[: truth.size]


def rare_events(truth: np.ndarray, ratio: float, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Amounts at 20 to 60% of the points, zero at the others; the truth is their mean."""
    mean, share = 1 + 0.8 * truth / np.abs(truth).max(), draw.uniform(0.2, 0.6)
    return mean, np.where(draw.random(truth.size) < share, mean / share * draw.gamma(2, 0.5, truth.size), 0.0)


# Values that repeat: the truth that they have, and the series.
REPEATS: dict[str, Callable[[np.ndarray, float, Draw], tuple[np.ndarray, np.ndarray]]] = {
    "flat at night": nights,
    "stuck once": stuck,
    "held values": zero_order_hold,
    "zeros and rare events": rare_events,
}
KINDS = [*NOISES, *REPEATS]


def levels(noise: str) -> int:
    """How many ratios of signal to noise there are, or tops of counts."""
    return len(TOPS if noise == POISSON else RATIOS)


def series(signal: Signal, noise: str, seed: int, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """The truth and the noisy series (n,), of which every so many seeds have the same level."""
    draw = np.random.default_rng([seed, *signal.__name__.encode(), KINDS.index(noise)])
    truth = signal((np.arange(points) + 0.5) / points, draw)
    if noise == POISSON:
        truth = TOPS[seed % len(TOPS)] * (0.03 + 0.97 * (truth - truth.min()) / np.ptp(truth))
        return truth, np.round(truth + NOISES[noise](truth, draw))
    truth = truth / truth.std()
    if noise in REPEATS:
        return REPEATS[noise](truth, RATIOS[seed % len(RATIOS)], draw)
    return truth, truth + NOISES[noise](truth, draw) / RATIOS[seed % len(RATIOS)]
