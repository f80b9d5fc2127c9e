"""Derivatives beyond the first, of dot products and of additive scores: forward mode, and gradients that are differentiated again."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import overt
from overt.bench import cases
from overt.bench.bounds import POWER, TERM, TERM_BACKWARD, Count, pairs
from overt.bench.cases import Case, Inputs
from overt.bench.contenders import additive, dots
from overt.bench.contenders.contender import GRADIENTS, Attention, Contender, Results, Run, Unable, memory_shortage
from overt.bench.reference import Reference, reference_on_rows
from overt.bench.works import Work
from overt.errors import OvertError

_TENSORS = 20  # of B · Q · K · D numbers that the second derivative of the textbook's additive scores has in memory
_MAX_PAIRS = 1 << 23  # of queries and keys, computed for the comparison: a second derivative holds many numbers for each


KINDS = {
    "derivatives": "dot products, all gradients and their derivatives",
    "derivativesquery": "dot products, the query's gradient and its derivatives",
    "derivativestangent": "dot products, the output and its tangent in forward mode",
}
KINDS |= {f"additive{work}": text.replace("dot products", "additive scores") for work, text in KINDS.items()}

# Products of a pair's features in the first passes and in those of the derivative, where every input moves or the query alone.
PRODUCTS = {"derivatives": 7 + 15, "derivativesquery": 7 + 10, "derivativestangent": 6}
# A term of an additive score's tangent, the reciprocal and the slope times the direction; of its first pass and gradients; and of how these
# move: the reciprocal, both slopes, and sums for query, key and weight.
_TANGENT, _FIRST = TERM + Count(3, 1), TERM + TERM_BACKWARD
_SECOND = _FIRST + _TANGENT + TERM_BACKWARD + Count(6, 3)
MOVING_TERMS = {"derivatives": _SECOND, "derivativesquery": _SECOND, "derivativestangent": _TANGENT}


def random_inputs(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> Inputs:
    """Normally distributed inputs of a case, the same at every call."""
    if _is_additive(case.work):
        return cases.random_inputs(replace(case, work="gradients" if case.backward else "additive"), dtype, device)
    return dots.random_inputs(replace(case, work="dotgradients" if case.backward else "dot"), dtype, device)


def contenders(work: str) -> list[Contender]:
    """overt; torch's fused kernel has no second derivative, so its MATH backend, and the formula as most models write it."""
    ours = Contender("overt native", lambda inputs: _overt(inputs, work), ours=True)
    if _is_additive(work):
        return [ours, Contender("PyTorch eager", lambda inputs: (_textbook(inputs, work), ""))]
    return [
        ours,
        Contender("torch MATH", lambda inputs: (_run(_mathematics, inputs, work), "")),
        Contender("PyTorch eager", lambda inputs: (_run(_formula, inputs, work), "")),
    ]


def _is_additive(work: str) -> bool:
    return work.startswith("additive")


def _textbook(inputs: Inputs, work: str) -> Run:
    if shortage := memory_shortage(inputs, _TENSORS):
        raise Unable(shortage)
    return _run(additive.textbook, inputs, work)


def reference(case: Case, inputs: Inputs) -> Reference:
    """All results in float64, of evenly spread query rows: all of them where there are few enough."""

    def compute(rows: Tensor, upstream: Tensor | None) -> Results:
        query, key, value = (tensor.double() for tensor in inputs.tensors[:3])
        weight = inputs.weight.double() if _is_additive(case.work) else inputs.weight
        exact = Inputs(query[..., rows, :], key, value, weight, None)
        return _run(additive.textbook if _is_additive(case.work) else _formula, exact, case.work)(upstream)

    count = max(case.terms if _is_additive(case.work) else pairs(case), 1)
    return reference_on_rows(case, inputs, _MAX_PAIRS * case.queries // count, compute)


def _overt(inputs: Inputs, work: str) -> tuple[Run, str]:
    def attention(query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None = None) -> Tensor:
        with overt.use_path("native"):
            return overt.attend(query, key, value, score=None if weight is None else overt.Additive(weight))

    try:
        with overt.use_path("native"):
            overt.plan(*inputs.tensors[:3], score=overt.Additive(inputs.weight) if _is_additive(work) else None)
    except OvertError as error:
        raise Unable(str(error)) from error
    return _run(attention, inputs, work), ""


def _mathematics(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(query, key, value)


def _formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value


def _run(attention: Attention, inputs: Inputs, work: str) -> Run:
    """Inputs move in the direction of themselves with their features shifted by one, which is the same for some rows as for all."""
    tensors = tuple(tensor.detach() for tensor in inputs.tensors[: 4 if _is_additive(work) else 3])
    directions = tuple(tensor.roll(1, -1) for tensor in tensors)
    if not work.endswith("tangent"):
        return _differentiated_twice(attention, tensors, directions, 1 if work.endswith("query") else len(tensors))

    def run(_: Tensor | None) -> Results:
        output, tangent, *_others = torch.func.jvp(attention, tensors, directions)
        return {"output": output, "tangent": tangent}

    return run


def _differentiated_twice(
    attention: Attention, tensors: tuple[Tensor, ...], directions: tuple[Tensor, ...], count: int
) -> Callable[..., Results]:
    """The gradients of the first inputs, and how all inputs' gradients move in these inputs' directions."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]

    def run(upstream: Tensor | None) -> Results:
        assert upstream is not None
        towards = upstream.clone().requires_grad_()
        first = torch.autograd.grad(attention(*leaves), leaves[:count], towards, create_graph=True)
        moves = torch.autograd.grad(first, [*leaves, towards], directions[:count])
        return dict(zip((*GRADIENTS[: len(leaves)], "upstream gradient"), moves, strict=True))

    return run


def operations(case: Case) -> Count:
    """The operations of the first passes and of the derivative."""
    width = case.features
    if case.work in PRODUCTS:
        return (Count(PRODUCTS[case.work] * width) + POWER) * pairs(case)
    return MOVING_TERMS[case.work.removeprefix("additive")] * case.terms + (Count(3 * width) + POWER) * pairs(case)


WORKS = {work: Work(text, contenders(work), reference, operations, random_inputs) for work, text in KINDS.items()}
BACKWARD = {work for work in KINDS if not work.endswith("tangent")}
CASES = [Case(work, *((8,), 256, 256, 128) if _is_additive(work) else ((1, 8), 1024, 1024, 64)) for work in KINDS]
GPU_CASES: list[Case] = []
