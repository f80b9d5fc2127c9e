"""The mask arguments of torch's multi-head attention as a mask and a bias of overt."""

from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import sum_of
from overt.attention.masks import Causal, Dense, Keys
from overt.errors import InputError, KindError
from overt.layers.parts.padding import combine_masks


def read_masks(
    shape: tuple[int, int, int, int],
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    need_weights: bool,
) -> tuple[Any, Any]:
    """Convert torch's mask arguments to a mask and a bias, for weights of the shape (B, H, Q, K); either may be None.

    `key_padding_mask` (B, K), or (K,) without a batch, and `attn_mask` (Q, K) or (B · H, Q, K) are bool, True where a key is masked,
    or numbers to add, −inf where a key is masked. With `is_causal`, `attn_mask` as the only mask and `need_weights=False`, torch ignores
    the mask: query i may attend to keys j ≤ i, aligned at the start.

    >>> read_masks((1, 1, 1, 2), torch.tensor([[False, True]]), None, False, False)[0].visible
    tensor([[ True, False]])
    """
    if is_causal and attn_mask is None:
        raise InputError(
            "attn_mask beside is_causal=True, which in torch only says that this mask is causal",
            got="is_causal=True without attn_mask",
            fix="pass attn_mask=torch.nn.Transformer.generate_square_subsequent_mask(n) beside it",
        )
    if is_causal and key_padding_mask is None and not need_weights:
        return Causal(offset=0), None
    batch, heads, queries, keys = shape
    pairs, added = _read("attn_mask", attn_mask, (queries, keys), (batch * heads, queries, keys))
    padding, padding_added = _read("key_padding_mask", key_padding_mask, (batch, keys), *([(keys,)] if batch == 1 else []))
    mask = combine_masks(None if padding is None else Keys(padding), None if pairs is None else Dense(_by_head(pairs, heads)))
    rows = None if padding_added is None else padding_added.reshape(-1, 1, 1, keys)  # (B, 1, 1, K)
    return mask, sum_of(rows, None if added is None else _by_head(added, heads))


def _read(name: str, tensor: Tensor | None, *shapes: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Split one of torch's masks into allowed pairs and numbers to add."""
    if tensor is None:
        return None, None
    if tensor.dtype != torch.bool and not tensor.is_floating_point():
        raise KindError(
            f"torch's {name} as bool, True where a key is masked, or as numbers to add",
            got=f"a {tensor.dtype} tensor",
            fix=f"convert it: {name}.bool()",
        )
    if tuple(tensor.shape) not in shapes:
        raise InputError(
            f"torch's {name} as " + " or ".join(str(shape) for shape in shapes),
            got=f"{name} {tuple(tensor.shape)}",
            fix="pass one row of keys for each batch entry" if len(shapes[0]) == 1 else "check the lengths of query and key",
        )
    if tensor.dtype == torch.bool:
        return ~tensor, None
    allowed = tensor != -torch.inf
    return allowed, None if _only_masks(tensor, allowed) else tensor


def _only_masks(tensor: Tensor, allowed: Tensor) -> bool:
    """Whether all numbers are 0 or −inf, as in the masks of torch's Transformer layers; checked only if no device must be waited for."""
    if tensor.requires_grad or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._are_functorch_transforms_active() and not bool(torch.where(allowed, tensor, 0).any())


def _by_head(tensor: Tensor, heads: int) -> Tensor:
    """Reshape (B · H, Q, K) to (B, H, Q, K); (Q, K) stays."""
    return tensor if tensor.ndim == 2 else tensor.unflatten(0, (-1, heads))
