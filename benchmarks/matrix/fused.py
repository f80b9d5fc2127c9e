"""The weights inside torch's fused operators, computed in float64 from each operator's own arguments."""

import math
from typing import Any

import torch
from torch import Tensor

Weights = tuple[Tensor, float]
DROWNS = 1e4


def dot_product(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Weights:
    """Of the fused scaled dot product of the CPU: (query, key, value, dropout_p, is_causal, *, attn_mask, scale)."""
    causal = rest[1] if len(rest) > 1 else options.get("is_causal", False)
    return weights(query, key, options.get("attn_mask"), causal, options.get("scale"))


def dot_product_with_bias(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, *rest: Any, **options: Any
) -> Weights:
    """Of those that take (query, key, value, attn_bias, …, dropout_p, is_causal, *, scale)."""
    causal = next((each for each in reversed(rest) if isinstance(each, bool)), options.get("is_causal", False))
    return weights(query, key, bias if bias is not None else options.get("attn_bias"), causal, options.get("scale"))


def weights(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Weights:
    """softmax(q kᵀ · scale + mask) as (N, Q, K), rows that may attend to nothing zero; and the largest score."""
    query, key = query.double(), key.double()
    if key.ndim > 2 and key.shape[-3] != query.shape[-3]:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    largest = float(scores.abs().max()) if scores.numel() else 0.0
    if causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:  # a score drowns in a mask's lowest number in the operator's own precision
        scores = torch.where(mask.abs() > DROWNS, (scores.to(mask.dtype) + mask).double(), scores + mask.double())
    return scores.softmax(-1).nan_to_num(nan=0.0).reshape(-1, *scores.shape[-2:]), largest


def encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor, *rest: Any, **options: Any,
) -> Weights | None:  # fmt: skip
    """Of the fast path of `nn.TransformerEncoderLayer`."""
    mask = rest[6] if len(rest) > 6 else options.get("mask")
    if norm_first and not src.is_nested:
        src = torch.nn.functional.layer_norm(src.double(), (embed_dim,), norm_weight_1.double(), norm_bias_1.double(), eps)
    return projected(src, num_heads, qkv_weight, qkv_bias, mask)


def multi_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    *rest: Any,
    **options: Any,
) -> Weights | None:
    """Of the fast path of `nn.MultiheadAttention`, which is self-attention only."""
    mask = rest[2] if len(rest) > 2 else options.get("mask")
    return projected(query, num_head, qkv_weight, qkv_bias, mask)


def projected(src: Tensor, heads: int, weight: Tensor, bias: Tensor, mask: Tensor | None) -> Weights | None:
    """Of self-attention of src (B, L, W), whose mask is True where a key is barred: (L, L), of padding (B, L), or (B, H, L, L).

    Queries that a nested tensor does not have are NaN: nothing ran for them.
    """
    absent = None
    if src.is_nested:
        src = torch.nested.to_padded_tensor(src, math.nan)
        mask = absent = src.isnan().all(-1)
        src = src.nan_to_num(nan=0.0)
    query, key, _ = torch.nn.functional.linear(src.double(), weight.double(), bias.double()).chunk(3, dim=-1)
    query, key = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (query, key))
    if mask is not None:  # torch makes it bool, whatever its numbers are
        mask = ~(mask[:, None, None] if mask.ndim == 2 and mask.shape == src.shape[:2] else mask).bool()
    rows, largest = weights(query, key, mask, False, None)
    if absent is not None:
        rows = rows.masked_fill(absent.repeat_interleave(heads, 0)[..., None], math.nan)
    return rows, largest


OPERATORS = {
    "_scaled_dot_product_flash_attention_for_cpu": dot_product,
    "_scaled_dot_product_flash_attention": dot_product,
    "_scaled_dot_product_efficient_attention": dot_product_with_bias,
    "_scaled_dot_product_fused_attention_overrideable": dot_product_with_bias,
    "_transformer_encoder_layer_fwd": encoder_layer,
    "_native_multi_head_attention": multi_head,
}
