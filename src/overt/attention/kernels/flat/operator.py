"""The native kernels, on a GPU the Triton kernels, as torch operators `torch.ops.overt.*` with autograd, torch.compile and vmap.

The operators are flat: tensors, numbers, and a mask as a program (`mask_program`). Calls that run eagerly on plain tensors skip
torch's dispatcher, which takes longer than a decoder's step; both ways run the same code.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, library
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch.autograd import forward_ad

from overt.attention.kernels.flat import derivatives
from overt.attention.kernels.flat.derivatives import Dual, Eager, Flat, Output, TensorIndices
from overt.attention.kernels.flat.normalizer import SOFTMAX
from overt.attention.kernels.flat.vmap import batched

# INTERPRETED: whether Triton's interpreter runs the GPU kernels on the CPU, in place of the native core, so tests need no GPU.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_LIBRARY = library.Library("overt", "DEF")
_PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))

MASK_SCHEMA = (
    "SymInt[] batch, int[] program, Tensor[] arrays, Tensor? bias, bool by_distance, Tensor? sink, Tensor? inverse_temperature"
)


@dataclass(frozen=True, eq=False)
class Attention:
    """An operator of attention: its kernels, and the formula to differentiate if there is no kernel.

    `inputs` is the NamedTuple of the operator's inputs. `forward` computes the output and, if a backward pass follows, the sums that it
    needs (`saved`); `backward` computes the gradients of `direct` for each batch entry, delta, from which the
    gradient of a sink or of alpha is computed, and the bias's, None for the last two if not needed. `empty_outputs` and `empty_gradients`
    create the result tensors of both; while tracing torch needs only these. `kernels` are those of forward mode and of the derivative of
    the backward pass, under a softmax.
    """

    name: str
    inputs: Any
    direct: tuple[str, ...]
    forward: Callable[..., tuple[Tensor, ...]]  # (inputs, save)
    backward: Callable[..., tuple[Tensor | None, ...]]  # (inputs, saved, upstream, with_bias)
    formula: Callable[..., Tensor]  # (inputs, run), see `formula`
    lse: Callable[[Tensor], Tensor]  # each row's log-sum-exp, from what the kernel saves,
    sums: Callable[[Tensor], Tensor]  # and what it would save, from a log-sum-exp
    empty_outputs: Callable[..., tuple[Tensor, ...]]  # (inputs)
    empty_gradients: Callable[..., tuple[Tensor | None, ...]]  # (inputs, with_bias)
    kernels: "SecondOrder | None" = None
    differentiable: tuple[int, ...] = field(init=False)  # indices in `inputs`: of the differentiable tensors,
    tensors: tuple[int, ...] = field(init=False)  # of all tensors,
    arrays: int = field(init=False)  # and of the mask's arrays

    def __post_init__(self) -> None:
        names = self.inputs._fields
        leaves = (*self.direct, "bias", "sink", "alphas")
        object.__setattr__(self, "differentiable", tuple(names.index(name) for name in leaves))
        object.__setattr__(self, "tensors", (*self.differentiable, names.index("inverse_temperature"), names.index("seed")))
        object.__setattr__(self, "arrays", names.index("arrays"))

    def resumed(self, inputs: Any, output: Tensor, lse: Tensor) -> Tensor:
        """The known `output` and `lse` over more keys than this call's, with gradients for this call's keys only."""
        call, tensors = Flat.split(self, inputs)
        result: Any = _Resumed.apply(call, (output, self.sums(lse)), *tensors)
        return result

    def __call__(self, inputs: Any) -> Tensor:
        """Compute the output (..., Q, E), in float32 or float64."""
        leaves = [inputs[index] for index in self.differentiable]
        transformed = torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()
        recorded = torch.is_grad_enabled() and any(leaf is not None and leaf.requires_grad for leaf in leaves)
        # If gradients are recorded too, dual numbers must be: they are the tangents of the gradients.
        if forward_ad._current_level >= 0 and (transformed or not recorded) and any(map(is_dual, leaves)):
            return self._dual(inputs)
        if not transformed and needs_dispatcher(*leaves):
            return getattr(torch.ops.overt, self.name)(*inputs)[0]
        if transformed or recorded:
            call, tensors = Flat.split(self, inputs)
            output: Any = Output.apply(call, *tensors)[0] if transformed else Eager.apply(call, *tensors)  # pyright: ignore[reportOptionalSubscript]
            return output
        return self.forward(inputs, False)[0]

    def _dual(self, inputs: Any) -> Tensor:
        """The output of dual numbers, itself a dual number."""
        call, tensors = Flat.split(self, inputs)
        leaves = tensors[: len(self.differentiable)]
        pairs = [(None, None) if tensor is None else forward_ad.unpack_dual(tensor) for tensor in leaves]
        which = TensorIndices(index for index, (_, tangent) in enumerate(pairs) if tangent is not None)
        primals = (*(primal for primal, _ in pairs), *tensors[len(pairs) :])
        if torch.compiler.is_compiling():  # which traces operators, but no autograd functions
            operator = getattr(torch.ops.overt, f"{self.name}_tangent")
            output, _, tangent = operator(*call.inputs(primals), *(tangent for _, tangent in pairs[: self.moves]))
        else:
            output, _, tangent = Dual.apply(call, which, *primals, *(pairs[index][1] for index in which))  # pyright: ignore[reportGeneralTypeIssues]
        return forward_ad.make_dual(output, tangent)

    def outputs(self, inputs: Any) -> tuple[Tensor, ...]:
        """The output and row sums."""
        if needs_dispatcher(inputs.query, inputs.key, inputs.value):
            return getattr(torch.ops.overt, self.name)(*inputs)
        return self.forward(inputs, True)

    def gradients(self, inputs: Any, saved: tuple[Tensor, ...], upstream: Tensor, which: TensorIndices) -> dict[int, Any]:
        """The kernel's gradients, by the tensors' positions; gradients not in `which` may be missing."""
        with_bias = len(self.direct) in which
        result: Any
        if needs_dispatcher(inputs.query, upstream):
            result = getattr(torch.ops.overt, f"{self.name}_gradients")(*inputs, *saved, upstream, with_bias)
        else:
            result = self.backward(inputs, saved, upstream, with_bias)
        *direct, delta, d_bias = result
        d_sink = None
        if inputs.sink is not None:
            # The sink's weight goes to no key; it only reduces the other weights.
            d_sink = sum_shared(-(self._sink_weight(inputs, saved) * delta).sum(-1), inputs.sink)
        d_alphas = None if inputs.alphas is None else sum_shared(delta.sum(-1), inputs.alphas)
        return dict(enumerate((*self._summed(inputs, direct, d_bias), d_sink, d_alphas)))

    def duals(
        self, call: Flat, which: TensorIndices, tensors: Sequence[Any], directions: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """The output, row sums, and the output's tangent."""
        inputs = call.inputs(tensors)
        if (kernels := self._kernels(inputs)) is None:
            output, sums = self.outputs(inputs)
            return output, sums, call.second(TensorIndices(), which)(*tensors, torch.zeros_like(output), *directions)[0]
        moving = self._moving(which, directions)
        if needs_dispatcher(inputs.query, *directions):
            return getattr(torch.ops.overt, f"{self.name}_tangent")(*inputs, *moving)
        return kernels.tangent(inputs, moving)

    def seconds(
        self,
        call: Flat,
        wanted: TensorIndices,
        which: TensorIndices,
        saved: tuple[Tensor, ...],
        upstream: Tensor,
        tensors: Sequence[Any],
        directions: Sequence[Tensor],
    ) -> Sequence[Any]:
        """The gradients of upstream · tangent in the tensors `wanted`, and in upstream (the tangent)."""
        inputs = call.inputs(tensors)
        if (kernels := self._kernels(inputs)) is None:
            return call.second(wanted, which)(*tensors, upstream, *directions)
        moving = self._moving(which, directions)
        results: Any
        if needs_dispatcher(inputs.query, upstream, *directions):
            operator = getattr(torch.ops.overt, f"{self.name}_second")
            results = operator(*inputs, *saved, upstream, *moving, len(self.direct) in wanted)
        else:
            results = kernels.second(inputs, saved, upstream, moving, wanted)
        *direct, d_bias, tangent, mean = results
        by_index = list(self._summed(inputs, direct, d_bias))
        if inputs.sink is not None:
            delta, moved = (upstream * saved[0]).sum(-1), (upstream * tangent).sum(-1)
            sink_direction = moving[-1]
            mean = -mean if sink_direction is None else sink_direction[..., None] - mean
            by_index.append(sum_shared(-(self._sink_weight(inputs, saved) * (mean * delta + moved)).sum(-1), inputs.sink))
        return *(by_index[index] for index in wanted), tangent

    @property
    def moves(self) -> int:
        """The number of tensors with directions in the second-order kernels: all but alpha."""
        return len(self.direct) + 2

    def _kernels(self, inputs: Any) -> "SecondOrder | None":
        """The second-order kernels; None if the formula is differentiated instead."""
        serve = self.kernels is not None and inputs.normalizer == SOFTMAX and self.kernels.serves(inputs)
        return self.kernels if serve else None

    def _moving(self, which: TensorIndices, directions: Sequence[Tensor]) -> list[Tensor | None]:
        """A direction, or None, for each tensor that can have one in the second-order kernels."""
        by_index = dict(zip(which, directions, strict=True))
        return [by_index.get(index) for index in range(self.moves)]

    def _summed(self, inputs: Any, direct: Sequence[Any], d_bias: Any) -> Iterator[Tensor | None]:
        """Sum the kernel's gradients over the batch entries that share a tensor."""
        for gradient, name in zip(direct, self.direct, strict=True):
            yield None if gradient is None or not gradient.ndim else sum_shared(gradient, getattr(inputs, name))
        yield None if inputs.bias is None or d_bias is None else d_bias.to(inputs.bias.dtype)

    def _sink_weight(self, inputs: Any, saved: tuple[Tensor, ...]) -> Tensor:
        """The sink's weight in each row, e^(sink - lse); 0 if lse is -inf."""
        lse = self.lse(saved[1])
        return torch.where(lse == -torch.inf, 0, torch.exp(inputs.sink[..., None] - lse))

    def register(self, schema: str, saved: str) -> None:
        """Register `torch.ops.overt.<name>` with the schema of its inputs, and the name of the tensor saved with the output."""
        kind, count = self.inputs, len(self.direct)
        register(
            self.name,
            f"({schema}) -> (Tensor, Tensor)",
            lambda *inputs: self.forward(kind(*inputs), True),
            lambda *inputs: self.empty_outputs(kind(*inputs)),
            (self._operator_gradients, self._save_operator),
        )
        register(
            f"{self.name}_gradients",
            f"({schema}, Tensor output, Tensor {saved}, Tensor upstream, bool with_bias) -> ({_tensors(count + 2)})",
            lambda *inputs: all_tensors(self.backward(kind(*inputs[:-4]), inputs[-4:-2], *inputs[-2:])),
            lambda *inputs: all_tensors(self.empty_gradients(kind(*inputs[:-4]), inputs[-1])),
        )
        if self.kernels is not None:
            self._register_second_order(schema, saved, self.kernels)

    def _register_second_order(self, schema: str, saved: str, kernels: "SecondOrder") -> None:
        kind, moves = self.inputs, self.moves
        names = (*self.direct, "bias", "sink")
        directions, results = ", ".join(f"Tensor? {name}_direction" for name in names), _tensors(len(self.direct) + 3)
        register(
            f"{self.name}_tangent",
            f"({schema}, {directions}) -> ({_tensors(3)})",
            lambda *inputs: kernels.tangent(kind(*inputs[:-moves]), inputs[-moves:]),
            lambda *inputs: empty_duals(self.empty_outputs(kind(*inputs[:-moves]))),
            (self._tangent_gradients, self._save_tangent),
        )

        def parts(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            """Split the inputs into operator inputs, saved tensors, upstream, directions, and indices of the wanted gradients."""
            *others, output, sums, upstream = inputs[: -moves - 1]
            wanted = TensorIndices(range(moves if inputs[-1] else len(self.direct)))
            return kind(*others), (output, sums), upstream, inputs[-moves - 1 : -1], wanted

        register(
            f"{self.name}_second",
            f"({schema}, Tensor output, Tensor {saved}, Tensor upstream, {directions}, bool with_bias) -> ({results})",
            lambda *inputs: all_tensors(kernels.second(*parts(inputs))),
            lambda *inputs: all_tensors(kernels.empty_seconds(parts(inputs)[0], parts(inputs)[-1])),
        )

    def _save_operator(self, ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.call, tensors = Flat.split(self, inputs)
        ctx.save_for_backward(*tensors, *output)

    def _operator_gradients(self, ctx: Any, upstream: Tensor, *_: Any) -> tuple[Any, ...]:
        *tensors, output, sums = ctx.saved_tensors
        result = derivatives.gradients(ctx.call, self._needed(ctx), (output, sums), upstream, tensors)
        return self._in_order(ctx.call, result)

    def _save_tangent(self, ctx: Any, inputs: Any, output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.call, tensors = Flat.split(self, inputs[: -self.moves])
        ctx.save_for_backward(*tensors, *inputs[-self.moves :], *output[:2])

    def _tangent_gradients(self, ctx: Any, upstream: Tensor, _: Any, d_tangent: Tensor) -> tuple[Any, ...]:
        *arguments, output, sums = ctx.saved_tensors
        call, tensors, directions = ctx.call, arguments[: ctx.call.count], arguments[ctx.call.count :]
        which, wanted, saved = derivatives.present(directions), self._needed(ctx), (output, sums)
        moving = [directions[index] for index in which]
        result, linear = derivatives.dual_gradients(call, wanted, which, saved, (upstream, d_tangent), tensors, moving)
        return *self._in_order(call, result), *linear[: self.moves]

    def _needed(self, ctx: Any) -> TensorIndices:
        """The indices of the operator's tensors that need gradients."""
        return TensorIndices(index for index, position in enumerate(self.differentiable) if ctx.needs_input_grad[position])

    def _in_order(self, call: Flat, by_index: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients in the order of the operator's inputs: torch counts an empty list as one input, with a list of gradients."""
        gradients: list[Any] = [None] * len(call.others)
        for index, position in enumerate(self.differentiable):
            gradients[position] = by_index[index]
        for name in ("batch", "program"):
            position = self.inputs._fields.index(name)
            gradients[position] = None if call.others[position] else []
        gradients[self.arrays] = [None] * (call.count - len(self.tensors))
        return tuple(gradients)


@dataclass(frozen=True, eq=False)
class SecondOrder:
    """The kernels of forward mode and of the backward pass' derivative, and the functions that create tensors for their results."""

    tangent: Callable[..., tuple[Tensor, ...]]  # (inputs, directions): output, sums, tangent
    # (inputs, saved, upstream, directions, wanted): the gradients, the tangent, and each row's mean of its scores' tangents
    second: Callable[..., tuple[Tensor | None, ...]]
    empty_seconds: Callable[..., tuple[Tensor | None, ...]]  # (inputs, wanted)
    serves: Callable[..., bool] = lambda inputs: True  # (inputs): whether it has a kernel for this call


class _Resumed(torch.autograd.Function):
    """(call, (output, sums), *tensors) → the known output."""

    @staticmethod
    def forward(ctx, call, known, *tensors):  # type: ignore[override]
        ctx.call = call
        ctx.save_for_backward(*tensors, *known)
        return known[0]

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        *tensors, output, sums = ctx.saved_tensors
        which = TensorIndices(index for index, need in enumerate(ctx.needs_input_grad[2:]) if need)
        return None, None, *derivatives.gradients(ctx.call, which, (output, sums), upstream, tensors)


def _tensors(count: int) -> str:
    """A schema of `count` tensors as results."""
    return ", ".join(["Tensor"] * count)


def all_tensors(results: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Replace None by the scalar 0, since operators return only tensors."""
    like = next(tensor for tensor in results if tensor is not None)
    return tuple(empty(like).zero_() if tensor is None else tensor for tensor in results)


def is_dual(tensor: Tensor | None) -> bool:
    """Whether the tensor is a dual number of forward mode, of torch.func's innermost transform if there is one."""
    if not torch.compiler.is_compiling() and (innermost := peek_interpreter_stack()) and innermost.key() != TransformType.Jvp:
        return False
    return tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None


def needs_dispatcher(*tensors: Tensor | None) -> bool:
    """Whether torch must see an operator: it traces, transforms or intercepts, or a tensor is of a subclass."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or not _PLAIN.issuperset(map(type, tensors))
    )


def empty(like: Tensor, *shape: Any) -> Tensor:
    """An empty tensor of the computation's dtype: at least float32."""
    return like.new_empty(shape, dtype=like.dtype if like.dtype == torch.float64 else torch.float32)


def empty_bias_gradient(inputs: Any, with_bias: bool) -> Tensor | None:
    """An empty tensor for the bias's gradient, if it is needed."""
    return empty(inputs.query, *inputs.bias.shape) if with_bias and inputs.bias is not None else None


def empty_duals(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Empty tensors for the output, row sums, and the output's tangent."""
    return *outputs, torch.empty_like(outputs[0])


def sum_shared(gradient: Tensor, tensor: Tensor) -> Tensor:
    """Sum the gradient over batch entries that share a tensor, by broadcasting or as grouped heads."""
    if gradient.shape == tensor.shape and gradient.dtype == tensor.dtype:
        return gradient
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != gradient.shape[-3]:
        gradient = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return gradient.sum_to_size(tensor.shape).to(tensor.dtype)


def register(name: str, schema: str, kernel: Any, fake: Any, autograd: tuple[Any, Any] | None = None) -> None:
    """Register a kernel as `torch.ops.overt.<name>` with its fake for tracing, vmap, and `autograd` = (backward, setup_context)."""
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, device)
    library.register_fake(f"overt::{name}", fake, lib=_LIBRARY)
    library.register_vmap(f"overt::{name}", batched(name), lib=_LIBRARY)
    if autograd:
        library.register_autograd(f"overt::{name}", autograd[0], setup_context=autograd[1], lib=_LIBRARY)
