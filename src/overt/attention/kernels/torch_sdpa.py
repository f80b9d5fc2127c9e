"""The path through torch's fused kernels, `scaled_dot_product_attention`, for calls that they compute equally in linear memory."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from overt.attention.kernels.call import Call
from overt.attention.masks import Causal, Mask
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot, Score

# _FUSES_GROUPS: torch 2.7 holds all weights of grouped heads on the CPU; its fused kernel needs repeated heads.
_FUSES_GROUPS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)
_LARGEST = torch.finfo(torch.float32).max  # the largest sum of scores, which are added up in float32 or more


def refusal(call: Call) -> str | None:
    """Why torch's kernels do not support this call; None if they do."""
    return _unsupported_mathematics(call) or _unsupported_mask(call) or _unsupported_mode(call) or _unsupported_shape(call)


def caveat(call: Call) -> str:
    """The guarantee that torch's kernels lack if values cannot be inspected; empty if they lack none."""
    if causal_from_the_start(call) and not _judges_values(call):
        return "; NaN and infinity in a masked key or value would reach the queries near it, and values are not inspected here"
    return ""


def delegated(call: Call, recompute: Callable[[Call], Tensor]) -> Tensor:
    """The output of torch's fused kernel; `recompute(call)` computes it differentiably for second derivatives."""
    query, key, value = call.query, call.key, call.value
    allowed, has_keys = _key_mask(call)
    shielded = allowed is not None and not (_judges_values(call) and _harmless(call, has_keys))
    if shielded:
        # Masked keys become zeros, so that no NaN in them can leak; a batch entry without keys is zeroed as a whole.
        query = torch.where(has_keys[..., None, None], query, 0)
        key, value = (torch.where(allowed.mT, tensor, 0) for tensor in (key, value))  # pyright: ignore[reportOptionalMemberAccess]
    allowed = allowed if allowed is None else _four(allowed, call.batch)
    query, key, scale = call.score.as_dot(query, key)
    options = _Options(allowed, causal_from_the_start(call), scale / float(call.normalizer.temperature), _grouped(call))
    query, key, value = (_four(tensor, call.batch) for tensor in (query, key, value))
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not any(t.requires_grad for t in (query, key, value)):
        output = _fused(query, key, value, options)
    else:
        output: Any = _Delegated.apply(query, key, value, options, recompute)
    output = output.reshape(*call.batch, call.queries, value.shape[-1])
    return torch.where(has_keys[..., None, None], output, 0) if shielded else output


class _Options(NamedTuple):
    """The arguments of torch's kernel besides query, key and value."""

    allowed: Tensor | None
    causal: bool
    scale: float
    grouped: bool


class _Delegated(torch.autograd.Function):
    """torch's kernel and its backward, which has no derivative: under create_graph the call is recomputed in blocks."""

    @staticmethod
    def forward(ctx, query, key, value, options, recompute):  # type: ignore[override]
        inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in (query, key, value)]
        with torch.enable_grad():
            output = _fused(inputs[0], inputs[1], inputs[2], options)
        ctx.save_for_backward(query, key, value)
        ctx.options, ctx.recompute, ctx.inner = options, recompute, (inputs, output)
        return output.detach()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[override]
        saved = ctx.saved_tensors  # raises torch's own error if the graph has been freed
        twice = torch.is_grad_enabled()
        inputs, output = (saved, ctx.recompute(_same_call(saved, ctx.options))) if twice else ctx.inner
        if not torch._C._autograd._get_current_graph_task_keep_graph():  # type: ignore[attr-defined]
            ctx.inner = None  # free the kernel's saved tensors with the caller's graph
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        gradients = iter(torch.autograd.grad(output, wanted, gradient, create_graph=twice, retain_graph=True))
        return *(next(gradients) if tensor.requires_grad else None for tensor in inputs), None, None


def _fused(query: Tensor, key: Tensor, value: Tensor, options: _Options) -> Tensor:
    grouped = options.grouped
    if grouped and query.device.type == "cpu" and not _FUSES_GROUPS:
        key, value = (tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3) for tensor in (key, value))
        grouped = False
    return functional.scaled_dot_product_attention(
        query, key, value, options.allowed, is_causal=options.causal, scale=options.scale, enable_gqa=grouped
    )


def _same_call(inputs: tuple[Tensor, Tensor, Tensor], options: _Options) -> Call:
    mask = Causal(offset=0) if options.causal else options.allowed
    return Call.checked(*inputs, score=Dot(options.scale), mask=mask)


def _key_mask(call: Call) -> tuple[Any, Any]:
    """The keys that are visible to every query, (..., 1, K), and whether there are any, (...)."""
    if call.mask is None or all_visible(call) or causal_from_the_start(call):
        return None, None
    device = call.query.device
    allowed = call.mask.block(torch.arange(1, device=device), torch.arange(call.keys, device=device))
    allowed = allowed.reshape((1,) * (len(call.batch) + 2 - allowed.ndim) + tuple(allowed.shape))
    return allowed, allowed.any(-1).squeeze(-1)


