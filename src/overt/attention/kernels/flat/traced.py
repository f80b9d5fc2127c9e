"""Attention with a traced score, a program over pairs, by the native kernel, as a torch operator."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from overt.attention.expressions.instructions import assemble_moving
from overt.attention.expressions.stand_ins import Untraceable
from overt.attention.kernels import cpu
from overt.attention.kernels.flat import formula, normalizer
from overt.attention.kernels.flat.dot import row_lse, row_sums
from overt.attention.kernels.flat.operator import MASK_SCHEMA, Attention, SecondOrder, empty, empty_bias_gradient, empty_duals

# MOVING: inputs of a program that may have tangents, and the tensors that hold them.
MOVING = {"query": "query", "key": "key", "constant": "constants"}


class TracedInputs(NamedTuple):
    """The inputs of attention with a program's scores. Floating tensors already have the computation's dtype."""

    query: Tensor  # (..., Q, C), the columns that the program reads
    key: Tensor  # (..., K, C')
    value: Tensor
    constants: Tensor  # (..., C'')
    terms: list[int]  # the program, `expressions.terms.encoded`
    numbers: list[float]
    batch: list[int]  # the call's leading dimensions
    program: list[int]  # the mask's
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


def _empty_outputs(inputs: TracedInputs, save: bool = True) -> tuple[Tensor, ...]:
    """Empty tensors for the output, and each row's base and total, or what native/kernels.hpp has under other normalizers."""
    queries, width = inputs.query.shape[-2], inputs.value.shape[-1]
    output = empty(inputs.query, *inputs.batch, queries, width)
    sums = (queries, normalizer.SPARSE_SUMS + 2 * width) if inputs.normalizer == normalizer.ENTMAX else (2, queries)
    return (output, empty(inputs.query, *inputs.batch, *sums)) if save else (output,)


def _empty_gradients(inputs: TracedInputs, with_bias: bool) -> tuple[Tensor | None, ...]:
    """Empty tensors for the gradients of query, key, value and constants, delta (if a sink or alpha needs it), and the bias's gradient."""
    query, batch = inputs.query, inputs.batch
    return (
        empty(query, *batch, *query.shape[-2:]),
        empty(query, *batch, *inputs.key.shape[-2:]),
        empty(query, *batch, *inputs.value.shape[-2:]),
        empty(query, *batch, inputs.constants.shape[-1]),
        None if inputs.sink is None and inputs.alphas is None else empty(query, *batch, query.shape[-2]),
        empty_bias_gradient(inputs, with_bias),
    )


def _forward(inputs: TracedInputs, save: bool) -> tuple[Tensor, ...]:
    outputs = _empty_outputs(inputs, save)
    cpu.traced(inputs, outputs)
    return outputs


def _backward(inputs: TracedInputs, saved: tuple[Tensor, ...], upstream: Tensor, with_bias: bool) -> tuple[Tensor | None, ...]:
    gradients = _empty_gradients(inputs, with_bias)
    cpu.traced_gradients(inputs, saved, upstream, gradients)
    return gradients


def _tangent(inputs: TracedInputs, directions: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    results = empty_duals(_empty_outputs(inputs))
    cpu.traced_tangent(inputs, directions, results)
    return results


def _second(
    inputs: TracedInputs,
    saved: tuple[Tensor, ...],
    upstream: Tensor,
    directions: Sequence[Tensor | None],
    wanted: Sequence[int],
    known: bool = True,
) -> tuple[Tensor | None, ...]:
    results = _empty_seconds(inputs, wanted)
    cpu.traced_second(inputs, saved, upstream, directions, results, known)
    return results


def _empty_seconds(inputs: TracedInputs, wanted: Sequence[int]) -> tuple[Tensor | None, ...]:
    """Empty tensors for the gradients of direct tensors and bias, the output's tangent, and each row's mean score tangent."""
    *direct, _, d_bias = _empty_gradients(inputs, len(traced.direct) in wanted)
    (output,), rows = _empty_outputs(inputs, save=False), (*inputs.batch, inputs.query.shape[-2])
    return *direct, d_bias, output, empty(inputs.query, *rows)


def can_move(inputs: Any) -> bool:
    """Whether a program with its tangent is short enough; for any object with its tensors, terms and numbers."""
    columns = {name: getattr(inputs, field).shape[-1] for name, field in MOVING.items()}
    try:
        assemble_moving(inputs.terms, inputs.numbers, columns)
    except Untraceable:
        return False
    return True


second_order = SecondOrder(_tangent, _second, _empty_seconds, can_move)
traced: Attention = Attention(
    "traced",
    TracedInputs,
    ("query", "key", "value", "constants"),
    _forward,
    _backward,
    formula.traced,
    row_lse,
    row_sums,
    _empty_outputs,
    _empty_gradients,
    second_order,
)
traced.register(
    "Tensor query, Tensor key, Tensor value, Tensor constants, int[] terms, float[] numbers, "
    f"{MASK_SCHEMA}, {normalizer.SCHEMA}, float dropout, Tensor? seed",
    saved="sums",
)
