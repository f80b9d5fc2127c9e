"""Scales on which the noise of a series has one level, and the conversion of smoothed values back to the caller's units."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.series import Floats

_LARGEST_EXPONENT = 709.0
NAMES = {"log": "logarithms", "sqrt": "roots", "logit": "logits"}


class Scale(NamedTuple):
    """A transform of values, the unbiased map from its expectation back to the mean of the values, and the derivative of that map."""

    name: str
    forward: Callable[[Floats], Floats]
    mean: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    turn: float = 0.0  # full turn of angles, whose curve wraps and whose band does not

    def end(self, curve: Floats, end: Floats) -> Floats:
        """The caller's units for an end of the band (n,) around a curve (n,), both on the scale."""
        return self.mean(curve) + (end - curve) if self.turn else self.mean(end)


class Transform(NamedTuple):
    """A monotone transform of values above a lower bound or between two bounds ("log", "sqrt" or "logit"), and its inverse.

    >>> Transform("logit", 0.0, 100.0).inverse(np.array([0.0]))
    array([50.])
    """

    name: str
    low: float
    high: float

    def forward(self, values: Floats) -> Floats:
        """The values on the scale."""
        above = values - self.low
        return np.sqrt(above) if self.name == "sqrt" else np.log(above if self.name == "log" else above / (self.high - values))

    def inverse(self, y: Floats) -> Floats:
        """The values at `y` on the scale."""
        if self.name == "sqrt":
            return self.low + np.maximum(y, 0.0) ** 2
        return self.low + (_exponential(y) if self.name == "log" else (self.high - self.low) * _share(y))

    def slope(self, y: Floats) -> Floats:
        """The derivative of the inverse."""
        if self.name == "sqrt":
            return 2 * np.maximum(y, 0.0)
        return _exponential(y) if self.name == "log" else (self.high - self.low) * _share(y) * (1 - _share(y))


def check_on_scale(values: Floats, name: str, bounds: tuple[float, float]) -> None:
    """Raise InputError unless all known values (n,) have a number on the scale."""
    low, high = bounds
    outside = (values < low) if name == "sqrt" else (values <= low) | (values >= high) if name == "logit" else values <= low
    wrong = np.flatnonzero(outside)
    if wrong.size:
        rule = {"sqrt": f"of {low:g} or more", "log": f"above {low:g}", "logit": f"above {low:g} and below {high:g}"}[name]
        fix = "make them NaN if they are errors, widen bounds, or leave scale out"
        got = f"{values[wrong[0]]:g} at [{wrong[0]}]" + (f", and {wrong.size - 1} more" if wrong.size > 1 else "")
        raise InputError(f'values {rule} with scale="{name}"', got=got, fix=fix)


def angular(turn: float, turns: Floats) -> Scale:
    """The scale of unwrapped angles, `turns` (n,) full turns added; the curve wraps to 0 to `turn`, and the band stays around it.

    >>> angular(360.0, np.zeros(2)).mean(np.array([-10.0, 370.0]))
    array([350.,  10.])
    """
    return Scale("angles", partial(np.add, turns * turn), partial(_modulo, turn), np.ones_like, turn=turn)


def wrapped(differences: Any, turn: float) -> Any:
    """Differences of angles, taken the shorter way: from −turn/2 to turn/2."""
    return np.mod(differences + turn / 2, turn) - turn / 2


def _exponential(y: Floats) -> Floats:
    return np.exp(np.minimum(y, _LARGEST_EXPONENT))


def _share(y: Floats) -> Floats:
    return (1 + np.tanh(y / 2)) / 2


def _modulo(turn: float, angles: Floats) -> Floats:
    return np.mod(angles, turn)
