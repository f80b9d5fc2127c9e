"""The native kernels as torch operators, `torch.ops.overt.*`, known to autograd, torch.compile and vmap; on a GPU, those in Triton.

The operators are flat: tensors, numbers, and a mask as a program (`native_masks`). Those that run eagerly on plain tensors skip
torch's dispatcher, which takes longer than a decoder's step; both ways run the same code.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, library
from torch._C._functorch import is_legacy_batchedtensor

from overt.attention.kernels.flat.vmap import batched

# Triton's interpreter runs the kernels for GPUs on the CPU: they stand in for the native core then, and can be tested anywhere.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_LIBRARY = library.Library("overt", "DEF")

MASKED = "SymInt[] batch, int[] program, Tensor[] arrays, Tensor? bias, bool by_distance, Tensor? sink, Tensor? heat"


@dataclass(frozen=True, eq=False)
class Attention:
    """An operator of attention: its kernels, and the formula that stands for them where derivatives are taken twice.

    What a call holds is a NamedTuple `given`, an operator's inputs one after the other. `kernel` gives the output and, where they are
    to be kept, what the backward pass needs besides; `gradients` is told these, the upstream gradient and whether the bias's is asked
    for, and gives those of `direct`, an entry of the batch each, then delta, from which a sink's is made, and the bias's, both None
    where nobody asks. The last two functions give room for both: all that torch asks for while it traces.
    """

    name: str
    given: Any
    direct: tuple[str, ...]
    kernel: Callable[..., tuple[Tensor, ...]]  # (given, keep)
    gradients: Callable[..., tuple[Tensor | None, ...]]  # (given, passed, upstream, with_bias)
    formula: Callable[..., Tensor]
    lse: Callable[[Tensor], Tensor]  # each row's log-sum-exp, of what the kernel gives besides the output
    room: Callable[..., tuple[Tensor, ...]]  # (given)
    room_for_gradients: Callable[..., tuple[Tensor | None, ...]]  # (given, with_bias)
    differentiable: tuple[int, ...] = field(init=False)  # where in `given` stands what the output can be differentiated in,
    held: tuple[int, ...] = field(init=False)  # all tensors of a call,
    arrays: int = field(init=False)  # and the mask's

    def __post_init__(self):
        fields = self.given._fields
        object.__setattr__(self, "differentiable", tuple(fields.index(name) for name in (*self.direct, "bias", "sink")))
        object.__setattr__(self, "held", (*self.differentiable, fields.index("heat"), fields.index("seed")))
        object.__setattr__(self, "arrays", fields.index("arrays"))

    def __call__(self, given: Any) -> Tensor:
        """The output (..., Q, E), in float32 or float64."""
        leaves = [given[place] for place in self.differentiable]
        there = [tensor for tensor in leaves if tensor is not None]
        if seen_by_torch(*there):
            return getattr(torch.ops.overt, self.name)(*given)[0]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in there):
            output: Any = _Eager.apply(self, given, *leaves)
            return output
        return self.kernel(given, False)[0]

    def register(self, inputs: str, kept: str) -> None:
        """Make it `torch.ops.overt.<name>`: a schema of its inputs, and the name of what the kernel gives besides the output."""
        given, found = self.given, ", ".join(["Tensor"] * (len(self.direct) + 2))

        def gradients(*inputs: Any) -> tuple[Tensor, ...]:
            return whole(self.gradients(given(*inputs[:-4]), inputs[-4:-2], *inputs[-2:]))

        def whole(found: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
            """An operator gives tensors alone: the scalar 0 where nothing was asked for."""
            return tuple(numbers(found[0]).zero_() if tensor is None else tensor for tensor in found)  # pyright: ignore[reportArgumentType]

        register(
            self.name,
            f"({inputs}) -> (Tensor, Tensor)",
            lambda *inputs: self.kernel(given(*inputs), True),
            lambda *inputs: self.room(given(*inputs)),
        )
        register(
            f"{self.name}_gradients",
            f"({inputs}, Tensor output, Tensor {kept}, Tensor upstream, bool with_bias) -> ({found})",
            gradients,
            lambda *inputs: whole(self.room_for_gradients(given(*inputs[:-4]), inputs[-1])),
        )
        library.register_autograd(f"overt::{self.name}", self._backward_listed, setup_context=self._keep_listed, lib=_LIBRARY)

    def keep(self, ctx: Any, given: Any, found: tuple[Tensor, ...]) -> None:
        """Note what the backward pass needs."""
        ctx.rest, arrays = list(given), given[self.arrays]
        for place in (*self.held, self.arrays):
            ctx.rest[place] = None
        ctx.leaves = len(arrays)
        ctx.save_for_backward(*(given[place] for place in self.held), *arrays, *found)

    def backward(self, ctx: Any, needed: list[int], upstream: Tensor) -> dict[int, Tensor]:
        """The gradients of what stands at the places that need one."""
        values, saved, count = list(ctx.rest), ctx.saved_tensors, len(self.held)
        for place, tensor in zip(self.held, saved, strict=False):
            values[place] = tensor
        values[self.arrays] = list(saved[count : count + ctx.leaves])
        given, passed = self.given(*values), saved[count + ctx.leaves :]
        if by_formula(upstream):
            return again(self.formula, given, needed, upstream)
        with_bias = given._fields.index("bias") in needed
        if seen_by_torch(given.query, upstream):
            found = getattr(torch.ops.overt, f"{self.name}_gradients")(*given, *passed, upstream, with_bias)
        else:
            found = self.gradients(given, passed, upstream, with_bias)
        gradients = self._own_shapes(given, found, passed[1])
        return {place: gradients[place] for place in needed}

    def _own_shapes(self, given: Any, found: tuple[Any, ...], sums: Tensor) -> dict[int, Tensor]:
        """The kernel's gradients, of tensors that entries of the batch may share, by their places."""
        *direct, delta, d_bias = found
        own = [summed(gradient, getattr(given, name)) for name, gradient in zip(self.direct, direct, strict=True)]
        d_sink = None
        if given.sink is not None:
            # The sink's weight e^(sink - lse) goes to no key: all that it does is take from others; none are there where lse is -inf.
            lse = self.lse(sums)
            taken = torch.where(lse == -torch.inf, 0, torch.exp(given.sink[..., None] - lse))
            d_sink = summed(-(taken * delta).sum(-1), given.sink)
        own += [None if given.bias is None or d_bias is None else d_bias.to(given.bias.dtype), d_sink]
        return dict(zip(self.differentiable, own, strict=True))

    def _keep_listed(self, ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        self.keep(ctx, inputs, output)

    def _backward_listed(self, ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
        """For an operator that is given tensors in a list: to torch, each empty list is one, and has a list of gradients."""
        needed = [place for place in self.differentiable if ctx.needs_input_grad[place]]
        found = self.backward(ctx, needed, upstream)
        gradients: list[Any] = [found.get(place) for place in range(len(ctx.rest))]
        for name in ("batch", "program"):
            place = self.given._fields.index(name)
            gradients[place] = None if ctx.rest[place] else []
        gradients[self.arrays] = [None] * ctx.leaves
        return tuple(gradients)


class _Eager(torch.autograd.Function):
    """An operator of attention, past torch's dispatcher: given the call, and beside it what it may be differentiated in."""

    @staticmethod
    def forward(ctx, attention, given, *leaves):  # type: ignore[override]
        found = attention.kernel(given, True)
        attention.keep(ctx, given, found)
        ctx.attention = attention
        return found[0]

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        attention, needs = ctx.attention, ctx.needs_input_grad[2:]
        needed = [place for place, need in zip(attention.differentiable, needs, strict=True) if need]
        found = attention.backward(ctx, needed, upstream)
        return None, None, *(found.get(place) for place in attention.differentiable)


def seen_by_torch(*tensors: Tensor) -> bool:
    """Whether torch must see an operator: it traces, transforms or intercepts, or a tensor is more than plain."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(tensor) not in (Tensor, torch.nn.Parameter) for tensor in tensors)
    )


def numbers(like: Tensor, *shape: Any) -> Tensor:
    """Room for numbers of the computation's dtype: at least float32."""
    return like.new_empty(shape, dtype=like.dtype if like.dtype == torch.float64 else torch.float32)


def room_for_bias(given: Any, with_bias: bool) -> Tensor | None:
    """Room for the bias's gradient, where it is asked for."""
    return numbers(given.query, *given.bias.shape) if with_bias and given.bias is not None else None


def array(tensor: Tensor | None) -> Any:
    """As the module reads it. NumPy's arrays are handed over in a tenth of the time, but know no bfloat16."""
    if tensor is None:
        return None
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()


def dense(tensor: Tensor) -> Any:
    """The same, the last dimension's numbers beside each other."""
    return array(tensor if tensor.stride(-1) == 1 or tensor.shape[-1] < 2 else tensor.contiguous())


def masked(given: Any, bias: Tensor | None) -> tuple[Any, ...]:
    """What all kernels are told of the mask, the bias and the softmax."""
    return (
        list(given.program),
        [array(held) for held in given.arrays],
        array(bias),
        given.by_distance,
        array(given.sink),
        array(given.heat),
    )


def drawn(given: Any) -> tuple[float, int]:
    """Dropout and its seed."""
    return given.dropout, 0 if given.seed is None else int(given.seed)


def bias_to_add_to(given: Any, d_bias: Tensor | None) -> Tensor | None:
    """The bias, laid out as its gradient is, to whose zeros the kernel adds."""
    if d_bias is None:
        return given.bias
    d_bias.zero_()
    return given.bias.contiguous()


def for_gpu(tensor: Tensor) -> Any:
    """The module of kernels that run where a tensor is, if that is no place for the native core; triton is imported when it is needed."""
    if not (tensor.is_cuda or INTERPRETED):
        return None
    from overt.attention.kernels.triton import run_additive

    return run_additive


def summed(gradient: Tensor, tensor: Tensor) -> Tensor:
    """The gradient of a tensor that entries of the batch share, by broadcasting or as grouped heads."""
    if gradient.shape == tensor.shape and gradient.dtype == tensor.dtype:
        return gradient
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != gradient.shape[-3]:
        gradient = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return gradient.sum_to_size(tensor.shape).to(tensor.dtype)


def by_formula(upstream: Tensor) -> bool:
    """Whether the gradients need derivatives themselves, or are mapped over by autograd's own vmap, which no operator can join."""
    return torch.is_grad_enabled() or is_legacy_batchedtensor(upstream)


def again(formula: Any, inputs: Any, places: list[int], upstream: Tensor) -> dict[int, Tensor]:
    """Gradients of the plain formula, which have a derivative: of the inputs at these places."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        # An alias each: a tensor that is query and key at once has one gradient as query and another as key.
        leaves = {place: inputs[place].view_as(inputs[place]) for place in places}
        output = formula(*(leaves.get(place, given) for place, given in enumerate(inputs)))
    found = torch.autograd.grad(output, list(leaves.values()), upstream, create_graph=twice, allow_unused=True)
    return dict(zip(places, found, strict=True))


def register(name: str, schema: str, kernel: Any, fake: Any, autograd: tuple[Any, Any] | None = None) -> None:
    """Make a kernel the operator `torch.ops.overt.<name>`, traced by its fake, mapped by vmap, with (backward, what keeps for it)."""
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for place in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, place)
    library.register_fake(f"overt::{name}", fake, lib=_LIBRARY)
    library.register_vmap(f"overt::{name}", batched(name), lib=_LIBRARY)
    if autograd:
        library.register_autograd(f"overt::{name}", autograd[0], setup_context=autograd[1], lib=_LIBRARY)
