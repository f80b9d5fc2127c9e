"""Additive attention by the native kernel, and additive scores alone, as torch operators."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels.flat import reference as flat_reference
from overt.attention.kernels.flat.operator import (
    MASKED,
    Attention,
    again,
    array,
    bias_to_add_to,
    by_formula,
    dense,
    drawn,
    for_gpu,
    masked,
    numbers,
    register,
    room_for_bias,
    seen_by_torch,
    summed,
)
from overt.attention.scores import ACTIVATIONS

ACTIVATION_NAMES = list(ACTIVATIONS)

_SCORED = "Tensor query, Tensor key, Tensor weight, str activation, SymInt[] batch"


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


def _room(given: Given) -> tuple[Tensor, Tensor]:
    """For the output and log-sum-exp."""
    rows = (*given.batch, given.query.shape[-2])
    return numbers(given.query, *rows, given.value.shape[-1]), numbers(given.query, *rows)


def _room_for_gradients(given: Given, with_bias: bool) -> tuple[Tensor | None, ...]:
    """For those of query, key, value and weight, an entry each; for delta, and that of the bias."""
    query, batch = given.query, given.batch
    return (
        numbers(query, *batch, *query.shape[-2:]),
        numbers(query, *batch, *given.key.shape[-2:]),
        numbers(query, *batch, *given.value.shape[-2:]),
        numbers(query, *batch, query.shape[-1]),
        numbers(query, *batch, query.shape[-2]),
        room_for_bias(given, with_bias),
    )


def _told(given: Given, bias: Tensor | None) -> tuple[Any, ...]:
    compared = (*(dense(tensor) for tensor in given[:4]), ACTIVATION_NAMES.index(given.activation))
    return *compared, *masked(given, bias), *drawn(given), native.threads()


def _additive(given: Given, keep: bool) -> tuple[Tensor, Tensor]:
    if kernels := for_gpu(given.query):
        return kernels.additive(*given)
    output, lse = _room(given)
    native.module().additive(*_told(given, given.bias), output.numpy(), lse.numpy())
    return output, lse


def _additive_gradients(
    given: Given, passed: tuple[Tensor, ...], upstream: Tensor, with_bias: bool
) -> tuple[Tensor | None, ...]:
    if kernels := for_gpu(given.query):
        return kernels.additive_gradients(*given, *passed, upstream, with_bias)
    found = _room_for_gradients(given, with_bias)
    bias = bias_to_add_to(given, found[-1])
    held = (array(tensor.contiguous()) for tensor in (*passed, upstream))
    native.module().additive_gradients(*_told(given, bias), *held, *map(array, found))
    return found


additive = Attention(
    "additive",
    Given,
    ("query", "key", "value", "weight"),
    _additive,
    _additive_gradients,
    flat_reference.additive,
    lambda lse: lse,
    _room,
    _room_for_gradients,
)
additive.register(
    f"Tensor query, Tensor key, Tensor value, Tensor weight, str activation, {MASKED}, float dropout, Tensor? seed", kept="lse"
)


def additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: tuple[int, ...]) -> Tensor:
    """Additive scores (..., Q, K), in float32 or float64."""
    given = (query, key, weight, activation, list(batch))
    if seen_by_torch(query, key, weight):
        return torch.ops.overt.additive_scores(*given)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or weight.requires_grad):
        scores: Any = _Scores.apply(*given)
        return scores
    return _additive_scores(*given)


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


def _keep_scores(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.activation, ctx.batch = inputs[3:]


def _scores_backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    query, key, weight = saved = ctx.saved_tensors
    needed = [place for place in range(3) if ctx.needs_input_grad[place]]
    if by_formula(upstream):
        gradients = again(flat_reference.additive_scores, (*saved, ctx.activation), needed, upstream)
        found = [gradients.get(place) for place in range(3)]
    else:
        wanted = [tensor if place in needed else None for place, tensor in enumerate(saved)]
        inputs = (query, key, weight, ctx.activation, ctx.batch, upstream)
        seen = seen_by_torch(query, upstream)
        gradients = torch.ops.overt.additive_scores_gradients(*inputs) if seen else _additive_scores_gradients(*inputs)
        found = [None if tensor is None else summed(g, tensor) for tensor, g in zip(wanted, gradients, strict=True)]
    return *found, None, None


class _Scores(torch.autograd.Function):
    """Additive scores, run eagerly."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[override]
        _keep_scores(ctx, inputs, None)
        return _additive_scores(*inputs)

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        return _scores_backward(ctx, *upstream)


register("additive_scores", f"({_SCORED}) -> Tensor", _additive_scores, _scores, (_scores_backward, _keep_scores))
register(
    "additive_scores_gradients",
    f"({_SCORED}, Tensor upstream) -> (Tensor, Tensor, Tensor)",
    _additive_scores_gradients,
    _scores_gradients,
)
