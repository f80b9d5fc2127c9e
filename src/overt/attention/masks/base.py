"""The base class of masks: they combine with & | ~, and are bound to the sizes of a call before blocks are computed."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.attention.check import broadcasts, choice, dense, describe, not_a_class
from overt.attention.masks.intersection import RowRanges, intersection
from overt.attention.masks.nesting import balanced, note_depth
from overt.attention.pieces import SelectHeads, inherit_only_with, narrowed, piece, select_heads
from overt.errors import KindError

ReadRanges = Callable[[Tensor], RowRanges | None]


class Mask:
    """The base class of masks: they combine, and are bound to the sizes of a call before blocks are computed.

    A mask of your own defines `block`. The other methods are optional: `span` if it excludes keys from all rows of a block,
    `row_ranges` if each row's keys are one interval (read by the native kernels), `trailing` if it has tensors (recordings
    select heads by it). Decorated with `overt.attention.pieces.piece`, it can be saved. A subclass that redefines `block` inherits none.

    >>> class Even(Mask):
    ...     def block(self, rows, keys):
    ...         return (rows[:, None] + keys) % 2 == 0
    >>> Even().block(torch.arange(2), torch.arange(4)).int()
    tensor([[1, 0, 1, 0],
            [0, 1, 0, 1]], dtype=torch.int32)
    """

    trailing: ClassVar[dict[str, int] | None] = None
    """Number of dimensions after batch and heads, by the name of each tensor of a bound mask; None if unknown."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherit_only_with("block", cls, Mask, _ABOUT_BLOCKS)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The same mask for a call with this number of leading dimensions and the lengths Q and K."""
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Which of these rows may attend to which of these keys: bool, broadcastable to (..., rows, keys)."""
        raise NotImplementedError

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range of keys outside of which rows first to stop attend to nothing; all keys if it is unknown."""
        return 0, keys

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The first key of each row of a bound mask and the one after the last, if the row may attend to all keys between.

        Integer tensors (..., Q) or (..., 1), aligned right, or an int for all rows; they are clamped to 0 and K. None if the
        keys of a row are not one interval, or if only the values of a tensor can show whether they are.
        """
        return None

    @property
    def has_row_ranges(self) -> bool:
        """Whether `row_ranges` returns intervals and not None: true if a class defines it, unless the class overrides this."""
        return type(self).row_ranges is not Mask.row_ranges

    def inspect_row_ranges(self, queries: int, keys: int, device: torch.device, read: ReadRanges) -> RowRanges | None:
        """`row_ranges`, if necessary from the values of tensors: `read` returns the ranges of a bool tensor (..., Q or 1, K)."""
        ranges = self.row_ranges(queries, keys, device)
        pairs = self.allowed_pairs() if ranges is None else None
        return ranges if pairs is None else read(pairs.expand(*pairs.shape[:-1], keys))

    def allowed_pairs(self) -> Tensor | None:
        """The bool tensor (..., Q or 1, K or 1) of a bound mask, if the mask is only that tensor."""
        return None

    def document_ids(self) -> tuple[Tensor, Tensor] | None:
        """Ids of queries (..., Q) and keys (..., K), if a query attends exactly to the keys with its id, negative ids excepted."""
        return None

    def block_table(self) -> tuple[Tensor, Tensor] | None:
        """The blocks of keys for each block of queries, bool (..., rows, columns), and the lengths of both, if the mask is only that."""
        return None

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """The same mask with this offset in each part, inside & | ~ too, whose offset is None.

        K − Q is the first query's position only if all rows of the batch hold K keys. Rows of a cache with different lengths have an
        offset each, (B,).

        >>> from overt import Causal, Window
        >>> mask = (Causal() & Window(2, 0, offset=7)).with_offset(3)
        >>> mask.left.offset, mask.right.offset
        (3, 7)
        """
        return self

    def for_heads(self, select: SelectHeads) -> "Mask | None":
        """A bound mask with `select` applied to its tensors; None if the dimension of the heads is unknown."""
        return select_heads(self, select)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The mask of only these rows and keys, counted from 0, from a mask bound to a call of the lengths Q and K.

        >>> from overt import Causal
        >>> Causal(offset=0).of_block(slice(4, 6), slice(3, 6), (6, 6)).block(torch.arange(2), torch.arange(3)).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
        """
        return MaskBlock(self, rows.start, keys.start, *lengths)

    @property
    def numbers(self) -> tuple[int | None, ...] | None:
        """The mask's arguments, if all are numbers or None: then it is the same for all calls of one size."""
        return None

    @property
    def by_key(self) -> bool:
        """Whether all queries may attend to the same keys."""
        return False

    def __and__(self, other: Any) -> "Mask":
        return balanced(Both, self, as_mask(other))

    def __or__(self, other: Any) -> "Mask":
        return balanced(Either, self, as_mask(other))

    def __rand__(self, other: Any) -> "Mask":
        return self & other

    def __ror__(self, other: Any) -> "Mask":
        return self | other

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> bool:
        raise KindError("masks combined with & | ~", got="and, or, not or if, which see no block", fix="write causal & window")


