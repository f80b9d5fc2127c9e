"""A function that stores only its arguments: each derivative, of any order, recomputes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.heap import give_back

Function = Callable[..., Any]


def recomputed(function: Function, *arguments: Tensor | None) -> Any:
    """Compute `function(*arguments)`, a tensor or a tuple of tensors, storing only the arguments.

    A checkpoint stores its recomputed values if its gradients are differentiated. Here the gradients are again such a function, so
    only one block of rows is in memory, at any order. The function takes every tensor as an argument.
    """
    return _Recomputed.apply(function, *arguments)


def pullback(function: Function, which: Sequence[int], count: int) -> Function:
    """The gradients of the arguments `which`, as a function of the `count` arguments and the upstream gradients."""

    def gradients(*arguments: Any) -> tuple[Tensor, ...]:
        values, upstream = list(arguments[:count]), arguments[count:]

        def evaluate(*differentiated: Tensor) -> Any:
            for index, tensor in zip(which, differentiated, strict=True):
                values[index] = tensor
            return function(*values)

        output, back, *_ = torch.func.vjp(evaluate, *(values[index] for index in which))
        return back(upstream if isinstance(output, tuple) else upstream[0])

    return gradients


def pushforward(function: Function, which: Sequence[int], count: int) -> Function:
    """The results' tangents, as a function of the `count` arguments and the tangents of `which`: the transpose of the linear gradients."""

    def tangents(*arguments: Any) -> Any:
        values, gradients = arguments[:count], pullback(function, which, count)
        output = function(*values)
        outputs = output if isinstance(output, tuple) else (output,)
        _, transpose, *_ = torch.func.vjp(lambda *upstream: gradients(*values, *upstream), *map(torch.zeros_like, outputs))
        result = transpose(tuple(arguments[count:]))
        return result if isinstance(output, tuple) else result[0]

    return tangents


@dataclass(frozen=True, eq=False)
class RowBlocks:
    """A function of tensors, evaluated in blocks of rows: some arguments and results have rows, dimension −2, others are shared.

    Results with rows are concatenated, others are summed. So the gradients are again such a function, and only sums are in memory.
    """

    block: Callable[[int], Function]  # the function of a block, by its first row
    size: int  # rows of a block
    arguments: tuple[bool, ...]  # which have rows
    results: tuple[bool, ...]

    def __call__(self, *arguments: Any) -> Any:
        """The results; a single result is not a tuple."""
        parts = [
            tensor.split(self.size, dim=-2) if rows else tensor for tensor, rows in zip(arguments, self.arguments, strict=True)
        ]
        count = len(parts[self.arguments.index(True)])
        results: list[Any] = [[] if rows else None for rows in self.results]
        for number in range(count):
            if count > 1 and arguments[self.arguments.index(True)].device.type == "cpu":
                give_back()
            part = self.block(number * self.size)(
                *(p[number] if rows else p for p, rows in zip(parts, self.arguments, strict=True))
            )
            for index, tensor in enumerate(part if isinstance(part, tuple) else (part,)):
                if self.results[index]:
                    results[index].append(tensor)
                else:
                    results[index] = tensor if results[index] is None else results[index] + tensor
        results = [torch.cat(tensor, dim=-2) if rows else tensor for tensor, rows in zip(results, self.results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    def pullback(self, which: Sequence[int], count: int) -> "RowBlocks":
        """Its gradients; see the function `pullback`."""
        results = tuple(self.arguments[index] for index in which)
        return RowBlocks(
            lambda first: pullback(self.block(first), which, count), self.size, (*self.arguments, *self.results), results
        )

    def pushforward(self, which: Sequence[int], count: int) -> "RowBlocks":
        """Its results' tangents; see the function `pushforward`."""
        arguments = (*self.arguments, *(self.arguments[index] for index in which))
        return RowBlocks(lambda first: pushforward(self.block(first), which, count), self.size, arguments, self.results)


class _Recomputed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(function, *arguments):  # type: ignore[override]
        with torch.no_grad():
            return function(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.function, *arguments = inputs
        ctx.save_for_backward(*arguments)
        ctx.save_for_forward(*arguments)

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        arguments, needs = ctx.saved_tensors, ctx.needs_input_grad[1:]
        which = [index for index, need in enumerate(needs) if need]
        function = ctx.function.pullback if isinstance(ctx.function, RowBlocks) else partial(pullback, ctx.function)
        gradients = recomputed(function(which, len(arguments)), *arguments, *upstream)
        by_index = dict(zip(which, gradients if isinstance(gradients, tuple) else (gradients,), strict=True))
        return None, *(by_index.get(index) for index in range(len(arguments)))

    @staticmethod
    def jvp(ctx, _, *tangents):  # type: ignore[override]
        arguments = ctx.saved_tensors
        which = [index for index, tangent in enumerate(tangents) if tangent is not None]
        if not which:
            return None
        function = ctx.function.pushforward if isinstance(ctx.function, RowBlocks) else partial(pushforward, ctx.function)
        return function(which, len(arguments))(*arguments, *(tangents[index] for index in which))
