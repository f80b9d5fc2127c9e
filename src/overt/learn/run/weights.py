"""A model's weights by name, for files: a matrix with several names is stored once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from overt.errors import InputError


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, on the CPU; a matrix with several names has the first one.

    >>> get_weights(nn.Linear(2, 1)).keys()
    dict_keys(['weight', 'bias'])
    """
    return {name: tensor.detach().cpu().contiguous() for name, tensor in _unique_tensors(model).items()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy weights into a model, in place; `source` is their origin in error messages.

    Raises InputError for a name that is missing, left over or of another shape; the model is then unchanged.
    """
    check_weights(model, weights, source)
    with torch.no_grad():
        for name, tensor in _unique_tensors(model).items():
            tensor.copy_(weights[name])


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Raise InputError for weights whose names, shapes or kinds of number differ from the model's.

    The model may be on the "meta" device, which needs no memory.
    """
    tensors = _unique_tensors(model)
    for name in sorted(tensors.keys() | weights.keys()):
        if name not in tensors or name not in weights:
            expected = f"{source} to hold the weights of this model"
            got = f"{name} only in {'the file' if name in weights else 'the model'}"
        elif tensors[name].shape != weights[name].shape:
            expected = f"{source} to hold weights with the model's shapes"
            got = f"{name} {tuple(weights[name].shape)} in the file, {tuple(tensors[name].shape)} in the model"
        elif tensors[name].is_floating_point() and not weights[name].is_floating_point():
            expected, got = f"{source} to hold floating-point weights", f"{name} of {weights[name].dtype}"
        else:
            continue
        raise InputError(expected, got=got, fix="build the model with the sizes and the vocabulary that it was saved with")


def _unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Each tensor by its first name; on the "meta" device, without memory, tensors are compared by identity."""
    first: dict[Any, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first.setdefault((id(tensor) if tensor.is_meta else tensor.data_ptr(), tensor.shape), name)
    return {name: tensor for name, tensor in model.state_dict().items() if name in first.values()}