def _harmless(call: Call, has_keys: Tensor) -> bool:
    """Whether masked keys cannot leak: each entry has a visible key, and no score overflows, so masked weights are 0.

    A product of two vectors is at most the product of their norms, and these are at most the norms of all queries and of all keys. A norm
    takes a fifth of the time of a largest magnitude, which matters at each step of a decoder.
    """
    if type(call.score) is not Dot or not bool(has_keys.all()):
        return False
    query, key, value = torch.stack([_norm(tensor) for tensor in (call.query, call.key, call.value)]).tolist()
    scale = abs(float(call.score.factor(call.query))) / float(call.normalizer.temperature)
    return value < math.inf and query * key * scale < _LARGEST


def _norm(tensor: Tensor) -> Tensor:
    """√Σx², infinite or NaN if one of the numbers is, infinite also if the sum overflows."""
    return torch.linalg.vector_norm(tensor.detach(), dtype=torch.promote_types(tensor.dtype, torch.float32))


def _four(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """The tensor as (batch, heads, length, features), which the fused kernels need, with a contiguous last dimension."""
    heads = tensor.shape[-3:-2] if tensor.ndim >= 4 and tensor.shape[-3] != 1 else batch[-1:]
    leading = (*batch[:-1], *heads) if len(batch) > 1 else (*batch, 1)
    if len(leading) != 2 or tuple(tensor.shape[:-2]) != leading:
        tensor = tensor if len(batch) > 1 else tensor.unsqueeze(-3)
        tensor = tensor.expand(*leading, *tensor.shape[-2:])
        tensor = tensor.reshape(-1, *tensor.shape[-3:])  # (batch, heads, length, features)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _grouped(call: Call) -> bool:
    return bool(call.batch) and call.key.ndim >= 4 and call.key.shape[-3] != 1 and call.key.shape[-3] != call.batch[-1]


def all_visible(call: Call) -> bool:
    """Whether a causal mask excludes nothing."""
    return isinstance(call.mask, Causal) and isinstance(call.mask.offset, int) and call.mask.offset >= call.keys - 1


def causal_from_the_start(call: Call) -> bool:
    """Whether the mask is causal with Q = K: torch's is_causal aligns at the start, which differs otherwise."""
    causal = isinstance(call.mask, Causal) and isinstance(call.mask.offset, int) and call.mask.offset == 0
    return causal and call.queries == call.keys and not all_visible(call)


def _judges_values(call: Call) -> bool:
    return call.inspectable and call.query.device.type == "cpu"


def _unsupported_mathematics(call: Call) -> str | None:
    if not isinstance(call.score, Score) or call.score.as_dot(call.query[..., :0, :], call.key[..., :0, :]) is None:
        return "the score is not a dot product with a fixed scale"
    if (
        type(call.normalizer) is not Softmax
        or isinstance(call.normalizer.temperature, Tensor)
        or call.normalizer.sink is not None
    ):
        return "the normalizer is not a softmax of fixed temperature without a sink"
    if call.bias is not None:
        return "a bias would make torch hold all Q × K scores"
    return "dropout would make torch hold all Q × K weights" if call.dropout > 0 else None


def _unsupported_mask(call: Call) -> str | None:
    if call.mask is None or all_visible(call):
        return None
    if causal_from_the_start(call):
        if _judges_values(call) and not call.finite:
            return "torch would leak NaN or infinity from masked keys"
        return None
    if not isinstance(call.mask, Mask) or not call.mask.by_key:
        return "torch would hold this mask as Q × K numbers"
    allowed, _ = _key_mask(call)
    per_head = len(call.batch) > 1 and allowed.shape[-3] != 1
    return (
        "torch takes grouped heads and a mask a head apart"
        if per_head or (len(call.batch) == 1 and call.key.ndim < 3)
        else None
    )


def _unsupported_mode(call: Call) -> str | None:
    if call.transformed:
        return "torch.func transforms do not pass through torch's fused kernels"
    projected = call.score.as_dot(call.query[..., :0, :], call.key[..., :0, :])[
        :2
    ]  # the score may hold a tensor with a tangent
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in (call.query, call.key, call.value, *projected)):
        return "torch's fused kernels have no forward-mode derivative"
    return None


def _unsupported_shape(call: Call) -> str | None:
    if 0 in (*call.batch, call.queries, call.keys, call.query.shape[-1], call.value.shape[-1]):
        return "an empty dimension"
    kind = call.query.device.type
    if kind == "cpu":
        return "key and value of different widths make torch hold all weights" if _widths(call) else None
    if kind != "cuda":
        return f"torch's kernels on {kind} are not known to be linear in memory"
    if _grouped(call) or _widths(call):
        return "torch may hold all weights for grouped heads or different widths on this device"
    four = [_four(tensor, call.batch) for tensor in (call.query, call.key, call.value)]
    params = torch.backends.cuda.SDPAParams(*four, None, 0.0, causal_from_the_start(call), False)  # type: ignore[call-arg]
    able = torch.backends.cuda.can_use_flash_attention(params) or torch.backends.cuda.can_use_efficient_attention(params)
    return None if able else "torch has no fused kernel for this dtype and shape on this GPU"


def _widths(call: Call) -> bool:
    projected, _, _ = call.score.as_dot(call.query[..., :0, :], call.key[..., :0, :])
    return projected.shape[-1] != call.value.shape[-1]
