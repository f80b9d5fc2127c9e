"""Additive attention, and additive scores, by the native kernel or the GPU's, as torch operators."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from overt.attention.expressions.terms import Terms, encoded
from overt.attention.kernels import cpu
from overt.attention.kernels.flat import formula, normalizer
from overt.attention.kernels.flat.derivatives import by_autograd
from overt.attention.kernels.flat.dot import row_lse
from overt.attention.kernels.flat.operator import (
    INTERPRETED,
    MASK_SCHEMA,
    Attention,
    SecondOrder,
    empty,
    empty_bias_gradient,
    needs_dispatcher,
    register,
    sum_shared,
)
from overt.attention.kernels.flat.recomputed import pullback
from overt.attention.kernels.flat.traced import TracedInputs, second_order, traced
from overt.attention.scores import LEAK

_SCORES_SCHEMA = "Tensor query, Tensor key, Tensor weight, str activation, SymInt[] batch"


class AdditiveInputs(NamedTuple):
    """The inputs of additive attention. Weight and sink already have the computation's dtype, float32 or float64."""

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
    inverse_temperature: Tensor | None  # (...), float64: the factor of score + bias
    normalizer: int  # see `NormalizerForm`
    alpha: float
    alphas: Tensor | None  # (...), float64
    dropout: float
    seed: Tensor | None


def _empty_outputs(inputs: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Empty tensors for the output and log-sum-exp, or the values that replace it under other normalizers: native/kernels.hpp."""
    rows, width = (*inputs.batch, inputs.query.shape[-2]), inputs.value.shape[-1]
    sums = rows
    if inputs.normalizer == normalizer.ENTMAX:
        sums = (*rows, normalizer.SPARSE_SUMS + 2 * width)
    elif inputs.normalizer != normalizer.SOFTMAX:
        sums = (*inputs.batch, 2, rows[-1])
    return empty(inputs.query, *rows, width), empty(inputs.query, *sums)


def _empty_gradients(inputs: AdditiveInputs, with_bias: bool) -> tuple[Tensor | None, ...]:
    """Empty tensors for the gradients of query, key, value and weight for each batch entry, for delta, and for the bias's gradient."""
    query, batch = inputs.query, inputs.batch
    return (
        empty(query, *batch, *query.shape[-2:]),
        empty(query, *batch, *inputs.key.shape[-2:]),
        empty(query, *batch, *inputs.value.shape[-2:]),
        empty(query, *batch, query.shape[-1]),
        empty(query, *batch, query.shape[-2]),
        empty_bias_gradient(inputs, with_bias),
    )


def _forward(inputs: AdditiveInputs, save: bool) -> tuple[Tensor, Tensor]:
    if inputs.query.is_cuda or INTERPRETED:
        from overt.attention.kernels.triton import run_additive  # imports triton only if it is needed

        return run_additive.additive(inputs.query, inputs)
    output, lse = _empty_outputs(inputs)
    cpu.additive(inputs, output, lse)
    return output, lse


def _backward(
    inputs: AdditiveInputs, saved: tuple[Tensor, ...], upstream: Tensor, with_bias: bool
) -> tuple[Tensor | None, ...]:
    if inputs.query.is_cuda or INTERPRETED:
        from overt.attention.kernels.triton import run_additive

        return run_additive.additive_gradients(upstream, inputs, *saved, with_bias)
    gradients = _empty_gradients(inputs, with_bias)
    cpu.additive_gradients(inputs, saved, upstream, gradients)
    return gradients


@lru_cache
def _program(activation: str, features: int) -> tuple[list[int], list[float]]:
    """Additive scores as a program over pairs: Σ_d weight_d · act(q_d + k_d)."""
    terms = Terms()
    query, key, weight = (terms.make(name, numbers=(0, features), size=features) for name in ("query", "key", "constant"))
    x, zero = terms.add(query, key), terms.literal(0.0)
    if activation == "relu":
        y = terms.make("maximum", x, zero)
    elif activation == "leaky_relu":
        y = terms.make("select", terms.make("gt", x, zero), x, terms.mul(x, terms.literal(LEAK)))
    else:
        y = terms.make(activation, x)
    root = terms.sum(terms.mul(y, weight), features)
    return encoded(root, len(terms.literals)), terms.literals


def _traced(inputs: AdditiveInputs) -> TracedInputs:
    """The call with its score as a program, which can be differentiated twice."""
    query, key, value = (tensor.to(inputs.weight.dtype) for tensor in inputs[:3])
    return TracedInputs(query, key, value, inputs.weight, *_program(inputs.activation, query.shape[-1]), *inputs[5:])


def _tangent(inputs: AdditiveInputs, directions: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    output, sums, tangent = second_order.tangent(_traced(inputs), directions)
    return output, row_lse(sums), tangent


def _second(inputs: AdditiveInputs, saved: tuple[Tensor, ...], *others: Any) -> tuple[Tensor | None, ...]:
    program = _traced(inputs)  # its scores are rounded differently, so its weights need its own sums
    return second_order.second(program, traced.empty_outputs(program), *others, known=False)


additive: Attention = Attention(
    "additive",
    AdditiveInputs,
    ("query", "key", "value", "weight"),
    _forward,
    _backward,
    formula.additive,
    lambda lse: lse,
    lambda lse: lse,
    _empty_outputs,
    _empty_gradients,
    SecondOrder(
        _tangent,
        _second,
        lambda inputs, wanted: second_order.empty_seconds(_traced(inputs), wanted),
        lambda inputs: not (inputs.query.is_cuda or INTERPRETED),
    ),
)
additive.register(
    "Tensor query, Tensor key, Tensor value, Tensor weight, str activation, "
    f"{MASK_SCHEMA}, {normalizer.SCHEMA}, float dropout, Tensor? seed",
    saved="lse",
)


def additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: tuple[int, ...]) -> Tensor:
    """Compute additive scores (..., Q, K) in float32 or float64."""
    inputs = (query, key, weight, activation, list(batch))
    if needs_dispatcher(query, key, weight):
        return torch.ops.overt.additive_scores(*inputs)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or weight.requires_grad):
        scores: Any = _Scores.apply(*inputs)
        return scores
    return _scores(*inputs)


