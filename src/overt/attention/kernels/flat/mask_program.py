"""Masks as native kernels read them: a program over tiles, and the arrays of its leaves.

A program is a list of steps in postfix order: a leaf pushes its allowed pairs, an operator combines the last one or two. Masks with one
interval of keys a row (`Mask.row_ranges`), and every conjunction of them, are one leaf: two numbers a row, whatever K is. A bool
tensor (`Mask.allowed_pairs`), packed documents (`Mask.document_ids`) and blocks (`Mask.block_table`) are the other leaves.
Only ranges that depend on numbers are cached: tensors are read again in each call, since a caller may modify them between calls.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.masks import Both, Either, Mask, Not
from overt.attention.masks.base import RowRanges, intersection
from overt.errors import InputError

MAX_PENDING = 7  # results that a program may have pending at once
MAX_CACHED = 8192  # queries up to which ranges are cached for later calls

# The steps of a program, by the numbers in the kernels.
RANGES, DENSE, DOCUMENTS, BOTH, EITHER, INVERSE, BLOCKS = range(7)
# TRAILING_DIMS: for each array of a leaf, the number of dimensions after the batch.
TRAILING_DIMS = {RANGES: [1, 1], DENSE: [2], DOCUMENTS: [1, 1], BLOCKS: [2, 1]}


class _Sizes(NamedTuple):
    """Q and K of a call."""

    queries: int
    keys: int
    device: torch.device


def refusal(mask: Any) -> str | None:
    """Why native kernels cannot read this mask; None if they can."""
    if mask is None or (isinstance(mask, Mask) and mask.has_row_ranges):
        return None
    for leaf in _leaves(mask):
        if not isinstance(leaf, Mask) or not (leaf.has_row_ranges or _has_tensors(leaf)):
            return f"native kernels do not know the mask {type(leaf).__name__}"
    return f"the mask combines more than {MAX_PENDING} others at once" if _pending(mask) > MAX_PENDING else None


def lowered(mask: Any, queries: int, keys: int, device: torch.device) -> tuple[list[int], list[Tensor]]:
    """The program of a mask bound to these lengths, and its arrays; both empty without a mask.

    >>> from overt.attention.masks import Causal, Lengths
    >>> program, arrays = lowered(Causal(offset=0) & Lengths(2), 3, 3, torch.device("cpu"))
    >>> program, [array.tolist() for array in arrays]
    ([0], [[0, 0, 0], [1, 2, 2]])
    """
    if mask is None:
        return [], []
    if mask.has_row_ranges and mask.numbers is not None and queries <= MAX_CACHED and _plain(device):
        return [RANGES], list(cached_ranges(type(mask), mask.numbers, queries, keys))
    program: list[int] = []
    arrays: list[Tensor] = []
    _emit(mask, _Sizes(queries, keys, device), program, arrays)
    return program, arrays


@lru_cache(maxsize=64)
def cached_ranges(kind: type[Mask], numbers: tuple[int | None, ...], queries: int, keys: int) -> list[Tensor]:
    """The ranges of a mask that depends only on numbers: equal for all calls of one size, of which a model makes many."""
    sizes = _Sizes(queries, keys, torch.device("cpu"))
    with torch.inference_mode(False):
        return _range_arrays([kind(*numbers).bind(0, queries, keys)], sizes)


def _plain(device: torch.device) -> bool:
    """Whether a tensor created here is a plain tensor, which can be cached."""
    return (
        device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
    )


def _emit(mask: Any, sizes: _Sizes, program: list[int], arrays: list[Tensor]) -> None:
    if type(mask) is Not:
        _emit(mask.inner, sizes, program, arrays)
        program.append(INVERSE)
    elif type(mask) is Either:
        for index, part in enumerate(_operands(mask, Either)):  # one by one, so at most two results are pending
            _emit(part, sizes, program, arrays)
            program += [EITHER] if index else []
    else:
        _emit_conjunction(mask, sizes, program, arrays)


def _emit_conjunction(mask: Any, sizes: _Sizes, program: list[int], arrays: list[Tensor]) -> None:
    ranged, others = _split(mask)
    if ranged:
        program.append(RANGES)
        arrays += _range_arrays(ranged, sizes)
    for index, part in enumerate(others):
        if not _has_tensors(part):
            _emit(part, sizes, program, arrays)
        elif (pairs := part.allowed_pairs()) is not None:
            program.append(DENSE)
            arrays.append(pairs)
        elif (table := part.block_table()) is not None:
            program.append(BLOCKS)
            arrays += table
        else:
            program.append(DOCUMENTS)
            arrays += part.document_ids()
        if ranged or index > 0:
            program.append(BOTH)


def _split(mask: Any) -> tuple[list[Mask], list[Any]]:
    """Split a conjunction into masks with ranges and others."""
    parts = list(_operands(mask, Both))
    ranged = [part for part in parts if part.has_row_ranges]
    return ranged, [part for part in parts if not part.has_row_ranges]


def _has_tensors(leaf: Mask) -> bool:
    """Whether the mask's class provides a bool tensor, documents or blocks."""
    return any(
        getattr(type(leaf), name) is not getattr(Mask, name) for name in ("allowed_pairs", "document_ids", "block_table")
    )


def _operands(mask: Any, kind: type) -> Iterator[Any]:
    """Yield the operands of a chain of one operator."""
    if type(mask) is kind:
        yield from _operands(mask.left, kind)
        yield from _operands(mask.right, kind)
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
    """The largest number of results that the mask's program has pending at once."""
    if type(mask) is Not:
        return _pending(mask.inner)
    if type(mask) is Either:
        return max(_pending(part) + (index > 0) for index, part in enumerate(_operands(mask, Either)))
    ranged, others = _split(mask)
    before = 1 if ranged else 0
    pending = [min(before + index, 1) + (1 if _has_tensors(part) else _pending(part)) for index, part in enumerate(others)]
    return max([before, *pending])


def _range_arrays(masks: list[Mask], sizes: _Sizes) -> list[Tensor]:
    """The intersection of the ranges of these masks, as first and stop of each row, (..., Q) int64."""
    ranges = [_row_ranges(mask, sizes) for mask in masks]
    return [_clamped(edge, sizes) for edge in intersection(ranges)]


def _row_ranges(mask: Mask, sizes: _Sizes) -> RowRanges:
    ranges = mask.row_ranges(*sizes)
    if ranges is None:
        raise InputError(
            "row_ranges of every mask of a class that defines it",
            got=f"None from {type(mask).__name__}",
            fix="return False from has_row_ranges for such a mask",
        )
    return ranges


def _clamped(edge: Tensor | int, sizes: _Sizes) -> Tensor:
    if not isinstance(edge, Tensor):
        edge = torch.full((1,), max(0, min(edge, sizes.keys)), device=sizes.device)
    else:
        edge = edge.clamp(0, sizes.keys)
    return edge.long().expand(*edge.shape[:-1], sizes.queries)
