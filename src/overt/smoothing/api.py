"""Smooth a series by attention to itself: `smooth` returns the curve, `analyze` the curve and the estimates behind it."""

import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from overt.smoothing.analysis import analyze_series, analyze_together, arranged, restored
from overt.smoothing.data.frames import read_input
from overt.smoothing.data.observed import Observed, read_columns
from overt.smoothing.data.options import (
    Bandwidth,
    KeyKind,
    NoiseKind,
    NormalizerName,
    Options,
    ScaleName,
    ScoreName,
)
from overt.smoothing.data.periods import Length, Periods
from overt.smoothing.data.series import Floats, read_noise
from overt.smoothing.heads.dispatch import attend_head
from overt.smoothing.reporting.sentences import raises_the_error, too_narrow
from overt.smoothing.result import Smoothing
from overt.smoothing.selection.risk import configured_head


def smooth(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: KeyKind = "auto",
    bandwidth: Bandwidth = "auto",
    score: ScoreName = "gaussian",
    normalizer: NormalizerName = "softmax",
    scale: float | ScaleName = "auto",
    window: Length | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool | Literal["auto"] = "auto",
    noise: ArrayLike | NoiseKind | None = None,
    fill: bool = True,
    period: Periods | None = None,
    span: Length | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    circular: float | None = None,
    missing: float | Sequence[float] = (),
    at: ArrayLike | None = None,
) -> Any:
    """Smooth a series by parameter-free self-attention: y_i = Σ_j W_ij x_j, W = softmax_j of the similarity s_ij of j to i.

    x (n,) or (n, columns), smoothed column by column; times (n,), numbers or dates (a pandas DatetimeIndex counts), in any order, equal
    times allowed. Returns the curve as float64 of the same shape, as a pandas object for a pandas object; or the curve **at** other
    times (m,), see `Smoothing.at`. NaN is a missing value: it is no key. It is filled, or stays NaN if the window or `causal` leave it
    no key, or if **fill** is False. Memory is linear in n.

    **keys** define the similarity. "auto" is a bank of many heads of all kinds, mixed point by point by their estimated risk: it needs
    no choice and suits smooth, jumpy and spiky series (`bank`, `mixture`). "time" is kernel regression, s_ij = −(t_i − t_j)²/2h²
    (Nadaraya 1964, Watson 1964), with a weighted mean (**degree** 0), a line (1) or a parabola (2). "value" is one mean-shift step,
    s_ij = −(x_i − x_j)²/2h², and ignores order. "both" is the sum of these two, the bilateral filter, which keeps edges; `bandwidth` is
    then (time, value). "patch" is non-local means: it compares the 11 points around i and j, its h is the typical difference of two
    similar points, and it attends to 200 points on either side if there is no window.

    **bandwidth** h is in the unit of the times (steps without times, seconds for dates) or of the values; it may be "7D" or "12h" if
    times are dates. A warning is given if it is below half a step between points. "auto" is the bandwidth of least risk by Stein's
    unbiased estimate, the mean of (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i, with the full derivative. Every automatic choice assumes noise
    that is independent from point to point. With keys="auto", without `causal`, at equal steps and from 250 points on, correlation
    up to 0.87 is estimated and included in the risk; otherwise correlated noise is treated as signal.

    **noise** is the standard deviation σ of the noise, one number or one number per point; None estimates it from differences. "poisson"
    declares counts, whose variance is their mean. The transform 2√(x + 3/8), whose noise has one level, is smoothed, and its curve is
    converted back without bias (`noise.counts`); with keys="auto" and a mean of ½ or more, the counts themselves are then smoothed, with
    this curve as their variances. None also recognizes such counts, outcomes of two values, and noise in proportion to values over
    decades if keys="auto" (`noise.recognized`); "gaussian" turns this off.

    **weights** are 1/variance of the values up to a factor; 0 makes a value missing. With weights, noise is one number, the σ of a point
    of weight 1.

    **robust** "auto" removes isolated outliers and moves heavy tails of the noise towards its middle (`outliers.clean`), if keys="auto"
    and without `causal`; it changes next to nothing on normal noise. True reduces the weight of all values far from the median of their
    neighbours, including sharp peaks; False uses every value unchanged.

    **score** "dot" is the literal recipe, softmax_j(scale·x_i·x_j) with a number as scale, and **normalizer** "sum" its simplest form.
    Both are for teaching, with keys="value". The dot score does not measure the similarity of single numbers: it changes with the zero
    of the scale (adding c to the series multiplies each weight by e^(scale·c·x_j)), prefers large values to near ones, ignores time,
    and maps every point to the maximum or the minimum if the scale is large. The plain sum does not even depend on i, since x_i cancels:
    W_ij = x_i x_j / Σ_k x_i x_k = x_j / Σ_k x_k, so every y_i is the constant Σ_j x_j² / Σ_k x_k.

    **scale** is the scale on which the noise has one level: "log" for noise in proportion to the values, "sqrt" for noise that grows with
    their root, "logit" for rates between **bounds**, by default 0 and 1. A passed `noise` is the level on this scale. The curve is
    converted back to the mean of the values, the band by its ends. "auto" takes logarithms if values span decades and have noise in
    proportion, and logits of rates that come near a bound; "linear" takes neither. The curve and the band keep the **bounds** (low,
    high), either of which may be None; values beyond are refused. **circular** is the full turn of angles or times of day, 360 or 24:
    they are smoothed the shorter way round, the curve is from 0 to `circular`, and the band may go beyond. **missing** lists numbers that
    mark a missing value, such as −999.

    **period** is the length of a season, or a list for several seasons: a number in the unit of the times, or "7D" or "12h" if times are
    dates. A season is attention to the same phase of other cycles, for example the same hour of other days; the bank smooths the series
    without it (`analyze` returns both). A season that does not repeat vanishes. "auto" detects periods, and finds none in noise.

    **span** is the simple manual choice: the time to average over, "7D" or a number in the unit of the times. It means time keys with a
    Gaussian that passes as much noise as a running mean over the span, h = span/2√π, and with a line, which does not flatten slopes as a
    mean does. A warning is given if the span is estimated to have a larger error than "auto".

    **window** is the largest distance in time over which a point attends, to either side: a number, or "7D" or "12h" if times are dates.
    **causal** restricts a point to the present and the past. Without it the curve depends on later data, so it is not a forecast. Choices
    that are made once for the whole series use later data even with it: the noise level, the heads of "auto", an automatic bandwidth,
    the outliers of `robust`. So later data change the past, by tenths of the noise at 60 points and by less in longer series. Later data
    change nothing if keys are not "auto", a bandwidth is passed, and robust is not True.

    Raises InputError or KindError, with a fix, for input that is not a series of numbers and for options that contradict each other.

    >>> smooth([1.0, 2.0, float("nan"), 4.0, 5.0], keys="time", degree=0, bandwidth=0.5).round(2)
    array([1.12, 1.88, 3.  , 4.12, 4.88])
    >>> smooth([1.0, 2.0, 4.0], keys="value", score="dot", normalizer="sum")
    array([3., 3., 3.])
    """
    options = _options(locals())
    passed = read_input(x, times)
    several = read_columns(passed, weights, options)
    options = several[0].options
    # Without an automatic choice no estimate is needed.
    if at is None and options.as_they_are and (options.bandwidths or options.score == "dot"):
        curves, sentences = [_curve(series) for series in several], {options.too_narrow(several[0].times)}
    else:
        results = analyze_together(several)
        curves = [result.values if at is None else result.at(at) for result in results]
        sentences = {sentence for result in results for sentence in (raises_the_error(result), too_narrow(result))}
    for sentence in sorted(sentences - {""}):
        warnings.warn(sentence, stacklevel=2)
    stacked = curves[0] if passed.values.ndim == 1 else np.stack(curves, axis=1)
    return stacked if at is not None else passed.wrap(stacked)


