"""The analysis of a series, from its values to the finished smoothing: the steps before, in and after the heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.smoothing.data.condition import codes_in_words, possible_codes
from overt.smoothing.data.events import event_levels
from overt.smoothing.data.observed import Observed
from overt.smoothing.data.options import Options
from overt.smoothing.data.repeats import Repeats, find_repeats
from overt.smoothing.data.series import SHORT, Floats, Indices, Series, arrange, key_noise
from overt.smoothing.data.times import Times
from overt.smoothing.data.weights import downweight_outliers
from overt.smoothing.heads.dispatch import attend_head, attend_in_time
from overt.smoothing.heads.head import Outputs, SeriesHead
from overt.smoothing.heads.keys import TimeKeys
from overt.smoothing.heads.local.gaps import Filling, fill_gaps, gap_keys
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.noise.guard import PERHAPS_CORRELATED, correlation_objection, doubt, objection
from overt.smoothing.noise.recognized import recognize_kind
from overt.smoothing.result import Smoothing
from overt.smoothing.seasons.rest import without_seasons
from overt.smoothing.seasons.season import Seasons
from overt.smoothing.selection.bands import lost_signal
from overt.smoothing.selection.bank.noisy_series import NoisySeries, bank_series
from overt.smoothing.selection.bank.stages import TOGETHER, BankOutputs, attend_bank
from overt.smoothing.selection.noise import LEAST_POINTS, NoiseEstimate, estimate_noise, estimate_noises, noise_levels
from overt.smoothing.selection.risk import combined_risk, configured_head, leave_one_out, pointwise_risk, risk_error
from overt.smoothing.selection.tails import tail_factor
from overt.smoothing.selection.varying import MIN_POINTS, residual_levels

# MARGIN: points on either side of deleted points from which the curve without them is computed.
MARGIN = 512


@dataclass(frozen=True)
class Rest:
    """One series in its own units, without seasons and isolated outliers."""

    series: Series
    values: Floats  # as passed (n,)
    times: Times
    options: Options
    missing: NDArray[np.bool_]  # NaN, or of weight 0 (n,)
    seasons: Seasons | None
    outliers: NDArray[np.bool_]  # in the caller's order (n,)


@dataclass(frozen=True)
class PreparedSeries(Rest):
    """One series before the heads, with its noise."""

    estimate: NoiseEstimate
    levels: Floats  # σ at weight 1, for the heads (n,)
    risk_levels: Floats  # σ from differences only (n,): levels from the residuals of a curve would judge that curve by itself


def analyze_series(series: Observed) -> Smoothing:
    """Smooth one series: a batch of one."""
    [smoothing] = analyze_together([series])
    return smoothing


def analyze_together(several: Sequence[Observed]) -> list[Smoothing]:
    """Smooth several series with the same options; short series of one length, on a grid, go through the bank at once."""
    finished = {index: _analyze_transformed(series) for index, series in enumerate(several)}
    rests = {index: _rest(several[index]) for index, smoothing in finished.items() if smoothing is None}
    alike: dict[Any, list[tuple[int, PreparedSeries]]] = {}
    for (index, rest), estimate in zip(rests.items(), _noise_estimates([*rests.values()]), strict=True):
        prepared = _prepared(rest, estimate)
        if prepared.options.keys != "auto":
            finished[index] = finish(prepared, None)
        else:
            grid = None if prepared.options.causal or len(rests) == 1 else _noisy(prepared).grid
            alike.setdefault(grid or index, []).append((index, prepared))
    for members in alike.values():
        for start in range(0, len(members), TOGETHER):
            part = members[start : start + TOGETHER]
            banks = _banks([prepared for _, prepared in part])
            finished |= {index: finish(*_refined(prepared, bank)) for (index, prepared), bank in zip(part, banks, strict=True)}
    return [_doubted(smoothing) for smoothing in finished.values() if smoothing]


def _doubted(smoothing: Smoothing) -> Smoothing:
    """The smoothing, without a band if some of its values may be error codes."""
    if smoothing.withheld or not smoothing.options.cleans:
        return smoothing
    values = np.where(smoothing.outliers, np.nan, smoothing.observed)[np.argsort(smoothing.times.moments, kind="stable")]
    question = codes_in_words(possible_codes(values))
    return replace(smoothing, withheld=f"{question}, or robust=False if measured.") if question else smoothing


def _analyze_transformed(series: Observed) -> Smoothing | None:
    """The smoothing of a series by way of another one, for example its logarithms or its values without repeats; None for most."""
    values, times, options = series.values, series.times, series.options
    if options.span is not None:
        automatic = analyze_series(series.under(options.automatic))
        return replace(analyze_series(series.under(options.by_hand(times))), automatic=automatic)
    repeats, kind = find_repeats(values, times, series.weights, options), recognize_kind(series)
    if kind and not (kind.sets_repeats_aside and repeats.out.any()):
        free = options if kind.within_bounds else replace(options, bounds=None)
        return kind.smooth(series.under(free), analyze_series).within(options)
    if not repeats.out.any():
        return None
    # Flat runs get their own values back, so their gaps need no filling.
    fill = bool(repeats.copies.any() or (options.fill and (np.isnan(values) & ~repeats.flat).any()))
    others, filling = repeats.others(values, times), replace(options, fill=fill)
    if repeats.events > 1:  # a mean far out has a large amount, which is no error
        curve = series.smoothed(analyze_series, others, replace(filling, noise="gaussian")).values
        noise = event_levels(values, curve, repeats.events)
        filling = replace(filling, noise=noise, robust=options.robust is True)
    return series.smoothed(analyze_series, others, filling).with_repeats(values, repeats, options)


def _rest(inputs: Observed) -> Rest:
    """The series before the noise is estimated: in its own units, without seasons and outliers."""
    options = replace(inputs.options, noise=None) if isinstance(inputs.options.noise, str) else inputs.options
    series, missing = arranged(inputs)
    series, seasons, outliers = without_seasons(series, inputs.times, options)
    return Rest(series, inputs.values, inputs.times, options, missing, seasons, outliers)


def _noise_estimates(rests: Sequence[Rest]) -> list[NoiseEstimate]:
    """The noise of the series without their seasons; short series of one length at equal steps are estimated at once."""
    estimates: dict[int, NoiseEstimate] = {}
    lengths: dict[int, list[int]] = {}
    for index, rest in enumerate(rests):
        series, options = rest.series, rest.options
        short = series.present.size == series.times.size < SHORT and series.key_weights is None
        correlated, passed = options.two_sided_bank, options.noise is not None
        if short and correlated and len(rests) > 1 and on_grid(series.key_times):
            lengths.setdefault(series.times.size, []).append(index)
        else:
            keys = series.key_times, series.key_values, series.key_weights
            estimates[index] = estimate_noise(*keys, correlated=correlated, passed=passed)
    for indices in lengths.values():
        together = estimate_noises(np.stack([rests[index].series.key_values for index in indices]))
        estimates |= dict(zip(indices, together, strict=True))
    return [estimates[index] for index in range(len(rests))]


def finish(prepared: PreparedSeries, bank: BankOutputs | None) -> Smoothing:
    """The smoothing from the outputs of the bank, or by one head if it is None."""
    series, options, seasons, levels = prepared.series, prepared.options, prepared.seasons, prepared.levels
    components = np.zeros((1, series.times.size)) if seasons is None else seasons.at(series.times)
    head, filling, seasonal = None, None, components.sum(axis=0)
    if bank is not None:
        filling = _filling(prepared, seasonal) if options.fill and prepared.missing.any() and not options.causal else None
        outputs, variances = _bank_outputs(prepared, bank, seasonal, filling)
        variances = _widened(prepared, outputs, variances, seasonal)
    else:
        head = configured_head(series, options, levels)
        outputs, variances = _one_head(series, head, levels, options)
    curve = restored(series, options, outputs.values + seasonal, prepared.missing)
    risk, error = _risk(prepared, outputs, variances if bank else None)
    freedom = float(outputs.leverages[series.present].sum())
    return Smoothing(
        values=curve,
        bandwidth=None if head is None else options.fixed_bandwidth or head.keys.in_units(series.step, series.spread),
        noise=float(np.sqrt(np.mean(levels**2))) * series.noise_unit,
        risk=risk * series.spread**2,
        risk_error=error * series.spread**2,
        degrees_of_freedom=freedom,
        leave_one_out=_leave_one_out(series, head, outputs),
        points=prepared.values.size,
        filled=int(np.sum(prepared.missing & ~np.isnan(curve))),
        times=prepared.times,
        heads=(options.keys,) if bank is None else tuple(bank.names),
        mixture=None if bank is None else bank.mixture,
        withheld=prepared.estimate.reason if bank is None else _withheld(prepared, curve, outputs.at(series.present)),
        options=options,
        series=series,
        head=head,
        estimate=prepared.estimate,
        unit_levels=levels,
        outliers=prepared.outliers,
        repeats=Repeats.none(prepared.values.size),
        observed=prepared.values,
        seasons=seasons,
        filling=filling,
        components=np.stack([series.unsort(component) for component in components], axis=1) * series.spread,
        curve_variances=variances,
    ).within(options)


def _withheld(prepared: PreparedSeries, curve: Floats, outputs: Outputs) -> str:
    """Why there is no band: the noise is not white, or the curve (n,) or the outputs at known points (k,) contradict it; else ""."""
    estimate, known, freedom = prepared.estimate, ~prepared.missing, float(outputs.leverages.sum())
    if not estimate.white or prepared.options.noise is not None:
        return "" if estimate.white else estimate.reason
    return (
        objection(prepared.values[known], curve[known], freedom, estimate.level, estimate.level_factor)
        or correlation_objection(prepared.series.key_values, outputs.values, estimate, freedom)
        or (doubt(prepared.series, prepared.times, prepared.levels, estimate) if prepared.options.cleans else "")
    )


def arranged(inputs: Observed) -> tuple[Series, NDArray[np.bool_]]:
    """The series in its own units, and the mask of missing points: NaN, or of weight 0."""
    values, moments, weights, options = inputs.values, inputs.times.moments, inputs.weights, inputs.options
    if weights is not None:
        values = np.where(weights > 0, values, np.nan)
    missing = np.isnan(values)
    if options.weighs_outliers:
        weights = downweight_outliers(values, moments, weights)
    if missing.all() and inputs.column:
        got = f"only NaN in column {inputs.column}"
        raise InputError("at least one value in each column", got=got, fix="leave that column out")
    # The dot score is not shift-invariant: it gets the values unshifted.
    series = arrange(values, moments, weights, shift=options.score == "gaussian")
    if options.score == "dot" and series.key_weights is not None and np.ptp(series.key_weights) > 0:
        fix = 'leave out weights and robust, or pass score="gaussian"'
        raise InputError("equal weights with the dot score", got="weights that differ", fix=fix)
    return series, missing


def restored(series: Series, options: Options, outputs: Floats, missing: NDArray[np.bool_]) -> Floats:
    """Outputs in the caller's units and order (n,)."""
    outputs = series.restore(outputs)
    if not options.fill:
        outputs[missing] = np.nan
    return outputs


