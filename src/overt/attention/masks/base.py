"""What masks share: they combine with & | ~, and are bound to the sizes of a call before blocks are computed."""

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
    """What masks share: they combine, and are bound to the sizes of a call before blocks are computed.

    A mask of your own defines `block`. The other methods are optional: `span` where it excludes keys from all rows of a block,
    `row_ranges` where each row's keys are one interval (the native kernels read that), `trailing` where it has tensors (recordings
    select heads by it). Decorated with `overt.attention.pieces.piece`, it can be saved. A subclass that redefines `block` inherits none.

    >>> class Even(Mask):
    ...     def block(self, rows, keys):
    ...         return (rows[:, None] + keys) % 2 == 0
    >>> Even().block(torch.arange(2), torch.arange(4)).int()
    tensor([[1, 0, 1, 0],
            [0, 1, 0, 1]], dtype=torch.int32)
    """

    trailing: ClassVar[dict[str, int] | None] = None
    """Of each tensor of a bound mask, by its name, how many dimensions follow those of batch and heads; None where that is not known."""

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
        """The range of keys outside of which rows first to stop may attend to nothing; all keys where it is not known."""
        return 0, keys

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The first key that each row of a bound mask may attend to and the one after the last, if all between may be attended to too.

        Integer tensors (..., Q) or (..., 1), aligned right, or an int for all rows; beyond 0 and K they are clamped. None where the
        keys of a row are not one interval, or where only the values of a tensor say whether they are.
        """
        return None

    @property
    def has_row_ranges(self) -> bool:
        """Whether `row_ranges` gives intervals and not None: where a class defines it, unless the class says otherwise here."""
        return type(self).row_ranges is not Mask.row_ranges

    def inspect_row_ranges(self, queries: int, keys: int, device: torch.device, read: ReadRanges) -> RowRanges | None:
        """`row_ranges`, where need be from the values of tensors: `read` gives those of a bool tensor (..., Q or 1, K)."""
        ranges = self.row_ranges(queries, keys, device)
        pairs = self.allowed_pairs() if ranges is None else None
        return ranges if pairs is None else read(pairs.expand(*pairs.shape[:-1], keys))

    def allowed_pairs(self) -> Tensor | None:
        """The bool tensor (..., Q or 1, K or 1) that a bound mask holds, if that is all that it is."""
        return None

    def document_ids(self) -> tuple[Tensor, Tensor] | None:
        """Integers of queries (..., Q) and keys (..., K), if a query attends to the keys of its own number, negative ones excepted."""
        return None

    def block_table(self) -> tuple[Tensor, Tensor] | None:
        """Which blocks of queries attend to which blocks of keys, bool (..., rows, columns), and the lengths of both, if that is all."""
        return None

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """The same mask, with this offset where it has none and would be aligned at the end, inside & | ~ too.

        K − Q is the first query's position only if all rows of the batch hold K keys. Rows of a cache that differ in length have an
        offset each, (B,).

        >>> from overt import Causal, Window
        >>> mask = (Causal() & Window(2, 0, offset=7)).with_offset(3)
        >>> mask.left.offset, mask.right.offset
        (3, 7)
        """
        return self

    def for_heads(self, select: SelectHeads) -> "Mask | None":
        """A bound mask with `select` applied to its tensors; None where it is not known which of their dimensions is the heads'."""
        return select_heads(self, select)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The mask of these rows and keys alone, from one that is bound to a call of the lengths Q and K: the first of them is 0.

        >>> from overt import Causal
        >>> Causal(offset=0).of_block(slice(4, 6), slice(3, 6), (6, 6)).block(torch.arange(2), torch.arange(3)).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
        """
        return MaskBlock(self, rows.start, keys.start, *lengths)

    @property
    def numbers(self) -> tuple[int | None, ...] | None:
        """The arguments that a mask is made of, if they are numbers or None: then it is the same for all calls of one size."""
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


# What a class says of its blocks besides `block`.
_ABOUT_BLOCKS = ("span", "by_key", "numbers", "trailing", "allowed_pairs", "document_ids", "block_table")
_ABOUT_BLOCKS += ("row_ranges", "has_row_ranges", "inspect_row_ranges", "of_block")


class Combined(Mask):
    """Masks joined by an operator: what `Both`, `Either` and `Not` share."""

    trailing: ClassVar[dict[str, int] | None] = {}

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, as_mask(getattr(self, field.name)))
        note_depth(self, *self.parts)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The masks that are joined."""
        return tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """Each part bound."""
        return type(self)(*(part.bind(leading, queries, keys) if isinstance(part, Mask) else part for part in self.parts))

    def with_offset(self, offset: int | Tensor) -> "Mask":
        """Each part with this offset."""
        return type(self)(*(part.with_offset(offset) if isinstance(part, Mask) else part for part in self.parts))

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """Each part of these rows and keys."""
        return type(self)(*(mask_of_block(part, rows, keys, lengths) for part in self.parts))

    @property
    def by_key(self) -> bool:
        """Where each part is."""
        return all(_by_key(part) for part in self.parts)


