"""Blocks of rows: as many at a time as keep their scores within a fixed memory."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Indices

# CELLS: scores in memory at a time, 2 MB of float64, so that a block and its temporaries stay in a processor's cache.
CELLS = 2**18
# SHORTEST: rows of the shortest block, however few keys it reaches; shorter blocks would spend their time in Python.
SHORTEST = 64


class KeyRange(NamedTuple):
    """The keys j that each row may attend to: start <= j < stop."""

    start: Indices
    stop: Indices

    def part(self, rows: Indices | slice) -> "KeyRange":
        """The ranges of some rows."""
        return KeyRange(self.start[rows], self.stop[rows])

    @property
    def span(self) -> slice:
        """All keys that any row reaches."""
        return slice(int(self.start.min()), int(self.stop.max()))


def row_blocks(keys: KeyRange, cells: int = CELLS) -> Iterator[slice]:
    """Yield runs of rows whose scores fit into `cells`; a run is about as long as the range of keys that it reaches."""
    first, rows = 0, keys.start.size
    while first < rows:
        count = min(max(SHORTEST, int(keys.stop[first] - keys.start[first])), rows - first)
        while count > 1:
            span = keys.part(slice(first, first + count)).span
            if count * (span.stop - span.start) <= cells:
                break
            count = (count + 1) // 2
        yield slice(first, first + count)
        first += count


def reached_blocks(keys: KeyRange, cells: int = CELLS) -> Iterator[Indices]:
    """Blocks of rows, ascending in their first key, without rows that reach no key."""
    rows = np.flatnonzero(keys.stop > keys.start)
    rows = rows[np.argsort(keys.start[rows], kind="stable")]
    return (rows[block] for block in row_blocks(keys.part(rows), cells))
