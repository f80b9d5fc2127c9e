"""Simple laws of the noise level: a polynomial of time, of the value or of its logarithm, or constant segments."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices

# EVIDENCE: the weight of a contrast's log-likelihood, since contrasts of neighbours share points.
EVIDENCE = 0.5
# CHOICE: the price of a law in addition to ½ log n for each parameter (Schwarz 1978), since it is chosen among several.
CHOICE = 2.0
# SHORTEST: squares of the shortest segment.
SHORTEST = 24
# CANDIDATES: pairs of edges are tried among at most this many positions.
CANDIDATES = 97
# PASSES: how often all edges are moved at most.
PASSES = 8


def best_law(squares: Floats, values: Floats, is_noise: np.ndarray) -> Floats | None:
    """The log of the noise's standard deviation at each square (m,) by the best law; None if the best law is a constant.

    Laws are fitted by maximum likelihood to s_i² ~ exp(2 B_i b) χ²₁ (Davidian and Carroll 1987) of the squares that are noise, and the
    law of least Schwarz criterion is chosen: polynomials of degree 1 to 3 of the position, of degree 1 and 2 of the value and of its
    logarithm above the least value, and constant segments.

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
    tiny = np.finfo(float).tiny
    means = np.repeat([inside[a:b].mean() for a, b in itertools.pairwise(edges)], np.diff(edges))
    if _cost(0.5 * np.log(np.maximum(means, tiny)), inside) + 0.75 * (len(edges) - 2) * (log_count + CHOICE) < least:
        index = np.clip(np.cumsum(is_noise) - 1, 0, inside.size - 1)
        best = 0.5 * np.log(np.maximum(segment_variances(inside, edges), tiny))[index]
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
    """The negative log-likelihood, multiplied by EVIDENCE."""
    return EVIDENCE * float(np.sum(logs + squares * np.exp(-2 * logs) / 2))


def segment_edges(squares: Floats, penalty: float) -> list[int]:
    """The edges of segments of constant variance, with 0 and the length, by binary and circular segmentation.

    A segment is cut in two, or a burst is cut out of it (Olshen, Venkatraman et al. 2004), if the log-likelihood of normal noise rises
    by more than the penalty, and by half a penalty more for a second edge. Then each edge is moved to the largest likelihood.

    >>> squares = np.concatenate([np.ones(200), np.full(100, 9.0), np.ones(200)])
    >>> segment_edges(squares, 10.0)
    [0, 200, 300, 500]
    """
    sums: Floats = np.concatenate([[0.0], np.cumsum(squares)])
    edges, waiting = {0, squares.size}, [(0, squares.size)]
    while waiting:
        start, stop = waiting.pop()
        cuts = _best_cuts(sums, start, stop, penalty)
        edges.update(cuts)
        points = [start, *cuts, stop]
        waiting += itertools.pairwise(points) if cuts else []
    return _sharpened(sums, sorted(edges))


def _sharpened(sums: Floats, edges: list[int]) -> list[int]:
    """The edges, each moved between its neighbours to the largest likelihood, until no edge moves."""
    for _ in range(PASSES):
        before = [*edges]
        for index in range(1, len(edges) - 1):
            cut, costs = _costs_of_cuts(sums, edges[index - 1], edges[index + 1], edges[index])
            edges[index] = int(cut[costs.argmin()])
        if edges == before:
            break
    return edges


def _costs_of_cuts(sums: Floats, start: int, stop: int, edge: int) -> tuple[Indices, Floats]:
    """The positions of cuts that leave two long enough parts, and `edge`, with their negative log-likelihoods."""
    cut = np.arange(min(start + SHORTEST, edge), max(stop - SHORTEST, edge) + 1)
    left = sums[cut] - sums[start]
    return cut, _segment_cost(left, cut - start) + _segment_cost(sums[stop] - sums[start] - left, stop - cut)


def segment_variances(squares: Floats, edges: list[int]) -> Floats:
    """The variance of each square (m,): the mean of its segment, if its side of the edges is certain.

    Near an edge it is the expectation over the edge's position between its neighbours, by the likelihoods. The curve would follow points
    of a burst that count as quiet; quiet points that count as part of a burst are only smoothed a little more.

    >>> segment_variances(np.concatenate([np.ones(100), np.full(100, 9.0)]), [0, 100, 200])[[50, 98, 101, 150]].round(1)
    array([1. , 3.1, 9. , 9. ])
    """
    sums: Floats = np.concatenate([[0.0], np.cumsum(squares)])
    means = np.diff(sums[edges]) / np.diff(edges)
    variances = np.full(squares.size, means[0])
    for (start, edge, stop), step in zip(zip(edges, edges[1:], edges[2:], strict=False), np.diff(means), strict=True):
        cut, costs = _costs_of_cuts(sums, start, stop, edge)
        likelihoods = np.exp(-(costs - costs.min()))
        variances[start:stop] += step * np.interp(np.arange(start, stop), cut, np.cumsum(likelihoods) / likelihoods.sum())
        variances[stop:] += step
    # Both edges of a short segment may lie on either side of the same square.
    nearby = sliding_window_view(np.pad(means, 1, mode="edge"), 3)
    lowest, highest = (np.repeat(limit, np.diff(edges)) for limit in (nearby.min(axis=1), nearby.max(axis=1)))
    return np.clip(variances, lowest, highest)


def _best_cuts(sums: Floats, start: int, stop: int, penalty: float) -> list[int]:
    """The one or two cuts that raise the likelihood of a segment most, if by more than the penalty."""
    length, total = stop - start, sums[stop] - sums[start]
    if length < 2 * SHORTEST:
        return []
    whole = float(_segment_cost(np.array(total), np.array(length)))
    cut, costs = _costs_of_cuts(sums, start, stop, start + SHORTEST)
    gains = whole - costs
    best, cuts = float(gains.max()), [int(cut[gains.argmax()])]
    candidates = np.unique(np.linspace(start, stop, min(CANDIDATES, length // 8 + 2)).astype(int))
    first, last = (item.ravel() for item in np.meshgrid(candidates, candidates, indexing="ij"))
    wide = (last - first >= SHORTEST) & (length - (last - first) >= SHORTEST)
    first, last = first[wide], last[wide]
    if first.size:
        inner = sums[last] - sums[first]
        gains = whole - _segment_cost(inner, last - first) - _segment_cost(total - inner, length - (last - first)) - penalty / 2
        if gains.max() > best:
            best, at = float(gains.max()), int(gains.argmax())
            cuts = [int(edge) for edge in (first[at], last[at]) if start < edge < stop]
    return cuts if best > penalty else []


def _segment_cost(totals: Floats, lengths: NDArray[Any]) -> Floats:
    """The negative log-likelihood of squares with these sums and numbers at their own variance, without terms equal for all cuts."""
    return lengths / 2 * np.log(np.maximum(totals / lengths, np.finfo(float).tiny))
