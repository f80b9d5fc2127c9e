"""A scale on which the noise of a series has one level: its smoothed values, and how they come back to the caller's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.series import Floats

# Nodes of Gauss–Hermite quadrature: exact for polynomials of twice the degree, and to 1e-9 for exponentials of noise of 2.
NODES = 32
_LARGEST_EXPONENT = 709.0


class Scale(NamedTuple):
    """A transform of values, what brings its expectation back to theirs without bias, and the derivative of that."""

    name: str
    forward: Callable[[Floats], Floats]
    mean: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    variance: Callable[[Floats], Floats] | None = None  # of a value whose expectation on the scale is this; None: its mean
    turn: float = 0.0  # of angles, whose curve wraps and whose band does not

    def end(self, curve: Floats, end: Floats) -> Floats:
        """An end of the band around a curve (n,), both on the scale, in the caller's units."""
        return self.mean(curve) + (end - curve) if self.turn else self.mean(end)


class Transform(NamedTuple):
    """A monotone transform of values, its inverse, and the derivative of the inverse."""

    name: str
    forward: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]

    def with_noise(self, variance: float) -> Scale:
        """The scale under normal noise of this variance: E g⁻¹(y + ε), by Gauss–Hermite quadrature.

        >>> draw = np.random.default_rng(0)
        >>> logarithms = transform_named("log", (0.0, np.inf)).with_noise(0.25)
        >>> logarithms.mean(np.log(3 * np.exp(0.5 * draw.normal(size=100_000))).mean(keepdims=True)).round(1)
        array([3.4])
        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        weights, shifts = weights / weights.sum(), np.sqrt(variance) * nodes

        def expected(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
            return lambda y: sum(weight * function(y + shift) for weight, shift in zip(weights, shifts, strict=True))  # type: ignore[return-value]

        mean, square = expected(self.inverse), expected(lambda y: self.inverse(y) ** 2)
        return Scale(self.name, self.forward, mean, expected(self.slope), lambda y: np.maximum(square(y) - mean(y) ** 2, 0.0))


def transform_named(name: str, bounds: tuple[float, float]) -> Transform:
    """The transform of a name for values above the lower bound, or between both: "log", "sqrt" or "logit"."""
    low, high = bounds
    if name == "log":
        return Transform("logarithms", lambda x: np.log(x - low), lambda y: low + _exponential(y), _exponential)
    if name == "sqrt":
        return Transform(
            "roots", lambda x: np.sqrt(x - low), lambda y: low + np.maximum(y, 0.0) ** 2, lambda y: 2 * np.maximum(y, 0.0)
        )
    width = high - low

    def share(y: Floats) -> Floats:
        return (1 + np.tanh(y / 2)) / 2

    return Transform(
        "logits",
        lambda x: np.log((x - low) / (high - x)),
        lambda y: low + width * share(y),
        lambda y: width * share(y) * (1 - share(y)),
    )


def check_on_scale(values: Floats, name: str, bounds: tuple[float, float]) -> None:
    """Raise unless all known values (n,) have a number on the scale."""
    low, high = bounds
    outside = (values < low) if name == "sqrt" else (values <= low) | (values >= high) if name == "logit" else values <= low
    wrong = np.flatnonzero(outside)
    if wrong.size:
        rule = {"sqrt": f"of {low:g} or more", "log": f"above {low:g}", "logit": f"above {low:g} and below {high:g}"}[name]
        fix = "make them NaN if they are errors, widen bounds, or leave scale out"
        got = f"{values[wrong[0]]:g} at [{wrong[0]}]" + (f", and {wrong.size - 1} more" if wrong.size > 1 else "")
        raise InputError(f'values {rule} with scale="{name}"', got=got, fix=fix)


def angular(turn: float, turns: Floats) -> Scale:
    """Angles without their jumps, by so many full turns (n,); the curve comes back to 0 to `turn`, and the band stays around it.

    >>> angular(360.0, np.zeros(2)).mean(np.array([-10.0, 370.0]))
    array([350.,  10.])
    """

    def mean(angles: Floats) -> Floats:
        return np.mod(angles, turn)

    return Scale("angles", lambda angles: angles + turns * turn, mean, np.ones_like, turn=turn)


def wrapped(differences: Any, turn: float) -> Any:
    """Differences of angles, each the shorter way: from −turn/2 to turn/2."""
    return np.mod(differences + turn / 2, turn) - turn / 2


def _exponential(y: Floats) -> Floats:
    return np.exp(np.minimum(y, _LARGEST_EXPONENT))
