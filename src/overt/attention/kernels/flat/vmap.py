"""vmap over the native operators: a mapped dimension becomes one more leading dimension of the batch, and one call serves all."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.flat import mask_program
from overt.errors import InputError

# How many dimensions each tensor has of its own, after those of the batch.
_OWN = {"query": 2, "key": 2, "value": 2, "weight": 1, "sink": 0, "heat": 0, "scale": 0, "output": 2, "upstream": 2}
_OWN |= {"lse": 1, "sums": 2}


def batched(operator: str) -> Callable[..., Any]:
    """The rule by which vmap maps `torch.ops.overt.<operator>`."""

    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        called = getattr(torch.ops.overt, operator).default
        names = [argument.name for argument in called._schema.arguments]
        given, mapped = dict(zip(names, inputs, strict=True)), dict(zip(names, in_dims, strict=True))
        if mapped.get("seed") is not None:
            raise InputError("one call of vmap has one seed of dropout", fix='pass randomness="same" to vmap')
        batch, bias = given["batch"], given.get("bias")
        if operator.endswith("_gradients") and bias is not None and mapped["bias"] is None:
            # Each entry has a gradient of its own, where they share the bias too.
            given["bias"], mapped["bias"] = bias.expand(info.batch_size, *bias.shape), 0
        for name, own in _own_dimensions(given):
            if name == "arrays":
                dims = mapped["arrays"] or [None] * len(own)
                given[name] = [_led(*each, len(batch)) for each in zip(given[name], dims, own, strict=True)]
            elif given[name] is not None:
                given[name] = _led(given[name], mapped[name], own, len(batch))
        given["batch"] = (info.batch_size, *batch)
        found = called(*given.values())
        return _with_dims(found)

    return rule


def _own_dimensions(given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in given:
        if name in _OWN:
            yield name, _OWN[name]
        elif name == "bias":
            yield name, 1 if given["by_distance"] else 2
        elif name == "arrays":
            yield name, [own for step in given["program"] for own in mask_program.TRAILING_DIMS.get(step, [])]


def _led(tensor: Tensor, dim: int | None, own: int, leading: int) -> Tensor:
    """The mapped dimension first, with room for the batch between it and the tensor's own ones."""
    if dim is None:
        return tensor
    tensor = tensor.movedim(dim, 0)
    room = (1,) * (1 + leading + own - tensor.ndim)
    return tensor.reshape(tensor.shape[0], *room, *tensor.shape[1:])


def _with_dims(found: Any) -> tuple[Any, Any]:
    """Results, and which dimension of each is the mapped one: the first, if there is any."""
    if isinstance(found, Tensor):
        return found, 0
    return found, tuple(0 if tensor.ndim else None for tensor in found)
