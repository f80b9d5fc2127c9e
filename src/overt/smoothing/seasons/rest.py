"""What the bank smooths: a series without its seasons and without isolated wild values."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.options import Options
from overt.smoothing.data.periods import read_periods
from overt.smoothing.data.series import Series, overall_level
from overt.smoothing.data.times import Times
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.seasons.detect import find_periods
from overt.smoothing.seasons.season import Seasons, estimate_seasons
from overt.smoothing.selection.contrasts import constant_level
from overt.smoothing.selection.noise import noise_levels
from overt.smoothing.selection.outliers import clean, to_one_side, without_those_beyond_gaps
from overt.smoothing.selection.rounding import repeated_level
from overt.smoothing.selection.waves import is_quick, recur, waves_of


def without_seasons(series: Series, times: Times, options: Options) -> tuple[Series, Seasons | None, NDArray[np.bool_]]:
    """A series without its seasons and isolated wild values, its seasons, and which points these are; wild values enter no season."""
    periods = _periods(series, times, options)
    if not periods:
        cleaned, outliers = _cleaned(series, options) if options.cleans else (series, np.zeros(series.values.size, dtype=bool))
        return cleaned, None, outliers
    seasons = estimate_seasons(series, periods, causal=options.causal)
    rest, outliers = seasons.rest, np.zeros(series.values.size, dtype=bool)
    if options.cleans:
        rest, outliers = _cleaned(seasons.rest, options)
    if outliers.any():
        values = np.where(outliers[series.order], np.nan, series.values)
        series = replace(series, values=values, present=np.flatnonzero(~np.isnan(values)))
        seasons = estimate_seasons(series, periods, causal=options.causal)
        rest, more = _cleaned(seasons.rest, options)
        outliers |= more
    return rest, seasons, outliers


def _periods(series: Series, times: Times, options: Options) -> tuple[float, ...]:
    """The periods in steps: those that were passed, or were found."""
    if options.period is None:
        return ()
    if isinstance(options.period, str) and options.period == "auto":
        return find_periods(series, times.origin is not None, causal=options.causal)
    return tuple(period / series.step for period in read_periods(options.period, times, series))


def _cleaned(series: Series, options: Options) -> tuple[Series, NDArray[np.bool_]]:
    """The series without isolated wild values, and which points these are, in the caller's order."""
    weights = np.ones(series.present.size) if series.key_weights is None else series.key_weights
    times = None if on_grid(series.key_times) else series.key_times
    passed = options.noise is not None and np.ndim(options.noise) == 0
    waves = waves_of(times, series.key_values)
    quick = waves if is_quick(times, series.key_values, waves) else np.zeros(waves.size)
    if passed:
        level = overall_level(noise_levels(series, options))
    else:
        level = constant_level(times, series.key_values - quick, weights)
        level = repeated_level(series.key_times, series.key_values, level) or level
    rest = series.key_values - quick
    cleaned = without_those_beyond_gaps(clean(rest, level), series.key_times, rest)
    if to_one_side(rest, cleaned.outliers):  # those of noise are as often above as below
        if waves.any() and not quick.any():
            # What stands alone in the values and not beside their waves is a part of these: a dip that returns.
            cleaned = cleaned.keeping(cleaned.outliers & ~clean(series.key_values - waves, level).outliers, rest)
        if times is not None and recur(times, cleaned.outliers):
            cleaned = cleaned.keeping(cleaned.outliers, rest)
    values, outliers = series.values.copy(), np.zeros(series.values.size, dtype=bool)
    values[series.present] = np.where(cleaned.outliers, np.nan, cleaned.values + quick)
    outliers[series.present] = cleaned.outliers
    present = series.present[~cleaned.outliers]
    return replace(series, values=values, present=present), series.unsort(outliers)
