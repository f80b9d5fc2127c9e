"""Local polynomials, and their sums, by the native core: key by key, or in O(n) through boxes of time."""

import functools
import math

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.chebyshev import between
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.polynomial import SIDES, Side

# A box, in bandwidths, and the terms that exp(−u²) u^4 takes there: errors are below 1e-14.
WIDTH, TERMS = 1.85, 24
# Processor cycles, about, for a key of a target, for a box, for a key or a target in a box, and for the matrices between boxes.
PAIR, BOX, POINT, SETUP = 6, 8000, 40, 15_000_000


def natively(
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
    """Values, c_0 and squares of the fits (3, m); `raw`: Σ_j w_j k_j u_j^p alone, (2·degree + 1, m).

    >>> natively(np.arange(3.0), np.arange(3.0), None, np.array([0.5]), 1.0, 1)[0].round(9)
    array([0.5])
    """
    span = float(times[-1] - times[0])
    span = span if span > np.finfo(float).tiny else 0.0  # what is smaller has no reciprocal
    # Boxes are no wider than all the keys: u^p stays small there where the bandwidth is large, and so do its errors.
    origin, width = cut(float(times[0]), min(bandwidth, span / WIDTH) if span else bandwidth)
    boxes, most = 0, 0
    if side == "both" and window >= 2 * span and span < times.size * width:
        count = int((times[-1] - origin) / width) + 1
        pairs = times.size * targets.size * min(1.0, 2 * NEGLIGIBLE * bandwidth / span) if span else 0.0
        most = min(count - 1, math.ceil(NEGLIGIBLE * bandwidth / width))
        boxes = count if PAIR * pairs > SETUP + BOX * count + POINT * (times.size + targets.size) else 0
    # Without boxes nothing reads them, and they take longer to make than a short series.
    matrices = _matrices(degree, width / bandwidth, most) if boxes else _matrices(degree, WIDTH, 0)
    found = np.empty((2 * degree + 1 if raw else 3, targets.size))
    native.module().local(
        *(
            times,
            values,
            weights,
            targets,
            bandwidth,
            NEGLIGIBLE * bandwidth,
            window * (1 + 1e-9),
            SIDES.index(side),
            degree,
            raw,
        ),
        *(origin, width, boxes, *matrices, native.threads(), found.reshape(-1)),
    )
    return found


def cut(first: float, bandwidth: float) -> tuple[float, float]:
    """Where boxes begin, at or before the first source, and their width: in so few bits that no edge is rounded.

    >>> cut(10.0, 1.0)
    (9.248046875, 1.849609375)
    """
    mantissa, exponent = math.frexp(WIDTH * bandwidth)
    width = math.ldexp(math.floor(mantissa * 2**12), exponent - 12)
    return math.floor(first / width) * width, width


@functools.lru_cache(maxsize=64)
def _matrices(degree: int, width: float, most: int) -> tuple[Floats, Floats, Floats]:
    """From the sums of a box to polynomials in another (reach both ways, TERMS, powers, TERMS), for k and k², and the largest k."""
    first, of_weights = _told(degree, width, 1, most)
    _, of_squares = _told(degree, width, 2, most)
    nearest = np.maximum(np.abs(first) - 1, 0) * width
    return of_weights, of_squares, np.exp(-nearest * nearest / 2)


def _told(degree: int, width: float, power: int, most: int) -> tuple[Floats, Floats]:
    """The distances in boxes, and the matrices, of k^power."""
    reach = min(int(np.ceil(NEGLIGIBLE / np.sqrt(power) / width)), most)
    steps, powers = np.arange(-reach, reach + 1), range(2 * degree + 1)
    found = [
        [between(lambda u, p=p: np.exp(-power * u * u / 2) * u**p, step * width, width, TERMS) for p in powers]
        for step in steps
    ]
    return steps.astype(float), np.moveaxis(np.array(found), 1, 2).reshape(-1)  # (steps, TERMS, powers, TERMS) flat
