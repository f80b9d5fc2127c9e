"""What a caller may ask for, checked before anything is computed: a request is honoured or refused."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from overt.errors import InputError

Bandwidth = float | tuple[float, float] | str

_KEYS = ("auto", "time", "value", "both", "patch")


@dataclass(frozen=True)
class Options:
    """The choices of `smooth` and `analyze`; building one checks them.

    >>> Options(bandwidth=0.0)
    Traceback (most recent call last):
    overt.errors.InputError: a bandwidth is a number above 0, got 0.0. Fix: pass one, or "auto".
    """

    keys: str = "auto"
    bandwidth: Bandwidth = "auto"
    score: str = "gaussian"
    normalizer: str = "softmax"
    scale: float = 1.0
    window: float | None = None
    degree: int = 1
    causal: bool = False
    robust: bool = False
    noise: Any = None  # a number, or one for each point
    fill: bool = True

    def __post_init__(self) -> None:
        one_of("keys", self.keys, _KEYS)
        one_of("score", self.score, ("gaussian", "dot"))
        one_of("normalizer", self.normalizer, ("softmax", "sum"))
        if self.score == "dot":
            self._check_dot()
        else:
            self._check_gaussian()
        if self.window is not None and not is_number(self.window, least=0.0):
            raise InputError("a window is a distance in time, 0 or more", got=repr(self.window), fix="pass one, or None")
        self._check_degree()
        if self.keys == "auto":
            self._check_auto()
        if self.noise is not None and np.ndim(self.noise) == 0 and not is_number(self.noise, least=0.0):
            rule = "noise is a standard deviation, 0 or more"
            raise InputError(rule, got=repr(self.noise), fix="pass one, one for each point, or None to have it estimated")

    @property
    def bandwidths(self) -> tuple[float, ...] | None:
        """The bandwidths given: one, or that of time and that of value; None for "auto"."""
        if isinstance(self.bandwidth, str):
            return None
        return tuple(map(float, self.bandwidth)) if self.keys == "both" else (float(self.bandwidth),)  # type: ignore[arg-type]

    @property
    def given(self) -> float | tuple[float, float] | None:
        """The same as they were given: a number, or two."""
        match self.bandwidths:
            case time, value:
                return time, value
            case (alone,):
                return alone
        return None

    def _check_degree(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int | np.integer) or self.degree not in (0, 1, 2):
            rule = "a degree is 0, 1 or 2: through the weighted points goes a mean, a line or a parabola"
            raise InputError(rule, got=repr(self.degree), fix="choose one of them")
        if self.keys != "time" and self.degree != 1:
            fix = 'pass keys="time", or leave degree out'
            raise InputError(
                "a degree is for time keys; others take means", got=f'keys="{self.keys}", degree={self.degree}', fix=fix
            )

    def _check_auto(self) -> None:
        if self.bandwidth != "auto" or self.window is not None:
            got = f"bandwidth={self.bandwidth!r}" if self.bandwidth != "auto" else f"window={self.window!r}"
            fix = 'say what it is for, as in keys="time"'
            raise InputError('keys="auto" mix heads of many bandwidths and windows', got=got, fix=fix)

    def _check_dot(self) -> None:
        if self.keys != "value":
            fix = 'pass keys="value", or score="gaussian"'
            raise InputError("the dot score compares values", got=f'keys="{self.keys}"', fix=fix)
        if self.bandwidth != "auto":
            raise InputError("the dot score has no bandwidth", got=repr(self.bandwidth), fix="sharpen it with scale")
        if not is_number(self.scale):
            raise InputError("a scale is a finite number", got=repr(self.scale), fix="pass one")

    def _check_gaussian(self) -> None:
        if self.normalizer == "sum":
            fix = 'pass normalizer="softmax", or score="dot"'
            raise InputError("the plain sum is for the dot score; a Gaussian score is a logarithm", got="gaussian", fix=fix)
        if self.scale != 1.0:
            raise InputError("the Gaussian score has no scale", got=repr(self.scale), fix="sharpen it with bandwidth")
        if isinstance(self.bandwidth, str):
            one_of("bandwidth", self.bandwidth, ("auto",), also="a number above 0")
        elif self.keys == "both":
            self._check_pair()
        elif not is_number(self.bandwidth, above=0.0):
            raise InputError("a bandwidth is a number above 0", got=repr(self.bandwidth), fix='pass one, or "auto"')

    def _check_pair(self) -> None:
        pair = self.bandwidth
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(is_number(h, above=0.0) for h in pair):
            rule = 'keys="both" take two bandwidths above 0, that of time and that of value'
            raise InputError(rule, got=repr(pair), fix='pass (time, value), or "auto"')


def one_of(what: str, got: Any, names: tuple[str, ...], also: str = "") -> None:
    """Raise unless `got` is one of the names."""
    if not isinstance(got, str) or got not in names:
        choice = " or ".join([*(f'"{name}"' for name in names), *([also] if also else [])])
        raise InputError(f"{what} is {choice}", got=repr(got), fix="choose one of them")


def is_number(value: Any, *, least: float = -np.inf, above: float = -np.inf) -> bool:
    """Whether `value` is a finite real number of at least `least` and above `above`; True and False are none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return False
    number = float(value)
    return bool(np.isfinite(number) and number >= least and number > above)
