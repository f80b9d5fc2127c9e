"""Lower bounds of the time of a case on a GPU: the operations in the kernels' formulas, at the measured rates."""

from dataclasses import dataclass

import torch

from overt.bench.bounds import moved
from overt.bench.cases import Case
from overt.bench.gpu.ceilings import GpuCeilings

# Float32 instructions of a term (one feature of a query and a key), in the form of attention/kernels/triton/additive_scores.py and
# attention/kernels/triton/additive.py; a multiply-add is one of them. Four terms share a reciprocal.
# SCORE (`summed`): 4 multiply-adds for y; 2 products, 2 sums, 2 for the numerator, 1 for the denominator, 1 for the total.
SCORE = 12 / 4
# INVERSES, 1 / y of each of the four: 4 multiply-adds for y, 3 products before the reciprocal and 6 after it.
INVERSES = 13 / 4
# SLOPE_QUERIES, SLOPE_KEYS, for each r = 1 / y: r - r² is one, its product with the score's gradient another; queries add gradient · r.
SLOPE_QUERIES, SLOPE_KEYS = 3, 2
# BACKWARD: gradients are deterministic, which takes two passes with recomputed scores: one by queries, one by keys.
BACKWARD = 2 * (SCORE + INVERSES) + SLOPE_QUERIES + SLOPE_KEYS
RECIPROCALS, RECIPROCALS_BACKWARD = 1 / 4, 2 * (1 / 4 + 1 / 4)


@dataclass(frozen=True)
class GpuBound:
    """A lower bound of a case's seconds, from its float32 instructions, its matmuls and the bytes that it reads and writes.

    Two more figures are not part of the bound: `reciprocals`, for units that work in parallel; `tanhs`, the time of one hardware
    tanh for each term of a forward pass. None if the case has none.
    """

    instructions: float
    matmul: float
    memory: float
    reciprocals: float | None = None
    tanhs: float | None = None

    @property
    def seconds(self) -> float:
        """The largest of the three times."""
        return max(self.instructions, self.matmul, self.memory)

    @property
    def applies(self) -> str:
        """The limit that determines the bound."""
        parts = {"float32 instructions": self.instructions, "matmul": self.matmul, "copying": self.memory}
        return max(parts, key=lambda name: parts[name])


def additive_bound(case: Case, dtype: torch.dtype, ceilings: GpuCeilings) -> GpuBound | None:
    """The case's bound on this GPU; None if its rates were not measured: in float64, or without Triton.

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
