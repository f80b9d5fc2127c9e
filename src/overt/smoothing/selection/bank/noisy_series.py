"""The series that the heads of the bank smooth, and the functions that all heads that compare values share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt import native
from overt.smoothing.data.series import NOISELESS, Floats, Indices, Series, filled_values, overall_level
from overt.smoothing.heads.local.regression import on_grid
from overt.smoothing.heads.local.short_grid import LONGEST
from overt.smoothing.noise.counts import risk_levels_of_counts
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations
from overt.smoothing.selection.medians import medians
from overt.smoothing.selection.noise import NoiseEstimate

# FAR_OUT, MEDIAN_OF: a value is far out if it differs by more than FAR_OUT σ from the medians of MEDIAN_OF values before and after it.
FAR_OUT, MEDIAN_OF = 2.5, 5
# FURTHEST_OUT: the cap of this distance, in σ: values further out are outliers, which were removed before, or signal.
FURTHEST_OUT = 6.0


class NoisySeries(NamedTuple):
    """One series, or several short ones at the same times, sorted by time (s, n)."""

    times: Floats  # (n,) in steps, ascending
    values: Floats  # (s, n), missing ones filled
    weights: Floats  # (s, n) w_i, 0 if the value is missing
    levels: Floats  # (s, n) the noise's standard deviation at weight 1
    level: Floats  # (s,) the overall level
    heavy: bool = False  # whether the noise has heavy tails
    risk_levels: Floats | None = None  # (s, n) the units of the risks, if other than `levels`
    waves: bool = False  # whether waves stand out in the spectrum
    by_time: bool = False  # only heads by time: for heads that compare values, Stein's estimate needs nearly normal noise

    @classmethod
    def single(cls, times: Floats, values: Floats, weights: Floats, levels: Floats, **options: Any) -> "NoisySeries":
        """One series; all arrays (n,)."""
        return cls(times, values[None], weights[None], levels[None], np.array([overall_level(levels)]), **options)

    @classmethod
    def joined(cls, several: Sequence["NoisySeries"]) -> "NoisySeries":
        """Several series whose `grid` is equal, as one batch."""
        names = ("values", "weights", "levels", "level")
        columns = {name: np.concatenate([getattr(one, name) for one in several]) for name in names}
        return several[0]._replace(**columns, waves=any(one.waves for one in several))

    @property
    def grid(self) -> tuple[Any, ...] | None:
        """The properties that short series of one batch share; None if the series cannot be part of a batch."""
        joins = 2 <= self.times.size <= LONGEST and native.available() and self.risk_levels is None and on_grid(self.times)
        if not joins or coarser_grid(self) is not None:
            return None
        return self.times.size, float(self.times[-1] - self.times[0]), bool((self.weights == 1).all()), self.heavy, self.by_time

    def part(self, rows: slice | Indices) -> "NoisySeries":
        """Some of the points."""
        columns = {name: getattr(self, name)[:, rows] for name in ("values", "weights", "levels")}
        part = self._replace(times=self.times[rows], **columns)
        return part if self.risk_levels is None else part._replace(risk_levels=self.risk_levels[:, rows])

    @property
    def noise(self) -> Floats:
        """σ_i of each value, infinite if it is missing (s, n)."""
        with np.errstate(divide="ignore"):
            return self.levels / np.sqrt(self.weights)

    @property
    def observed(self) -> Observations:
        """The data of the heads' risks."""
        if self.risk_levels is None:
            return Observations(self.values, self.noise)
        factors = (self.levels / self.risk_levels) ** 2
        return Observations(self.values, self.noise / np.sqrt(factors), factors)


def coarser_grid(series: NoisySeries) -> Indices | None:
    """The rows of the coarsest grid with all known points, such as daily values among hours; None if that is the grid of all points.

    >>> coarser_grid(NoisySeries.single(np.arange(8.0), np.zeros(8), np.array([0, 1, 0, 1, 0, 0, 0, 1.0]), np.ones(8)))
    array([1, 3, 5, 7])
    """
    if series.weights.all():
        return None
    known = np.flatnonzero(series.weights.any(axis=0))
    every = int(np.gcd.reduce(np.diff(known)))  # 0 for a single known point
    return np.arange(known[0], known[-1] + 1, every) if every > 1 and on_grid(series.times) else None


