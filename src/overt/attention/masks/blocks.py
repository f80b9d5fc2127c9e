"""Masks by blocks: each block of queries attends to the listed blocks of keys."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.check import describe, float_tensor, whole_number
from overt.attention.masks.base import Mask
from overt.attention.pieces import changed, piece, readable, whole_numbers
from overt.errors import InputError, KindError


@piece
class Blocks(Mask):
    """Each block of queries attends to the listed blocks of keys, as in FlexAttention's BlockMask, MoBA, NSA or a list of pages.

    `indices` (..., ⌈Q / size⌉, n) are the indices of the blocks of keys, in any order; repeated indices count once, and −1 is no
    block. `size` is the length of a block, or (queries, keys). Leading dimensions are aligned right with batch and heads. Memory
    is one bool for each pair of blocks. Raises InputError if an index or the number of rows does not fit the call.

    >>> Blocks(torch.tensor([[0], [1]]), size=2).bind(0, 4, 4).block(torch.arange(4), torch.arange(4)).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 0, 0],
            [0, 0, 1, 1],
            [0, 0, 1, 1]], dtype=torch.int32)
    """

    indices: Tensor
    size: int | tuple[int, int]
    columns: int | None = None  # the number of blocks of keys in a call, set by `bind`

    trailing: ClassVar[dict[str, int] | None] = {"indices": 2}

    def __post_init__(self) -> None:
        whole_numbers("masks.Blocks", "indices", self.indices, tensor=True, minimum=-1)
        if self.indices.ndim < 2:
            raise InputError(
                "indices of overt.masks.Blocks (..., blocks of queries, n)",
                got=str(tuple(self.indices.shape)),
                fix="pass one row of numbers for each block of queries",
            )
        sizes = (self.size, self.size) if isinstance(self.size, int) else self.size
        if not isinstance(sizes, (tuple, list)) or len(sizes) != 2:
            raise KindError(
                "size of overt.masks.Blocks to be the length of a block, or (queries, keys)",
                got=describe(self.size),
                fix="pass one or two whole numbers",
            )
        for size in sizes:
            whole_number("size of overt.masks.Blocks", size)
        if self.columns is not None:
            whole_number("columns of overt.masks.Blocks", self.columns)
        object.__setattr__(self, "size", tuple(sizes))

    @classmethod
    def from_topk(cls, scores: Tensor, top: int, size: int | tuple[int, int]) -> "Blocks":
        """The blocks of keys with the `top` largest scores (..., blocks of queries, blocks of keys); a score of −∞ is never listed.

        >>> Blocks.from_topk(torch.tensor([[0.1, 0.9, 0.5], [-torch.inf, -torch.inf, 0.0]]), top=2, size=16).indices
        tensor([[ 1,  2],
                [ 2, -1]])
        """
        float_tensor("scores of overt.masks.Blocks.from_topk", scores)
        whole_number("top of overt.masks.Blocks.from_topk", top)
        if scores.ndim < 2 or (readable(scores) and bool(scores.isnan().any())):
            raise InputError(
                "scores of overt.masks.Blocks.from_topk (..., blocks of queries, blocks of keys), none of them NaN",
                got=f"NaN in {tuple(scores.shape)}" if scores.ndim >= 2 else str(tuple(scores.shape)),
                fix="pass a number for each pair of blocks, −inf for what is never to be listed",
            )
        largest, indices = scores.detach().topk(min(top, scores.shape[-1]), dim=-1)
        return cls(torch.where(largest == -torch.inf, -1, indices), size)

    @classmethod
    def from_table(cls, table: Tensor, size: int | tuple[int, int]) -> "Blocks":
        """The blocks for which a bool tensor (..., blocks of queries, blocks of keys) is True.

        >>> Blocks.from_table(torch.tensor([[True, False], [True, True]]), size=16).indices
        tensor([[ 0, -1],
                [ 0,  1]])
        """
        if not isinstance(table, Tensor) or table.dtype != torch.bool or table.ndim < 2:
            raise KindError(
                "a bool table of overt.masks.Blocks (..., blocks of queries, blocks of keys)",
                got=describe(table),
                fix="compare what you have, as in scores > 0",
            )
        listed, indices = table.sort(dim=-1, descending=True, stable=True)
        count = max(int(table.sum(-1).max()) if table.numel() else 0, 1)
        return cls(torch.where(listed, indices, -1)[..., :count], size)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with the number of blocks of keys, if there is a row for each block of queries and no index is too large."""
        query_size, key_size = self.sizes
        rows, columns = -(-queries // query_size), -(-keys // key_size)
        largest = int(self.indices.max()) if readable(self.indices) else -1
        if self.indices.shape[-2] != rows or largest >= max(columns, 1):
            raise InputError(
                f"indices of overt.masks.Blocks (..., {rows}, n) from 0 to {max(columns - 1, 0)}, or −1, for Q = {queries}, K = {keys}"
                f" and blocks of {query_size} queries and {key_size} keys",
                got=f"{tuple(self.indices.shape)} with indices up to {largest}",
                fix="list the blocks of keys of each block of queries",
            )
        return changed(self, columns=columns)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of queries and of keys in a block."""
        return self.size  # type: ignore[return-value]

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether the rows' blocks list the keys' blocks: (..., rows, keys)."""
        query_size, key_size = self.sizes
        return self._table()[..., rows // query_size, :][..., keys // key_size]

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range from the first listed block of these rows to the last."""
        query_size, key_size = self.sizes
        if not readable(self.indices) or first >= stop:
            return 0, keys
        indices = self.indices[..., first // query_size : (stop - 1) // query_size + 1, :]
        listed = indices[indices >= 0]
        if not listed.numel():
            return 0, 0
        return int(listed.min()) * key_size, min((int(listed.max()) + 1) * key_size, keys)

    def block_table(self) -> tuple[Tensor, Tensor]:
        """Which blocks are listed, and the size of a block."""
        return self._table(), torch.tensor(self.sizes, device=self.indices.device)

    def _table(self) -> Tensor:
        indices = self.indices.long()
        columns = int(indices.max()) + 1 if self.columns is None else self.columns
        table = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.bool, device=indices.device)
        return table.scatter(-1, torch.where(indices < 0, columns, indices), True)[..., :columns]


def has_blocks(mask: Any) -> bool:
    """Whether a mask is or contains `Blocks`."""
    return isinstance(mask, Blocks) or any(has_blocks(part) for part in getattr(mask, "parts", ()))
