"""Smooth a series by attention to itself: `smooth` returns the curve, `analyze` the curve and the estimates behind it."""

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError
from overt.smoothing.data.frames import read_input
from overt.smoothing.data.options import Bandwidth, KeyKind, NoiseKind, NormalizerName, Options, ScoreName
from overt.smoothing.data.periods import Length, Periods
from overt.smoothing.data.series import (
    Floats,
    Indices,
    Series,
    arrange,
    read_noise,
    read_weights,
)
from overt.smoothing.data.times import Times, read_times
from overt.smoothing.heads.dispatch import attend_head, attend_in_time
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import TimeKeys
from overt.smoothing.heads.local.gaps import Filling, Keys, fill_gaps
from overt.smoothing.reporting.sentences import raises_the_error
from overt.smoothing.result import Smoothing
from overt.smoothing.seasons.rest import without_seasons
from overt.smoothing.seasons.season import Seasons
from overt.smoothing.selection.bank import BankOutputs, attend_bank, bank_series
from overt.smoothing.selection.counts import are_counts, check_counts, stabilized
from overt.smoothing.selection.levels import key_noise, noise_levels, overall_level
from overt.smoothing.selection.noise import NoiseEstimate, estimate_noise
from overt.smoothing.selection.outliers import downweight_outliers
from overt.smoothing.selection.risk import (
    best_head,
    combined_risk,
    dot_keys,
    keys_of,
    leave_one_out,
    pointwise_risk,
    risk_error,
)
from overt.smoothing.selection.tails import tail_factor

# Points to either side of deleted ones that the curve without them is computed from.
BESIDE = 512


