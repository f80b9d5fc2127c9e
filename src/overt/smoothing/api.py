"""Smooth a series by attention to itself, and say what was done."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError
from overt.smoothing.data.options import Bandwidth, Options
from overt.smoothing.data.series import (
    Floats,
    Series,
    Times,
    arrange,
    dressed_like,
    filled_values,
    read_moments,
    read_noise,
    read_times,
    read_values,
    read_weights,
)
from overt.smoothing.heads.dispatch import attend_head, attend_in_time
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import TimeKeys
from overt.smoothing.heads.single_row import row_of
from overt.smoothing.report import tell
from overt.smoothing.selection.bands import NORMAL, deviation_of
from overt.smoothing.selection.bank import Attended, Points, attend_bank, bank_row
from overt.smoothing.selection.levels import NOISELESS, key_noise, levels_of, whole_level
from overt.smoothing.selection.noise import Noise, estimate
from overt.smoothing.selection.outliers import less_outliers
from overt.smoothing.selection.risk import TELLING, best_head, dot_keys, keys_of, leave_one_out, pointwise_risk, risk_error


@dataclass(frozen=True)
class Smoothing:
    """A smoothed series and what it rests on; times and values are in the caller's units and order.

    `risk` is the estimated mean squared error against the truth, and `risk_error` the standard error of that estimate, σ²√(2/n): a
    risk under two of these, negative ones too, is too small to be estimated, and nothing but `most_risk` is to be said of it. Both
    hold for noise that is independent from point to point and close to normal. `degrees_of_freedom` is the sum of ∂y_i/∂x_i: n for a
    curve that follows every point, 1 for the mean. `mixture` holds the weights of the `heads`, averaged over equal runs of points in
    time.
    """

    values: Floats  # (n,)
    bandwidth: (
        float | tuple[float, float] | None
    )  # of time or of value; of both, in this order; None for the dot score and the bank
    noise: float  # standard deviation of a value of weight 1, given or estimated; the root of its mean square where it varies
    risk: float
    risk_error: float
    degrees_of_freedom: float
    leave_one_out: float | None  # mean squared error in predicting each value from the others; None but for time keys
    points: int
    filled: int  # missing points that were given a value
    times: Times = field(repr=False)
    heads: tuple[str, ...]
    mixture: Floats | None  # (heads, cells), None for a single head
    withheld: str  # why there is no band, in a sentence; "" where there is one
    options: Options
    series: Series = field(repr=False)
    head: Head | None = field(repr=False)  # None for the bank
    found: Noise = field(repr=False)  # what the noise looks like, in the series' own units
    levels: Floats = field(repr=False)  # (n,) standard deviations at weight 1, sorted, in the series' own units
    _variances: Floats | None = field(repr=False)  # of the bank, and of time keys of a given bandwidth

    @property
    def estimable(self) -> bool:
        """Whether the risk can be told from 0: it is two standard errors or more."""
        return self.risk >= TELLING * self.risk_error

    @property
    def most_risk(self) -> float:
        """What the risk hardly exceeds: two standard errors above its estimate, or above 0 where that is negative."""
        return max(self.risk, 0.0) + TELLING * self.risk_error

    @cached_property
    def deviation(self) -> Floats | None:
        """The standard deviation of each value of the curve (n,), its bias not counted; None where the band is withheld."""
        if self.withheld:
            return None
        if self._variances is not None or self.head is None:
            deviation = np.sqrt(np.asarray(self._variances))
        else:
            chosen = self.options.bandwidths is None
            deviation = deviation_of(self.series, self.head, self._sorted(self.values), self.levels, chosen=chosen)
        given = np.empty(self.points)
        given[self.series.order] = deviation * self.series.spread
        return np.where(np.isnan(self.values), np.nan, given)

    @property
    def lower(self) -> Floats | None:
        """The lower end of the 95% band around the mean curve, point by point (n,); None where it is withheld."""
        return None if self.deviation is None else self.values - NORMAL * self.deviation

    @property
    def upper(self) -> Floats | None:
        """The upper end of the band."""
        return None if self.deviation is None else self.values + NORMAL * self.deviation

    def weights(self, point: int) -> Floats:
        """The weights W_ij with which one point attends to all (n,): `values[i]` is Σ_j W_ij x_j over the known x_j.

        >>> analyze([0.0, 1.0, 0.0], keys="time", degree=0, bandwidth=1.0).weights(0).round(2)
        array([0.57, 0.35, 0.08])
        """
        if not -self.points <= point < self.points:
            fix = f"pass one from 0 to {self.points - 1}"
            raise InputError("weights are those of one point", got=f"{point} of {self.points}", fix=fix)
        row = int(np.flatnonzero(self.series.order == point % self.points)[0])
        given = np.empty(self.points)
        if self.head is not None:
            given[self.series.order] = row_of(self.series, self.head, row)
        else:
            bank = _bank_points(self.series, self.levels, self.options.causal)
            given[self.series.order] = bank_row(bank, whole_level(self.levels), row, causal=self.options.causal)
        return given

    def at(self, times: ArrayLike) -> Floats:
        """The curve at other times (m,), in the unit of the series' times (a number of seconds, or dates, where those were dates).

        Time keys fit there as they do at the points. Other keys compare values, of which there are none: their curve goes straight
        from point to point and level beyond the ends, with `causal` as it was at the last point.

        >>> analyze([0.0, 1.0, 2.0, 3.0], keys="time", bandwidth=1.0).at([0.5, 2.75]).round(6)
        array([0.5 , 2.75])
        """
        moments = (read_moments(times, self.times) - self.series.start) / self.series.step
        order = np.argsort(moments, kind="stable")
        found = np.empty(moments.size)
        found[order] = self._at(moments[order])
        return self.series.center + self.series.spread * found

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Data, curve and band as a matplotlib Figure, with the mixture of heads below; written to `path` where one is given."""
        from overt.smoothing.data.curve import curve_of
        from overt.smoothing.plot import Panel, draw, figure_of

        moments = self.times.moments
        start = self.times.origin
        times = moments if start is None else start.astype("datetime64[us]") + (moments * 1e6).astype("timedelta64[us]")
        panel = Panel("", times, self.series.restore(self.series.values), curve_of(self))
        if path is not None:
            draw(path, [panel], x=self.unit)
        return figure_of([panel], x=self.unit)

    @property
    def unit(self) -> str:
        """Of the times: "steps", "seconds", or "" for plain numbers."""
        return self.times.unit

    @property
    def sentence(self) -> str:
        """What was done to the series and what that rests on, to be read by a person."""
        return tell(self)

    def _sorted(self, values: Floats) -> Floats:
        return (values[self.series.order] - self.series.center) / self.series.spread

    def _at(self, moments: Floats) -> Floats:
        if self.head is not None and isinstance(self.head.keys, TimeKeys):
            return attend_in_time(self.series, self.head, self.head.keys.bandwidth, targets=moments).values
        curve = self._sorted(self.values)
        there = ~np.isnan(curve)
        times, curve = self.series.times[there], curve[there]
        if not self.options.causal:
            return np.interp(moments, times, curve)
        before = np.searchsorted(times, moments, side="right") - 1
        return np.where(before < 0, np.nan, curve[np.maximum(before, 0)])


