"""The mask function for transformers' AttentionMaskInterface: a `LazyMask` if the keys of each query are one range."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overt.integrations.lazy_mask import LazyMask, additive_mask

_BLOCK = 2**22  # entries of a mask that are computed together

# KeyWindow: the keys of a query, from `before` positions before it to `after` positions after it; None: no limit.
KeyWindow = tuple[int | None, int | None]


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    config: Any = None,
    **_: Any,
) -> Tensor | None:
    """The mask that transformers requests, (B, 1, Q, K), in the dtype that the model expects; None if every query attends to every key.

    It is bool for a model that supports "sdpa", else 0 and the lowest number of `dtype`, as "eager" adds it to the scores. If the keys
    of each query are one range, it is a `LazyMask`, which allocates Q × K entries only for a model that computes with it.

    >>> mask = attention_mask(batch_size=1, q_length=2, kv_length=3, q_offset=1)
    >>> mask.shape, mask[0, 0].int()
    (torch.Size([1, 1, 2, 3]), tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32))
    """
    from transformers import masking_utils

    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    mask_dtype = torch.bool if _takes_bool(config) else dtype

    def rows(first: int, size: int) -> Tensor:
        return masking_utils.sdpa_mask(
            batch_size, size, kv_length, q_offset + first, kv_offset, function, attention_mask,  # type: ignore[arg-type]
            allow_is_causal_skip=False, use_vmap=use_vmap, device=device,
        )  # type: ignore[return-value]  # fmt: skip

    if _is_traced(q_offset, attention_mask):
        allowed = rows(0, q_length)
        return allowed if mask_dtype == torch.bool else additive_mask(allowed, mask_dtype)
    padding = _padding(attention_mask, kv_length, kv_offset)
    window = _key_window(function, masking_utils)
    if window is not None and (padding is None or _is_one_range(padding)):
        if allow_is_bidirectional_skip and window == (None, None) and (padding is None or bool(padding.all())):
            return None
        queries = torch.arange(q_length, device=device) + q_offset - kv_offset  # (Q,)
        edges = _range_edges(window, queries, kv_length, padding)
    else:
        edges = _edges_of_any(rows, q_length, kv_length)
    positions = int(q_offset), int(kv_offset)
    if edges is None:
        allowed = rows(0, q_length)
        full: Any = allowed if mask_dtype == torch.bool else additive_mask(allowed, mask_dtype)
        full.positions = positions  # like a LazyMask's
        return full
    return LazyMask(*edges, (batch_size, 1, q_length, kv_length), mask_dtype, positions)


def _is_traced(*inputs: Any) -> bool:
    """Whether torch is tracing the model, so that the computation must not depend on values."""
    from transformers.utils.import_utils import is_tracing

    return is_tracing() or any(tensor.is_meta or is_tracing(tensor) for tensor in inputs if isinstance(tensor, Tensor))


def _takes_bool(config: Any) -> bool:
    """Whether this configuration's models support "sdpa", and so bool masks; others support only the masks of "eager"."""
    source = sys.modules.get(type(config).__module__.replace("configuration_", "modeling_"))
    models = [var for var in vars(source).values() if isinstance(var, type)] if source is not None else []
    supports = [model._supports_sdpa for model in models if getattr(model, "config_class", None) is type(config)]
    return any(supports) or not supports


def _padding(attention_mask: Tensor | None, keys: int, offset: int) -> Tensor | None:
    """The keys that are not padding, (B, K)."""
    if attention_mask is None:
        return None
    missing = keys + offset - attention_mask.shape[-1]
    padded = torch.nn.functional.pad(attention_mask, (0, missing)) if missing > 0 else attention_mask
    return padded[:, offset : offset + keys].bool()


def _key_window(function: Callable[..., Any], masking: Any) -> KeyWindow | None:
    """The window of one of transformers' mask functions; None for other functions."""
    if function is masking.bidirectional_mask_function:
        return None, None
    if function is masking.causal_mask_function:
        return None, 0
    if getattr(function, "__module__", None) != masking.__name__:
        return None
    variables = dict(
        zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True)
    )
    maker = function.__qualname__
    if maker.startswith("sliding_window_overlay."):
        return variables["sliding_window"] - 1, None
    if maker.startswith("sliding_window_bidirectional_overlay."):
        return variables["sliding_window"], variables["sliding_window"]
    if not maker.startswith("and_masks."):
        return None
    parts = [_key_window(part, masking) for part in variables["mask_functions"]]
    if any(part is None for part in parts):
        return None
    sides = zip(*(part for part in parts if part is not None), strict=True)
    before, after = (min((side for side in reach if side is not None), default=None) for reach in sides)
    return before, after


def _is_one_range(padding: Tensor) -> bool:
    """Whether the non-padding keys of each row are contiguous."""
    starts = (padding[:, 1:] & ~padding[:, :-1]).sum(-1) + padding[:, :1].sum(-1)
    return bool((starts <= 1).all())


def _range_edges(window: KeyWindow, queries: Tensor, keys: int, padding: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first key of each query and the one after its last, (B or 1, 1, Q)."""
    before, after = window
    low = torch.zeros_like(queries) if before is None else queries - before
    high = torch.full_like(queries, keys) if after is None else queries + after + 1
    low, high = low.clamp(0, keys)[None], high.clamp(0, keys)[None]  # (1, Q)
    if padding is not None:
        first = padding.int().argmax(-1, keepdim=True)  # (B, 1)
        low, high = torch.maximum(low, first), torch.minimum(high, first + padding.sum(-1, keepdim=True))
    return low[:, None], torch.maximum(low, high)[:, None]  # (B or 1, 1, Q)


def _edges_of_any(rows: Callable[[int, int], Tensor], queries: int, keys: int) -> tuple[Tensor, Tensor] | None:
    """The same edges from the entries of the mask, a block of rows at a time; None if the keys of a query are not one range."""
    size = max(1, _BLOCK // max(keys, 1))
    lows, highs = [], []
    for first in range(0, queries, size):
        allowed = rows(first, min(size, queries - first))  # (B, 1, rows, K)
        low = allowed.int().argmax(-1) if keys else allowed.sum(-1)
        high = low + allowed.sum(-1)
        positions = torch.arange(keys, device=allowed.device)
        if not torch.equal(allowed, (low[..., None] <= positions) & (positions < high[..., None])):
            return None
        lows.append(low)
        highs.append(high)  # (B, 1, rows)
    return (torch.cat(lows, dim=-1), torch.cat(highs, dim=-1)) if lows else None