def _risk(prepared: PreparedSeries, outputs: Outputs, variances: Floats | None) -> tuple[float, float]:
    """The estimated risk and its standard error, by Stein's estimate, combined with the variances of a bank.

    A curve that follows noise which is not white contains this noise as error: the mean square of the noise minus the residuals',
    as for a projection, whose residuals are orthogonal to the noise that it keeps.
    """
    series, estimate, noise = prepared.series, prepared.estimate, key_noise(prepared.series, prepared.risk_levels)
    followed = outputs.at(series.present)
    if estimate.possible is not None:  # Σ_j W_ij ρ^|i − j| replaces W_ii
        noise = noise * estimate.level_factor
        factors = estimate.variance_factors(2**0.5 * followed.leverages) / estimate.level_factor**2
        followed = followed._replace(leverages=followed.leverages * np.maximum(factors, 1.0))
    risk = float(pointwise_risk(series.key_values, followed, noise).mean())
    error = risk_error(noise, estimate.correlation)
    if variances is not None:
        risk, error = combined_risk(risk, error, float(variances[series.present].mean()), series.present.size)
    if not estimate.white:
        residuals = series.key_values - outputs.values[series.present]
        risk = max(risk, float(np.mean(np.minimum(noise, key_noise(series, prepared.levels)) ** 2 - residuals**2)))
    if variances is None or not prepared.options.fill:
        return risk, error
    # Missing points of the grid have the variances of their filling, at most the variance of the values, the error of a constant curve.
    first, last = series.present[[0, -1]]
    grid = np.arange(first, last, int(np.gcd.reduce(np.diff(series.present))) or 1)
    filled = np.minimum(variances[grid[np.isnan(series.values[grid])]], np.var(series.key_values))
    points = series.present.size + filled.size
    return (series.present.size * risk + float(filled.sum())) / points, series.present.size / points * error


