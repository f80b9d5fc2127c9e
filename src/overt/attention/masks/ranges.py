"""A mask that is one interval of keys for each query: two numbers for each row instead of Q × K."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.masks.base import Mask
from overt.attention.masks.intersection import RowRanges
from overt.attention.pieces import piece, whole_numbers
from overt.errors import InputError


@piece
class Ranges(Mask):
    """Query i may attend to keys low_i ≤ j < high_i; to no key if low_i = high_i.

    `low` and `high` are integer tensors (..., Q), aligned right against the call's (..., Q); a last size of 1 is one range for
    all queries.

    >>> Ranges(torch.tensor([0, 1]), torch.tensor([1, 3])).block(torch.arange(2), torch.arange(3)).int()
    tensor([[1, 0, 0],
            [0, 1, 1]], dtype=torch.int32)
    """

    low: Tensor
    high: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"low": 1, "high": 1}

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            whole_numbers("masks.Ranges", name, getattr(self, name), tensor=True)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """Itself, if it has one range for each query or one for all."""
        for name, edge in (("low", self.low), ("high", self.high)):
            if edge.ndim < 1 or edge.shape[-1] not in (1, queries):
                raise InputError(
                    f"one range for each of Q = {queries} queries, or one for all",
                    got=f"{name} of shape {tuple(edge.shape)}",
                    fix="pass one low and one high for each query",
                )
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether each of these rows may attend to each of these keys."""
        low, high = (edge if edge.shape[-1] == 1 else edge[..., rows] for edge in (self.low, self.high))
        return (low[..., None] <= keys) & (keys < high[..., None])  # (..., rows, keys)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range from the lowest low to the highest high of these rows."""
        low, high = (edge if edge.shape[-1] == 1 else edge[..., first:stop] for edge in (self.low, self.high))
        return (int(low.min()), int(high.max())) if low.numel() else (0, keys)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The ranges of these rows, counted from the first key."""
        low, high = (edge if edge.shape[-1] == 1 else edge[..., rows] for edge in (self.low, self.high))
        return Ranges(low - keys.start, high - keys.start)

    def __and__(self, other: Any) -> "Mask":
        """The intersection of two ranges is one range."""
        if not isinstance(other, Ranges):
            return super().__and__(other)
        return self.within(other)

    def within(self, other: "Ranges") -> "Ranges":
        """The intersection of both ranges."""
        low = torch.maximum(self.low, other.low)
        return Ranges(low, torch.maximum(low, torch.minimum(self.high, other.high)))

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """Low and high."""
        return self.low, self.high

    @property
    def by_key(self) -> bool:
        """Whether one range serves all queries."""
        return self.low.shape[-1] == 1
