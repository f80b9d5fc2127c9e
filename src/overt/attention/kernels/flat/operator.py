"""The native kernels as torch operators, `torch.ops.overt.*`, known to autograd, torch.compile and vmap; on a GPU, those in Triton.

The operators are flat: tensors, numbers, and a mask as a program (`mask_program`). Those that run eagerly on plain tensors skip
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

# Triton's interpreter runs the kernels for GPUs on the CPU, in place of the native core, so that they can be tested anywhere.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_LIBRARY = library.Library("overt", "DEF")
_PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))

MASK_SCHEMA = (
    "SymInt[] batch, int[] program, Tensor[] arrays, Tensor? bias, bool by_distance, Tensor? sink, Tensor? inverse_temperature"
)


@dataclass(frozen=True, eq=False)
class Attention:
    """An operator of attention: its kernels, and the formula that is differentiated where a second derivative is computed.

    `inputs` is the NamedTuple of the operator's inputs. `forward` computes the output and, if the backward pass follows, what that
    needs besides (`saved`); `backward` computes the gradients of `direct`, an entry of the batch each, then delta, from which the
    gradient of a sink or of alpha is made, and the bias's, both None where there are none. The last two functions make tensors for the
    results of both: torch needs only these while it traces.
    """

    name: str
    inputs: Any
    direct: tuple[str, ...]
    forward: Callable[..., tuple[Tensor, ...]]  # (inputs, save)
    backward: Callable[..., tuple[Tensor | None, ...]]  # (inputs, saved, upstream, with_bias)
    formula: Callable[..., Tensor]
    lse: Callable[[Tensor], Tensor]  # each row's log-sum-exp, of what the kernel computes besides the output,
    sums: Callable[[Tensor], Tensor]  # and that of a log-sum-exp
    empty_outputs: Callable[..., tuple[Tensor, ...]]  # (inputs)
    empty_gradients: Callable[..., tuple[Tensor | None, ...]]  # (inputs, with_bias)
    differentiable: tuple[int, ...] = field(init=False)  # indices in `inputs`: of what the output can be differentiated in,
    tensors: tuple[int, ...] = field(init=False)  # of all tensors,
    arrays: int = field(init=False)  # and of the mask's

    def __post_init__(self) -> None:
        names = self.inputs._fields
        object.__setattr__(
            self, "differentiable", tuple(names.index(name) for name in (*self.direct, "bias", "sink", "alphas"))
        )
        object.__setattr__(self, "tensors", (*self.differentiable, names.index("inverse_temperature"), names.index("seed")))
        object.__setattr__(self, "arrays", names.index("arrays"))

    def resumed(self, inputs: Any, output: Tensor, lse: Tensor) -> Tensor:
        """An output that is known, with each row's log-sum-exp, those of more keys than these: its gradients are of these keys alone."""
        leaves = [inputs[index] for index in self.differentiable]
        result: Any = _Eager.apply(self, inputs, (output, self.sums(lse)), *leaves)
        return result

    def __call__(self, inputs: Any) -> Tensor:
        """The output (..., Q, E), in float32 or float64."""
        leaves = [inputs[index] for index in self.differentiable]
        if needs_dispatcher(*leaves):
            return getattr(torch.ops.overt, self.name)(*inputs)[0]
        if torch.is_grad_enabled():
            for leaf in leaves:
                if leaf is not None and leaf.requires_grad:
                    output: Any = _Eager.apply(self, inputs, None, *leaves)
                    return output
        return self.forward(inputs, False)[0]

    def register(self, schema: str, saved: str) -> None:
        """Make it `torch.ops.overt.<name>`: a schema of its inputs, and the name of what the kernel computes besides the output."""
        kind, outputs = self.inputs, ", ".join(["Tensor"] * (len(self.direct) + 2))

        def all_tensors(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
            """An operator returns tensors alone: the scalar 0 in the place of None."""
            return tuple(empty(gradients[0]).zero_() if tensor is None else tensor for tensor in gradients)  # pyright: ignore[reportArgumentType]

        register(
            self.name,
            f"({schema}) -> (Tensor, Tensor)",
            lambda *inputs: self.forward(kind(*inputs), True),
            lambda *inputs: self.empty_outputs(kind(*inputs)),
        )
        register(
            f"{self.name}_gradients",
            f"({schema}, Tensor output, Tensor {saved}, Tensor upstream, bool with_bias) -> ({outputs})",
            lambda *inputs: all_tensors(self.backward(kind(*inputs[:-4]), inputs[-4:-2], *inputs[-2:])),
            lambda *inputs: all_tensors(self.empty_gradients(kind(*inputs[:-4]), inputs[-1])),
        )
        library.register_autograd(
            f"overt::{self.name}", self._backward_of_operator, setup_context=self._save_of_operator, lib=_LIBRARY
        )

    def save(self, ctx: Any, inputs: Any, outputs: tuple[Tensor, ...]) -> None:
        """Save what the backward pass needs."""
        ctx.others, arrays = list(inputs), inputs[self.arrays]
        for index in (*self.tensors, self.arrays):
            ctx.others[index] = None
        ctx.array_count = len(arrays)
        ctx.save_for_backward(*(inputs[index] for index in self.tensors), *arrays, *outputs)

    def saved(self, ctx: Any) -> tuple[Any, tuple[Tensor, ...]]:
        """The inputs and outputs that were saved."""
        values, saved, count = list(ctx.others), ctx.saved_tensors, len(self.tensors)
        for index, tensor in zip(self.tensors, saved, strict=False):
            values[index] = tensor
        values[self.arrays] = list(saved[count : count + ctx.array_count])
        return self.inputs(*values), saved[count + ctx.array_count :]

    def gradients(self, inputs: Any, outputs: tuple[Tensor, ...], indices: list[int], upstream: Tensor) -> dict[int, Tensor]:
        """The gradients of the inputs with these indices."""
        if needs_formula(upstream):
            return recompute_gradients(self.formula, inputs, indices, upstream)
        with_bias = inputs._fields.index("bias") in indices
        if needs_dispatcher(inputs.query, upstream):
            gradients = getattr(torch.ops.overt, f"{self.name}_gradients")(*inputs, *outputs, upstream, with_bias)
        else:
            gradients = self.backward(inputs, outputs, upstream, with_bias)
        summed = self._summed(inputs, gradients, outputs[1])
        return {index: summed[index] for index in indices}

    def _summed(self, inputs: Any, gradients: tuple[Any, ...], sums: Tensor) -> dict[int, Tensor]:
        """The kernel's gradients summed over the entries of the batch that share a tensor, by the tensors' indices."""
        *direct, delta, d_bias = gradients
        summed = [sum_shared(gradient, getattr(inputs, name)) for name, gradient in zip(self.direct, direct, strict=True)]
        d_sink = None
        if inputs.sink is not None:
            # The sink's weight e^(sink - lse) goes to no key: all that it does is take from others; none are there where lse is -inf.
            lse = self.lse(sums)
            weight = torch.where(lse == -torch.inf, 0, torch.exp(inputs.sink[..., None] - lse))
            d_sink = sum_shared(-(weight * delta).sum(-1), inputs.sink)
        d_alphas = None if inputs.alphas is None else sum_shared(delta.sum(-1), inputs.alphas)
        summed += [None if inputs.bias is None or d_bias is None else d_bias.to(inputs.bias.dtype), d_sink, d_alphas]
        return dict(zip(self.differentiable, summed, strict=True))

    def _save_of_operator(self, ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        self.save(ctx, inputs, output)

    def _backward_of_operator(self, ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
        """For an operator with lists of tensors: torch counts each empty list as one, which has a list of gradients."""
        indices = [index for index in self.differentiable if ctx.needs_input_grad[index]]
        by_index = self.gradients(*self.saved(ctx), indices, upstream)
        gradients: list[Any] = [by_index.get(index) for index in range(len(ctx.others))]
        for name in ("batch", "program"):
            index = self.inputs._fields.index(name)
            gradients[index] = None if ctx.others[index] else []
        gradients[self.arrays] = [None] * ctx.array_count
        return tuple(gradients)


class _Eager(torch.autograd.Function):
    """An operator of attention, past torch's dispatcher: the inputs, and beside them what the output may be differentiated in."""

    @staticmethod
    def forward(ctx, attention, inputs, known, *leaves):  # type: ignore[override]
        outputs = attention.forward(inputs, True) if known is None else known
        attention.save(ctx, inputs, outputs)
        ctx.attention = attention
        return outputs[0]

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        attention, needs = ctx.attention, ctx.needs_input_grad[3:]
        indices = [index for index, need in zip(attention.differentiable, needs, strict=True) if need]
        gradients = attention.gradients(*attention.saved(ctx), indices, upstream)
        return None, None, None, *(gradients.get(index) for index in attention.differentiable)


def needs_dispatcher(*tensors: Tensor | None) -> bool:
    """Whether torch must see an operator: it traces, transforms or intercepts, or a tensor is of a subclass."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or not _PLAIN.issuperset(map(type, tensors))
    )


def empty(like: Tensor, *shape: Any) -> Tensor:
    """A tensor for numbers of the computation's dtype: at least float32."""
    return like.new_empty(shape, dtype=like.dtype if like.dtype == torch.float64 else torch.float32)


def empty_bias_gradient(inputs: Any, with_bias: bool) -> Tensor | None:
    """A tensor for the bias's gradient, where it is needed."""
    return empty(inputs.query, *inputs.bias.shape) if with_bias and inputs.bias is not None else None


def sum_shared(gradient: Tensor, tensor: Tensor) -> Tensor:
    """The gradient of a tensor that entries of the batch share, by broadcasting or as grouped heads."""
    if gradient.shape == tensor.shape and gradient.dtype == tensor.dtype:
        return gradient
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != gradient.shape[-3]:
        gradient = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return gradient.sum_to_size(tensor.shape).to(tensor.dtype)


def needs_formula(upstream: Tensor) -> bool:
    """Whether the gradients need derivatives themselves, or are mapped over by autograd's own vmap, which no operator can join."""
    return torch.is_grad_enabled() or is_legacy_batchedtensor(upstream)


def recompute_gradients(formula: Any, inputs: Any, indices: list[int], upstream: Tensor) -> dict[int, Tensor]:
    """Gradients of the plain formula, which have a derivative: of the inputs with these indices."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        # An alias each: a tensor that is query and key at once has one gradient as query and another as key.
        leaves = {index: inputs[index].view_as(inputs[index]) for index in indices}
        output = formula(*(leaves.get(index, value) for index, value in enumerate(inputs)))
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream, create_graph=twice, allow_unused=True)
    return dict(zip(indices, gradients, strict=True))


def register(name: str, schema: str, kernel: Any, fake: Any, autograd: tuple[Any, Any] | None = None) -> None:
    """Make a kernel the operator `torch.ops.overt.<name>`, traced by its fake, mapped by vmap, with (backward, what saves for it)."""
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, device)
    library.register_fake(f"overt::{name}", fake, lib=_LIBRARY)
    library.register_vmap(f"overt::{name}", batched(name), lib=_LIBRARY)
    if autograd:
        library.register_autograd(f"overt::{name}", autograd[0], setup_context=autograd[1], lib=_LIBRARY)
