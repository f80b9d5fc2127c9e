"""Derivatives of the flat operators as autograd functions: forward mode, gradients, and the derivative of the gradients.

With an output o(x) of inputs x, an upstream gradient u and directions ẋ, all derivatives of first and second order are of one number:

    Φ(x, ẋ, u) = u · ȯ        ȯ = ∂o/∂x · ẋ

Its gradient in ẋ is the backward pass, in u the tangent ȯ, and in x the derivative of the backward pass in the directions ẋ, since a
Hessian is symmetric. So four kernels suffice: output, gradients, tangent (with the output) and second. For higher orders, and for
operators without such kernels, the formula is differentiated in recomputed blocks of rows (`recomputed`).
"""

# ruff: noqa: D102  # the methods of torch's functions

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad

from overt.attention.kernels.flat.formula import at_once
from overt.attention.kernels.flat.recomputed import pullback, pushforward

Gradient = Tensor | None


class TensorIndices(tuple[int, ...]):
    """Indices of a call's tensors. torch.func, which flattens tuples, treats this class as one value."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Flat:
    """A call of an operator without its tensors."""

    attention: Any  # the operator
    others: tuple[Any, ...]  # its inputs, with None for each tensor
    count: int  # of all tensors: first the differentiable ones, then inverse temperature, seed and the mask's arrays

    @classmethod
    def split(cls, attention: Any, inputs: Any) -> tuple["Flat", tuple[Any, ...]]:
        """Split inputs into the call and its tensors."""
        others, arrays = list(inputs), inputs[attention.arrays]
        tensors = (*(inputs[index] for index in attention.tensors), *arrays)
        for index in (*attention.tensors, attention.arrays):
            others[index] = None
        return cls(attention, tuple(others), len(tensors)), tensors

    def inputs(self, tensors: Sequence[Any]) -> Any:
        """The operator's inputs, with these tensors."""
        values, indices = list(self.others), self.attention.tensors
        for index, tensor in zip(indices, tensors[: len(indices)], strict=True):
            values[index] = tensor
        values[self.attention.arrays] = list(tensors[len(indices) :])
        return self.attention.inputs(*values)

    def formula(self, *tensors: Any) -> Tensor:
        """The output as a function of the tensors, differentiable to any order."""
        return self.attention.formula(self.inputs(tensors))

    def second(self, wanted: TensorIndices, which: TensorIndices) -> Any:
        """A function of (*tensors, upstream, *directions of the tensors `which`): Φ's gradients in the tensors `wanted` and in upstream."""
        gradients = pullback(self.formula, which, self.count)
        return pullback(gradients, [*wanted, self.count], self.count + 1)

    def dual(self, which: TensorIndices) -> Any:
        """A function of (*tensors, *directions of the tensors `which`): the output and its tangent."""

        def both(*arguments: Any) -> tuple[Tensor, Tensor]:
            output, tensors = self.formula(*arguments[: self.count]), arguments[: self.count]
            return output, self.second(TensorIndices(), which)(*tensors, torch.zeros_like(output), *arguments[self.count :])[0]

        return both


# Row sums are only passed on to kernels; their tangents and gradients, zero here, are never used. They are not marked as not
# differentiable, since vmap loses such a mark.


class Output(torch.autograd.Function):
    """(call, *tensors) → output and row sums."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call, *tensors):  # type: ignore[override]
        return call.attention.outputs(call.inputs(tensors))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, *tensors = inputs
        _save(ctx, *tensors, *output)

    @staticmethod
    def backward(ctx, upstream, _):  # type: ignore[override]
        *tensors, output, sums = ctx.saved_tensors
        which = _indices(ctx.needs_input_grad[1:])
        return None, *gradients(ctx.call, which, (output, sums), upstream, tensors)

    @staticmethod
    def jvp(ctx, _, *tangents):  # type: ignore[override]
        which, (*tensors, _, sums) = present(tangents), ctx.saved_tensors
        return Dual.apply(ctx.call, which, *tensors, *(tangents[index] for index in which))[2], torch.zeros_like(sums)


class Eager(torch.autograd.Function):
    """(call, *tensors) → output: `Output` outside of torch.func's transforms, with less overhead for each call."""

    @staticmethod
    def forward(ctx, call, *tensors):  # type: ignore[override]
        output, sums = call.attention.outputs(call.inputs(tensors))
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, output, sums)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*tensors, output, sums)
        return output

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        return Output.backward(ctx, upstream, None)

    @staticmethod
    def jvp(ctx, *tangents):  # type: ignore[override]
        return Output.jvp(ctx, *tangents)[0]