# _ABOUT_BLOCKS: attributes that describe `block`; a class that redefines `block` does not inherit them.
_ABOUT_BLOCKS = ("span", "by_key", "numbers", "trailing", "allowed_pairs", "document_ids", "block_table")
_ABOUT_BLOCKS += ("row_ranges", "has_row_ranges", "inspect_row_ranges", "of_block")


class Combined(Mask):
    """Masks joined by an operator: the base class of `Both`, `Either` and `Not`."""

    trailing: ClassVar[dict[str, int] | None] = {}

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, as_mask(getattr(self, field.name)))
        note_depth(self, *self.parts)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The joined masks."""
        return tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """Bind each part."""
        return type(self)(*(part.bind(leading, queries, keys) if isinstance(part, Mask) else part for part in self.parts))

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """Give each part this offset."""
        return type(self)(*(part.with_offset(offset) if isinstance(part, Mask) else part for part in self.parts))

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """Restrict each part to these rows and keys."""
        return type(self)(*(mask_of_block(part, rows, keys, lengths) for part in self.parts))

    @property
    def by_key(self) -> bool:
        """Whether each part is the same for all queries."""
        return all(_by_key(part) for part in self.parts)


@piece
class Both(Combined):
    """The intersection of two masks: `a & b`.

    >>> from overt import Causal, Window
    >>> both = Causal(offset=0) & Window(1, 1, offset=0)
    >>> both.block(torch.arange(3), torch.arange(3)).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """

    left: Any
    right: Any

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Pairs allowed by both masks."""
        return self.left.block(rows, keys) & self.right.block(rows, keys)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The overlap of the spans."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return max(low, other_low), min(high, other_high)

    @property
    def has_row_ranges(self) -> bool:
        """Whether both have row ranges."""
        return all(isinstance(part, Mask) and part.has_row_ranges for part in (self.left, self.right))

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The intersection of both ranges."""
        if not self.has_row_ranges:
            return None
        left, right = (part.row_ranges(queries, keys, device) for part in (self.left, self.right))
        return None if left is None or right is None else intersection([left, right])

    def inspect_row_ranges(self, queries: int, keys: int, device: torch.device, read: ReadRanges) -> RowRanges | None:
        """The intersection of both ranges."""
        if not (isinstance(self.left, Mask) and isinstance(self.right, Mask)):
            return None
        left, right = (part.inspect_row_ranges(queries, keys, device, read) for part in (self.left, self.right))
        return None if left is None or right is None else intersection([left, right])


@piece
class Either(Combined):
    """The union of two masks: `a | b`.

    >>> from overt import Causal
    >>> either = Causal(offset=0) | torch.tensor([False, False, True])
    >>> either.block(torch.arange(3), torch.arange(3)).int()
    tensor([[1, 0, 1],
            [1, 1, 1],
            [1, 1, 1]], dtype=torch.int32)
    """

    left: Any
    right: Any

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Pairs allowed by either mask."""
        return self.left.block(rows, keys) | self.right.block(rows, keys)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The smallest range that contains both spans."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return min(low, other_low), max(high, other_high)


