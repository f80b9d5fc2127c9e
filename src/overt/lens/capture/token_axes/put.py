"""The places of numbers in functions that put them where an index says."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.lens.capture.token_axes.labels import FunctionCall, is_numbers
from overt.lens.capture.token_axes.origins import counted, shrunk
from overt.lens.capture.token_axes.taken import by_entries
from overt.lens.storage.tensor_cache import unexpanded

_ADDED = {"index_add", "index_copy", "index_reduce"}
_SCATTERED = {"scatter", "scatter_add", "scatter_reduce"}
PUTS = _ADDED | _SCATTERED | {"index_put", "__setitem__", "masked_scatter", "segment_reduce"}


class Slots(NamedTuple):
    """The places in dimension `dim` of `target` for the numbers of `value`; `slots` has as many dimensions as `value`.

    `apart` is true if value and target share the other dimensions, `added` if the numbers are added to the target's.
    """

    target: Tensor
    value: Tensor
    dim: int
    slots: Tensor
    apart: bool = True
    added: bool = False


def put(step: FunctionCall) -> list[Slots]:
    """The slots of a function that puts a tensor's numbers, for each indexed dimension; empty for other functions."""
    if step.name in _ADDED or step.name in _SCATTERED:
        return _along(step)
    if step.name in ("index_put", "__setitem__"):
        added = step.name == "index_put" and bool(step.argument(3, "accumulate", False))
        return [
            entry._replace(added=added)
            for entry in _entries(step.args[0], step.argument(1, "indices"), step.argument(2, "values"))
        ]
    if step.name == "masked_scatter":
        target, mask, value = step.args[0], step.argument(1, "mask"), step.argument(2, "source")
        rows = unexpanded(mask.expand(target.shape))
        if rows.shape[-1] != 1 or value.shape[-1:] != target.shape[-1:]:
            return []
        index = rows.expand(*target.shape[:-1], 1)[..., 0]
        return _entries(target, index, value.reshape(-1, value.shape[-1])[: int(index.sum())]) if value.ndim == 2 else []
    if step.name == "segment_reduce":
        return _segments(step)
    return []


def _along(step: FunctionCall) -> list[Slots]:
    target, dim, index, value = step.args[0], step.argument(1, "dim"), step.argument(2, "index"), None
    for name in ("source", "src"):
        value = step.argument(3, name) if value is None else value
    if not is_numbers(value) or not target.ndim:
        return []
    dim = dim % target.ndim
    added = step.name not in ("index_copy", "scatter")
    if step.name in _ADDED:
        return [Slots(target, value, dim, index.reshape(*(1,) * dim, -1, *(1,) * (value.ndim - 1 - dim)), added=added)]
    return [Slots(target, value, dim, shrunk(index, keep=dim), added=added)] if index.shape == value.shape else []


def _entries(target: Tensor, index: Any, value: Any) -> list[Slots]:
    if not is_numbers(value) or not is_numbers(target):
        return []
    index = tuple(index) if isinstance(index, list) and any(isinstance(item, Tensor) for item in index) else index
    result = []
    for dim, size in enumerate(target.shape):
        slots = by_entries(counted(size, dim, target.ndim, target.device), target.shape, index)
        varying = [part for part, length in enumerate(slots.shape) if length > 1]
        whole = (
            len(varying) == 1
            and slots.numel() == size
            and bool((slots.flatten() == torch.arange(size, device=slots.device)).all())
        )
        if size > 1 and not whole and varying:
            alike = [size for part, size in enumerate(target.shape) if part != dim]
            apart = varying == [dim] and slots.ndim == target.ndim == value.ndim
            apart = apart and [size for part, size in enumerate(value.shape) if part != dim] == alike
            result.append(Slots(target, value, dim, slots, apart))
    return result


def _segments(step: FunctionCall) -> list[Slots]:
    lengths, value = step.kwargs.get("lengths"), step.argument(0, "data")
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or step.kwargs.get("axis", 0) != 0:
        return []
    slots = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    return [Slots(step.outputs[0], value, 0, slots.reshape(-1, *(1,) * (value.ndim - 1)))] if len(slots) == len(value) else []
