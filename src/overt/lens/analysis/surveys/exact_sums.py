"""Sums that are the same to the bit in any order of addition and on any number of machines."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_FRACTION, _LIMB = 28, 32  # _FRACTION: bits after the binary point; _LIMB: bits of the lower of two integers
LARGEST = 2.0**33  # largest value of one addition, whose integer fits in 62 bits


class ExactSums:
    """An array of sums of multiples of 2⁻²⁸, each in two integers: values are rounded once when they are added, sums never.

    Additions of floating-point numbers round, so their sum depends on the order. Sums of integers do not: merged sums of shards are
    the sum of the whole.

    >>> one, other = ExactSums((1,)), ExactSums((1,))
    >>> for value in (0.1, 0.2, 0.3):
    ...     one.add((), np.array([value]))
    ...     other.add((), np.array([0.6 - value]))
    >>> one.merge(other)
    >>> one.values().round(6).tolist()
    [1.8]
    """

    def __init__(self, shape: Sequence[int]):
        self.high: NDArray[np.int64] = np.zeros(shape, np.int64)
        self.low: NDArray[np.int64] = np.zeros(shape, np.int64)

    def add(self, index: tuple[int, ...], values: np.ndarray) -> None:
        """Add finite values of at most `LARGEST` to the sums at this index."""
        scaled = np.rint(values * 2.0**_FRACTION).astype(np.int64)
        self.high[index] += scaled >> _LIMB
        self.low[index] += scaled & (2**_LIMB - 1)
        self._carry(index)

    def add_at(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Add values (B, …), each rounded on its own, to the sums at this index."""
        scaled = np.rint(values * 2.0**_FRACTION).astype(np.int64)
        self.high[index] += (scaled >> _LIMB).sum(0)
        self.low[index] += (scaled & (2**_LIMB - 1)).sum(0)
        self._carry(index)

    def merge(self, other: "ExactSums") -> None:
        """Add other sums of the same shape."""
        self.high += other.high
        self.low += other.low
        self._carry(())

    def values(self) -> np.ndarray:
        """The sums as float64, each rounded once."""
        return (self.high.astype(np.longdouble) * 2.0**_LIMB + self.low).astype(np.float64) / 2.0**_FRACTION

    def _carry(self, index: tuple[int | slice, ...]) -> None:
        self.high[index] += self.low[index] >> _LIMB
        self.low[index] &= 2**_LIMB - 1