def smooth(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: str = "auto",
    bandwidth: Bandwidth = "auto",
    score: str = "gaussian",
    normalizer: str = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool = False,
    noise: ArrayLike | None = None,
    fill: bool = True,
    at: ArrayLike | None = None,
) -> Any:
    """Smooth a series by parameter-free self-attention: y_i = Σ_j W_ij x_j, W = softmax_j of how similar j is to i.

    **keys** say what similar means. "auto": some ninety heads of all kinds, mixed point by point by their estimated risk; it needs
    no choice and serves smooth, jumpy and spiky series (`bank`, `mixture`). "time": s_ij = −(t_i − t_j)²/2h²: kernel
    regression (Nadaraya 1964, Watson 1964), with a line (**degree** 1) or a parabola (2) through the weighted points instead of their
    mean (0). "value": s_ij = −(x_i − x_j)²/2h², one mean-shift step, which is blind to order. "both": their sum, the
    bilateral filter, which keeps edges; `bandwidth` is then (time, value). "patch": the same of the 11 points around, non-local
    means, h being the typical difference of two alike, over 200 points to either side where no window is given.

    **bandwidth** h, in the unit of the times (steps where none are given, seconds for dates) or of the values. "auto" is
    the one of least risk by Stein's unbiased estimate, mean of (x_i − y_i)² − σ² + 2σ² ∂y_i/∂x_i, with the whole
    derivative. Every automatic choice takes the noise for independent from point to point; correlated noise is taken for
    signal. **noise** is its standard deviation σ, one number or one for each point; None estimates it, from differences.

    **weights** are 1/variance of each value up to a factor; 0 makes it missing. **robust** takes weight from outliers, by how far
    they lie from the median of their neighbours; sharp peaks are outliers, too.

    **score** "dot" is the literal recipe, softmax_j(scale·x_i·x_j), and **normalizer** "sum" its plainest form. They are
    kept for teaching, with keys="value". The dot score is no measure of similarity for single numbers: it moves with the
    zero of the scale (adding c to the series tilts every row by e^(scale·c·x_j)), prefers large values to near ones, knows
    nothing of time, and with growing scale sends every point to the maximum or the minimum. The plain sum does not
    even depend on i: W_ij = x_i x_j / Σ_k x_i x_k = x_j / Σ_k x_k, since x_i cancels, so that every y_i is the constant
    Σ_j x_j² / Σ_k x_k.

    **window**: the largest distance in time, to either side, that a point attends over. **causal**: only to the present and
    past; without it, every point has seen its future, and must not be called a forecast. What is chosen once for the whole series
    has seen all of it even so: the noise level, the heads of "auto", a bandwidth, the outliers of `robust`. So later data move the
    past, by tenths of the noise where there are 60 points and less in longer series; with keys other than "auto", a bandwidth
    given and no `robust` they move nothing.

    x (n,) or (n, columns), smoothed column by column; times (n,), in any order, equal ones allowed, numbers or dates (a pandas
    DatetimeIndex counts). NaN is a missing value: it is no key, and is filled, or stays NaN where the window or causality
    leaves it no key, or with **fill** False. Returns float64 of the same shape, a pandas object for a pandas object; or the
    curve **at** other times (m,), as `Smoothing.at` has it. Memory is linear in n.

    Raises InputError or KindError, which say what to do, for what is not a series of numbers or cannot be asked for.

    >>> smooth([1.0, 2.0, float("nan"), 4.0, 5.0], keys="time", degree=0, bandwidth=0.5).round(2)
    array([1.12, 1.88, 3.  , 4.12, 4.88])
    >>> smooth([1.0, 2.0, 4.0], keys="value", score="dot", normalizer="sum")
    array([3., 3., 3.])
    """
    options = Options(keys, bandwidth, score, normalizer, scale, window, degree, causal, robust, noise, fill)
    values = read_values(x)
    moments, weighed = read_times(times, x, values.shape[0]), read_weights(weights, values.shape[0])
    columns = [values] if values.ndim == 1 else list(values.T)
    if at is None and (options.bandwidths or options.score == "dot"):  # nothing is chosen, so nothing need be estimated
        curves = [_given_head(column, moments, weighed, options, name) for name, column in enumerate(columns)]
    else:
        found = [_analyze(column, moments, weighed, options, name) for name, column in enumerate(columns)]
        curves = [one.values if at is None else one.at(at) for one in found]
    whole = curves[0] if values.ndim == 1 else np.stack(curves, axis=1)
    return whole if at is not None else dressed_like(x, whole)


