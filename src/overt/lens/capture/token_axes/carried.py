"""Places of tokens through functions that reshape, combine or reduce a tensor."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from overt.lens.capture.token_axes.factors import RESHAPES, SPLITS, named_dims, swaps
from overt.lens.capture.token_axes.labels import FunctionCall, TensorLabel, is_numbers, tensors_in
from overt.lens.capture.token_axes.origins import (
    NONE,
    Origins,
    are_several,
    counted_along,
    highest,
    lowest,
    one_or_several,
    replayed,
    reshaped_tokens,
    token_factors,
)
from overt.lens.capture.token_axes.taken import by_entries
from overt.lens.capture.written_out.products import arguments, arranged, operand_letters

_BEGIN = {"embedding", "_pad_packed_sequence", "pad"}


def laid_out(step: FunctionCall, tensor: Tensor, origins: Origins) -> Sequence[Tensor | None] | None:
    """The tokens of each output of a function that reshapes one tensor or takes a part of it; None for other functions."""
    tokens, name, outputs = origins.tokens, step.name, step.outputs
    if name in RESHAPES:
        return [reshaped_tokens(tokens, tensor.shape, output.shape) for output in outputs]
    if swaps(name, step.func):
        return [replayed(step.func, (tokens, *step.args[1:]), step.kwargs)]
    if name == "__getitem__":
        return [by_entries(tokens, tensor.shape, step.args[1])]
    if name in ("select", "narrow", "unbind") or name in SPLITS:
        return _parts(step, tensor, tokens)
    if name in _BEGIN:
        return [None] * len(outputs)
    return None


def _parts(step: FunctionCall, tensor: Tensor, tokens: Tensor) -> list[Tensor | None]:
    """The tokens of parts of one dimension."""
    number, default = (2, 0) if step.name in SPLITS else (1, 0)
    dim = step.argument(number, "dim", default) % tensor.ndim
    varies = tokens.shape[dim] > 1
    if step.name == "select":
        return [tokens.select(dim, step.argument(2, "index") if varies else 0)]
    if step.name == "unbind":
        return [tokens.select(dim, index if varies else 0) for index in range(len(step.outputs))]
    start, result = int(step.argument(2, "start")) if step.name == "narrow" else 0, []
    for output in step.outputs:
        result.append(tokens.narrow(dim, start, output.shape[dim]) if varies else tokens)
        start += output.shape[dim]
    return result


def joined(step: FunctionCall, before: dict[int, TensorLabel]) -> list[Origins]:
    """The places of concatenated tensors, if all of them come from one dimension."""
    tensors, [output] = [tensor for tensor in tensors_in(step.args[:1] or step.kwargs.values()) if tensor.numel()], step.outputs
    dim = step.argument(1, "dim", 0) % output.ndim
    result = []
    for first in [origins for tensor in tensors for origins in before[id(tensor)].origins][:2]:
        if any(first.home == origins.home for origins in result):
            continue
        parts = [_tokens_along(tensor, before[id(tensor)], first) for tensor in tensors]
        if step.name != "stack":  # the token of a part with a single token is unknown
            unknown = first.tokens.new_full([1] * output.ndim, NONE)
            parts = [
                unknown if part is None and tensor.shape[dim] == 1 else part
                for part, tensor in zip(parts, tensors, strict=True)
            ]
        moves = tuple(
            dict.fromkeys(move for tensor in tensors for origins in before[id(tensor)].origins for move in origins.moves)
        )
        known = [part for part in parts if part is not None]
        if len(known) != len(parts):
            continue
        stacked = step.name == "stack"
        known = [part.unsqueeze(dim) for part in known] if stacked else known
        lengths = [1 if stacked else tensor.shape[dim] for tensor in tensors]
        common = [max(sizes) for sizes in zip(*(part.shape for part in known), strict=True)]
        wide = [part.expand(*common[:dim], length, *common[dim + 1 :]) for part, length in zip(known, lengths, strict=True)]
        result.append(Origins(first.home, torch.cat(wide, dim), moves))
    return result


def along_tokens(step: FunctionCall, before: dict[int, TensorLabel]) -> bool:
    """Whether tensors are concatenated along tokens, so that no token meets others."""
    carried = [origins for label in before.values() for origins in label.origins]
    dim = step.argument(1, "dim", 0) % step.outputs[0].ndim
    return step.name != "stack" and any(dim in origins.varying for origins in carried)


def _tokens_along(tensor: Tensor, label: TensorLabel, like: Origins) -> Tensor | None:
    """The tokens of a tensor along the same dimension as the places `like`: moved ones, or its tokens in order."""
    for origins in label.origins:
        if origins.home == like.home:
            return origins.tokens
    for dim, axis in enumerate(label.axes):
        if token_factors(axis) == like.home:
            return counted_along(axis, dim, tensor.ndim, like.tokens.device)
    return None


def multiplied(step: FunctionCall, before: dict[int, TensorLabel]) -> list[tuple[Origins, bool]] | None:
    """The places of a product, and whether each place sums several tokens; None if the product's letters are unknown."""
    output = step.outputs[0]
    tensors, letters = operand_letters(step.name, arguments(step.name, step.args, step.kwargs), output)
    if not tensors:
        return None
    result: list[tuple[Origins, bool]] = []
    for tensor, names in zip(tensors, letters, strict=False):
        label = before.get(id(tensor))
        for origins in label.origins if label is not None else ():
            summed = {number for number, letter in enumerate(names) if letter not in letters[-1]}
            tokens, mixed = reduced(origins, summed)
            tokens = arranged(tokens, [letter for letter in names if letter in letters[-1]], letters[-1])
            if not any(origins.home == other.home for other, _ in result):
                result.append((Origins(origins.home, tokens, origins.moves), mixed))
    return result


