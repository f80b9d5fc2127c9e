"""Smooth functions f(s − t) between short stretches of a line: few sums stand for many points.

Where s and t lie within stretches of width w, f(s − t) = Σ_kl A_kl T_k(σ) T_l(τ) to the last digits, for σ and τ in [−1, 1] the
places within them and T_k the Chebyshev polynomials. Then Σ_s q_s f(s − t) = Σ_l T_l(τ) Σ_k A_kl (Σ_s q_s T_k(σ_s)): the inner sums
are taken once a stretch of sources, the outer ones once a target.
"""

from collections.abc import Callable

import numpy as np

from overt.smoothing.data.series import Floats

# Vectors of every processor hold a divisor of this many numbers.
MULTIPLE = 8
# How many terms exp(−u²/2), also times u or u², takes by the width of a stretch in bandwidths: errors are below 1e-14.
TERMS = {4.5: 32, 2.8: 24, 1.0: 16, 0.5: 16, 0.25: 16, 0.12: 16, 0.06: 16, 0.03: 16, 0.015: 16}


def polynomials(places: Floats, terms: int) -> Floats:
    """T_k at places in [−1, 1], (terms, places).

    >>> polynomials(np.array([0.5]), 3)
    array([[ 1. ],
           [ 0.5],
           [-0.5]])
    """
    found = np.ones((terms, places.size))
    for k in range(1, terms):
        found[k] = places if k == 1 else 2 * places * found[k - 1] - found[k - 2]
    return found


def between(f: Callable[[Floats], Floats], distance: float, width: float, terms: int) -> Floats:
    """A (terms, terms) for sources in a stretch that begins `distance` after that of the targets: rows are k, columns l.

    >>> between(lambda u: u, 3.0, 2.0, 2).round(9) + 0.0
    array([[ 3., -1.],
           [ 1.,  0.]])
    """
    half = width / 2
    return over(lambda s, t: f(s - t), (distance - half, distance + half), (-half, half), terms)


def over(
    f: Callable[[Floats, Floats], Floats], sources: tuple[float, float], targets: tuple[float, float], terms: int
) -> Floats:
    """A (terms, terms) of f(s, t) for s and t in intervals of their own.

    >>> over(lambda s, t: s * t, (0.0, 2.0), (-1.0, 1.0), 2).round(9) + 0.0
    array([[0., 1.],
           [0., 1.]])
    """
    # The angles are reduced in whole numbers, which keeps the last digits of their cosines.
    angles = np.outer(np.arange(terms), 2 * np.arange(terms) + 1) % (4 * terms)
    cosines = np.cos(np.pi * angles / (2 * terms))  # T_k at the zeros of T_terms
    transform = cosines * (2 / terms)
    transform[0] /= 2
    s, t = ((low + high) / 2 + cosines[1] * (high - low) / 2 for low, high in (sources, targets))
    return transform @ f(s[:, None], t) @ transform.T
