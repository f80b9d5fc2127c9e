"""Lower bounds of the time of a case on a GPU: the operations of the kernels' formulas, at the measured rates."""

from dataclasses import dataclass

import torch

from overt.bench.bounds import moved
from overt.bench.cases import Case
from overt.bench.gpu.ceilings import GpuCeilings

# Float32 instructions of a term (one feature of a query and a key), in the form of attention/kernels/triton/additive_scores.py and
# attention/kernels/triton/additive.py; a product that is added is one of them. Four terms share a reciprocal.
# A score (`summed`): 4 multiply-adds for y; 2 products, 2 sums, 2 for the numerator, 1 for the denominator, 1 for the total.
SCORE = 12 / 4
# Each 1 / y of the four (`inverses`): 4 multiply-adds for y, 3 products before the reciprocal and 6 after it.
INVERSES = 13 / 4
# Of each r = 1 / y: r - r² is one, and times the score's gradient, added, another; of queries gradient · r is added too, for weights.
SLOPE_QUERIES, SLOPE_KEYS = 3, 2
# Gradients are deterministic, which takes two passes, each with the scores again: one by queries, one by keys.
BACKWARD = 2 * (SCORE + INVERSES) + SLOPE_QUERIES + SLOPE_KEYS
RECIPROCALS, RECIPROCALS_BACKWARD = 1 / 4, 2 * (1 / 4 + 1 / 4)


@dataclass(frozen=True)
class GpuBound:
    """A lower bound of a case's seconds, by its float32 instructions, its matmuls and the bytes that it reads and writes.

    Two more figures are not part of the bound: `reciprocals`, of units that work in parallel; `tanhs`, the time of one hardware
    tanh for each term of a forward pass. None where the case has none.
    """

    instructions: float
    matmul: float
    memory: float
    reciprocals: float | None = None
    tanhs: float | None = None

    @property
    def seconds(self) -> float:
        """The longest of the three."""
        return max(self.instructions, self.matmul, self.memory)

    @property
    def applies(self) -> str:
        """Which of them that is."""
        parts = {"float32 instructions": self.instructions, "matmul": self.matmul, "copying": self.memory}
        return max(parts, key=lambda name: parts[name])


def additive_bound(case: Case, dtype: torch.dtype, ceilings: GpuCeilings) -> GpuBound | None:
    """The bound of the case on this GPU; None where its rates were not measured: in float64, or without Triton.

    It counts only the operations of terms, not those of pairs: the exponential and the sum of values.
    """
    memory = moved(case, dtype.itemsize) / ceilings.copy
    if ceilings.multiply_adds is None or ceilings.reciprocals is None or ceilings.tanhs is None or dtype == torch.float64:
        return None
    return GpuBound(
        instructions=case.terms * (SCORE + (BACKWARD if case.backward else 0)) / ceilings.multiply_adds,
        matmul=0.0,
        memory=memory,
        reciprocals=case.terms * (RECIPROCALS + (RECIPROCALS_BACKWARD if case.backward else 0)) / ceilings.reciprocals,
        tanhs=None if case.backward else case.terms / ceilings.tanhs,
    )
