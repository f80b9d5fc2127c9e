"""overt: attention computed exactly, at any length, fast, with nothing hidden.

Every name below is loaded when it is first touched, so that `import overt` is quick and what needs no torch never loads it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overt import backends, biases, errors, layers, learn, lens, masks, models, normalizers, scores, smoothing
    from overt.biases import ALiBi, RelativePosition
    from overt.kernels.plan import Plan, path, plan
    from overt.masks import Causal, Dense, Documents, Lengths, Window
    from overt.mechanism import attend
    from overt.normalizers import Entmax, Sigmoid, Softmax, Sparsemax, Sum
    from overt.scores import Additive, Bilinear, Cosine, Dot, Gaussian
    from overt.smoothing import smooth
    from overt.summary import Summary, summarize
    from overt.trace import Steps, steps

__version__ = "0.1.0"

_HOMES = {
    "overt.mechanism": ["attend"],
    "overt.trace": ["steps", "Steps"],
    "overt.summary": ["summarize", "Summary"],
    "overt.kernels.plan": ["plan", "Plan", "path"],
    "overt.scores": ["Dot", "Bilinear", "Additive", "Cosine", "Gaussian"],
    "overt.masks": ["Causal", "Window", "Lengths", "Documents", "Dense"],
    "overt.biases": ["ALiBi", "RelativePosition"],
    "overt.normalizers": ["Softmax", "Sparsemax", "Entmax", "Sigmoid", "Sum"],
    "overt.smoothing": ["smooth"],
}
_MODULES = ["scores", "masks", "biases", "normalizers", "layers", "models", "learn", "lens", "backends", "smoothing", "errors"]
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_WITHOUT_TORCH = {"smooth"}
# What may be missing, and the extra that brings it.
_EXTRAS = {"torch": "torch", "jaxtyping": "torch", "safetensors": "text", "tokenizers": "text", "transformers": "text"}

__all__ = [
    "ALiBi", "Additive", "Bilinear", "Causal", "Cosine", "Dense", "Documents", "Dot", "Entmax", "Gaussian", "Lengths",
    "Plan", "RelativePosition", "Sigmoid", "Softmax", "Sparsemax", "Steps", "Sum", "Summary", "Window", "__version__",
    "attend", "backends", "biases", "errors", "layers", "learn", "lens", "masks", "models", "normalizers", "path", "plan", "scores",
    "smooth", "smoothing", "steps", "summarize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME_OF:
        raise AttributeError(f"module 'overt' has no attribute {name!r}")
    try:
        home = importlib.import_module(_HOME_OF.get(name, f"overt.{name}"))
    except ModuleNotFoundError as error:
        if name in _WITHOUT_TORCH or error.name not in _EXTRAS:
            raise
        from overt.errors import MissingExtra

        raise MissingExtra(f"overt.{name}", needs=error.name, extra=_EXTRAS[error.name]) from error
    found = getattr(home, name) if name in _HOME_OF else home
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
