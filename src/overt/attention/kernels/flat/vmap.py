"""vmap over the native operators: the mapped dimension becomes one more batch dimension, and one call computes all entries."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.flat import mask_program
from overt.errors import InputError

# _TRAILING_DIMS: the number of dimensions of each tensor after the batch.
_TRAILING_DIMS = {"query": 2, "key": 2, "value": 2, "weight": 1, "constants": 1, "sink": 0, "inverse_temperature": 0}
_TRAILING_DIMS |= {"alphas": 0, "scale": 0, "bias_of_queries": 1, "bias_of_keys": 1}
_RESULTS = {"output": 2, "upstream": 2, "lse": 1, "sums": 2}  # results of the forward pass: one for each batch entry


def batched(operator: str) -> Callable[..., Any]:
    """The vmap rule of `torch.ops.overt.<operator>`."""

    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        function = getattr(torch.ops.overt, operator).default
        names = [argument.name for argument in function._schema.arguments]
        arguments, mapped = dict(zip(names, inputs, strict=True)), dict(zip(names, in_dims, strict=True))
        if mapped.get("seed") is not None:
            raise InputError(
                "one seed of dropout for a call of vmap", got="a seed for each", fix='pass randomness="same" to vmap'
            )
        batch, bias = arguments["batch"], arguments.get("bias")
        shared = [name for name in _RESULTS if arguments.get(name) is not None]
        if operator.endswith(("_gradients", "_second")) and bias is not None:
            shared.append("bias")  # each entry has its own gradient, even of a shared bias
        for name in shared:
            if mapped[name] is None:
                arguments[name], mapped[name] = arguments[name].expand(info.batch_size, *arguments[name].shape), 0
        for name, trailing in _trailing_dims(arguments):
            if name == "arrays":
                dims = mapped["arrays"] or [None] * len(trailing)
                arrays = zip(arguments["arrays"], dims, trailing, strict=True)
                arguments["arrays"] = [_with_leading_dim(*array, len(batch)) for array in arrays]
            elif arguments[name] is not None:
                arguments[name] = _with_leading_dim(arguments[name], mapped[name], trailing, len(batch))
        arguments["batch"] = (info.batch_size, *batch)
        results = function(*arguments.values())
        if isinstance(results, Tensor):
            return results, 0
        return results, tuple(0 if tensor.ndim else None for tensor in results)  # the mapped dimension, if there is one

    return rule


def _trailing_dims(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    known = _TRAILING_DIMS | _RESULTS
    for name in arguments:
        base_name = name.removesuffix("_direction")  # a direction has its input's dimensions
        if base_name in known:
            yield name, known[base_name]
        elif base_name == "bias":
            yield name, 1 if arguments["by_distance"] else 2
        elif name == "arrays":
            yield name, [dims for step in arguments["program"] for dims in mask_program.TRAILING_DIMS.get(step, [])]


def _with_leading_dim(tensor: Tensor, dim: int | None, trailing: int, leading: int) -> Tensor:
    """The mapped dimension first, then the batch, with size 1 for missing dimensions, then the trailing dimensions."""
    if dim is None:
        return tensor
    tensor = tensor.movedim(dim, 0)
    ones = (1,) * (1 + leading + trailing - tensor.ndim)
    return tensor.reshape(tensor.shape[0], *ones, *tensor.shape[1:])
