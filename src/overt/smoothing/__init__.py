"""Parameter-free self-attention on series and vectors, in NumPy.

The numbers of the sequence are queries, keys and values; nothing is trained. From the bottom up: `data` reads and checks the input,
`heads` compute attention with every kind of keys, `selection` estimates noise and risk and mixes the heads, `api` has `smooth` and
`analyze`, `result` is the result of `analyze`. `vectors` is the same mechanism on vectors. Built on these are `streaming`, the causal
form point by point, `estimators` for scikit-learn and aeon, and `batch`, for many series.
"""

from typing import TYPE_CHECKING, Any

from overt.errors import MissingExtra
from overt.smoothing.api import analyze, smooth
from overt.smoothing.reporting.columns import Columns, analyze_columns
from overt.smoothing.reporting.comparison import CurveDifference, compare
from overt.smoothing.reporting.demonstration import Demonstration, demonstration
from overt.smoothing.result import Smoothing
from overt.smoothing.streaming.online import Online
from overt.smoothing.vectors import Reweighted, reweight

if TYPE_CHECKING:
    from overt.smoothing.estimators.regressor import AttentionSmoother

__all__ = [
    "AttentionSmoother",
    "Columns",
    "CurveDifference",
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
    if name not in ("AttentionSmoother", "SeriesSmoother"):
        raise AttributeError(f"module 'overt.smoothing' has no attribute {name!r}")
    package = "sklearn" if name == "AttentionSmoother" else "aeon"
    try:
        if name == "AttentionSmoother":
            from overt.smoothing.estimators.regressor import AttentionSmoother as estimator
        else:
            # Not in __all__, since aeon is no dependency.
            from overt.smoothing.estimators.transformer import SeriesSmoother as estimator
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        if package == "aeon":
            message = "overt.smoothing.SeriesSmoother needs aeon, which is not installed. Fix: run: pip install aeon"
            raise ModuleNotFoundError(message, name="aeon") from error
        raise MissingExtra("overt.smoothing.AttentionSmoother", needs="sklearn", extra="smooth") from error
    globals()[name] = estimator
    return estimator
