"""Dot-product attention by the native kernel, as a torch operator."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.kernels import native, native_plain
from overt.kernels.native_ops import MASKED, Attention, array, bias_and_gradient, dense, drawn, masked, numbers, room_for_bias


class Given(NamedTuple):
    """What dot-product attention is given. A sink is of the computation's dtype, float32 or float64, already."""

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
    heat: Tensor | None  # (...), float64: what score + bias are multiplied with
    dropout: float
    seed: Tensor | None


def _room(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """For the output, bases and totals: a weight is 2^(t - base) / total, of a total score t counted in powers of two."""
    query, value, rows = inputs[0], inputs[2], (*inputs[5], inputs[0].shape[-2])
    return numbers(query, *rows, value.shape[-1]), numbers(query, *rows), numbers(query, *rows)


def _room_for_gradients(*inputs: Any) -> tuple[Tensor, ...]:
    """For those of query, key and value, an entry each; for delta, and that of the bias."""
    given, with_bias = Given(*inputs[:-5]), inputs[-1]
    query, batch = given.query, given.batch
    return (
        numbers(query, *batch, *query.shape[-2:]),
        numbers(query, *batch, *given.key.shape[-2:]),
        numbers(query, *batch, *given.value.shape[-2:]),
        numbers(query, *batch, query.shape[-2]),
        room_for_bias(given, with_bias),
    )


def _told(given: Given, bias: Tensor | None) -> tuple[Any, ...]:
    compared = (*(dense(tensor) for tensor in given[:3]), given.scale, given.softcap)
    return *compared, *masked(given, bias), *drawn(given), native.threads()


def _dot(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    given, found = Given(*inputs), _room(*inputs)
    native.module().dot(*_told(given, given.bias), *map(array, found))
    return found


def _dot_gradients(*inputs: Any) -> tuple[Tensor, ...]:
    found = _room_for_gradients(*inputs)
    given, (*passed, with_bias) = Given(*inputs[:-5]), inputs[-5:]
    bias, d_bias = bias_and_gradient(given, found[-1], with_bias)
    held = (array(tensor.contiguous()) for tensor in passed)
    native.module().dot_gradients(*_told(given, bias), *held, *map(array, (*found[:-1], d_bias)))
    return found


def _lse(bases: Tensor, totals: Tensor) -> Tensor:
    return (bases + torch.log2(totals)) * math.log(2)


dot = Attention(
    "dot",
    Given,
    ("query", "key", "value"),
    _dot,
    _dot_gradients,
    native_plain.dot,
    _lse,
    _room,
    _room_for_gradients,
)
dot.register(
    f"Tensor query, Tensor key, Tensor value, float scale, float softcap, {MASKED}, float dropout, Tensor? seed",
    "Tensor output, Tensor bases, Tensor totals",
)