def analyze(
    x: ArrayLike,
    *,
    times: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    keys: str = "auto",
    bandwidth: Bandwidth = "auto",
    score: str = "gaussian",
    normalizer: str = "softmax",
    scale: float = 1.0,
    window: float | None = None,
    degree: int = 1,
    causal: bool = False,
    robust: bool = False,
    noise: ArrayLike | None = None,
    fill: bool = True,
) -> Smoothing:
    """Smooth one series as `smooth` does, and return the curve with band, bandwidth, noise, risk, mixture, weights and a sentence.

    The arguments are those of `smooth`; x is (n,).

    >>> found = analyze([3.0, 3.0, 3.0, 3.0])
    >>> found.noise, found.values
    (0.0, array([3., 3., 3., 3.]))
    """
    options = Options(keys, bandwidth, score, normalizer, scale, window, degree, causal, robust, noise, fill)
    values = read_values(x)
    if values.ndim != 1:
        fix = "analyze its columns one by one"
        raise InputError("analyze takes one series, (n,)", got=f"shape {values.shape}", fix=fix)
    return _analyze(values, read_times(times, x, values.shape[0]), read_weights(weights, values.shape[0]), options)


def _given_head(values: Floats, times: Times, weights: Floats | None, options: Options, column: int) -> Floats:
    """The curve alone."""
    if options.noise is not None:
        read_noise(options.noise, values.size)  # not used here, but a request is honoured or refused
    series, missing = _arranged(values, times, weights, options, column)
    return _restored(series, options, attend_head(series, _head(series, options)).values, missing)


