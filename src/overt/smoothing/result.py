"""The result of `analyze`: a smoothed series with its band, its risk, its weights and a report in sentences."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError
from overt.smoothing.data.condition import Condition, find_condition
from overt.smoothing.data.events import NOT_NORMAL
from overt.smoothing.data.frames import data_frame
from overt.smoothing.data.options import Options
from overt.smoothing.data.periods import Length
from overt.smoothing.data.repeats import Repeats, last_known
from overt.smoothing.data.series import Floats, Series
from overt.smoothing.data.times import Times
from overt.smoothing.heads.head import SeriesHead
from overt.smoothing.heads.local.gaps import Filling
from overt.smoothing.noise.scale import Scale, wrapped
from overt.smoothing.operators.base import Operator
from overt.smoothing.operators.derivative import Derivative, estimate_derivative
from overt.smoothing.operators.other_times import CurveAt, values_at, warn_of_extrapolation
from overt.smoothing.operators.whole import smoothing_operator
from overt.smoothing.reporting.anomalies import Anomaly, find_anomalies
from overt.smoothing.reporting.changes import Change, find_changes
from overt.smoothing.reporting.explanation import explain
from overt.smoothing.reporting.sentences import Report, describe, make_report
from overt.smoothing.reporting.steps import Step, list_steps
from overt.smoothing.seasons.season import Seasons
from overt.smoothing.selection.bands import NORMAL_QUANTILE, standard_deviations
from overt.smoothing.selection.noise import NoiseEstimate
from overt.smoothing.selection.risk import STANDARD_ERRORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class Smoothing:
    """A smoothed series and the estimates behind it. Times and values are in the caller's units and order.

    `risk` is the estimated mean squared error against the truth, and `risk_error` the standard error of this estimate: Stein's estimate
    with σ²√(2/n), combined for the bank with the band's variance, by their accuracies (`selection.risk.combined_risk`). A risk below two
    standard errors, or below 0, cannot be distinguished from 0; then only `risk_upper_bound` is informative. Both assume noise that is
    independent from point to point and close to normal. `degrees_of_freedom` is the sum of the leverages ∂y_i/∂x_i: n for a curve
    through every point, 1 for the mean. `mixture` holds the weights of the `heads`, averaged over equal runs of points in time.
    """

    values: Floats  # (n,)
    bandwidth: float | tuple[float, float] | None  # over time or values, or (time, value); None for the dot score and the bank
    noise: float  # standard deviation of a value of weight 1, passed or estimated; root mean square if it varies
    risk: float
    risk_error: float
    degrees_of_freedom: float
    leave_one_out: float | None  # mean squared error of predicting a value from the others; only for time keys, else None
    points: int
    filled: int  # missing points that received a value
    times: Times
    heads: tuple[str, ...]
    mixture: Floats | None  # (heads, cells), None for a single head
    withheld: str  # why there is no band, one sentence; "" if there is one
    options: Options
    series: Series
    head: SeriesHead | None  # None for the bank
    estimate: NoiseEstimate  # in the series' own units, like `unit_levels`; `noise_estimate` and `levels` are in the caller's
    outliers: NDArray[np.bool_]  # (n,) isolated outliers that were removed
    repeats: Repeats  # runs of equal values, which stay unchanged among values with noise; and values that are held
    observed: Floats  # (n,) the values as passed
    seasons: Seasons | None
    filling: Filling | None  # curve at missing points, sorted by time
    components: Floats  # (n, seasons) one column per season; a column of zeros without a period
    unit_levels: Floats  # (n,) standard deviations at weight 1, sorted by time
    curve_variances: Floats | None  # for the bank, and for time keys with a passed bandwidth
    kind: str = ""  # the recognized kind of noise: "counts", "outcomes", "logarithms", "amounts", … or ""
    bounds: tuple[float, float] = (-np.inf, np.inf)  # bounds of the curve and the band
    codes: NDArray[np.bool_] | None = None  # (n,) error codes and enormous values among the outliers
    scaled: "tuple[Smoothing, Scale] | None" = None  # the smoothing on another scale from which this one was converted
    automatic: "Smoothing | None" = None  # with a span, the automatic smoothing that it replaces
    index: Any | None = None  # index of the analyzed pandas object

    def __repr__(self) -> str:
        return f"<Smoothing of {self.points} points: {self.sentence}>"

    def __getstate__(self) -> dict[str, Any]:
        """All fields but functions, for pickle: `steps` and `operator` are computed again."""
        return {name: value for name, value in vars(self).items() if name not in ("steps", "operator")}

    def with_repeats(self, values: Floats, repeats: Repeats, options: Options) -> "Smoothing":
        """This smoothing with the repeats of values (n,) that it excludes: flat runs stay unchanged, without an error."""
        flat = repeats.flat
        known, order = ~np.isnan(values), self.series.order
        noisy = float(np.mean(~flat[known]))
        variances = None if self.curve_variances is None else np.where(flat[order], 0.0, self.curve_variances)
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
            curve_variances=variances,
        )

    def with_outliers(self, values: Floats, outliers: NDArray[np.bool_], options: Options) -> "Smoothing":
        """This smoothing with the outliers (n,) of values (n,) that it excludes."""
        missing = np.isnan(values)
        curve = np.where(missing & (not options.fill), np.nan, self.values)
        filled = int(np.sum(missing & ~np.isnan(curve)))
        return replace(self, values=curve, filled=filled, observed=values, outliers=self.outliers | outliers, options=options)

    def within(self, options: Options) -> "Smoothing":
        """This smoothing with its curve and band clipped to the passed bounds."""
        if options.bounds is None:
            return self
        (low, high), (least, most) = self.bounds, options.limits
        bounds = max(low, least), min(high, most)
        return replace(self, values=np.clip(self.values, *bounds), bounds=bounds, options=options)

    @property
    def levels(self) -> Floats:
        """The noise's standard deviation at weight 1 for every point (n,), in the caller's units and order.

        For values on another scale it follows the curve, with `noise` as its root mean square.
        """
        if self.scaled is None:
            return self.series.unsort(self.unit_levels) * self.series.noise_unit * self.repeats.events**0.5
        first, scale = self.scaled
        levels = first.levels * scale.slope(first.values)
        return levels * (self.noise / (float(np.sqrt(np.nanmean(levels**2))) or 1.0))

    @property
    def noise_estimate(self) -> NoiseEstimate:
        """The estimate of the noise, in the caller's units; `levels` and `waves` are sorted by time, without missing points."""
        series, estimate = self.series, self.estimate
        waves = None if estimate.waves is None else estimate.waves * series.spread
        if self.scaled is None:
            return replace(estimate.scaled(series.noise_unit * self.repeats.events**0.5), waves=waves)
        return replace(estimate, level=self.noise, levels=self.levels[series.order][series.present], waves=None)

    @property
    def counts(self) -> bool:
        """Whether the values were smoothed as Poisson counts."""
        return self.kind in ("counts", "square roots", "logarithms of counts")

    @property
    def periods(self) -> tuple[float, ...]:
        """The periods of the seasons, in the unit of the times, ascending; () without a season."""
        return () if self.seasons is None else tuple(season.grid.period * self.series.step for season in self.seasons.each)

    @property
    def seasonal(self) -> Floats:
        """The season (n,), or one column per season if there are several, ascending by period (n, seasons); zeros without a period.

        trend + seasons + remainder is the observed series, as in statsmodels' STL and MSTL, and values = trend + seasons. Unlike the
        trend of statsmodels, this trend is all that does not repeat: it may jump, and it follows bursts and waves of other lengths.
        """
        return self.components[:, 0] if self.components.shape[1] == 1 else self.components

    @property
    def seasonal_names(self) -> tuple[str, ...]:
        """One name per season, as in statsmodels' MSTL: "seasonal_24"; only "seasonal" for one season or none."""
        if len(self.periods) < 2:
            return ("seasonal",)
        return tuple(f"seasonal_{period:.6g}" for period in self.periods)

    @property
    def trend(self) -> Floats:
        """The curve without its seasons (n,)."""
        return self.values - self.components.sum(axis=1)

    @property
    def residuals(self) -> Floats:
        """The observed values minus the curve (n,), NaN if a value is missing; for angles the shorter way."""
        turn = self.options.circular
        return self.observed - self.values if turn is None else wrapped(self.observed - self.values, turn)

    @property
    def remainder(self) -> Floats:
        """The residuals (n,), under their name in decompositions into trend and seasons."""
        return self.residuals

    @property
    def estimable(self) -> bool:
        """Whether the risk differs from 0 by two standard errors or more."""
        return self.risk >= STANDARD_ERRORS * self.risk_error

    @property
    def risk_upper_bound(self) -> float:
        """Two standard errors above the estimated risk, or above 0 if the estimate is negative."""
        return max(self.risk, 0.0) + STANDARD_ERRORS * self.risk_error

    @cached_property
    def deviation(self) -> Floats | None:
        """The standard deviation of the curve (n,), without its bias; None if there is no band."""
        if self.withheld:
            return None
        if self.scaled is not None and (deviation := self.scaled[0].deviation) is not None:
            return deviation * self.scaled[1].slope(self.scaled[0].values)
        if self.curve_variances is not None or self.head is None:
            deviation = np.sqrt(np.asarray(self.curve_variances))
        else:
            selected = self.options.bandwidths is None
            curve = (self.values[self.series.order] - self.series.center) / self.series.spread
            deviation = standard_deviations(self.series, self.head, curve, self.unit_levels, selected=selected)
        deviation = self.series.unsort(deviation * self.series.spread)
        return np.where(np.isnan(self.values), np.nan, deviation)

    @property
    def lower(self) -> Floats | None:
        """The lower end of the pointwise 95% band around the mean curve (n,); None if there is no band."""
        return self._band(-NORMAL_QUANTILE)

    @property
    def upper(self) -> Floats | None:
        """The upper end of the pointwise 95% band (n,); None if there is no band."""
        return self._band(NORMAL_QUANTILE)

    def weights(self, point: int) -> Floats:
        """The weights W_ij with which one point attends to all points (n,): `values[i]` is Σ_j W_ij x_j over the known x_j.

        For counts that are smoothed by one head or causally, the series is 2√(x + 3/8); a curve of counts is 0 if it would be below 0.
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
        """The operator from the values to the curve, both sorted by time (n,)."""
        return smoothing_operator(self)

    @overload
    def at(self, times: ArrayLike, *, band: Literal[False] = False) -> Floats: ...

    @overload
    def at(self, times: ArrayLike, *, band: Literal[True]) -> CurveAt: ...

    def at(self, times: ArrayLike, *, band: bool = False) -> Floats | CurveAt:
        """The curve at other times (m,), in the unit of the series' times: numbers, or dates if the series has dates.

        Dates must have a time zone, any one, if the dates of the series have one, and none otherwise.
        Time keys are fitted at the new times as at the points. Other keys compare values, and a new time has no value: their curve is
        interpolated linearly between points, or keeps the value of the last point if `causal`. Seasons continue between and beyond points.

        With **band** it returns (values, lower, upper). The band is wider in the middle of a gap, by the error of a straight line over the
        same length elsewhere on the curve (`other_times`). lower and upper are None if there is no band.

        Beyond the ends it extrapolates, with a UserWarning: the last level, the local trend as long as trends have lasted in the past of
        this curve, and the seasons. The band widens by the error that such an extrapolation would have had in the past (`beyond`). Raises
        InputError farther out than half the length of the data: use a forecasting library.

        >>> from overt.smoothing import analyze
        >>> smoothing = analyze([0.0, 1.0, 2.0, 3.0], keys="time", bandwidth=1.0)
        >>> smoothing.at([0.5, 2.75]).round(6)
        array([0.5 , 2.75])
        """
        warn_of_extrapolation(self, times)
        result = values_at(self, times, band=band)
        return result if band else result.values

    def derivative(self, order: int = 1, *, per: Length | None = None) -> Derivative:
        """The slope of the curve (order 1) or its curvature (2), with a pointwise 95% band.

        The unit is per step, per unit of the times, or for dates per day, hour, minute or second, the largest of these that a step
        contains; **per** "1D" or a number in the times' unit replaces it. Models of the derivatives (`heads.state_space`) are mixed by how
        well they predict the values from all others. The mixture of the curve is not used: a slope needs wider averages than a level.
        Raises InputError for fewer than 5 values.

        >>> from overt.smoothing import analyze
        >>> analyze([0.0, 0.5, 1.0, 1.5, 2.0, 2.5], scale="linear").derivative().values.round(2)
        array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        """
        return estimate_derivative(self, order, per)

    def anomalies(self) -> list[Anomaly]:
        """The anomalies, by time: outliers, runs of outliers, stuck values and missing values.

        An anomaly has `time`, `until`, `kind`, `points`, the `value` farthest from `expected`, and its `score` in standard deviations.

        >>> from overt.smoothing import analyze
        >>> noise = np.random.default_rng(0).normal(size=200)
        >>> noise[50], noise[120:123] = 40.0, np.nan
        >>> [(anomaly.time, anomaly.kind, anomaly.points) for anomaly in analyze(noise).anomalies()]
        [(np.float64(50.0), 'point', 1), (np.float64(120.0), 'missing', 3)]
        """
        return find_anomalies(self)

    @cached_property
    def changes(self) -> list[Change]:
        """The changes of level or slope, by time, with `time`, `lower`, `upper`, `kind`, `size` and `probability`.

        Outliers, seasons and correlated noise cause no changes; changes of probability below ½ are not listed. Needs 10 values or more.

        >>> from overt.smoothing import analyze
        >>> noisy = np.repeat([0.0, 5.0], 100) + np.random.default_rng(0).normal(size=200)
        >>> [(change.time, change.kind, round(change.size)) for change in analyze(noisy).changes]
        [(np.float64(100.0), 'level', 5)]
        """
        return find_changes(self)

    def to_frame(self) -> "DataFrame":
        """All results by point as a pandas DataFrame, with the index of the analyzed pandas object, else with the times as index.

        Columns: observed, smooth, lower and upper (if there is a band), trend and seasons (with a period), residual, outlier.

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
        return data_frame(columns, self.times if self.index is None else self.index)

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Data, curve and band as a matplotlib Figure, with the mixture of heads below; saved to `path` if passed.

        Dates are in the time zone of the series, which the axis names.
        """
        from overt.smoothing.reporting.curve import extract_curve
        from overt.smoothing.reporting.plot import Panel, draw, draw_figure

        panel = Panel("", self.times.as_passed, self.observed, extract_curve(self), self.times.zone)
        label = "" if self.times.kind == "dates" else self.unit
        if path is not None:
            draw(path, [panel], x=label)
        return draw_figure([panel], x=label)

    @property
    def unit(self) -> str:
        """The unit of the times: "steps", "seconds", or "" for plain numbers."""
        return self.times.unit

    @property
    def sentence(self) -> str:
        """A report in a few sentences: the input, noise, remaining error, outliers, season, changes if known, and warnings."""
        return describe(self)

    @property
    def report(self) -> Report:
        """The sections of `sentence` as texts, by name.

        >>> from overt.smoothing import analyze
        >>> analyze([1.0, float("nan"), 3.0]).report.read
        '3 rows. Missing points filled from their neighbours: 1.'
        """
        return make_report(self)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The applied steps, in order: a step has a `name`, a `text`, and `apply`, from the output of the previous step to its own.

        >>> from overt.smoothing import analyze
        >>> [step.name for step in analyze([1.0, float("nan"), 3.0, 2.0]).steps]
        ['heads', 'filling']
        """
        return list_steps(self)

    @property
    def explanation(self) -> str:
        """An explanation of the curve: the heads, the points that they attend to, and the degrees of freedom."""
        return explain(self)

    @cached_property
    def condition(self) -> Condition:
        """The condition of times and values: duplicates, absent times, stuck values, and values that may be error codes."""
        condition = find_condition(self.observed, self.times)
        removed = set() if self.codes is None else set(self.observed[self.codes])
        return replace(condition, codes=tuple(code for code in condition.codes if code.value not in removed))

    def _band(self, quantile: float) -> Floats | None:
        if self.deviation is None:
            return None
        if self.scaled is not None:
            first, scale = self.scaled
            end = first._band(quantile)
            return None if end is None else np.clip(scale.end(first.values, end), *self.bounds)
        return np.clip(self.values + quantile * self.deviation, *self.bounds)
