"""Series as passed, with their options, read and checked before anything is computed."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overt.smoothing.data.frames import Input
from overt.smoothing.data.options import Options, read_range
from overt.smoothing.data.series import Floats, check_noise_of_weights, read_weights
from overt.smoothing.data.times import Times, read_times


@dataclass(frozen=True, eq=False)
class Observed:
    """One series as passed, with its options."""

    values: Floats  # (n,)
    times: Times
    weights: Floats | None  # (n,)
    options: Options
    column: int = 0  # its index among the columns of a table

    @cached_property
    def known(self) -> Floats:
        """The values that are not NaN, in the order of their times (m,)."""
        known = np.flatnonzero(~np.isnan(self.values))
        return self.values[known[np.argsort(self.times.moments[known], kind="stable")]]

    @cached_property
    def undeclared(self) -> bool:
        """Whether the kind of noise may be recognized from the values: no noise and no weights were passed."""
        return self.options.counts is None and self.weights is None

    def smoothed(self, analyze: Any, values: Floats, options: Options) -> Any:
        """The smoothing of other values (n,) at the same times, with other options."""
        return analyze(replace(self, values=values, options=options))

    def under(self, options: Options) -> "Observed":
        """The series with other options."""
        return replace(self, options=options)


def read_columns(passed: Input, weights: ArrayLike | None, options: Options) -> list[Observed]:
    """The columns of an input, or its only series, with the window and the bandwidth in the unit of the times."""
    values = read_range(passed.values, options)
    times, point_weights = read_times(passed.times, len(values)), read_weights(weights, len(values))
    check_noise_of_weights(options.noise, point_weights)
    options, columns = options.in_time_unit(times), [values] if values.ndim == 1 else values.T
    return [Observed(column, times, point_weights, options, index) for index, column in enumerate(columns)]
