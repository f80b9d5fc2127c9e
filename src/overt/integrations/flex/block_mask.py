"""The mask of a BlockMask: in listed blocks the pairs that its mod allows, in full blocks all pairs."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from overt.attention.expressions.expression import Expression, traced
from overt.attention.masks import Blocks, Mask, Ranges
from overt.errors import InputError, KindError
from overt.integrations.flex.masks import ExpressionMask, ModMask, expression_mask
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY
from overt.integrations.flex.sizes import Sizes


class BlockTables:
    """The listed blocks of a BlockMask: with some pairs (`partial`) and with all (`full`), bool (B or 1, H or 1, blocks, blocks)."""

    def __init__(self, block_mask: Any):
        self.rows: int
        self.columns: int
        self.rows, self.columns = block_mask.BLOCK_SIZE
        self.partial: Tensor = _listed(block_mask.kv_num_blocks, block_mask.kv_indices)
        full = block_mask.full_kv_num_blocks
        self.full: Tensor = torch.zeros_like(self.partial) if full is None else _listed(full, block_mask.full_kv_indices)

        listed = (self.partial | self.full).any(0).any(0)  # (blocks of rows, blocks of columns)
        first, last = listed.int().argmax(-1), listed.shape[-1] - listed.flip(-1).int().argmax(-1)
        empty = ~listed.any(-1)
        low, high = torch.where(empty, 0, first) * self.columns, torch.where(empty, 0, last) * self.columns
        self.spans: list[tuple[int, int]] = list(zip(low.tolist(), high.tolist(), strict=True))

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The range of keys outside of which no block of these rows is listed."""
        spans = [
            interval for interval in self.spans[first // self.rows : (stop - 1) // self.rows + 1] if interval[0] < interval[1]
        ]
        return min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)

    def entries(self, table: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        """The entries of a table for pairs of rows and keys: (B or 1, H or 1, rows, keys)."""
        return table[:, :, (rows // self.rows)[:, None], keys // self.columns]


class BlockTableMask(Mask):
    """The pairs that a mod allows in a BlockMask's listed blocks, and all pairs of full blocks; keys of unlisted blocks are skipped."""

    def __init__(self, tables: BlockTables, mask: Mask | None, *, agree: bool):
        self.tables = tables
        self.mask = mask
        self.agree = agree

    def bind(self, leading: int, queries: int, keys: int) -> "BlockTableMask":
        """The mask with the mod's mask bound."""
        bound = None if self.mask is None else self.mask.bind(leading, queries, keys)
        return BlockTableMask(self.tables, bound, agree=self.agree)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The mod's mask if the tables agree with it; else full blocks, and in partial blocks the pairs that the mod allows."""
        if self.agree and self.mask is not None:
            return self.mask.block(rows, keys)
        partial = self.tables.entries(self.tables.partial, rows, keys)
        partial = partial if self.mask is None else partial & self.mask.block(rows, keys)
        return self.tables.entries(self.tables.full, rows, keys) | partial

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range of keys in listed blocks."""
        low, high = self.tables.span(first, stop)
        return low, min(high, keys)


# _lowered: the mask of each BlockMask, since it serves all layers of a model, and its sources. Storing the tensors keeps their ids unique.
_lowered: WeakKeyDictionary[Any, tuple[Any, list[Tensor], Mask | None]] = WeakKeyDictionary()


def mask_of_block_mask(block_mask: Any, sizes: Sizes) -> Mask | None:
    """The mask of a BlockMask; None if it allows everything. Raises InputError if it was created for other sizes.

    It is lowered once, and again if one of its tensors was written to, or its mod uses other numbers.
    """
    _check(block_mask, sizes)
    names = [BATCH, HEAD, QUERY, KEY]
    expression = traced(block_mask.mask_mod, *names)
    tensors = _tensors(block_mask, expression)
    versions = [(id(tensor), tensor._version) for tensor in tensors if not tensor.is_inference()]
    state = block_mask.mask_mod, sizes, versions, _text(expression)
    known = _lowered.get(block_mask)
    if known is not None and known[0] == state:
        return known[2]
    mask = ModMask(block_mask.mask_mod, sizes) if expression is None else expression_mask(expression, sizes)
    mask = _with_tables(mask, BlockTables(block_mask), sizes)
    # A mod that is no expression may read anything, and inference mode's tensors do not count writes.
    if expression is not None and len(versions) == len(tensors):
        _lowered[block_mask] = state, tensors, mask
    return mask


def _check(block_mask: Any, sizes: Sizes) -> None:
    if not hasattr(block_mask, "kv_num_blocks") or not hasattr(block_mask, "mask_mod"):
        raise KindError("a BlockMask", got=type(block_mask).__name__, fix="make one by torch's create_block_mask(mask_mod, …)")
    lengths = tuple(block_mask.seq_lengths)
    if lengths != (sizes.queries, sizes.keys):
        raise InputError(
            f"a block mask of Q = {sizes.queries} queries and K = {sizes.keys} keys",
            got=f"one of {lengths[0]} and {lengths[1]}",
            fix="make a block mask of these lengths",
        )
    leading = tuple(block_mask.kv_num_blocks.shape[:2])
    if leading[0] not in (1, sizes.batch) or leading[1] not in (1, sizes.heads):
        raise InputError(
            f"a block mask for B = {sizes.batch} and H = {sizes.heads}, or 1 of each",
            got=f"one for B = {leading[0]} and H = {leading[1]}",
            fix="make it with these, or with None for what is the same in all",
        )
    if block_mask.kv_num_blocks.device != sizes.device:
        raise InputError(
            "the block mask on the device of the query",
            got=f"{block_mask.kv_num_blocks.device} and {sizes.device}",
            fix=f'move it: block_mask.to("{sizes.device}")',
        )


def _tensors(block_mask: Any, expression: Any) -> list[Tensor]:
    """The tables of a BlockMask, and the tensors that its mod captured."""
    tables = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    captured = expression.tensors() if isinstance(expression, Expression) else ()
    return [tensor for tensor in (*tables, *captured) if tensor is not None]


def _text(expression: Any) -> str:
    """The text of an expression, with captured tensors by identity: constants of the mod may change between two calls."""
    if isinstance(expression, tuple):
        return f"({', '.join(_text(part) for part in expression)})"
    if not isinstance(expression, Expression):
        return f"tensor {id(expression)}" if isinstance(expression, Tensor) else repr(expression)
    options = sorted((name, _text(option)) for name, option in expression.options.items())
    return f"{expression.function}{_text(expression.arguments)}{options or ''}"


def _listed(counts: Tensor, indices: Tensor) -> Tensor:
    """Which blocks of a row are among the first `counts` (B, H, rows) of `indices` (B, H, rows, blocks)."""
    number = indices.shape[-1]
    listed = torch.arange(number, device=indices.device) < counts[..., None]
    table = torch.zeros(*indices.shape[:-1], number + 1, dtype=torch.bool, device=indices.device)
    return table.scatter(-1, torch.where(listed, indices, number).long(), True)[..., :number]


def _with_tables(mask: Mask | None, tables: BlockTables, sizes: Sizes) -> Mask | None:
    """The mod's mask, if the tables agree with it, as ranges if each row is one range; else a mask by the tables."""
    bound = None if mask is None else mask.bind(2, sizes.queries, sizes.keys)
    agree, ranges = _inspected(bound, tables, sizes)
    if agree and ranges is not None:
        return mask if bound is None or bound.has_row_ranges else Ranges(*ranges)
    if _is_computed(mask):
        return BlockTableMask(tables, mask, agree=agree)
    return mask if agree else _by_blocks(mask, tables)


def _by_blocks(mask: Mask | None, tables: BlockTables) -> Mask:
    """The pairs that a mask known to kernels allows in partial blocks, and all pairs of full blocks, as a mask known to kernels."""
    size = tables.rows, tables.columns
    if mask is None:
        return Blocks.from_table(tables.partial | tables.full, size)
    partial = Blocks.from_table(tables.partial, size) & mask
    return Blocks.from_table(tables.full, size) | partial if bool(tables.full.any()) else partial


def _is_computed(mask: Any) -> bool:
    """Whether a mask, or a part of it, is computed block by block and unknown to kernels."""
    parts = [getattr(mask, name) for name in ("left", "right", "inner") if hasattr(mask, name)]
    return isinstance(mask, (ExpressionMask, ModMask)) or any(_is_computed(part) for part in parts)


def _inspected(mask: Mask | None, tables: BlockTables, sizes: Sizes) -> tuple[bool, tuple[Tensor, Tensor] | None]:
    """Whether the tables agree with the mask, and the range of keys of each query, None if a row is not one range."""
    keys = torch.arange(sizes.keys, device=sizes.device)
    lows, highs, agree, one_range = [], [], True, True
    step = sizes.rows_at_once
    for first in range(0, sizes.queries, step):
        rows = torch.arange(first, min(first + step, sizes.queries), device=sizes.device)
        partial, full = (tables.entries(table, rows, keys) for table in (tables.partial, tables.full))
        allowed = torch.ones_like(partial) if mask is None else mask.block(rows, keys)
        agree = agree and not bool((full & ~allowed).any()) and not bool((allowed & ~partial & ~full).any())
        if not agree:
            return False, None
        if one_range:
            count, low = allowed.sum(-1), allowed.int().argmax(-1)
            high = sizes.keys - allowed.flip(-1).int().argmax(-1)
            one_range = bool(((count == 0) | (high - low == count)).all())
            lows.append(torch.where(count > 0, low, 0))
            highs.append(torch.where(count > 0, high, 0))
    return agree, (torch.cat(lows, -1), torch.cat(highs, -1)) if one_range and lows else None