@piece
class Both(Combined):
    """What both masks allow: `a & b`.

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
        """Allowed by each."""
        return self.left.block(rows, keys) & self.right.block(rows, keys)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """Where the spans overlap."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return max(low, other_low), min(high, other_high)

    @property
    def has_row_ranges(self) -> bool:
        """Where both have."""
        return all(isinstance(part, Mask) and part.has_row_ranges for part in (self.left, self.right))

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The keys in the ranges of both."""
        if not self.has_row_ranges:
            return None
        left, right = (part.row_ranges(queries, keys, device) for part in (self.left, self.right))
        return None if left is None or right is None else intersection([left, right])

    def inspect_row_ranges(self, queries: int, keys: int, device: torch.device, read: ReadRanges) -> RowRanges | None:
        """The keys in the ranges of both."""
        if not (isinstance(self.left, Mask) and isinstance(self.right, Mask)):
            return None
        left, right = (part.inspect_row_ranges(queries, keys, device, read) for part in (self.left, self.right))
        return None if left is None or right is None else intersection([left, right])


@piece
class Either(Combined):
    """What either mask allows: `a | b`.

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
        """Allowed by one or the other."""
        return self.left.block(rows, keys) | self.right.block(rows, keys)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """From the lower start to the higher end."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return min(low, other_low), max(high, other_high)


@piece
class Not(Combined):
    """What the mask excludes: `~a`.

    >>> from overt import Causal
    >>> (~Causal(offset=0)).block(torch.arange(2), torch.arange(2)).int()
    tensor([[0, 1],
            [0, 0]], dtype=torch.int32)
    """

    inner: Any

    def __invert__(self) -> "Mask":
        return self.inner if isinstance(self.inner, Mask) else Not(self)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The opposite."""
        return ~self.inner.block(rows, keys)


@piece
class Dense(Mask):
    """A bool tensor that broadcasts, aligned right, against (..., Q, K). A plain bool tensor passed as `mask=` is this.

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
        """Itself, if its last two sizes are 1 or those of the call."""
        broadcasts("mask", self.allowed, queries, keys, leading)
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The tensor's rows and keys; dimensions of size 1 stay."""
        return narrowed(self.allowed_pairs(), rows, keys)

    def of_block(self, rows: slice, keys: slice, lengths: tuple[int, int]) -> "Mask":
        """The tensor's rows and keys."""
        return Dense(narrowed(self.allowed_pairs(), rows, keys))

    def allowed_pairs(self) -> Tensor:
        """The tensor, with two dimensions at least."""
        return self.allowed.reshape((1,) * (2 - self.allowed.ndim) + tuple(self.allowed.shape))

    @property
    def by_key(self) -> bool:
        """Where there is one row for all queries."""
        return self.allowed.ndim < 2 or self.allowed.shape[-2] == 1


@dataclass(frozen=True, eq=False)
class MaskBlock(Mask):
    """Some rows and keys of a mask that is bound to Q and K: those from `first_row` and `first_key` on."""

    inner: Any
    first_row: int
    first_key: int
    queries: int
    keys: int

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What the mask says of the rows and keys that these are in it."""
        return self.inner.block(rows + self.first_row, keys + self.first_key)

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The mask's, counted from the first key."""
        low, high = _span(self.inner, first + self.first_row, stop + self.first_row, self.keys)
        return low - self.first_key, high - self.first_key

    @property
    def has_row_ranges(self) -> bool:
        """Where the mask has."""
        return isinstance(self.inner, Mask) and self.inner.has_row_ranges

    def row_ranges(self, queries: int, keys: int, device: torch.device) -> RowRanges | None:
        """The mask's for these rows, counted from the first key."""
        if not self.has_row_ranges:
            return None
        ranges, rows = self.inner.row_ranges(self.queries, self.keys, device), slice(self.first_row, self.first_row + queries)
        low, high = (edge[..., rows] if _has_rows(edge) else edge for edge in ranges)
        return low - self.first_key, high - self.first_key

    @property
    def by_key(self) -> bool:
        """Where the mask is."""
        return _by_key(self.inner)


NAMED: dict[str, Mask] = {}  # the masks that need no argument, by the names that `mask=` takes


def as_mask(mask: Any) -> Any:
    """A mask from what a caller passes: a mask, a bool tensor, the name of a mask, or any object with `block(rows, keys)`.

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
    """The mask of these rows and keys alone, whatever object it is."""
    return mask.of_block(rows, keys, lengths) if isinstance(mask, Mask) else MaskBlock(mask, rows.start, keys.start, *lengths)


def _has_rows(edge: Tensor | int) -> bool:
    return isinstance(edge, Tensor) and edge.shape[-1] != 1


def _by_key(mask: Any) -> bool:
    return isinstance(mask, Mask) and mask.by_key
