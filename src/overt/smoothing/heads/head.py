"""One head of attention over a series, and what attending gives."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.keys import AnyKeys


@dataclass(frozen=True)
class Head:
    """What the keys compare, which of them a point may attend to, and what goes through those.

    `window` is the largest distance in time, both ends included; `causal` bars keys later than the point. Time keys take
    the mean of what they attend to (degree 0), or fit a line or a parabola to it.
    """

    keys: AnyKeys
    window: float = np.inf
    causal: bool = False
    degree: int = 0

    @property
    def reach(self) -> float:
        """The window, with room for rounding: a distance that equals it on paper may exceed it by a last digit."""
        return self.window * (1 + 1e-9)

    @property
    def side(self) -> Literal["past", "both"]:
        """Which side of a point it attends to."""
        return "past" if self.causal else "both"


class Outputs(NamedTuple):
    """Row by row: y_i, and ∂y_i/∂x_i (NaN where x_i is missing)."""

    values: Floats
    slopes: Floats
