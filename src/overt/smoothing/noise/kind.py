"""A kind of noise beyond what the bank models itself: which values have it, how they are smoothed, and what the report says of it.

A kind is one class in one file. `recognized.KINDS` lists them in the order in which the values are asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import Times

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# One series (values, times, weights, options, column) to its smoothing, `analysis.analyze_series`.
Analyze = Callable[[Floats, Times, Floats | None, Options, int], Any]


@dataclass(frozen=True, eq=False)
class Observed:
    """One series as it was passed, with its options."""

    values: Floats  # (n,)
    times: Times
    weights: Floats | None  # (n,)
    options: Options
    column: int = 0
    known: Floats = field(init=False)  # (m,) the values that are not NaN, in the order of their times
    undeclared: bool = field(
        init=False
    )  # the values may say what they are: nothing was passed of the noise, and they have no weights

    def __post_init__(self) -> None:
        known = np.flatnonzero(~np.isnan(self.values))
        ordered = self.values[known[np.argsort(self.times.moments[known], kind="stable")]]
        object.__setattr__(self, "known", ordered)
        object.__setattr__(self, "undeclared", self.options.counts is None and self.weights is None)

    def smoothed(self, analyze: Analyze, values: Floats, options: Options) -> Any:
        """The smoothing of other values (n,) at the same times, under other options."""
        return analyze(values, self.times, self.weights, options, self.column)

    def under(self, options: Options) -> "Observed":
        """The same series under other options."""
        return replace(self, options=options)


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
