"""What a smooth signal leaves no trace in: sums of neighbouring values that cancel every polynomial of low degree."""

from collections.abc import Sequence
from math import prod

import numpy as np

from overt.smoothing.data.series import Floats

# More contrasts of one kind would not tell a level to less than half a percent.
JUDGED = 50_000
# Contrasts beyond this many standard deviations are signal: jumps, spikes, outliers.
TRIM = 2.5
# Of a normal distribution: the mean square of what lies within TRIM, and the third quartile of |x|.
KEPT = 0.9112564
THIRD_QUARTILE = 1.1503494


def contrasts(times: Floats | None, values: Floats, weights: Floats, places: Sequence[int]) -> Floats:
    """Divided differences Σ_j c_j x_{i + places[j]} along a series, each with the variance of one value of weight 1.

    With m + 1 places, c_j ∝ Π_{k≠j} 1/(t_j − t_k) is, but for a factor, the one sum that vanishes for every polynomial of
    degree below m in time: at equal steps the binomials (1, −2, 1), (1, −3, 3, −1), …. Here Σ_j c_j²/w_j = 1. Neighbours
    at one and the same time count as evenly spaced; where more coincide than the sum can take, there is none.

    times (n,) ascending, None for equal steps; values (n,); weights (n,) above 0. At most `JUDGED`, at equal distances
    in the series.

    >>> contrasts(None, np.array([0.0, 1.0, 4.0, 9.0, 16.0]), np.ones(5), (0, 1, 2)) * np.sqrt(6)
    array([2., 2., 2.])
    """
    count = values.size - places[-1]
    if count <= 0:
        return np.empty(0)
    stride = -(-count // JUDGED)
    parts = [slice(place, place + count, stride) for place in places]
    if times is None:
        coefficients = _coefficients([np.array([place], float) for place in places], places)  # (1,) each: the same for all
    else:
        coefficients = _coefficients([times[part] for part in parts], places)  # (count,) each
    sums, variances = np.zeros(weights[parts[0]].size), np.zeros(weights[parts[0]].size)
    for coefficient, part in zip(coefficients, parts, strict=True):
        sums += coefficient * values[part]
        variances += coefficient**2 / weights[part]
    if times is not None:
        sums, variances = sums[variances > 0], variances[variances > 0]
    return sums / np.sqrt(variances)


def _coefficients(moments: list[Floats], places: Sequence[int]) -> list[Floats]:
    # All of them multiplied by Π_{a<b} (t_b − t_a), so that nothing is divided by a distance that may be 0.
    span = moments[-1] - moments[0]
    spread = np.where(span > 0, span, 1.0)
    at = [np.where(span > 0, (m - moments[0]) / spread, p / places[-1]) for m, p in zip(moments, places, strict=True)]
    order = range(len(at))
    gaps = {(a, b): at[b] - at[a] for b in order for a in range(b)}
    return [(-1) ** j * prod((gap for pair, gap in gaps.items() if j not in pair), start=np.ones_like(span)) for j in order]


def trimmed(residuals: Floats) -> float:
    """Standard deviation of residuals, of which those beyond 2.5 standard deviations count as signal.

    The fixed point of s² = mean of r² over |r| ≤ 2.5 s, divided by 0.911, which it is for a normal distribution, reached
    from 2·(third quartile of |r|)/1.15 downwards. Residuals of which three quarters are 0 have a deviation of 0.

    >>> round(trimmed(np.array([1.0, -1.0, 1.0, -1.0, 100.0])), 2)
    1.05
    """
    if residuals.size == 0:
        return 0.0
    squares = residuals**2
    level = 4 * float(np.quantile(squares, 0.75)) / THIRD_QUARTILE**2
    while level > 0:
        squares = squares[squares <= TRIM**2 * level]
        lower = float(squares.mean()) / KEPT if squares.size else 0.0
        if lower > level * (1 - 1e-6):
            break
        level = lower
    return float(np.sqrt(level))
