"""How strong the noise of a series is, whether that changes, and whether it is white, found without knowing its signal."""

from dataclasses import dataclass

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import JUDGED, contrasts, trimmed

# Lines that a point is compared with: through the neighbours 1 and 1, 2 and 1, 1 and 2 places away.
LINES = ((0, 1, 2), (0, 2, 3), (0, 1, 3))
# What a signal raises depends on the order: jumps the high ones, waves the low ones. Noise is what all of them see.
ORDERS = (2, 3, 5)
# Parts of a series whose levels are compared.
STRETCHES = 8


@dataclass(frozen=True)
class Noise:
    """What is known of a series' noise: its standard deviation, where that varies, and whether it is white."""

    level: float  # of one value of weight 1
    levels: Floats | None  # (n,) of each value at weight 1, where they differ
    white: bool  # independent from point to point, as far as can be told
    reason: str  # one sentence where it is not white


def estimate(times: Floats, values: Floats, weights: Floats | None = None) -> Noise:
    """The noise of a series, whatever smooth, jumpy or spiky signal lies under it.

    **level**: how far each x_i lies off lines through two neighbours, one or two places away (`contrasts`), scaled to unit
    variance at σ = 1; the standard deviation of these, those beyond 2.5 of it left out as signal (`trimmed`). The residuals
    are those of Gasser, Sroka and Jennen-Steinmetz (1986), who take the root of their mean square: on 1,024 points of the
    signal "bumps" at a signal-to-noise ratio of 7 that reads 46% high, this 5%. On white normal noise its relative
    standard error is 1/√n, half as efficient as if there were no signal. It is the level of the bulk of the values: noise
    with t's heavy tails at 4 degrees of freedom reads 14% under its standard deviation. Lines and exact steps have level 0.

    **levels**: the levels of eight stretches, smoothed by medians of three (Tukey 1977, chapter 7) and interpolated, where the
    largest of these exceeds the smallest by a factor above exp(11/√n + 70/n). `level` is then their root mean square. A
    noise that doubles from end to end shows from some 1,000 points; one that follows the value, or the hour, does not.

    **white**: where values err independently, differences over two and three places are as large as those over one;
    where neighbours err alike they are larger. Of second, third and fifth differences (all must agree, as jumps raise the
    high orders and waves the low ones),

        S = log(level over 2 · level over 3 / level over 1²): 0 for white noise of any distribution, 0.9 for a random walk,

    and the noise is not white where S > 6.2/√n + 70/n + 0.02 or S < −6.2/√n − 0.02, n at most 50,000. The numbers of
    these bounds are simulated: false alarms stay near or under 1% on the test signals of Donoho and Johnstone (1994), on kinks
    and on waves of 25 points and longer, at signal-to-noise ratios to 7, from 200 points. At equal steps AR(1) noise of 0.3
    is found in 85% of series of 1,024 points (60% at random times), of −0.3 in all (93%); a random walk in 55% of 200
    points, nearly all of 400. Not told apart: correlated noise from waves of less than some 20 points or steps every few
    points; white noise from one whose correlations begin beyond three places. Under 100 points hardly anything is found.

    times (n,) ascending, equal ones allowed; values (n,) without NaN; weights (n,): the variance of value i is σ²/w_i, and
    a value of weight 0 says nothing.

    >>> noise = np.random.default_rng(0).normal(size=10_000)
    >>> found = estimate(np.arange(10_000.0), noise)
    >>> round(found.level, 2), found.levels, found.white
    (1.0, None, True)
    >>> estimate(np.arange(10_000.0), noise.cumsum()).reason.partition(":")[0]
    'Neighbouring values move together'
    """
    if weights is None:
        weights = np.ones_like(values)
    known = weights > 0
    moments, weights = times[known], weights[known]
    steps = np.diff(moments)
    even = steps.size > 0 and np.ptp(steps) <= 1e-9 * steps[0]
    series = None if even else moments, values[known]
    residuals = [contrasts(*series, weights, places) for places in LINES]
    level = trimmed(np.concatenate(residuals))
    if level <= 8 * np.finfo(float).eps * np.max(np.abs(series[1]), initial=0.0):
        return Noise(0.0, None, True, "")
    levels = _varying(residuals, times, moments)
    if levels is not None:
        level, weights = float(np.sqrt(np.mean(levels[known] ** 2))), weights / levels[known] ** 2
    reason = _not_white(*series, weights)
    return Noise(level, levels, not reason, reason)


def _varying(residuals: list[Floats], times: Floats, known: Floats) -> Floats | None:
    parts = zip(*(np.array_split(kind, STRETCHES) for kind in residuals), strict=True)
    found = np.array([trimmed(np.concatenate(part)) for part in parts])
    if found.min() == 0.0:
        return None  # too short, or exact steps in places
    logs = np.log(found)
    middle = np.median([logs[:-2], logs[1:-1], logs[2:]], axis=0)
    if np.ptp(middle) <= 11 / known.size**0.5 + 70 / known.size:
        return None
    # The ends: the median of the end itself, its neighbour, and the line through the next two.
    first = np.median([logs[0], middle[0], 3 * middle[0] - 2 * middle[1]])
    last = np.median([logs[-1], middle[-1], 3 * middle[-1] - 2 * middle[-2]])
    centres = known[((np.arange(STRETCHES) + 0.5) * known.size / STRETCHES).astype(int)]
    return np.exp(np.interp(times, centres, [first, *middle, last]))


def _not_white(times: Floats | None, values: Floats, weights: Floats) -> str:
    ratios = []
    for order in ORDERS:
        spans = (range(0, order * lag + 1, lag) for lag in (1, 2, 3))
        near, second, third = (trimmed(contrasts(times, values, weights, places)) for places in spans)
        if min(near, second, third) == 0.0:
            return ""  # too short, or mostly exact steps: nothing to go by
        ratios.append(np.log(second * third / near**2))
    judged = min(values.size, JUDGED)
    bound = 6.2 / judged**0.5 + 0.02
    if min(ratios) > bound + 70 / judged:
        return _told("together", min(ratios), "a random walk, correlated noise, or what was smoothed before")
    if max(ratios) < -bound:
        return _told("against each other", max(ratios), "noise that overcorrects itself, or a zigzag")
    return ""


def _told(how: str, ratio: float, examples: str) -> str:
    return (
        f"Neighbouring values move {how}: their differences over two and three places are {np.exp(ratio / 2):.2g} times those "
        f"over one, where independent noise has 1, as in {examples}."
    )
