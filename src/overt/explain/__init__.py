"""The attention of one word, explained: recipes create an `Explanation`; the terminal, a picture or a page draws it.

>>> from overt.explain import Link
>>> Link(layer=5, head=11, index=2, token="animal", weight=0.64).token
'animal'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overt.explain.explanation import Explanation, Link, Looks, StepRow, Timing

__all__ = ["Explanation", "Link", "Looks", "StepRow", "Timing"]


if not TYPE_CHECKING:  # a type checker that read this would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'overt.explain' has no attribute {name!r}")
        value = getattr(importlib.import_module("overt.explain.explanation"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
