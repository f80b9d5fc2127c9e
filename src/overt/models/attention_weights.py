"""The weights of every attention in a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn


def attention_weights(layers: Mapping[str, Sequence[nn.Module]], run: Callable[[], Any]) -> dict[str, list[Tensor]]:
    """The weights of these attention layers: `run()` runs the model, then each layer's `weights` is called with its recorded inputs.

    >>> import torch
    >>> from overt.layers import SelfAttention
    >>> layer = SelfAttention(4)
    >>> weights = attention_weights({"only": [layer]}, lambda: layer(torch.randn(2, 3, 4)))
    >>> weights["only"][0].shape
    torch.Size([2, 3, 3])
    """
    inputs: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def capture(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs[layer] = args, kwargs

    hooks = [layer.register_forward_pre_hook(capture, with_kwargs=True) for group in layers.values() for layer in group]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return {name: [layer.weights(*inputs[layer][0], **inputs[layer][1]) for layer in group] for name, group in layers.items()}  # type: ignore[operator]
