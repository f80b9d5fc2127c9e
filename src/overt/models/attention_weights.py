"""The weights of every attention in a model: each layer is asked again what it was asked in a forward pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn


def weights_of(layers: Mapping[str, Sequence[nn.Module]], run: Callable[[], Any]) -> dict[str, list[Tensor]]:
    """The weights of these attention layers while `run()` runs the model, each `layer.weights` of the layer's own inputs.

    >>> import torch
    >>> from overt.layers import SelfAttention
    >>> layer = SelfAttention(4)
    >>> found = weights_of({"only": [layer]}, lambda: layer(torch.randn(2, 3, 4)))
    >>> found["only"][0].shape
    torch.Size([2, 3, 3])
    """
    asked: dict[nn.Module, tuple[tuple, dict[str, Any]]] = {}

    def notice(layer: nn.Module, given: tuple, options: dict[str, Any]) -> None:
        asked[layer] = given, options

    hooks = [layer.register_forward_pre_hook(notice, with_kwargs=True) for each in layers.values() for layer in each]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return {name: [layer.weights(*asked[layer][0], **asked[layer][1]) for layer in each] for name, each in layers.items()}  # type: ignore[operator]
