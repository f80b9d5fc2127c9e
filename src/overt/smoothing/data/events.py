"""Rare events: zeros at most points, and amounts at some points. Means of several points are smoothed instead of the values."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats
from overt.smoothing.noise.peaks import autocovariances

# LEAST_EVENTS, LEAST_POINTS: fewest events and points; MOST: largest share of events; LEAST_EQUAL: least share of equal neighbours.
LEAST_EVENTS, LEAST_POINTS, MOST, LEAST_EQUAL = 25, 100, 0.7, 0.08
# SCATTERED: least share of the changes between event and pause that independent events would have; fewer changes are runs with levels.
SCATTERED = 0.5
# VARIATION: least variation of amounts, over their mean, unless all are equal; amounts that vary less are a curve with dropouts.
VARIATION = 0.3
# REGULAR: largest autocorrelation of irregular events; events beyond it recur at the same times of a week or a day.
REGULAR = 0.5
# OF_A_MEAN: events in a mean, about: fewer leave it far from normal, more hide quick changes (means of 4, 6, 8 and 10 have the same error
# to 2% on the development signals of benchmarks/smoothing/noise_kinds.py, drawn again). LEAST_MEANS: fewest means of a series.
OF_A_MEAN, LEAST_MEANS = 8, 12
# SMALLEST: least curve in the variance, as a part of the curve's mean; both are distances from the value of pauses.
SMALLEST = 0.05
NOT_NORMAL = "Means of a few events are not normal, and a band would be too narrow."


def event_length(values: Floats) -> int:
    """The number of points per mean if the values (n,) are rare events at irregular points; 1 for other values.

    Points without an event have one value, the smallest or the largest. A single amount is weak evidence of the mean and far from
    normal; sums are nearer to normal (Nikolopoulos et al. 2011, on intermittent demand).

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
    """Whether events and pauses mostly repeat after some lag."""
    share = float(events.mean())
    return bool(autocovariances(events.astype(np.float64))[2:].max(initial=0.0) > REGULAR * share * (1 - share))


def event_levels(values: Floats, curve: Floats, length: int) -> Floats:
    """The standard deviations (n,) of means of `length` values (n,) about a curve (n,), for variances c·curve^p with p of 0, 1 or 2.

    A curve that follows the frequency of events has p = 1, one that follows their size p = 2. The p of largest normal likelihood is used.
    """
    squares = (values - curve) ** 2
    means = np.maximum(np.abs(curve - _nothing(values)), SMALLEST * np.abs(curve - _nothing(values)).mean())
    laws = [means**power * np.mean(squares / means**power) for power in (0, 1, 2)]
    variances = max(laws, key=lambda law: -float(np.sum(np.log(law) + squares / law)))
    return np.sqrt(variances / length)


def _nothing(values: Floats) -> float:
    """The value of points without an event: the median of the values that equal the previous one."""
    return float(np.median(values[1:][np.diff(values) == 0]))


def event_means(values: Floats, length: int) -> Floats:
    """The means of `length` values in a row, at the middle point, NaN elsewhere (n,); some values at the ends are in no mean.

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
