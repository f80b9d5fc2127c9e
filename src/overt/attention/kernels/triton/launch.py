"""Arguments of every kernel launch on a GPU: where each entry's part of a tensor begins, and the mask's program."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from overt.attention.kernels.flat.mask_program import BOTH, INVERSE, RANGES, TRAILING_DIMS
from overt.attention.kernels.triton.tiles import COLUMNS

Leading = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides of the batch dimensions


def on_its_device(run: Callable[..., Any]) -> Callable[..., Any]:
    """Run with the first tensor's device as current device, on which Triton launches."""

    @wraps(run)
    def run_there(*inputs: Any) -> Any:
        device = next(tensor.device for tensor in inputs if isinstance(tensor, Tensor))
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            return run(*inputs)

    return run_there


def table(
    batch: Sequence[int], trailing: dict[str, tuple[Tensor | None, int]], arrays: Sequence[Tensor], program: Sequence[int]
) -> tuple[Tensor, int]:
    """The kernels' `offsets`: the table, with a column for each tensor, and its width.

    `trailing` maps each name to a tensor and its number of dimensions after the batch.
    """
    leading = [_leading(*trailing.get(name, (None, 0))) for name in COLUMNS]
    leading += [_leading(*pair) for pair in zip(arrays, _trailing_dims(program), strict=True)]
    device = next(tensor.device for tensor, _ in trailing.values() if tensor is not None)
    offsets = _table(tuple(batch), tuple(leading), device)
    return offsets, offsets.shape[1]


def steps(program: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A mask's program, the number of the first array of each step, and the first arrays of ranges outside of which no pair is visible.

    >>> from overt.attention.kernels.flat.mask_program import DENSE
    >>> steps([RANGES, DENSE, BOTH])
    ((0, 1, 3), (0, 2, -1), (0,))
    """
    firsts, array_count, pending = [], 0, []
    for step in program:
        firsts.append(array_count if step in TRAILING_DIMS else -1)
        if step in TRAILING_DIMS:
            pending.append({array_count} if step == RANGES else set())
            array_count += len(TRAILING_DIMS[step])
        elif step == INVERSE:
            pending[-1] = set()
        else:
            last, before = pending.pop(), pending.pop()
            pending.append(before | last if step == BOTH else before & last)
    return tuple(program), tuple(firsts), tuple(sorted(pending[0])) if pending else ()


def strided_mask(arrays: Sequence[Tensor], program: Sequence[int], offsets: tuple[Tensor, int]) -> tuple[Any, ...]:
    """The mask in the kernels' form: arrays, strides of their trailing dimensions, offsets."""
    strides = (_strides(tensor, trailing) for tensor, trailing in zip(arrays, _trailing_dims(program), strict=True))
    return tuple(arrays), tuple((*stride, 0)[:2] for stride in strides), offsets


def strided_bias(bias: Tensor | None, by_distance: bool) -> tuple[Tensor, int, int] | None:
    """The bias and its strides."""
    if bias is None or by_distance:
        return None if bias is None else (bias, 0, bias.stride(-1))
    row, key = _strides(bias, 2)
    return bias, row, key


def _strides(tensor: Tensor, trailing: int) -> tuple[int, ...]:
    """The strides of the last dimensions, 0 for dimensions of size 1."""
    last = zip(tensor.shape[-trailing:], tensor.stride()[-trailing:], strict=True)
    return tuple(stride if length > 1 else 0 for length, stride in last)


def size(length: int, largest: int, smallest: int = 16) -> int:
    """The block size for a number of rows: a power of two within these limits."""
    return max(smallest, min(largest, 1 << (max(length, 1) - 1).bit_length()))


def _trailing_dims(program: Sequence[int]) -> list[int]:
    """The number of dimensions after the batch, for each array of a mask."""
    return [trailing for step in program for trailing in TRAILING_DIMS.get(step, [])]


def _leading(tensor: Tensor | None, trailing: int) -> Leading | None:
    if tensor is None:
        return None
    last = tensor.ndim - trailing
    return tuple(tensor.shape[:last]), tuple(tensor.stride()[:last])


@lru_cache(maxsize=256)
def _table(batch: tuple[int, ...], leading: tuple[Leading | None, ...], device: torch.device) -> Tensor:
    """A row for each tensor, a column for each entry; cached for calls of one shape."""
    rows = [np.zeros(batch, np.int64) if pair is None else _offsets(batch, *pair) for pair in leading]
    return torch.from_numpy(np.stack([row.reshape(-1) for row in rows])).to(device)


def _offsets(batch: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The offset of each entry, with dimensions aligned right; size 1 serves all entries, each grouped head several consecutive ones."""
    offsets = np.zeros(batch, np.int64)
    for dim, (length, stride) in enumerate(zip(sizes, strides, strict=True), len(batch) - len(sizes)):
        if length > 1:
            index = np.arange(batch[dim]) * length // batch[dim] * stride
            offsets += index.reshape(-1, *(1,) * (len(batch) - 1 - dim))
    return offsets
