"""The reference results of a case in float64, and the distance of a contender's results from them."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from overt.bench.cases import Case, Inputs
from overt.bench.contenders.additive import in_blocks
from overt.bench.contenders.contender import Results

# TOLERANCES: the largest allowed difference, relative to the largest number of the reference: for results, for gradients.
TOLERANCES = {
    torch.float32: (1e-5, 1e-4),
    torch.float64: (1e-12, 1e-10),
    torch.float16: (2e-3, 1e-2),
    torch.bfloat16: (2e-2, 5e-2),
}

_MAX_TERMS = 1 << 28  # terms computed for the comparison; further query rows are not compared
_BLOCK_TERMS = 1 << 23
_BY_QUERY = ("output", "tangent", "query gradient", "bias gradient", "upstream gradient")


@dataclass(frozen=True)
class Reference:
    """Results in float64, the upstream gradient, what is compared, and how it is selected from a run's results."""

    results: Results
    upstream: Tensor | None
    description: str
    select: Callable[[Results], Results]


def additive_reference(case: Case, inputs: Inputs) -> Reference:
    """Additive attention by the textbook's formula, for evenly spaced query rows: all rows if they are few enough."""

    def compute(rows: Tensor, upstream: Tensor | None) -> Results:
        exact = Inputs(*(tensor.double() for tensor in inputs.tensors), upstream=None)
        exact = dataclasses.replace(exact, query=exact.query[:, rows])
        return in_blocks(exact, max(1, _BLOCK_TERMS * case.queries // max(case.terms, 1)))(upstream)

    return reference_on_rows(case, inputs, _MAX_TERMS * case.queries // max(case.terms, 1), compute)


def reference_on_rows(case: Case, inputs: Inputs, count: int, compute: Callable[[Tensor, Tensor | None], Results]) -> Reference:
    """The reference for at most `count` evenly spaced query rows; `compute` gets these rows and their upstream gradient.

    The upstream gradient of all other rows is zero, so every gradient depends only on these rows.
    """
    count = max(1, min(case.queries, count))
    rows = torch.arange(count, device=inputs.query.device) * case.queries // count
    upstream, upstream_rows = None, None
    if inputs.upstream is not None:
        upstream_rows = inputs.upstream[..., rows, :].double()
        upstream = torch.zeros_like(inputs.upstream)
        upstream[..., rows, :] = inputs.upstream[..., rows, :]

    def select(results: Results) -> Results:
        return {name: numbers[..., rows, :] if name in _BY_QUERY else numbers for name, numbers in results.items()}

    description = "every number" if count == case.queries else f"the results of {count} of {case.queries} query rows"
    return Reference(compute(rows, upstream_rows), upstream, description, select)


def disagreement(results: Results, reference: Reference, dtype: torch.dtype) -> str:
    """Describe results that differ from the reference by more than the tolerance; empty if none does.

    >>> of_one = Reference({"output": torch.tensor([2.0])}, None, "every number", lambda results: results)
    >>> disagreement({"output": torch.tensor([2.1])}, of_one, torch.float32)
    'output differs by 5.0e-02 of the largest expected number; 1e-05 is allowed'
    """
    wrong = []
    for name, numbers in reference.select(results).items():
        largest = reference.results[name].abs().max()
        difference = (numbers - reference.results[name]).abs().max()
        relative = float(difference / largest.clamp(min=torch.finfo(torch.float64).tiny))
        allowed = TOLERANCES[dtype]["gradient" in name]
        if not relative <= allowed:  # also if it is NaN
            wrong.append(f"{name} differs by {relative:.1e} of the largest expected number; {allowed:.0e} is allowed")
    return "; ".join(wrong)
