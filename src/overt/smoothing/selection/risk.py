"""Stein's unbiased risk estimate of a head, and the bandwidth of least risk."""

from collections.abc import Callable, Iterable

import numpy as np

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import LARGEST, Floats, Series, key_noise
from overt.smoothing.heads.dispatch import attend_head
from overt.smoothing.heads.head import Outputs, SeriesHead
from overt.smoothing.heads.keys import AnyKeys, BothKeys, DotKeys, PatchKeys, TimeKeys, ValueKeys
from overt.smoothing.selection.correlation import FAR, risk_variance_factor

# STRETCHES, STRETCH: number and points of the stretches of a long series on which the risk is computed if all pairs are compared.
STRETCHES, STRETCH = 4, 1024
# HALVES: points to either side that patches may have.
HALVES = (2, 5, 10)
# NARROWEST, WIDEST: limits of bandwidths in a series' own units. All distances lie between them; powers of other bandwidths leave float64.
NARROWEST, WIDEST = 1e-40, 1e40
# RELATIVE_SPREAD: relative error of the band's mean variance as an estimate of the mean squared error. With it the combined risk has the
# median of the error (0.98 of it at 200 points, 1.01 at 1,024), and the error is below the upper bound in 95% of series of 200 points and
# 99% of 1,024 (benchmarks/smoothing/signals/development.py and the development half of noise_kinds.py).
RELATIVE_SPREAD = 0.7
# STANDARD_ERRORS: standard errors from which a risk differs from 0, and of its upper bound: 97.5% of a normal distribution lie below.
STANDARD_ERRORS = 2.0


def pointwise_risk(values: Floats, outputs: Outputs, noise: Floats | float) -> Floats:
    """Stein's unbiased estimate of (y_i − truth_i)²: (x_i − y_i)² − σ_i² + 2σ_i² ∂y_i/∂x_i (Stein 1981).

    Unbiased for Gaussian noise of known σ_i. The estimate of a single point is inaccurate and may be negative; use means.
    """
    return (values - outputs.values) ** 2 - noise**2 + 2 * noise**2 * outputs.leverages


def risk_error(noise: Floats, correlation: float = 0.0) -> float:
    """The standard error of the mean of `pointwise_risk`, for noise of standard deviations σ_i (n,): √(2 Σ σ_i⁴)/n.

    With σ known, it is the standard deviation of the mean of ε², σ²√(2/n) for normal noise. With σ estimated from differences, σ̂² has
    the variance 4σ⁴/n (`noise.estimate_noise`) and, like every unbiased quadratic estimate, a covariance of 2σ⁴/n with the mean of ε².
    The difference then has the variance (2/n + 4/n − 2·2/n) σ⁴: the same, or less if the curve follows the noise. Simulations with 30 to
    4,096 points of white noise give 0.91 to 1.01 of it. With the `correlation` ρ of an autoregression the variance of the mean of ε² is
    (1 + ρ²)/(1 − ρ²) times as large, and the level, from differences over `FAR` steps, has the error of n/`FAR` points.

    >>> risk_error(np.full(200, 2.0))
    0.4
    """
    white = float(np.sqrt(2 * np.sum(np.asarray(noise, dtype=np.float64) ** 4)) / max(np.size(noise), 1))
    return white * (risk_variance_factor(correlation) + 2 * FAR) ** 0.5 if correlation else white


def combined_risk(stein: float, error: float, variance: float, points: int) -> tuple[float, float]:
    """The risk of a mixture of heads, and its standard error, from Stein's estimate with its error and from the band's mean variance.

    Stein's estimate is unbiased, but its error is of the order σ²√(2/n) for any curve: on smooth signals that is more than the risk. The
    variance has a relative error of 0.7 and the error 2/√n of σ̂², but no bias that the heads share. Both are weighted by 1/error², as
    in the best linear estimate from two; a Stein estimate that is clearly larger adds the difference to the variance's error.

    >>> round(combined_risk(0.4, 0.01, 0.1, 1000)[0], 3), round(combined_risk(-0.02, 0.04, 0.01, 1000)[0], 3)
    (0.4, 0.009)
    """
    above = max(stein - variance, 0.0) ** 2 - (STANDARD_ERRORS * error) ** 2
    spread = (RELATIVE_SPREAD**2 + 4 / max(points, 1)) * variance**2 + max(above, 0.0)
    total = spread + error**2
    if total == 0:
        return stein, 0.0
    return float((stein * spread + variance * error**2) / total), float(np.sqrt(spread * error**2 / total))


def mean_risk(series: Series, head: SeriesHead, noise: Floats | float) -> float:
    """Mean of the pointwise risk over the present points; `noise` is σ, or σ_i of every present point."""
    outputs = attend_head(series, head).at(series.present)
    return float(pointwise_risk(series.key_values, outputs, noise).mean())


def leave_one_out(series: Series, outputs: Outputs) -> float | None:
    """Mean of ((x_i − y_i)/(1 − ∂y_i/∂x_i))²: the error of predicting each value from the others; None if a leverage is 1.

    Exact for time keys, whose weights do not depend on values (Craven and Wahba 1979, section 2); not valid for other keys.
    """
    left = 1 - outputs.leverages[series.present]
    if (left < 1e-9).any():
        return None
    return float(np.mean(((series.key_values - outputs.values[series.present]) / left) ** 2))


