"""Dot-product attention by the native kernel, as a torch operator."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels import cpu
from overt.attention.kernels.flat import formula, normalizer
from overt.attention.kernels.flat.operator import MASK_SCHEMA, Attention, SecondOrder, empty, empty_bias_gradient, empty_duals


class DotInputs(NamedTuple):
    """The inputs of dot-product attention. A sink already has the computation's dtype, float32 or float64."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    softcap: float  # 0: none
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
    bias_of_queries: Tensor | None = None  # (..., Q), float64
    bias_of_keys: Tensor | None = None  # (..., K), float64: the score gets the sum of both


def _empty_outputs(inputs: DotInputs, save: bool = True) -> tuple[Tensor, ...]:
    """Empty tensors for the output, and each row's base and total: a weight is 2^(t - base) / total, with a total score t in powers of two.

    Under other normalizers than a softmax they hold what native/kernels.hpp says.
    """
    queries = inputs.query.shape[-2]
    output = empty(inputs.query, *inputs.batch, queries, inputs.value.shape[-1])
    sums = normalizer.sums_shape(inputs.normalizer, queries)
    return (output, empty(inputs.query, *inputs.batch, *sums)) if save else (output,)


def _empty_gradients(inputs: DotInputs, with_bias: bool) -> tuple[Tensor | None, ...]:
    """Empty tensors for the gradients of `dot.direct` per batch entry, delta (if a sink or alpha needs it), and the bias's gradient."""
    query, batch, with_lines = inputs.query, inputs.batch, inputs.bias_of_keys is not None
    return (
        empty(query, *batch, *query.shape[-2:]),
        empty(query, *batch, *inputs.key.shape[-2:]),
        empty(query, *batch, *inputs.value.shape[-2:]),
        empty(query, *batch, query.shape[-2]) if with_lines else None,
        empty(query, *batch, inputs.key.shape[-2]) if with_lines else None,
        None if inputs.sink is None and inputs.alphas is None else empty(query, *batch, query.shape[-2]),
        empty_bias_gradient(inputs, with_bias),
    )


def _forward(inputs: DotInputs, save: bool) -> tuple[Tensor, ...]:
    outputs = _empty_outputs(inputs, save)
    cpu.dot(inputs, outputs)
    return outputs


def _backward(inputs: DotInputs, saved: tuple[Tensor, ...], upstream: Tensor, with_bias: bool) -> tuple[Tensor | None, ...]:
    gradients = _empty_gradients(inputs, with_bias)
    *direct, d_query_bias, d_key_bias, delta, d_bias = gradients
    cpu.dot_gradients(inputs, saved, upstream, (*direct, delta, d_bias, d_key_bias))
    if d_query_bias is not None:
        _write_row_sums(inputs, saved[1], delta, d_query_bias)
    return gradients


def _write_row_sums(inputs: DotInputs, sums: Tensor, delta: Tensor | None, to: Tensor) -> None:
    """Write the sum of the gradients of each row's scores: 0 without a sink, else the part that the sink takes."""
    to.zero_()
    if inputs.sink is not None and delta is not None:
        lse = row_lse(sums)
        to.add_(torch.where(lse == -torch.inf, 0, torch.exp(inputs.sink[..., None] - lse)) * delta)
        if inputs.inverse_temperature is not None:
            to.mul_(inputs.inverse_temperature[..., None])


def _tangent(inputs: DotInputs, directions: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    results = empty_duals(_empty_outputs(inputs))
    cpu.dot_tangent(inputs, (*directions[:3], *directions[5:]), results)
    return results


def _second(
    inputs: DotInputs,
    saved: tuple[Tensor, ...],
    upstream: Tensor,
    directions: Sequence[Tensor | None],
    wanted: Sequence[int],
) -> tuple[Tensor | None, ...]:
    results = _empty_seconds(inputs, wanted)
    cpu.dot_second(inputs, saved, upstream, (*directions[:3], *directions[5:]), (*results[:3], *results[5:]))
    return results


def _empty_seconds(inputs: DotInputs, wanted: Sequence[int]) -> tuple[Tensor | None, ...]:
    """Empty tensors for the `wanted` gradients of `dot.direct` and bias, the output's tangent, and each row's mean score tangent."""
    *direct, _, d_bias = _empty_gradients(inputs, len(dot.direct) in wanted)
    (output,), rows = _empty_outputs(inputs, save=False), (*inputs.batch, inputs.query.shape[-2])
    wanted_ones = (tensor if index in wanted else None for index, tensor in enumerate(direct))
    return *wanted_ones, d_bias, output, empty(inputs.query, *rows)


def row_lse(sums: Tensor) -> Tensor:
    """The log-sum-exp of each row, from its base and total."""
    bases, totals = sums.unbind(-2)
    return (bases + torch.log2(totals)) * math.log(2)


def row_sums(lse: Tensor) -> Tensor:
    """Bases and totals of rows with these log-sum-exps."""
    return torch.stack([torch.where(lse == -torch.inf, 0, lse) / math.log(2), (lse != -torch.inf).to(lse.dtype)], dim=-2)


dot: Attention = Attention(
    "dot",
    DotInputs,
    ("query", "key", "value", "bias_of_queries", "bias_of_keys"),
    _forward,
    _backward,
    formula.dot,
    row_lse,
    row_sums,
    _empty_outputs,
    _empty_gradients,
    SecondOrder(_tangent, _second, _empty_seconds, lambda inputs: inputs.bias_of_keys is None),
)
dot.register(
    f"Tensor query, Tensor key, Tensor value, float scale, float softcap, {MASK_SCHEMA}, {normalizer.SCHEMA}, float dropout, Tensor? seed"
    ", Tensor? bias_of_queries, Tensor? bias_of_keys",
    saved="sums",
)
