"""Parameter-free self-attention on series and vectors, in NumPy.

The sequence's own numbers are queries, keys and values; nothing is trained. The house, from the bottom up:
`series` reads what comes in, `keys` says what "similar" means, `rows` attends, `risk` judges and chooses a bandwidth,
`analysis` puts it together; `vectors` is the same mechanism on vectors, as literally as it is usually written. Upon these stand
`online`, the causal form point by point, `estimator`, the same for scikit-learn, and `many`, a job of many series.
"""

from typing import TYPE_CHECKING, Any

from overt.errors import MissingExtra
from overt.smoothing.api import Smoothing, analyze, smooth
from overt.smoothing.demo import Demonstration, demonstration
from overt.smoothing.streaming.online import Online
from overt.smoothing.vectors import Reweighted, reweight

if TYPE_CHECKING:
    from overt.smoothing.estimator import AttentionSmoother

__all__ = [
    "AttentionSmoother",
    "Demonstration",
    "Online",
    "Reweighted",
    "Smoothing",
    "analyze",
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
