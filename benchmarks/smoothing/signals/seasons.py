"""The period that `period="auto"` names, and the one that a report suggests, for series whose season is known.

    python -m smoothing.seasons 100 118

draws each kind once for each seed, in the folder benchmarks. Seeds below 100 were looked at while the rules were chosen; those from 100 on
were measured once.
"""

import sys

import numpy as np

from overt.smoothing.data.series import arrange
from overt.smoothing.seasons.detect import find_periods, suggested_period

DAY, HOUR, NEAR = 86400.0, 3600.0, 0.02
WEEKS = {
    "weekend": [1, 1, 1, 1, 1, 0, 0],
    "two bumps": [0, 0, 1, 0, 0, 1, 0],
    "random": None,
    "one day": [1, 0, 0, 0, 0, 0, 0],
    "a half and more": [1, 0, 0, 1, 0.6, 0, 0],
}


def weekly(shape, draw):
    """A year of days: a week with noise of a sixth to a half of its height, on a slope, and with or without the seasons of a year."""
    days = np.arange(365)
    week = draw.normal(size=7) if shape is None else np.roll(shape, draw.integers(7)) + 0.1 * draw.random(7)
    slow = draw.choice([0, 3]) * np.sin(2 * np.pi * days / 365) + days / 365 * draw.normal() * 4
    return 7, arrange(slow + draw.uniform(2, 6) * week[days % 7] + draw.normal(size=365), days * DAY), True


def two_humps(draw):
    """Hours with a morning and an evening, on a slow walk."""
    hours = np.arange(24 * 35)
    humps = np.exp(-((hours % 24 - 8) ** 2) / 4) + draw.uniform(0.5, 0.9) * np.exp(-((hours % 24 - 19) ** 2) / 6)
    return (
        24,
        arrange(5 * humps + np.cumsum(draw.normal(size=hours.size)) * 0.05 + draw.normal(size=hours.size), hours * HOUR),
        True,
    )


def half_years(draw):
    """Months whose half year is larger than their year."""
    months = np.arange(240)
    waves = np.cos(2 * np.pi * months / 6) + draw.uniform(0.4, 0.8) * np.cos(2 * np.pi * months / 12 + 1)
    return 12, arrange(3 * waves + months * 0.02 + draw.normal(size=240), months.astype(float)), False


def sine(draw):
    """A wave of any period between 8 and 30 steps."""
    period, steps = draw.uniform(8, 30), np.arange(400.0)
    return period, arrange(2 * np.sin(2 * np.pi * steps / period) + draw.normal(size=400), steps), False


def noise(draw):
    """Days without a season."""
    return None, arrange(draw.normal(size=300), np.arange(300) * DAY), True


def walk(draw):
    """A random walk over days."""
    return None, arrange(np.cumsum(draw.normal(size=300)), np.arange(300) * DAY), True


KINDS = {f"weeks, {name}": lambda draw, shape=shape: weekly(shape, draw) for name, shape in WEEKS.items()}
KINDS |= {"two humps a day": two_humps, "half years": half_years, "sine": sine, "noise": noise, "walk": walk}


def named(kind, seed):
    """Whether the period, or none, is found, and whether it is suggested."""
    period, series, dates = kind(np.random.default_rng(seed))
    periods, suggested = find_periods(series, dates), suggested_period(series, dates=dates)
    if period is None:
        return periods == (), suggested is None
    near = [abs(one / period - 1) < NEAR for one in periods]
    return any(near) and min(periods) > (1 - 5 * NEAR) * period, suggested is not None and abs(suggested / period - 1) < NEAR


if __name__ == "__main__":
    seeds = range(*map(int, sys.argv[1:3]))
    for name, kind in KINDS.items():
        periods, suggested = np.sum([named(kind, seed) for seed in seeds], axis=0)
        print(f"{name:24} named {periods} of {len(seeds)}, suggested {suggested}")
