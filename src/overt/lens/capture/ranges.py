"""Masks with one run of keys per query: two numbers a row instead of Q × K.

Causal masks, windows, padding on either side and packed documents are all of this kind. A model builds the mask as a tensor, bool or
with −inf added to the scores, and passes the same tensor to every layer; `MaskReader` reads it once and stores the edges of the runs.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.masks import Mask, Ranges
from overt.attention.masks.base import RowRanges
from overt.lens.storage.tensor_cache import TensorCache, unexpanded

_AT_ONCE = 2**22  # numbers of a mask that are read together, which bounds the memory


class MaskReading(NamedTuple):
    """A mask tensor as `mask` and `bias` of a call, either of which may be None."""

    mask: Any
    bias: Tensor | None


def read(mask: Tensor) -> MaskReading:
    """A mask tensor as ranges if each row is one run of keys; otherwise unchanged.

    A float mask is added to the scores, so −inf or its dtype's lowest number masks a key. A row with only the lowest number masks
    nothing: it swamps every score, so the softmax is uniform. The row therefore stays, as a bias of one number.

    >>> read(torch.ones(3, 3).tril().bool()).mask.high
    tensor([1, 2, 3], dtype=torch.int32)
    >>> read(torch.tensor([[0.0, -0.5]])).mask is None
    True
    """
    if mask.ndim < 2 or not mask.numel():
        return _as_it_is(mask)
    shrunk = unexpanded(mask.detach())  # repeated rows are read once
    shrunk = shrunk.expand(*shrunk.shape[:-1], mask.shape[-1])
    floating = mask.is_floating_point()
    size = max(1, _AT_ONCE // (shrunk.numel() // shrunk.shape[-2]))
    parts = [(_edges_of_float if floating else _edges)(part) for part in shrunk.split(size, dim=-2)]
    if any(part is None for part in parts):
        return _as_it_is(mask)
    low, high, drowned = (torch.cat(edges, dim=-1) for edges in zip(*parts, strict=True))  # type: ignore[arg-type]
    if not bool(drowned.any()):
        return MaskReading(Ranges(low, high), None)
    lowest = torch.finfo(torch.promote_types(mask.dtype, torch.float32)).min
    return MaskReading(Ranges(low, high), torch.where(drowned, lowest, 0.0)[..., None])  # (..., Q, 1)


def _as_it_is(mask: Tensor) -> MaskReading:
    return MaskReading(None, mask) if mask.is_floating_point() else MaskReading(mask, None)


def _edges(allowed: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The first allowed key and the one after the last for each row, and no uniform rows; None if a row is not one run."""
    numbers = allowed.view(torch.uint8)
    first = numbers.argmax(-1)
    last = allowed.shape[-1] - numbers.flip(-1).argmax(-1)
    count = allowed.sum(-1)
    if bool(((last - first != count) & (count > 0)).any()):
        return None
    some = count > 0
    low, high = (torch.where(some, edge, 0).int() for edge in (first, last))
    return low, high, torch.zeros_like(some)


def _edges_of_float(mask: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The edges of an added mask; a row of only the lowest number allows all keys, and is uniform."""
    allowed, lowest, masked = mask == 0, mask == torch.finfo(mask.dtype).min, mask == -math.inf
    if not bool((allowed | lowest | masked).all()):
        return None
    drowned = lowest.all(-1)
    if bool((~allowed.any(-1) & ~drowned & ~masked.all(-1)).any()):
        return None
    edges = _edges(allowed | drowned[..., None])
    return None if edges is None else (*edges[:2], drowned)


def in_ranges(
    mask: Any, queries: int, keys: int, device: torch.device, read: Callable[[Tensor], MaskReading] = read
) -> Ranges | None:
    """A mask that is bound to these lengths as `Ranges`; None if a query's keys are not one interval, or the mask's class is unknown.

    `read` reads a bool tensor; `MaskReader.read` does so once for all layers that share it.

    >>> from overt.attention.masks import Causal, Keys
    >>> mask = Causal(offset=0) & Keys(torch.tensor([False, True, True]))
    >>> ranges = in_ranges(mask, 3, 3, torch.device("cpu"))
    >>> ranges.low.tolist(), ranges.high.tolist()
    ([1, 1, 1], [1, 2, 3])
    """
    if isinstance(mask, Ranges):
        return mask
    if mask is not None and not isinstance(mask, Mask):
        return None

    def row_ranges(allowed: Tensor) -> RowRanges | None:
        result = read(allowed).mask
        return (result.low, result.high) if isinstance(result, Ranges) else None

    ranges = (0, keys) if mask is None else mask.inspect_row_ranges(queries, keys, device, row_ranges)
    if ranges is None:
        return None
    low, high = (
        edge.clamp(0, keys) if isinstance(edge, Tensor) else torch.full((1,), max(0, min(edge, keys)), device=device)
        for edge in ranges
    )
    return Ranges(*torch.broadcast_tensors(low, torch.maximum(low, high)))


class MaskReader:
    """Reads each mask tensor once for all layers that share it, and again after it was overwritten."""

    def __init__(self):
        self._once = TensorCache()

    def read(self, mask: Tensor) -> MaskReading:
        """The cached result of `read`."""
        if mask.is_inference():  # torch does not count writes to these tensors
            return read(mask)
        return self._once(mask, _in_ranges) or _as_it_is(mask)


def _in_ranges(mask: Tensor) -> MaskReading | None:
    """The result of `read` if it is ranges, which hold no reference to the mask."""
    result = read(mask)
    return result if isinstance(result.mask, Ranges) else None
