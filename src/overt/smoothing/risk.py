"""How good a head is, judged without the truth, and the bandwidth that is best by that judgement."""

from collections.abc import Callable, Iterable

import numpy as np

from overt.smoothing.even import serves
from overt.smoothing.head import Head, Outputs
from overt.smoothing.keys import BothKeys, Keys, TimeKeys, ValueKeys
from overt.smoothing.rows import attend_rows
from overt.smoothing.series import Floats, Indices, Series

# Rows over which the grid's risk is averaged. The average of this many differs little from that of all, and a long
# series would otherwise be smoothed some thirty times to choose one number.
JUDGED = 1024


def noise_level(series: Series) -> float:
    """The noise's standard deviation, from how far each point lies off the line through its two neighbours.

    σ² = Σ c_i² (a_i x_{i−1} + b_i x_{i+1} − x_i)² / (n − 2), a_i = (t_{i+1} − t_i)/(t_{i+1} − t_{i−1}), b_i = 1 − a_i,
    c_i² = 1/(a_i² + b_i² + 1); at equal steps √(2/(3(n−2))·Σ(½x_{i−1} − x_i + ½x_{i+1})²). (Gasser, Sroka and
    Jennen-Steinmetz 1986.) It takes the noise for independent from point to point: correlated noise reads too low, and a
    noiseless random walk reads 0.58 of its step. Fewer than three points tell nothing, and give 0.

    >>> from overt.smoothing.series import arrange
    >>> noise = np.random.default_rng(0).normal(size=10_000)
    >>> series = arrange(noise, np.arange(10_000.0))
    >>> round(noise_level(series) * series.spread, 2)
    1.0
    """
    times, values = series.key_times, series.key_values
    if values.size < 3:
        return 0.0
    whole, right = times[2:] - times[:-2], times[2:] - times[1:-1]
    share = np.where(whole > 0, right / np.where(whole > 0, whole, 1.0), 0.5)
    off_line = share * values[:-2] + (1 - share) * values[2:] - values[1:-1]
    return float(np.sqrt(np.mean(off_line**2 / (share**2 + (1 - share) ** 2 + 1))))


def pointwise_risk(values: Floats, outputs: Outputs, noise: float) -> Floats:
    """Stein's unbiased estimate of (y_i − truth_i)²: (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i (Stein 1981).

    Unbiased for Gaussian noise of known σ; a single point's estimate is rough and may be negative, a mean is what to use.
    """
    return (values - outputs.values) ** 2 - noise**2 + 2 * noise**2 * outputs.slopes


def mean_risk(series: Series, head: Head, noise: float, rows: Indices | None = None) -> float:
    """Mean of the pointwise risk over the given present rows (all by default)."""
    rows = series.present if rows is None else rows
    return float(pointwise_risk(series.values[rows], attend_rows(series, head, rows), noise).mean())


def best_head(series: Series, name: str, noise: float, window: float, causal: bool) -> Head:
    """The head of least mean risk over a geometric grid of bandwidths, refined once around the best.

    Time: from a quarter of a step to the whole span, by factors √2. Value: from a quarter of the noise to twice the
    range, likewise. Both: the product of the two, by factors 2. Where rows are attended to one by one, the mean is taken over
    `JUDGED` of them, drawn once and for all, not at equal distances, which a periodic series might share.
    """
    rows = series.present
    if rows.size > JUDGED and not serves(series, Head(keys_of(name, (1.0, 1.0)))):
        rows = np.sort(np.random.default_rng(0).choice(rows, JUDGED, replace=False))

    def head(logarithms: tuple[float, ...]) -> Head:
        return Head(keys_of(name, tuple(2.0**power for power in logarithms)), window, causal)

    def risk(logarithms: tuple[float, ...]) -> float:
        return mean_risk(series, head(logarithms), noise, rows)

    coarse = 1.0 if name == "both" else 0.5
    spans = {"time": _time_range(series), "value": _value_range(noise)}
    axes = [np.arange(low, high + coarse, coarse) for low, high in (spans[n] for n in _axes(name))]
    best = _least(risk, _product(axes))
    fine = coarse * np.array(
        [-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75] if len(axes) == 1 else [-2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3]
    )
    return head(_least(risk, _product([power + fine for power in best])))


def keys_of(name: str, bandwidths: tuple[float, ...]) -> Keys:
    """The keys called `name` with their bandwidths: one, or for "both" that of time and that of value."""
    if name == "time":
        return TimeKeys(bandwidths[0])
    if name == "value":
        return ValueKeys(bandwidths[0])
    return BothKeys(TimeKeys(bandwidths[0]), ValueKeys(bandwidths[1]))


def _axes(name: str) -> list[str]:
    return ["time", "value"] if name == "both" else [name]


def _time_range(series: Series) -> tuple[float, float]:
    return -2.0, max(0.0, float(np.log2(max(series.times[-1], 1.0))))


def _value_range(noise: float) -> tuple[float, float]:
    # Values reach from −1 to 1 in a series' own units; under 1e-4 of that every point is alone.
    return float(np.log2(max(noise / 4, 1e-4))), 2.0


def _product(axes: list[Floats]) -> Iterable[tuple[float, ...]]:
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))  # (points, axes)
    return (tuple(point) for point in grid)


def _least(risk: Callable[[tuple[float, ...]], float], points: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    # Of equals the last, the widest: where nothing tells them apart, the plainer curve.
    return min(((risk(point), index, point) for index, point in enumerate(points)), key=lambda t: (t[0], -t[1]))[2]