RowWeights = Callable[[int], Floats]  # the weights of one point over all points of the head's series (n,)


class NamedHeads(NamedTuple):
    """Heads: their names, family first ("line, 8 steps"), a function that writes all outputs, and one for each that computes a row."""

    names: list[str]
    write: Callable[[HeadOutputs], None]  # into arrays (s, heads, n)
    rows: list[RowWeights]


def bank_series(series: Series, levels: Floats, causal: bool, estimate: NoiseEstimate) -> NoisySeries:
    """The input of the bank: the series with missing values filled, and its noise by the estimate."""
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
    """The unit in which points compare values (s, n): their noise level, rounded to the overall level times a power of √2."""
    levels = series.levels[:, :1] if (series.levels == series.levels[:, :1]).all() else series.levels
    level = series.level[:, None]
    units = level * 2.0 ** (np.clip(np.round(2 * np.log2(levels / level)), -8, 8) / 2)
    return np.broadcast_to(units, series.levels.shape)


def squares_far_out(series: NoisySeries) -> Floats:
    """The factor of a self weight's cost, Stein's 2σ_i²W_ii (s, n): ε_i²/σ_i² for values far out under heavy tails, else 1.

    The covariance of noise with a weighted mean is W_ii ε_i², and σ_i²W_ii on average if the weights do not depend on the noise. The
    weights of patches do: no patch is similar to a value far out, so the head keeps that value, at a cost that Stein's estimate for
    normal noise does not see. At a jump a value is not far out: it is near the values on one side.

    >>> values = np.array([0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5.0])
    >>> squares_far_out(NoisySeries.single(np.arange(16.0), values, np.ones(16), np.ones(16), heavy=True))
    array([[ 1.,  1.,  1.,  1.,  1., 16.,  1.,  1.,  1.,  1.,  1.,  1.,  1.,
             1.,  1.,  1.]])
    """
    if not series.heavy:
        return np.ones((1, 1))
    count, windows = series.times.size, series.times.size + MEDIAN_OF + 1
    padded = np.pad(series.values, ((0, 0), (MEDIAN_OF, MEDIAN_OF)), mode="edge")
    # The medians of MEDIAN_OF values before and after each point.
    near = np.stack([medians([row[k : k + windows] for k in range(MEDIAN_OF)]) for row in padded])
    distance = np.minimum(np.abs(series.values - near[:, :count]), np.abs(series.values - near[:, -count:])) / series.noise
    return np.where(distance > FAR_OUT, np.minimum(distance, FURTHEST_OUT) ** 2, 1.0)


def write_value_heads(outputs: HeadOutputs, series: NoisySeries, values: Floats, leverages: Floats) -> None:
    """Write the outputs of heads that compare values; Σ_j W_ij² of the variance is replaced by W_ii, its bound for most smoothers."""
    known = series.weights > 0
    if not known.all():
        values = np.where(np.isnan(values), series.values[:, None], values)
        leverages = np.stack([interpolated(rows, is_known) for rows, is_known in zip(leverages, known, strict=True)])
    squares = series.levels**2 / np.where(known, series.weights, 1.0)
    np.multiply(np.maximum(leverages, 0.0), squares[:, None], out=outputs.variances)
    outputs.values[...], outputs.leverages[...] = values, np.where(known[:, None], leverages, 0.0)


def interpolated(rows: Floats, known: NDArray[np.bool_]) -> Floats:
    """Rows (heads, n), interpolated linearly between the known points (n,).

    >>> interpolated(np.array([[9.0, 1.0, 9.0, 9.0, 4.0]]), np.array([False, True, False, False, True]))
    array([[1., 1., 2., 3., 4.]])
    """
    index, missing = np.flatnonzero(known), np.flatnonzero(~known)
    after = np.searchsorted(index, missing)
    left, right = index[np.maximum(after - 1, 0)], index[np.minimum(after, index.size - 1)]
    share = (missing - left) / np.maximum(right - left, 1)
    filled = rows.copy()
    filled[:, missing] = rows[:, left] * (1 - share) + rows[:, right] * share
    return filled
