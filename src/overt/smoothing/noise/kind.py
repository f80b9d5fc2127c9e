"""A kind of noise that the bank does not model itself: which values have it, how they are smoothed, and its sentence in the report.

A kind is one class in one file. `recognized.KINDS` lists the kinds in the order in which they are tested.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from overt.smoothing.data.observed import Observed

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# Maps one series to its smoothing: `analysis.analyze_series`.
Analyze = Callable[[Observed], "Smoothing"]


class Kind:
    """A kind of noise; `names` are the names of its smoothings (`Smoothing.kind`)."""

    names: tuple[str, ...] = ()
    sets_repeats_aside: bool = False  # values that repeat are not of this kind and are set aside first
    within_bounds: bool = False  # whether bounds= holds at intermediate steps, not only for the final curve

    def holds(self, series: Observed) -> bool:
        """Whether the values have this noise."""
        raise NotImplementedError

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the values under this noise."""
        raise NotImplementedError

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The report's sentence on the values and their smoothing; `source` says whether the kind was passed or recognized."""
        raise NotImplementedError
