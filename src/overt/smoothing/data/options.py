"""The options of `smooth` and `analyze`, checked before anything is computed."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from overt.errors import InputError
from overt.smoothing.data.periods import (
    Length,
    Periods,
    check_bandwidth,
    check_period,
    check_span,
    check_window,
    is_number,
    length_in_words,
    read_bandwidth,
    read_span,
    read_window,
)
from overt.smoothing.data.times import Times

KeyKind = Literal["auto", "time", "value", "both", "patch"]
ScoreName = Literal["gaussian", "dot"]
NormalizerName = Literal["softmax", "sum"]
NoiseKind = Literal["poisson", "gaussian"]
# A Gaussian of bandwidth span/2√π has the noise of a running mean over the span: ∫ K² = 1/(2√π h).
SPAN = 2 * np.sqrt(np.pi)
Bandwidth = Length | tuple[Length, float] | Literal["auto"]


@dataclass(frozen=True)
class Options:
    """The options of `smooth` and `analyze`, checked when an instance is made.

    >>> Options(bandwidth=0.0)
    Traceback (most recent call last):
    overt.errors.InputError: Expected a bandwidth above 0, got 0.0. Fix: pass a number above 0, or "auto".
    """

    keys: KeyKind = "auto"
    bandwidth: Bandwidth = "auto"
    score: ScoreName = "gaussian"
    normalizer: NormalizerName = "softmax"
    scale: float = 1.0
    window: Any = None  # a number or None; a length of time before `in_unit_of`
    degree: int = 1
    causal: bool = False
    robust: bool | Literal["auto"] = "auto"
    noise: ArrayLike | NoiseKind | None = None  # a number, or one for each point
    fill: bool = True
    period: Periods | None = None
    span: Length | None = None
    from_curve: str = ""  # "counts" or "outcomes", whose noise is from a first curve of theirs

    def __post_init__(self) -> None:
        one_of("keys", self.keys, get_args(KeyKind))
        one_of("score", self.score, get_args(ScoreName))
        if not isinstance(self.robust, bool | np.bool_):
            one_of("robust", self.robust, ("auto",), otherwise="True or False")
        one_of("normalizer", self.normalizer, get_args(NormalizerName))
        if self.score == "dot":
            self._check_dot()
        else:
            self._check_gaussian()
        check_window(self.window)
        self._check_degree()
        check_period(self.period)
        self._check_span()
        if self.period is not None and self.keys != "auto":
            raise InputError('keys="auto" with a period', got=f'keys="{self.keys}"', fix="leave keys out, or the period")
        if self.keys == "auto":
            self._check_auto()
        self._check_noise()

    def in_unit_of(self, times: Times) -> "Options":
        """The options with a window and a bandwidth of time as numbers in the unit of the times."""
        window = None if self.window is None else read_window(self.window, times)
        if self.automatic_bandwidth or self.keys not in ("time", "both"):
            return replace(self, window=window)
        if isinstance(self.bandwidth, tuple | list):
            return replace(self, window=window, bandwidth=(read_bandwidth(self.bandwidth[0], times), self.bandwidth[1]))
        return replace(self, window=window, bandwidth=read_bandwidth(self.bandwidth, times))

    def too_narrow(self, times: Times) -> str:
        """A sentence where a bandwidth is below half a typical step, or a window, of dates, below each; of options `in_unit_of` the times.

        "" where most times repeat: the narrowest head averages points of one time.
        """
        bandwidth = self.bandwidths[0] if self.bandwidths and self.keys in ("time", "both") else np.inf
        if not self.window and bandwidth == np.inf:
            return ""
        steps = np.diff(np.sort(times.moments))
        typical = float(np.quantile(steps, 0.5, method="lower")) if steps.size else 0.0
        if not typical:
            return ""
        least = float(steps[steps > 0].min())
        if times.unit == "seconds" and 0 < (self.window or 0) < least * (1 - 1e-9):
            what, apart = f"window of {length_in_words(self.window, times.unit)}", least
        elif bandwidth < typical / 2 * (1 - 1e-9):
            what, apart = f"bandwidth of {length_in_words(bandwidth, times.unit)}", typical
        else:
            return ""
        unit = ' Where times are dates a number is in seconds: write "7D" or "12h".' if times.unit == "seconds" else ""
        return f"A {what} for points {length_in_words(apart, times.unit)} apart changes next to nothing.{unit}"

    def by_hand(self, times: Times) -> "Options":
        """With a span, the options that it stands for: time keys of a bandwidth."""
        if self.span is None:
            return self
        return replace(self, keys="time", bandwidth=read_span(self.span, times) / SPAN, span=None)

    @property
    def automatic(self) -> "Options":
        """The options that leave to the bank what the span says."""
        return replace(self, keys="auto", bandwidth="auto", degree=1, span=None)

    @property
    def cleans(self) -> bool:
        """Whether isolated outliers are looked for: robust="auto" with the bank, which may see the future of a point."""
        return isinstance(self.robust, str) and self.keys == "auto" and not self.causal

    @property
    def weighs_outliers(self) -> bool:
        """Whether robust=True."""
        return not isinstance(self.robust, str) and bool(self.robust)

    @property
    def counts(self) -> bool | None:
        """Whether noise="poisson"; None where the values may say it themselves: the bank, with nothing said of the noise."""
        if isinstance(self.noise, str):
            return self.noise == "poisson"
        return None if self.noise is None and self.keys == "auto" and not self.causal and self.robust == "auto" else False

    @property
    def automatic_bandwidth(self) -> bool:
        """Whether bandwidth="auto"."""
        return isinstance(self.bandwidth, str) and self.bandwidth == "auto"

    @property
    def bandwidths(self) -> tuple[float, ...] | None:
        """The bandwidths as floats, one, or (time, value), of options `in_unit_of` the times; None for "auto"."""
        if self.automatic_bandwidth:
            return None
        return tuple(map(float, self.bandwidth)) if self.keys == "both" else (float(self.bandwidth),)  # type: ignore[arg-type]

    @property
    def fixed_bandwidth(self) -> float | tuple[float, float] | None:
        """The bandwidth as a number, or (time, value); None for "auto"."""
        match self.bandwidths:
            case time, value:
                return time, value
            case (alone,):
                return alone
        return None

    def _check_noise(self) -> None:
        if isinstance(self.noise, str):
            one_of("noise", self.noise, get_args(NoiseKind), otherwise="numbers or None")
            if self.score == "dot" and self.noise == "poisson":
                fix = 'leave noise or score="dot" out'
                raise InputError('score="gaussian" with noise="poisson"', got='score="dot"', fix=fix)
        elif self.noise is not None and np.ndim(self.noise) == 0 and not is_number(self.noise, minimum=0.0):
            fix = 'pass one number, one for each point, "poisson", or None to estimate it'
            raise InputError("a noise standard deviation of 0 or more", got=repr(self.noise), fix=fix)

    def _check_span(self) -> None:
        check_span(self.span)
        if self.span is not None and (self.keys not in ("auto", "time") or not self.automatic_bandwidth):
            got = f"keys={self.keys!r}, bandwidth={self.bandwidth!r}"
            raise InputError("no bandwidth and no keys but those of time with a span", got=got, fix="leave out one of them")
        if self.span is not None and self.period is not None:
            raise InputError("no period with a span", got=f"period={self.period!r}", fix="leave out one of them")

    def _check_degree(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int | np.integer) or self.degree not in (0, 1, 2):
            fix = "pass 0 for a mean, 1 for a line, 2 for a parabola"
            raise InputError("degree 0, 1 or 2", got=repr(self.degree), fix=fix)
        if self.keys != "time" and self.degree != 1:
            fix = 'pass keys="time", or leave degree out'
            raise InputError(
                'keys="time" with a degree, since other keys take means',
                got=f'keys="{self.keys}", degree={self.degree}',
                fix=fix,
            )

    def _check_auto(self) -> None:
        if not self.automatic_bandwidth or self.window is not None:
            got = f"window={self.window!r}" if self.automatic_bandwidth else f"bandwidth={self.bandwidth!r}"
            fix = 'pass keys as well, such as keys="time"'
            raise InputError('no bandwidth and no window with keys="auto", which mixes heads of many', got=got, fix=fix)

    def _check_dot(self) -> None:
        if self.keys != "value":
            fix = 'pass keys="value", or score="gaussian"'
            raise InputError('keys="value" with the dot score', got=f'keys="{self.keys}"', fix=fix)
        if not self.automatic_bandwidth:
            raise InputError("no bandwidth with the dot score", got=repr(self.bandwidth), fix="pass scale instead")
        if not is_number(self.scale):
            raise InputError("a finite scale", got=repr(self.scale), fix="pass a finite number")

    def _check_gaussian(self) -> None:
        if self.normalizer == "sum":
            fix = 'pass normalizer="softmax", or score="dot"'
            raise InputError('score="dot" with normalizer="sum"', got='score="gaussian"', fix=fix)
        if self.scale != 1.0:
            raise InputError("no scale with the Gaussian score", got=repr(self.scale), fix="pass bandwidth instead")
        if self.automatic_bandwidth:
            return
        if self.keys == "both":
            self._check_pair()
        elif isinstance(self.bandwidth, str) and self.keys in ("value", "patch"):  # not a length of time
            one_of("bandwidth", self.bandwidth, ("auto",), otherwise="a number above 0")
        elif self.keys in ("value", "patch") and not is_number(self.bandwidth, above=0.0):
            raise InputError("a bandwidth above 0", got=repr(self.bandwidth), fix='pass a number above 0, or "auto"')
        else:
            check_bandwidth(self.bandwidth)

    def _check_pair(self) -> None:
        pair = self.bandwidth
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not is_number(pair[1], above=0.0):
            fix = 'pass (time, value), or "auto"'
            raise InputError('two bandwidths above 0 with keys="both"', got=repr(pair), fix=fix)
        check_bandwidth(pair[0])


def one_of(argument: str, got: object, names: tuple[str, ...], otherwise: str = "") -> None:
    """Raise unless `got` is one of the names."""
    if not isinstance(got, str) or got not in names:
        choices = " or ".join([*(f'"{name}"' for name in names), *([otherwise] if otherwise else [])])
        raise InputError(f"{argument}={choices}", got=repr(got), fix="choose one of them")
