"""The short path of a plain call: tensors on the CPU, a dot product under a softmax, a mask of numbers or none.

Most calls are plain, and checking and planning a small one takes longer than its kernel. This path never raises: any other call,
including an invalid one, takes the full path, which reports errors.
"""

import math
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad

from overt import native
from overt.attention.kernels import plan
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat import derivatives, mask_program
from overt.attention.kernels.flat.derivatives import Flat, TensorIndices
from overt.attention.kernels.flat.dot import DotInputs, dot
from overt.attention.kernels.flat.normalizer import KINDS, NormalizerForm, as_form, sums_shape
from overt.attention.kernels.flat.operator import INTERPRETED, needs_dispatcher
from overt.attention.masks.base import NAMED, Mask
from overt.attention.normalizers import Entmax, Softmax
from overt.attention.scores import Dot

_DTYPES = (torch.float32, torch.float64)  # in half precision the plan depends on the lengths
_NUMBER_OR_NONE = (float, NoneType)


def plain(
    query: Any,
    key: Any,
    value: Any,
    score: Any = None,
    mask: Any = None,
    bias: Any = None,
    normalizer: Any = None,
    dropout: Any = 0,
) -> Any:
    """The output (..., Q, E) of a plain call; None if the call needs the full path."""
    if torch._C._len_torch_function_stack():  # first: under a mode, reading a dtype is a call that the mode sees
        return None
    if needs_dispatcher(query, key, value) or query is None or key is None or value is None or not _eager(query, key, value):
        return None
    if bias is not None or dropout != 0 or key.shape[:-1] != value.shape[:-1]:
        return None
    factors, steps, form = _factors(score, query), _steps(mask, query, key), _form(normalizer)
    if factors is None or steps is None or form is None:
        return None
    numbers = (*factors, *steps, None, False, None, None, *form, 0.0, 0, native.threads())
    try:
        if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
            output: Any = _Differentiable.apply(query, key, value, numbers)
        else:
            output = _output(query, value)
            native.module().dot(query, key, value, *numbers, output, None)
    except (TypeError, ValueError, RuntimeError):  # shapes, strides, dtypes, layouts or devices that the core does not support
        return None
    return output


class _Differentiable(torch.autograd.Function):
    """A plain call with gradients."""

    @staticmethod
    def forward(ctx, query, key, value, numbers):  # type: ignore[override]
        output = _output(query, value)
        sums = query.new_empty((*query.shape[:-2], *sums_shape(numbers[8], query.shape[-2])))
        native.module().dot(query, key, value, *numbers, output, sums)
        ctx.save_for_backward(query, key, value, output, sums)
        ctx.numbers = numbers
        return output

    @staticmethod
    def backward(ctx, upstream):  # type: ignore[override]
        query, key, value, output, sums = ctx.saved_tensors
        twice = torch.is_grad_enabled() or is_legacy_batchedtensor(upstream)
        if twice or needs_dispatcher(upstream, query) or key.shape[:-2] != query.shape[:-2]:
            scale, softcap, *others, _, _ = ctx.numbers  # without the seed and the threads
            inputs = DotInputs(query, key, value, scale, softcap, list(query.shape[:-2]), *others, seed=None)
            call, tensors = Flat.split(dot, inputs)
            which = TensorIndices(index for index in range(3) if ctx.needs_input_grad[index])
            return *derivatives.gradients(call, which, (output, sums), upstream, tensors)[:3], None
        gradients = _like(query), _like(key), _like(value)
        if upstream.is_neg() or not upstream.is_contiguous():
            upstream = upstream.contiguous().resolve_neg()
        native.module().dot_gradients(query, key, value, *ctx.numbers, output, sums, upstream, *gradients, None, None)
        return *gradients, None


def _output(query: Tensor, value: Tensor) -> Tensor:
    """An empty tensor for the output."""
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _like(tensor: Tensor) -> Tensor:
    """An empty tensor for the gradient."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _eager(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the native core can read these tensors, and no torch mode is active."""
    return (
        query.dtype in _DTYPES
        and query.is_cpu
        and not (query.is_nested or key.is_nested or value.is_nested)
        and query.ndim >= 2 <= key.ndim
        and not (query.is_neg() or key.is_neg() or value.is_neg())
        and plan.permits("native")
        and not flat_call.MISSING
        and native.level() != "baseline"
        and not INTERPRETED
        and not torch.is_autocast_enabled("cpu")
        and not torch.jit.is_tracing()  # type: ignore[reportPrivateImportUsage]
        and forward_ad._current_level < 0
    )


def _factors(score: Any, query: Tensor) -> Any:
    """Scale and softcap; 0 is no softcap."""
    width = query.shape[-1] or 1
    if score is None:
        return 1 / math.sqrt(width), 0.0
    if type(score) is not Dot or type(score.scale) not in _NUMBER_OR_NONE or type(score.softcap) not in _NUMBER_OR_NONE:
        return None
    scale, softcap = score.scale, score.softcap
    if (softcap is not None and not 0 < softcap < math.inf) or (scale is not None and not -math.inf < scale < math.inf):
        return None
    return 1 / math.sqrt(width) if scale is None else scale, softcap or 0.0


def _steps(mask: Any, query: Tensor, key: Tensor) -> tuple[list[int], list[Tensor]] | None:
    """The mask's program and its arrays."""
    if mask is None:
        return [], []
    mask = NAMED.get(mask) if type(mask) is str else mask
    queries, keys = query.shape[-2], key.shape[-2]
    if not isinstance(mask, Mask) or mask.numbers is None or not mask.has_row_ranges or queries > mask_program.MAX_CACHED:
        return None
    return [mask_program.RANGES], mask_program.cached_ranges(type(mask), mask.numbers, queries, keys)


def _form(normalizer: Any) -> NormalizerForm | None:
    """The form of a normalizer without tensors; None for others."""
    if normalizer is None:
        return NormalizerForm()
    kind = type(normalizer)
    if kind is Softmax:
        plain = normalizer.sink is None and normalizer.temperature is Softmax.temperature
    else:
        plain = kind in KINDS and (kind is not Entmax or (type(normalizer.alpha) is float and 1 < normalizer.alpha <= 2))
    return as_form(normalizer) if plain else None
