"""Values that are rounded more coarsely than their noise: differences then show neither its level nor whether it is independent."""

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.contrasts import LINES, TRIM, contrasts

# Rounding to steps below twice the noise's level adds noise that is nearly independent (Widrow and Kollár 2008, chapter 4).
COARSE = 0.55
# What part of neighbours are equal, and of differences are whole steps, in rounded values.
EQUAL, WHOLE = 0.1, 0.95
# Exact steps of a signal last; noise goes one or two steps up and down again within so many points, in this part of the series or more.
SHORT_STAY, BACK_AND_FORTH = 10, 0.01


def rounded_level(values: Floats, level: float) -> float | None:
    """The noise's level of values (n,) that were rounded to steps g, where differences say `level` < 0.55 g; None for all others.

    The largest of what differences say, their root mean square within 1.4 g, and g/√12, the deviation of rounding itself.

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


def rounding_step(values: Floats) -> float | None:
    """The step that values (n,) were rounded to, if they go up and down by it; None where they do not look rounded.

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
    if np.mean(np.abs(steps - np.round(steps)) < 1e-3) < WHOLE:
        return None
    short = np.diff(moves) <= SHORT_STAY
    back = np.diff(np.sign(differences[moves])) != 0
    small = np.maximum(steps[1:], steps[:-1]) < 2.5
    return step if np.sum(short & back & small) >= BACK_AND_FORTH * values.size else None
