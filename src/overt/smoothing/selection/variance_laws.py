"""Simple laws of a noise's level: a polynomial of time, of the value or of its logarithm, or constant segments."""

import itertools
from collections.abc import Iterator

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.selection.segments import segment_edges

# Contrasts of neighbours share points: as evidence they count half.
EVIDENCE = 0.5
# What a law pays beside half a log n for each parameter (Schwarz 1978), since it was chosen among several.
CHOICE = 2.0


def best_law(squares: Floats, values: Floats, is_noise: np.ndarray) -> Floats | None:
    """The log of the noise's standard deviation at each square (m,) by the best law; None if that is a constant.

    Each law is fitted by maximum likelihood to s_i² ~ exp(2 B_i b) χ²₁ (Davidian and Carroll 1987) of the squares that are noise, and
    the one of least Schwarz criterion is taken: polynomials of degree 1 to 3 of the position, of degree 1 and 2 of the value and of its
    logarithm above the least one, and constant segments.

    squares (m,) of unit expectation at σ = 1; values (m,) of the signal, roughly; is_noise (m,).
    """
    log_count, inside = np.log(squares.size), squares[is_noise]
    if inside.size < 2 or inside.mean() <= 0:
        return None
    best, least = None, _cost(np.full(inside.size, 0.5 * np.log(inside.mean())), inside)
    for basis in _bases(values):
        logs = basis @ _fitted(basis[is_noise], inside)
        cost = _cost(logs[is_noise], inside) + (basis.shape[1] - 1) * log_count / 2 + CHOICE
        if cost < least:
            best, least = logs, cost
    edges = segment_edges(inside, (log_count + CHOICE) / EVIDENCE)
    means = np.repeat([inside[a:b].mean() for a, b in itertools.pairwise(edges)], np.diff(edges))
    segments = 0.5 * np.log(np.maximum(means, np.finfo(float).tiny))
    if _cost(segments, inside) + 0.75 * (len(edges) - 2) * (log_count + CHOICE) < least:
        index = np.clip(np.cumsum(is_noise) - 1, 0, inside.size - 1)
        best = segments[index]
    return best


def _bases(values: Floats) -> Iterator[Floats]:
    above = values - values.min() + 0.02 * max(np.ptp(values), np.finfo(float).tiny)
    for variable, degrees in ((np.arange(values.size), (1, 2, 3)), (values, (1, 2)), (np.log(above), (1, 2))):
        span = np.ptp(variable)
        if span > 0:
            scaled = 2 * (variable - variable.min()) / span - 1
            yield from (np.polynomial.legendre.legvander(scaled, degree) for degree in degrees)


def _fitted(basis: Floats, squares: Floats) -> Floats:
    """The coefficients b of maximum likelihood, by Newton steps of at most 1."""
    coefficients = np.zeros(basis.shape[1])
    coefficients[0] = 0.5 * np.log(squares.mean())
    for _ in range(25):
        standardised = np.minimum(squares * np.exp(-2 * basis @ coefficients), 50.0)
        curvature = 2 * (basis * standardised[:, None]).T @ basis + 1e-6 * squares.size * np.eye(basis.shape[1])
        step = np.linalg.solve(curvature, basis.T @ (standardised - 1))
        coefficients += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-6:
            break
    return coefficients


def _cost(logs: Floats, squares: Floats) -> float:
    """The negative log-likelihood, as evidence."""
    return EVIDENCE * float(np.sum(logs + squares * np.exp(-2 * logs) / 2))
