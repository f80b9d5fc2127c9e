"""All gradients of a model in one vector: zeroed, summed over processes, divided and clipped in one call each."""

import torch
from torch import Tensor, nn


class FlatGradient:
    """Makes every parameter's `.grad` a view of one vector.

    A parameter that a loss does not use has the gradient 0, on one or many processes.

    >>> layer = nn.Linear(2, 1)
    >>> gradient = FlatGradient(layer)
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> gradient.vector
    tensor([1., 1., 1.])
    """

    def __init__(self, model: nn.Module):
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.vector: Tensor = torch.zeros(
            sum(weight.numel() for weight in parameters), dtype=parameters[0].dtype, device=parameters[0].device
        )
        for parameter, view in zip(parameters, self.vector.split([weight.numel() for weight in parameters]), strict=True):
            parameter.grad = view.view_as(parameter)

    def divide_and_clip(self, divisor: float, max_norm: float | None) -> Tensor:
        """Divide the vector, then clip its norm to `max_norm`; returns the norm before clipping."""
        norm = self.vector.norm() / divisor
        factor = 1.0 if max_norm is None else (max_norm / (norm + 1e-6)).clamp(max=1.0)
        self.vector.mul_(factor / divisor)
        return norm
