"""Chebyshev interpolation of kernels f(s − t) between short intervals: few sums replace many points.

If s and t lie within intervals of width w, f(s − t) = Σ_kl A_kl T_k(σ) T_l(τ) to machine precision, with the positions σ and τ in
[−1, 1] within the intervals and the Chebyshev polynomials T_k. Then Σ_s q_s f(s − t) = Σ_l T_l(τ) Σ_k A_kl (Σ_s q_s T_k(σ_s)): the
inner sums are computed once per interval of sources, the outer ones once per target.
"""

from collections.abc import Callable

import numpy as np

from overt.smoothing.data.series import Floats

# MULTIPLE: a multiple of the SIMD width of every processor, in float64 numbers.
MULTIPLE = 8
# TERMS: by the width of an interval in bandwidths, the terms of exp(−u²/2), also times u or u², for errors below 1e-14.
TERMS = {4.5: 32, 2.8: 24, 1.0: 16, 0.5: 16, 0.25: 16, 0.12: 16, 0.06: 16, 0.03: 16, 0.015: 16}


def polynomials(points: Floats, terms: int) -> Floats:
    """T_k at points in [−1, 1], (terms, points).

    >>> polynomials(np.array([0.5]), 3)
    array([[ 1. ],
           [ 0.5],
           [-0.5]])
    """
    values = np.ones((terms, points.size))
    for k in range(1, terms):
        values[k] = points if k == 1 else 2 * points * values[k - 1] - values[k - 2]
    return values


def interpolate_difference(f: Callable[[Floats], Floats], distance: float, width: float, terms: int) -> Floats:
    """A (terms, terms) of f(s − t), where the sources' interval begins `distance` after the targets': rows are k, columns l.

    >>> interpolate_difference(lambda u: u, 3.0, 2.0, 2).round(9) + 0.0
    array([[ 3., -1.],
           [ 1.,  0.]])
    """
    half = width / 2
    return interpolate_kernel(lambda s, t: f(s - t), (distance - half, distance + half), (-half, half), terms)


def interpolate_kernel(
    f: Callable[[Floats, Floats], Floats], sources: tuple[float, float], targets: tuple[float, float], terms: int
) -> Floats:
    """A (terms, terms) of f(s, t) for s and t in two intervals: rows are k, columns l.

    >>> interpolate_kernel(lambda s, t: s * t, (0.0, 2.0), (-1.0, 1.0), 2).round(9) + 0.0
    array([[0., 1.],
           [0., 1.]])
    """
    # The angles are reduced in integers, which keeps the last digits of their cosines.
    angles = np.outer(np.arange(terms), 2 * np.arange(terms) + 1) % (4 * terms)
    cosines = np.cos(np.pi * angles / (2 * terms))  # T_k at the zeros of T_terms
    transform = cosines * (2 / terms)
    transform[0] /= 2
    s, t = ((low + high) / 2 + cosines[1] * (high - low) / 2 for low, high in (sources, targets))
    return transform @ f(s[:, None], t) @ transform.T
