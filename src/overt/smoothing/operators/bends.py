"""Whether a curve bends or breaks: changes of slope compared with a smooth curve through all of them.

A sine is followed closely by a few lines that meet, and between its neighbours each of these looks like a change. A smooth curve explains
all of them together: f = a + b t + Σ_k c_k cos(kπu), whose c_k are normal with variances λ k^(−2m) (m = 3, 4: smoother than any
broken line, whose coefficients fall as k^(−2)). Both are compared by their evidence, with a ½ log n for each free coefficient (Schwarz
1978) and the c_k integrated out; breaks are added to the smooth curve if they explain what it does not. Lines that meet are also compared
with the same lines rounded where they meet, which have as many coefficients.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices

# Cosines of a smooth curve, and numbers of all of them in a long series.
COSINES, CELLS = 80, 4_000_000
# The lengths over which a rounded break changes its slope, in the distance to the next one, a sharp one first; sweeps over all breaks.
WIDTHS, SWEEPS = (0.0, 0.4, 0.8, 1.2, 1.6), 3
# How quickly their variances fall, and the ratio of neighbouring λ, each as likely.
POWERS, AMOUNTS = (3, 4), 10.0 ** np.arange(-4.0, 9.0)


def smooth_columns(times: Floats) -> tuple[Floats, Floats]:
    """t² and cosines of times (n,): columns (k, n), and the frequency of each (k,)."""
    u = (times - times[0]) / max(times[-1] - times[0], 1e-12)
    count = max(min(COSINES, times.size // 4, CELLS // times.size), 1)
    frequencies = np.arange(1.0, count + 1)
    return np.concatenate([[u**2], np.cos(np.pi * frequencies[:, None] * u)]), np.append(1.0, frequencies)


def rounded_hinges(times: Floats, positions: Indices) -> Floats:
    """The hinges max(t − t_s, 0) at positions (k,) and rounded ones, whose slope grows over a part of the distance to the next hinge.

    times (n,); (widths, k, n), the sharp ones first.
    """
    knots = times[positions]
    gaps = np.diff(np.concatenate([times[:1], knots, times[-1:]]))
    widths = np.array(WIDTHS)[:, None, None] * np.minimum(gaps[:-1], gaps[1:])[:, None]
    past = times - knots[:, None]
    inside = np.clip(past + widths / 2, 0.0, widths)
    return np.where(past < widths / 2, inside**2 / np.maximum(2 * widths, 1e-300), past)


class Breaks(NamedTuple):
    """How well breaks of slope (k,) stand against a smooth curve."""

    log_odds: float  # of lines that meet at all of them, to a smooth curve with those that it needs
    sharp: Floats  # (k,) the probabilities that they are not rounded
    gains: Floats  # (k,) of the log evidence, by adding a break to the smooth curve; -inf where it adds nothing


def compare(line: Floats, hinges: Floats, smooth: Floats, frequencies: Floats, white: Floats, chances: Floats) -> Breaks:
    """Compare lines that meet with a smooth curve, by whitened columns: line (2, n), hinges (widths · k, n), smooth (c, n), values (n,).

    chances (k,) are the log prior probabilities of the breaks.
    """
    product = np.concatenate([line, hinges, smooth, white[None]])
    gram, count = product @ product.T, chances.size
    random = np.arange(len(line) + len(hinges), len(product) - 1)
    evidence = _evidence(gram, random, frequencies, chances, white.size)
    remaining: list[int] = []
    best, gains = evidence([], curved=True), np.full(count, -np.inf)
    while len(remaining) < count:
        trials = {index: evidence([*remaining, index], curved=True) for index in range(count) if index not in remaining}
        index = max(trials, key=lambda trial: trials[trial])
        if trials[index] <= best:
            break
        gains[index], best = trials[index] - best, trials[index]
        remaining.append(index)
    fixed = np.append(np.arange(len(line) + len(hinges)), len(product) - 1)
    odds = evidence([*range(count)], curved=False) - best
    return Breaks(odds, sharpness(gram[np.ix_(fixed, fixed)], count), gains)


def _evidence(gram: Floats, random: Indices, frequencies: Floats, chances: Floats, points: int) -> Callable[..., float]:
    """The log evidence of a line with some of the breaks, `curved` by the random columns or not, from the products of all columns."""
    price = 0.5 * np.log(points)
    unit = max(gram[-1, -1], 1e-12) / max(
        float(np.diag(gram)[random].mean()), 1e-300
    )  # the power of the values in that of a column
    priors = [unit * amount * frequencies ** (-2.0 * power) for power in POWERS for amount in AMOUNTS]

    def evidence(which: list[int], *, curved: bool) -> float:
        fixed = np.array([0, 1, *(2 + index for index in which)])
        left = gram - gram[:, fixed] @ np.linalg.lstsq(gram[np.ix_(fixed, fixed)], gram[fixed], rcond=None)[0]
        total = -0.5 * left[-1, -1] - price * fixed.size + float(chances[which].sum())
        if not curved:
            return total
        inner, cross, logs = left[np.ix_(random, random)], left[random, -1], []
        for prior in priors:
            root = np.sqrt(prior)
            factor = np.linalg.cholesky(np.eye(root.size) + root[:, None] * inner * root)
            explained = np.linalg.solve(factor, root * cross)
            logs.append(0.5 * explained @ explained - np.log(np.diag(factor)).sum())
        return total + float(np.logaddexp.reduce(logs) - np.log(len(logs)))

    return evidence


def sharpness(gram: Floats, count: int) -> Floats:
    """The probability (k,) that each of `count` breaks is sharp, with all others as they are most likely.

    gram are the products of the columns of a line, of the hinges of each width, and of the values.
    """
    width, values = np.zeros(count, dtype=np.intp), gram.shape[0] - 1

    def evidence(widths: Indices) -> float:
        fixed = np.concatenate([[0, 1], 2 + widths * count + np.arange(count)])
        onto = gram[fixed, values]
        return 0.5 * float(onto @ np.linalg.lstsq(gram[np.ix_(fixed, fixed)], onto, rcond=None)[0])

    logs = np.zeros((count, len(WIDTHS)))
    for _ in range(SWEEPS):
        for index in range(count):
            for trial in range(len(WIDTHS)):
                logs[index, trial] = evidence(np.where(np.arange(count) == index, trial, width))
            width[index] = logs[index].argmax()
    weights = np.exp(logs - logs.max(axis=1, keepdims=True)) * np.append(1.0, np.full(len(WIDTHS) - 1, 1 / (len(WIDTHS) - 1)))
    return weights[:, 0] / weights.sum(axis=1)