def _empty_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int]) -> Tensor:
    return empty(query, *batch, query.shape[-2], key.shape[-2])


def _empty_scores_gradients(
    query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int], upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    features = query.shape[-1]
    return (
        empty(query, *batch, query.shape[-2], features),
        empty(query, *batch, key.shape[-2], features),
        empty(query, *batch, features),
    )


def _scores(query: Tensor, key: Tensor, weight: Tensor, activation: str, batch: list[int]) -> Tensor:
    scores = _empty_scores(query, key, weight, activation, batch)
    cpu.additive_scores(query, key, weight, activation, scores)
    return scores


def _scores_gradients(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, weight, activation, _, upstream = inputs
    gradients = _empty_scores_gradients(*inputs)
    cpu.additive_scores_gradients(query, key, weight, activation, upstream, gradients)
    return gradients


def _save_scores(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.activation, ctx.batch = inputs[3:]


def _scores_backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    indices = [index for index in range(3) if ctx.needs_input_grad[index]]
    if torch.is_grad_enabled() or is_legacy_batchedtensor(upstream):
        scores = partial(formula.additive_scores, ctx.activation)
        if is_legacy_batchedtensor(upstream):
            recomputed = by_autograd(partial(scores, run=formula.at_once), indices, saved, [upstream])
        else:
            recomputed = pullback(scores, indices, 3)(*saved, upstream)
        by_index = dict(zip(indices, recomputed, strict=True))
        return *(by_index.get(index) for index in range(3)), None, None
    inputs = (*saved, ctx.activation, ctx.batch, upstream)
    dispatched = needs_dispatcher(saved[0], upstream)
    gradients = torch.ops.overt.additive_scores_gradients(*inputs) if dispatched else _scores_gradients(*inputs)
    return *(sum_shared(gradients[i], saved[i]) if i in indices else None for i in range(3)), None, None


class _Scores(torch.autograd.Function):
    """Additive scores, run eagerly."""

    @staticmethod
    def forward(ctx, *inputs):  # type: ignore[override]
        _save_scores(ctx, inputs, None)
        return _scores(*inputs)

    @staticmethod
    def backward(ctx, *upstream):  # type: ignore[override]
        return _scores_backward(ctx, *upstream)


register("additive_scores", f"({_SCORES_SCHEMA}) -> Tensor", _scores, _empty_scores, (_scores_backward, _save_scores))
register(
    "additive_scores_gradients",
    f"({_SCORES_SCHEMA}, Tensor upstream) -> (Tensor, Tensor, Tensor)",
    _scores_gradients,
    _empty_scores_gradients,
)
