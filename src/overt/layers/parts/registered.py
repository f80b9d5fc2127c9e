"""A score, normalizer or bias that a caller passes to a layer: its tensors become the layer's."""

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

SAVED_NAME = "given"  # the name of a caller's module in state dicts; saved models contain it, so it never changes


class RegisteredPiece(nn.Module):
    """A score, normalizer or bias whose tensors train, move and are saved with the layer.

    Pieces are frozen, so a layer that stored the object would keep its tensors in their original place. Here
    they are registered, parameters as parameters and other tensors as buffers, and `current()` builds the piece from them.

    >>> import torch, overt
    >>> registered = RegisteredPiece(overt.Bilinear(nn.Parameter(torch.eye(2))))
    >>> [name for name, _ in registered.named_parameters()], registered.double().current().weight.dtype
    (['weight'], torch.float64)
    """

    def __init__(self, piece: Any):
        super().__init__()
        settings: dict[str, Any] = {}
        if is_dataclass(piece) and not isinstance(piece, type):
            settings = {field.name: getattr(piece, field.name) for field in fields(piece) if field.init}
        self.tensors: tuple[str, ...] = tuple(name for name, value in settings.items() if isinstance(value, Tensor))
        if not self.tensors:
            setattr(self, SAVED_NAME, piece)
            return
        self.kind: type[Any] = type(piece)
        self.settings: dict[str, Any] = {name: value for name, value in settings.items() if name not in self.tensors}
        for name in self.tensors:
            if isinstance(settings[name], nn.Parameter):
                self.register_parameter(name, settings[name])
            else:
                self.register_buffer(name, settings[name])

    def current(self) -> Any:
        """The piece with its current tensors."""
        if not self.tensors:
            return getattr(self, SAVED_NAME)
        return self.kind(**self.settings, **{name: getattr(self, name) for name in self.tensors})

    def extra_repr(self) -> str:
        """The piece's class."""
        if self.tensors:
            return self.kind.__name__
        piece = getattr(self, SAVED_NAME)
        return "" if isinstance(piece, nn.Module) else getattr(piece, "__name__", repr(piece))
