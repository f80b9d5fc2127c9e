"""The things that a tensor's dimensions count, tracked through the functions that rearrange the tensor.

Each dimension is a product of factors, such as (batch · tokens), and a mark on a factor names the counted thing. Marks stay with their
factor when dimensions are split, joined, swapped, sliced and selected.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

RESHAPES = {"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "unsqueeze", "squeeze", "ravel", "_unsafe_view"}
SWAPS = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "adjoint", "rearrange"}
SPLITS = {"split", "chunk", "tensor_split", "split_with_sizes", "unsafe_chunk", "unsafe_split"}
# _GETTERS: the getters of a tensor's properties, which all share one name.
_GETTERS = tuple(getattr(Tensor, name).__get__ for name in ("mT", "T", "mH", "H"))


class Factor(NamedTuple):
    """A part of a dimension: its size, the mark of the counted thing, and its shift (None: unknown).

    A factor is `whole` unless it comes from cutting a dimension.
    """

    size: int
    mark: str = ""
    shift: int | None = 0
    whole: bool = True


Axis = tuple[Factor, ...]
Axes = tuple[Axis, ...]


def unmarked(shape: Sequence[int]) -> Axes:
    """Axes without marks."""
    return tuple((Factor(size),) for size in shape)


def with_marks(shape: Sequence[int], marks: dict[int, str]) -> Axes:
    """The axes of a tensor with some marked dimensions; a dimension of size 1 counts nothing.

    >>> with_marks((2, 7, 1), {1: "tokens", 2: "tokens"})[1:]
    ((Factor(size=7, mark='tokens', shift=0, whole=True),), (Factor(size=1, mark='', shift=0, whole=True),))
    """
    return tuple((Factor(size, marks.get(dim, "") if size > 1 else ""),) for dim, size in enumerate(shape))


def axis_marks(axis: Axis) -> set[str]:
    """The marks of a dimension."""
    return {factor.mark for factor in axis if factor.mark and factor.size > 1}


def marked_dims(axes: Axes) -> list[int]:
    """The dimensions with marks."""
    return [dim for dim, axis in enumerate(axes) if axis_marks(axis)]


def reshaped(axes: Axes, shape: Sequence[int]) -> Axes | None:
    """The axes after a reshape, which keeps the order of numbers; None if factors do not divide.

    >>> merged = reshaped(with_marks((2, 6, 4), {1: "tokens"}), (12, 4))
    >>> [factor.mark for factor in merged[0]], [len(axis_marks(axis)) for axis in reshaped(merged, (2, 3, 2, 4))]
    (['', 'tokens'], [0, 1, 1, 0])
    """
    left = [factor for axis in axes for factor in axis if factor.size != 1]
    if math.prod(factor.size for factor in left) != math.prod(shape) or 0 in shape:
        return None
    left.reverse()
    result: list[Axis] = []
    for size in shape:
        axis: list[Factor] = []
        missing = size
        while missing > 1:
            factor = left.pop()
            if missing % factor.size == 0:
                axis.append(factor)
                missing //= factor.size
            elif factor.size % missing == 0:
                axis.append(Factor(missing, factor.mark, factor.shift, whole=False))
                left.append(Factor(factor.size // missing, factor.mark, None if factor.shift is None else 0, whole=False))
                missing = 1
            else:
                return None
        result.append(tuple(axis) or (Factor(1),))
    return tuple(result)


def swapped(axes: Axes, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Axes | None:
    """The axes after a function that permutes dimensions."""
    try:
        order = _order(func, len(axes), _hashable(args[1:]), tuple(sorted(_hashable(kwargs).items())))
    except (TypeError, RuntimeError, IndexError):
        return None
    return tuple(axes[dim] for dim in order)


def swaps(name: str, func: Callable[..., Any]) -> bool:
    """Whether a function permutes dimensions."""
    return name in SWAPS or func in _GETTERS


@lru_cache(maxsize=1024)
def _order(func: Callable[..., Any], ndim: int, args: tuple[Any, ...], kwargs: tuple[Any, ...]) -> tuple[int, ...]:
    """The order of dimensions, read from the result for a tensor without data and with distinct sizes."""
    with torch._C.DisableTorchFunction():
        sizes = func(torch.empty(tuple(range(2, 2 + ndim)), device="meta"), *args, **dict(kwargs)).shape
    return tuple(size - 2 for size in sizes)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hashable(item) for name, item in value.items() if not isinstance(item, Tensor)}
    return tuple(_hashable(part) for part in value) if isinstance(value, list | tuple) else value


def without(axes: Axes, dims: set[int]) -> Axes:
    """The axes without some dimensions."""
    return tuple(axis for dim, axis in enumerate(axes) if dim not in dims)


def part(axis: Axis, start: int, stop: int, size: int) -> Axis:
    """The axis of `size` numbers from `start` to `stop` of a dimension; `start` adds to its shift."""
    if len(axis) == 1:
        [factor] = axis
        shift = None if factor.shift is None else factor.shift + start
        return (factor._replace(size=size, shift=shift if factor.mark else 0),)
    if start == 0 and stop == math.prod(factor.size for factor in axis):
        return axis
    return (Factor(size, next(iter(axis_marks(axis)), ""), None),)


class Indexed(NamedTuple):
    """The axes after an index, the number taken from a marked dimension, and the parts (start, stop) of sliced dimensions."""

    axes: Axes
    position: int | None
    parts: dict[int, tuple[int, int]]


def indexed(axes: Axes, index: Any, shape: Sequence[int]) -> Indexed | None:
    """The axes after `tensor[index]`: numbers, slices, None and Ellipsis; None for an index of tensors."""
    if not is_basic(index):
        return None
    result: list[Axis] = []
    dim, position, parts = 0, None, {}
    for entry in index_entries(index, len(axes)):
        if entry is None:
            result.append((Factor(1),))
            continue
        size = math.prod(factor.size for factor in axes[dim])
        if isinstance(entry, slice):
            start, stop, step = entry.indices(size)
            count = len(range(start, stop, step))
            if count != size:
                parts[dim] = (start, stop)
            taken = axes[dim] if count == size else part(axes[dim], start, start + count, count)
            result.append(tuple(factor._replace(shift=None) for factor in taken) if step != 1 else taken)
        elif axis_marks(axes[dim]):
            position = entry % size
        dim += 1
    return Indexed(tuple(result), position, parts) if len(result) == len(shape) else None


def is_basic(index: Any) -> bool:
    """Whether an index consists of numbers known before the model runs, slices, None and Ellipsis."""
    entries = index if isinstance(index, tuple) else (index,)
    return all(entry is None or entry is Ellipsis or type(entry) is int or isinstance(entry, slice) for entry in entries)


def index_entries(index: Any, ndim: int) -> list[Any]:
    """The entries of an index for a tensor of `ndim` dimensions, with a full slice for each unchanged dimension.

    >>> index_entries((0, None, Ellipsis), 3)
    [0, None, slice(None, None, None), slice(None, None, None)]
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    where = next((number for number, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    entries[where : where + 1] = [slice(None)] * (ndim - sum(map(dims_read, entries)))
    return entries


def dims_read(entry: Any) -> int:
    """The number of dimensions that an entry of an index reads."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype in (torch.bool, torch.uint8) else 1


def named_dims(value: Any, ndim: int) -> set[int]:
    """The dimensions in an argument that is one dimension, several, or None for all."""
    if value is None:
        return set(range(ndim))
    return {dim % ndim for dim in (value if isinstance(value, list | tuple) else [value])} if ndim else set()
