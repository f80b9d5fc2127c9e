"""Contrasts: sums of neighbouring values that vanish for every polynomial of low degree, so that noise remains."""

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from overt.smoothing.data.series import Floats

# MAX_CONTRASTS: the most contrasts of one kind, enough for a standard error of the level of half a percent.
MAX_CONTRASTS = 50_000
# LINES: offsets of a point and its neighbours at distances 1 and 1, 2 and 1, 1 and 2, through which lines are drawn.
LINES = ((0, 1, 2), (0, 2, 3), (0, 1, 3))
# TRIM: contrasts beyond this many standard deviations count as signal: jumps, spikes, outliers.
TRIM = 2.5
# TRIMMED_MEAN_SQUARE, THIRD_QUARTILE: the mean square of a normal distribution within TRIM, and its third quartile of |x|.
TRIMMED_MEAN_SQUARE = 0.9112564
THIRD_QUARTILE = 1.1503494


def contrasts(times: Floats | None, values: Floats, weights: Floats, offsets: Sequence[int]) -> Floats:
    """Divided differences Σ_j c_j x_{i + offsets[j]} along a series, each with the variance of one value of weight 1.

    With m + 1 offsets, c_j ∝ Π_{k≠j} 1/(t_j − t_k) is, up to a factor, the only sum that vanishes for every polynomial of
    degree below m in time: at equal steps the binomials (1, −2, 1), (1, −3, 3, −1), …. Here Σ_j c_j²/w_j = 1. Neighbours
    at equal times count as evenly spaced; if too many times are equal, there is no contrast.

    times (n,) ascending, None for equal steps; values (n,), or (series, n); weights (n,) above 0. Returns at most `MAX_CONTRASTS`
    of each series, at equal distances in it.

    >>> contrasts(None, np.array([0.0, 1.0, 4.0, 9.0, 16.0]), np.ones(5), (0, 1, 2)) * np.sqrt(6)
    array([2., 2., 2.])
    """
    count = values.shape[-1] - offsets[-1]
    if count <= 0:
        return np.empty((*values.shape[:-1], 0))
    stride = -(-count // MAX_CONTRASTS)
    parts = [slice(offset, offset + count, stride) for offset in offsets]
    here = [] if times is None else [times[part] for part in parts]
    coefficients = _coefficients(here, offsets) if here else _even_coefficients(tuple(offsets))  # (count,) each, or one for all
    variances = np.zeros(weights[parts[0]].size)
    sums = np.zeros((*values.shape[:-1], variances.size))
    for coefficient, part in zip(coefficients, parts, strict=True):
        sums += coefficient * values[..., part]
        variances += coefficient**2 / weights[part]
    if times is not None:
        sums, variances = sums[..., variances > 0], variances[variances > 0]
    return sums / np.sqrt(variances)


@functools.lru_cache(maxsize=64)
def _even_coefficients(offsets: tuple[int, ...]) -> tuple[float, ...]:
    """The coefficients at equal steps, the same for all contrasts."""
    return tuple(c.item() for c in _coefficients([np.array([offset], float) for offset in offsets], offsets))


def _coefficients(moments: list[Floats], offsets: Sequence[int]) -> list[Floats]:
    # All coefficients are multiplied by Π_{a<b} (t_b − t_a), so that no distance of 0 is a divisor.
    span = moments[-1] - moments[0]
    spread = np.where(span > 0, span, 1.0)
    positions = [np.where(span > 0, (m - moments[0]) / spread, p / offsets[-1]) for m, p in zip(moments, offsets, strict=True)]
    order = range(len(positions))
    gaps = {(a, b): positions[b] - positions[a] for b in order for a in range(b)}
    return [(-1) ** j * prod((gap for pair, gap in gaps.items() if j not in pair), start=np.ones_like(span)) for j in order]


def trimmed_deviation(residuals: Floats) -> Any:
    """Trimmed standard deviation of residuals (n,), or of rows (rows, n), without residuals beyond 2.5 standard deviations (signal).

    The fixed point of s² = mean of r² over |r| ≤ 2.5 s, divided by its value 0.911 for a normal distribution, iterated
    downwards from 2·(third quartile of |r|)/1.15. It is 0 if three quarters of the residuals are 0.

    >>> round(trimmed_deviation(np.array([1.0, -1.0, 1.0, -1.0, 100.0])), 2)
    1.05
    """
    if residuals.ndim > 1:
        return np.sqrt(trimmed_squares(residuals**2))
    if residuals.size == 0:
        return 0.0
    squares = residuals**2
    level = float(4 * _third_quartiles(squares) / THIRD_QUARTILE**2)
    while level > 0:
        squares = squares[squares <= TRIM**2 * level]
        trimmed = float(squares.sum()) / squares.size / TRIMMED_MEAN_SQUARE if squares.size else 0.0
        if trimmed > level * (1 - 1e-6):
            break
        level = trimmed
    return float(np.sqrt(level))


def constant_level(times: Floats | None, values: Floats, weights: Floats) -> Any:
    """The standard deviation of noise of constant level, of values (n,) or of several series (series, n); times None for equal steps."""
    return trimmed_deviation(np.concatenate([contrasts(times, values, weights, offsets) for offsets in LINES], axis=-1))


def trimmed_squares(squares: Floats, most: int = 100) -> Floats:
    """The square of `trimmed_deviation` of each row, from the rows' squares (rows, n), in `most` iterations at most (rows,)."""
    if squares.shape[1] == 0:
        return np.zeros(squares.shape[0])
    levels = 4 * _third_quartiles(squares) / THIRD_QUARTILE**2
    for _ in range(most):
        inside = squares <= TRIM**2 * levels[:, None]
        trimmed = np.where(inside, squares, 0.0).sum(axis=1) / np.maximum(inside.sum(axis=1), 1) / TRIMMED_MEAN_SQUARE
        lower = trimmed < levels * (1 - 1e-6)
        if not lower.any():
            break
        levels = np.where(lower, trimmed, levels)
    return levels


def _third_quartiles(values: Floats) -> Any:
    """`np.quantile(values, 0.75, axis=-1)`, but faster: NumPy's takes longer than all other steps of a short series' level."""
    position = 0.75 * (values.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, values.shape[-1] - 1)
    parts = np.partition(values, (below, above))
    return parts[..., below] + (position - below) * (parts[..., above] - parts[..., below])
