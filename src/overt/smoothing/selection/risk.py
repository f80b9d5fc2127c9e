"""How good a head is, judged without the truth, and the bandwidth that is best by that judgement."""

from collections.abc import Callable, Iterable

import numpy as np

from overt.smoothing.data.series import LARGEST, Floats, Series
from overt.smoothing.heads.dispatch import attend_head
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import AnyKeys, BothKeys, DotKeys, PatchKeys, TimeKeys, ValueKeys

# Where pairs of points are compared one by one, a long series is judged by some stretches of it.
STRETCHES, STRETCH = 4, 1024
# Points to either side that patches may have.
HALVES = (2, 5, 10)
# In a series' own units nothing is as near as the first bandwidth, or as far as the other; powers of others leave float64.
NARROWEST, WIDEST = 1e-40, 1e40
# Standard errors above 0 from which a risk is told from none, and within which it is known: 97.5% of a normal distribution lie below.
TELLING = 2.0


def pointwise_risk(values: Floats, outputs: Outputs, noise: Floats | float) -> Floats:
    """Stein's unbiased estimate of (y_i − truth_i)²: (x_i − y_i)² − σ_i² + 2σ_i² ∂y_i/∂x_i (Stein 1981).

    Unbiased for Gaussian noise of known σ_i; a single point's estimate is rough and may be negative, a mean is what to use.
    """
    return (values - outputs.values) ** 2 - noise**2 + 2 * noise**2 * outputs.slopes


def risk_error(noise: Floats) -> float:
    """The standard error of the mean of `pointwise_risk`, for noise of standard deviations σ_i (n,): √(2 Σ σ_i⁴)/n.

    With σ known, what varies is the mean of ε², whose standard deviation is σ²√(2/n) for normal noise. With σ estimated from
    differences, σ̂² has the variance 4σ⁴/n (`noise.estimate`) and, as every unbiased square, a covariance of 2σ⁴/n with the mean of
    ε²; the difference then has 2/n + 4/n − 2·2/n: the same, or less where the curve follows the noise. Simulated, 30 to 4,096 points
    of white noise: 0.91 to 1.01 of it.

    >>> risk_error(np.full(200, 2.0))
    0.4
    """
    return float(np.sqrt(2 * np.sum(np.asarray(noise, dtype=np.float64) ** 4)) / max(np.size(noise), 1))


def mean_risk(series: Series, head: Head, noise: Floats | float) -> float:
    """Mean of the pointwise risk over the present points; `noise` is σ, or σ_i of each of them."""
    outputs = attend_head(series, head)
    here = Outputs(outputs.values[series.present], outputs.slopes[series.present])
    return float(pointwise_risk(series.key_values, here, noise).mean())


def leave_one_out(series: Series, outputs: Outputs) -> float | None:
    """Mean of ((x_i − y_i)/(1 − ∂y_i/∂x_i))²: the error in predicting each value from the others; None where one predicts itself.

    Exact for time keys, whose weights do not depend on values (Craven and Wahba 1979, section 2); for others it is none.
    """
    left = 1 - outputs.slopes[series.present]
    if (left < 1e-9).any():
        return None
    return float(np.mean(((series.key_values - outputs.values[series.present]) / left) ** 2))


def best_head(series: Series, name: str, noise: Floats | float, window: float, causal: bool, degree: int) -> Head:
    """The head of least mean risk over a geometric grid of bandwidths, refined once around the best.

    Time: from a quarter of a step to the whole span, by factors √2. Value: from a quarter of the noise to twice the
    range, likewise. Both: the product of the two, by factors 2. Patch: as value, of 5, 11 and 21 points. Bilateral and patch
    keys are judged on four stretches of 1,024 points where a series is longer.
    """
    parts = [(series, noise)] if name in ("time", "value") else list(_stretches(series, noise))
    counts = np.array([part.present.size for part, _ in parts])

    def head(powers: tuple[float, ...]) -> Head:
        return Head(keys_of(name, tuple(2.0**power for power in powers)), window, causal, degree if name == "time" else 0)

    def risk(powers: tuple[float, ...]) -> float:
        return float(np.average([mean_risk(part, head(powers), level) for part, level in parts], weights=counts))

    coarse = 1.0 if name == "both" else 0.5
    axes = _axes(name, series, float(np.sqrt(np.mean(np.square(noise)))), coarse)
    best = _least(risk, _product(axes))
    finer = [-2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3] if name == "both" else [-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75]
    steps = [np.array([0.0]) if name == "patch" and axis == 1 else coarse * np.array(finer) for axis in range(len(axes))]
    return head(_least(risk, _product([power + step for power, step in zip(best, steps, strict=True)])))


def keys_of(name: str, bandwidths: tuple[float, ...]) -> AnyKeys:
    """The keys called `name` with their bandwidths: for "both" that of time and of value; for "patch" a half width may follow."""
    bandwidths = tuple(min(max(bandwidth, NARROWEST), WIDEST) for bandwidth in bandwidths)
    if name == "time":
        return TimeKeys(bandwidths[0])
    if name == "value":
        return ValueKeys(bandwidths[0])
    if name == "patch":
        return PatchKeys(bandwidths[0], *(round(half) for half in bandwidths[1:]))
    return BothKeys(TimeKeys(bandwidths[0]), ValueKeys(bandwidths[1]))


def dot_keys(series: Series, scale: float, plain_sum: bool) -> DotKeys:
    """The dot score for a series; a scale beyond `WIDEST` in its own units is as good as infinite, and its scores might be."""
    most = WIDEST / max(float(np.abs(series.key_values).max()), 1 / LARGEST) ** 2
    return DotKeys(min(max(scale, -most), most), plain_sum)


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
    # Values reach from −1 to 1 in a series' own units; under 1e-4 of that every point is alone, beyond 4 none is.
    value = np.arange(float(np.log2(min(max(noise / 4, 1e-4), 4.0))), 2.0 + step, step)
    return {"time": [time], "value": [value], "both": [time, value], "patch": [value, np.log2(HALVES)]}[name]


def _product(axes: list[Floats]) -> Iterable[tuple[float, ...]]:
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))  # (points, axes)
    return (tuple(point) for point in grid)


def _least(risk: Callable[[tuple[float, ...]], float], points: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    # Of equals the last, the widest: where nothing tells them apart, the plainer curve.
    return min(((risk(point), index, point) for index, point in enumerate(points)), key=lambda t: (t[0], -t[1]))[2]
