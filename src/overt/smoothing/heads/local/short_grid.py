"""Many heads by time on one short grid: their rows depend only on its length, and are cached as one matrix for the next series."""

import functools
from collections.abc import Sequence

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.local.direct_sums import find_targets, rows_of_block
from overt.smoothing.heads.local.polynomial import Local, Side

# LONGEST: most points of a short grid; the rows of heads are heads · n² numbers, here 8 MB for the bank's sixty heads.
LONGEST = 128
# ONE_THREAD: multiplications up to which OpenBLAS takes one thread; with several, threads of several processes would wait for each other.
ONE_THREAD = 2**18
# LENGTHS: the number of grids whose rows are cached.
LENGTHS = 4

TimeHead = tuple[float, int, Side]  # bandwidth, degree, side

# EXTRAPOLATED: the degree of heads extrapolated to h = 0 from parabolas of bandwidths h and √2 h, (4 y_h − y_√2h)/3: like polynomials of
# degree 4 they are without the bias of a parabola, which grows with h⁴ (Schucany and Sommers 1977).
EXTRAPOLATED = 4
# EXTRAPOLATED_VARIANCE: the variance of an extrapolated head over its narrower parabola's, the ratio of the kernels' squared norms.
EXTRAPOLATED_VARIANCE = 1.1395306


def parabola_indices(heads: Sequence[TimeHead], head: TimeHead) -> tuple[int, int]:
    """The indices of the two parabolas from which a head is extrapolated."""
    h, _, side = head
    wanted = [
        next(i for i, (width, degree, at) in enumerate(heads) if degree == 2 and at == side and abs(width / scale - 1) < 1e-9)
        for scale in (h, np.sqrt(2.0) * h)
    ]
    return wanted[0], wanted[1]


def extrapolate(narrow: Floats, wide: Floats) -> Floats:
    """The extrapolation of two parabolas' values, leverages, or rows, which are linear in both."""
    return (4 * narrow - wide) / 3


def attend_short_grid(values: Floats, heads: tuple[TimeHead, ...]) -> Local:
    """The fits of all heads at all points of an even grid; bandwidths are in steps.

    For several series (s, n) the values are (s, heads, n); leverages and variances are the same for all series (heads, n).

    >>> attend_short_grid(np.array([[1.0, 3.0, 5.0, 7.0]]), ((1.0, 1, "both"), (2.0, 0, "past"))).values.round(2)
    array([[[1.  , 3.  , 5.  , 7.  ],
            [1.  , 2.06, 3.32, 4.82]]])
    """
    rows, leverages, unit_variances = _rows(values.shape[1], heads)
    # Around their own mean, values keep the digits that a large offset would take.
    centers = values.mean(axis=1, keepdims=True)
    outputs = np.empty((values.shape[0], *leverages.shape))
    together = max(1, ONE_THREAD // values.shape[1] ** 2)
    for start in range(0, values.shape[0], together):
        part = slice(start, start + together)
        np.matmul(values[part] - centers[part], rows.swapaxes(1, 2), out=outputs[part].swapaxes(0, 1))
    return Local(outputs + centers[:, None], leverages, unit_variances)


@functools.lru_cache(maxsize=LENGTHS)
def _rows(points: int, heads: tuple[TimeHead, ...]) -> tuple[Floats, Floats, Floats]:
    """The rows of all heads (heads, n, n), their leverages and unit variances (heads, n)."""
    rows, steps = np.empty((len(heads), points, points)), np.arange(float(points))
    leverages, unit_variances = np.empty((2, len(heads), points))
    for degree, side in dict.fromkeys(head[1:] for head in heads if head[1] != EXTRAPOLATED):
        members = [index for index, head in enumerate(heads) if head[1:] == (degree, side)]
        scales = np.repeat([heads[index][0] for index in members], points)
        targets = find_targets(steps, np.tile(steps, len(members)), scales, np.inf, side)
        fitted = rows_of_block(steps, None, targets, scales, degree)
        rows[members] = fitted.weights.reshape(-1, points, points)
        leverages[members], unit_variances[members] = (
            column.reshape(-1, points) for column in (fitted.self_coefficients, fitted.unit_variances)
        )
    for index, head in enumerate(heads):
        if head[1] == EXTRAPOLATED:
            narrow, wide = parabola_indices(heads, head)
            rows[index], leverages[index] = (extrapolate(column[narrow], column[wide]) for column in (rows, leverages))
            unit_variances[index] = EXTRAPOLATED_VARIANCE * unit_variances[narrow]
    return rows, leverages, unit_variances