def _arranged(
    values: Floats, times: Times, weights: Floats | None, options: Options, column: int
) -> tuple[Series, NDArray[np.bool_]]:
    """The series as heads see it, and which points came without a value, or with one that is not to count."""
    if weights is not None:
        values = np.where(weights > 0, values, np.nan)
    missing = np.isnan(values)
    if options.robust:
        weights = less_outliers(values, times.moments, weights)
    if missing.all() and column:
        raise InputError("a series needs at least one value", got=f"only NaN in column {column}", fix="leave that column out")
    # The dot score is not shift-invariant: it gets the values as they are.
    series = arrange(values, times.moments, weights, shift=options.score == "gaussian")
    if options.score == "dot" and series.key_weights is not None and np.ptp(series.key_weights) > 0:
        fix = 'leave out weights and robust, or pass score="gaussian"'
        raise InputError("the dot score takes all points alike", got="weights that differ", fix=fix)
    return series, missing


def _restored(series: Series, options: Options, outputs: Floats, missing: NDArray[np.bool_]) -> Floats:
    restored = series.restore(outputs)
    if not options.fill:
        restored[missing] = np.nan
    return restored


def _analyze(values: Floats, times: Times, weights: Floats | None, options: Options, column: int = 0) -> Smoothing:
    series, missing = _arranged(values, times, weights, options, column)
    found = estimate(series.key_times, series.key_values, series.key_weights)
    levels = levels_of(series, options, found)
    head, bank, variances = None, None, None
    if options.keys == "auto":
        bank = _bank(series, levels, options.causal)
        outputs, variances = Outputs(bank.values, bank.slopes), bank.variances
    else:
        head = _head(series, options, levels)
        outputs, variances = _one_head(series, head, levels, options)
    restored = _restored(series, options, outputs.values, missing)
    here = Outputs(outputs.values[series.present], outputs.slopes[series.present])
    noise = key_noise(series, levels)
    risk = float(pointwise_risk(series.key_values, here, noise).mean())
    return Smoothing(
        values=restored,
        bandwidth=None if head is None else options.given or head.keys.in_units(series.step, series.spread),
        noise=float(np.sqrt(np.mean(levels**2))) * series.noise_unit,
        risk=risk * series.spread**2,
        risk_error=risk_error(noise) * series.spread**2,
        degrees_of_freedom=float(here.slopes.sum()),
        leave_one_out=_predicted(series, head, outputs),
        points=values.size,
        filled=int(np.sum(missing & ~np.isnan(restored))),
        times=times,
        heads=(options.keys,) if bank is None else tuple(bank.names),
        mixture=None if bank is None else bank.mixture,
        withheld="" if found.white else found.reason,
        options=options,
        series=series,
        head=head,
        found=found,
        levels=levels,
        _variances=variances,
    )


def _one_head(series: Series, head: Head, levels: Floats, options: Options) -> tuple[Outputs, Floats | None]:
    """What one head gives; and the variances that come with it where a bandwidth of time was given."""
    if not isinstance(head.keys, TimeKeys):
        return attend_head(series, head), None
    found = attend_in_time(series, head, head.keys.bandwidth)
    return Outputs(found.values, found.own), levels**2 * found.squares if options.bandwidths else None


def _head(series: Series, options: Options, levels: Floats | None = None) -> Head:
    """The head asked for; the noise's levels are for choosing a bandwidth."""
    window = np.inf if options.window is None else options.window / series.step
    if options.score == "dot":
        return Head(dot_keys(series, options.scale, options.normalizer == "sum"), window, options.causal)
    degree = options.degree if options.keys == "time" else 0
    if levels is not None and options.bandwidths is None:
        return best_head(series, options.keys, key_noise(series, levels), window, options.causal, degree)
    units = {"time": (series.step,), "value": (series.spread,), "patch": (series.spread,), "both": (series.step, series.spread)}
    own = tuple(given / unit for given, unit in zip(options.bandwidths or (), units[options.keys], strict=True))
    return Head(keys_of(options.keys, own), window, options.causal, degree)


def _bank(series: Series, levels: Floats, causal: bool) -> Attended:
    found = attend_bank(_bank_points(series, levels, causal), whole_level(levels), causal=causal)
    if causal:
        found.values[: series.present[0]] = np.nan  # before the first value there is nothing to attend to
    return found


def _bank_points(series: Series, levels: Floats, causal: bool) -> Points:
    known = ~np.isnan(series.values)
    weights = known.astype(np.float64) if series.weights is None else np.where(known, series.weights, 0.0)
    # Without noise a risk is that of missing the values themselves.
    return Points(series.times, filled_values(series, causal=causal), weights, np.maximum(levels, NOISELESS))


def _predicted(series: Series, head: Head | None, outputs: Outputs) -> float | None:
    if head is None or not isinstance(head.keys, TimeKeys):
        return None
    found = leave_one_out(series, outputs)
    return None if found is None else found * series.spread**2
