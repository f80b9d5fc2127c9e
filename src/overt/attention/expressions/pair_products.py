"""Handlers of matrix products, linear maps and einsum on queries, keys and pairs."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from overt.attention.expressions.pair_functions import by_name, numberless, recorded
from overt.attention.expressions.stand_ins import StandIn, Trace, Untraceable, as_meta, common_shape


def matmul(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A matrix product of queries and keys, or of the pairs' features and a captured matrix."""
    first, second = (*arguments, *options.values())
    if isinstance(first, StandIn) and first.side == "pairs" and not isinstance(second, StandIn):
        if second.ndim == 1:
            return (first * second).sum(-1)
        if second.ndim == 2:
            return linear(trace, "linear", function, (first, second.mT), {})
    return _matrix_product(trace, first, second)


def _matrix_product(trace: Trace, first: Tensor, second: Tensor) -> StandIn:
    if min(first.ndim, second.ndim) < 2 or first.shape[-1] != second.shape[-2]:
        raise Untraceable("a matrix product with a vector of queries or keys, or of sizes that do not fit")
    batch = common_shape(first.shape[:-2], second.shape[:-2])
    meta = numberless((*batch, first.shape[-2], second.shape[-1]), torch.result_type(as_meta(first), as_meta(second)))
    return recorded(trace, meta, "matmul", trace.operand(first), trace.operand(second))


def linear(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A linear map of the pairs' features; parts that come from one side, or are joined by `cat`, are mapped separately."""
    value, weight, bias = by_name(("input", "weight", "bias"), (None,), arguments, options)
    if isinstance(weight, StandIn) or not isinstance(value, StandIn):
        raise Untraceable("a linear map that queries or keys choose")
    result = _linear(trace, value, weight)
    return result if bias is None else result + bias


def _linear(trace: Trace, value: Any, weight: Tensor) -> Any:
    parts = getattr(value, "parts", None)
    if parts is not None:
        sizes = [part.shape[-1] for part in parts]
        pieces = [_linear(trace, part, piece) for part, piece in zip(parts, weight.split(sizes, dim=-1), strict=True)]
        total = pieces[0]
        for piece in pieces[1:]:
            total = total + piece
        return total
    source = getattr(value, "source", None)
    if value.vectors is not None:
        return functional.linear(value, weight)
    if source is not None:
        return functional.linear(source, weight).expand(*value.shape[:-1], weight.shape[0])
    if weight.shape[0] == 1:
        return (value * weight[0]).sum(-1, keepdim=True)
    return _matrix_product(trace, value, weight.mT)


def cat(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Concatenate features for a subsequent linear map."""
    parts, dim = by_name(("tensors", "dim"), (0,), arguments, options)
    shape = [*common_shape(*(part.shape[:-1] for part in parts)), sum(part.shape[-1] for part in parts)]
    meta = numberless(shape, parts[0].dtype)
    if dim not in (-1, meta.ndim - 1) or not all(isinstance(part, StandIn) and part.dtype == meta.dtype for part in parts):
        raise Untraceable("cat of pairs along another dimension than the last, or with captured tensors")
    result = recorded(trace, meta, "cat")
    result.parts = list(parts)  # type: ignore[attr-defined]
    return result


def einsum(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A product in Einstein notation; captured tensors are first multiplied into one side, if possible."""
    equation, *operands = arguments
    operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    if not isinstance(equation, str):
        raise Untraceable("einsum with lists of dimensions")
    trace.log.append(equation)
    inputs, output = _letters(equation.replace(" ", ""), [operand.ndim for operand in operands])
    inputs, operands = _joined(inputs, output, operands)
    sizes: dict[str, int] = {}
    for letters, operand in zip(inputs, operands, strict=True):
        sizes |= {letter: size for letter, size in zip(letters, operand.shape, strict=True) if size != 1 or letter not in sizes}
    meta = numberless([sizes[letter] for letter in output], trace.dtype)
    return recorded(trace, meta, "einsum", *map(trace.operand, operands), inputs=tuple(inputs), output=output)


def _letters(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The subscripts of each operand and of the result, with letters in place of '...'."""
    left, arrow, output = equation.partition("->")
    inputs = left.split(",")
    extra = [rank - len(one.replace("...", "")) for one, rank in zip(inputs, ranks, strict=True)]
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in equation]
    most = max(extra)
    inputs = [one.replace("...", "".join(spare[most - count : most])) for one, count in zip(inputs, extra, strict=True)]
    if not arrow:
        letters = sorted(set("".join(inputs)) - set(spare[:most]))
        output = "".join(spare[:most]) + "".join(letter for letter in letters if "".join(inputs).count(letter) == 1)
    return inputs, output.replace("...", "".join(spare[:most]))


def _joined(inputs: list[str], output: str, operands: list[Any]) -> tuple[list[str], list[Any]]:
    """The same product, with each captured operand multiplied into the queries, or else into the keys."""
    side = next((i for i, one in enumerate(operands) if isinstance(one, StandIn) and one.side == "query"), None)
    side = (
        next((i for i, one in enumerate(operands) if isinstance(one, StandIn) and one.side == "key"), None)
        if side is None
        else side
    )
    for index, operand in enumerate(operands):
        if len(operands) > 2 and side is not None and not isinstance(operand, StandIn):
            others = output + "".join(one for i, one in enumerate(inputs) if i not in (index, side))
            letters = "".join(sorted(set(inputs[index] + inputs[side]) & set(others)))
            joined = torch.einsum(f"{inputs[side]},{inputs[index]}->{letters}", operands[side], operand)
            remaining = [i for i in range(len(operands)) if i not in (index, side)]
            return _joined([letters, *(inputs[i] for i in remaining)], output, [joined, *(operands[i] for i in remaining)])
    return inputs, operands
