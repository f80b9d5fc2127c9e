"""Rare events: zeros where nothing happens, and amounts at some of the points. Their means are smoothed, not they themselves."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.noise.peaks import autocovariances

# Events at least, and points; the share of points that have one, at most; and of equal neighbours, at least.
LEAST_EVENTS, LEAST_POINTS, MOST, LEAST_EQUAL = 25, 100, 0.7, 0.08
# Of independent events' changes between something and nothing so many are there at least: else there are runs, each with a level.
SCATTERED = 0.5
# Amounts that vary less, relative to their mean, are a curve with dropouts, unless all are equal.
VARIATION = 0.3
# What so much of repeats itself after some points happens at the same places of a week or a day.
REGULAR = 0.5
# A mean is of so many events, and of so many means a series at least. Fewer events leave it far from normal, more hide quick changes: on
# the development signals of benchmarks/smoothing/noise_kinds.py, drawn again, means of 4, 6, 8 and 10 have the same error to 2%.
OF_A_MEAN, LEAST_MEANS = 8, 12
# A curve that comes nearer to nothing has the variance of this part of its mean.
SMALLEST = 0.05
NOT_NORMAL = "Means of a few events are not normal, and a band would be too narrow."


def event_length(values: Floats) -> int:
    """Of how many points the mean is smoothed, where the values (n,) are rare events at irregular points; 1 where they are not.

    One value, the smallest or the largest, is where nothing happens. A single amount then says little of the mean, and is far from
    normal; sums are nearer to it (Nikolopoulos et al. 2011, of intermittent demand).

    >>> draw = np.random.default_rng(0)
    >>> event_length(np.where(draw.random(500) < 0.4, draw.gamma(2.0, size=500), 0.0))
    23
    >>> event_length(draw.gamma(2.0, size=500))
    1
    """
    differences = np.diff(values)
    equal = differences == 0
    if values.size < LEAST_POINTS or np.isnan(values).any() or equal.mean() < LEAST_EQUAL:
        return 1
    nothing = _nothing(values)
    events = values != nothing
    share, changes = float(events.mean()), float(np.mean(events[1:] != events[:-1]))
    if nothing not in (values.min(), values.max()) or not LEAST_EVENTS <= events.sum() <= MOST * values.size:
        return 1
    amounts = np.abs(values[events] - nothing)
    varied = np.ptp(amounts) == 0 or np.sqrt(np.mean(np.diff(amounts) ** 2) / 2) >= VARIATION * amounts.mean()
    if not varied or changes < SCATTERED * 2 * share * (1 - share) or _are_regular(events):
        return 1
    longest = values.size // LEAST_MEANS
    return min(round(OF_A_MEAN / share), longest - 1 + longest % 2) | 1


def _are_regular(events: NDArray[np.bool_]) -> bool:
    """Whether, after some number of points, events and pauses mostly repeat."""
    share = float(events.mean())
    return bool(autocovariances(events.astype(np.float64))[2:].max(initial=0.0) > REGULAR * share * (1 - share))


def event_levels(values: Floats, curve: Floats, length: int) -> Floats:
    """The standard deviations of means of so many values (n,) about a curve (n,), where their variance is c·curve^p, p one of 0, 1, 2.

    Events that are more frequent have p = 1, and larger ones p = 2. The most likely p, as of normal values, is taken.
    """
    squares = (values - curve) ** 2
    means = np.maximum(np.abs(curve - _nothing(values)), SMALLEST * np.abs(curve - _nothing(values)).mean())
    laws = [means**power * np.mean(squares / means**power) for power in (0, 1, 2)]
    variances = max(laws, key=lambda law: -float(np.sum(np.log(law) + squares / law)))
    return np.sqrt(variances / length)


def _nothing(values: Floats) -> float:
    """The value where nothing happens, of values of which many repeat the one before."""
    return float(np.median(values[1:][np.diff(values) == 0]))


def event_means(values: Floats, length: int) -> Floats:
    """The means of so many values in a row, at the point in their middle, NaN at all other points (n,); at the ends some are left over.

    >>> event_means(np.array([0.0, 3.0, 0.0, 0.0, 0.0, 6.0, 9.0]), 3)
    array([nan,  1., nan, nan,  2., nan, nan])
    """
    count = values.size // length
    first = (values.size - count * length) // 2
    means = np.full(values.size, np.nan)
    means[first + length // 2 + length * np.arange(count)] = (
        values[first : first + count * length].reshape(count, length).mean(axis=1)
    )
    return means
