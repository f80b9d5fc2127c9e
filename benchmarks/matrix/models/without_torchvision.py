"""timm imported where torchvision is not: of all that it imports from there, the models themselves need one class.

torchvision's wheel has to be built for the very torch that is installed, and breaks every import of transformers where it is not.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import torch
from torch import nn


def import_timm() -> bool:
    """Make timm importable; whether it is."""
    if importlib.util.find_spec("timm") is None:
        return False
    if importlib.util.find_spec("torchvision") is None:
        finder = _Finder()
        sys.meta_path.append(finder)
        try:
            import timm  # noqa: F401
        finally:
            sys.meta_path.remove(finder)
            for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
    return True


def tell_transformers() -> None:
    """Let transformers build the models that stand on timm: it asks for torchvision too, which they do not use."""
    from transformers import utils
    from transformers.utils import import_utils

    utils.is_timm_available = import_utils.is_timm_available = lambda: True
    import_utils.BACKENDS_MAPPING["timm"] = (import_utils.is_timm_available, import_utils.TIMM_IMPORT_ERROR)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of torchvision in which every name is an empty class."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        pass


class _Empty(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        member = FrozenBatchNorm2d if name == "FrozenBatchNorm2d" else _AnythingOfIt(name, (), {})
        setattr(self, name, member)
        return member


class _AnythingOfIt(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        member = _AnythingOfIt(name, (), {})
        setattr(cls, name, member)
        return member


class FrozenBatchNorm2d(nn.Module):
    """Batch normalization with statistics that stay."""

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((num_features,), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize (B, C, H, W)."""
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]
