"""The native kernels as torch operators, `torch.ops.overt.*`, known to autograd, torch.compile and vmap; on a GPU, those in Triton.

The operators are flat: tensors, numbers, and a mask as a program (`native_masks`). Those that run eagerly on plain tensors skip
torch's dispatcher, which takes longer than a decoder's step; both ways run the same code.
"""

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor, library
from torch._C._functorch import is_legacy_batchedtensor

from overt.kernels import native, native_plain
from overt.kernels.native_batched import batched
from overt.scores import ACTIVATIONS

# Triton's interpreter runs the kernels for GPUs on the CPU: they stand in for the native core then, and can be tested anywhere.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

_LIBRARY = library.Library("overt", "DEF")
ACTIVATION_NAMES = list(ACTIVATIONS)

MASKED = "SymInt[] batch, int[] program, Tensor[] arrays, Tensor? bias, bool by_distance, Tensor? sink, Tensor? heat"
_GIVEN = f"Tensor query, Tensor key, Tensor value, Tensor weight, str activation, {MASKED}, float dropout, Tensor? seed"
_SCORED = "Tensor query, Tensor key, Tensor weight, str activation, SymInt[] batch"
_DIFFERENTIABLE = (0, 1, 2, 3, 8, 10)  # where query, key, value, weight, bias and sink stand in it


class Given(NamedTuple):
    """What additive attention is given. Weight and sink are of the computation's dtype, float32 or float64, already."""

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor  # (..., D)
    activation: str
    batch: list[int]  # the call's leading dimensions
    program: list[int]
    arrays: list[Tensor]
    bias: Tensor | None  # (..., Q or 1, K or 1), or (..., Q + K - 1) by distance j - i + Q - 1
    by_distance: bool
    sink: Tensor | None  # (...), a logit
    heat: Tensor | None  # (...), float64: what score + bias are multiplied with
    dropout: float
    seed: Tensor | None


def additive(given: Given) -> Tensor:
    """The output (..., Q, E) of additive attention, in float32 or float64."""
    if seen_by_torch(given.query, given.key, given.value, given.weight):
        return torch.ops.overt.additive(*given)[0]
    held = (given.query, given.key, given.value, given.weight, given.bias, given.sink)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in held):
        output: Any = _Additive.apply(*given)
        return output[0]
    return _additive(*given)[0]


def additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: tuple[int, ...]) -> Tensor:
    """Additive scores (..., Q, K), in float32 or float64."""
    given = (query, key, weight, activation, list(batch))
    if seen_by_torch(query, key, weight):
        return torch.ops.overt.additive_scores(*given)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or weight.requires_grad):
        scores: Any = _Scores.apply(*given)
        return scores
    return _additive_scores(*given)


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
    return like.new_empty(shape, dtype=torch.promote_types(like.dtype, torch.float32))


def _outputs(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Room for the output and log-sum-exp: all that torch asks for while it traces. Likewise those below."""
    given = Given(*inputs)
    rows = (*given.batch, given.query.shape[-2])
    return numbers(given.query, *rows, given.value.shape[-1]), numbers(given.query, *rows)


def _gradients(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of query, key, value and weight, an entry each; delta, from which a sink's is made; of the bias, or a placeholder."""
    given, with_bias = Given(*inputs[:-4]), inputs[-1]
    query, batch = given.query, given.batch
    bias = given.bias if with_bias and given.bias is not None else None
    return (
        numbers(query, *batch, *query.shape[-2:]),
        numbers(query, *batch, *given.key.shape[-2:]),
        numbers(query, *batch, *given.value.shape[-2:]),
        numbers(query, *batch, query.shape[-1]),
        numbers(query, *batch, query.shape[-2]),
        numbers(query) if bias is None else numbers(query, *bias.shape),
    )


def _scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int]) -> Tensor:
    return numbers(query, *batch, query.shape[-2], key.shape[-2])


def _scores_gradients(
    query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int], upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    features = query.shape[-1]
    return (
        numbers(query, *batch, query.shape[-2], features),
        numbers(query, *batch, key.shape[-2], features),
        numbers(query, *batch, features),
    )


def array(tensor: Tensor | None) -> Any:
    """As the module reads it. NumPy's arrays are handed over in a tenth of the time, but know no bfloat16."""
    if tensor is None:
        return None
    tensor = tensor.detach() if tensor.requires_grad else tensor
    tensor = tensor.resolve_neg() if tensor.is_neg() else tensor
    return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()


def dense(tensor: Tensor) -> Any:
    """The same, the last dimension's numbers beside each other."""
    return array(tensor if tensor.stride(-1) == 1 or tensor.shape[-1] < 2 else tensor.contiguous())


