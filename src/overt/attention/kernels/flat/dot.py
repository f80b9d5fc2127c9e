"""Dot-product attention by the native kernel, as a torch operator."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt import native
from overt.attention.kernels.flat import reference as flat_reference
from overt.attention.kernels.flat.operator import (
    MASKED,
    Attention,
    array,
    bias_to_add_to,
    dense,
    drawn,
    masked,
    numbers,
    room_for_bias,
)


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


def _room(given: Given, keep: bool = True) -> tuple[Tensor, ...]:
    """For the output, and of each row a base and a total: a weight is 2^(t - base) / total, of a total score t in powers of two."""
    queries = given.query.shape[-2]
    output = numbers(given.query, *given.batch, queries, given.value.shape[-1])
    return (output, numbers(given.query, *given.batch, 2, queries)) if keep else (output,)


def _room_for_gradients(given: Given, with_bias: bool) -> tuple[Tensor | None, ...]:
    """For those of query, key and value, an entry each; for delta, where a sink asks for it, and for that of the bias."""
    query, batch = given.query, given.batch
    return (
        numbers(query, *batch, *query.shape[-2:]),
        numbers(query, *batch, *given.key.shape[-2:]),
        numbers(query, *batch, *given.value.shape[-2:]),
        None if given.sink is None else numbers(query, *batch, query.shape[-2]),
        room_for_bias(given, with_bias),
    )


def _told(given: Given, bias: Tensor | None) -> tuple[Any, ...]:
    compared = dense(given.query), dense(given.key), dense(given.value), given.scale, given.softcap
    return *compared, *masked(given, bias), *drawn(given), native.threads()


def _dot(given: Given, keep: bool) -> tuple[Tensor, ...]:
    found = _room(given, keep)
    native.module().dot(*_told(given, given.bias), *map(array, found), *([] if keep else [None]))
    return found


def _dot_gradients(given: Given, passed: tuple[Tensor, ...], upstream: Tensor, with_bias: bool) -> tuple[Tensor | None, ...]:
    found = _room_for_gradients(given, with_bias)
    bias = bias_to_add_to(given, found[-1])
    held = (array(tensor.contiguous()) for tensor in (*passed, upstream))
    native.module().dot_gradients(*_told(given, bias), *held, *map(array, found))
    return found


def _lse(sums: Tensor) -> Tensor:
    bases, totals = sums.unbind(-2)
    return (bases + torch.log2(totals)) * math.log(2)


dot = Attention(
    "dot",
    Given,
    ("query", "key", "value"),
    _dot,
    _dot_gradients,
    flat_reference.dot,
    _lse,
    _room,
    _room_for_gradients,
)
dot.register(
    f"Tensor query, Tensor key, Tensor value, float scale, float softcap, {MASKED}, float dropout, Tensor? seed", kept="sums"
)
