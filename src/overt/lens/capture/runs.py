"""Any mask of a call as one run of keys a query, where it is that."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.flat import mask_program
from overt.attention.masks import Causal, Dense, Documents, Keys, Lengths, Window
from overt.attention.masks.base import Both
from overt.lens.capture.ranges import Ranges, Read, read


def in_ranges(mask: Any, queries: int, keys: int, device: torch.device, read: Callable[[Tensor], Read] = read) -> Ranges | None:
    """A mask that is bound to these lengths as `Ranges`; None where a query's keys are not one run, or the mask tells nothing.

    Causal masks, windows, lengths, padding on either side, packed documents whose places follow each other, bool tensors and what
    is made of these by & are of this kind. `read` reads a bool tensor; `MasksSeen.read` does so once for all layers that share it.

    >>> from overt.attention.masks import Causal, Keys
    >>> mask = Causal(offset=0) & Keys(torch.tensor([False, True, True]))
    >>> found = in_ranges(mask, 3, 3, torch.device("cpu"))
    >>> found.low.tolist(), found.high.tolist()
    ([1, 1, 1], [1, 2, 3])
    """
    if isinstance(mask, Ranges):
        return mask
    if mask is None:
        return Ranges(*(torch.full((1,), edge, dtype=torch.long, device=device) for edge in (0, keys)))
    if type(mask) is Both:
        left, right = (in_ranges(part, queries, keys, device, read) for part in (mask.left, mask.right))
        return None if left is None or right is None else left.within(right)
    if type(mask) in (Causal, Window, Lengths):
        _, (low, high) = mask_program.lowered(mask, queries, keys, device)
        return Ranges(low, torch.maximum(low, high))
    if type(mask) is Keys:
        return _of_tensor(mask.visible[..., None, :], read)
    if type(mask) is Dense:
        return _of_tensor(mask.allowed.expand(*mask.allowed.shape[:-1], keys), read) if mask.allowed.ndim > 1 else None
    return _of_documents(mask) if type(mask) is Documents else None


def _of_tensor(allowed: Tensor, read: Callable[[Tensor], Read]) -> Ranges | None:
    found = read(allowed).mask
    return found if isinstance(found, Ranges) else None


def _of_documents(mask: Documents) -> Ranges | None:
    """The places of each query's document, where they follow each other."""
    assert mask.query_ids is not None  # a bound mask has both
    count = mask.key_ids.shape[-1]
    if not count or not mask.query_ids.numel():
        return None
    lead = torch.broadcast_shapes(mask.key_ids.shape[:-1], mask.query_ids.shape[:-1])
    asked = mask.query_ids.long().expand(*lead, -1).contiguous()  # (..., Q)
    ids, places = mask.key_ids.long().expand(*lead, -1).sort(stable=True)  # (..., K)
    first, stop = (torch.searchsorted(ids, asked, right=right) for right in (False, True))
    some = (stop > first) & (asked >= 0)
    low = places.gather(-1, first.clamp(max=count - 1))
    high = places.gather(-1, (stop - 1).clamp(min=0)) + 1
    if bool((some & (high - low != stop - first)).any()):
        return None
    return Ranges(*(torch.where(some, edge, 0) for edge in (low, high)))
