"""Sizes that a file declares, checked against its tensors before memory of that size is allocated."""

import math
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.lens.storage.tensor_cache import unexpanded

_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_DTYPES |= {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_MAX_EMPTY = 2**20  # the largest product of the nonzero sizes of an empty tensor, which has no bytes to check
_MAX_DIMENSIONS = 16


def stored_tensors(read_stored: Callable[[str], Tensor]) -> Callable[[Any], Tensor]:
    """A function that returns a file's tensor for [name, shape]: the stored tensor, expanded to the declared shape.

    Raises TypeError or ValueError for a shape to which the stored tensor does not expand.
    """
    read = cache(read_stored)  # layers that shared a tensor share the loaded one

    def get(name_and_shape: Any) -> Tensor:
        name, shape = name_and_shape
        if not isinstance(name, str) or not isinstance(shape, list) or not all(type(size) is int for size in shape):
            raise TypeError("a tensor is saved as its name and its shape")
        tensor = read(name)
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"a recording holds no tensors of {tensor.dtype}")
        pairs = list(zip(tensor.shape, shape, strict=False))
        if (
            tensor.ndim != len(shape)
            or tensor.ndim > _MAX_DIMENSIONS
            or any(size_in_file not in (1, size) for size_in_file, size in pairs)
        ):
            raise ValueError(f"a tensor of shape {tuple(tensor.shape)} does not expand to {tuple(shape)}")
        if 0 in shape and math.prod(size for size in shape if size) > _MAX_EMPTY:
            raise ValueError(f"an empty tensor has the sizes {tuple(shape)}")
        return tensor.expand(shape)

    return get


def stored_whole(*tensors: Tensor | None) -> bool:
    """Whether none of these tensors was expanded, so the file holds all of their numbers."""
    return all(tensor is None or unexpanded(tensor).shape == tensor.shape for tensor in tensors)


def fits_the_call(piece: Any, call: Call, total: int) -> bool:
    """Whether each tensor in a mask or bias has the sizes of the call: its batch, its heads (out of `total`), its lengths."""
    if isinstance(piece, Tensor):
        return _fits(piece, 2, call, total)
    trailing = getattr(piece, "trailing", None) or {}
    values = {field.name: getattr(piece, field.name) for field in fields(piece)}
    return all(
        _fits(value, trailing[name], call, total) if isinstance(value, Tensor) else fits_the_call(value, call, total)
        for name, value in values.items()
        if isinstance(value, Tensor) or hasattr(value, "block")
    )


def _fits(tensor: Tensor, trailing: int, call: Call, total: int) -> bool:
    lead = tuple(tensor.shape[: tensor.ndim - trailing])
    repeated = [size for size, stored in zip(tensor.shape, unexpanded(tensor).shape, strict=True) if size != stored]
    batch = call.batch
    return (
        len(lead) <= len(batch)
        and all(
            size in (1, wanted) or (dim == 1 and size > 0 and total % size == 0)
            for dim, (size, wanted) in enumerate(zip(reversed(lead), reversed(batch), strict=False), 1)
        )
        and all(size <= max(call.queries, call.keys, total, *batch) for size in repeated)
    )