def analyze(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: KeyKind = "auto",
    bandwidth: Bandwidth = "auto",
    score: ScoreName = "gaussian",
    normalizer: NormalizerName = "softmax",
    scale: float | ScaleName = "auto",
    window: Length | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool | Literal["auto"] = "auto",
    noise: ArrayLike | NoiseKind | None = None,
    fill: bool = True,
    period: Periods | None = None,
    span: Length | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    circular: float | None = None,
    missing: float | Sequence[float] = (),
) -> Smoothing:
    """Smooth one series like `smooth`, and return the curve with its band, bandwidth, noise, risk, mixture, weights and a report.

    The arguments have the same meaning as in `smooth`; x is (n,), or a table of pandas or polars with one column of values. With weights,
    noise is one number, the standard deviation at a point of weight 1.

    >>> smoothing = analyze([3.0, 3.0, 3.0, 3.0])
    >>> smoothing.noise, smoothing.values
    (0.0, array([3., 3., 3., 3.]))
    """
    options = _options(locals())
    passed = read_input(x, times).one_series()
    [series] = read_columns(passed, weights, options)
    return replace(analyze_series(series), index=passed.index)


def _options(arguments: dict[str, Any]) -> Options:
    """The options among the arguments of `smooth` or `analyze`."""
    names = {field.name for field in fields(Options)}
    return Options(**{name: value for name, value in arguments.items() if name in names})


def _curve(inputs: Observed) -> Floats:
    """The curve without estimates, by a head with a passed bandwidth."""
    options = inputs.options
    if options.noise is not None:
        read_noise(options.noise, inputs.values.size)  # not used here, but an invalid argument is refused
    series, missing = arranged(inputs)
    return restored(series, options, attend_head(series, configured_head(series, options)).values, missing)
