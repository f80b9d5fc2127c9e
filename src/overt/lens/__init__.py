"""The lens: look into any model's attention, with every number recomputed and compared with the model's own.

`record` looks into a model that runs, and `load` reads a recording that was saved; `rollout`, `norm_weights`, `alignment`, `compare`
and `ablate` ask more of it. `Explanation` is one word's attention, ready to be drawn. Names are loaded when they are first touched,
so that drawing an explanation needs no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overt.explain.explanation import Explanation, Link, Looks, StepRow, Timing
    from overt.lens.analysis.ablation import ablate, without_heads
    from overt.lens.analysis.comparison import compare
    from overt.lens.analysis.norms import norm_weights
    from overt.lens.analysis.rollout import mean_attention, rollout
    from overt.lens.analysis.word_alignment import alignment
    from overt.lens.head import Head
    from overt.lens.patches import overlay_patches
    from overt.lens.recording import Recording, record
    from overt.lens.statistics.roles import Role
    from overt.lens.storage.saving import load

_HOMES = {
    "overt.explain.explanation": ["Explanation", "Link", "Looks", "StepRow", "Timing"],
    "overt.lens.head": ["Head"],
    "overt.lens.patches": ["overlay_patches"],
    "overt.lens.analysis.ablation": ["ablate", "without_heads"],
    "overt.lens.analysis.word_alignment": ["alignment"],
    "overt.lens.analysis.comparison": ["compare"],
    "overt.lens.analysis.norms": ["norm_weights"],
    "overt.lens.analysis.rollout": ["mean_attention", "rollout"],
    "overt.lens.recording": ["Recording", "record"],
    "overt.lens.statistics.roles": ["Role"],
    "overt.lens.storage.saving": ["load"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_WITHOUT_TORCH = set(_HOMES["overt.explain.explanation"])

__all__ = [
    "Explanation",
    "Head",
    "Link",
    "Looks",
    "Recording",
    "Role",
    "StepRow",
    "Timing",
    "ablate",
    "alignment",
    "compare",
    "load",
    "mean_attention",
    "norm_weights",
    "overlay_patches",
    "record",
    "rollout",
    "without_heads",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'overt.lens' has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(_HOME_OF[name]), name)
    except ModuleNotFoundError as error:
        if name in _WITHOUT_TORCH or error.name not in {"torch", "jaxtyping"}:
            raise
        from overt.errors import MissingExtra

        raise MissingExtra(f"overt.lens.{name}", needs=error.name, extra="torch") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
