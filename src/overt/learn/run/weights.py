"""The weights of a model under their names, each matrix once: what files hold."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from overt.errors import InputError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and kept buffers, on the CPU; a matrix that several names share stands under the first of them.

    >>> weights_of(nn.Linear(2, 1)).keys()
    dict_keys(['weight', 'bias'])
    """
    first = _first_names(model)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items() if first[name] == name}


def take_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Put weights into a model, in place; `source` is where they came from, for the error.

    Raises InputError where a name is missing, left over or of another shape, and then changes nothing.
    """
    check_weights(model, weights, source)
    with torch.no_grad():
        for name, tensor in _own(model).items():
            tensor.copy_(weights[name])


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Refuse weights of which a name is missing or left over, or that have other shapes or kinds than the model's.

    The model may be one on torch's "meta" device, which takes no memory.
    """
    own = _own(model)
    for name in sorted(own.keys() | weights.keys()):
        if name not in own or name not in weights:
            rule, got = (
                f"{source} holds the weights of this model",
                f"{name} only in {'the file' if name in weights else 'the model'}",
            )
        elif own[name].shape != weights[name].shape:
            rule = f"{source} holds weights of the model's shapes"
            got = f"{name} {tuple(weights[name].shape)} in the file, {tuple(own[name].shape)} in the model"
        elif own[name].is_floating_point() and not weights[name].is_floating_point():
            rule, got = f"{source} holds floating-point weights", f"{name} of {weights[name].dtype}"
        else:
            continue
        raise InputError(rule, got=got, fix="build the model with the sizes and the vocabulary that it was saved with")


def _own(model: nn.Module) -> dict[str, Tensor]:
    first = _first_names(model)
    return {name: tensor for name, tensor in model.state_dict().items() if first[name] == name}


def _first_names(model: nn.Module) -> dict[str, str]:
    """For each name the first name of the same tensor; on torch's "meta" device no tensor lies anywhere, and each is itself."""
    first: dict[Any, str] = {}
    tensors = model.state_dict(keep_vars=True).items()
    return {
        name: first.setdefault((id(tensor) if tensor.is_meta else tensor.data_ptr(), tensor.shape), name)
        for name, tensor in tensors
    }