def _told(given: Given, bias: Tensor | None) -> tuple[Any, ...]:
    return (
        *(dense(tensor) for tensor in given[:4]),
        ACTIVATION_NAMES.index(given.activation),
        list(given.program),
        [array(held) for held in given.arrays],
        array(bias),
        given.by_distance,
        array(given.sink),
        array(given.heat),
        given.dropout,
        0 if given.seed is None else int(given.seed),
        native.threads(),
    )


def for_gpu(tensor: Tensor) -> Any:
    """The module of kernels that run where a tensor is, if that is no place for the native core; triton is imported when it is needed."""
    if not (tensor.is_cuda or INTERPRETED):
        return None
    from overt.kernels import triton_ops

    return triton_ops


def _additive(*inputs: Any) -> tuple[Tensor, Tensor]:
    if kernels := for_gpu(inputs[0]):
        return kernels.additive(*inputs)
    given, (output, lse) = Given(*inputs), _outputs(*inputs)
    native.module().additive(*_told(given, given.bias), output.numpy(), lse.numpy())
    return output, lse


def _additive_gradients(*inputs: Any) -> tuple[Tensor, ...]:
    if kernels := for_gpu(inputs[0]):
        return kernels.additive_gradients(*inputs)
    found = _gradients(*inputs)
    given, (output, lse, upstream, with_bias) = Given(*inputs[:-4]), inputs[-4:]
    bias, d_bias = given.bias, None
    if with_bias and bias is not None:
        # The kernel adds to a gradient laid out as the bias is.
        bias, d_bias = bias.contiguous(), found[-1].zero_()
    passed = (array(tensor.contiguous()) for tensor in (output, lse, upstream))
    native.module().additive_gradients(*_told(given, bias), *passed, *map(array, (*found[:-1], d_bias)))
    return found


def _additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int]) -> Tensor:
    scores = _scores(query, key, weight, activation, batch)
    told = (dense(query), dense(key), dense(weight), ACTIVATION_NAMES.index(activation), native.threads())
    native.module().additive_scores(*told, scores.numpy())
    return scores


