"""All gradients of a model in one vector: zeroed, summed over processes, divided and clipped in one call each."""

import torch
from torch import Tensor, nn


class Gradient:
    """Lets every parameter's `.grad` be a view of one vector.

    A parameter that a loss does not use then has the gradient 0, on one process as on many.

    >>> layer = nn.Linear(2, 1)
    >>> gradient = Gradient(layer)
    >>> layer(torch.ones(1, 2)).sum().backward()
    >>> gradient.vector
    tensor([1., 1., 1.])
    """

    def __init__(self, model: nn.Module):
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.vector = torch.zeros(
            sum(each.numel() for each in parameters), dtype=parameters[0].dtype, device=parameters[0].device
        )
        for parameter, piece in zip(parameters, self.vector.split([each.numel() for each in parameters]), strict=True):
            parameter.grad = piece.view_as(parameter)

    def divide(self, by: float, longest: float | None) -> Tensor:
        """Divide the vector, and then shorten it to at most `longest`; gives the length between the two."""
        length = self.vector.norm() / by
        shortened = 1.0 if longest is None else (longest / (length + 1e-6)).clamp(max=1.0)
        self.vector.mul_(shortened / by)
        return length