class Dual(torch.autograd.Function):
    """(call, which, *tensors, *directions) → output, row sums, and the output's tangent in the directions of the tensors `which`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call, which, *arguments):  # type: ignore[override]
        return call.attention.duals(call, which, arguments[: call.count], arguments[call.count :])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, ctx.which, *arguments = inputs
        _save(ctx, *arguments, *output[:2])

    @staticmethod
    def backward(ctx, upstream, _, d_tangent):  # type: ignore[override]
        *arguments, output, sums = ctx.saved_tensors
        call, wanted = ctx.call, _indices(ctx.needs_input_grad[2 : 2 + ctx.call.count])
        tensors, directions = arguments[: call.count], arguments[call.count :]
        result, linear = dual_gradients(call, wanted, ctx.which, (output, sums), (upstream, d_tangent), tensors, directions)
        return None, None, *result, *(linear[index] for index in ctx.which)

    @staticmethod
    def jvp(ctx, _, __, *tangents):  # type: ignore[override]
        *arguments, _, sums = ctx.saved_tensors
        which = present(tangents)
        moves = pushforward(ctx.call.dual(ctx.which), which, len(arguments))
        output_tangent, second_tangent = moves(*arguments, *(tangents[index] for index in which))
        return output_tangent, torch.zeros_like(sums), second_tangent


class Gradients(torch.autograd.Function):
    """(call, which, output, sums, upstream, *tensors) → the gradients of the tensors `which`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call, which, output, sums, upstream, *tensors):  # type: ignore[override]
        result = call.attention.gradients(call.inputs(tensors), (output, sums), upstream, which)
        return tuple(result[index] for index in which)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, ctx.which, *arguments = inputs
        _save(ctx, *arguments)

    @staticmethod
    def backward(ctx, *directions):  # type: ignore[override]
        output, sums, upstream, *tensors = ctx.saved_tensors
        call, wanted, moving = ctx.call, _indices(ctx.needs_input_grad[5:]), present(directions)
        which, directions = TensorIndices(ctx.which[index] for index in moving), [directions[index] for index in moving]
        if not which:
            return (None,) * (5 + call.count)
        if any(map(is_legacy_batchedtensor, directions)):
            *result, tangent = by_autograd(_unmapped(call, which), [*wanted, call.count], (*tensors, upstream), directions)
        else:
            *result, tangent = Second.apply(call, wanted, which, output, sums, upstream, *tensors, *directions)
        return None, None, None, None, tangent, *_spread(wanted, result, call.count)

    @staticmethod
    def jvp(ctx, _, __, ___, ____, upstream_tangent, *tangents):  # type: ignore[override]
        output, sums, upstream, *tensors = ctx.saved_tensors
        call, which, wanted = ctx.call, present(tangents), ctx.which
        linear = gradients(call, wanted, (output, sums), upstream_tangent, tensors)
        directions, moving = (tangents[index] for index in which), [None] * len(wanted)
        if which:
            moving = Second.apply(call, wanted, which, output, sums, upstream, *tensors, *directions)
        return tuple(_sum(linear[index], moved) for index, moved in zip(wanted, moving, strict=False))


