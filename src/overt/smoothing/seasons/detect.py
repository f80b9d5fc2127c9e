"""Detected or suggested periods of a series: lags at which it resembles itself, accepted only if cycles far apart agree."""

import numpy as np

from overt.smoothing.data.series import Floats, Series
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.seasons.phase import WHOLE, Grid
from overt.smoothing.seasons.season import estimate_seasons
from overt.smoothing.selection.waves import uneven_period

# CALENDAR: periods in seconds that are tried if times are dates, and their names; a year has its mean length.
CALENDAR = {3600.0: "hourly", 86400.0: "daily", 604800.0: "weekly", 365.2425 * 86400: "yearly"}
# LEAST_CYCLES: fewest cycles of a period; MOST_PERIODS: most periods of a series.
LEAST_CYCLES, MOST_PERIODS = 4, 3
# PHASES: cells of a cycle in the comparison of cycles: coarse cells average the noise, fine cells resolve short events.
PHASES = (12, 48)
# LEAST_RATIO, LEAST_CORRELATION: least `agreement` of cycles: fewer than 1% of series of noise, trends, steps and smooth curves reach it.
LEAST_RATIO, LEAST_CORRELATION = 12.0, 0.1
# LAGS: peaks of the autocorrelation that are tried per trend.
LAGS = 3
# SHORTEST: shortest period, in steps; shorter lags are too coarse.
SHORTEST = 2.9
# SHORTER: least agreement of a shorter period that is preferred to a longer one, over the agreement of the longer one.
SHORTER = 0.5
# LEAST_GAIN: least share of a wave at uneven times that other cycles predict; NEARLY: least gain of its period, over the best multiple's.
LEAST_GAIN, NEARLY = 0.5, 0.9
# SPARSE_CYCLE: fewest points per cycle in a comparison of cycles; with fewer, cells are empty.
SPARSE_CYCLE = 6
# CLEARLY: a multiple replaces a period if other cycles leave at most this share of what they leave unexplained by the period.
CLEARLY = 0.95
# SMOOTHER: on a grid of steps, where a multiple has the same phases, the multiple replaces the period if the squared changes along a cycle
# of the period exceed this part of the changes along the multiple.
SMOOTHER = 0.4
# QUICK: longest period, in steps, that is compared with its multiples by smoothness; longer ones are compared only by predictions.
QUICK = 12.0
# CONTAINED: a period that another one contains this often is part of the season of the other.
CONTAINED = (2, 3, 4)
# SPARSE: most steps per point; beyond, a series is too uneven for the lags of a grid.
SPARSE = 8
# USUAL: usual periods, in steps, of times without dates: weeks, months, hours, weeks of a year, quarters of hours and days.
USUAL = (7.0, 12.0, 24.0, 52.0, 96.0, 144.0, 168.0, 365.0)
# CERTAIN: least agreement of the cycles of a suggested period, over the least agreement in `find_periods`.
CERTAIN = 1.5
# NEAR: relative tolerance of a wave that is a half, a third or a quarter of a cycle.
NEAR = 0.02
# CLIP: largest detrended value that counts, in median absolute values.
CLIP = 4.5


def find_periods(series: Series, dates: bool, *, causal: bool = False) -> tuple[float, ...]:
    """The periods of a series in steps, ascending; empty for noise.

    Candidates are peaks of the autocorrelation after trends of many bandwidths were subtracted, with dates the calendar's periods, and at
    uneven times the wave that changes most from point to point. A candidate is accepted if its `agreement` is large; a wave with few points
    per cycle, if other cycles predict it. Its season is subtracted, and the search is repeated.

    >>> from overt.smoothing.data.series import arrange
    >>> draw, t = np.random.default_rng(0), np.arange(240.0)
    >>> find_periods(arrange(np.sin(2 * np.pi * t / 12) + 0.5 * draw.normal(size=240), t), False)
    (12.0,)
    """
    periods: tuple[float, ...] = ()
    rest = series
    while len(periods) < MOST_PERIODS:
        period = _next(rest, dates, periods)
        if period is None:
            break
        periods = tuple(sorted((*periods, period)))
        rest = estimate_seasons(series, periods, causal=causal).rest
    return tuple(
        period
        for period in periods
        if not any(abs(longer / period - count) < 0.02 * count for longer in periods for count in CONTAINED)
    )


def suggested_period(series: Series, *, dates: bool) -> float | None:
    """The shortest usual period, in steps, whose cycles clearly agree; None if there is no such period.

    >>> from overt.smoothing.data.series import arrange
    >>> draw, days = np.random.default_rng(0), np.arange(280.0)
    >>> sales = arrange(np.where(days % 7 < 5, 10.0, 4.0) + draw.normal(size=280), 86400 * days)
    >>> suggested_period(sales, dates=True), suggested_period(arrange(draw.normal(size=280), days), dates=False)
    (7.0, None)
    """
    span = float(series.times[-1]) + 1
    usual = [period / series.step for period in CALENDAR] if dates else list(USUAL)
    usual = [period for period in usual if SHORTEST <= period <= span / LEAST_CYCLES]
    if series.present.size < 4 * LEAST_CYCLES:
        return None
    judged = [(period, *agreement(series, period)) for period in usual]
    clear = [
        (period, rho) for period, rho, ratio in judged if ratio > CERTAIN * LEAST_RATIO and rho > CERTAIN * LEAST_CORRELATION
    ]
    most = max((rho for _, rho in clear), default=0.0)
    return min((period for period, rho in clear if rho >= SHORTER * most), default=None)