def smooth(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: KeyKind = "auto",
    bandwidth: Bandwidth = "auto",
    score: ScoreName = "gaussian",
    normalizer: NormalizerName = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool | Literal["auto"] = "auto",
    noise: ArrayLike | NoiseKind | None = None,
    fill: bool = True,
    period: Periods | None = None,
    span: Length | None = None,
    at: ArrayLike | None = None,
) -> Any:
    """Smooth a series by parameter-free self-attention: y_i = Σ_j W_ij x_j, W = softmax_j of the similarity of j to i.

    **keys** define the similarity. "auto": a bank of some ninety heads of all kinds, mixed point by point by their estimated risk.
    It needs no choice and suits smooth, jumpy and spiky series (`bank`, `mixture`). "time": s_ij = −(t_i − t_j)²/2h², which is
    kernel regression (Nadaraya 1964, Watson 1964). Instead of the weighted mean (**degree** 0) it can fit a line (1) or a parabola
    (2). "value": s_ij = −(x_i − x_j)²/2h², one mean-shift step, which ignores order. "both": the sum of the two, the bilateral
    filter, which keeps edges; `bandwidth` is then (time, value). "patch": compares the 11 points around i and j, non-local means.
    Its h is the typical difference of two similar points; without a window it attends to 200 points on either side.

    **bandwidth** h is in the unit of the times (steps where none are passed, seconds for dates) or of the values. "auto" is
    the bandwidth of least risk by Stein's unbiased estimate, the mean of (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i, with the full
    derivative. Every automatic choice assumes noise that is independent from point to point. With keys="auto", without `causal`
    and at equal steps, positive correlation up to 0.87 is estimated and taken into the risk; elsewhere correlated noise is treated as
    signal. **noise** is its standard deviation σ, one number or one for each point; None estimates it from differences. "poisson" says that
    the values are counts, of which each has its mean as variance: 2√(x + 3/8) is smoothed, whose noise has one level, and the curve is
    brought back without bias (`selection.counts`). None finds such counts by itself, with keys="auto"; "gaussian" does not look.

    **weights** are 1/variance of each value up to a factor; 0 makes it missing. **robust** "auto", with keys="auto" and
    without `causal`, leaves out isolated wild values and brings in the tails of noise that has heavy ones (`outliers.clean`); on
    normal noise it changes next to nothing. True reduces the weight of whatever is far from the median of its neighbours, sharp peaks
    too; False takes every value as it is.

    **score** "dot" is the literal recipe, softmax_j(scale·x_i·x_j), and **normalizer** "sum" its simplest form. They are
    kept for teaching, with keys="value". The dot score does not measure similarity of single numbers. It changes with the
    zero of the scale (adding c to the series multiplies each weight by e^(scale·c·x_j)), prefers large values to near ones,
    ignores time, and for a large scale maps every point to the maximum or the minimum. The plain sum does not even
    depend on i: W_ij = x_i x_j / Σ_k x_i x_k = x_j / Σ_k x_k, since x_i cancels, so that every y_i is the constant
    Σ_j x_j² / Σ_k x_k.

    **period** is the length of a season, or of several in a list: a number in the unit of the times, or "7D", "12h" where these are
    dates. A season is attention to the same phase of other cycles, as the same hour of other days, and the bank smooths the rest
    (`analyze` returns both). A season that does not repeat comes to nothing. "auto" looks for periods, and takes none from noise.

    **span** is the simple choice by hand: a length of time such as "7D", or a number in the unit of the times, over which to average. It
    stands for time keys whose Gaussian lets as much noise through as a running mean over the span, h = span/2√π, and a line, which
    does not flatten slopes as a mean does. A warning says so where that is estimated to raise the error over what "auto" chooses.

    **window** is the largest distance in time, to either side, over which a point attends. **causal** restricts each point to the
    present and past. Without it each value depends on later data, so the curve is not a forecast. What is chosen once for the whole
    series uses later data even then: the noise level, the heads of "auto", an automatic bandwidth, the outliers of `robust`. So later
    data change the past, by tenths of the noise at 60 points and less in longer series. With keys other than "auto", a
    bandwidth and without robust=True, later data change nothing.

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
    options = Options(keys, bandwidth, score, normalizer, scale, window, degree, causal, robust, noise, fill, period, span)
    series = read_input(x, times)
    values, length = series.values, series.values.shape[0]
    moments, point_weights = read_times(series.times, length), read_weights(weights, length)
    columns = [values] if values.ndim == 1 else list(values.T)
    if (
        at is None and not options.counts and (options.bandwidths or options.score == "dot")
    ):  # nothing is chosen, so nothing is estimated
        curves = [_curve(column, moments, point_weights, options, index) for index, column in enumerate(columns)]
    else:
        results = [_analyze(column, moments, point_weights, options, index) for index, column in enumerate(columns)]
        curves = [result.values if at is None else result.at(at) for result in results]
        for word in {raises_the_error(result) for result in results} - {""}:
            warnings.warn(word, stacklevel=2)
    stacked = curves[0] if values.ndim == 1 else np.stack(curves, axis=1)
    return stacked if at is not None else series.wrap(stacked)


def analyze(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: KeyKind = "auto",
    bandwidth: Bandwidth = "auto",
    score: ScoreName = "gaussian",
    normalizer: NormalizerName = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool | Literal["auto"] = "auto",
    noise: ArrayLike | NoiseKind | None = None,
    fill: bool = True,
    period: Periods | None = None,
    span: Length | None = None,
) -> Smoothing:
    """Smooth one series as `smooth` does, and return the curve with band, bandwidth, noise, risk, mixture, weights and a report.

    The arguments are those of `smooth`; x is (n,).

    >>> smoothing = analyze([3.0, 3.0, 3.0, 3.0])
    >>> smoothing.noise, smoothing.values
    (0.0, array([3., 3., 3., 3.]))
    """
    options = Options(keys, bandwidth, score, normalizer, scale, window, degree, causal, robust, noise, fill, period, span)
    series = read_input(x, times)
    values = series.values
    if values.ndim != 1:
        raise InputError("one series of shape (n,)", got=f"shape {values.shape}", fix="analyze its columns one by one")
    analysis = _analyze(values, read_times(series.times, values.size), read_weights(weights, values.size), options)
    return replace(analysis, index=series.index)


def _curve(values: Floats, times: Times, weights: Floats | None, options: Options, column: int) -> Floats:
    """The curve alone, by a head whose bandwidth was passed."""
    if options.noise is not None:
        read_noise(options.noise, values.size)  # not used here, but an invalid argument is refused
    series, missing = _arranged(values, times, weights, options, column)
    return _restored(series, options, attend_head(series, _head(series, options)).values, missing)


def _arranged(
    values: Floats, times: Times, weights: Floats | None, options: Options, column: int
) -> tuple[Series, NDArray[np.bool_]]:
    """The series in its own units, and which points are missing: NaN, or of weight 0."""
    if weights is not None:
        values = np.where(weights > 0, values, np.nan)
    missing = np.isnan(values)
    if options.weighs_outliers:
        weights = downweight_outliers(values, times.moments, weights)
    if missing.all() and column:
        raise InputError("at least one value in each column", got=f"only NaN in column {column}", fix="leave that column out")
    # The dot score is not shift-invariant: it gets the values as they are.
    series = arrange(values, times.moments, weights, shift=options.score == "gaussian")
    if options.score == "dot" and series.key_weights is not None and np.ptp(series.key_weights) > 0:
        fix = 'leave out weights and robust, or pass score="gaussian"'
        raise InputError("equal weights with the dot score", got="weights that differ", fix=fix)
    return series, missing


def _seasonal(series: Series, seasons: Seasons | None) -> Floats:
    """Each season at the times of the series (seasons, n); one of zeros without a period."""
    return np.zeros((1, series.times.size)) if seasons is None else seasons.at(series.times)


def _restored(series: Series, options: Options, outputs: Floats, missing: NDArray[np.bool_]) -> Floats:
    restored = series.restore(outputs)
    if not options.fill:
        restored[missing] = np.nan
    return restored


def _analyze(values: Floats, times: Times, weights: Floats | None, options: Options, column: int = 0) -> Smoothing:
    if options.span is not None:
        automatic = _analyze(values, times, weights, options.automatic, column)
        return replace(_analyze(values, times, weights, options.by_hand(times), column), automatic=automatic)
    counts = options.counts
    if counts:
        check_counts(values)
        if weights is not None and np.ptp(weights[weights > 0]) > 0:
            raise InputError('equal weights with noise="poisson"', got="weights that differ", fix="leave weights out")
    elif counts is None and weights is None:
        known = ~np.isnan(values)
        counts = are_counts(values[known][np.argsort(times.moments[known], kind="stable")])
    if not counts:
        plain = replace(options, noise=None) if isinstance(options.noise, str) else options
        return _analyze_values(values, times, weights, plain, column)
    smoothing = _analyze_values(stabilized(values), times, weights, replace(options, noise=1.0), column)
    return smoothing.of_counts(values, options)


def _analyze_values(values: Floats, times: Times, weights: Floats | None, options: Options, column: int = 0) -> Smoothing:
    series, missing = _arranged(values, times, weights, options, column)
    series, seasons, outliers = without_seasons(series, times, options)
    noise_estimate, levels = _noise(series, seasons, options)
    head, bank, filling = None, None, None
    if options.keys == "auto":
        bank = _bank(series, levels, options.causal, noise_estimate.correlation)
        filling = _filling(series, seasons, levels, options, noise_estimate)
        outputs, variances = _bank_outputs(series, bank, seasons, levels, filling)
    else:
        head = _head(series, options, levels)
        outputs, variances = _one_head(series, head, levels, options)
    seasonal = _seasonal(series, seasons)
    restored = _restored(series, options, outputs.values + seasonal.sum(axis=0), missing)
    risk, error = _risk(series, outputs, key_noise(series, levels), noise_estimate, variances if bank else None)
    return Smoothing(
        values=restored,
        bandwidth=None if head is None else options.fixed_bandwidth or head.keys.in_units(series.step, series.spread),
        noise=float(np.sqrt(np.mean(levels**2))) * series.noise_unit,
        risk=risk * series.spread**2,
        risk_error=error * series.spread**2,
        degrees_of_freedom=float(outputs.leverages[series.present].sum()),
        leave_one_out=_leave_one_out(series, head, outputs),
        points=values.size,
        filled=int(np.sum(missing & ~np.isnan(restored))),
        times=times,
        heads=(options.keys,) if bank is None else tuple(bank.names),
        mixture=None if bank is None else bank.mixture,
        withheld="" if noise_estimate.white else noise_estimate.reason,
        options=options,
        series=series,
        head=head,
        noise_estimate=noise_estimate,
        levels=levels,
        outliers=outliers,
        observed=values,
        seasons=seasons,
        filling=filling,
        components=np.stack([series.unsort(component) for component in seasonal], axis=1) * series.spread,
        _variances=variances,
    )


def _risk(
    series: Series, outputs: Outputs, noise: Floats, estimate: NoiseEstimate, variances: Floats | None
) -> tuple[float, float]:
    """The estimated risk and its standard error: Stein's, joined with the variances of a bank."""
    risk = float(pointwise_risk(series.key_values, outputs.at(series.present), noise).mean())
    error = risk_error(noise, estimate.correlation)
    if variances is None:
        return risk, error
    variance, correlated = float(variances[series.present].mean()), estimate.correlation > 0
    return combined_risk(risk, error, variance, series.present.size, correlated=correlated)


