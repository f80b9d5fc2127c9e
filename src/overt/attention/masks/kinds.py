"""The masks, each with the condition under which a query may attend to a key."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.check import align_left, dense, describe
from overt.attention.masks.base import NAMED, Mask, ReadRanges
from overt.attention.masks.intersection import RowRanges
from overt.attention.pieces import changed, piece, whole_numbers, within_64_bits
from overt.errors import InputError, KindError


@piece
class Causal(Mask):
    """Query i may attend to keys j ≤ i + offset.

    `offset=None` is K − Q: the last query sees every key, as continued sequences with a cache need. An int shifts it (0 aligns at
    the start, as torch's `is_causal` does), a tensor (B,) shifts each batch entry by its own.

    >>> rows = keys = torch.arange(3)
    >>> Causal(offset=0).block(rows, keys).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """

    offset: int | Tensor | None = None

    trailing: ClassVar[dict[str, int] | None] = {"offset": 2}

    def __post_init__(self) -> None:
        _offset_kind("Causal", self.offset)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with its offset resolved."""
        return replace(self, offset=_bound_offset("Causal", self.offset, leading, queries, keys))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether each of these rows may attend to each of these keys."""
        return keys <= rows[:, None] + _known(self.offset, "Causal")

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """All keys up to the last row's."""
        return (0, stop + self.offset) if isinstance(self.offset, int) else (0, keys)

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """All keys up to the row's own."""
        return 0, _row_positions(_known(self.offset, "Causal"), 1, queries, device)

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """The mask with this offset, if it has none."""
        return replace(self, offset=offset) if self.offset is None else self

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The same mask, with the offset counted from the first row and key."""
        return replace(self, offset=_known(self.offset, "Causal") + rows.start - keys.start)

    @property
    def numbers(self) -> tuple[int | None, ...] | None:
        """The offset, if one number serves all entries."""
        return None if isinstance(self.offset, Tensor) else (self.offset,)


@piece
class Window(Mask):
    """Query i may attend to keys with −before ≤ j − (i + offset) ≤ after; `None` is no limit on that side.

    Beltagy et al. 2020 (Longformer), section 3.1. `Window(255, 0)` is a causal window of 256 keys. The offset is Causal's.

    >>> rows = keys = torch.arange(4)
    >>> Window(1, 0, offset=0).block(rows, keys).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """

    before: int | None
    after: int | None
    offset: int | Tensor | None = None

    trailing: ClassVar[dict[str, int] | None] = {"offset": 2}

    def __post_init__(self) -> None:
        _offset_kind("Window", self.offset)
        for name, side in (("before", self.before), ("after", self.after)):
            if side is not None and (isinstance(side, bool) or not isinstance(side, int)):
                raise KindError(
                    f"{name} of overt.Window to be a whole number of positions, or None",
                    got=repr(side),
                    fix="pass an int or None",
                )
        if self.before is not None and self.after is not None and self.before + self.after < 0:
            raise InputError(
                "overt.Window(before, after) to hold a key, −before ≤ after",
                got=f"before={self.before}, after={self.after}",
                fix="count keys before a query as positive numbers: overt.Window(3, 0) is the query and three before it",
            )

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with its offset resolved."""
        offset = _bound_offset("Window", self.offset, leading, queries, keys)
        return Window(within_64_bits(self.before), within_64_bits(self.after), offset)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether each of these rows may attend to each of these keys."""
        distance = keys - (rows[:, None] + _known(self.offset, "Window"))  # (..., rows, keys)
        allowed = torch.ones_like(distance, dtype=torch.bool)
        if self.before is not None:
            allowed = allowed & (distance >= -self.before)
        if self.after is not None:
            allowed = allowed & (distance <= self.after)
        return allowed

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range from the first row's window to the last row's."""
        if not isinstance(self.offset, int):
            return 0, keys
        low = 0 if self.before is None else first + self.offset - self.before
        high = keys if self.after is None else stop + self.offset + self.after
        return low, high

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The row's window."""
        offset = _known(self.offset, "Window")
        low = 0 if self.before is None else _row_positions(offset, -self.before, queries, device)
        high = keys if self.after is None else _row_positions(offset, self.after + 1, queries, device)
        return low, high

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """The mask with this offset, if it has none."""
        return replace(self, offset=offset) if self.offset is None else self

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The same mask, with the offset counted from the first row and key."""
        return replace(self, offset=_known(self.offset, "Window") + rows.start - keys.start)

    @property
    def numbers(self) -> tuple[int | None, ...] | None:
        """Both sides and the offset, if one number serves all entries."""
        return None if isinstance(self.offset, Tensor) else (self.before, self.after, self.offset)


@piece
class Lengths(Mask):
    """Keys at or beyond their sequence's length are masked; with `queries`, queries beyond theirs attend to nothing.

    Each is an int or a tensor (B,) of ints.

    >>> Lengths(torch.tensor([1, 3])).bind(1, 1, 3).block(torch.arange(1), torch.arange(3)).int()
    tensor([[[1, 0, 0]],
    <BLANKLINE>
            [[1, 1, 1]]], dtype=torch.int32)
    """

    keys: int | Tensor
    queries: int | Tensor | None = None

    trailing: ClassVar[dict[str, int] | None] = {"keys": 2, "queries": 2}

    def __post_init__(self) -> None:
        for name in ("keys", "queries"):
            if isinstance(getattr(self, name), (list, tuple)):
                with suppress(TypeError, ValueError, RuntimeError):  # anything but a 64-bit tensor is refused below
                    object.__setattr__(self, name, torch.tensor(getattr(self, name)))
            whole_numbers("Lengths", name, getattr(self, name), minimum=0)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with its lengths aligned left."""
        keys, queries = (align_left("Lengths", length, leading) for length in (self.keys, self.queries))
        if isinstance(keys, Tensor) and (queries is None or isinstance(queries, Tensor)):
            return changed(self, keys=keys, queries=queries)
        return changed(self, keys=within_64_bits(keys), queries=within_64_bits(queries))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether each of these rows may attend to each of these keys."""
        allowed = keys[None, :] < self.keys
        return allowed if self.queries is None else allowed & (rows[:, None] < self.queries)

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """All keys up to the length; no keys in rows beyond the queries' length."""
        lengths = _by_row(self.keys)
        if self.queries is None:
            return 0, lengths
        return 0, torch.where(torch.arange(queries, device=device) < _by_row(self.queries), lengths, 0)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The lengths, counted from the first row and key."""
        return Lengths(_less(self.keys, keys.start), None if self.queries is None else _less(self.queries, rows.start))

    @property
    def by_key(self) -> bool:
        """Whether queries have no lengths."""
        return self.queries is None


@piece
class Documents(Mask):
    """Several sequences packed into one: a query attends to the keys of its own document.

    `key_ids` is (K,) or (B, K), ints; `query_ids` likewise, by default equal to `key_ids`. A negative id belongs to no
    document: it attends to nothing, and nothing attends to it.

    >>> ids = torch.tensor([0, 0, 1, -1])
    >>> Documents(ids).bind(0, 4, 4).block(torch.arange(4), torch.arange(4)).int()
    tensor([[1, 1, 0, 0],
            [1, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 0, 0]], dtype=torch.int32)
    """

    key_ids: Tensor
    query_ids: Tensor | None = None

    trailing: ClassVar[dict[str, int] | None] = {"key_ids": 1, "query_ids": 1}

    def __post_init__(self) -> None:
        whole_numbers("Documents", "key_ids", self.key_ids, tensor=True)
        if self.query_ids is not None:
            whole_numbers("Documents", "query_ids", self.query_ids, tensor=True)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with ids for queries and keys, aligned left."""
        query_ids = self.key_ids if self.query_ids is None else self.query_ids
        _length("Documents", "key_ids", self.key_ids, keys, "K")
        _length("Documents", "query_ids", query_ids, queries, "Q")
        return Documents(
            align_left("Documents", self.key_ids, leading, last=1), align_left("Documents", query_ids, leading, last=1)
        )

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Whether each of these rows may attend to each of these keys."""
        query_ids = (self.key_ids if self.query_ids is None else self.query_ids)[..., rows, None]
        key_ids = self.key_ids[..., None, keys]
        return (query_ids == key_ids) & (key_ids >= 0)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The ids of only these rows and keys."""
        return Documents(self.key_ids[..., keys], (self.key_ids if self.query_ids is None else self.query_ids)[..., rows])

    def document_ids(self) -> tuple[Tensor, Tensor]:
        """The ids of queries and of keys."""
        return (self.key_ids if self.query_ids is None else self.query_ids).long(), self.key_ids.long()

    def inspect_row_ranges(self, queries: int, keys: int, device: torch.device, read: ReadRanges) -> RowRanges | None:
        """The keys of each query's document, if they are consecutive."""
        if not keys or not queries:
            return None
        query_ids, key_ids = self.document_ids()
        lead = torch.broadcast_shapes(query_ids.shape[:-1], key_ids.shape[:-1])
        query_ids = query_ids.expand(*lead, -1).contiguous()  # (..., Q)
        ids, positions = key_ids.expand(*lead, -1).sort(stable=True)  # (..., K)
        first, stop = (torch.searchsorted(ids, query_ids, right=right) for right in (False, True))
        some = (stop > first) & (query_ids >= 0)
        low = positions.gather(-1, first.clamp(max=keys - 1))
        high = positions.gather(-1, (stop - 1).clamp(min=0)) + 1
        if bool((some & (high - low != stop - first)).any()):
            return None
        return torch.where(some, low, 0), torch.where(some, high, 0)


@piece
class Keys(Mask):
    """The visible keys, the same for every query: bool, (K,) or (B, K).

    >>> Keys(torch.tensor([True, False])).bind(0, 1, 2).block(torch.arange(1), torch.arange(2))
    tensor([[ True, False]])
    """

    visible: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"visible": 1}

    def __post_init__(self) -> None:
        dense(self.visible, "visible")
        if not isinstance(self.visible, Tensor) or self.visible.dtype != torch.bool:
            raise KindError("a bool tensor in overt.masks.Keys", got=describe(self.visible), fix="compare: Keys(padding == 0)")

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The mask with its batch aligned left."""
        _length("masks.Keys", "visible", self.visible, keys, "K")
        return Keys(align_left("masks.Keys", self.visible, leading, last=1))

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The visible keys, the same for every row."""
        return self.visible[..., None, keys]

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The mask of only these keys."""
        return Keys(self.visible[..., keys])

    def allowed_pairs(self) -> Tensor:
        """One row for all queries."""
        return self.visible[..., None, :]  # (..., 1, K)

    @property
    def by_key(self) -> bool:
        """Always true."""
        return True


def _less(length: int | Tensor, start: int) -> int | Tensor:
    """The part of a length after `start`."""
    return (length - start).clamp(min=0) if isinstance(length, Tensor) else max(length - start, 0)


def _known(offset: int | Tensor | None, who: str) -> int | Tensor:
    if offset is None:
        raise InputError(
            f"the lengths Q and K before a block, since overt.{who}() without an offset is aligned at the end",
            fix=f"pass an offset, {who}(…, offset=K - Q), or call mask.bind(leading, Q, K) first",
        )
    return offset


def _bound_offset(who: str, offset: int | Tensor | None, leading: int, queries: int, keys: int) -> int | Tensor:
    return keys - queries if offset is None else within_64_bits(align_left(who, offset, leading))


def _row_positions(offset: int | Tensor, more: int, queries: int, device: torch.device) -> Tensor:
    """Each row's position plus an offset, an int or (..., 1, 1), plus `more`: (..., Q)."""
    start = more if isinstance(offset, Tensor) else more + offset
    positions = torch.arange(start, start + queries, device=device)
    return positions + _by_row(offset) if isinstance(offset, Tensor) else positions


def _by_row(value: int | Tensor) -> int | Tensor:
    """A bound mask's value of each entry, (..., 1, 1), as one number for all rows, (..., 1)."""
    return value.squeeze(-1) if isinstance(value, Tensor) else value


def _length(who: str, name: str, tensor: Tensor, length: int, letter: str) -> None:
    if tensor.ndim < 1 or tensor.shape[-1] != length:
        raise InputError(
            f"{name} of overt.{who} to have the length {letter} = {length}",
            got=f"shape {tuple(tensor.shape)}",
            fix="pass one entry a position" + (", or query_ids where queries are not the keys" if who == "Documents" else ""),
        )


def _offset_kind(who: str, offset: Any) -> None:
    if offset is not None:
        whole_numbers(who, "offset", offset)


NAMED["causal"] = Causal()
