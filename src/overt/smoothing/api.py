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
    """Smooth a series by parameter-free self-attention: y_i = Σ_j W_ij x_j, W = softmax_j of the similarity of j to i.

    **keys** define the similarity. "auto": a bank of many heads of all kinds, mixed point by point by their estimated risk.
    It needs no choice and suits smooth, jumpy and spiky series (`bank`, `mixture`). "time": s_ij = −(t_i − t_j)²/2h², which is
    kernel regression (Nadaraya 1964, Watson 1964). Instead of the weighted mean (**degree** 0) it can fit a line (1) or a parabola
    (2). "value": s_ij = −(x_i − x_j)²/2h², one mean-shift step, which ignores order. "both": the sum of the two, the bilateral
    filter, which keeps edges; `bandwidth` is then (time, value). "patch": compares the 11 points around i and j, non-local means.
    Its h is the typical difference of two similar points; without a window it attends to 200 points on either side.

    **bandwidth** h is in the unit of the times (steps where none are passed, seconds for dates) or of the values; where times are
    dates, it may be "7D" or "12h". A warning says where it is below half a step between points. "auto" is the bandwidth of least risk
    by Stein's unbiased estimate, the mean of (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i, with the full
    derivative. Every automatic choice assumes noise that is independent from point to point. With keys="auto", without
    `causal` and at equal steps, correlation up to 0.87 is estimated, from 250 points on, and taken into the risk; elsewhere
    correlated noise is treated as signal. **noise** is its standard deviation σ, one number or one for each point; None
    estimates it from differences. "poisson" says that the values are counts, of which each has its mean as variance: 2√(x +
    3/8) is smoothed, whose noise has one level, and the curve is brought back without bias (`noise.counts`); with
    keys="auto" it becomes the variances under which the counts themselves are smoothed, from a mean of ½ on. None finds such
    counts by itself, with keys="auto", outcomes of two values and noise in proportion to values over decades too
    (`noise.recognized`); "gaussian" turns this off.

    **weights** are 1/variance of each value up to a factor; 0 makes it missing. With weights, noise is that of a point of weight 1: pass
    one number, not one for each point. **robust** "auto", with keys="auto" and
    without `causal`, leaves out isolated wild values and brings in the tails of noise that has heavy ones (`outliers.clean`); on
    normal noise it changes next to nothing. True reduces the weight of whatever is far from the median of its neighbours, sharp peaks
    too; False takes every value as it is.

    **score** "dot" is the literal recipe, softmax_j(scale·x_i·x_j) with a number as scale, and **normalizer** "sum" its simplest
    form. They are kept for teaching, with keys="value". The dot score does not measure similarity of single numbers. It changes with the
    zero of the scale (adding c to the series multiplies each weight by e^(scale·c·x_j)), prefers large values to near ones,
    ignores time, and for a large scale maps every point to the maximum or the minimum. The plain sum does not even
    depend on i: W_ij = x_i x_j / Σ_k x_i x_k = x_j / Σ_k x_k, since x_i cancels, so that every y_i is the constant
    Σ_j x_j² / Σ_k x_k.

    **scale** is the one on which the noise has one level: "log" for noise in proportion to the values, "sqrt" for noise that grows
    with their root, "logit" for rates between **bounds**, which are 0 and 1 if none are passed. The curve is brought back as the mean of
    the values, the band by its ends. "auto" takes logarithms where values span decades and scatter in proportion, and logits of rates
    that come near a bound; "linear" takes neither. A `noise` that is passed is of one level on the scale. **bounds** (low, high), either
    of them None, are kept by the curve and the band; values beyond are refused. **circular** is a full turn of values that are angles
    or times of day, 360 or 24: they are smoothed the shorter way round, the curve is from 0 to `circular`, and the band may go beyond.
    **missing** lists numbers that mark a missing value, as −999.

    **period** is the length of a season, or of several in a list: a number in the unit of the times, or "7D", "12h" where these are
    dates. A season is attention to the same phase of other cycles, as the same hour of other days, and the bank smooths the rest
    (`analyze` returns both). A season that does not repeat comes to nothing. "auto" looks for periods, and takes none from noise.

    **span** is the simple choice by hand: a length of time such as "7D", or a number in the unit of the times, over which to average. It
    stands for time keys whose Gaussian lets as much noise through as a running mean over the span, h = span/2√π, and a line, which
    does not flatten slopes as a mean does. A warning says so where that is estimated to raise the error over what "auto" chooses.

    **window** is the largest distance in time, to either side, over which a point attends: a number, or "7D" or "12h" where times are
    dates. **causal** restricts each point to the present and past. Without it each value depends on later data, so the curve is not a
    forecast. What is chosen once for the whole series uses later data even then: the noise level, the heads of "auto", an automatic
    bandwidth, the outliers of `robust`. So later data change the past, by tenths of the noise at 60 points and less in longer series.
    With keys other than "auto", a bandwidth and without robust=True, later data change nothing.

    x (n,) or (n, columns), smoothed column by column; times (n,), in any order, equal ones allowed, numbers or dates (a pandas
    DatetimeIndex counts). NaN is a missing value: it is no key. It is filled, or stays NaN where window or causality
    leave it no key, or with **fill** False. Returns float64 of the same shape, a pandas object for a pandas object; or the
    curve **at** other times (m,), see `Smoothing.at`. Memory is linear in n.

    Raises InputError or KindError, with a fix, for input that is not a series of numbers and for options that do not fit together.

    >>> smooth([1.0, 2.0, float("nan"), 4.0, 5.0], keys="time", degree=0, bandwidth=0.5).round(2)
    array([1.12, 1.88, 3.  , 4.12, 4.88])
    >>> smooth([1.0, 2.0, 4.0], keys="value", score="dot", normalizer="sum")
    array([3., 3., 3.])
    """
    options = _options(locals())
    passed = read_input(x, times)
    several = read_columns(passed, weights, options)
    options = several[0].options
    # With nothing to choose, nothing is estimated.
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
    """Smooth one series as `smooth` does, and return the curve with band, bandwidth, noise, risk, mixture, weights and a report.

    The arguments are those of `smooth`; x is (n,), or a table of pandas or polars with one column of values. With weights, noise is that
    of a point of weight 1: pass one number, not one for each point.

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
    """The curve alone, by a head whose bandwidth was passed."""
    options = inputs.options
    if options.noise is not None:
        read_noise(options.noise, inputs.values.size)  # not used here, but an invalid argument is refused
    series, missing = arranged(inputs)
    return restored(series, options, attend_head(series, configured_head(series, options)).values, missing)
