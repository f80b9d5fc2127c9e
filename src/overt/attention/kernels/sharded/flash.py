"""Partial attention by torch's flash kernels: a dot product with all keys visible, or causal from the first query and key on.

torch's public function returns no log-sum-exp, and its backward takes none, so the kernels are called as torch's own ring attention
does (torch.distributed.tensor.experimental).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels import torch_sdpa
from overt.attention.kernels.call import Call

_ops: Any = torch.ops.aten


def refusal(call: Call) -> str | None:
    """Why torch's kernels cannot compute this part; None if they can."""
    call = head_batches(call)
    if reason := torch_sdpa.refusal(call):
        return reason
    if call.mask is not None and not torch_sdpa.all_visible(call) and not torch_sdpa.causal_from_the_start(call):
        return "torch gives no log-sum-exp under a mask of keys"
    if call.query.device.type == "cuda" and call.dtype == call.query.dtype:
        return "torch's flash kernel computes float16 and bfloat16"
    return None


def head_batches(call: Call) -> Call:
    """The same call with grouped heads repeated, as the kernels take them."""
    key, value = (
        tensor.repeat_interleave(call.batch[-1] // tensor.shape[-3], dim=-3)
        if tensor.ndim >= 4 and 1 != tensor.shape[-3] != call.batch[-1]
        else tensor
        for tensor in (call.key, call.value)
    )
    return call if key is call.key else replace(call, key=key, value=value)


def partial(call: Call) -> tuple[Tensor, Tensor]:
    """The output and each row's log-sum-exp."""
    query, key, value, causal, scale = _arguments(call)
    if query.is_cuda:
        output, lse = _ops._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, False, scale=scale)[:2]
    else:
        output, lse = _ops._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, scale=scale)
    return output.reshape(*call.batch, *output.shape[-2:]).to(call.dtype), lse.reshape(*call.batch, -1).to(call.dtype)


def resumed(call: Call, output: Tensor, lse: Tensor) -> Tensor:
    """The known output, with gradients for only this call's keys."""
    query, key, value, causal, scale = _arguments(call)
    four = [tensor.reshape(*query.shape[:2], *tensor.shape[len(call.batch) :]) for tensor in (output, lse)]
    result: Any = _ResumedShards.apply(query, key, value, four[0].to(query.dtype), four[1], causal, scale)
    return result.reshape(output.shape)


class _ResumedShards(torch.autograd.Function):
    """torch's backward pass, from an output and log-sum-exp over more keys than this call's."""

    @staticmethod
    def forward(ctx, query, key, value, output, lse, causal, scale):  # type: ignore[override]
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.options = causal, scale
        return output.view_as(output)

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        query, key, value, output, lse = ctx.saved_tensors
        causal, scale = ctx.options
        saved = upstream.to(query.dtype).contiguous(), query, key, value, output, lse.contiguous()
        if query.is_cuda:
            none, lengths = torch.empty(0, dtype=torch.long, device=query.device), (query.shape[-2], key.shape[-2])
            state = None, None, *lengths, 0.0, causal, none, none
            gradients = _ops._scaled_dot_product_flash_attention_backward(*saved, *state, scale=scale)
        else:
            gradients = _ops._scaled_dot_product_flash_attention_for_cpu_backward(*saved, 0.0, causal, scale=scale)
        return *gradients, None, None, None, None


def _arguments(call: Call) -> tuple[Tensor, Tensor, Tensor, bool, float]:
    """Query, key and value (B, H, L, D) for the kernels, whether they are causal, and the scale."""
    call = head_batches(call)
    query, key, scale = call.score.as_dot(call.query, call.key)
    heads = call.batch[-1] if call.batch else 1
    four = [
        tensor.expand(*call.batch, *tensor.shape[-2:]).reshape(-1, heads, *tensor.shape[-2:])
        for tensor in (query, key, call.value)
    ]
    causal = call.mask is not None and not torch_sdpa.all_visible(call)
    return four[0], four[1], four[2], causal, scale / float(call.normalizer.temperature)
