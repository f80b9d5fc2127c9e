"""Masks as native kernels read them: a program over tiles, and the arrays that its leaves look at.

A program is a list of steps in postfix order: a leaf pushes what it allows, the others combine the last one or two. What bounds
each row's keys by a first and a last one, and every conjunction of such masks, is one leaf: two numbers a row, however many keys.
A mask of another module's is read too where its class has a method `bounds(sizes)` that gives these.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.masks import Both, Causal, Dense, Documents, Either, Keys, Lengths, Not, Window

MOST_PENDING = 7  # results that a program may have waiting at once
_KEPT = 8192  # queries up to which ranges are kept for the next call
_FAR = 2**62  # further than any key: a window of sys.maxsize is added to places, and must not pass what 64 bits hold

# What a program can say, by the numbers that the kernels know.
RANGES, DENSE, DOCUMENTS, BOTH, EITHER, INVERSE = range(6)
# Of each leaf's arrays, how many dimensions come after those of the batch.
OWN = {RANGES: [1, 1], DENSE: [2], DOCUMENTS: [1, 1]}

# What the first key of each row is at least, and the one after its last at most: tensors (..., Q) or (..., 1), or an int for all.
Bounds = tuple[list[Tensor], list[int | Tensor]]


class Sizes(NamedTuple):
    """Q and K of a call."""

    queries: int
    keys: int
    device: torch.device

    def rows(self, offset: Any, more: int) -> Tensor:
        """The number of each row, plus an offset, an int or (..., 1, 1), plus a number: (..., Q)."""
        start = more if isinstance(offset, Tensor) else more + offset
        rows = torch.arange(start, start + self.queries, device=self.device)
        return rows + _rowwise(offset) if isinstance(offset, Tensor) else rows

    def every_row(self, number: int) -> Tensor:
        """One number for all rows."""
        return torch.full((1,), number, device=self.device)


def refusal(mask: Any) -> str | None:
    """Why native kernels cannot read this mask; None where they can."""
    if mask is None or type(mask) in _BOUNDS:
        return None
    for leaf in _leaves(mask):
        if not _bounded(leaf) and type(leaf) not in _ARRAYS:
            return f"native kernels do not know the mask {type(leaf).__name__}"
    return f"the mask combines more than {MOST_PENDING} others at once" if _pending(mask) > MOST_PENDING else None


def lowered(mask: Any, queries: int, keys: int, device: torch.device) -> tuple[list[int], list[Tensor]]:
    """The program of a mask that is bound to these lengths, and its arrays; both empty without a mask.

    >>> from overt.attention.masks import Causal, Lengths
    >>> program, arrays = lowered(Causal(offset=0) & Lengths(2), 3, 3, torch.device("cpu"))
    >>> program, [array.tolist() for array in arrays]
    ([0], [[0, 0, 0], [1, 2, 2]])
    """
    if mask is None:
        return [], []
    if type(mask) in (Causal, Window) and isinstance(mask.offset, int) and queries <= _KEPT and _plain(device):
        bounds = (0, 0) if type(mask) is Causal else (mask.before, mask.after)
        return [RANGES], list(_of_positions(type(mask), mask.offset, bounds, queries, keys))
    program: list[int] = []
    arrays: list[Tensor] = []
    _emit(mask, Sizes(queries, keys, device), program, arrays)
    return program, arrays


@lru_cache(maxsize=64)
def _of_positions(
    kind: type, offset: int, bounds: tuple[int | None, int | None], queries: int, keys: int
) -> tuple[Tensor, ...]:
    """The ranges of a mask that is made of positions alone: the same for every call of one size, of which a model makes many."""
    mask = Causal(offset) if kind is Causal else Window(*bounds, offset)
    sizes = Sizes(queries, keys, torch.device("cpu"))
    with torch.inference_mode(False):
        return tuple(_ranges([_bounds(mask, sizes)], sizes))


def _plain(device: torch.device) -> bool:
    """Whether a tensor made now is no more than that, and can be kept."""
    return (
        device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
    )


def _emit(mask: Any, sizes: Sizes, program: list[int], arrays: list[Tensor]) -> None:
    if type(mask) is Not:
        _emit(mask.inner, sizes, program, arrays)
        program.append(INVERSE)
    elif type(mask) is Either:
        _emit(mask.left, sizes, program, arrays)
        _emit(mask.right, sizes, program, arrays)
        program.append(EITHER)
    else:
        _emit_conjunction(mask, sizes, program, arrays)


def _emit_conjunction(mask: Any, sizes: Sizes, program: list[int], arrays: list[Tensor]) -> None:
    bounded, others = _parted(mask)
    if bounded:
        program.append(RANGES)
        arrays += _ranges([_bounds(part, sizes) for part in bounded], sizes)
    for place, part in enumerate(others):
        if type(part) in _ARRAYS:
            step, held = _ARRAYS[type(part)](part)
            program.append(step)
            arrays += held
        else:
            _emit(part, sizes, program, arrays)
        if bounded or place > 0:
            program.append(BOTH)


def _parted(mask: Any) -> tuple[list[Any], list[Any]]:
    """The parts of a conjunction: those that bound each row's keys, and the others."""
    parts = list(_conjuncts(mask))
    return [part for part in parts if _bounded(part)], [part for part in parts if not _bounded(part)]


