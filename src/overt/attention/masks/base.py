"""What masks share: they combine with & | ~, and learn the sizes of the call before they are asked for blocks."""

from typing import Any

import torch
from torch import Tensor

from overt.attention.check import kind_of, one_of
from overt.attention.pieces import piece
from overt.errors import InputError, KindError


class Mask:
    """What masks share: they combine, and learn the sizes of the call before they are asked for blocks.

    A mask of your own says `block` at least; `span` makes it cheaper where it can tell keys that no row of a run may see.

    >>> class Even(Mask):
    ...     def block(self, rows, keys):
    ...         return (rows[:, None] + keys) % 2 == 0
    >>> Even().block(torch.arange(2), torch.arange(4)).int()
    tensor([[1, 0, 1, 0],
            [0, 1, 0, 1]], dtype=torch.int32)
    """

    def bind(self, leading: int, queries: int, keys: int) -> "Mask":
        """The same mask, told the number of leading dimensions and the lengths Q and K of the call."""
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Which of these rows may attend to which of these keys: bool, broadcastable to (..., rows, keys)."""
        raise NotImplementedError

    def span(self, first: int, stop: int, keys: int) -> tuple[int, int]:
        """The range of keys outside of which rows first to stop may attend to nothing; all keys where it is not known."""
        return 0, keys

    @property
    def by_key(self) -> bool:
        """Whether all queries may attend to the same keys."""
        return False

    def __and__(self, other: Any) -> "Mask":
        return Both(self, as_mask(other))

    def __or__(self, other: Any) -> "Mask":
        return Either(self, as_mask(other))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> bool:
        raise KindError("masks combine with & | ~", got="and, or, not or if, which see no block", fix="write causal & window")


@piece
class Both(Mask):
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

    def bind(self, leading, queries, keys):
        """Both bound."""
        return Both(_bind(self.left, leading, queries, keys), _bind(self.right, leading, queries, keys))

    def block(self, rows, keys):
        """Allowed by each."""
        return self.left.block(rows, keys) & self.right.block(rows, keys)

    def span(self, first, stop, keys):
        """Where the spans overlap."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return max(low, other_low), min(high, other_high)

    @property
    def by_key(self):
        """Where both are."""
        return _by_key(self.left) and _by_key(self.right)


@piece
class Either(Mask):
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

    def bind(self, leading, queries, keys):
        """Both bound."""
        return Either(_bind(self.left, leading, queries, keys), _bind(self.right, leading, queries, keys))

    def block(self, rows, keys):
        """Allowed by one or the other."""
        return self.left.block(rows, keys) | self.right.block(rows, keys)

    def span(self, first, stop, keys):
        """From the lower start to the higher end."""
        (low, high), (other_low, other_high) = (_span(part, first, stop, keys) for part in (self.left, self.right))
        return min(low, other_low), max(high, other_high)

    @property
    def by_key(self):
        """Where both are."""
        return _by_key(self.left) and _by_key(self.right)


@piece
class Not(Mask):
    """What the mask bars: `~a`.

    >>> from overt import Causal
    >>> (~Causal(offset=0)).block(torch.arange(2), torch.arange(2)).int()
    tensor([[0, 1],
            [0, 0]], dtype=torch.int32)
    """

    inner: Any

    def bind(self, leading, queries, keys):
        """The inner one bound."""
        return Not(_bind(self.inner, leading, queries, keys))

    def block(self, rows, keys):
        """The opposite."""
        return ~self.inner.block(rows, keys)

    @property
    def by_key(self):
        """Where the inner one is."""
        return _by_key(self.inner)


@piece
class Dense(Mask):
    """A bool tensor that broadcasts, aligned right, against (..., Q, K). A plain bool tensor passed as `mask=` is this.

    >>> Dense(torch.tensor([[True, False]])).block(torch.arange(3), torch.arange(2)).shape
    torch.Size([1, 2])
    """

    allowed: Tensor

    def __post_init__(self):
        if not isinstance(self.allowed, Tensor) or self.allowed.dtype != torch.bool:
            if isinstance(self.allowed, Tensor) and self.allowed.is_floating_point():
                raise KindError(
                    "a mask is bool, True where a query may attend",
                    got=f"a {self.allowed.dtype} tensor",
                    fix="pass numbers to add to the scores as bias=, or compare: mask > -1",
                )
            raise KindError(
                "a mask is bool, True where a query may attend", got=kind_of(self.allowed), fix="convert it: mask.bool()"
            )

    def bind(self, leading, queries, keys):
        """Itself, if its last two sizes are 1 or those of the call."""
        rows, columns = (1, 1, *self.allowed.shape)[-2:]
        if (rows != 1 and rows != queries) or (columns != 1 and columns != keys):
            raise InputError(
                f"a bool mask broadcasts, aligned right, against the weights (..., Q, K) = (..., {queries}, {keys})",
                got=f"a mask of shape {tuple(self.allowed.shape)}",
                fix="cut it to the call's lengths, or insert dimensions of size 1",
            )
        return self

    def block(self, rows, keys):
        """The tensor's own rows and keys; dimensions of size 1 stay."""
        allowed = self.allowed.reshape((1,) * (2 - self.allowed.ndim) + tuple(self.allowed.shape))
        allowed = allowed if allowed.shape[-2] == 1 else allowed[..., rows, :]
        return allowed if allowed.shape[-1] == 1 else allowed[..., keys]

    @property
    def by_key(self):
        """Where there is one row for all queries."""
        return self.allowed.ndim < 2 or self.allowed.shape[-2] == 1


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
        one_of("the name of a mask", mask, NAMED)
        return NAMED[mask]
    if not callable(getattr(mask, "block", None)):
        raise KindError(
            "a bool tensor, one of overt's masks, the name of one or an object with block(rows, keys) as the mask",
            got=kind_of(mask),
            fix="pass one of overt.masks, as in mask=overt.Causal()",
        )
    return mask


def _bind(mask: Any, leading: int, queries: int, keys: int) -> Any:
    return mask.bind(leading, queries, keys) if isinstance(mask, Mask) else mask


def _span(mask: Any, first: int, stop: int, keys: int) -> tuple[int, int]:
    return mask.span(first, stop, keys) if isinstance(mask, Mask) else (0, keys)


def _by_key(mask: Any) -> bool:
    return isinstance(mask, Mask) and mask.by_key
