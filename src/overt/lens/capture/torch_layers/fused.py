"""A call of torch's `scaled_dot_product_attention`: its arguments, and the call of attention from them."""

from typing import Any

import torch
from torch import Tensor

from overt.attention.check import aligned_right
from overt.attention.masks import Causal
from overt.attention.scores import Dot
from overt.lens.capture.ranges import MaskReader


def fused_arguments(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The function's arguments by their names."""
    return locals()


def needs_gradients(*args: Any, **kwargs: Any) -> bool:
    """Whether torch records the call for a backward pass."""
    tensors = [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def call_arguments(inputs: dict[str, Any], separated: tuple[Any, Tensor] | None, masks: MaskReader) -> tuple[Any, ...]:
    """The arguments of `Call.checked` for the function's `inputs`; `separated` are mask and bias if they are known separately."""
    attn_mask, dimensions = inputs["attn_mask"], inputs["query"].ndim
    read = separated or ((None, None) if attn_mask is None else masks.read(attn_mask))
    mask, bias = (aligned_right(text, dimensions) for text in read)  # as torch broadcasts them
    mask = Causal(offset=0) if inputs["is_causal"] else mask  # torch aligns is_causal at the start
    return inputs["query"], inputs["key"], inputs["value"], Dot(inputs["scale"]), mask, bias, None, inputs["dropout_p"]
