"""The noise of a series, estimated without its signal: its level, whether the level varies, and whether the noise is white."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.options import Options
from overt.smoothing.data.repeats import flat_runs
from overt.smoothing.data.series import SHORT, Floats, Series, read_noise
from overt.smoothing.selection.contrasts import (
    MAX_CONTRASTS,
    constant_level,
    contrasts,
    trimmed_deviation,
)
from overt.smoothing.selection.correlation import (
    BENEATH,
    FAR,
    NEAR,
    WALK,
    autoregression,
    autoregression_level,
    fits_the_spectrum,
    level_factor,
    possible_correlations,
    spectral_autoregression,
    strongest,
    variance_factors,
)
from overt.smoothing.selection.rounding import EQUAL, repeated_level, rounded_level
from overt.smoothing.selection.varying import may_vary, share_of_noise, varying_levels
from overt.smoothing.selection.waves import find_waves, have_waves

# ORDERS: orders of the differences; jumps raise the high orders, waves the low ones, noise all of them. LAGS: steps of the differences.
ORDERS, LAGS = (2, 3, 5), (1, 2, 3)
# MIN_CORRELATED: fewer points do not distinguish an autoregression from a quick signal: with 200 the error under white noise would grow by
# 2%, and to 17 times.
MIN_CORRELATED = 250
# ON_GRID: the share of equal steps that makes a grid, in which missing values and outliers leave gaps.
ON_GRID = 0.8
# CLEAR, SUGGESTED: bounds of S, times 1/√n, for noise that is not white, and that may not be if the least likely ρ of the spectrum exceeds
# LEAST_SHOWN.
CLEAR, SUGGESTED, LEAST_SHOWN = 6.2, 5.0, 0.15
# HARDLY_ANY: if a smaller share of windows looks like noise (`varying.share_of_noise`), a large S is not due to few points of a signal.
HARDLY_ANY = 0.2
# LEAST_POINTS: fewer values have no second difference.
LEAST_POINTS = 3
TOO_FEW = "Fewer than three values do not show their noise, and stay as they are."
ROUNDED = "The values are rounded more coarsely than their noise, so that neither its level nor whether it is independent can be seen."
REPEATED = (
    "Many values repeat the one before: copies, zeros where nothing happened, or ends of a range. The noise was estimated from where they "
    "change; neither its level nor whether it is independent is certain. Make repeats NaN where they are copies."
)
# FITTED_DIGITS: the relative precision of fitted waves; noise of a lower level cannot be estimated.
FITTED_DIGITS = 1e-5

# The ρ of noise, its level in units of the weights, and a message.
Correlation = tuple[float, float, str]


@dataclass(frozen=True)
class NoiseEstimate:
    """The estimated noise of a series: its standard deviation, its variation, and whether it is white."""

    level: float  # of one value of weight 1
    levels: Floats | None  # (n,) of each value at weight 1, if they vary
    white: bool  # no dependence between neighbours was detected
    reason: str  # one sentence if the noise is not white and its correlation is not corrected for
    correlation: float = 0.0  # ρ of an autoregression ε_i = ρ ε_{i−1} + white
    waves: Floats | None = None  # (n,) the sum of sinusoids that stand out in the spectrum, which are signal
    possible: Floats | None = None  # (ρ,) the probabilities of correlations that so few points do not exclude (`POSSIBLE`)
    heavy: bool = False  # values were removed that normal noise does not have: similar ones are less far out
    drawn: str = ""  # the kind of values whose variances follow an earlier curve: "counts", "outcomes", …

    def scaled(self, factor: float) -> "NoiseEstimate":
        """The same noise with its levels multiplied by a factor."""
        levels = None if self.levels is None else factor * self.levels
        return replace(self, level=factor * self.level, levels=levels)

    def allowing(self, values: Floats) -> "NoiseEstimate":
        """The same noise of few values (n,) at equal steps, with the correlations that the values do not exclude."""
        if not self.white or self.correlation or self.level == 0 or values.size >= SHORT:
            return self
        return replace(self, possible=possible_correlations(self.rest(values)))

    def variance_factors(self, leverages: Floats) -> Floats:
        """The factors by which possible correlations raise the variances of a curve of these leverages (n,)."""
        return np.ones(leverages.size) if self.possible is None else variance_factors(leverages, self.possible)

    @property
    def level_factor(self) -> float:
        """The factor by which possible correlations raise the level that differences show."""
        return 1.0 if self.possible is None else level_factor(self.possible)

    def at(self, times: Floats, known: NDArray[np.bool_]) -> "NoiseEstimate":
        """The same noise, estimated from the known values (n,), at all times (n,)."""
        levels = None if self.levels is None else np.interp(times, times[known], self.levels)
        if self.waves is None:
            return replace(self, levels=levels)
        waves = np.zeros(times.size)
        waves[known] = self.waves
        return replace(self, levels=levels, waves=waves)

    def rest(self, values: Floats) -> Floats:
        """Values (n,) without their waves."""
        return values if self.waves is None else values - self.waves


def estimate_noise(
    times: Floats, values: Floats, weights: Floats | None = None, *, correlated: bool = False, passed: bool = False
) -> NoiseEstimate:
    """Estimate the noise of a series with a smooth, jumpy or spiky signal.

    **waves** that stand out in the spectrum are removed first (`waves.find_waves`): waves of fewer than seven points are as rough as noise.

    **level**: the trimmed standard deviation (`trimmed_deviation`), without residuals beyond 2.5 of it, of the residuals of each x_i from
    lines through two neighbours at distance one or two (`contrasts`), scaled to unit variance at σ = 1. Gasser, Sroka and
    Jennen-Steinmetz (1986) use the root mean square of these residuals. On 1,024 points of the signal "bumps" at a signal-to-noise
    ratio of 7 their level is 46% too high, this one 5%. On white normal noise the relative standard error is 1/√n, an efficiency of
    one half relative to no signal. Heavy tails count less: for t-distributed noise with 4 degrees of freedom the level is 14% below
    the standard deviation. Lines and exact steps have level 0.

    **levels**: if the level around some points clearly differs (`varying.varying_levels`); `level` is then their root mean square.

    **white**: for independent noise, differences over two and three steps are as large as those over one; for positively
    correlated noise they are larger. Of second, third and fifth differences (all must agree, since jumps raise the high
    orders and waves the low ones),

        S = log(level over 2 · level over 3 / level over 1²): 0 for white noise of any distribution, 0.9 for a random walk,

    and the noise is not white if S > 6.2/√n + 70/n + 0.02 or S < −6.2/√n − 0.02, n at most 50,000. These bounds come from
    simulations: false alarms are about 1% or fewer on the test signals of Donoho and Johnstone (1994), on kinks and on waves of 25
    points and longer, at signal-to-noise ratios up to 7, from 200 points. At equal steps AR(1) noise of 0.3 is detected in 85% of
    series of 1,024 points (60% at random times), of −0.3 in all (93%); a random walk in 55% of series of 200 points, and nearly all
    of 400. Correlated noise cannot be distinguished from waves shorter than about 20 points or from steps every few points, nor
    white noise from noise whose correlations begin beyond three steps. Below 100 points little is detected.

    **flat runs** of equal values next to others with noise do not count (`data.repeats`), and **repeated** values, of which many equal
    the one before, are reported as not white (`rounding.repeated_level`); neither if the level is `passed` (only `white` is needed).

    **rounded** values, whose steps are more than twice that level, are reported as not white; see `rounding.rounded_level`.

    **correlation**, with `correlated`: if differences at equal steps indicate correlation, from 250 points on, the noise is taken for
    an autoregression of order one (`correlation.autoregression`), and `level` is the level of its values. A ρ above 0.87, of 250 points
    above 0.76, cannot be distinguished from a signal or a random walk: then ρ is estimated beneath the signal in the spectrum
    (`correlation.spectral_autoregression`), and `reason` reports it; if the spectrum shows no ρ either, nothing is corrected.
    If S only exceeds 5/√n + 0.02, as in short series, ρ is taken from the spectrum if all its likely ρ exceed 0.15.

    times (n,) ascending, equal ones allowed; values (n,) without NaN; weights (n,): value i has the variance σ²/w_i; 0: it is ignored.

    >>> noise = np.random.default_rng(0).normal(size=10_000)
    >>> estimated = estimate_noise(np.arange(10_000.0), noise)
    >>> round(estimated.level, 2), estimated.levels, estimated.white
    (1.0, None, True)
    >>> estimate_noise(np.arange(10_000.0), noise.cumsum()).reason.partition(":")[0]
    'The noise does not look independent'
    """
    weights = np.ones_like(values) if weights is None else weights
    known = weights > 0
    if 0 < known.sum() < LEAST_POINTS:
        return NoiseEstimate(0.0, None, False, TOO_FEW)
    if known.all() and not passed:
        known = ~flat_runs(values)
    if not known.all():
        parts = (column[known] for column in (times, values, weights))
        return estimate_noise(*parts, correlated=correlated, passed=passed).at(times, known)
    steps = np.diff(times)
    even = steps.size > 0 and np.ptp(steps) <= 1e-9 * steps[0]
    moments = None if even else times
    waves = find_waves(moments, values)
    rest = values - waves if waves.any() else values
    level = constant_level(moments, rest, weights)
    rounded = rounded_level(values, level)
    repeated = None if passed else repeated_level(times, values, level)
    if rounded is not None or repeated is not None:
        return NoiseEstimate(max(rounded or 0.0, repeated or 0.0), None, False, ROUNDED if rounded else REPEATED)
    exact = 8 * np.finfo(float).eps * np.max(np.abs(values), initial=0.0)
    if level <= max(exact, FITTED_DIGITS * np.max(np.abs(waves), initial=0.0)):
        estimate = NoiseEstimate(0.0, None, True, "")
    else:
        estimate = _estimate_without_waves(moments, values, rest, weights, level, correlated)
    return estimate if rest is values else replace(estimate, waves=waves)


def _estimate_without_waves(
    times: Floats | None, values: Floats, rest: Floats, weights: Floats, level: float, correlated: bool
) -> NoiseEstimate:
    """The noise of a series without its waves: whether its level varies, and whether it is white; `level` is the constant level."""
    levels, constant = varying_levels(times, rest, weights, level, None if rest is values else values), weights
    if levels is not None:
        level, weights = float(np.sqrt(np.mean(levels**2))), weights / levels**2
    # Few points of a random walk seem to have a varying level, which then hides their correlation.
    ratios = _ratios(times, rest, weights)
    if levels is not None and rest.size < SHORT:
        ratios = max(ratios, _ratios(times, rest, constant), key=min)
    slack = _slack(rest.size)
    if _bound(rest.size) < min(ratios) <= _bound(rest.size) + slack and share_of_noise(times, rest, constant) < HARDLY_ANY:
        slack = 0.0
    not_white = min(ratios) > _bound(rest.size) + _slack(rest.size)
    alternating = max(ratios) < -_bound(rest.size)
    suggested = not not_white and min(ratios) > _bound(rest.size, SUGGESTED)
    if correlated and _mostly_on_grid(times) and rest.size >= MIN_CORRELATED and (not_white or alternating or suggested):
        correlation = _correlation(rest, weights, alternating=alternating, suggested=suggested)
        if correlation is None and rest is not values and not suggested:  # residues of changing waves may hide it
            correlation = _correlation(values, weights, alternating=alternating)
        if correlation:
            rho, deviation, reason = correlation
            factor = deviation / (level if levels is None else 1.0)
            return NoiseEstimate(level * factor, None if levels is None else levels * factor, not reason, reason, rho)
    reason = _reason_not_white(ratios, rest.size, slack)
    return NoiseEstimate(level, levels, not reason, reason)


def _mostly_on_grid(times: Floats | None) -> bool:
    """Whether most steps are the shortest one."""
    if times is None:
        return True
    steps = np.diff(times)
    return bool(steps.size > 0 and steps.min() > 0 and np.mean(steps <= steps.min() * (1 + 1e-9)) >= ON_GRID)


def estimate_noises(values: Floats) -> list[NoiseEstimate]:
    """`estimate_noise` of several short series at equal steps, values (series, n), at once.

    A series is estimated separately, with `correlated`, if its level is 0 or may vary, if it has waves, or if it is long enough and may
    not be white.

    >>> [estimated.level.__round__(2) for estimated in estimate_noises(np.random.default_rng(0).normal(size=(2, 300)))]
    [1.01, 1.01]
    """
    count, alike = values.shape[1], np.ones(values.shape[1])
    levels = constant_level(None, values, alike)
    alone = (
        (np.mean(np.diff(values, axis=1) == 0, axis=1) >= EQUAL)  # rounded
        | (levels <= 8 * np.finfo(float).eps * np.abs(values).max(axis=1, initial=0.0))
        | (count >= SHORT)
        | may_vary(values)
        | have_waves(values)
    )
    estimates = []
    for series, ratios in enumerate(_ratios(None, values, alike).T):
        reason = _reason_not_white(ratios, count, _slack(count))
        if (
            alone[series]
            or _bound(count) < ratios.min() <= _bound(count) + _slack(count)
            or ((reason or ratios.min() > _bound(count, SUGGESTED)) and count >= MIN_CORRELATED)
        ):
            estimates.append(estimate_noise(np.arange(float(count)), values[series], correlated=True))
        else:
            estimates.append(NoiseEstimate(float(levels[series]), None, not reason, reason))
    return estimates


def _ratios(times: Floats | None, values: Floats, weights: Floats) -> Floats:
    """S of each order of values (…, n), (orders, …); 0, no evidence, if the series is too short or has mostly exact steps."""
    levels = np.array(
        [
            [trimmed_deviation(contrasts(times, values, weights, range(0, order * lag + 1, lag))) for lag in LAGS]
            for order in ORDERS
        ]
    )  # (orders, lags, …)
    one, two, three = np.moveaxis(np.log(np.where(levels.min(axis=(0, 1)) > 0, levels, 1.0)), 1, 0)
    return two + three - 2 * one


def growth_over_steps(times: Floats | None, values: Floats, weights: Floats) -> float:
    """The level of differences over two and three steps over the level over one step: 1 for white noise, more for quick signals."""
    return float(np.exp(max(_ratios(times, values, weights).min(), 0.0) / 2))


def _correlation(values: Floats, weights: Floats, *, alternating: bool, suggested: bool = False) -> Correlation | None:
    """The correlation of noise, or None; ρ is from the spectrum if far differences contain a signal, or show too small a ρ.

    Alternating noise shows over few steps, where signals raise differences less; over an even number of steps its sign is equal. If
    differences only suggest a correlation, the spectrum must show it. In short series it must also fit, since a quick signal would not.
    """
    rho, deviation = _fitted(values, weights, NEAR if alternating else FAR)
    if alternating:
        return (rho, deviation, "") if rho <= 0 else None
    plausible, spectral = rho <= strongest(values.size), spectral_autoregression(values)
    if suggested and not (spectral.shows and spectral.least > LEAST_SHOWN):
        return None
    reason = WALK if plausible and spectral.may_be_a_walk else ""
    if spectral.shows and (suggested or not plausible or spectral.least > rho):
        rho, reason = spectral.rho, reason if suggested or plausible else BENEATH
        deviation = _level_at(values, weights, rho)
    elif not plausible:
        return None
    return (rho, deviation, reason.format(rho=rho)) if values.size >= SHORT or fits_the_spectrum(values, rho) else None


def _fitted(values: Floats, weights: Floats, far: int) -> tuple[float, float]:
    """The smallest ρ of all orders of differences at equal steps over `far` steps, and the level of this autoregression."""
    fits = []
    for order in ORDERS:
        one, apart = (trimmed_deviation(contrasts(None, values, weights, range(0, order * lag + 1, lag))) for lag in (1, far))
        rho, factor = autoregression(float(np.log(apart / one)), order, far)
        fits.append((rho, factor * one))
    return min(fits)


def _level_at(values: Floats, weights: Floats, rho: float) -> float:
    """The level of an autoregression of this ρ by differences over one step, the smallest of all orders."""
    return min(
        autoregression_level(rho, order) * trimmed_deviation(contrasts(None, values, weights, range(order + 1)))
        for order in ORDERS
    )


def _bound(count: int, errors: float = CLEAR) -> float:
    return errors / min(count, MAX_CONTRASTS) ** 0.5 + 0.02


def _slack(count: int) -> float:
    """The increase of the bound of S for few points of a signal."""
    return 70 / min(count, MAX_CONTRASTS)


def _reason_not_white(ratios: Floats, count: int, slack: float) -> str:
    if min(ratios) > _bound(count) + slack:
        return _reason("positive", min(ratios), "a random walk or a series that was smoothed before", count)
    if max(ratios) < -_bound(count):
        return _reason("negative", max(ratios), "a zigzag or noise that overcorrects", count)
    return ""


def _reason(sign: str, ratio: float, examples: str, count: int) -> str:
    corrected = (
        f"From {MIN_CORRELATED} points at equal steps it may be corrected for; here a" if count < MIN_CORRELATED else "A"
    )
    return (
        f"The noise does not look independent: differences over two and three points are {np.exp(ratio / 2):.2g} times those "
        f"over one (1 for independent noise). This indicates {sign} correlation of neighbours, as in {examples}. "
        f"{corrected} span may help."
    )


def noise_levels(series: Series, options: Options, estimate: NoiseEstimate | None = None) -> Floats:
    """The noise's standard deviation at weight 1 of each point (n,), in the series' own units: as passed, or else as estimated."""
    if options.noise is not None:
        return read_noise(options.noise, series.times.size)[series.order] / series.noise_unit
    if estimate is None:
        raise ValueError("neither passed nor estimated")
    if estimate.levels is None:
        return np.full(series.times.size, estimate.level)
    return np.interp(series.times, series.key_times, estimate.levels)