def _bounded(part: Any) -> bool:
    return type(part) in _BOUNDS or hasattr(type(part), "bounds")


def _bounds(part: Any, sizes: Sizes) -> Bounds:
    return _BOUNDS[type(part)](part, sizes) if type(part) in _BOUNDS else part.bounds(sizes)


def _conjuncts(mask: Any) -> Iterator[Any]:
    if type(mask) is Both:
        yield from _conjuncts(mask.left)
        yield from _conjuncts(mask.right)
    else:
        yield mask


def _leaves(mask: Any) -> Iterator[Any]:
    if type(mask) in (Both, Either):
        yield from _leaves(mask.left)
        yield from _leaves(mask.right)
    elif type(mask) is Not:
        yield from _leaves(mask.inner)
    else:
        yield mask


def _pending(mask: Any) -> int:
    """The most results that the mask's program has waiting at once."""
    if type(mask) is Not:
        return _pending(mask.inner)
    if type(mask) is Either:
        return max(_pending(mask.left), 1 + _pending(mask.right))
    bounded, others = _parted(mask)
    before = 1 if bounded else 0
    waits = [min(before + place, 1) + (1 if type(part) in _ARRAYS else _pending(part)) for place, part in enumerate(others)]
    return max([before, *waits])


def _ranges(bounds: list[Bounds], sizes: Sizes) -> list[Tensor]:
    """The keys within all bounds, as first and stop of each row, (..., Q) int64."""
    lows = [low for part in bounds for low in part[0]]
    highs = [high for part in bounds for high in part[1] if isinstance(high, Tensor)]
    highest = min([sizes.keys, *(high for part in bounds for high in part[1] if not isinstance(high, Tensor))])
    first = reduce(torch.maximum, lows).clamp(0, sizes.keys) if lows else sizes.every_row(0)
    stop = reduce(torch.minimum, highs).clamp(0, max(highest, 0)) if highs else sizes.every_row(max(highest, 0))
    return [bound.long().expand(*bound.shape[:-1], sizes.queries) for bound in (first, stop)]


def _rowwise(held: Tensor) -> Tensor:
    """What a bound mask holds for each entry, (..., 1, 1), as one number for all rows, (..., 1)."""
    return held.squeeze(-1)


def _causal(mask: Causal, sizes: Sizes) -> Bounds:
    return [], [sizes.rows(mask.offset, 1)]


def _window(mask: Window, sizes: Sizes) -> Bounds:
    first = [] if mask.before is None else [sizes.rows(mask.offset, -min(mask.before, _FAR))]
    stop: list[int | Tensor] = [] if mask.after is None else [sizes.rows(mask.offset, min(mask.after, _FAR) + 1)]
    return first, stop


def _lengths(mask: Lengths, sizes: Sizes) -> Bounds:
    keys = _rowwise(mask.keys) if isinstance(mask.keys, Tensor) else mask.keys
    if mask.queries is None:
        return [], [keys]
    queries = _rowwise(mask.queries) if isinstance(mask.queries, Tensor) else mask.queries
    return [], [keys, torch.where(sizes.rows(0, 0) < queries, sizes.keys, 0)]


def _keys(mask: Keys) -> tuple[int, list[Tensor]]:
    return DENSE, [mask.visible[..., None, :]]  # (..., 1, K)


def _documents(mask: Documents) -> tuple[int, list[Tensor]]:
    assert mask.query_ids is not None  # a bound mask has both
    return DOCUMENTS, [mask.query_ids.long(), mask.key_ids.long()]


def _dense(mask: Dense) -> tuple[int, list[Tensor]]:
    return DENSE, [mask.allowed.reshape((1,) * (2 - mask.allowed.ndim) + tuple(mask.allowed.shape))]  # (..., Q or 1, K or 1)


_BOUNDS: dict[type, Callable[[Any, Sizes], Bounds]] = {Causal: _causal, Window: _window, Lengths: _lengths}
_ARRAYS: dict[type, Callable[[Any], tuple[int, list[Tensor]]]] = {Keys: _keys, Documents: _documents, Dense: _dense}
