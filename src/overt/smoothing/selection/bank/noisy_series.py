"""Series as the heads of the bank see them, and what all heads that compare their values share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import NOISELESS, Floats, Indices, Series, filled_values, overall_level
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.heads.local.short_grid import LONGEST
from overt.smoothing.noise.counts import risk_levels_of_counts
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations
from overt.smoothing.selection.medians import medians
from overt.smoothing.selection.noise import NoiseEstimate

# A value is far out if it differs by more standard deviations than that from the medians of so many values before it and after it.
FAR_OUT, MEDIAN_OF = 2.5, 5
# Values further out than this are outliers, which were left out before, or a signal's.
FURTHEST_OUT = 6.0


class NoisySeries(NamedTuple):
    """Series at the same times as the heads see them, sorted by time: of one, or of several short ones (s, n)."""

    times: Floats  # (n,) in steps, ascending
    values: Floats  # (s, n), missing ones filled
    weights: Floats  # (n,) w_i, 0 where the value is missing
    levels: Floats  # (s, n) the noise's standard deviation at weight 1
    level: Floats  # (s,) the overall one
    heavy: bool = False  # whether the noise has heavy tails
    risk_levels: Floats | None = None  # (s, n) those in whose units risks are, where they are others
    waves: bool = False  # whether some stand out in the spectrum
    by_time: bool = False  # only heads by time: Stein's estimate of those that compare values needs noise that is nearly normal

    @classmethod
    def single(cls, times: Floats, values: Floats, weights: Floats, levels: Floats, **options: Any) -> "NoisySeries":
        """One series; all arrays (n,)."""
        return cls(times, values[None], weights, levels[None], np.array([overall_level(levels)]), **options)

    @classmethod
    def joined(cls, several: Sequence["NoisySeries"]) -> "NoisySeries":
        """Several of one grid, without missing values, as a batch."""
        values, levels, level = (
            np.concatenate(column) for column in zip(*((one.values, one.levels, one.level) for one in several), strict=True)
        )
        waves = any(one.waves for one in several)
        return several[0]._replace(values=values, levels=levels, level=level, waves=waves)

    @property
    def grid(self) -> tuple[int, float] | None:
        """The points and the span of a short series with all its values and times at equal steps; None of others."""
        joins = 2 <= self.times.size <= LONGEST and native.available() and (self.weights == 1).all() and on_grid(self.times)
        return (self.times.size, float(self.times[-1] - self.times[0])) if joins else None

    def part(self, rows: slice | Indices) -> "NoisySeries":
        """Some of the points."""
        values, levels = self.values[:, rows], self.levels[:, rows]
        part = self._replace(times=self.times[rows], values=values, weights=self.weights[rows], levels=levels)
        return part if self.risk_levels is None else part._replace(risk_levels=self.risk_levels[:, rows])

    @property
    def noise(self) -> Floats:
        """σ_i of each value, infinite where it is missing (s, n)."""
        with np.errstate(divide="ignore"):
            return self.levels / np.sqrt(self.weights)

    @property
    def observed(self) -> Observations:
        """The data of the heads' risks."""
        if self.risk_levels is None:
            return Observations(self.values, self.noise)
        factors = (self.levels / self.risk_levels) ** 2
        return Observations(self.values, self.noise / np.sqrt(factors), factors)


RowWeights = Callable[[int], Floats]  # the weights of one point over all points of the head's series (n,)


class NamedHeads(NamedTuple):
    """Heads with their names, family first ("line, 8 steps"), what writes their outputs, and functions that compute a row of weights."""

    names: list[str]
    write: Callable[[HeadOutputs], None]  # into arrays (s, heads, n)
    rows: list[RowWeights]


def bank_series(series: Series, levels: Floats, causal: bool, estimate: NoiseEstimate) -> NoisySeries:
    """The series as the bank takes it, with missing values filled, and what its estimate says of its noise."""
    known = ~np.isnan(series.values)
    weights = known.astype(np.float64) if series.weights is None else np.where(known, series.weights, 0.0)
    # Without noise, a risk is the squared residual.
    levels = np.maximum(levels, NOISELESS)
    risk_levels = risk_levels_of_counts(levels, series.noise_unit) if estimate.drawn == "counts" else None
    values = filled_values(series, causal=causal)
    options = {
        "heavy": estimate.heavy,
        "waves": estimate.waves is not None,
        "by_time": estimate.drawn in ("outcomes", "amounts"),
        "risk_levels": None if risk_levels is None else risk_levels[None],
    }
    return NoisySeries.single(series.times, values, weights, levels, **options)


def comparison_units(series: NoisySeries) -> Floats:
    """The noise by which each point compares values (s, n): its own level, as the overall one times the nearest power of √2."""
    levels = series.levels[:, :1] if (series.levels == series.levels[:, :1]).all() else series.levels
    level = series.level[:, None]
    units = level * 2.0 ** (np.clip(np.round(2 * np.log2(levels / level)), -8, 8) / 2)
    return np.broadcast_to(units, series.levels.shape)


def squares_far_out(series: NoisySeries) -> Floats:
    """ε_i²/σ_i² of values that are far out under heavy tails, else 1 (s, n): what a self weight costs beyond Stein's 2σ_i²W_ii.

    The covariance of noise with a weighted mean is W_ii ε_i², and σ_i²W_ii on average if the weights do not depend on the noise. Those of
    patches do: nothing is similar to a value far out, which keeps itself, so that such heads would follow the tails at a cost that
    Stein's estimate, of normal noise, does not see. At a jump a value is near those on one side.

    >>> values = np.array([0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5.0])
    >>> squares_far_out(NoisySeries.single(np.arange(16.0), values, np.ones(16), np.ones(16), heavy=True))
    array([[ 1.,  1.,  1.,  1.,  1., 16.,  1.,  1.,  1.,  1.,  1.,  1.,  1.,
             1.,  1.,  1.]])
    """
    if not series.heavy:
        return np.ones((1, 1))
    [values], windows = series.values, series.times.size + MEDIAN_OF + 1  # others have no outliers, and are not heavy
    padded = np.pad(values, MEDIAN_OF, mode="edge")
    near = medians([padded[k : k + windows] for k in range(MEDIAN_OF)])  # of MEDIAN_OF values, before each point and after
    distance = np.minimum(np.abs(values - near[: values.size]), np.abs(values - near[-values.size :])) / series.noise
    return np.where(distance > FAR_OUT, np.minimum(distance, FURTHEST_OUT) ** 2, 1.0)


def write_value_heads(outputs: HeadOutputs, series: NoisySeries, values: Floats, leverages: Floats) -> None:
    """Outputs of heads that compare values. Their variance is approximated: Σ_j W_ij² is at most W_ii for most smoothers."""
    known = series.weights > 0
    if not known.all():
        index = np.arange(known.size)
        rows = [np.interp(index, index[known], row[known]) for row in leverages.reshape(-1, known.size)]
        leverages = np.stack(rows).reshape(leverages.shape)
        values = np.where(np.isnan(values), series.values[:, None], values)
    squares = series.levels[:, None] ** 2 / np.where(known, series.weights, 1.0)
    np.multiply(np.maximum(leverages, 0.0), squares, out=outputs.variances)
    outputs.values[...], outputs.leverages[...] = values, np.where(known, leverages, 0.0)