def _additive_scores_gradients(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, weight, activation, _, upstream = inputs
    found = _scores_gradients(*inputs)
    told = (dense(query), dense(key), dense(weight), ACTIVATION_NAMES.index(activation), native.threads())
    native.module().additive_scores_gradients(*told, array(upstream.contiguous()), *map(array, found))
    return found


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    given = Given(*inputs)
    ctx.rest = given._replace(
        query=None, key=None, value=None, weight=None, bias=None, sink=None, heat=None, seed=None, arrays=[]
    )  # type: ignore[arg-type]
    ctx.leaves = len(given.arrays)
    ctx.mark_non_differentiable(output[1])
    held = (given.query, given.key, given.value, given.weight, given.bias, given.sink, given.heat, given.seed)
    ctx.save_for_backward(*held, *output, *given.arrays)


def _backward(ctx: Any, upstream: Tensor, _: Any) -> tuple[Any, ...]:
    query, key, value, weight, bias, sink, heat, seed, output, lse, *arrays = ctx.saved_tensors
    given = ctx.rest._replace(
        query=query, key=key, value=value, weight=weight, bias=bias, sink=sink, heat=heat, seed=seed, arrays=arrays
    )
    needed = [place for place in _DIFFERENTIABLE if ctx.needs_input_grad[place]]
    if _by_formula(upstream):
        gradients = _again(native_plain.additive, given, needed, upstream)
        found = [gradients.get(place) for place in _DIFFERENTIABLE]
    else:
        wanted = [given[place] if place in needed else None for place in _DIFFERENTIABLE]
        found = _own_shapes(given, wanted, additive_gradients(given, output, lse, upstream, wanted[4] is not None), lse)
    d_query, d_key, d_value, d_weight, d_bias, d_sink = found
    return d_query, d_key, d_value, d_weight, None, None, None, None, d_bias, None, d_sink, None, None, None


def _backward_listed(ctx: Any, upstream: Tensor, _: Any) -> tuple[Any, ...]:
    """The same for an operator that is given tensors in a list: to torch, each empty list is one, and has a list of gradients."""
    gradients = list(_backward(ctx, upstream, _))
    gradients[5:8] = [] if not ctx.rest.batch else None, [] if not ctx.rest.program else None, [None] * ctx.leaves
    return tuple(gradients)


def additive_gradients(given: Given, output: Tensor, lse: Tensor, upstream: Tensor, with_bias: bool) -> tuple[Tensor, ...]:
    """The kernel's gradients, an entry of the batch each: of query, key, value, weight; delta (..., Q); of the bias."""
    inputs = (*given, output, lse, upstream, with_bias)
    return torch.ops.overt.additive_gradients(*inputs) if seen_by_torch(given.query, upstream) else _additive_gradients(*inputs)


def _own_shapes(given: Given, wanted: list[Tensor | None], found: tuple[Tensor, ...], lse: Tensor) -> list[Tensor | None]:
    *direct, delta, d_bias = found
    gradients = [None if tensor is None else _summed(g, tensor) for tensor, g in zip(wanted[:4], direct, strict=True)]
    gradients.append(None if wanted[4] is None else d_bias.to(wanted[4].dtype))
    if wanted[5] is None or given.sink is None:
        return [*gradients, None]
    # The sink's weight e^(sink - lse) goes to no key, so all that it does is take from the others; none are there where lse is -inf.
    taken = torch.where(lse == -torch.inf, 0, torch.exp(given.sink[..., None] - lse))
    return [*gradients, _summed(-(taken * delta).sum(-1), given.sink)]


def _summed(gradient: Tensor, tensor: Tensor) -> Tensor:
    """The gradient of a tensor that entries of the batch share, by broadcasting or as grouped heads."""
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != gradient.shape[-3]:
        gradient = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return gradient.sum_to_size(tensor.shape).to(tensor.dtype)


def _by_formula(upstream: Tensor) -> bool:
    """Whether the gradients need derivatives themselves, or are mapped over by autograd's own vmap, which no operator can join."""
    return torch.is_grad_enabled() or is_legacy_batchedtensor(upstream)


def _again(formula: Any, inputs: Any, places: list[int], upstream: Tensor) -> dict[int, Tensor | None]:
    """Gradients of the plain formula, which have a derivative: of the inputs at these places."""
    twice = torch.is_grad_enabled()
    with torch.enable_grad():
        # An alias each: a tensor that is query and key at once has one gradient as query and another as key.
        leaves = {place: inputs[place].view_as(inputs[place]) for place in places}
        output = formula(*(leaves.get(place, given) for place, given in enumerate(inputs)))
    found = torch.autograd.grad(output, list(leaves.values()), upstream, create_graph=twice, allow_unused=True)
    return dict(zip(places, found, strict=True))


def _keep_scores(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.activation, ctx.batch = inputs[3:]


def _scores_backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    query, key, weight = saved = ctx.saved_tensors
    needed = [place for place in range(3) if ctx.needs_input_grad[place]]
    if _by_formula(upstream):
        gradients = _again(native_plain.additive_scores, (*saved, ctx.activation), needed, upstream)
        found = [gradients.get(place) for place in range(3)]
    else:
        wanted = [tensor if place in needed else None for place, tensor in enumerate(saved)]
        inputs = (query, key, weight, ctx.activation, ctx.batch, upstream)
        seen = seen_by_torch(query, upstream)
        gradients = torch.ops.overt.additive_scores_gradients(*inputs) if seen else _additive_scores_gradients(*inputs)
        found = [None if tensor is None else _summed(g, tensor) for tensor, g in zip(wanted, gradients, strict=True)]
    return *found, None, None


class _Additive(torch.autograd.Function):
    """Additive attention, run eagerly."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[override]
        found = _additive(*inputs)
        _keep(ctx, inputs, found)
        return found

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        return _backward(ctx, *upstream)


class _Scores(torch.autograd.Function):
    """Additive scores, run eagerly."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[override]
        _keep_scores(ctx, inputs, None)
        return _additive_scores(*inputs)

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        return _scores_backward(ctx, *upstream)


def register(name: str, schema: str, kernel: Any, fake: Any) -> None:
    """Make a kernel the operator `torch.ops.overt.<name>`, traced by its fake and mapped by vmap."""
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for place in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, place)
    library.register_fake(f"overt::{name}", fake, lib=_LIBRARY)
    library.register_vmap(f"overt::{name}", batched(name), lib=_LIBRARY)


register("additive", f"({_GIVEN}) -> (Tensor, Tensor)", _additive, _outputs)
register(
    "additive_gradients",
    f"({_GIVEN}, Tensor output, Tensor lse, Tensor upstream, bool with_bias)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _additive_gradients,
    _gradients,
)
register("additive_scores", f"({_SCORED}) -> Tensor", _additive_scores, _scores)
register(
    "additive_scores_gradients",
    f"({_SCORED}, Tensor upstream) -> (Tensor, Tensor, Tensor)",
    _additive_scores_gradients,
    _scores_gradients,
)
library.register_autograd("overt::additive", _backward_listed, setup_context=_keep, lib=_LIBRARY)
library.register_autograd("overt::additive_scores", _scores_backward, setup_context=_keep_scores, lib=_LIBRARY)
