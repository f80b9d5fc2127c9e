"""Rounded or repeated values, whose differences show neither the level of their noise nor whether it is independent."""

import numpy as np

from overt.smoothing.data.repeats import LEAST_CHANGES, LONGEST_HOLD, TURNS, share_of_turns
from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import LINES, THIRD_QUARTILE, TRIM, contrasts

# COARSE: the least noise level, in rounding steps; above it rounding adds nearly independent noise (Widrow and Kollár 2008, chapter 4).
COARSE = 0.55
# EQUAL: the least share of equal neighbours in rounded values; WHOLE: the least share of differences that are whole steps.
EQUAL, WHOLE = 0.1, 0.95
# SHORT_STAY: points within which noise goes one or two steps up and down again, unlike a signal; BACK_AND_FORTH: its least share of points.
SHORT_STAY, BACK_AND_FORTH = 10, 0.01
# LOWER: a level by differences below this part of the runs' level is wrong; copies at random places change it less.
LOWER = 0.65
# ONE_VALUE: if this share of the repeats is one value, nothing happened there, and the other values are no normal noise.
ONE_VALUE = 0.9


def rounded_level(values: Floats, level: float) -> float | None:
    """The noise level of values (n,) rounded to steps g, if differences show a `level` < 0.55 g; None for all other values.

    It is the largest of `level`, the differences' root mean square within 1.4 g, and g/√12, the deviation of rounding itself.

    >>> draw = np.random.default_rng(0).normal(size=500)
    >>> rounded_level(np.round(np.sin(np.arange(500) / 80) + 0.1 * draw), 0.0).__round__(2)
    0.29
    >>> rounded_level(np.round(np.sin(np.arange(500) / 80) + draw), 1.0) is None
    True
    """
    step = rounding_step(values)
    if step is None or level >= COARSE * step:
        return None
    residuals = np.concatenate([contrasts(None, values, np.ones(values.size), offsets) for offsets in LINES])
    near = residuals[np.abs(residuals) <= TRIM * COARSE * step]
    return max(level, float(np.sqrt(np.mean(near**2))), float(step / 12**0.5))


def repeated_level(times: Floats, values: Floats, level: float) -> float | None:
    """The noise level of values (n,) at ascending times (n,), many of which repeat the one before; None for all other values.

    It is the level of the first values of all runs of equal values, or `level`, by differences of all values, if larger. Values count as
    repeated if a tenth more neighbours are equal than rounding explains, in short runs that go up and down, and if `level` is lower by a
    third or more, or nearly all repeats are of one value.

    >>> held = np.repeat(np.random.default_rng(0).normal(size=500), 3)
    >>> repeated_level(np.arange(1500.0), held, 0.3).__round__(2)
    1.03
    >>> repeated_level(np.arange(500.0), held[::3], 1.0) is None
    True
    """
    differences = np.diff(values)
    moves = np.flatnonzero(differences)
    if not max(LEAST_CHANGES, differences.size / LONGEST_HOLD) <= moves.size <= (1 - EQUAL) * differences.size:
        return None
    steps = np.diff(times)
    equal = np.sum((differences == 0) & (steps <= 1.5 * np.median(steps))) / differences.size
    if equal < EQUAL or share_of_turns(differences[moves]) < TURNS:
        return None
    first = np.concatenate([[0], moves + 1])
    residuals = [contrasts(times[first], values[first], np.ones(first.size), offsets) for offsets in LINES]
    # A quantile, since the mean of trimmed squares may contain only the smallest: rare events are no normal noise.
    repeated = float(np.quantile(np.abs(np.concatenate(residuals)), 0.75)) / THIRD_QUARTILE
    same = values[1:][differences == 0]
    events = np.mean(same == np.median(same)) > ONE_VALUE
    if (level >= LOWER * repeated and not events) or repeated <= 8 * np.finfo(float).eps * np.abs(values).max():
        return None
    sizes = np.abs(differences[moves])
    step = float(sizes.min()) if _share_whole(sizes / sizes.min()) >= WHOLE else 0.0
    # Two values of deviation σ that are rounded to steps g are equal with a probability of g/(2√π σ), the density of their difference.
    return max(level, repeated) if equal >= EQUAL + step / (2 * np.pi**0.5 * repeated) else None


def _share_whole(steps: Floats) -> float:
    """The share of whole numbers."""
    return float(np.mean(np.abs(steps - np.round(steps)) < 1e-3))


def rounding_step(values: Floats) -> float | None:
    """The step that values (n,) were rounded to, if they go up and down by it; None if they do not look rounded.

    >>> rounding_step(np.array([0.0, 0.5, 0.5, 0.0, 0.5, 1.0, 1.0, 0.5])).__round__(2)
    0.5
    >>> rounding_step(np.repeat([0.0, 0.5, 0.0, 1.0], 50)) is None
    True
    """
    differences = np.diff(values)
    moves = np.flatnonzero(differences)
    if differences.size == 0 or moves.size < 2 or moves.size > (1 - EQUAL) * differences.size:
        return None
    sizes = np.abs(differences[moves])
    step = float(np.quantile(sizes, 0.25))
    steps = sizes / step
    if _share_whole(steps) < WHOLE:
        return None
    short = np.diff(moves) <= SHORT_STAY
    back = np.diff(np.sign(differences[moves])) != 0
    small = np.maximum(steps[1:], steps[:-1]) < 2.5
    return step if np.sum(short & back & small) >= BACK_AND_FORTH * values.size else None
