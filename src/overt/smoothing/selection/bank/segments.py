"""A head that attends within segments: the mean over all ways to divide a series into constant and straight pieces.

A point attends to the points that are likely in its segment: the weight of j for i is the mean, over all segments with both, of the
weight of j in the segment's mean or line. Segments are weighted by their probability (product partitions: Barry and Hartigan 1992;
summed without sampling: Fearnhead 2005). A change follows every point with the same probability; segments are constant or straight with
equal odds; their height, and their slope times the deviation of their times, are normal with the variance of the series.

The head is a posterior mean, so its derivative ∂f_i/∂x_i, the leverage in Stein's estimate, is exactly the posterior variance over
σ_i²: for normal noise f = x + σ² ∂ log p(x) (Tweedie's formula, in Efron 2011).
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.selection.bank.noisy_series import NamedHeads, NoisySeries, RowWeights, squares_far_out, write_value_heads
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, as_batch
from overt.smoothing.selection.bank.wiener import in_gaps

# LENGTH: the mean length of a segment in the prior, in points.
LENGTH = 128
NAME = f"segments, {LENGTH} points"
# SEARCH: factor of the cost of a degree of freedom, since noise moves the ends of segments. 1 doubles the error of white noise in one of
# 100 series, 1.5 raises the error of steps by a fifth (development half of signals/kinds.py, and signals/development.py, drawn again).
SEARCH = 1.3
# MOST, RECENT, ROOM, HOPELESS: of ROOM possible starts of the last segment MOST remain: the last RECENT, and the likeliest others with a
# probability of HOPELESS or more. More starts change the curve by about a hundredth of the noise where nothing is sure, else by less.
MOST, RECENT, ROOM, HOPELESS = 40, 16, 56, 1e-12
# NEGLIGIBLE: segments of less probability are dropped. FLAT: a segment whose times have no larger variance has no slope.
NEGLIGIBLE, FLAT = 1e-6, 1e-6
_TINY = 1e-100


class Prior(NamedTuple):
    """The prior of a segment: normal height, about `center`, and slope, both of this variance."""

    variance: float
    center: float


def fit_prior(values: Floats, precisions: Floats) -> Prior:
    """The variance, at least the noise's, and the mean of a series (n,), with precisions 1/σ_i² that are 0 for missing values."""
    total = max(float(precisions.sum()), _TINY)
    center = float(precisions @ values) / total
    variance = float(precisions @ (values - center) ** 2) / total
    return Prior(max(variance, np.count_nonzero(precisions) / total, _TINY), center)


class Segments(NamedTuple):
    """The head's outputs on the whole series; `part` cuts out one stretch."""

    values: Floats  # (s, n)
    leverages: Floats  # (s, n)
    row: RowWeights  # the weights of a point of the whole series

    def part(self, stretch: slice) -> "Segments":
        """The head on a stretch."""
        return Segments(self.values[:, stretch], self.leverages[:, stretch], self.row)

    def heads(self, series: NoisySeries, pilot: Floats) -> NamedHeads:
        """The head in the form of the bank; in a gap its values are the pilot's (s, n)."""

        def write(outputs: HeadOutputs) -> None:
            values = np.where(in_gaps(series.weights), pilot, self.values)
            write_value_heads(outputs, series, values[:, None], self.leverages[:, None])

        return NamedHeads([NAME], write, [self.row])


def segment_heads(series: NoisySeries) -> Segments:
    """The head on series with white noise."""
    columns = np.broadcast_to(series.times, series.values.shape), series.values, series.weights / series.levels**2
    values, leverages = attend_segments(*columns)
    return Segments(values, leverages * squares_far_out(series), partial(segment_row, *(column[0] for column in columns)))


def attend_segments(times: Floats, values: Floats, precisions: Floats) -> tuple[Floats, Floats]:
    """Values and leverages of one series or of several; all (…, n), with times ascending. Leverages include the factor `SEARCH`.

    >>> steps = np.repeat([0.0, 5.0], 100)
    >>> noisy = steps + np.random.default_rng(0).normal(size=200)
    >>> values, leverages = attend_segments(np.arange(200.0), noisy, np.ones(200))
    >>> round(float(np.std(values - steps)), 2), round(float(leverages.mean()), 2)
    (0.07, 0.01)
    """
    means, variances = posterior(times, values, precisions)
    return means, SEARCH * variances * precisions


def posterior(times: Floats, values: Floats, precisions: Floats) -> tuple[Floats, Floats]:
    """Means and variances of the curve given the values; all (…, n)."""
    columns = [*map(np.ascontiguousarray, as_batch(2, times, values, precisions))]
    priors = [fit_prior(*pair) for pair in zip(columns[1], columns[2], strict=True)]
    results = np.empty(columns[1].shape), np.empty(columns[1].shape)
    if native.available():
        by_field = np.array(priors).T.copy()
        native.module().segments(*columns, 1 / LENGTH, *by_field, native.threads(), *results)
    else:
        for index, prior in enumerate(priors):
            divided = _Division(columns[0][index], columns[1][index], columns[2][index], prior)
            results[0][index], results[1][index] = divided.outputs()
    return results[0].reshape(values.shape), results[1].reshape(values.shape)


def segment_row(times: Floats, values: Floats, precisions: Floats, row: int) -> Floats:
    """The weights of one point of one series over all points (n,)."""
    prior = fit_prior(values, precisions)
    if native.available():
        weights = np.empty(values.size)
        native.module().segments_row(times, values, precisions, 1 / LENGTH, *prior, row, weights)
    else:
        weights = _Division(times, values, precisions, prior).row(row)
    # The weight that short segments leave to the prior goes to all points: its center is their mean.
    return weights + (1 - weights.sum()) * precisions / max(float(precisions.sum()), _TINY)


