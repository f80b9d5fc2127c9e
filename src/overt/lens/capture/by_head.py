"""Some heads of a mask or a bias that is bound to its call, as a piece of the same kind.

A piece that stays of its kind is still known to the native kernels, which a wrapper around it is not.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import ALiBi, RelativePositionBias
from overt.attention.masks import Causal, Dense, Documents, Keys, Lengths, Window
from overt.attention.masks.base import Both, Either, Not
from overt.lens.capture.ranges import Ranges

# A tensor and how many dimensions follow the heads', to what the chosen heads have of it; None where that would be a copy of Q × K.
Choose = Callable[[Tensor, int], Tensor | None]

# What each kind holds, and how many dimensions follow the heads' there.
_HELD: dict[type, dict[str, int]] = {
    Causal: {"offset": 2},
    Window: {"offset": 2},
    Lengths: {"keys": 2, "queries": 2},
    Dense: {"allowed": 2},
    Keys: {"visible": 1},
    Documents: {"key_ids": 1, "query_ids": 1},
    Ranges: {"low": 1, "high": 1},
}


def mask_of_heads(mask: Any, choose: Choose) -> Any:
    """The mask with `choose` applied to all that it holds; None where that, or its kind, is not known."""
    if type(mask) is Not:
        inner = mask_of_heads(mask.inner, choose)
        return None if inner is None else Not(inner)
    if type(mask) in (Both, Either):
        left, right = mask_of_heads(mask.left, choose), mask_of_heads(mask.right, choose)
        return None if left is None or right is None else type(mask)(left, right)
    if type(mask) not in _HELD:
        return None
    held = {name: getattr(mask, name) for name in mask.__dataclass_fields__}
    for name, after in _HELD[type(mask)].items():
        if isinstance(held[name], Tensor):
            held[name] = choose(held[name], after)
            if held[name] is None:
                return None
    return type(mask)(**held)


def bias_of_head(bias: Any, head: int) -> Any:
    """The bias of one head, its dimension gone; None where its kind is not known."""
    if type(bias) is ALiBi:
        place = head if len(bias.slopes) > 1 else 0
        return ALiBi(bias.slopes[place : place + 1], _without_heads(bias.offset))
    if type(bias) is RelativePositionBias:
        table = bias.table[head if len(bias.table) > 1 else 0] if bias.table.ndim > 1 else bias.table
        return RelativePositionBias(table, bias.buckets, bias.bidirectional, bias.max_distance, _without_heads(bias.offset))
    return None


def bias_of_heads(bias: Any, heads: tuple[int, ...]) -> Any:
    """The bias of some heads, in this order; None where its kind is not known."""
    places = list(heads)
    if type(bias) is ALiBi:
        return ALiBi(bias.slopes[places], bias.offset) if len(bias.slopes) > 1 else bias
    if type(bias) is RelativePositionBias:
        table = bias.table[places] if bias.table.ndim > 1 and len(bias.table) > 1 else bias.table
        return RelativePositionBias(table, bias.buckets, bias.bidirectional, bias.max_distance, bias.offset)
    return None


def one_head(head: int, total: int) -> Choose:
    """Chooses one head, whose dimension is gone then."""

    def choose(tensor: Tensor, after: int) -> Tensor:
        place = -1 - after
        if tensor.ndim < 1 + after:
            return tensor
        return tensor.select(place, head // (total // tensor.shape[place]) if tensor.shape[place] > 1 else 0)

    return choose


def some_heads(heads: tuple[int, ...], total: int) -> Choose:
    """Chooses some heads, in this order."""

    def choose(tensor: Tensor, after: int) -> Tensor | None:
        place = -1 - after
        if tensor.ndim < 1 + after or tensor.shape[place] == 1:
            return tensor
        if min(tensor.shape[-after:]) > 1 and after == 2:
            return None
        group = total // tensor.shape[place]
        return tensor.index_select(place, torch.tensor([head // group for head in heads], device=tensor.device))

    return choose


def _without_heads(offset: Any) -> Any:
    return offset.select(-3, 0) if isinstance(offset, Tensor) and offset.ndim > 2 else offset
