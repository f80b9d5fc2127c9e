"""One head of attention over a series, and its outputs."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import AnyKeys


@dataclass(frozen=True)
class SeriesHead:
    """The keys, the mask, and the degree of the local polynomial.

    `window` is the largest distance in time, both ends included; `causal` masks keys later than the point. Heads with time keys take
    the weighted mean (degree 0), or fit a line (1) or a parabola (2); other heads take the mean.
    """

    keys: AnyKeys
    window: float = np.inf
    causal: bool = False
    degree: int = 0

    @property
    def reach(self) -> float:
        """The window, enlarged for rounding: a distance that equals it exactly may exceed it in the last digit."""
        return self.window * (1 + 1e-9)

    @property
    def side(self) -> Literal["past", "both"]:
        """The side of a point that the head attends to."""
        return "past" if self.causal else "both"


class Outputs(NamedTuple):
    """For each row: y_i, and the leverage ∂y_i/∂x_i (NaN if x_i is missing)."""

    values: Floats
    leverages: Floats

    def at(self, rows: Indices) -> "Outputs":
        """The outputs of some rows."""
        return Outputs(self.values[rows], self.leverages[rows])
