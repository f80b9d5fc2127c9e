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
    read_distance,
    read_span,
)
from overt.smoothing.data.times import Floats, Times

KeyKind = Literal["auto", "time", "value", "both", "patch"]
ScoreName = Literal["gaussian", "dot"]
NormalizerName = Literal["softmax", "sum"]
NoiseKind = Literal["poisson", "gaussian"]
ScaleName = Literal["auto", "linear", "log", "logit", "sqrt"]
# SPAN: span over bandwidth: a Gaussian of bandwidth span/2√π has the noise of a running mean over the span, as ∫ K² = 1/(2√π h).
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
    scale: float | ScaleName = "auto"  # a name, or with the dot score a factor
    window: Any = None  # a number or None; a length of time before `in_time_unit`
    degree: int = 1
    causal: bool = False
    robust: bool | Literal["auto"] = "auto"
    noise: ArrayLike | NoiseKind | None = None  # a number, or one number per point
    fill: bool = True
    period: Periods | None = None
    span: Length | None = None
    bounds: tuple[float | None, float | None] | None = None
    circular: float | None = None
    missing: Any = ()  # numbers that mark a missing value
    from_curve: str = ""  # "counts", "outcomes" or "amounts" if their noise comes from a first curve

    def __post_init__(self) -> None:
        check_choice("keys", self.keys, get_args(KeyKind))
        check_choice("score", self.score, get_args(ScoreName))
        if not isinstance(self.robust, bool | np.bool_):
            check_choice("robust", self.robust, ("auto",), otherwise="True or False")
        check_choice("normalizer", self.normalizer, get_args(NormalizerName))
        if self.score == "dot":
            self._check_dot()
        else:
            self._check_gaussian()
        check_window(self.window)
        self._check_degree()
        check_period(self.period)
        self._check_span()
        self._check_range()
        if self.period is not None and self.keys != "auto":
            raise InputError('keys="auto" with a period', got=f'keys="{self.keys}"', fix="leave keys out, or the period")
        if self.keys == "auto":
            self._check_auto()
        self._check_noise()

    def in_time_unit(self, times: Times) -> "Options":
        """The options with the window and the time bandwidth as numbers in the unit of the times."""
        window, bandwidth = self.window, self.bandwidth
        if window is not None:
            window = read_distance(window, times, "window")
        if not self.automatic_bandwidth and self.keys == "time":
            bandwidth = read_distance(bandwidth, times, "bandwidth")
        elif not self.automatic_bandwidth and self.keys == "both":
            bandwidth = read_distance(bandwidth[0], times, "bandwidth"), bandwidth[1]  # type: ignore[index]
        return replace(self, window=window, bandwidth=bandwidth)

    def too_narrow(self, times: Times) -> str:
        """A sentence if the bandwidth is below half a typical step, or a window of dates below every step; for options `in_time_unit`.

        It is "" if most times repeat, because the narrowest head then averages points at one time.
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
        """The options with a span replaced by its meaning: time keys with a bandwidth."""
        if self.span is None:
            return self
        return replace(self, keys="time", bandwidth=read_span(self.span, times) / SPAN, span=None)

    @property
    def dot_scale(self) -> float:
        """The factor of the dot score."""
        return 1.0 if isinstance(self.scale, str) else self.scale

    @property
    def transform(self) -> str:
        """The name of the passed scale, "" for "auto" and "linear"."""
        return self.scale if isinstance(self.scale, str) and self.scale not in ("auto", "linear") else ""

    @property
    def as_they_are(self) -> bool:
        """Whether values are smoothed untransformed: not as counts, on a scale, within bounds or as angles."""
        return not (self.counts or self.transform or self.bounds is not None or self.circular is not None)

    @property
    def limits(self) -> tuple[float, float]:
        """The bounds of the values, infinite if there are none."""
        low, high = self.bounds or (None, None)
        return -np.inf if low is None else float(low), np.inf if high is None else float(high)

    @property
    def limits_of_scale(self) -> tuple[float, float]:
        """The bounds that the scale needs: by default 0 below, and 1 above for logits."""
        low, high = self.limits
        return 0.0 if low == -np.inf else low, 1.0 if high == np.inf and self.transform == "logit" else high

    @property
    def on_its_scale(self) -> "Options":
        """The options for values that are already on their scale."""
        return replace(
            self, scale="linear", bounds=None, circular=None, missing=(), noise="gaussian" if self.noise is None else self.noise
        )

    @property
    def automatic(self) -> "Options":
        """The options with the bank in place of the span."""
        return replace(self, keys="auto", bandwidth="auto", degree=1, span=None)

    @property
    def two_sided_bank(self) -> bool:
        """Whether the bank smooths and a point may attend to its future."""
        return self.keys == "auto" and not self.causal

    @property
    def cleans(self) -> bool:
        """Whether isolated outliers are searched for: robust="auto" with the two-sided bank."""
        return isinstance(self.robust, str) and self.two_sided_bank

    @property
    def weighs_outliers(self) -> bool:
        """Whether robust=True."""
        return not isinstance(self.robust, str) and bool(self.robust)

    @property
    def counts(self) -> bool | None:
        """Whether noise="poisson"; None if it may be recognized from the values: with the bank, and without noise and robust."""
        if isinstance(self.noise, str):
            return self.noise == "poisson"
        return None if self.noise is None and self.two_sided_bank and self.robust == "auto" else False

    @property
    def automatic_bandwidth(self) -> bool:
        """Whether bandwidth="auto"."""
        return isinstance(self.bandwidth, str) and self.bandwidth == "auto"

    @property
    def bandwidths(self) -> tuple[float, ...] | None:
        """The bandwidths as floats, one or (time, value), for options `in_time_unit`; None for "auto"."""
        if self.automatic_bandwidth:
            return None
        return tuple(map(float, self.bandwidth)) if self.keys == "both" else (float(self.bandwidth),)  # type: ignore[arg-type]

    @property
    def fixed_bandwidth(self) -> float | tuple[float, float] | None:
        """The bandwidth as a number, or (time, value); None for "auto"."""
        bandwidths = self.bandwidths
        return bandwidths[0] if bandwidths and len(bandwidths) == 1 else bandwidths  # type: ignore[return-value]

    def _check_noise(self) -> None:
        if isinstance(self.noise, str):
            check_choice("noise", self.noise, get_args(NoiseKind), otherwise="numbers or None")
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

    def _check_range(self) -> None:
        """Check the bounds, the turn of circular values, the numbers that mark missing values, and their combinations."""
        bounds = self.bounds
        if bounds is not None:
            pair = isinstance(bounds, tuple | list) and len(bounds) == 2
            if not pair or not all(one is None or is_number(one) for one in bounds) or not self.limits[0] < self.limits[1]:
                fix = "pass (0, 1), or (0, None) where there is no upper one"
                raise InputError("bounds as (low, high) with low below high", got=repr(bounds), fix=fix)
        if self.circular is not None:
            if not is_number(self.circular, above=0.0):
                fix = "pass 360 for degrees, 24 for hours"
                raise InputError("circular as a full turn above 0", got=repr(self.circular), fix=fix)
            if bounds is not None or self.transform or self.counts:
                fix = "leave out one of them"
                raise InputError("no bounds, scale or counts with circular values", got=f"circular={self.circular!r}", fix=fix)
        if self.transform and (self.counts or self.score == "dot"):
            raise InputError(f'no noise="poisson" with scale="{self.transform}"', got="both", fix="leave out one of them")
        for number in np.atleast_1d(np.asarray(self.missing, dtype=object)).tolist():
            if not is_number(number):
                fix = "pass a number or a list of numbers, as missing=[-999, 85]"
                raise InputError("missing as numbers that mark missing values", got=repr(number), fix=fix)

    def _check_degree(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int | np.integer) or self.degree not in (0, 1, 2):
            fix = "pass 0 for a mean, 1 for a line, 2 for a parabola"
            raise InputError("degree 0, 1 or 2", got=repr(self.degree), fix=fix)
        if self.keys != "time" and self.degree != 1:
            got, fix = f'keys="{self.keys}", degree={self.degree}', 'pass keys="time", or leave degree out'
            raise InputError('keys="time" with a degree, since other keys take means', got=got, fix=fix)

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
        if self.scale != "auto" and not is_number(self.scale):
            raise InputError("a finite scale", got=repr(self.scale), fix="pass a finite number")
        if self.bounds is not None or self.circular is not None:
            got = "bounds" if self.circular is None else "circular"
            raise InputError("no bounds and no circular values with the dot score", got=got, fix='leave score="dot" out')

    def _check_gaussian(self) -> None:
        if self.normalizer == "sum":
            fix = 'pass normalizer="softmax", or score="dot"'
            raise InputError('score="dot" with normalizer="sum"', got='score="gaussian"', fix=fix)
        if not isinstance(self.scale, str):
            fix = "pass bandwidth instead of a factor"
            raise InputError("scale as a name with the Gaussian score", got=repr(self.scale), fix=fix)
        check_choice("scale", self.scale, get_args(ScaleName))
        if self.automatic_bandwidth:
            return
        if self.keys == "both":
            self._check_pair()
        elif isinstance(self.bandwidth, str) and self.keys in ("value", "patch"):  # not a length of time
            check_choice("bandwidth", self.bandwidth, ("auto",), otherwise="a number above 0")
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


def read_range(values: Floats, options: Options) -> Floats:
    """Values (n,) or (n, columns) with NaN for numbers that mark missing values; an error if other values break the bounds."""
    numbers = np.atleast_1d(np.asarray(options.missing, dtype=np.float64))
    if numbers.size:
        known = ~np.isnan(values)
        values = np.where(np.isin(values, numbers), np.nan, values)
        if known.any() and np.isnan(values).all():
            fix = "leave out those that are measurements"
            raise InputError("missing to leave a value", got=f"only {', '.join(f'{one:g}' for one in numbers)}", fix=fix)
    low, high = options.limits
    broken = np.argwhere((values < low) | (values > high))
    if broken.size:
        at, more = tuple(broken[0]), f", and {len(broken) - 1} more" if len(broken) > 1 else ""
        got = f"{values[at]:g} at [{', '.join(map(str, at))}]{more}"
        fix = f"widen bounds, or pass missing={values[at]:g} if it marks a missing value"
        raise InputError(f"values from {low:g} to {high:g}, as bounds say", got=got, fix=fix)
    return values


def check_choice(argument: str, got: object, names: tuple[str, ...], otherwise: str = "") -> None:
    """Raise InputError unless `got` is one of the names."""
    if not isinstance(got, str) or got not in names:
        choices = " or ".join([*(f'"{name}"' for name in names), *([otherwise] if otherwise else [])])
        raise InputError(f"{argument}={choices}", got=repr(got), fix="choose one of them")
