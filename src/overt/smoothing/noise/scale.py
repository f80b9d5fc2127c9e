"""A scale on which the noise of a series has one level: its smoothed values, and how they come back to the caller's."""

from collections.abc import Callable
from typing import NamedTuple

from overt.smoothing.data.series import Floats


class Scale(NamedTuple):
    """A transform of values, by what brings its expectation back to theirs without bias, and the derivative of that."""

    name: str
    mean: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
