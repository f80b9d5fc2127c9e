"""Chunks of tokens for a key-value cache: their checks, and the position of their queries among the keys."""

from collections.abc import Sized
from dataclasses import replace
from typing import Any

from torch import Tensor

from overt.attention import check
from overt.attention.biases import ALiBi, RelativePositionBias
from overt.attention.masks import Mask, as_mask
from overt.attention.typing import WindowLike
from overt.errors import InputError, KindError


def check_pair(key: Any, value: Any) -> None:
    """Refuse anything but key and value of some tokens."""
    for name, tensor in (("key", key), ("value", value)):
        check.dense(tensor, name)
        if not isinstance(tensor, Tensor) or not check.is_float(tensor):
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise KindError(
                "floating-point tensors as key and value of a cache",
                got=f"{name} of {kind}",
                fix=check.float_fix(name, tensor) if isinstance(tensor, Tensor) else f"convert it: torch.as_tensor({name})",
            )
    if key.ndim != 4 or value.ndim != 4 or key.shape[:3] != value.shape[:3]:
        raise InputError(
            "key (B, Hk, n, D) and value (B, Hk, n, E) for a cache",
            got=check.shapes(key=key, value=value),
            fix="give both a batch and a head dimension, as unsqueeze(0) does, and one value for each key",
        )
    if (key.dtype, key.device) != (value.dtype, value.device):
        raise KindError(
            "key and value of a cache to have one dtype and device",
            got=f"key {key.dtype} on {key.device}, value {value.dtype} on {value.device}",
            fix="convert one with .to(…)",
        )


def check_like(stored: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> None:
    """Refuse a chunk whose rows, heads, widths, dtype or device differ from the stored ones."""
    for name, old, tensor in zip(("key", "value"), stored, new, strict=True):
        rows, heads, _, width = old.shape
        if (rows, heads, width) != (*tensor.shape[:2], tensor.shape[-1]):
            raise InputError(
                f"{name} ({rows}, {heads}, n, {width}), as the cache has it",
                got=f"{name} {tuple(tensor.shape)}",
                fix="reorder() the cache for another batch, or clear() it",
            )
        if (old.dtype, old.device) != (tensor.dtype, tensor.device):
            raise KindError(
                f"{name} of {old.dtype} on {old.device}, as the cache has it",
                got=f"{name} of {tensor.dtype} on {tensor.device}",
                fix="convert the chunk with .to(…), or clear() the cache",
            )


def check_step(query: Any, key: Any, value: Any, scale: Any) -> None:
    """Refuse anything but query, key and value of one token, and a scale that is no number."""
    check.attention_inputs(query, key, value)
    check.one_dtype(query, key, value)
    fits = query.ndim == key.ndim == value.ndim == 4 and query.shape[-2] == key.shape[-2] == 1
    fits = fits and key.shape[:3] == value.shape[:3] and (query.shape[0], query.shape[-1]) == (key.shape[0], key.shape[-1])
    if not fits or query.shape[1] % max(key.shape[1], 1):
        raise InputError(
            "query (B, H, 1, D), key (B, Hk, 1, D) and value (B, Hk, 1, E) of one token for a step of a cache, H a multiple of Hk",
            got=check.shapes(query=query, key=key, value=value),
            fix="pass one token of each row, or use extend() and attend() for several",
        )
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float))):
        raise KindError("scale of a step to be a number, or None", got=check.describe(scale), fix="pass a float")


def check_chunk(cache: Sized, tokens: int, causal: bool, window: WindowLike, mask: Any) -> None:
    """Refuse several tokens after earlier chunks without a causal layer or mask: each would see later tokens of its own chunk only.

    A single token has no later ones, and a first chunk is the whole sequence so far, so both may be read without a causal mask.
    """
    ordered = causal or (isinstance(window, tuple) and window[1] == 0)
    if ordered or tokens < 2 or not len(cache):
        return
    mask = None if mask is None else as_mask(mask)
    if mask is None or (isinstance(mask, Mask) and mask.by_key):
        raise InputError(
            "a causal layer for several tokens that follow those of a cache, since earlier ones have not attended to them",
            got=f"{tokens} tokens after {len(cache)} in a layer that is not causal",
            fix="build the layer with causal=True, or pass mask=overt.Causal()",
        )


def aligned(mask: Any, bias: Any, offset: Any) -> tuple[Any, Any]:
    """The mask and the bias of a chunk whose query 0 is key `offset`; None aligns the last query with the last key."""
    if offset is None:
        return mask, bias
    mask = None if mask is None else as_mask(mask)
    mask = mask.with_offset(offset) if isinstance(mask, Mask) else mask
    unaligned = isinstance(bias, (ALiBi, RelativePositionBias)) and bias.offset is None
    return mask, replace(bias, offset=offset) if unaligned else bias
