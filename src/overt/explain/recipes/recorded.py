"""Calls of attention that a recipe makes itself, recorded like those of any model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from overt.attention.mechanism import attend
from overt.lens.recording import Recording, record


class _Layer(nn.Module):
    def __init__(self, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]):
        super().__init__()
        self.inputs, self.options = (query, key, value), options

    def forward(self) -> None:
        attend(*self.inputs, **self.options)


class _Recipe(nn.Module):
    def __init__(self, layers: Sequence[_Layer]):
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self) -> None:
        for layer in self.layer:
            layer()


def _batched(tensor: Tensor) -> Tensor:
    return tensor.reshape(1, -1, *tensor.shape[-2:])  # (1, H, N, D)


@torch.no_grad()
def recorded(
    layers: Sequence[tuple[Tensor, Tensor, Tensor, dict[str, Any]]], query_tokens: list[str], key_tokens: list[str]
) -> Recording:
    """Run `attend(query, key, value, **options)` for each layer, (H, N, D) or (N, D), under `record`.

    >>> import torch
    >>> x = torch.eye(2)
    >>> recorded([(x, x, x, {})], ["a", "b"], ["a", "b"])[0, 0].weights().shape
    torch.Size([1, 2, 2])
    """
    model = _Recipe([_Layer(_batched(query), _batched(key), _batched(value), options) for query, key, value, options in layers])
    with record(model, query_tokens=query_tokens, key_tokens=key_tokens) as recording:
        model()
    return recording
