"""Summaries by the native kernel: statistics of the weights in two passes over the keys of each block of queries."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels.call import Call, unrounded
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat import dot_scores
from overt.attention.kernels.flat import operator as flat_operator
from overt.attention.kernels.flat.additive import ACTIVATION_NAMES
from overt.attention.kernels.flat.operator import MASKED, array, dense, numbers
from overt.attention.scores import Additive


class Found(NamedTuple):
    """What the kernel finds, in float32 or float64: `overt.Summary` says what each is. Maps are empty without edges."""

    lse: Tensor
    entropy: Tensor
    received: Tensor
    top_weights: Tensor
    top_keys: Tensor
    map_mean: Tensor
    map_max: Tensor
    output: Tensor


class _Compared(NamedTuple):
    """How query and key are compared: additively where there is a weight, else softcap · tanh(scale · (q · k) / softcap)."""

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None  # (..., D)
    activation: str
    scale: Tensor | None  # (...), float64
    softcap: float  # 0: none


def refusal(call: Call) -> str | None:
    """Why the native kernel cannot summarise this call; None where it can."""
    return other_call(call) or flat_call.other_place(call)


def other_call(call: Call) -> str | None:
    """Why no kernel of ours can summarise this call, wherever it is."""
    if call.dropout > 0 or call.transformed:
        return "a summary is of weights before dropout, outside of torch.func's transforms"
    return _other_score(call) or flat_call.other_softmax(call)


def _other_score(call: Call) -> str | None:
    if type(call.score) is not Additive:
        return dot_scores.refusal(call)
    return None if dot_scores.fits(call.score.weight.shape[:-1], call.batch) else "the score's weight has other dimensions"


def summarized(call: Call, top: int, edges: tuple[Tensor, Tensor] | None) -> Found:
    """The statistics of a call, with maps where edges of their cells are given."""
    with unrounded(call.query):
        compared = _compared(call)
    bias, heat = flat_call.heated(call, flat_call.bias_of(call))
    sink = call.normalizer.sink
    return Found(
        *torch.ops.overt.summary(
            *compared,
            list(call.batch),
            *flat_call.mask_of(call),
            bias,
            bias is not None and not isinstance(call.bias, Tensor),
            None if sink is None else sink.to(call.dtype),
            heat,
            min(top, call.keys),
            *(edges or (None, None)),
        )
    )


def _compared(call: Call) -> _Compared:
    if type(call.score) is Additive:
        weight = call.score.weight.to(call.dtype)
        return _Compared(call.query, call.key, call.value, weight, call.score.activation, None, 0.0)
    query, key, value, scale, softcap = dot_scores.of(call)
    each = torch.full((), scale, dtype=torch.float64, device=query.device)
    return _Compared(query, key, value, None, "tanh", each, softcap)


def _summary(*inputs: Any) -> tuple[Tensor, ...]:
    if flat_operator.for_gpu(inputs[0]):
        from overt.attention.kernels.triton import run_summary

        return run_summary.summary(_outputs(*inputs), *inputs)
    query, key, value, weight, activation, scale, softcap, *rest = inputs
    _, program, arrays, bias, by_distance, sink, heat, _, row_edges, key_edges = rest
    found = _outputs(*inputs)
    maps = (None, None) if row_edges is None else (array(found.map_mean), array(found.map_max))
    native.module().summary(
        *(dense(query), dense(key), dense(value), None if weight is None else dense(weight)),
        *(ACTIVATION_NAMES.index(activation), array(scale), softcap),
        *(list(program), [array(held) for held in arrays], array(bias), by_distance, array(sink), array(heat)),
        native.threads(),
        *map(array, found[:5]),
        *(array(row_edges), array(key_edges), *maps, array(found.output)),
    )
    return found


def _outputs(*inputs: Any) -> Found:
    query, key, value = inputs[:3]
    batch, top, row_edges, key_edges = inputs[7], *inputs[-3:]
    rows = (*batch, query.shape[-2])
    cells = (0,) if row_edges is None else (*batch, row_edges.shape[0] - 1, key_edges.shape[0] - 1)
    return Found(
        numbers(query, *rows),
        numbers(query, *rows),
        numbers(query, *batch, key.shape[-2]),
        numbers(query, *rows, top),
        query.new_empty((*rows, top), dtype=torch.int32),
        numbers(query, *cells),
        numbers(query, *cells),
        numbers(query, *rows, value.shape[-1]),
    )


flat_operator.register(
    "summary",
    "(Tensor query, Tensor key, Tensor value, Tensor? weight, str activation, Tensor? scale, float softcap, "
    f"{MASKED}, SymInt top, Tensor? row_edges, Tensor? key_edges)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda *inputs: tuple(_summary(*inputs)),
    lambda *inputs: tuple(_outputs(*inputs)),
)
