"""Medians of few numbers at many positions, such as the values next to each point of a series."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from overt.smoothing.data.series import Floats

# MANY: positions below which NumPy's partition is faster: it takes one call, a network one call for each comparison.
MANY = 2048
# CHUNK: positions at a time, so that the columns stay in a processor's cache.
CHUNK = 4096


def medians(columns: Sequence[Floats]) -> Floats:
    """The median of several columns at each position (n,): at many positions by a sorting network, without copies of whole rows.

    >>> medians([np.array([1.0, 5.0]), np.array([3.0, 2.0]), np.array([2.0, 9.0]), np.array([8.0, 9.0])])
    array([2.5, 7. ])
    """
    positions, middle = columns[0].size, len(columns) // 2
    if positions < MANY:
        ranked = np.partition(np.stack(columns, axis=1), (middle - 1, middle), axis=1).T
        return ranked[middle] if len(columns) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    result = np.empty(positions)
    for start in range(0, positions, CHUNK):
        part = slice(start, start + CHUNK)
        ranked = [column[part] for column in columns]
        for low, high in middle_network(len(columns)):
            ranked[low], ranked[high] = np.minimum(ranked[low], ranked[high]), np.maximum(ranked[low], ranked[high])
        result[part] = ranked[middle] if len(columns) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    return result


@functools.lru_cache(maxsize=16)
def middle_network(count: int) -> tuple[tuple[int, int], ...]:
    """The comparisons of a sorting network that affect the middle; the lower number goes to the first index."""
    needed, comparisons = {(count - 1) // 2, count // 2}, []
    for low, high in reversed([*_network(count)]):
        if low in needed or high in needed:
            needed |= {low, high}
            comparisons.append((low, high))
    return tuple(reversed(comparisons))


def _network(count: int) -> Iterator[tuple[int, int]]:
    """Yield the comparisons of Batcher's merge exchange (Knuth, The Art of Computer Programming, volume 3, section 5.2.2, algorithm M)."""
    top = 1 << max(count - 1, 1).bit_length() - 1
    step = top
    while step:
        reach, offset, distance = top, 0, step
        while True:
            yield from ((i, i + distance) for i in range(count - distance) if i & step == offset)
            if reach == step:
                break
            distance, reach, offset = reach - step, reach // 2, step
        step //= 2
