"""Padding: checked lengths, masks that exclude padding, and states with zeros at padding.

Padding must reach nothing, not even a gradient: a weight's gradient is a sum over positions of states times their
gradients, and 0 · NaN is NaN. So padded states are zeroed before any multiplication.
"""

from contextlib import suppress
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from overt.attention.check import broadcasts_to
from overt.attention.masks import Both, Causal, Lengths, Mask, Window, as_mask
from overt.attention.typing import LengthsLike, WindowLike
from overt.errors import InputError, KindError


def checked_lengths(lengths: LengthsLike, states: Tensor) -> Tensor:
    """Convert lengths to an integer tensor on the states' device, from 0 to the length n of (..., n, D)."""
    if isinstance(lengths, (int, list, tuple)) and not isinstance(lengths, bool):
        with suppress(TypeError, ValueError, RuntimeError):  # anything but a 64-bit tensor is refused below
            lengths = torch.tensor(lengths)
    if not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        kind = f"a {lengths.dtype} tensor" if isinstance(lengths, Tensor) else repr(lengths)
        raise KindError(
            "lengths as whole numbers, one for each sequence", got=kind, fix="count: lengths = (ids != padding).sum(-1)"
        )
    leading = tuple(states.shape[:-2])
    if tuple(lengths.shape) != leading[: lengths.ndim]:
        raise InputError(
            "one length for each sequence, (B,)",
            got=f"lengths {tuple(lengths.shape)} for {leading} sequences",
            fix="pass one length for each sequence, in the order of the batch",
        )
    # Reading the values of a GPU's tensor would wait for the GPU.
    if not torch.compiler.is_compiling() and lengths.device.type == "cpu" and lengths.numel():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > states.shape[-2]:
            raise InputError(
                f"lengths from 0 to {states.shape[-2]}, the number of positions",
                got=f"{low} to {high}",
                fix="pass the lengths of these sequences",
            )
    return lengths.to(states.device)


def within_lengths(lengths: Tensor, states: Tensor) -> Tensor:
    """Which positions of (..., n, D) are not padding: (B, …, n, 1)."""
    positions = torch.arange(states.shape[-2], device=states.device)
    ones = (1,) * (states.ndim - 2 - lengths.ndim)
    return positions[:, None] < lengths.reshape(*lengths.shape, *ones, 1, 1)


def zero_padding(states: Tensor, lengths: Tensor | None) -> Tensor:
    """The states with zeros at padding."""
    return states if lengths is None else torch.where(within_lengths(lengths, states), states, 0)


def zero_masked_keys(states: Tensor, mask: Any, batch: tuple[int, ...] | None, heads: bool = False) -> Tensor:
    """Zero the states of keys that the mask excludes for every query, if one row of the mask holds for all queries.

    `batch` are the dimensions before (Q, K) in the mask's call, from `joint_batch`; with `heads` the heads' dimension follows them.
    A mask that does not fit them changes nothing: the attention call refuses it and names all shapes.
    """
    mask = as_mask(mask) if isinstance(mask, Tensor) else mask
    if isinstance(mask, Both):  # a key excluded by one part is excluded by both
        return zero_masked_keys(zero_masked_keys(states, mask.left, batch, heads), mask.right, batch, heads)
    if batch is None or not isinstance(mask, Mask) or not mask.by_key:
        return states
    positions = torch.arange(states.shape[-2], device=states.device)
    allowed = mask.bind(len(batch) + heads, 1, len(positions)).block(positions[:1], positions).mT  # (..., K, 1)
    allowed = allowed.any(-3) if heads and allowed.ndim > 2 else allowed
    return torch.where(allowed, states, 0) if broadcasts_to(allowed.shape[:-2], batch) else states


def joint_batch(*inputs: Tensor) -> tuple[int, ...] | None:
    """The joint leading dimensions, before the last two, of tensors; None if they do not broadcast.

    >>> joint_batch(torch.ones(2, 3, 4), torch.ones(5, 4)), joint_batch(torch.ones(2, 3, 4), torch.ones(3, 5, 4))
    ((2,), None)
    """
    batch: tuple[int, ...] = ()
    for tensor in inputs:
        other = tuple(tensor.shape[:-2])
        dimensions = max(len(batch), len(other))
        pairs = list(zip(_padded(batch, dimensions), _padded(other, dimensions), strict=True))
        if any(left != right and left != 1 and right != 1 for left, right in pairs):
            return None
        batch = tuple(right if left == 1 else left for left, right in pairs)
    return batch


def _padded(shape: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    return (1,) * (dimensions - len(shape)) + shape


def combine_masks(*masks: Any) -> Any:
    """The intersection of these masks; None means no mask."""
    present = [mask for mask in masks if mask is not None]
    return reduce(lambda left, right: Both(as_mask(left), as_mask(right)), present) if present else None


def lengths_mask(lengths: Tensor | None, queries: bool = False) -> Lengths | None:
    """The mask that excludes padded keys, and with `queries` padded queries too."""
    return None if lengths is None else Lengths(lengths, lengths if queries else None)


def window_mask(causal: bool, window: WindowLike) -> Mask | None:
    """The mask of a layer's `causal` and `window`; an int window applies to both sides."""
    if window is None:
        return Causal() if causal else None
    sides = window if isinstance(window, tuple) else (window, window)
    if len(sides) != 2 or not all(
        side is None or (isinstance(side, int) and not isinstance(side, bool) and side >= 0) for side in sides
    ):
        raise InputError(
            "window as a number of positions to each side, or a pair (before, after)",
            got=repr(window),
            fix="pass an int of at least 0, or two, None for a side without a limit",
        )
    before, after = sides
    return Window(before, 0) if causal else Window(before, after)
