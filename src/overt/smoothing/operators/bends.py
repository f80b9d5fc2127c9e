"""Whether a curve bends or breaks: changes of level and slope compared with a smooth curve through all of them.

A few lines follow a sine closely, and each of their ends looks like a change between its neighbours. A smooth curve explains all of them
together: f = a + b t + Σ_j b_j P_j(2u − 1) + Σ_k c_k cos(kπu), with Legendre polynomials of degree 2 to 4, so that the ends may bend, and
normal c_k of variances λ exp(−(k/s)²), as of a Gaussian process whose covariance is a Gaussian (Rasmussen and Williams 2006, section
4.2.1); a broken line's coefficients fall as k^(−2). All coefficients, λ and the scale s are integrated out. A change is added to the
curve if the likelihood with it, less ½ log n for its coefficient (Schwarz 1978), exceeds the likelihood without it; the most evident
change comes first. Lines that break at all changes, and constant levels if no change is a change of slope, are then compared with the
curve and its changes.
"""

import numpy as np

from overt.smoothing.data.series import Floats

# COSINES: most cosines of a smooth curve; CELLS: most numbers of all cosines of a long series.
COSINES, CELLS = 80, 4_000_000
# DEGREES: degrees of the polynomials; SCALES: the scales s; AMOUNTS: the summed variance of all columns, over the power of the values.
DEGREES, SCALES, AMOUNTS = (2, 3, 4), (2.0, 4.0, 8.0, 16.0), 10.0 ** np.arange(-3.0, 2.0)
# BESIDE_CURVE: log odds of a change next to a smooth curve; LINES, LEVELS: log odds of broken lines or constant levels instead. Of 1,536
# smooth curves (ten shapes, three kinds of noise) 16 have a change (236 with BESIDE_CURVE = 0), of 1,116 changes 610 (629) are located.
BESIDE_CURVE, LINES, LEVELS = -6.0, -14.0, -4.0


def smooth_columns(times: Floats) -> tuple[Floats, Floats]:
    """Polynomials and cosines of times (n,): columns (k, n), and their frequencies (k,)."""
    u = (times - times[0]) / max(times[-1] - times[0], 1e-12)
    count = max(min(COSINES, times.size // 4, CELLS // times.size), 1)
    frequencies = np.arange(1.0, count + 1)
    polynomials = np.polynomial.legendre.legvander(2 * u - 1, DEGREES[-1]).T[DEGREES[0] :]
    cosines = np.cos(np.pi * frequencies[:, None] * u)
    return np.concatenate([polynomials, cosines]), np.concatenate([np.ones(len(DEGREES)), frequencies])


def sharpness(
    line: Floats, changes: Floats, smooth: Floats, frequencies: Floats, white: Floats, chances: Floats, *, steps: bool
) -> Floats:
    """The probability (k,) that each change is a break, not a bend of a smooth curve.

    Whitened columns: line (2, n), changes (k, n), smooth (c, n), values (n,). chances (k,) are the log prior probabilities of the changes;
    `steps`: all changes are steps.
    """
    product, price = np.concatenate([line, changes, white[None], smooth]), 0.5 * np.log(white.size)
    gram, values = product @ product.T, 2 + len(changes)
    # The power of the values over the mean power of a column.
    unit = max(gram[values, values], 1e-12) / max(float(np.diag(gram)[values + 1 :].mean()), 1e-300)
    left = gram - gram[:, :2] @ np.linalg.lstsq(gram[:2, :2], gram[:2], rcond=None)[0]
    fixed, random = slice(2, values + 1), slice(values + 1, None)
    shapes = [np.exp(-((frequencies / scale) ** 2)) for scale in SCALES]
    roots = np.sqrt([unit * amount / shape.sum() * shape for shape in shapes for amount in AMOUNTS])[..., None]
    factors = np.linalg.cholesky(np.eye(len(smooth)) + roots * left[random, random] * roots.transpose(0, 2, 1))
    explained = np.linalg.solve(factors, roots * left[random, fixed])
    plain = left[fixed, fixed]
    curved = plain - explained.transpose(0, 2, 1) @ explained
    logs = -np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1) - 0.5 * curved[:, -1, -1] - np.log(len(factors))
    gains = _added(plain, curved, logs, chances - price + BESIDE_CURVE)
    best = float(np.logaddexp.reduce(logs)) + gains[np.isfinite(gains)].sum()

    def broken(*line_columns: int) -> float:
        """The log evidence of all changes together with some columns of the line."""
        columns = np.array([*line_columns, *range(2, values)])
        onto = gram[columns, values]
        explained = float(onto @ np.linalg.lstsq(gram[np.ix_(columns, columns)], onto, rcond=None)[0])
        return 0.5 * (explained - gram[values, values]) + float(chances.sum()) - price * (columns.size - 2)

    instead = np.logaddexp(broken(0, 1) + LINES, broken(0) + LEVELS if steps else -np.inf)
    line_probability, *beside = 1 / (1 + np.exp(-np.clip([instead - best, *gains], -500, 500)))
    return line_probability + (1 - line_probability) * np.array(beside)


def _added(plain: Floats, curved: Floats, logs: Floats, prices: Floats) -> Floats:
    """The gain in log evidence by each change (k,), the largest first; -inf if a change gains nothing.

    plain (k + 1, k + 1) are products of the changes' columns and, last, the values; curved (priors, k + 1, k + 1) are these products
    without the part that a smooth curve explains; logs (priors,) are the curves' log evidence; prices (k,) are added for a change.
    """
    result, least = np.full(prices.size, -np.inf), 1e-9 * np.diagonal(plain)[:-1]
    best = float(np.logaddexp.reduce(logs))
    while np.isneginf(result).any():
        pivots, alone = np.diagonal(curved, axis1=1, axis2=2)[:, :-1], np.diagonal(plain)[:-1]
        usable = np.isneginf(result) & (alone > least)
        pivots, alone = np.maximum(pivots, least), np.maximum(alone, least)
        trials = logs[:, None] + 0.5 * (curved[:, :-1, -1] ** 2 / pivots - np.log(pivots / alone)) + prices
        totals = np.where(usable, np.logaddexp.reduce(trials), -np.inf)
        index = int(totals.argmax())
        if totals[index] <= best:
            break
        result[index], best, logs = totals[index] - best, float(totals[index]), trials[:, index]
        plain = plain - np.outer(plain[index], plain[index]) / alone[index]
        curved = curved - curved[:, :, index, None] * curved[:, None, index] / pivots[:, index, None, None]
    return result