def configured_head(series: Series, options: Options, levels: Floats | None = None) -> SeriesHead:
    """The head that the options describe; a bandwidth is chosen by the noise levels."""
    window = np.inf if options.window is None else options.window / series.step
    if options.score == "dot":
        return SeriesHead(dot_keys(series, options.dot_scale, options.normalizer == "sum"), window, options.causal)
    degree = options.degree if options.keys == "time" else 0
    if levels is not None and options.bandwidths is None:
        return best_head(series, options.keys, key_noise(series, levels), window, options.causal, degree)
    units = {"time": (series.step,), "value": (series.spread,), "patch": (series.spread,), "both": (series.step, series.spread)}
    scaled = tuple(bandwidth / unit for bandwidth, unit in zip(options.bandwidths or (), units[options.keys], strict=True))
    return SeriesHead(as_keys(options.keys, scaled), window, options.causal, degree)


def best_head(series: Series, name: str, noise: Floats | float, window: float, causal: bool, degree: int) -> SeriesHead:
    """The head of least mean risk over a geometric grid of bandwidths, refined once around the best.

    Time: from a quarter of a step to the whole span, by factors √2. Value: from a quarter of the noise to twice the
    range, by factors √2. Both: the product of the two, by factors 2. Patch: as for value, with 5, 11 and 21 points. The risk of
    bilateral and patch keys is computed on four stretches of 1,024 points in a longer series.
    """
    parts = [(series, noise)] if name in ("time", "value") else list(_stretches(series, noise))
    counts = np.array([part.present.size for part, _ in parts])

    def head(powers: tuple[float, ...]) -> SeriesHead:
        return SeriesHead(as_keys(name, tuple(2.0**power for power in powers)), window, causal, degree if name == "time" else 0)

    def risk(powers: tuple[float, ...]) -> float:
        return float(np.average([mean_risk(part, head(powers), level) for part, level in parts], weights=counts))

    coarse = 1.0 if name == "both" else 0.5
    axes = _axes(name, series, float(np.sqrt(np.mean(np.square(noise)))), coarse)
    best = _argmin(risk, _product(axes))
    finer = [-2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3] if name == "both" else [-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]
    steps = [np.array([0.0]) if name == "patch" and axis == 1 else coarse * np.array(finer) for axis in range(len(axes))]
    return head(_argmin(risk, _product([power + step for power, step in zip(best, steps, strict=True)])))


def as_keys(name: str, bandwidths: tuple[float, ...]) -> AnyKeys:
    """The keys called `name` with their bandwidths: (time, value) for "both"; for "patch" a half width may follow."""
    bandwidths = tuple(min(max(bandwidth, NARROWEST), WIDEST) for bandwidth in bandwidths)
    if name == "time":
        return TimeKeys(bandwidths[0])
    if name == "value":
        return ValueKeys(bandwidths[0])
    if name == "patch":
        return PatchKeys(bandwidths[0], *(round(half) for half in bandwidths[1:]))
    return BothKeys(TimeKeys(bandwidths[0]), ValueKeys(bandwidths[1]))


def dot_keys(series: Series, scale: float, plain_sum: bool) -> DotKeys:
    """The dot score for a series. The scale is limited to `WIDEST` in the series' own units, so that scores stay finite."""
    limit = WIDEST / max(float(np.abs(series.key_values).max()), 1 / LARGEST) ** 2
    return DotKeys(min(max(scale, -limit), limit), plain_sum)


def _stretches(series: Series, noise: Floats | float) -> Iterable[tuple[Series, Floats | float]]:
    count = series.times.size
    if count <= STRETCHES * STRETCH:
        yield series, noise
        return
    for start in np.linspace(0, count - STRETCH, STRETCHES).astype(int):
        rows = slice(start, start + STRETCH)
        within = (series.present >= start) & (series.present < start + STRETCH)
        if within.any():
            yield series.part(rows), noise if np.ndim(noise) == 0 else np.asarray(noise)[within]


def _axes(name: str, series: Series, noise: float, step: float) -> list[Floats]:
    """Powers of 2 for the bandwidths to try."""
    time = np.arange(-2.0, max(0.0, float(np.log2(max(series.times[-1], 1.0)))) + step, step)
    # Values lie between −1 and 1 in a series' own units: below 1e-4 points attend to themselves only, above 4 to all.
    value = np.arange(float(np.log2(min(max(noise / 4, 1e-4), 4.0))), 2.0 + step, step)
    return {"time": [time], "value": [value], "both": [time, value], "patch": [value, np.log2(HALVES)]}[name]


def _product(axes: list[Floats]) -> Iterable[tuple[float, ...]]:
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))  # (points, axes)
    return (tuple(point) for point in grid)


def _argmin(risk: Callable[[tuple[float, ...]], float], points: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    # Of equal risks the last, the widest bandwidth: the simpler curve.
    return min(((risk(point), index, point) for index, point in enumerate(points)), key=lambda t: (t[0], -t[1]))[2]