@piece
class Not(Combined):
    """The complement of a mask: `~a`.

    >>> from overt import Causal
    >>> (~Causal(offset=0)).block(torch.arange(2), torch.arange(2)).int()
    tensor([[0, 1],
            [0, 0]], dtype=torch.int32)
    """

    inner: Any

    def __invert__(self) -> "Mask":
        return self.inner if isinstance(self.inner, Mask) else Not(self)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Pairs that the mask excludes."""
        return ~self.inner.block(rows, keys)


@piece
class Dense(Mask):
    """A bool tensor that broadcasts, aligned right, against (..., Q, K). A plain bool tensor passed as `mask=` becomes this.

    >>> Dense(torch.tensor([[True, False]])).block(torch.arange(3), torch.arange(2)).shape
    torch.Size([1, 2])
    """

    allowed: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"allowed": 2}

    def __post_init__(self) -> None:
        dense(self.allowed, "mask")
        if not isinstance(self.allowed, Tensor) or self.allowed.dtype != torch.bool:
            floating = isinstance(self.allowed, Tensor) and self.allowed.is_floating_point()
            fix = "pass what is added to the scores as bias=, or compare: mask > -1" if floating else "convert it: mask.bool()"
            raise KindError("a bool mask, True where a query may attend", got=describe(self.allowed), fix=fix)

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """Itself, if its last two sizes are 1 or Q and K."""
        broadcasts("mask", self.allowed, queries, keys, leading)
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The tensor's rows and keys; dimensions of size 1 stay."""
        return narrowed(self.allowed_pairs(), rows, keys)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The tensor's rows and keys."""
        return Dense(narrowed(self.allowed_pairs(), rows, keys))

    def allowed_pairs(self) -> Tensor:
        """The tensor, with at least two dimensions."""
        return self.allowed.reshape((1,) * (2 - self.allowed.ndim) + tuple(self.allowed.shape))

    @property
    def by_key(self) -> bool:
        """Whether one row is shared by all queries."""
        return self.allowed.ndim < 2 or self.allowed.shape[-2] == 1


@dataclass(frozen=True, eq=False)
class MaskBlock(Mask):
    """A block of a mask bound to Q and K: its rows from `first_row` and its keys from `first_key` on."""

    inner: Any
    first_row: int
    first_key: int
    queries: int
    keys: int

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The mask at these rows and keys, shifted by the block's first row and key."""
        return self.inner.block(rows + self.first_row, keys + self.first_key)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The mask's span, counted from the block's first key."""
        low, high = _span(self.inner, first + self.first_row, stop + self.first_row, self.keys)
        return low - self.first_key, high - self.first_key

    @property
    def has_row_ranges(self) -> bool:
        """Whether the mask has row ranges."""
        return isinstance(self.inner, Mask) and self.inner.has_row_ranges

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The mask's ranges for these rows, counted from the block's first key."""
        if not self.has_row_ranges:
            return None
        ranges, rows = self.inner.row_ranges(self.queries, self.keys, device), slice(self.first_row, self.first_row + queries)
        low, high = (edge[..., rows] if _has_rows(edge) else edge for edge in ranges)
        return low - self.first_key, high - self.first_key

    @property
    def by_key(self) -> bool:
        """Whether the mask is the same for all queries."""
        return _by_key(self.inner)


NAMED: dict[str, Mask] = {}  # masks without arguments, by the names that `mask=` accepts


def as_mask(mask: Any) -> Any:
    """Convert a caller's argument to a mask: a mask, a bool tensor, the name of a mask, or any object with `block(rows, keys)`.

    Raises KindError for anything else, such as a float tensor, which is a bias.

    >>> type(as_mask(torch.ones(2, 2, dtype=torch.bool))).__name__
    'Dense'
    """
    if isinstance(mask, Tensor):
        return Dense(mask)
    if isinstance(mask, str):
        choice("the mask", mask, NAMED)
        return NAMED[mask]
    not_a_class("the mask", mask)
    if not callable(getattr(mask, "block", None)):
        raise KindError(
            "the mask to be a bool tensor, one of overt's masks, the name of one or an object with block(rows, keys)",
            got=describe(mask),
            fix="pass one of overt.masks, as in mask=overt.Causal(), or convert an array: torch.as_tensor(mask)",
        )
    return mask


def _span(mask: Any, first: int, stop: int, keys: int) -> tuple[int, int]:
    return mask.span(first, stop, keys) if isinstance(mask, Mask) else (0, keys)


def mask_of_block(mask: Any, rows: slice, keys: slice, lengths: tuple[int, int]) -> Mask:
    """The mask of only these rows and keys, for any object that is a mask."""
    return mask.of_block(rows, keys, lengths) if isinstance(mask, Mask) else MaskBlock(mask, rows.start, keys.start, *lengths)


def _has_rows(edge: Tensor | int) -> bool:
    return isinstance(edge, Tensor) and edge.shape[-1] != 1


def _by_key(mask: Any) -> bool:
    return isinstance(mask, Mask) and mask.by_key
