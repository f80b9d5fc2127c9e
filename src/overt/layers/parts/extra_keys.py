"""Keys without a position: a learned key, torch's `add_bias_kv`, and a key of zeros, torch's `add_zero_attn`.

They follow the other keys, and every query may attend to them: a query that matches no other key gives them its weight.
Masks, biases and their alignment, K − Q, ignore them, so both are bound to the sizes of the call without them.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from overt.attention.biases import Bias, as_bias
from overt.attention.masks import Mask, as_mask
from overt.attention.pieces import piece


def with_extra(heads: Tensor, learned: Tensor | None, zero: bool) -> Tensor:
    """Append the learned vector (H · D numbers), then zeros, to keys or values of all heads (..., H, K, D)."""
    if learned is not None:
        last = learned.to(heads.dtype).reshape(heads.shape[-3], 1, heads.shape[-1])  # (H, 1, D)
        heads = torch.cat([heads, last.expand(*heads.shape[:-2], 1, -1)], dim=-2)  # (..., H, K + 1, D)
    return functional.pad(heads, (0, 0, 0, 1)) if zero else heads


def mask_with_extra(mask: Any, count: int) -> Any:
    """Extend the mask of a call without extra keys to `count` keys at its end."""
    return mask if mask is None or not count else MaskWithExtra(as_mask(mask), count)


def bias_with_extra(bias: Any, count: int) -> Any:
    """Extend the bias of a call without extra keys to `count` keys at its end, whose scores are unchanged."""
    return bias if bias is None or not count else BiasWithExtra(as_bias(bias), count)


@piece
class MaskWithExtra(Mask):
    """The mask `inner` for the first K keys; the `count` keys after them are visible.

    >>> from overt import Causal
    >>> MaskWithExtra(Causal(), 1).bind(0, 2, 3).block(torch.arange(2), torch.arange(3))
    tensor([[ True, False,  True],
            [ True,  True,  True]])
    """

    inner: Any
    count: int
    keys: int = 0  # K, known once bound

    same_lengths: ClassVar[bool] = False  # `inner` has fewer keys

    def bind(self, leading: int, queries: int, keys: int) -> "MaskWithExtra":
        """The mask, with `inner` bound to K keys."""
        keys = keys - self.count
        bound = self.inner.bind(leading, queries, keys) if isinstance(self.inner, Mask) else self.inner
        return MaskWithExtra(bound, self.count, keys)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The block of `inner`, and True for the extra keys."""
        extra = keys >= self.keys
        return self.inner.block(rows, keys.clamp(max=self.keys - 1)) | extra if self.keys else extra[None]

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range from the first key of `inner` to the last extra key."""
        return self.inner.span(first, stop, self.keys)[0] if isinstance(self.inner, Mask) else 0, keys

    @property
    def by_key(self) -> bool:
        """Whether `inner` is the same for all queries."""
        return isinstance(self.inner, Mask) and self.inner.by_key


@piece
class BiasWithExtra(Bias):
    """The bias `inner` for the first K keys, and 0 for the `count` keys after them."""

    inner: Bias
    count: int
    keys: int = 0  # K, known once bound

    same_lengths: ClassVar[bool] = False  # `inner` has fewer keys

    def bind(self, leading: int, queries: int, keys: int) -> "BiasWithExtra":
        """The bias, with `inner` bound to K keys."""
        return BiasWithExtra(self.inner.bind(leading, queries, keys - self.count), self.count, keys - self.count)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The block of `inner`, and 0 for the extra keys."""
        if not self.keys:
            return self.source.new_zeros(1, len(keys))
        return torch.where(keys < self.keys, self.inner.block(rows, keys.clamp(max=self.keys - 1)), 0)

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading dimensions of `inner`."""
        return self.inner.leading

    @property
    def source(self) -> Tensor:
        """The source of `inner`."""
        return self.inner.source
