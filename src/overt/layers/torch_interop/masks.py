"""What torch's multi-head attention calls masks, as a mask and a bias of overt."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.masks import Causal, Dense, Keys
from overt.errors import InputError, KindError
from overt.layers.parts.bias_sum import sum_of
from overt.layers.parts.padding import combined


class Sizes(NamedTuple):
    """The weights' sizes, (B, H, Q, K)."""

    batch: int
    heads: int
    queries: int
    keys: int


def read_masks(
    sizes: Sizes, key_padding_mask: Tensor | None, attn_mask: Tensor | None, is_causal: bool, need_weights: bool
) -> tuple[Any, Any]:
    """The mask and the bias that torch's arguments come to; either may be None.

    `key_padding_mask` (B, K), or (K,) without a batch, and `attn_mask` (Q, K) or (B · H, Q, K) are bool, True where a key is barred,
    or numbers to add, −inf where it is barred. Where `is_causal` comes with an `attn_mask` alone and no weights are asked for, torch
    trusts it and leaves the mask unread: query i may attend to keys j ≤ i, aligned at the start.

    >>> read_masks(Sizes(1, 1, 1, 2), torch.tensor([[False, True]]), None, False, False)[0].visible
    tensor([[ True, False]])
    """
    if is_causal and attn_mask is None:
        raise InputError(
            "torch takes is_causal=True as a hint of what attn_mask is, so it needs the mask",
            got="is_causal=True without attn_mask",
            fix="pass attn_mask=torch.nn.Transformer.generate_square_subsequent_mask(n) beside it",
        )
    if is_causal and key_padding_mask is None and not need_weights:
        return Causal(offset=0), None
    batch, heads, queries, keys = sizes
    pairs, added = _read("attn_mask", attn_mask, (queries, keys), (batch * heads, queries, keys))
    padding, padding_added = _read("key_padding_mask", key_padding_mask, (batch, keys), *([(keys,)] if batch == 1 else []))
    mask = combined(None if padding is None else Keys(padding), None if pairs is None else Dense(_by_head(pairs, heads)))
    rows = None if padding_added is None else padding_added.reshape(-1, 1, 1, keys)  # (B, 1, 1, K)
    return mask, sum_of(rows, None if added is None else _by_head(added, heads))


def _read(name: str, given: Tensor | None, *shapes: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Where a query may attend, and what is added, of one of torch's masks."""
    if given is None:
        return None, None
    if given.dtype != torch.bool and not given.is_floating_point():
        raise KindError(
            f"torch's {name} is bool, True where a key is barred, or numbers to add",
            got=f"a {given.dtype} tensor",
            fix=f"convert it: {name}.bool()",
        )
    if tuple(given.shape) not in shapes:
        raise InputError(
            f"torch's {name} is " + " or ".join(str(shape) for shape in shapes),
            got=f"{name} {tuple(given.shape)}",
            fix="pass one row of keys a batch entry" if len(shapes[0]) == 1 else "check the lengths of query and key",
        )
    if given.dtype == torch.bool:
        return ~given, None
    allowed = given != -torch.inf
    return allowed, None if _only_bars(given, allowed) else given


def _only_bars(given: Tensor, allowed: Tensor) -> bool:
    """Whether numbers only bar, as torch's Transformer layers write their bool masks; where looking costs nothing to wait for."""
    if given.requires_grad or given.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._are_functorch_transforms_active() and not bool(torch.where(allowed, given, 0).any())


def _by_head(given: Tensor, heads: int) -> Tensor:
    """(B · H, Q, K) as (B, H, Q, K); (Q, K) as it is."""
    return given if given.ndim == 2 else given.unflatten(0, (-1, heads))
