"""Segments of constant variance."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats

# Shorter segments are not looked for.
SHORTEST = 24
# Pairs of edges are tried among at most this many positions.
CANDIDATES = 97


def segment_edges(squares: Floats, penalty: float) -> list[int]:
    """The edges of segments of constant variance, with 0 and the length, by binary and circular segmentation.

    A segment is cut in two, or a burst is cut out of it (Olshen, Venkatraman et al. 2004), where the log-likelihood of normal noise
    rises by more than the penalty; half a penalty more for the second edge.

    >>> squares = np.concatenate([np.ones(200), np.full(100, 9.0), np.ones(200)])
    >>> segment_edges(squares, 10.0)
    [0, 198, 301, 500]
    """
    sums: Floats = np.concatenate([[0.0], np.cumsum(squares)])
    edges, waiting = {0, squares.size}, [(0, squares.size)]
    while waiting:
        start, stop = waiting.pop()
        cuts = _best_cuts(sums, start, stop, penalty)
        edges.update(cuts)
        points = [start, *cuts, stop]
        waiting += itertools.pairwise(points) if cuts else []
    return sorted(edges)


def _best_cuts(sums: Floats, start: int, stop: int, penalty: float) -> list[int]:
    """The one or two cuts that raise the likelihood of a segment most, if by more than the penalty."""
    length, total = stop - start, sums[stop] - sums[start]
    if length < 2 * SHORTEST:
        return []
    whole = float(_cost(np.array(total), np.array(length)))
    cut = np.arange(start + SHORTEST, stop - SHORTEST + 1)
    left = sums[cut] - sums[start]
    gains = whole - _cost(left, cut - start) - _cost(total - left, stop - cut)
    best, cuts = float(gains.max()), [int(cut[gains.argmax()])]
    candidates = np.unique(np.linspace(start, stop, min(CANDIDATES, length // 8 + 2)).astype(int))
    first, last = (each.ravel() for each in np.meshgrid(candidates, candidates, indexing="ij"))
    wide = (last - first >= SHORTEST) & (length - (last - first) >= SHORTEST)
    first, last = first[wide], last[wide]
    if first.size:
        inner = sums[last] - sums[first]
        gains = whole - _cost(inner, last - first) - _cost(total - inner, length - (last - first)) - penalty / 2
        if gains.max() > best:
            best, at = float(gains.max()), int(gains.argmax())
            cuts = [int(edge) for edge in (first[at], last[at]) if start < edge < stop]
    return cuts if best > penalty else []


def _cost(totals: Floats, lengths: NDArray[Any]) -> Floats:
    """The negative log-likelihood of squares of these sums and numbers at their own variance, without what is equal for all cuts."""
    return lengths / 2 * np.log(np.maximum(totals / lengths, np.finfo(float).tiny))
