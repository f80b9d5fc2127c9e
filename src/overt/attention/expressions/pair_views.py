"""Handlers of views of pairs: permuted dimensions, dimensions of size 1 added or removed, or expansion."""

from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.pair_functions import numberless, recorded
from overt.attention.expressions.stand_ins import StandIn, Trace, Untraceable, as_meta, common_shape


def expand(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Expand a tensor to the size of another, without a copy."""
    if name == "broadcast_tensors":
        shape = common_shape(*(one.shape for one in arguments))
        return tuple(one.expand(shape) for one in arguments)
    value = arguments[0]
    if name in ("repeat", "tile"):
        times = arguments[1:] if len(arguments) != 2 or isinstance(arguments[1], int) else arguments[1]
        sizes = (1,) * (len(times) - value.ndim) + tuple(value.shape)
        times = (1,) * (len(sizes) - len(times)) + tuple(times)
        if any(size != 1 and count != 1 for size, count in zip(sizes, times, strict=True)):
            raise Untraceable(f"{name} of more than one row")
        return value.expand(*(size * count for size, count in zip(sizes, times, strict=True)))
    meta = function(*map(as_meta, arguments), **{key: as_meta(part) for key, part in options.items()})
    trace.log[-1] = name  # the sizes do not belong to the structure
    result = recorded(trace, meta, "expand", trace.operand(value))
    if isinstance(value, StandIn):
        source = value if value.vectors is not None else getattr(value, "source", None)
        result.source = source  # type: ignore[attr-defined]
        result.aliased = value.aliased = True
    return result


def view(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Permute dimensions, or add and remove dimensions of size 1."""
    value = arguments[0]
    if not isinstance(value, StandIn):
        raise Untraceable(f"{name} of a captured tensor by pairs")
    meta = function(*map(as_meta, arguments), **options)
    order = _order(function, value.meta, arguments, options, meta)
    value.aliased = True
    result = recorded(trace, meta, "view", trace.operand(value), order=order)
    result.aliased = True
    source = getattr(value, "source", None)
    if source is not None and name in ("unsqueeze", "squeeze"):
        result.source = None  # type: ignore[attr-defined]
    return result


def _order(
    function: Any, before: Tensor, arguments: tuple[Any, ...], options: dict[str, Any], after: Tensor
) -> tuple[int, ...]:
    """The input dimension of each dimension of the result; −1 for a new dimension of size 1."""
    # Strides identify dimensions: each stride of the probe is different.
    probe = torch.empty(before.shape, dtype=before.dtype, device="meta")
    large = [index for index, size in enumerate(before.shape) if size != 1]
    strides = (
        dict(zip(probe.stride(), range(probe.ndim), strict=True))
        if len(large) == probe.ndim
        else {probe.stride(index): index for index in large}
    )
    viewed = function(probe, *arguments[1:], **options)
    order = []
    for size, stride in zip(viewed.shape, viewed.stride(), strict=True):
        index = -1 if size == 1 else strides.get(stride, -2)
        if index == -2 or (index >= 0 and before.shape[index] != size):
            raise Untraceable("another shape of pairs, in which dimensions are joined or cut")
        order.append(index)
    present = {index for index in order if index >= 0}
    if present != set(large) or viewed.storage_offset():
        raise Untraceable("a part of the pairs, or dimensions joined")
    return tuple(order)


def unchanged(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A copy, or a cast that changes no numbers except bool to number."""
    value = arguments[0]
    meta = numberless(
        value.meta.shape, function(torch.empty(0, dtype=value.meta.dtype), *map(as_meta, arguments[1:]), **options).dtype
    )
    if meta.dtype == value.meta.dtype:
        return recorded(trace, meta, "expand", trace.operand(value)) if name == "clone" else value
    if value.meta.dtype == torch.bool and meta.dtype == trace.dtype:
        return recorded(trace, meta, "expand", trace.operand(value))
    raise Untraceable(f"pairs are cast from {value.meta.dtype} to {meta.dtype}")


def dropout(trace: Trace, name: str, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A dropout that is disabled."""
    return arguments[0]
