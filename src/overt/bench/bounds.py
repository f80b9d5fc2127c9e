"""Lower bounds of the time of a case on this machine; docs/kernels.md derives the counts."""

from dataclasses import dataclass
from math import prod

from overt.bench.cases import DOTS, Case, document_lengths, padded_lengths
from overt.bench.ceilings import Ceilings


@dataclass(frozen=True)
class Count:
    """Counts of operations on single numbers: products and multiply-adds; sums and comparisons; divisions."""

    multiplies: float
    sums: float = 0.0
    divisions: float = 0.0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.multiplies + other.multiplies, self.sums + other.sums, self.divisions + other.divisions)

    def __mul__(self, times: float) -> "Count":
        return Count(self.multiplies * times, self.sums * times, self.divisions * times)


EXPONENTIAL = Count(multiplies=11, sums=4)
# POWER: operations for a weight of a dot product, 2^(t - base): the power, its distance from the largest score, and its part in the sum.
POWER = Count(multiplies=8, sums=7)
# TERM: operations for a term of a score; four terms share a division.
TERM = Count(multiplies=9 / 4, sums=3 / 4, divisions=1 / 4)
# TERM_BACKWARD: operations for a term of the backward pass: its reciprocal (two share a division), the score again, and the slope.
TERM_BACKWARD = Count(multiplies=14 / 4 + 2, sums=3, divisions=2 / 4)


@dataclass(frozen=True)
class Bound:
    """A lower bound of a case's seconds, from its products and from the bytes that it reads and writes.

    Two more figures are not part of the bound, since not every processor waits for them: `with_sums`, if the multiplying units
    also add; `division`, for a divider that works in parallel.
    """

    arithmetic: float
    memory: float
    with_sums: float
    division: float

    @property
    def seconds(self) -> float:
        """The larger of both times."""
        return max(self.arithmetic, self.memory)

    @property
    def applies(self) -> str:
        """The limit that determines the bound."""
        return "multiply-adds" if self.arithmetic >= self.memory else "copying"


def pairs(case: Case) -> int:
    """The number of pairs of query and key in the case."""
    return prod((*case.batch, case.queries, case.keys))


def dot_operations(case: Case) -> Count:
    """The operations of dot products in the form that docs/kernels.md derives; values may be wider than keys."""
    width = case.features * DOTS[case.work].value_ratio
    count = Count(case.features + width) + POWER
    if case.backward:
        count += Count(3 * case.features + 2 * width + 2, 1) + POWER
    return count * (pairs(case) * _unmasked_share(case))


def additive_operations(case: Case) -> Count:
    """The operations of additive attention in the form that docs/kernels.md derives."""
    width = case.features  # values have as many features as keys
    packing = EXPONENTIAL * (prod(case.batch) * (case.queries + case.keys) * case.features)
    count = packing + TERM * case.terms + (EXPONENTIAL + Count(width, 2)) * pairs(case)
    if case.backward:
        count += packing + TERM_BACKWARD * case.terms + (EXPONENTIAL + Count(2 * width + 1, 2)) * pairs(case)
    return count


def _unmasked_share(case: Case) -> float:
    """The share of pairs of query and key that a dot product's mask allows."""
    kind = DOTS[case.work]
    if kind.documents:
        return sum(length**2 for length in document_lengths(kind.documents, case.keys)) / (case.queries * case.keys)
    if kind.tensor == "padding":
        return sum(padded_lengths(case.batch[0], case.keys)) / (case.batch[0] * case.keys)
    return 0.5 + 0.5 / case.queries if kind.causal or kind.tensor == "causal" else 1.0


def moved(case: Case, itemsize: int) -> int:
    """The bytes read and written if each pass accesses every number once."""
    queries, keys = (prod(case.batch) * length * case.features for length in (case.queries, case.keys))
    if case.work in DOTS:
        keys = int(keys * (1 + DOTS[case.work].value_ratio) / 2 / DOTS[case.work].group)
    forward = 2 * queries + 2 * keys  # query and output; key and value
    backward = 4 * queries + 4 * keys  # query, output, upstream, gradient; key, value, their gradients
    return (forward + (backward if case.backward else 0)) * itemsize


def bound(count: Count, moved: int, itemsize: int, ceilings: Ceilings) -> Bound | None:
    """The case's bound by its operations and bytes; None without the native kernels, which measure the rates."""
    if ceilings.multiply_adds is None or ceilings.divisions is None:
        return None
    size = itemsize / 4  # a vector has half as many numbers of twice the size
    return Bound(
        arithmetic=count.multiplies * size / ceilings.multiply_adds,
        memory=moved / ceilings.copy,
        with_sums=(count.multiplies + count.sums) * size / ceilings.multiply_adds,
        division=count.divisions * size / ceilings.divisions,
    )