class _Moments(NamedTuple):
    """Moments of the points of segments: weight, mean time, sum of wx, and the sums of squares about the means."""

    weight: Floats
    time: Floats
    total: Floats
    spread: Floats
    slope: Floats
    squares: Floats


class _Division:
    """The segments of one series without the native core."""

    def __init__(self, times: Floats, values: Floats, precisions: Floats, prior: Prior) -> None:
        self.times, self.precisions, self.prior = times - times[times.size // 2], precisions, prior
        centered = values - prior.center
        columns = (1.0, self.times, centered, self.times**2, self.times * centered, centered**2)
        # In long double, so that a difference is as exact as the sum over the points between.
        self.sums = np.zeros((len(columns), values.size + 1), dtype=np.longdouble)
        np.cumsum([precisions * column for column in columns], axis=1, out=self.sums[:, 1:], dtype=np.longdouble)
        self.segments = self._segments()  # for each stop: starts, and probabilities of constant and of straight segments

    def _moments(self, starts: Indices, stop: int) -> _Moments:
        sums = (self.sums[:, stop, None] - self.sums[:, starts]).astype(np.float64)
        weight = np.maximum(sums[0], _TINY)
        time = sums[1] / weight
        spread = np.maximum(sums[3] - sums[1] * time, FLAT * weight)
        slope, squares = sums[4] - sums[1] * sums[2] / weight, np.maximum(sums[5] - sums[2] ** 2 / weight, 0.0)
        return _Moments(weight, time, sums[2], spread, slope, squares)

    def _segments(self) -> list[tuple[Indices, Floats, Floats]]:
        stay, change = np.log1p(-1 / LENGTH), np.log(1 / LENGTH)
        conditional: list[tuple[Indices, Floats, Floats]] = []
        starts, mass = np.array([0]), np.array([-stay])
        for stop in range(1, self.times.size + 1):
            moments = self._moments(starts, stop)
            shrink = 1 / (1 + moments.weight * self.prior.variance)
            constant = mass - 0.5 * (moments.squares + moments.total**2 * shrink / moments.weight)
            straight = constant + 0.5 * moments.slope**2 * moments.weight * self.prior.variance * shrink / moments.spread
            straight[(stop - starts < 3) | (moments.spread <= 1.5 * FLAT * moments.weight)] = -np.inf
            top = max(constant.max(), straight.max())
            constant, straight = 0.5 * np.sqrt(shrink) * np.exp(constant - top), 0.5 * shrink * np.exp(straight - top)
            total = float((constant + straight).sum())
            constant, straight = constant / total, straight / total
            conditional.append((starts, constant, straight))
            if starts.size == ROOM:
                weight = (constant + straight)[:-RECENT]
                best = np.argsort(-weight, kind="stable")[: MOST - RECENT]
                best = np.append(np.sort(best[weight[best] >= HOPELESS]), np.arange(ROOM - RECENT, ROOM))
                starts, mass = starts[best], mass[best]
            starts = np.append(starts, stop)
            mass = np.append(mass, top + np.log(total) + stop * stay + change - (stop + 1) * stay)
        return self._unconditional(conditional)

    def _unconditional(self, conditional: list[tuple[Indices, Floats, Floats]]) -> list[tuple[Indices, Floats, Floats]]:
        """The probabilities of segments, from their probabilities on condition that a segment ends before the stop."""
        ends = np.zeros(self.times.size + 1)
        ends[-1] = 1.0
        segments = []
        for stop in range(self.times.size, 0, -1):
            starts, constant, straight = conditional[stop - 1]
            constant, straight = ends[stop] * constant, ends[stop] * straight
            ends[starts] += constant + straight
            likely = constant + straight >= NEGLIGIBLE
            segments.append((starts[likely], constant[likely], straight[likely]))
        return segments[::-1]

    def outputs(self) -> tuple[Floats, Floats]:
        """Posterior means and variances (n,)."""
        sums = np.zeros((3, self.times.size))  # of probabilities, and of probability times the curve and its square
        for stop, (starts, constant, straight) in enumerate(self.segments, 1):
            moments = self._moments(starts, stop)
            variance = self.prior.variance / (1 + moments.weight * self.prior.variance)
            level, slope_factor = variance * moments.total, variance * moments.weight / moments.spread
            for index, start in enumerate(starts.tolist()):
                times = self.times[start:stop] - moments.time[index]
                line = level[index] + slope_factor[index] * moments.slope[index] * times
                both = constant[index] + straight[index]
                sums[0, start:stop] += both
                sums[1, start:stop] += constant[index] * level[index] + straight[index] * line
                squares = constant[index] * level[index] ** 2 + straight[index] * (line**2 + slope_factor[index] * times**2)
                sums[2, start:stop] += both * variance[index] + squares
        means = sums[1] / sums[0]
        return self.prior.center + means, np.maximum(sums[2] / sums[0] - means**2, 0.0)

    def row(self, row: int) -> Floats:
        """The weights of one point, without its weight on the prior's center."""
        weights, mass = np.zeros(self.times.size), 0.0
        for stop, (starts, constant, straight) in enumerate(self.segments[row:], row + 1):
            moments = self._moments(starts, stop)
            variance = self.prior.variance / (1 + moments.weight * self.prior.variance)
            for index in np.flatnonzero(starts <= row):
                part, both = slice(starts[index], stop), constant[index] + straight[index]
                times, at = self.times[part] - moments.time[index], self.times[row] - moments.time[index]
                tilt = straight[index] * moments.weight[index] / moments.spread[index] * at * times
                weights[part] += self.precisions[part] * variance[index] * (both + tilt)
                mass += both
        return weights / mass
