"""Masks that are aligned at the end, told another alignment."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from overt.attention.masks.base import Both, Either, Not
from overt.attention.masks.kinds import Causal, Window


def aligned(mask: Any, offset: int | Tensor) -> Any:
    """The same mask, with this offset in every `Causal` and `Window` in it that has none of its own.

    K − Q is where the first query stands only if all rows of the batch hold K keys. Rows of a cache that differ in length have
    an offset each, (B,), and a mask that its caller left aligned at the end gets it here, inside & | ~ too. Any other mask, a bool
    tensor included, comes back as it is.

    >>> mask = aligned(Causal() & Window(2, 0, offset=7), offset=3)
    >>> mask.left.offset, mask.right.offset
    (3, 7)
    """
    if isinstance(mask, Causal | Window) and mask.offset is None:
        return replace(mask, offset=offset)
    if isinstance(mask, Both | Either):
        return type(mask)(aligned(mask.left, offset), aligned(mask.right, offset))
    return Not(aligned(mask.inner, offset)) if isinstance(mask, Not) else mask
