"""Masks converted from other libraries' conventions."""

import torch
from torch import Tensor

from overt.attention.check import dense, describe
from overt.attention.masks.base import Dense, Mask
from overt.attention.masks.kinds import Documents, Keys
from overt.attention.pieces import whole_numbers
from overt.errors import InputError, KindError


def from_padding(key_padding_mask: Tensor) -> Keys:
    """Convert torch's `key_padding_mask` (B, K), in which True means *ignore*.

    >>> from_padding(torch.tensor([[False, True]])).visible
    tensor([[ True, False]])
    """
    dense(key_padding_mask, "key_padding_mask")
    if not isinstance(key_padding_mask, Tensor) or key_padding_mask.dtype != torch.bool:
        raise KindError(
            "key_padding_mask to be bool, True at padding",
            got=describe(key_padding_mask),
            fix="if 1 is a token, as in a tokenizer's attention_mask, pass it to overt.masks.from_attention_mask; if 1 is padding, "
            "convert it: mask.bool()",
        )
    return Keys(~key_padding_mask)


def from_attention_mask(attention_mask: Tensor) -> Mask:
    """Convert Hugging Face's `attention_mask`: (B, K), 1 for tokens and 0 for padding; or bool (B, H, Q, K).

    >>> from_attention_mask(torch.tensor([[1, 0]])).visible
    tensor([[ True, False]])
    """
    dense(attention_mask, "attention_mask")
    if isinstance(attention_mask, Tensor) and attention_mask.ndim == 4 and attention_mask.dtype == torch.bool:
        return Dense(attention_mask)
    if (
        not isinstance(attention_mask, Tensor)
        or attention_mask.ndim != 2
        or not bool(((attention_mask == 0) | (attention_mask == 1)).all())
    ):
        raise InputError(
            "attention_mask to be (B, K) of ones and zeros, or a bool tensor (B, H, Q, K)",
            got=f"{describe(attention_mask)} {tuple(getattr(attention_mask, 'shape', ()))}",
            fix="pass the tokenizer's attention_mask; pass what is added to the scores as bias=",
        )
    return Keys(attention_mask.bool())


def from_cu_seqlens(cu_seqlens: Tensor, total: int | None = None) -> Documents:
    """Documents from the cumulative lengths of packed batches, (0, n_1, n_1 + n_2, …); later tokens belong to no document.

    >>> from_cu_seqlens(torch.tensor([0, 2, 3]), total=4).key_ids
    tensor([ 0,  0,  1, -1])
    """
    whole_numbers("masks.from_cu_seqlens", "cu_seqlens", cu_seqlens, tensor=True)
    if cu_seqlens.ndim != 1 or len(cu_seqlens) < 2 or int(cu_seqlens[0]) != 0 or bool((cu_seqlens.diff() < 0).any()):
        raise InputError(
            "cu_seqlens to start at 0 and not to decrease",
            got=str(cu_seqlens.tolist()),
            fix="use lengths.cumsum(0) with a 0 before it",
        )
    total = int(cu_seqlens[-1]) if total is None else total
    positions = torch.arange(total, device=cu_seqlens.device)
    ids = torch.searchsorted(cu_seqlens.contiguous(), positions, right=True) - 1
    return Documents(torch.where(positions < cu_seqlens[-1], ids, -1))
