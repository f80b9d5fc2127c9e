"""Local polynomials and their sums in the native core: key by key, or in O(n) by boxes of time (fast Gauss transform)."""

import functools
import math

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.chebyshev import interpolate_difference
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.polynomial import SIDES, Side

# WIDTH: width of a box, in bandwidths; TERMS: terms of exp(−u²) u^4 in a box of this width, for errors below 1e-14.
WIDTH, TERMS = 1.85, 24
# PAIR, BOX, POINT, SETUP: approximate processor cycles of a key of a target, of a box, of a key or target in a box, and of all matrices.
PAIR, BOX, POINT, SETUP = 6, 8000, 40, 15_000_000


def attend_compiled(
    times: Floats,
    values: Floats,
    weights: Floats | None,
    targets: Floats,
    bandwidth: float,
    degree: int,
    *,
    window: float = np.inf,
    side: Side = "both",
    raw: bool = False,
) -> Floats:
    """Values, c_0 and unit variances of the fits (3, m); if `raw`, only Σ_j w_j k_j u_j^p, (2·degree + 1, m).

    >>> attend_compiled(np.arange(3.0), np.arange(3.0), None, np.array([0.5]), 1.0, 1)[0].round(9)
    array([0.5])
    """
    span = float(times[-1] - times[0])
    span = span if span > np.finfo(float).tiny else 0.0  # smaller numbers have no reciprocal
    # Boxes are no wider than the span of the keys, so that u^p and its errors stay small for a large bandwidth.
    origin, width = box_grid(float(times[0]), min(bandwidth, span / WIDTH) if span else bandwidth)
    boxes, farthest = 0, 0
    if side == "both" and window >= 2 * span and span < times.size * width:
        count = int((times[-1] - origin) / width) + 1
        pairs = times.size * targets.size * min(1.0, 2 * NEGLIGIBLE * bandwidth / span) if span else 0.0
        farthest = min(count - 1, math.ceil(NEGLIGIBLE * bandwidth / width))
        boxes = count if PAIR * pairs > SETUP + BOX * count + POINT * (times.size + targets.size) else 0
    # Without boxes matrices are not used, and these would take longer to compute than a short series.
    matrices = _matrices(degree, width / bandwidth, farthest) if boxes else _matrices(degree, WIDTH, 0)
    outputs = np.empty((2 * degree + 1 if raw else 3, targets.size))
    native.module().local(
        *(times, values, weights, targets, bandwidth, NEGLIGIBLE * bandwidth, window * (1 + 1e-9)),
        *(SIDES.index(side), degree, raw),
        *(origin, width, boxes, *matrices, native.threads(), outputs.reshape(-1)),
    )
    return outputs


def box_grid(first: float, bandwidth: float) -> tuple[float, float]:
    """The start of the first box, at or before the first source, and the boxes' width, rounded to few bits so that edges are exact.

    >>> box_grid(10.0, 1.0)
    (9.248046875, 1.849609375)
    """
    mantissa, exponent = math.frexp(WIDTH * bandwidth)
    width = math.ldexp(math.floor(mantissa * 2**12), exponent - 12)
    return math.floor(first / width) * width, width


@functools.lru_cache(maxsize=64)
def _matrices(degree: int, width: float, farthest: int) -> tuple[Floats, Floats, Floats]:
    """Matrices from the sums of a box to polynomials in another (distances, TERMS, powers, TERMS), for k and k², and the largest k."""
    first, for_weights = _translations(degree, width, 1, farthest)
    _, for_squares = _translations(degree, width, 2, farthest)
    nearest = np.maximum(np.abs(first) - 1, 0) * width
    return for_weights, for_squares, np.exp(-nearest * nearest / 2)


def _translations(degree: int, width: float, power: int, farthest: int) -> tuple[Floats, Floats]:
    """The distances in boxes, and the matrices for k^power."""
    reach = min(int(np.ceil(NEGLIGIBLE / np.sqrt(power) / width)), farthest)
    steps, powers = np.arange(-reach, reach + 1), range(2 * degree + 1)
    matrices = [
        [interpolate_difference(lambda u, p=p: np.exp(-power * u * u / 2) * u**p, step * width, width, TERMS) for p in powers]
        for step in steps
    ]
    return steps.astype(float), np.moveaxis(np.array(matrices), 1, 2).reshape(-1)  # (steps, TERMS, powers, TERMS) flat
