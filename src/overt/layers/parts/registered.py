"""A score or normalizer that a caller hands to a layer: the tensors it holds become the layer's own."""

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn


class Held(nn.Module):
    """A score or normalizer whose tensors train, move and are saved with the layer that holds it.

    Scores and normalizers are frozen, so a layer that kept one would keep its tensors where they were when it was built. Here
    they are registered, parameters as parameters and other tensors as buffers, and `now()` builds the piece anew from them.

    >>> import torch, overt
    >>> held = Held(overt.Bilinear(nn.Parameter(torch.eye(2))))
    >>> [name for name, _ in held.named_parameters()], held.double().now().weight.dtype
    (['weight'], torch.float64)
    """

    def __init__(self, given: Any):
        super().__init__()
        held: dict[str, Any] = {}
        if is_dataclass(given) and not isinstance(given, type):
            held = {field.name: getattr(given, field.name) for field in fields(given) if field.init}
        self.names = tuple(name for name, value in held.items() if isinstance(value, Tensor))
        if not self.names:
            self.given = given
            return
        self.kind = type(given)
        self.fixed = {name: value for name, value in held.items() if name not in self.names}
        for name in self.names:
            if isinstance(held[name], nn.Parameter):
                self.register_parameter(name, held[name])
            else:
                self.register_buffer(name, held[name])

    def now(self) -> Any:
        """The piece, with its tensors as they are now."""
        if not self.names:
            return self.given
        return self.kind(**self.fixed, **{name: getattr(self, name) for name in self.names})

    def extra_repr(self) -> str:
        """What is held."""
        if self.names:
            return self.kind.__name__
        return "" if isinstance(self.given, nn.Module) else getattr(self.given, "__name__", repr(self.given))
