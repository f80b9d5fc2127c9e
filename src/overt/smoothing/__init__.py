"""Parameter-free self-attention on series and vectors, in NumPy.

The sequence's own numbers are queries, keys and values; nothing is trained. From the bottom up: `data` reads and checks the input,
`heads` compute attention with each kind of keys, `selection` estimates noise and risk and mixes the heads, `api` has `smooth` and
`analyze`, and `result` what they return. `vectors` is the same mechanism on vectors. On these stand `streaming`, the causal
form point by point, `estimator` for scikit-learn, and `batch`, for many series.
"""

from typing import TYPE_CHECKING, Any

from overt.errors import MissingExtra
from overt.smoothing.api import analyze, smooth
from overt.smoothing.reporting.columns import Columns, analyze_columns
from overt.smoothing.reporting.comparison import Comparison, compare
from overt.smoothing.reporting.demonstration import Demonstration, demonstration
from overt.smoothing.result import Smoothing
from overt.smoothing.streaming.online import Online
from overt.smoothing.vectors import Reweighted, reweight

if TYPE_CHECKING:
    from overt.smoothing.estimator import AttentionSmoother

__all__ = [
    "AttentionSmoother",
    "Columns",
    "Comparison",
    "Demonstration",
    "Online",
    "Reweighted",
    "Smoothing",
    "analyze",
    "analyze_columns",
    "compare",
    "demonstration",
    "reweight",
    "smooth",
]


def __getattr__(name: str) -> Any:
    if name != "AttentionSmoother":
        raise AttributeError(f"module 'overt.smoothing' has no attribute {name!r}")
    try:
        from overt.smoothing.estimator import AttentionSmoother
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        raise MissingExtra("overt.smoothing.AttentionSmoother", needs="sklearn", extra="smooth") from error
    globals()[name] = AttentionSmoother
    return AttentionSmoother
