"""Signals that repeat, many as quickly as noise, in two halves: drawn anew for every series.

Waves are told from noise by settings that were chosen on the development half; the test half was written before it was measured.
"""

import numpy as np

from benchmarks.smoothing.signals.kinds import Signal


def square(t, draw):
    """A square wave of 4 to 30 periods."""
    return np.sign(np.sin(2 * np.pi * t * draw.uniform(4, 30) + draw.uniform(0, 6)) + draw.uniform(-0.5, 0.5))


def sawtooth(t, draw):
    """A sawtooth of 4 to 30 periods."""
    return (t * draw.uniform(4, 30) + draw.uniform()) % 1 * draw.choice([-1, 1])


def gated(t, draw):
    """A tone that sounds for a part of the time, on a slow wave."""
    first = draw.uniform(0, 0.6)
    sounds = (t > first) & (t < first + draw.uniform(0.15, 0.4))
    return np.sin(2 * np.pi * t * draw.uniform(25, 200)) * sounds + 0.3 * np.sin(5 * t)


def tones(t, draw):
    """One or two tones of 2.5 to 12 points, on a slow wave."""
    second = draw.choice([0, 1]) * np.sin(2 * np.pi * t * draw.uniform(85, 400))
    return np.sin(2 * np.pi * t * draw.uniform(85, 400)) + second + np.cos(4 * t)


def weeks(t, draw):
    """A pattern of seven values, on a slow wave."""
    pattern = draw.normal(size=7)
    return pattern[np.arange(t.size) % 7] + 2 * np.cos(3 * t + draw.uniform(0, 6))


def pulses(t, draw):
    """Jumps that decay, 8 to 25 of them."""
    return np.exp(-(t * draw.uniform(8, 25) % 1) * draw.uniform(5, 30))


def two_waves(t, draw):
    """Two sines of 8 to 60 periods."""
    first, second = draw.uniform(8, 60, 2)
    return np.sin(2 * np.pi * first * t) + np.sin(2 * np.pi * second * t + 1)


def stairs(t, draw):
    """A quick tone on stairs."""
    return 0.3 * np.floor(t * draw.uniform(5, 15)) + np.sin(2 * np.pi * t * draw.uniform(90, 200))


def triangles(t, draw):
    """A triangle wave of 5 to 40 points."""
    phase = np.arange(t.size) / draw.uniform(5, 40) + draw.uniform()
    return np.abs(phase % 1 - 0.5)


def tides(t, draw):
    """Hourly values with the four largest constituents of a tide, in days' and half days' waves."""
    periods, sizes = (12.42, 12.0, 23.93, 25.82), draw.uniform(0.2, 1, 4)
    turns = np.arange(t.size)[:, None] / periods + draw.uniform(size=4)
    return np.cos(2 * np.pi * turns) @ sizes


def hum(t, draw):
    """A smooth step with a hum of 2.2 to 8 points."""
    return 1 / (1 + np.exp(-20 * (t - draw.uniform(0.3, 0.7)))) + 0.5 * np.sin(
        2 * np.pi * np.arange(t.size) / draw.uniform(2.2, 8)
    )


def alternation(t, draw):
    """Every other value higher, on a slow wave."""
    return np.sin(6 * t + draw.uniform(0, 6)) + draw.uniform(0.3, 1) * (-1) ** np.arange(t.size)


def fortnights(t, draw):
    """A pattern of fourteen values, on a line."""
    return draw.normal(size=14)[np.arange(t.size) % 14] + 2 * t


def half_a_tone(t, draw):
    """A quick tone in the second half alone."""
    return (t > 0.5) * np.sin(2 * np.pi * np.arange(t.size) / draw.uniform(3, 12)) + np.cos(3 * t)


def swelling(t, draw):
    """A quick tone that grows."""
    return t * np.sin(2 * np.pi * np.arange(t.size) / draw.uniform(3, 12)) + 0.5 * np.sin(5 * t)


def switched(t, draw):
    """A quick tone that turns into another in the middle."""
    first, second = draw.uniform(3, 12, 2)
    return np.sin(2 * np.pi * np.arange(t.size) / np.where(t < 0.5, first, second))


HALVES: dict[str, list[Signal]] = {
    "development": [square, sawtooth, gated, tones, weeks, pulses, two_waves, stairs],
    "test": [triangles, tides, hum, alternation, fortnights, half_a_tone, swelling, switched],
}
# The kinds of noise.
KINDS = [
    "white",
    "t with 3 degrees of freedom",
    "5% outliers",
    "a level that ramps",
    "a level that grows with the value",
    "autoregression, 0.5",
    "autoregression, 0.8",
    "autoregression, −0.4",
]
