"""What `analyze` returns: a smoothed series with its band, its risk, its weights and a report in sentences."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError
from overt.smoothing.data.events import NOT_NORMAL
from overt.smoothing.data.frames import frame_of
from overt.smoothing.data.options import Options
from overt.smoothing.data.repeats import Repeats, last_known
from overt.smoothing.data.series import Floats, Series
from overt.smoothing.data.times import Times, read_moments
from overt.smoothing.heads.head import Head
from overt.smoothing.heads.local.gaps import Filling
from overt.smoothing.noise.counts import SQUARE_ROOTS
from overt.smoothing.noise.logarithms import logarithmic
from overt.smoothing.noise.outcomes import variances_of_outcomes
from overt.smoothing.noise.scale import Scale
from overt.smoothing.operators.base import Operator
from overt.smoothing.operators.other_times import CurveAt, curve_at, deviation_at
from overt.smoothing.operators.whole import operator_of
from overt.smoothing.reporting.sentences import describe
from overt.smoothing.seasons.season import Seasons
from overt.smoothing.selection.bands import NORMAL_QUANTILE, standard_deviations
from overt.smoothing.selection.noise import NoiseEstimate
from overt.smoothing.selection.risk import STANDARD_ERRORS, combined_risk, risk_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Smoothing:
    """A smoothed series and the estimates behind it. Times and values are in the caller's units and order.

    `risk` is the estimated mean squared error against the truth, and `risk_error` is the standard error of that estimate: Stein's, with
    σ²√(2/n), and for the bank that and the band's variance, each as far as it is accurate (`selection.risk.combined_risk`).
    A risk below two standard errors, or below 0, cannot be told from 0; then only `risk_upper_bound` is informative. Both assume
    noise that is independent from point to point and close to normal. `degrees_of_freedom` is the sum of the leverages ∂y_i/∂x_i: n
    for a curve that passes through every point, 1 for the mean. `mixture` holds the weights of the `heads`, averaged over equal runs
    of points in time.
    """

    values: Floats  # (n,)
    bandwidth: float | tuple[float, float] | None  # of time or of value, or (time, value); None for the dot score and the bank
    noise: float  # standard deviation of a value of weight 1, passed or estimated; root mean square where it varies
    risk: float
    risk_error: float
    degrees_of_freedom: float
    leave_one_out: float | None  # mean squared error when each value is predicted from the others; None but for time keys
    points: int
    filled: int  # missing points that received a value
    times: Times
    heads: tuple[str, ...]
    mixture: Floats | None  # (heads, cells), None for a single head
    withheld: str  # why there is no band, one sentence; "" where there is one
    options: Options
    series: Series
    head: Head | None  # None for the bank
    estimate: NoiseEstimate  # in the series' own units, as `unit_levels`; `noise_estimate` and `levels` are in the caller's
    outliers: NDArray[np.bool_]  # (n,) isolated wild values that were left out
    repeats: Repeats  # runs of equal values that stay as they are, beside others with noise; and values that are held
    observed: Floats  # (n,) the values as they were passed
    seasons: Seasons | None
    filling: Filling | None  # of missing points, by time
    components: Floats  # (n, seasons) each season; one of zeros without a period
    unit_levels: Floats  # (n,) standard deviations at weight 1, sorted by time
    _variances: Floats | None  # of the bank, and of time keys whose bandwidth was passed
    kind: str = ""  # what the values were recognized as: "counts", "square roots" of counts, "outcomes", "logarithms", or ""
    bounds: tuple[float, float] = (-np.inf, np.inf)  # which the curve and the band keep
    codes: NDArray[np.bool_] | None = None  # (n,) error codes and enormous values among the outliers
    _scaled: "tuple[Smoothing, Scale] | None" = None  # the smoothing on another scale, where this is its image
    automatic: "Smoothing | None" = None  # with a span, what it takes the place of
    index: Any | None = None  # of the pandas object that was analyzed

    def __repr__(self) -> str:
        return f"<Smoothing of {self.points} points: {self.sentence}>"

    def with_repeats(self, values: Floats, repeats: Repeats, options: Options) -> "Smoothing":
        """This smoothing of a series (n,) without its repeats: flat runs stay as they are, without an error."""
        flat = repeats.flat
        known, order = ~np.isnan(values), self.series.order
        noisy = float(np.mean(~flat[known]))
        variances = None if self._variances is None else np.where(flat[order], 0.0, self._variances)
        last = self.series.unsort(values[order][last_known(values[order])])
        curve = np.where(known | options.fill, np.where(flat, last, self.values), np.nan)
        return replace(
            self,
            values=curve,
            risk=noisy * self.risk,
            risk_error=noisy * self.risk_error,
            filled=int(np.sum(~known & ~np.isnan(curve))),
            repeats=repeats,
            observed=values,
            options=options,
            noise=self.noise * repeats.events**0.5,
            withheld=self.withheld if repeats.events == 1 else NOT_NORMAL,
            _variances=variances,
        )

    def with_codes(self, values: Floats, codes: NDArray[np.bool_], options: Options) -> "Smoothing":
        """This smoothing of a series (n,) without its error codes, which are outliers."""
        missing, outliers = np.isnan(values), self.outliers | codes
        curve = np.where(missing & (not options.fill), np.nan, self.values)
        filled = int(np.sum(missing & ~np.isnan(curve)))
        return replace(self, values=curve, filled=filled, observed=values, codes=codes, outliers=outliers, options=options)

    def of_stabilized_counts(self, counts: Floats, options: Options) -> "Smoothing":
        """This smoothing of 2√(x + 3/8), brought back to the counts x (n,) without bias."""
        counted = self._brought_back(SQUARE_ROOTS, options)
        return counted._with_risks(counts, counted.values, counts)

    def of_counts(self, counts: Floats, options: Options) -> "Smoothing":
        """This smoothing of counts (n,), without outliers, under the variances of an earlier curve: never below 0."""
        curve = np.maximum(self.values, 0.0)
        counted = replace(self, values=curve, kind="counts", bounds=(0.0, np.inf), options=options)
        return counted._with_risks(counts, curve, counts)

    def of_outcomes(self, outcomes: Floats, low: float, high: float, options: Options) -> "Smoothing":
        """This smoothing of outcomes (n,), each one of two values, under the variances of an earlier curve: between the two."""
        curve = np.clip(self.values, low, high)
        variances = variances_of_outcomes(curve, low, high)
        result = replace(self, values=curve, kind="outcomes", bounds=(low, high), options=options)
        return result._with_risks(outcomes, variances, variances)

    def of_logarithms(self, values: Floats, options: Options) -> "Smoothing":
        """This smoothing of logarithms, brought back to the values (n,) as their mean; the risk grows with its square."""
        result = self._brought_back(logarithmic(self.noise**2), options)
        known = self.series.unsort(np.isin(np.arange(values.size), self.series.present))
        weights = np.ones(values.size) if self._variances is None else self.series.unsort(self._variances)
        squares = float(np.average(result.values[known] ** 2, weights=weights[known] + np.finfo(float).tiny))
        noise = np.sqrt(np.expm1(self.noise**2) * np.mean(result.values[known] ** 2))
        risk, error = self.risk * squares, self.risk_error * squares
        return replace(result, noise=float(noise), risk=risk, risk_error=error, observed=values)

    def _brought_back(self, scale: Scale, options: Options) -> "Smoothing":
        """The curve and the seasons of a smoothing on another scale in the caller's units."""
        # Each season is what it adds to the trend and the seasons of shorter periods.
        upward = self.trend[:, None] + np.cumsum(np.pad(self.components, ((0, 0), (1, 0))), axis=1)
        return replace(
            self,
            values=scale.mean(self.values),
            components=np.diff(scale.mean(upward), axis=1),
            options=options,
            leave_one_out=None,
            kind=scale.name,
            bounds=(0.0, np.inf),
            _scaled=(self, scale),
        )

    def _with_risks(self, observed: Floats, variances: Floats, unbiased: Floats) -> "Smoothing":
        """With the risk and noise of values whose `variances` (n,) follow the curve; `unbiased` (n,) estimates of these.

        Of counts the count itself is one, as E λ f(x) = E x f(x − 1) takes the place of Stein's identity (Hudson 1978, section 4).
        """
        known = self.series.unsort(np.isin(np.arange(observed.size), self.series.present))
        leverage = self.degrees_of_freedom / max(int(known.sum()), 1)
        risks = (observed - self.values) ** 2 - unbiased + 2 * variances * leverage
        noise = np.sqrt(variances[known])
        risk, error = float(risks[known].mean()), risk_error(noise)
        if self._variances is not None and self.head is None:
            slopes = 1.0 if self._scaled is None else self._scaled[1].slope(self._scaled[0].values)
            of_curve = self.series.unsort(self._variances) * (self.series.spread * slopes) ** 2
            risk, error = combined_risk(risk, error, float(of_curve[known].mean()), int(known.sum()))
        return replace(self, noise=float(np.sqrt(np.mean(noise**2))), risk=risk, risk_error=error, observed=observed)

    @property
    def levels(self) -> Floats:
        """The noise's standard deviation at each point, at weight 1 (n,), in the caller's units and order.

        On another scale it follows the curve, with `noise` as its root mean square.
        """
        if self._scaled is None:
            return self.series.unsort(self.unit_levels) * self.series.noise_unit * self.repeats.events**0.5
        first, scale = self._scaled
        levels = first.levels * scale.slope(first.values)
        return levels * self.noise / np.sqrt(np.nanmean(levels**2))

    @property
    def noise_estimate(self) -> NoiseEstimate:
        """What was estimated of the noise, in the caller's units; `levels` and `waves` are sorted by time, without missing points."""
        series, estimate = self.series, self.estimate
        waves = None if estimate.waves is None else estimate.waves * series.spread
        if self._scaled is None:
            return replace(estimate.scaled(series.noise_unit * self.repeats.events**0.5), waves=waves)
        return replace(estimate, level=self.noise, levels=self.levels[series.order][series.present], waves=None)

    @property
    def counts(self) -> bool:
        """Whether the values were smoothed as Poisson counts."""
        return self.kind in ("counts", "square roots")

    @property
    def periods(self) -> tuple[float, ...]:
        """The periods of the seasons, in the unit of the times, ascending; () without a season."""
        return () if self.seasons is None else tuple(season.grid.period * self.series.step for season in self.seasons.each)

    @property
    def seasonal(self) -> Floats:
        """The season (n,), or a column for each of several, ascending by period (n, seasons); zeros without a period.

        trend + seasons + remainder is the observed series, as in statsmodels' STL and MSTL, and values = trend + seasons. Unlike
        theirs the trend is whatever does not repeat: it may jump, and it follows bursts and waves of other lengths.
        """
        return self.components[:, 0] if self.components.shape[1] == 1 else self.components

    @property
    def seasonal_names(self) -> tuple[str, ...]:
        """A name for each season, as statsmodels' MSTL has them: "seasonal_24"; "seasonal" alone where there is one or none."""
        if len(self.periods) < 2:
            return ("seasonal",)
        return tuple(f"seasonal_{period:.6g}" for period in self.periods)

    @property
    def trend(self) -> Floats:
        """The curve without its seasons (n,)."""
        return self.values - self.components.sum(axis=1)

    @property
    def residuals(self) -> Floats:
        """The observed values without the curve (n,), NaN where a value is missing."""
        return self.observed - self.values

    @property
    def remainder(self) -> Floats:
        """The residuals, under the name that decompositions into trend and seasons use (n,)."""
        return self.residuals

    @property
    def estimable(self) -> bool:
        """Whether the risk differs from 0 by two standard errors or more."""
        return self.risk >= STANDARD_ERRORS * self.risk_error

    @property
    def risk_upper_bound(self) -> float:
        """Two standard errors above the estimated risk, or above 0 where the estimate is negative."""
        return max(self.risk, 0.0) + STANDARD_ERRORS * self.risk_error

    @cached_property
    def deviation(self) -> Floats | None:
        """The standard deviation of each value of the curve (n,), without its bias; None where there is no band."""
        if self.withheld:
            return None
        if self._scaled is not None and (deviation := self._scaled[0].deviation) is not None:
            return deviation * self._scaled[1].slope(self._scaled[0].values)
        if self._variances is not None or self.head is None:
            deviation = np.sqrt(np.asarray(self._variances))
        else:
            selected = self.options.bandwidths is None
            deviation = standard_deviations(self.series, self.head, self._sorted_curve(), self.unit_levels, selected=selected)
        deviation = self.series.unsort(deviation * self.series.spread)
        return np.where(np.isnan(self.values), np.nan, deviation)

    @property
    def lower(self) -> Floats | None:
        """The lower end of the pointwise 95% band around the mean curve (n,); None where there is no band."""
        return self._band(-NORMAL_QUANTILE)

    @property
    def upper(self) -> Floats | None:
        """The upper end of the pointwise 95% band (n,); None where there is no band."""
        return self._band(NORMAL_QUANTILE)

    def weights(self, point: int) -> Floats:
        """The weights W_ij with which one point attends to all (n,): `values[i]` is Σ_j W_ij x_j over the known x_j.

        Of counts that are smoothed by one head or causally, 2√(x + 3/8) is the series; where a curve of counts would fall below 0, it is 0.
        Outliers have no weight, and values far out in the tails of the noise count as moved towards its middle (`robust`).

        >>> from overt.smoothing import analyze
        >>> analyze([0.0, 1.0, 0.0], keys="time", degree=0, bandwidth=1.0).weights(0).round(2)
        array([0.57, 0.35, 0.08])
        """
        if not -self.points <= point < self.points:
            fix = f"pass an index from 0 to {self.points - 1}"
            raise InputError("the index of a point", got=f"{point} for {self.points} points", fix=fix)
        row = int(np.flatnonzero(self.series.order == point % self.points)[0])
        return self.series.unsort(self.operator.row(row))

    @cached_property
    def operator(self) -> Operator:
        """How the curve depends on the values, both sorted by time (n,)."""
        return operator_of(self)

    @overload
    def at(self, times: ArrayLike, *, band: Literal[False] = False) -> Floats: ...

    @overload
    def at(self, times: ArrayLike, *, band: Literal[True]) -> CurveAt: ...

    def at(self, times: ArrayLike, *, band: bool = False) -> Floats | CurveAt:
        """The curve at other times (m,), in the unit of the series' times: numbers, or dates where those were dates.

        Dates have a time zone, any one, where those of the series have one, and none where those have none.

        Time keys fit at the new times as they do at the points. Other keys compare values, and a new time has no value. Their curve
        is interpolated linearly between points and constant beyond the ends; with `causal` it keeps the value of the last point.
        Seasons go on between and beyond the points.

        With **band**, (values, lower, upper): the band is wider in the middle of a gap and beyond the ends, by as much as a straight
        line over the same length misses the rest of the curve (`other_times`). lower and upper are None where there is no band.

        >>> from overt.smoothing import analyze
        >>> smoothing = analyze([0.0, 1.0, 2.0, 3.0], keys="time", bandwidth=1.0)
        >>> smoothing.at([0.5, 2.75]).round(6)
        array([0.5 , 2.75])
        """
        if self._scaled is not None:
            first, scale = self._scaled
            if not band:
                return scale.mean(first.at(times))
            return CurveAt(*(None if end is None else scale.mean(end) for end in first.at(times, band=True)))  # type: ignore[arg-type]
        moments = (read_moments(times, self.times) - self.series.start) / self.series.step
        order = np.argsort(moments, kind="stable")
        back = np.argsort(order)
        values = np.clip(self.series.center + self.series.spread * curve_at(self, moments[order])[back], *self.bounds)
        if not band:
            return values
        if self.withheld:
            return CurveAt(values, None, None)
        half = NORMAL_QUANTILE * self.series.spread * deviation_at(self, moments[order])[back]
        return CurveAt(values, np.clip(values - half, *self.bounds), np.clip(values + half, *self.bounds))

    def to_frame(self) -> "DataFrame":
        """Everything by point as a pandas DataFrame, with the index of a pandas object that was analyzed, else with the times as index.

        Columns: observed, smooth, lower and upper (where there is a band), trend and seasons (with a period), residual, outlier.

        >>> from overt.smoothing import analyze
        >>> list(analyze([3.0, 3.0, 3.0, 3.0]).to_frame().columns)
        ['observed', 'smooth', 'lower', 'upper', 'residual', 'outlier']
        """
        columns: dict[str, Any] = {"observed": self.observed, "smooth": self.values}
        if self.deviation is not None:
            columns |= {"lower": self.lower, "upper": self.upper}
        if self.options.period is not None:
            columns |= {"trend": self.trend, **dict(zip(self.seasonal_names, self.components.T, strict=True))}
        columns |= {"residual": self.residuals, "outlier": self.outliers}
        return frame_of(columns, self.times if self.index is None else self.index)

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Data, curve and band as a matplotlib Figure, with the mixture of heads below; saved to `path` if one is passed.

        Dates are in the time zone of the series, which the axis names.
        """
        from overt.smoothing.reporting.curve import curve_of
        from overt.smoothing.reporting.plot import Panel, draw, figure_of

        panel = Panel("", self.times.as_passed, self.observed, curve_of(self), self.times.zone)
        label = "" if self.times.kind == "dates" else self.unit
        if path is not None:
            draw(path, [panel], x=label)
        return figure_of([panel], x=label)

    @property
    def unit(self) -> str:
        """Of the times: "steps", "seconds", or "" for plain numbers."""
        return self.times.unit

    @property
    def sentence(self) -> str:
        """A report in a few sentences: what was computed, from what, and how large the remaining error is."""
        return describe(self)

    def _band(self, quantile: float) -> Floats | None:
        if self.deviation is None:
            return None
        if self._scaled is not None:
            end = self._scaled[0]._band(quantile)
            return None if end is None else self._scaled[1].mean(end)
        return np.clip(self.values + quantile * self.deviation, *self.bounds)

    def _sorted_curve(self) -> Floats:
        return (self.values[self.series.order] - self.series.center) / self.series.spread