def reduced(origins: Origins, dims: set[int], keepdim: bool = False) -> tuple[Tensor, bool]:
    """The tokens after some dimensions were summed, and whether the sum mixed tokens.

    The sum mixed tokens if as many places as there are tokens sum several, or if several places sum the same token.
    """
    tokens = origins.tokens
    varied = [dim for dim in dims if tokens.shape[dim] > 1]
    result = together(tokens, varied) if varied else tokens
    mixed = bool(varied) and are_several(result) and result.numel() > 1 and (_at_all(origins, result) or _twice(tokens, varied))
    for dim in sorted(() if keepdim else dims, reverse=True):
        result = result.squeeze(dim)
    return result, mixed


def together(tokens: Tensor, dims: Sequence[int]) -> Tensor:
    """The token of each sum over these dimensions (none, one or several); the dimensions stay with size 1."""
    low, high = lowest(tokens).amin(tuple(dims), keepdim=True), highest(tokens).amax(tuple(dims), keepdim=True)
    return one_or_several(low, high)


def _at_all(origins: Origins, result: Tensor) -> bool:
    return any(size == origins.length for size in result.shape) or result.numel() == origins.length


def _twice(tokens: Tensor, dims: Sequence[int]) -> bool:
    """Whether a token is in several sums over these dimensions, judged by the first batch entry."""
    batch = [dim for dim in range(tokens.ndim) if dim not in dims and tokens.shape[dim] > 1]
    if len(batch) > 1:
        tokens = tokens.narrow(batch[0], 0, 1)
    rows = tokens.movedim(list(dims), list(range(-len(dims), 0))).reshape(-1, *[tokens.shape[dim] for dim in dims]).flatten(1)
    row = torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)
    pairs = torch.stack([row, rows], -1)[rows >= 0].unique(dim=0)
    return len(pairs[:, 1].unique()) < len(pairs)


def same_tokens(one: Tensor, other: Tensor) -> bool:
    """Whether two broadcast tensors hold the same tokens; places without a token in one of them do not count."""
    return bool(((one == other) | (one == NONE) | (other == NONE)).all())


def tensor_operands(step: FunctionCall) -> list[Tensor]:
    """The tensors of numbers among a function's arguments."""
    return tensors_in((*step.args, *step.kwargs.values()))


def dims_reduced(step: FunctionCall, number: int, ndim: int) -> set[int] | None:
    """The dimensions that a reduction names; None if its argument is something else."""
    dims: Any = step.argument(number, "dim")
    return None if isinstance(dims, Tensor | bool) or is_numbers(dims) else named_dims(dims, ndim)
