"""Smooth a series by attention to itself, and say what was done."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from overt.errors import InputError
from overt.smoothing.head import Head
from overt.smoothing.keys import DotKeys
from overt.smoothing.options import Bandwidth, Options
from overt.smoothing.risk import best_head, keys_of, noise_level, pointwise_risk
from overt.smoothing.rows import attend_rows, row_weights
from overt.smoothing.series import Floats, Series, arrange, dressed_like, read_times, read_values
from overt.smoothing.telling import tell


@dataclass(frozen=True)
class Smoothing:
    """A smoothed series and what it rests on; times and values are in the caller's units and order.

    `risk` is the estimated mean squared error against the truth (it may come out slightly negative where that is near 0),
    `degrees_of_freedom` the sum of ∂y_i/∂x_i: n for a curve that follows every point, 1 for the mean.
    """

    values: Floats  # (n,)
    bandwidth: float | tuple[float, float] | None  # of time or of value; of both, in this order; None for the dot score
    noise: float  # standard deviation, given or estimated
    risk: float
    degrees_of_freedom: float
    points: int
    filled: int  # missing points that were given a value
    unit: str  # of the times: "steps", "seconds", or "" for plain numbers
    options: Options
    series: Series = field(repr=False)
    head: Head = field(repr=False)

    def weights(self, point: int) -> Floats:
        """The weights W_ij with which one point attends to all (n,): `values[i]` is Σ_j W_ij x_j over the known x_j.

        >>> analyze([0.0, 1.0, 0.0], bandwidth=1.0).weights(0).round(2)
        array([0.57, 0.35, 0.08])
        """
        if not -self.points <= point < self.points:
            cure = f"pass one from 0 to {self.points - 1}"
            raise InputError("weights are those of one point", got=f"{point} of {self.points}", cure=cure)
        given = np.empty(self.points)
        row = int(np.flatnonzero(self.series.order == point % self.points)[0])
        given[self.series.order] = row_weights(self.series, self.head, row)
        return given

    @property
    def sentence(self) -> str:
        """What was done to the series and what that rests on, to be read by a person."""
        return tell(self)


def smooth(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    keys: str = "time",
    bandwidth: Bandwidth = "auto",
    score: str = "gaussian",
    normalizer: str = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    causal: bool = False,
    noise: float | None = None,
) -> Any:
    """Smooth a series by parameter-free self-attention: y_i = Σ_j W_ij x_j, W = softmax_j of how similar j is to i.

    **keys** say what similar means. "time": s_ij = −(t_i − t_j)²/2h², for which attention is kernel regression (Nadaraya
    1964, Watson 1964; being a mean, it flattens towards the ends). "value": s_ij = −(x_i − x_j)²/2h², one mean-shift step,
    which is blind to order. "both": their sum, the bilateral filter, which keeps edges; `bandwidth` is then (time, value).

    **bandwidth** h, in the unit of the times (steps where none are given, seconds for dates) or of the values. "auto" is
    the one of least risk by Stein's unbiased estimate, mean of (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i, with the whole
    derivative. It takes the noise for independent from point to point and equally strong everywhere; correlated noise is
    taken for signal. `noise` is its standard deviation σ; None estimates it from second differences.

    **score** "dot" is the literal recipe, softmax_j(scale·x_i·x_j), and **normalizer** "sum" its plainest form. They are
    kept for teaching, with keys="value". The dot score is no measure of similarity for single numbers: it moves with the
    zero of the scale (adding c to the series tilts every row by e^(scale·c·x_j)), prefers large values to near ones, knows
    nothing of time, and with growing scale sends every point to the maximum or the minimum. The plain sum does not
    even depend on i: W_ij = x_i x_j / Σ_k x_i x_k = x_j / Σ_k x_k, since x_i cancels, so that every y_i is the constant
    Σ_j x_j² / Σ_k x_k.

    **window**: the largest distance in time, to either side, that a point attends over. **causal**: only to the present and
    past; without it, every point has seen its future, and must not be called a forecast.

    x (n,) or (n, columns), smoothed column by column; times (n,), in any order, numbers or dates (a pandas DatetimeIndex
    counts). NaN is a missing value: it is no key, and is filled from its neighbours, or stays NaN where the window or
    causality leaves it none. Returns float64 of the same shape; a pandas object for a pandas object. Memory is linear in n.

    Raises InputError or KindError, which say what to do, for what is not a series of numbers or cannot be asked for.

    >>> smooth([1.0, 2.0, float("nan"), 4.0, 5.0], bandwidth=0.5).round(2)
    array([1.12, 1.88, 3.  , 4.12, 4.88])
    >>> smooth([1.0, 2.0, 4.0], keys="value", score="dot", normalizer="sum")
    array([3., 3., 3.])
    """
    options = Options(keys, bandwidth, score, normalizer, scale, window, causal, noise)
    values = read_values(x)
    moments, unit = read_times(times, x, values.shape[0])
    if values.ndim == 1:
        return dressed_like(x, _analyze(values, moments, unit, options).values)
    columns = [_analyze(_column(values, i), moments, unit, options).values for i in range(values.shape[1])]
    return dressed_like(x, np.stack(columns, axis=1))


def analyze(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    keys: str = "time",
    bandwidth: Bandwidth = "auto",
    score: str = "gaussian",
    normalizer: str = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    causal: bool = False,
    noise: float | None = None,
) -> Smoothing:
    """Smooth one series as `smooth` does, and return the curve with its bandwidth, noise, risk, weights and a sentence.

    The arguments are those of `smooth`; x is (n,).

    >>> found = analyze([3.0, 3.0, 3.0, 3.0])
    >>> found.noise, found.values
    (0.0, array([3., 3., 3., 3.]))
    """
    options = Options(keys, bandwidth, score, normalizer, scale, window, causal, noise)
    values = read_values(x)
    if values.ndim != 1:
        cure = "analyze its columns one by one"
        raise InputError("analyze takes one series, (n,)", got=f"shape {values.shape}", cure=cure)
    moments, unit = read_times(times, x, values.shape[0])
    return _analyze(values, moments, unit, options)


def _column(values: Floats, index: int) -> Floats:
    column = values[:, index]
    if np.isnan(column).all():
        raise InputError("a series needs at least one value", got=f"only NaN in column {index}", cure="leave that column out")
    return column


def _analyze(values: Floats, times: Floats, unit: str, options: Options) -> Smoothing:
    # The dot score is not shift-invariant: it gets the values as they are.
    series = arrange(values, times, shift=options.score == "gaussian")
    noise = noise_level(series) if options.noise is None else options.noise / series.spread
    head = _head(series, options, noise)
    outputs = attend_rows(series, head)
    risk = pointwise_risk(series.key_values, type(outputs)(*(column[series.present] for column in outputs)), noise).mean()
    restored = series.restore(outputs.values)
    return Smoothing(
        values=restored,
        bandwidth=head.keys.in_units(series.step, series.spread),
        noise=noise * series.spread,
        risk=float(risk) * series.spread**2,
        degrees_of_freedom=float(outputs.slopes[series.present].sum()),
        points=values.size,
        filled=int(np.sum(np.isnan(values) & ~np.isnan(restored))),
        unit=unit,
        options=options,
        series=series,
        head=head,
    )


def _head(series: Series, options: Options, noise: float) -> Head:
    window = np.inf if options.window is None else options.window / series.step
    if options.score == "dot":
        return Head(DotKeys(options.scale, plain_sum=options.normalizer == "sum"), window, options.causal)
    if options.bandwidths is None:
        return best_head(series, options.keys, noise, window, options.causal)
    units = {"time": (series.step,), "value": (series.spread,), "both": (series.step, series.spread)}[options.keys]
    own = tuple(given / unit for given, unit in zip(options.bandwidths, units, strict=True))
    return Head(keys_of(options.keys, own), window, options.causal)
