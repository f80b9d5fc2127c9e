"""What every contender has to come to, in float64, and how far from it one came."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch

from overt.bench.cases import Case, Inputs
from overt.bench.contenders.additive import in_blocks
from overt.bench.contenders.contender import Results

# The largest difference from the wanted numbers, relative to the largest of them: of results, of gradients.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-12, 1e-10), torch.bfloat16: (2e-2, 5e-2)}

_MOST_TERMS = 1 << 28  # computed for the comparison; more query rows than these allow are not compared
_BLOCK_TERMS = 1 << 23


@dataclass(frozen=True)
class Wanted:
    """The results in float64, the upstream gradient to run with, what they are of, and what of a run's results is compared."""

    results: Results
    upstream: torch.Tensor | None
    told: str
    taken: Callable[[Results], Results]


def wanted(case: Case, inputs: Inputs) -> Wanted:
    """Additive attention by the textbook's formula, of evenly spread query rows: every one where they are not too many.

    Where some rows are left out, the upstream gradient is zero but for the others, so that every gradient comes from them alone.
    """
    count = max(1, min(case.queries, _MOST_TERMS * case.queries // max(case.terms, 1)))
    rows = torch.arange(count, device=inputs.query.device) * case.queries // count
    exact = Inputs(*(tensor.double() for tensor in inputs.tensors), upstream=None)
    exact = dataclasses.replace(exact, query=exact.query[:, rows])
    upstream, upstream_rows = None, None
    if inputs.upstream is not None:
        upstream_rows = inputs.upstream[:, rows].double()
        upstream = torch.zeros_like(inputs.upstream)
        upstream[:, rows] = inputs.upstream[:, rows]
    block = max(1, _BLOCK_TERMS * case.queries // max(case.terms, 1))

    def taken(results: Results) -> Results:
        return {name: found[:, rows] if name in ("output", "query gradient") else found for name, found in results.items()}

    told = "every number" if count == case.queries else f"what comes of {count} of {case.queries} query rows"
    return Wanted(in_blocks(exact, block)(upstream_rows), upstream, told, taken)


def disagreement(found: Results, expected: Wanted, dtype: torch.dtype) -> str:
    """What is further from the wanted numbers than the tolerance; empty where nothing is.

    >>> of_one = Wanted({"output": torch.tensor([2.0])}, None, "every number", lambda results: results)
    >>> disagreement({"output": torch.tensor([2.1])}, of_one, torch.float32)
    'output is off by 5.0e-02 of the largest number wanted, and 1e-05 is allowed'
    """
    wrong = []
    for name, numbers in expected.taken(found).items():
        largest = expected.results[name].abs().max()
        off = float((numbers - expected.results[name]).abs().max() / largest.clamp(min=torch.finfo(torch.float64).tiny))
        allowed = TOLERANCES[dtype]["gradient" in name]
        if not off <= allowed:  # NaN is no agreement
            wrong.append(f"{name} is off by {off:.1e} of the largest number wanted, and {allowed:.0e} is allowed")
    return "; ".join(wrong)
