"""The kinds of work that are timed: their computation, contenders, expected results, and operations."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from overt.bench import bounds, cases
from overt.bench.bounds import Bound, Count, additive_operations, dot_operations
from overt.bench.cases import DOTS, Case, Inputs
from overt.bench.ceilings import Ceilings
from overt.bench.contenders import additive, dots
from overt.bench.contenders.contender import Contender
from overt.bench.gpu.bounds import GpuBound, additive_bound
from overt.bench.gpu.ceilings import GpuCeilings
from overt.bench.reference import Reference, additive_reference


@dataclass(frozen=True)
class Work:
    """A kind of work. `gpu_contenders` run on a GPU; `gpu_bound` is None if no GPU bound is computed."""

    description: str
    contenders: list[Contender]
    reference: Callable[[Case, Inputs], Reference]
    operations: Callable[[Case], Count]
    random_inputs: Callable[[Case, torch.dtype, torch.device], Inputs] = cases.random_inputs
    gpu_contenders: list[Contender] = field(default_factory=list)
    moved: Callable[[Case, int], int] = bounds.moved
    gpu_bound: Callable[[Case, torch.dtype, GpuCeilings], GpuBound | None] = lambda case, dtype, limits: None

    def bound(self, case: Case, dtype: torch.dtype, limits: Ceilings | GpuCeilings) -> Bound | GpuBound | None:
        """The shortest time within a machine's limits."""
        if isinstance(limits, GpuCeilings):
            return self.gpu_bound(case, dtype, limits)
        return bounds.bound(self.operations(case), self.moved(case, dtype.itemsize), dtype.itemsize, limits)


def _additive(description: str) -> Work:
    return Work(
        description,
        [additive.overt_path("native"), additive.overt_path("blocked"), additive.eager(), additive.compiled()],
        additive_reference,
        additive_operations,
        gpu_contenders=[additive.overt_path("triton"), additive.eager(), additive.compiled()],
        gpu_bound=additive_bound,
    )


WORKS: dict[str, Work] = {
    "additive": _additive("additive attention, forward"),
    "gradients": _additive("additive attention, forward and backward"),
    **{
        name: Work(kind.description, dots.contenders(name), dots.reference, dot_operations, dots.random_inputs)
        for name, kind in DOTS.items()
    },
}
