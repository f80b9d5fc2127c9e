"""The input of the bank: a series without its seasons and without isolated outliers."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.clock import zone_clock
from overt.smoothing.data.options import Options
from overt.smoothing.data.periods import read_periods
from overt.smoothing.data.series import NOISELESS, SHORT, Floats, Series, arrange, overall_level
from overt.smoothing.data.times import Times
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.noise.peaks import to_one_side
from overt.smoothing.seasons.detect import find_periods
from overt.smoothing.seasons.phase import WHOLE
from overt.smoothing.seasons.season import Seasons, estimate_seasons
from overt.smoothing.selection.contrasts import constant_level
from overt.smoothing.selection.noise import growth_over_steps, noise_levels
from overt.smoothing.selection.outliers import (
    Cleaned,
    any_outlier,
    clean,
    stand_alone,
    without_those_beyond_gaps,
    without_those_next_to_jumps,
)
from overt.smoothing.selection.rounding import repeated_level
from overt.smoothing.selection.waves import find_waves, is_quick, recur

# PASSES: how often the search for the farthest values of phases is repeated; SAME_PHASE: largest distance of equal phases, in steps.
PASSES, SAME_PHASE = 3, 1.0


def without_seasons(series: Series, times: Times, options: Options) -> tuple[Series, Seasons | None, NDArray[np.bool_]]:
    """A series without its seasons and isolated outliers, its seasons, and the mask of outliers (n,), which enter no season."""
    if options.period is not None:
        series = replace(series, clock=zone_clock(times, series.start, series.step))
    periods = _periods(series, times, options)
    if not periods:
        cleaned, outliers = _cleaned(series, options) if options.cleans else (series, np.zeros(series.values.size, dtype=bool))
        return cleaned, None, outliers
    if not options.cleans:
        seasons = estimate_seasons(series, periods, causal=options.causal)
        return seasons.rest, seasons, np.zeros(series.values.size, dtype=bool)
    series, seasons, removed = _without_echoes(series, periods)
    rest, outliers = _cleaned(seasons.rest, options)
    if outliers.any():
        series = _without(series, outliers[series.order])
        seasons = estimate_seasons(series, periods)
        rest, more = _cleaned(seasons.rest, options)
        outliers |= more
    return rest, seasons, outliers | series.unsort(removed)


def _without(series: Series, marked: NDArray[np.bool_]) -> Series:
    """The series without the marked points (n,)."""
    return series.with_values(np.where(marked, np.nan, series.values))


def _without_echoes(series: Series, periods: tuple[float, ...]) -> tuple[Series, Seasons, NDArray[np.bool_]]:
    """A series without its farthest values, its seasons, and the mask of the farthest values (n,).

    A season that is estimated with an outlier repeats a part of it in every cycle: echoes, which look like recurring peaks. So the
    farthest value of a phase is deleted, and is an outlier if it is far out from the seasons without it, too.
    """
    seasons = estimate_seasons(series, periods)
    removed = np.zeros(series.values.size, dtype=bool)
    for _ in range(PASSES):
        suspects = _furthest_of_phases(series, seasons.rest, periods)
        if not suspects.any():
            break
        without = estimate_seasons(_without(series, suspects), periods)
        confirmed = suspects & _far_out(without.rest.with_values(series.values - without.at(series.times).sum(axis=0)))
        if not confirmed.any():
            break
        series, removed = _without(series, confirmed), removed | confirmed
        seasons = estimate_seasons(series, periods)
    return series, seasons, removed


def _far_out(rest: Series) -> NDArray[np.bool_]:
    """The mask of isolated values that are far out, whatever their number (n,)."""
    marked = np.zeros(rest.values.size, dtype=bool)
    level = constant_level(None, rest.key_values, np.ones(rest.present.size))
    marked[rest.present] = stand_alone(rest.key_values, max(level, NOISELESS))
    return marked


def _furthest_of_phases(series: Series, rest: Series, periods: tuple[float, ...]) -> NDArray[np.bool_]:
    """The mask of values far out that are the farthest of their phase from the median of the series without seasons (n,)."""
    candidates = np.flatnonzero(_far_out(rest))
    distances = np.abs(rest.values[candidates] - np.median(rest.key_values)) if candidates.size else np.zeros(0)
    furthest = np.zeros(series.values.size, dtype=bool)
    for point in candidates[np.argsort(-distances, kind="stable")]:
        away = np.abs(series.times[point] - series.times[furthest])[:, None] / np.array(periods)
        if not (np.abs(away - np.rint(away)) * np.array(periods) < SAME_PHASE).any():
            furthest[point] = True
    return furthest


def cycle_length(values: Floats, times: Times, options: Options) -> int:
    """The points of the shortest season of values (n,) at equal steps, without NaN; 1 without a season or a whole number of points."""
    if options.period is None:
        return 1
    series = arrange(values, times.moments, None)
    cycle = min(_periods(series, times, options), default=1.0)
    return round(cycle) if on_grid(series.key_times) and abs(cycle - round(cycle)) < WHOLE else 1


def _periods(series: Series, times: Times, options: Options) -> tuple[float, ...]:
    """The passed or detected periods, in steps."""
    if options.period is None:
        return ()
    if isinstance(options.period, str) and options.period == "auto":
        return find_periods(series, times.origin is not None, causal=options.causal)
    return tuple(period / series.step for period in read_periods(options.period, times, series))


def _cleaned(series: Series, options: Options) -> tuple[Series, NDArray[np.bool_]]:
    """The series without isolated outliers, and the mask of outliers, in the caller's order (n,)."""
    weights = np.ones(series.present.size) if series.key_weights is None else series.key_weights
    times = None if on_grid(series.key_times) else series.key_times
    passed = options.noise is not None and np.ndim(options.noise) == 0
    waves = find_waves(times, series.key_values)
    quick = waves if is_quick(times, series.key_values, waves) else np.zeros(waves.size)
    if passed:
        level = overall_level(noise_levels(series, options))
    else:
        level = constant_level(times, series.key_values - quick, weights)
        level = repeated_level(series.key_times, series.key_values, level) or level
    rest = series.key_values - quick
    cleaned = clean(rest, level)
    if cleaned.outliers.any():
        # In a short series a peak of the signal may have a single point, more so if its neighbours are missing.
        long_step_level = level * growth_over_steps(times, rest, weights) if rest.size < SHORT else 0.0
        cleaned = without_those_beyond_gaps(cleaned, series.key_times, rest, long_step_level)
    if waves.any() and not quick.any():
        cleaned = _beside_waves(cleaned, series.key_values, waves, level)
    if times is not None and to_one_side(rest, cleaned.outliers) and recur(times, cleaned.outliers):
        cleaned = cleaned.keeping(cleaned.outliers, rest)
    values, outliers = series.values.copy(), np.zeros(series.values.size, dtype=bool)
    values[series.present] = np.where(cleaned.outliers, np.nan, cleaned.values + quick)
    outliers[series.present] = cleaned.outliers
    return series.with_values(values), series.unsort(outliers)


def _beside_waves(cleaned: Cleaned, values: Floats, waves: Floats, level: float) -> Cleaned:
    """The cleaned series with the outliers that values (n,) have relative to their waves (n,).

    Outliers of noise are as often above as below: if they are to one side, outliers that are not isolated from the waves are part of the
    waves, such as a dip that returns.
    """
    rest = values - waves
    marked = clean(rest, level).outliers if any_outlier(rest, level) else np.zeros(rest.size, dtype=bool)
    if to_one_side(values, cleaned.outliers):
        return cleaned.keeping(cleaned.outliers & ~marked, values)
    points, out = np.arange(values.size), marked | cleaned.outliers
    others = np.where(out, waves + np.interp(points, points[~out], rest[~out]), values)
    marked = without_those_next_to_jumps(marked & ~cleaned.outliers, values, others, level)
    return cleaned._replace(outliers=cleaned.outliers | marked)
