"""A kind of noise beyond what the bank models itself: which values have it, how they are smoothed, and what the report says of it.

A kind is one class in one file. `recognized.KINDS` lists them in the order in which the values are asked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from overt.smoothing.data.observed import Observed

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# One series to its smoothing, `analysis.analyze_series`.
Analyze = Callable[[Observed], "Smoothing"]


class Kind:
    """A kind of noise; `names` are those of its smoothings (`Smoothing.kind`)."""

    names: tuple[str, ...] = ()
    sets_repeats_aside: bool = False  # values that repeat are no values of this kind: they are set aside first
    within_bounds: bool = False  # whether bounds that were passed hold on the way, too, and not of the curve alone

    def holds(self, series: Observed) -> bool:
        """Whether the values have this noise."""
        raise NotImplementedError

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the values under this noise."""
        raise NotImplementedError

    def sentence(self, result: "Smoothing", source: str) -> str:
        """What the values are and how they were smoothed, for the report; `source` says whether that was passed."""
        raise NotImplementedError
