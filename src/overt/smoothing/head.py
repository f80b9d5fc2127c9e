"""One head of attention over a series, and what attending gives."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from overt.smoothing.keys import Keys
from overt.smoothing.series import Floats


@dataclass(frozen=True)
class Head:
    """What the keys compare, and which of them a point may attend to.

    `window` is the largest distance in time, both ends included; `causal` bars keys later than the point.
    """

    keys: Keys
    window: float = np.inf
    causal: bool = False

    @property
    def reach(self) -> float:
        """The window, with room for rounding: a distance that equals it on paper may exceed it by a last digit."""
        return self.window * (1 + 1e-9)


class Outputs(NamedTuple):
    """Row by row: y_i, and ∂y_i/∂x_i (NaN where x_i is missing)."""

    values: Floats
    slopes: Floats
