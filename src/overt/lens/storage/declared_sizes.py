"""Sizes that a file declares, held against the tensors that it holds before anything is made of that size."""

import math
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.lens.storage.offloading import unexpanded

_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_DTYPES |= {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_EMPTY = 2**20  # the sizes of a tensor without numbers take nothing in the file, and no more than this elsewhere
_MOST_DIMENSIONS = 16


def tensors_of(stored: Callable[[str], Tensor]) -> Callable[[Any], Tensor]:
    """What finds a tensor by [name, shape] as a file says it: the stored one, repeated where the file says so.

    Repeating takes no memory by itself. Raises ValueError for a shape that is none, or not the stored tensor's, repeated.
    """
    read = cache(stored)  # what layers share is one tensor again

    def get(place: Any) -> Tensor:
        name, shape = place
        if not isinstance(name, str) or not isinstance(shape, list) or not all(type(size) is int for size in shape):
            raise TypeError("a tensor is saved as its name and its shape")
        tensor = read(name)
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"a recording holds no tensors of {tensor.dtype}")
        pairs = list(zip(tensor.shape, shape, strict=False))
        if tensor.ndim != len(shape) or tensor.ndim > _MOST_DIMENSIONS or any(own not in (1, size) for own, size in pairs):
            raise ValueError(f"a tensor of shape {tuple(tensor.shape)} is not one of {tuple(shape)}")
        if 0 in shape and math.prod(size for size in shape if size) > _EMPTY:
            raise ValueError(f"a tensor without numbers has no sizes such as {tuple(shape)}")
        return tensor.expand(shape)

    return get


def stored_whole(*tensors: Tensor | None) -> bool:
    """Whether every number of these tensors stands in the file, none of them repeated."""
    return all(tensor is None or unexpanded(tensor).shape == tensor.shape for tensor in tensors)


def fits_the_call(piece: Any, call: Call, total: int) -> bool:
    """Whether each tensor in a mask or bias has sizes of the call: its batch, its heads (out of `total`), its lengths."""
    if isinstance(piece, Tensor):
        return _fits(piece, 2, call, total)
    trailing = getattr(piece, "trailing", None) or {}
    held = {each.name: getattr(piece, each.name) for each in fields(piece)}
    return all(
        _fits(value, trailing[name], call, total) if isinstance(value, Tensor) else fits_the_call(value, call, total)
        for name, value in held.items()
        if isinstance(value, Tensor) or hasattr(value, "block")
    )


def broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor has the sizes of this shape, aligned right, or 1 in their place."""
    padded = (1,) * (len(shape) - tensor.ndim) + tuple(tensor.shape)
    return len(padded) == len(shape) and all(own in (1, size) for own, size in zip(padded, shape, strict=True))


def _fits(tensor: Tensor, behind: int, call: Call, total: int) -> bool:
    lead = tuple(tensor.shape[: tensor.ndim - behind])
    repeated = [size for size, own in zip(tensor.shape, unexpanded(tensor).shape, strict=True) if size != own]
    batch = call.batch
    return (
        len(lead) <= len(batch)
        and all(
            size in (1, wanted) or (place == 1 and size > 0 and total % size == 0)
            for place, (size, wanted) in enumerate(zip(reversed(lead), reversed(batch), strict=False), 1)
        )
        and all(size <= max(call.queries, call.keys, total, *batch) for size in repeated)
    )
