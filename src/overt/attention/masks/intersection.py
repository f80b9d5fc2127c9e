"""Ranges of keys, one for each row, and their intersection."""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

# RowRanges: each row's first key and the one after its last: integer tensors (..., Q) or (..., 1), or one int for all rows.
RowRanges = tuple[Tensor | int, Tensor | int]


def intersection(ranges: Sequence[RowRanges]) -> RowRanges:
    """The intersection of these ranges in each row; if it is empty, the end may precede the start."""
    lows, highs = zip(*ranges, strict=True)
    return _extreme(lows, max, torch.maximum), _extreme(highs, min, torch.minimum)


def _extreme(
    edges: tuple[Tensor | int, ...], reduce_numbers: Callable[..., int], reduce_tensors: Callable[..., Tensor]
) -> Tensor | int:
    """The largest or smallest edges of each row."""
    numbers = [edge for edge in edges if not isinstance(edge, Tensor)]
    tensors = [edge for edge in edges if isinstance(edge, Tensor)]
    if not tensors:
        return reduce_numbers(numbers)
    edge = reduce(reduce_tensors, tensors)
    if not numbers:
        return edge
    return edge.clamp(min=max(numbers)) if reduce_numbers is max else edge.clamp(max=min(numbers))
