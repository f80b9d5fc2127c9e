"""overt: attention computed exactly, at any length, fast, with nothing hidden.

Every name below is loaded when it is first touched, so that `import overt` is quick and what needs no torch never loads it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overt import errors, explain, integrations, layers, learn, lens, models, smoothing
    from overt.attention import biases, masks, normalizers, scores
    from overt.attention.biases import ALiBi, RelativePositionBias
    from overt.attention.kernels.plan import Plan, plan, use_path
    from overt.attention.masks import Causal, Documents, Lengths, Window
    from overt.attention.mechanism import attend
    from overt.attention.normalizers import Entmax, Softmax, Sparsemax
    from overt.attention.scores import Additive, Bilinear, Cosine, Dot, Gaussian
    from overt.attention.summary import Summary, summarize
    from overt.attention.trace import Steps, steps
    from overt.smoothing import smooth

__version__ = "0.2.0"

_HOMES = {
    "overt.attention.mechanism": ["attend"],
    "overt.attention.trace": ["steps", "Steps"],
    "overt.attention.summary": ["summarize", "Summary"],
    "overt.attention.kernels.plan": ["plan", "Plan", "use_path"],
    "overt.attention.scores": ["Dot", "Bilinear", "Additive", "Cosine", "Gaussian"],
    "overt.attention.masks": ["Causal", "Window", "Lengths", "Documents"],
    "overt.attention.biases": ["ALiBi", "RelativePositionBias"],
    "overt.attention.normalizers": ["Softmax", "Sparsemax", "Entmax"],
    "overt.smoothing": ["smooth"],
}
_MODULES = {
    name: f"overt.{name}" for name in ["errors", "explain", "integrations", "layers", "learn", "lens", "models", "smoothing"]
}
_MODULES |= {name: f"overt.attention.{name}" for name in ["biases", "masks", "normalizers", "scores"]}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_WITHOUT_TORCH = {"smooth"}
# What may be missing, and the extra that brings it.
_EXTRAS = {"torch": "torch", "jaxtyping": "torch", "safetensors": "text", "tokenizers": "text", "transformers": "text"}

__all__ = [
    "ALiBi", "Additive", "Bilinear", "Causal", "Cosine", "Documents", "Dot", "Entmax", "Gaussian", "Lengths",
    "Plan", "RelativePositionBias", "Softmax", "Sparsemax", "Steps", "Summary", "Window", "__version__",
    "attend", "biases", "errors", "explain", "integrations", "layers", "learn", "lens", "masks", "models", "normalizers", "plan",
    "scores", "smooth", "smoothing", "steps", "summarize", "use_path",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker that saw this would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES and name not in _HOME_OF:
            raise AttributeError(f"module 'overt' has no attribute {name!r}")
        try:
            module = importlib.import_module(_HOME_OF.get(name) or _MODULES[name])
        except ModuleNotFoundError as error:
            if name in _WITHOUT_TORCH or error.name not in _EXTRAS:
                raise
            from overt.errors import MissingExtra

            raise MissingExtra(f"overt.{name}", needs=error.name, extra=_EXTRAS[error.name]) from error
        value = getattr(module, name) if name in _HOME_OF else module
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
