"""The weights of a model under their names, each matrix once: what files hold."""

from collections.abc import Mapping

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
    own = {name: tensor for name, tensor in model.state_dict().items() if _first_names(model)[name] == name}
    for name in sorted(own.keys() | weights.keys()):
        if name not in own or name not in weights:
            rule, got = (
                f"{source} holds the weights of this model",
                f"{name} only in {'the file' if name in weights else 'the model'}",
            )
        elif own[name].shape != weights[name].shape:
            rule = f"{source} holds weights of the model's shapes"
            got = f"{name} {tuple(weights[name].shape)} in the file, {tuple(own[name].shape)} in the model"
        else:
            continue
        raise InputError(rule, got=got, cure="build the model with the sizes and the vocabulary that it was saved with")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def _first_names(model: nn.Module) -> dict[str, str]:
    """For each name the first name of the same tensor."""
    first: dict[tuple[int, torch.Size], str] = {}
    return {name: first.setdefault((tensor.data_ptr(), tensor.shape), name) for name, tensor in model.state_dict().items()}