def _noise(series: Series, seasons: Seasons | None, options: Options) -> tuple[NoiseEstimate, Floats]:
    """The noise of a series and its levels, from the series without its seasons."""
    correlated = options.keys == "auto" and not options.causal
    estimate = estimate_noise(series.key_times, series.key_values, series.key_weights, correlated=correlated)
    estimate = estimate if seasons is None else estimate.scaled(seasons.level_factor)
    if options.cleans and options.noise is None and not estimate.correlation:
        noise = key_noise(series, noise_levels(series, options, estimate))
        estimate = estimate.scaled(tail_factor(series.key_times, series.key_values, noise))
    return estimate, noise_levels(series, options, estimate)


def _filling(
    series: Series, seasons: Seasons | None, levels: Floats, options: Options, estimate: NoiseEstimate
) -> Filling | None:
    """How missing points are filled; None where none are missing, or with `causal`."""
    missing = np.flatnonzero(np.isnan(series.values))
    if options.causal or not missing.size:
        return None
    first, last = series.present[[0, -1]]
    season = _seasonal(series, seasons).sum(axis=0)

    def curve_without(rows: Indices) -> Floats:
        deleted = series.present[rows]
        near = slice(max(first, deleted.min() - BESIDE), min(last, deleted.max() + BESIDE) + 1)
        values = series.values.copy()
        values[deleted] = np.nan
        part = series.with_values(values).part(near)
        curve = _bank(part, levels[near], False, estimate.correlation).values
        return curve[deleted - near.start] + season[deleted]

    return fill_gaps(
        Keys(series.key_times, series.key_values, season[series.present], series.key_weights),
        series.times[missing],
        season[missing],
        curve_without,
    )