def calendar_multiple(period: float) -> float | None:
    """The calendar's period, in seconds, of which `period` is a half, a third or a quarter; None if there is none.

    >>> calendar_multiple(3.5 * 86400) == 7 * 86400, calendar_multiple(5 * 86400)
    (True, None)
    """
    parts = ((whole, part) for whole in CALENDAR for part in CONTAINED)
    return next((whole for whole, part in parts if abs(part * period / whole - 1) < NEAR), None)


def agreement(series: Series, period: float) -> tuple[float, float]:
    """The agreement of the cycles of a period: ρ and the ratio Cρ/(1 − ρ) for C cycles, the larger of two resolutions.

    The detrended values are averaged over cells, v_c for cycle c. ρ is the mean of v_c·v_c' over cycles at least two apart, over the mean
    of v_c·v_c. Neighbouring cycles are excluded, because a random walk resembles itself for a cycle or two. The ratio compares the
    variance of a mean over cycles with its value by chance, as F in an analysis of variance.
    """
    times, values = series.key_times, _detrended(series, period / 2)
    best = (0.0, 0.0)
    for phases in sorted({min(most, max(2, round(period))) for most in PHASES}):
        cycles = int(series.times[-1] // period) + 1
        clock = series.clock if series.clock is not None and series.clock.rules(period) else None
        grid = Grid(period, phases, cycles + 1, clock)
        counts, sums = grid.add_up(times, np.ones(times.size)), grid.add_up(times, values)
        cells = np.where(counts > 0.25 * counts.max(), sums / np.maximum(counts, 1e-9), 0.0).reshape(-1, phases)
        cells, filled = cells[cells.any(axis=1)], float((counts > 0.25 * counts.max()).mean())
        cells = cells - cells.mean(axis=1, keepdims=True)  # a local line is off by a constant on a parabola
        count = len(cells)
        if count < LEAST_CYCLES or filled < 0.3:
            continue
        squares = float((cells**2).sum())
        nearby = float((cells[1:] * cells[:-1]).sum())
        apart = float((cells.sum(axis=0) ** 2).sum()) - squares - 2 * nearby
        rho = apart / ((count - 1) * (count - 2)) / max(squares / count, np.finfo(float).tiny)
        ratio = count * rho / max(1 - rho, 1e-6)
        best = max(best, (ratio, rho))
    return best[1], best[0]


def _next(series: Series, dates: bool, known: tuple[float, ...]) -> float | None:
    """The next period that is not `known`, or None."""
    wave = uneven_period(series.key_times, series.key_values)
    candidates = {*_candidates(series, dates), *([wave] if wave else ())}
    judged = [(one, *agreement(series, one)) for one in sorted(candidates) if not _near(one, known)]
    passed = [(one, rho) for one, rho, ratio in judged if ratio > LEAST_RATIO and rho > LEAST_CORRELATION]
    if wave and not _near(wave, known):
        multiples = [one for one, _ in passed if _near(one, (wave * max(round(one / wave), 1),), 0.02)]
        quick = wave * series.present.size < SPARSE_CYCLE * series.times[-1]
        period = _wave_period(series, sorted({wave, *multiples})) if multiples or quick else None
        if period is not None:
            return period
    if not passed:
        return None
    most = max(rho for _, rho in passed)
    return _fundamental(series, min(one for one, rho in passed if rho >= SHORTER * most), dates)


def _fundamental(series: Series, period: float, dates: bool) -> float:
    """The period, or its multiple if the period belongs to a harmonic.

    A multiple is chosen if other cycles explain clearly more with it, or on a grid of steps not less, with a smoother season: on the grid
    3.5 and 7 steps have the same seven phases, in another order.
    """
    calendar = [length / series.step for length in CALENDAR] if dates else []
    longest = (float(series.times[-1]) + 1) / LEAST_CYCLES
    tried = [period, *(_on_grid(count * period, calendar) for count in CONTAINED if count * period <= longest)]
    left = [1 - estimate_seasons(series, (length,)).each[0].gain for length in tried]
    for length, part in zip(tried[1:], left[1:], strict=True):
        equal = period <= QUICK and part * CLEARLY <= left[0]
        if equal and (length in calendar or _is_smoother(series, length, round(length / period))):
            return length
    least = min(left)
    if left[0] * CLEARLY <= least:
        return period
    return next(length for length, part in zip(tried, left, strict=True) if part * CLEARLY <= least)


def _is_smoother(series: Series, period: float, parts: int) -> bool:
    """Whether the means of a period's phases change less in its order than in the order of a part; False off the grid of steps."""
    whole = round(period)
    if abs(period - whole) > WHOLE or whole % parts == 0 or np.abs(series.key_times - np.rint(series.key_times)).max() > WHOLE:
        return False
    phases = np.rint(series.key_times).astype(np.intp) % whole
    values = _detrended(series, period / 2)
    counts = np.maximum(np.bincount(phases, minlength=whole), 1)
    means = np.bincount(phases, values, whole) / counts
    noise_changes = 2 * float(np.sum(np.bincount(phases, (values - means[phases]) ** 2, whole) / counts**2))
    part_means = means[np.argsort(np.arange(whole) * parts % whole, kind="stable")]
    changes, in_part = (float(np.sum((np.roll(order, -1) - order) ** 2)) for order in (means, part_means))
    return in_part - noise_changes > SMOOTHER * max(changes - noise_changes, 0.0)


def _on_grid(period: float, calendar: list[float]) -> float:
    """The calendar's period or the whole number of steps within 2% of a period, else the period."""
    exact, whole = _calendar_period(period, calendar), float(round(period))
    return whole if exact == period and abs(whole / period - 1) < 0.02 else exact


def _near(period: float, known: tuple[float, ...], tolerance: float = 0.05) -> bool:
    return any(abs(period / other - 1) <= tolerance for other in known)


def _wave_period(series: Series, multiples: list[float]) -> float | None:
    """The period of a wave, or the multiple of which it is a harmonic; None if other cycles predict neither."""
    gains = [estimate_seasons(series, (period,)).each[0].gain for period in multiples]
    most = max(gains)
    nearly = (period for period, gain in zip(multiples, gains, strict=True) if gain >= NEARLY * most)
    return next(nearly) if most > LEAST_GAIN else None


def _candidates(series: Series, dates: bool) -> list[float]:
    span = float(series.times[-1]) + 1
    calendar = [period / series.step for period in CALENDAR] if dates else []
    periods = [period for period in calendar if SHORTEST <= period <= span / LEAST_CYCLES]
    if span > SPARSE * series.times.size or series.present.size < 4 * LEAST_CYCLES:
        return periods
    bandwidth = 1.5
    while 2 * bandwidth <= span / LEAST_CYCLES * 1.42:
        correlation = _autocorrelation(series, bandwidth)
        low, high = max(2, int(1.4 * bandwidth)), min(int(2.9 * bandwidth) + 1, int(span / LEAST_CYCLES))
        lags = np.arange(low, high + 1)
        lags = lags[lags + 1 < correlation.size]
        if lags.size:
            peaks = lags[(correlation[lags] >= correlation[lags - 1]) & (correlation[lags] >= correlation[lags + 1])]
            best = peaks[np.argsort(-correlation[peaks])][:LAGS]
            periods += [_refined(correlation, int(lag)) for lag in best if correlation[lag] > 0]
        bandwidth *= np.sqrt(2)
    near = [_calendar_period(period, calendar) for period in periods]
    return sorted({round(period, 6) for period in near if SHORTEST <= period <= span / LEAST_CYCLES})


def _calendar_period(period: float, calendar: list[float]) -> float:
    """The calendar's period within 2% of a lag, else the lag."""
    return next((exact for exact in calendar if abs(period / exact - 1) < 0.02), period)


def _refined(correlation: Floats, lag: int) -> float:
    """A period by the peaks at its multiples, which measure it ever more exactly; rounded if a whole number is as near."""
    period, multiple = float(lag), 1
    while True:
        at = round(multiple * period)
        near = np.arange(max(1, at - 1), at + 2)
        if near[-1] + 1 >= correlation.size // 2 or multiple > correlation.size:
            break
        peak = int(near[np.argmax(correlation[near])])
        left, middle, right = correlation[peak - 1 : peak + 2]
        bend = left - 2 * middle + right
        if correlation[peak] <= 0 or bend >= 0:
            break
        period = (peak + float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5))) / multiple
        multiple *= 2
    whole = round(period)
    return float(whole) if abs(period - whole) < 1 / multiple else period


def _autocorrelation(series: Series, bandwidth: float) -> Floats:
    """The autocorrelation of the detrended values on a grid of steps, without missing values (lags,)."""
    size = int(series.times[-1]) + 2
    grid = Grid(float(size), size, 1)
    values = grid.add_up(series.key_times, _detrended(series, bandwidth))
    present = grid.add_up(series.key_times, np.ones(series.present.size))
    length = 1 << (2 * size).bit_length()
    spectra = np.abs(np.fft.rfft(np.stack([values, present]), length)) ** 2
    products, pairs = np.fft.irfft(spectra, length)[:, :size]
    correlation = np.where(pairs > 0.1 * pairs[0], products / np.maximum(pairs, 0.5), 0.0)
    return correlation / max(float(correlation[0]), np.finfo(float).tiny)


def _detrended(series: Series, bandwidth: float) -> Floats:
    """The values without a local line, outliers clipped (m,)."""
    trend = attend_time(series.key_times, series.key_values, series.key_weights, bandwidth, degree=1).values
    detrended = series.key_values - trend
    limit = CLIP * max(float(np.median(np.abs(detrended))), 0.1 * float(np.sqrt(np.mean(detrended**2))))
    return np.clip(detrended, -limit, limit)