def _prepared(rest: Rest, estimate: NoiseEstimate) -> PreparedSeries:
    """A series without seasons and outliers with its noise, its levels, and its levels for risks.

    Noise that is not white, such as rounding, has no tails, but raising its level makes a smoother curve; risks use the unraised level.
    """
    series, options = rest.series, rest.options
    if options.from_curve or (options.noise is not None and series.present.size < LEAST_POINTS):
        # Counts and outcomes are coarse but independent; a passed level need not be visible in few values.
        estimate = replace(estimate, white=True, reason="")
    if options.noise is None and options.two_sided_bank and on_grid(series.key_times):
        estimate = estimate.allowing(series.key_values)
    estimate = replace(estimate, heavy=bool(rest.outliers.any()), drawn=options.from_curve)
    estimate = estimate if rest.seasons is None else estimate.scaled(rest.seasons.level_factor)
    levels = risk_levels = noise_levels(series, options, estimate)
    if options.noise is None:
        estimate = _with_tails(estimate, series, options, key_noise(series, levels))
        levels = noise_levels(series, options, estimate)
    return PreparedSeries(**vars(rest), estimate=estimate, levels=levels, risk_levels=levels if estimate.white else risk_levels)


def _with_tails(estimate: NoiseEstimate, series: Series, options: Options, levels: Floats) -> NoiseEstimate:
    """The noise with its trimmed `levels` (n,) raised to include the tails; unchanged if it is, or may be, correlated."""
    if not options.two_sided_bank or options.weighs_outliers:
        return estimate
    if estimate.correlation or estimate.level_factor > PERHAPS_CORRELATED:
        return estimate
    return estimate.scaled(tail_factor(series.key_times, estimate.rest(series.key_values), levels))


