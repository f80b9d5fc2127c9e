"""Changes of a model's attention: a class for each kind of change, with its heads, queries and keys."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from overt.errors import InputError, KindError

LayerHead = tuple[int | str | None, int | None]
Where = int | slice | Sequence[int] | str | None  # positions, or a word of the text; None: all

PATTERNS = ("uniform", "previous", "first")
PARTS = ("output", "query", "key", "value", "weights")


@dataclass(frozen=True, eq=False)
class HeadChange:
    """A change of some heads: `heads` are pairs (layer, head), None for all heads.

    `query` and `key` are positions, a word, or None for all. `entries` are the changed sequences of the batch, None for all.
    """

    heads: tuple[LayerHead, ...]
    query: Where = None
    key: Where = None
    entries: tuple[int, ...] | None = None

    recomputes: ClassVar[bool] = True
    """Whether the changed rows are recomputed from the call's own query, key and value."""
    renormalizes: ClassVar[bool] = False
    """Whether the changed weights are normalized again, so that the model's dropout of them must be known."""
    differs_by_head: ClassVar[bool] = False
    """Whether the change differs from head to head."""
    what: ClassVar[str]
    """The change in words: a format string with the change as its argument."""

    def __str__(self) -> str:
        return f"{self.what.format(self)} of {_named_heads(self.heads)}{_at('query', self.query)}{_at('key', self.key)}"


@dataclass(frozen=True, eq=False)
class BlockedArcs(HeadChange):
    """Queries that may not attend to some keys."""

    renormalizes: ClassVar[bool] = True
    what: ClassVar[str] = "block"


@dataclass(frozen=True, eq=False)
class RowsSet(HeadChange):
    """Rows of weights, as numbers or by the name of a pattern."""

    pattern: Tensor | str = "uniform"

    what: ClassVar[str] = "pattern{0.name}"

    @property
    def name(self) -> str:
        """The name of the pattern behind a space; empty for numbers."""
        return f" {self.pattern}" if isinstance(self.pattern, str) else ""


@dataclass(frozen=True, eq=False)
class HeadScaled(HeadChange):
    """Outputs multiplied by a number."""

    factor: float = 1.0

    recomputes: ClassVar[bool] = False
    what: ClassVar[str] = "scale {0.factor:g}"


@dataclass(frozen=True, eq=False)
class TemperatureSet(HeadChange):
    """Scores divided by a number before the normalization."""

    temperature: float = 1.0

    renormalizes: ClassVar[bool] = True
    what: ClassVar[str] = "temperature {0.temperature:g}"


@dataclass(frozen=True, eq=False)
class PartPatched(HeadChange):
    """A part of a call, from another run: `source.part` returns vectors (B, N, features) or weights (B, Q, K)."""

    part: str = "output"
    source: Any = field(default=None, repr=False)

    differs_by_head: ClassVar[bool] = True
    what: ClassVar[str] = "patch {0.part}"


def checked_heads(head: Any) -> tuple[LayerHead, ...]:
    """The named heads as pairs: from one pair, a list of pairs, or None for all heads of all layers."""
    if head is None:
        return ((None, None),)
    pairs = [head] if isinstance(head, tuple) else head

    def is_pair(pair: Any) -> bool:
        kinds = (int, str, type(None)), (int, type(None))
        return isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_kind, pair, kinds))

    if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not pairs or not all(map(is_pair, pairs)):
        fix = "write head=(5, 11), a list of pairs, (5, None) for all heads of a layer, or None for all"
        raise KindError("heads as pairs (layer, head), at least one", got=f"{head!r}", fix=fix)
    for layer, number in pairs:
        if (isinstance(layer, int) and layer < 0) or (number is not None and number < 0):
            raise InputError("layers and heads from 0 on", got=f"{(layer, number)}", fix="count from the first")
    return tuple(pairs)


def _is_kind(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def checked_positions(what: str, where: Any) -> Where:
    """The named positions: a whole number, a slice, a list of whole numbers, a word, or None for all."""
    if isinstance(where, Tensor):
        where = where.tolist()
    is_list = isinstance(where, Sequence) and not isinstance(where, str)
    if where is None or isinstance(where, slice | str) or _is_kind(where, (int,)):
        if where == "":
            raise InputError(f"{what} as a word of the text", got="an empty string", fix="write the word")
        return where
    if is_list and where and all(_is_kind(position, (int,)) for position in where):
        return tuple(where)
    fix = f'write {what}=7, {what}=slice(3, 6), {what}=[3, 4] or {what}="word"'
    raise KindError(f"{what} as positions or a word of the text", got=repr(where), fix=fix)


def checked_pattern(pattern: Any) -> Tensor | str:
    """Rows of weights, or the name of a pattern."""
    if isinstance(pattern, str):
        if pattern not in PATTERNS:
            raise InputError(
                f"a tensor of weights, or one of {', '.join(PATTERNS)}", got=repr(pattern), fix="choose one of them"
            )
        return pattern
    weights = pattern if isinstance(pattern, Tensor) else torch.as_tensor(pattern)
    if not 1 <= weights.ndim <= 3 or not weights.is_floating_point():
        raise InputError(
            "weights (K,), (rows, K) or (B, rows, K), floating-point numbers",
            got=f"{tuple(weights.shape)} {weights.dtype}",
            fix="pass recording[layer, head].weights(), or one of its rows",
        )
    if not bool(weights.isfinite().all()):
        raise InputError("weights that are finite numbers", got="inf or NaN among them", fix="set 0 for no weight")
    return weights.detach()


def checked_number(what: str, value: Any, above: float | None = None) -> float:
    """A finite number, greater than `above`."""
    number = float(value) if _is_kind(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1) else None
    if number is None:
        raise KindError(f"{what} as a number", got=repr(value), fix="write 0.5")
    if number != number or abs(number) == float("inf") or (above is not None and number <= above):
        raise InputError(f"{what} as a finite number" + (f" above {above:g}" if above is not None else ""), got=f"{number}")
    return number


def _named_heads(heads: tuple[LayerHead, ...]) -> str:
    if len(heads) > 4:
        return f"{len(heads)} heads"
    return ", ".join(name_of_heads(*pair) for pair in heads)


def name_of_heads(layer: int | str | None, head: int | None) -> str:
    """A head, or all heads of a layer, as figures name them.

    >>> name_of_heads(5, 11), name_of_heads("decoder.0", None), name_of_heads(None, None)
    ('L5H11', 'all heads of decoder.0', 'all heads')
    """
    named = f"L{layer}" if isinstance(layer, int) else f"{layer} " if layer is not None else "all layers "
    if head is None:
        return "all heads" if layer is None else f"all heads of {named.strip()}"
    return f"{named}H{head}"


def _at(what: str, where: Where) -> str:
    if where is None:
        return ""
    if isinstance(where, slice):
        return f", {what} {where.start or 0} to {'the end' if where.stop is None else where.stop - 1}"
    if isinstance(where, str):
        return f", {what} “{where}”"
    return f", {what} {where if isinstance(where, int) else ', '.join(map(str, where))}"
