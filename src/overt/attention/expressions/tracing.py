"""Trace a caller's score, and normalizer, to a program over pairs with the tensors that it reads; or report why that is impossible.

A score runs on stand-ins in every call, which takes fractions of a millisecond: captured tensors have their current values, and
gradients reach them through torch's own graph. The recorded structure is a key into known programs; a new program is lowered, and
compared with the score and its gradients on a few random vectors.

A caller's elementwise normalizer becomes part of the program, whose numbers are then weights. They may be divided by a function
of their row's sum (`division`).
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._functorch.eager_transforms import enable_inplace_requires_grad

from overt.attention.expressions.adjoints import program_gradients
from overt.attention.expressions.division import Division, Function
from overt.attention.expressions.handlers import HANDLERS
from overt.attention.expressions.instructions import assemble
from overt.attention.expressions.lowering import LeafColumns, Lowering
from overt.attention.expressions.pair_functions import numberless
from overt.attention.expressions.stand_ins import Leaf, StandIn, Trace, Untraceable, WritesInput, common_shape
from overt.attention.expressions.terms import encoded, program_scores
from overt.errors import InputError

MAX_KNOWN = 256  # structures of scores whose programs are cached
_PROBES = (5, 7, 11, 13, 17, 19, 23, 29, 31)  # lengths of the probe; none is the size of any other dimension
_FEW = 2**20  # pairs of the probe up to which it includes all batch entries
_TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-8}


@dataclass(frozen=True, eq=False)
class TracedScore:
    """A program (`terms`, `numbers`) and its inputs: columns of queries (..., Q, C), of keys (..., K, C'), constants (..., C'')."""

    query: Tensor
    key: Tensor
    constants: Tensor
    terms: list[int]
    numbers: list[float]
    divisor: Callable[[Tensor], Tensor] | None = None
    """The divisor that a caller's normalizer computes from the sum of a row's numbers."""
    divided_by_sum: bool = False  # whether the divisor is the sum itself

    @property
    def description(self) -> str:
        """The cost of the program in operations."""
        program = assemble(self.terms, self.numbers)
        return f"traced score, {program.pair_cost} operations a pair and {program.feature_cost} a pair and feature"


@dataclass(frozen=True, eq=False)
class _Lowered:
    terms: list[int]
    literals: list[float]
    columns: dict[str, list[LeafColumns]]


known: OrderedDict[Any, _Lowered | str] = OrderedDict()


def traced(score: Function, query: Tensor, key: Tensor, normalizer: Function | None = None) -> TracedScore | str:
    """Trace a score of query (..., Q, D) and key (..., K, D') to a program; returns the reason if it cannot be traced.

    `normalizer` is the caller's, if any: the program then computes its weights.

    Raises InputError if the score writes to query or key.

    >>> query, key = torch.zeros(2, 4), torch.zeros(3, 4)
    >>> traced(lambda q, k: -(q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1), query, key).description
    'traced score, 4 operations a pair and 4 a pair and feature'
    >>> traced(lambda q, k: (q @ k.mT).softmax(-1), query, key)
    'amax over queries or keys'
    """
    try:
        trace, result = _run(score, query, key, normalizer)
    except Untraceable as error:
        return str(error)
    sizes = _sizes(query), _sizes(key)
    transformed = torch._C._are_functorch_transforms_active()  # captured tensors may be mapped, and then cannot be compared
    structure = (tuple(trace.log), result.number, trace.grad, transformed, *sizes, query.dtype, normalizer is None)
    lowered = known.get(structure)
    if lowered is None:
        lowered = _lowered(score, query, key, trace, normalizer)
        known[structure] = lowered
        while len(known) > MAX_KNOWN:
            known.popitem(last=False)
    return lowered if isinstance(lowered, str) else _packed(lowered, trace, query, key, Division.split(result, normalizer))


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    """The part of a shape that belongs to a score's structure: number of dimensions, sizes of 1, features."""
    return (*(min(size, 2) for size in tensor.shape[:-1]), tensor.shape[-1])


def _run(score: Function, query: Tensor, key: Tensor, normalizer: Function | None) -> tuple[Trace, StandIn]:
    trace = Trace(query, key, HANDLERS)
    try:
        result = score(*trace.inputs)
        if normalizer is not None and isinstance(result, StandIn):  # masked pairs do not enter a program's sums
            allowed = trace.pair_stand_in(numberless(result.shape, torch.bool), trace.operand(1.0))
            result = normalizer(result, allowed)
    except Untraceable:
        raise
    except WritesInput as error:
        raise InputError(
            "a score that leaves its query and key as they are",
            got=f"one that writes into them by {error}",
            fix="compute a new tensor, as in query = query * 2, or copy first: query.clone()",
        ) from None
    except Exception as error:
        message = str(error).strip().split("\n")[0][:120]
        raise Untraceable(f"it does not run on stand-ins for query and key ({type(error).__name__}: {message})") from error
    if not isinstance(result, StandIn) or result.run is not trace or result.vectors is not None:
        raise Untraceable("its result is not computed from pairs of query and key")
    if result.meta.dtype != query.dtype or tuple(result.shape[-2:]) != (query.shape[-2], key.shape[-2]):
        raise Untraceable(f"it returns {result.meta.dtype} of shape {tuple(result.shape)}")
    return trace, result


def _lowered(score: Function, query: Tensor, key: Tensor, call: Trace, normalizer: Function | None) -> _Lowered | str:
    """Lower a score to a program, and compare it with the score."""
    reason = ""
    for probe in _probes(query, key):
        try:
            with enable_inplace_requires_grad(True):  # the probe is no input of torch.func's transforms
                return _checked(score, *probe, call, normalizer)
        except Untraceable as error:
            reason = str(error)
        except Exception as error:  # anything that the score's code raises on the probe's batch
            reason = f"it does not run on a few vectors ({type(error).__name__}: {str(error).strip()[:120]})"
    return reason


def _probes(query: Tensor, key: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Random queries and keys for comparison, in two sizes: of the first batch entry if the batch is large, else of all entries."""
    sizes = {*query.shape, *key.shape}
    lengths = [size for size in _PROBES if size not in sizes]
    batches: list[Any] = [(query.shape[:-2], key.shape[:-2])]
    if query.shape[:-2].numel() * lengths[0] * lengths[1] * query.shape[-1] > _FEW and query.ndim > 2:
        batches.insert(0, ((1, *query.shape[1:-2]), (1, *key.shape[1:-2])))
    generator = torch.Generator().manual_seed(0)
    made = []
    for (query_batch, key_batch), rows, columns in [(batch, *two) for batch in batches for two in (lengths[:2], lengths[2:4])]:
        shapes = (*query_batch, rows, query.shape[-1]), (*key_batch, columns, key.shape[-1])
        first, second = (torch.randn(shape, generator=generator, dtype=query.dtype) for shape in shapes)
        made.append((first, second))
    return made


def _checked(score: Function, query: Tensor, key: Tensor, call: Trace, normalizer: Function | None) -> _Lowered:
    state, grad = torch.get_rng_state(), torch.is_grad_enabled()
    query, key = query.requires_grad_(grad), key.requires_grad_(grad)
    trace, result = _run(score, query, key, normalizer)
    lengths = [(one.inputs[0].shape[-2], one.inputs[1].shape[-2]) for one in (call, trace)]
    if not _alike(call.log, trace.log, lengths):
        raise Untraceable("it does something else for other numbers of queries or keys")
    lowering = Lowering(trace.leaves, trace.numbers, (query.shape[-2], key.shape[-2]))
    labels = (*range(result.ndim - 3, -1, -1), "Q", "K")
    division = Division.split(result, normalizer)
    root = lowering.lower(division.numbers, labels)
    if any(lowering.lower(total.arguments[0], labels) is not root for total in division.sums):
        raise Untraceable("its weights are divided by the sum of something else")
    literals = lowering.terms.literals
    lowered = _Lowered(encoded(root, len(literals)), literals, lowering.columns)
    scores = score(query, key)
    if not torch.equal(state, torch.get_rng_state()):
        raise Untraceable("it draws random numbers")
    program = _packed(lowered, trace, query, key, division)
    if normalizer is None:
        _compare(scores, program, query, key, trace)
    else:
        for allowed in (torch.ones_like(scores, dtype=torch.bool), _scattered(scores)):
            weights = normalizer(torch.where(allowed, scores, -torch.inf), allowed)
            _compare(weights, program, query, key, trace, allowed)
    return lowered


def _scattered(scores: Tensor) -> Tensor:
    """A mask that allows three of four pairs, and at least one in each row."""
    allowed = torch.rand(scores.shape, generator=torch.Generator().manual_seed(2)) < 0.75
    return allowed | (torch.arange(scores.shape[-1]) == 0)


def _alike(first: Any, second: Any, lengths: list[tuple[int, int]]) -> bool:
    """Whether two logs are equal, except for integers that are the same multiple of their calls' lengths."""
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(_alike(*pair, lengths) for pair in zip(first, second, strict=True))
    if type(first) is int and type(second) is int and first != second:
        return any(first % one == 0 and first // one * other == second for one, other in zip(*lengths, strict=True))
    return type(first) is type(second) and first == second


def _compare(
    scores: Tensor, program: TracedScore, query: Tensor, key: Tensor, trace: Trace, allowed: Tensor | None = None
) -> None:
    """Refuse a program whose numbers or gradients differ from the score's, or, with `allowed` pairs, from the normalizer's weights."""
    inputs = program.query, program.key, program.constants
    result = program_scores(program.terms, program.numbers, *inputs)
    if allowed is not None:
        scores, result = (torch.where(allowed, tensor, 0) for tensor in (scores, result))
    numbers = result.detach().requires_grad_()
    result = numbers if program.divisor is None else numbers / program.divisor(numbers.sum(-1, keepdim=True))
    if not isinstance(scores, Tensor) or not _near(scores, result):
        raise Untraceable("the program's numbers are not the score's")
    if not (trace.grad and scores.requires_grad):
        return
    upstream = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=result.dtype)
    (number_gradients,) = torch.autograd.grad(result, numbers, upstream)
    number_gradients = number_gradients if allowed is None else torch.where(allowed, number_gradients, 0)
    with torch.no_grad():
        gradients = program_gradients(program.terms, program.numbers, *inputs, number_gradients)
    # The gradients of this sum at the program's inputs are `gradients`, so autograd continues to query, key and captured tensors.
    parts = [(one.expand(part.shape) * part).sum() for one, part in zip(inputs, gradients, strict=True)]
    linear = parts[0] + parts[1] + parts[2]
    captured = [
        leaf.tensor for leaf in trace.leaves if leaf.side == "constant" and leaf.tensor.requires_grad and leaf.tensor.is_leaf
    ]
    leaves = [query, key, *captured]
    wanted = torch.autograd.grad((scores * upstream).sum(), leaves, allow_unused=True, retain_graph=True)
    actual = (
        torch.autograd.grad(linear, leaves, allow_unused=True, retain_graph=True)
        if linear.requires_grad
        else [None] * len(leaves)
    )
    zero = torch.zeros((), dtype=result.dtype)
    for first, second in zip(wanted, actual, strict=True):
        if not _near(zero if first is None else first, zero if second is None else second):
            raise Untraceable("the program's gradients are not the score's")


def _near(first: Tensor, second: Tensor) -> bool:
    first, second = first.detach(), second.detach()
    finite = torch.isfinite(first)
    size = first[finite].abs().amax().item() if finite.any() else 0.0
    tolerance = _TOLERANCE[first.dtype] * max(size, 1e-3)
    return torch.allclose(first, second.to(first.dtype), rtol=0, atol=tolerance, equal_nan=True)


def _packed(lowered: _Lowered, trace: Trace, query: Tensor, key: Tensor, division: Division) -> TracedScore:
    """The tensors that a program reads, packed in columns."""
    columns = lowered.columns
    query_columns = [_placed(one, trace.leaves, "Q", query) for one in columns["query"]]
    key_columns = [_placed(one, trace.leaves, "K", key) for one in columns["key"]]
    constants = [_placed(one, trace.leaves, None, query) for one in columns["constant"]]
    return TracedScore(
        _joined(query_columns, query.shape[-2:-1], query),
        _joined(key_columns, key.shape[-2:-1], key),
        _joined(constants, (), query),
        lowered.terms,
        [*lowered.literals, *(number.value for number in trace.numbers)],
        division.divisor if division.sums else None,
        any(total is division.by for total in division.sums),
    )


def _placed(columns: LeafColumns, leaves: list[Leaf], side: str | None, like: Tensor) -> Tensor:
    """A leaf's numbers as (..., Q or K, columns), or (..., columns) for a captured tensor."""
    tensor, labels = leaves[columns.leaf].tensor, columns.labels
    batch = max((label for label in labels if isinstance(label, int)), default=-1) + 1
    order = [*range(batch - 1, -1, -1), *([side] if side else []), "F"]
    if labels != tuple(order):
        index = {label: dim for dim, label in enumerate(labels) if label in order}
        others = [dim for dim in range(tensor.ndim) if dim not in index.values()]  # of size 1
        tensor = tensor.permute((*(index[label] for label in order if label in index), *others))
        tensor = tensor[(..., *(0,) * len(others))] if others else tensor
        for position, label in enumerate(order):
            tensor = tensor if label in index else tensor.unsqueeze(position)
    tensor = tensor.to(like.device, like.dtype)
    if side and tensor.shape[-2] != like.shape[-2]:
        tensor = tensor.expand(*tensor.shape[:-2], like.shape[-2], tensor.shape[-1])
    return tensor


def _joined(parts: list[Tensor], rows: Any, like: Tensor) -> Tensor:
    if not parts:
        return like.new_zeros((*rows, 0 if not rows else 1))
    if len(parts) == 1:
        return parts[0]
    trailing = 2 if rows else 1
    batch = common_shape(*(part.shape[:-trailing] for part in parts))
    return torch.cat([part.expand(*batch, *part.shape[-trailing:]) for part in parts], dim=-1)