def _bank_outputs(
    series: Series, bank: BankOutputs, seasons: Seasons | None, levels: Floats, filling: Filling | None
) -> tuple[Outputs, Floats]:
    """The bank's outputs and variances, with what the seasons add to these, and with missing points filled.

    There, variances are at least the squared errors of deleted values beyond their noise.
    """
    added = np.zeros(bank.values.size) if seasons is None else seasons.leverages(bank.leverages)
    values, variances = bank.values.copy(), bank.variances + levels**2 * added
    if filling is not None:
        missing = np.isnan(series.values)
        season = 0.0 if seasons is None else seasons.at(series.times[missing]).sum(axis=0)
        values[missing] = filling.curve * (values[missing] + season) + filling.values - season
        variances[missing] = np.maximum(variances[missing], filling.errors - levels[missing] ** 2)
    return Outputs(values, bank.leverages + added), variances


def _one_head(series: Series, head: Head, levels: Floats, options: Options) -> tuple[Outputs, Floats | None]:
    """The outputs of one head, and their variances where a bandwidth of time was passed."""
    if not isinstance(head.keys, TimeKeys):
        return attend_head(series, head), None
    local = attend_in_time(series, head, head.keys.bandwidth)
    return Outputs(local.values, local.leverages), levels**2 * local.unit_variances if options.bandwidths else None


def _head(series: Series, options: Options, levels: Floats | None = None) -> Head:
    """The head that the options describe; the noise levels are for choosing a bandwidth."""
    window = np.inf if options.window is None else options.window / series.step
    if options.score == "dot":
        return Head(dot_keys(series, options.scale, options.normalizer == "sum"), window, options.causal)
    degree = options.degree if options.keys == "time" else 0
    if levels is not None and options.bandwidths is None:
        return best_head(series, options.keys, key_noise(series, levels), window, options.causal, degree)
    units = {"time": (series.step,), "value": (series.spread,), "patch": (series.spread,), "both": (series.step, series.spread)}
    scaled = tuple(bandwidth / unit for bandwidth, unit in zip(options.bandwidths or (), units[options.keys], strict=True))
    return Head(keys_of(options.keys, scaled), window, options.causal, degree)


def _bank(series: Series, levels: Floats, causal: bool, correlation: float) -> BankOutputs:
    noisy = bank_series(series, levels, causal)
    outputs = attend_bank(noisy, overall_level(levels), causal=causal, correlation=correlation)
    if causal:
        outputs.values[: series.present[0]] = np.nan  # before the first value there is nothing to attend to
    return outputs


def _leave_one_out(series: Series, head: Head | None, outputs: Outputs) -> float | None:
    if head is None or not isinstance(head.keys, TimeKeys):
        return None
    error = leave_one_out(series, outputs)
    return None if error is None else error * series.spread**2