def _refined(prepared: PreparedSeries, bank: BankOutputs) -> tuple[PreparedSeries, BankOutputs]:
    """The noise level from the residuals of the first curve, and the bank with it, if the level varies; else both unchanged."""
    series, options, estimate = prepared.series, prepared.options, prepared.estimate
    varies = estimate.levels is not None and options.noise is None and not options.causal
    if not varies or prepared.seasons is not None or series.key_weights is not None or series.present.size < MIN_POINTS:
        return prepared, bank
    values, leverages = bank.values[series.present], bank.leverages[series.present]
    levels = residual_levels(series.key_values - values, leverages, values, key_noise(series, prepared.levels))
    if levels is None:
        return prepared, bank
    estimate = replace(estimate, levels=levels, level=float(np.sqrt(np.mean(levels**2))))
    estimate = _with_tails(estimate, series, options, levels)
    prepared = replace(prepared, estimate=estimate, levels=noise_levels(series, options, estimate))
    [bank] = _banks([prepared])
    return prepared, bank


def _filling(prepared: PreparedSeries, season: Floats) -> Filling:
    """The filling of missing points, chosen by predictions of known points; if only outliers are missing, the bank's curve stays."""
    series, levels = prepared.series, prepared.levels
    missing = np.flatnonzero(np.isnan(series.values))
    first, last = series.present[[0, -1]]

    def curves_without(sets: list[Indices]) -> list[Floats]:
        deleted = [series.present[rows] for rows in sets]
        ends = min(rows.min() for rows in deleted), max(rows.max() for rows in deleted)
        near = slice(max(first, ends[0] - MARGIN), min(last, ends[1] + MARGIN) + 1)
        several = []
        for rows in deleted:
            values = series.values.copy()
            values[rows] = np.nan
            part = series.with_values(values).part(near)
            several.append(bank_series(part, levels[near], False, prepared.estimate))
        curves = attend_bank(NoisySeries.joined(several), correlation=prepared.estimate.correlation).values
        return [curve[rows - near.start] + season[rows] for curve, rows in zip(curves, deleted, strict=True)]

    return fill_gaps(
        gap_keys(series, season), series.times[missing], season[missing], curves_without, white=prepared.estimate.white
    )