class Second(torch.autograd.Function):
    """(call, wanted, which, output, sums, upstream, *tensors, *directions of the tensors `which`) → gradients of Φ.

    The gradients are in the tensors `wanted`, and in upstream.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(call, wanted, which, output, sums, upstream, *arguments):  # type: ignore[override]
        tensors, directions = arguments[: call.count], arguments[call.count :]
        return tuple(call.attention.seconds(call, wanted, which, (output, sums), upstream, tensors, directions))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.call, ctx.wanted, ctx.which, _, _, upstream, *arguments = inputs
        _save(ctx, *arguments[: ctx.call.count], upstream, *arguments[ctx.call.count :])
        ctx.set_materialize_grads(True)

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        arguments, count, needs = ctx.saved_tensors, ctx.call.count, ctx.needs_input_grad[5:]
        which = _indices((*needs[1 : count + 1], needs[0], *needs[count + 1 :]))
        second = ctx.call.second(ctx.wanted, ctx.which)
        result = _spread(which, pullback(second, which, len(arguments))(*arguments, *upstream), len(arguments))
        return None, None, None, None, None, result[count], *result[:count], *result[count + 1 :]

    @staticmethod
    def jvp(ctx, _, __, ___, ____, _____, upstream_tangent, *tangents):  # type: ignore[override]
        count = ctx.call.count
        tangents = (*tangents[:count], upstream_tangent, *tangents[count:])
        which = TensorIndices(index for index in present(tangents) if tangents[index].is_floating_point())
        moves = pushforward(ctx.call.second(ctx.wanted, ctx.which), which, len(tangents))
        return moves(*ctx.saved_tensors, *(tangents[index] for index in which))


def gradients(
    call: Flat, which: TensorIndices, saved: tuple[Tensor, Tensor], upstream: Gradient, tensors: Sequence[Any]
) -> list[Gradient]:
    """A gradient for each tensor, None for tensors not in `which`; differentiable if gradients are recorded."""
    if upstream is None or not which:
        return [None] * len(tensors)
    output, sums = saved
    if is_legacy_batchedtensor(upstream):
        result = by_autograd(_unmapped_formula(call), list(which), tuple(tensors), [upstream])
    elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        result = Gradients.apply(call, which, output.detach(), sums.detach(), upstream, *tensors)
    else:
        by_index = call.attention.gradients(call.inputs(tensors), saved, upstream, which)
        result = [by_index[index] for index in which]
    return _spread(which, result, len(tensors))


def dual_gradients(
    call: Flat,
    wanted: TensorIndices,
    which: TensorIndices,
    saved: tuple[Tensor, Tensor],
    upstream: tuple[Gradient, Gradient],
    tensors: Sequence[Any],
    directions: Sequence[Tensor],
) -> tuple[list[Gradient], list[Gradient]]:
    """Gradients of tensors and of their directions, from the upstream gradients of output and tangent."""
    d_output, d_tangent = upstream
    result = gradients(call, wanted, saved, d_output, tensors)
    linear = gradients(call, which, saved, d_tangent, tensors)
    if d_tangent is not None and wanted:
        moving = Second.apply(call, wanted, which, saved[0].detach(), saved[1].detach(), d_tangent, *tensors, *directions)
        result = [_sum(*pair) for pair in zip(result, _spread(wanted, moving, call.count), strict=True)]  # pyright: ignore[reportArgumentType]
    return result, linear


def _save(ctx: Any, *tensors: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def _indices(needs: Sequence[bool]) -> TensorIndices:
    return TensorIndices(index for index, need in enumerate(needs) if need)


def present(tensors: Sequence[Any]) -> TensorIndices:
    """The indices of the tensors that are not None."""
    return TensorIndices(index for index, tensor in enumerate(tensors) if tensor is not None)


def _spread(which: Sequence[int], values: Sequence[Any], count: int) -> list[Any]:
    """`count` entries: these values at the indices `which`, None elsewhere."""
    by_index = dict(zip(which, values, strict=False))
    return [by_index.get(index) for index in range(count)]


def _sum(first: Gradient, second: Gradient) -> Gradient:
    return second if first is None else first if second is None else first + second


def _unmapped_formula(call: Flat) -> Any:
    """The formula without custom autograd functions, which autograd's own vmap (is_grads_batched) does not support."""
    return lambda *tensors: call.attention.formula(call.inputs(tensors), at_once)


def _unmapped(call: Flat, which: TensorIndices) -> Any:
    """The gradients of the tensors `which`, as a function of (*tensors, upstream) without custom autograd functions."""
    return lambda *arguments: by_autograd(_unmapped_formula(call), list(which), arguments[:-1], [arguments[-1]])


def by_autograd(function: Any, which: Sequence[int], arguments: Sequence[Any], upstream: Sequence[Tensor]) -> list[Gradient]:
    """The gradients of the arguments `which`, by autograd."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        # One alias per argument: a tensor that is both query and key gets one gradient as query and another as key.
        leaves = {index: arguments[index].view_as(arguments[index]).requires_grad_() for index in which}
        output = function(*(leaves.get(index, value) for index, value in enumerate(arguments)))
    outputs = [output] if isinstance(output, Tensor) else [tensor for tensor in output if tensor is not None]
    result = torch.autograd.grad(outputs, list(leaves.values()), list(upstream), create_graph=twice, allow_unused=True)
    return list(result)
