"""How fast a case can be done at all on this machine; docs/kernels.md derives the counts."""

from dataclasses import dataclass
from math import prod

from overt.measuring.cases import Case
from overt.measuring.ceilings import Ceilings


@dataclass(frozen=True)
class Count:
    """Operations on one number: `multiplies` are products and multiply-adds; sums and comparisons are not counted."""

    multiplies: float
    divisions: float = 0.0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.multiplies + other.multiplies, self.divisions + other.divisions)

    def __mul__(self, times: float) -> "Count":
        return Count(self.multiplies * times, self.divisions * times)


EXPONENTIAL = Count(11)
# One term of a score, four of which share a division: 4 for the denominators, 5 to join them.
SCORE = Count(9 / 4, 1 / 4)
# One term of the backward pass: the score once more; four reciprocals of one division (4 + 9); r − r², and what it adds to the
# gradients of query, key and weight.
SCORE_GRADIENTS = SCORE + Count(13 / 4, 1 / 4) + Count(4)


@dataclass(frozen=True)
class Bound:
    """Seconds that a case takes at least: by its products, and by the bytes that it reads and writes.

    `division` is what a divider that does nothing else would need; it works beside the multipliers, and is no part of the bound.
    """

    arithmetic: float
    memory: float
    division: float

    @property
    def seconds(self) -> float:
        """The longer of the two."""
        return max(self.arithmetic, self.memory)

    @property
    def applies(self) -> str:
        """Which one that is."""
        return "multiply-adds" if self.arithmetic >= self.memory else "copying"


def operations(case: Case) -> Count:
    """The least number of operations that the case's formula takes in the form that docs/kernels.md derives."""
    width = case.features  # values have as many features as keys
    pairs = prod((*case.batch, case.queries, case.keys))
    if case.work == "summary":  # the scores twice: for the sum of the exponentials, and for all that needs the weights
        return (Count(width) + EXPONENTIAL) * (2 * pairs) + Count(2) * pairs
    packed = EXPONENTIAL * (prod(case.batch) * (case.queries + case.keys) * case.features)
    forward = SCORE * case.terms + (EXPONENTIAL + Count(width)) * pairs
    backward = SCORE_GRADIENTS * case.terms + (EXPONENTIAL + Count(2 * width + 1)) * pairs
    return packed + forward + (packed + backward if case.backward else Count(0))


def moved(case: Case, itemsize: int) -> int:
    """The bytes that are read and written where everything is touched once in each pass."""
    queries, keys = (prod(case.batch) * length * case.features for length in (case.queries, case.keys))
    forward = queries + 2 * keys + queries  # query, key, value; output
    if case.work == "summary":
        return (queries + keys + keys + queries) * itemsize
    # query, key, value, output and upstream; the gradients of the first three
    backward = 3 * queries + 2 * keys + queries + 2 * keys
    return (forward + (backward if case.backward else 0)) * itemsize


def bound(case: Case, itemsize: int, ceilings: Ceilings) -> Bound | None:
    """The bound of the case on this machine; None where the native kernels, which measure it, are not there."""
    if ceilings.multiply_adds is None or ceilings.divisions is None:
        return None
    count, slower = operations(case), itemsize / 4  # half as many numbers of twice the size in a vector
    return Bound(
        arithmetic=count.multiplies * slower / ceilings.multiply_adds,
        memory=moved(case, itemsize) / ceilings.copy,
        division=count.divisions * slower / ceilings.divisions,
    )