def _bank_outputs(
    prepared: PreparedSeries, bank: BankOutputs, season: Floats, filling: Filling | None
) -> tuple[Outputs, Floats]:
    """The bank's outputs and variances, including the contributions of the seasons, and with missing points filled.

    Variances at missing points are at least the squared errors of deleted values beyond their noise. Points at one time get the mean of
    their values; their leverages and variances, which hardly differ, are averaged, too.
    """
    series, levels, seasons = prepared.series, prepared.levels, prepared.seasons
    added = np.zeros(bank.values.size) if seasons is None else seasons.leverages(bank.leverages)
    values, variances = bank.values.copy(), bank.variances + levels**2 * added
    if filling is not None:
        missing = np.isnan(series.values)
        across = np.interp(series.times[missing], series.key_times, values[series.present])
        curve = np.where(filling.joined, across, values[missing])
        values[missing] = filling.curve * (curve + season[missing]) + filling.values - season[missing]
        variances[missing] = np.maximum(variances[missing], filling.errors - levels[missing] ** 2)
    return Outputs(series.tied(values), series.tied(bank.leverages + added)), series.tied(variances)


def _widened(prepared: PreparedSeries, outputs: Outputs, variances: Floats, seasonal: Floats) -> Floats:
    """The variances (n,) times the larger of two factors: for correlations that few points do not exclude, and for lost signal."""
    present = prepared.series.present
    lost = lost_signal((outputs.values + seasonal)[present], variances[present])
    return variances * np.maximum(prepared.estimate.variance_factors(outputs.leverages), lost)


def _one_head(series: Series, head: SeriesHead, levels: Floats, options: Options) -> tuple[Outputs, Floats | None]:
    """The outputs of one head, and their variances if a time bandwidth was passed."""
    if not isinstance(head.keys, TimeKeys):
        return attend_head(series, head), None
    local = attend_in_time(series, head, head.keys.bandwidth)
    return Outputs(local.values, local.leverages), levels**2 * local.unit_variances if options.bandwidths else None


def _noisy(prepared: PreparedSeries) -> NoisySeries:
    return bank_series(prepared.series, prepared.levels, prepared.options.causal, prepared.estimate)


def _banks(several: Sequence[PreparedSeries]) -> list[BankOutputs]:
    """The outputs of the bank for several series on one grid, or for one series at any times."""
    first, causal, noisy = several[0], several[0].options.causal, [_noisy(prepared) for prepared in several]
    joined = NoisySeries.joined(noisy) if len(noisy) > 1 else noisy[0]
    banks = attend_bank(joined, causal=causal, correlation=first.estimate.correlation)
    if causal:
        banks.values[0, : first.series.present[0]] = np.nan  # points before the first value have no key
    return [banks.one(row) for row in range(len(several))]


def _leave_one_out(series: Series, head: SeriesHead | None, outputs: Outputs) -> float | None:
    if head is None or not isinstance(head.keys, TimeKeys):
        return None
    error = leave_one_out(series, outputs)
    return None if error is None else error * series.spread**2
