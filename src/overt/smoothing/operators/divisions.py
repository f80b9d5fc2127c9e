"""All ways to divide a series into constant and straight segments, under noise that may be correlated: where segments begin.

The probability of a segment is the density of its values with their level, and their slope, integrated out (Barry and Hartigan 1992),
summed over all divisions without sampling (Fearnhead 2005). Within a segment the noise is autoregressive, x_i − μ_i = Σ_k φ_k (x_{i−k} −
μ_{i−k}) + e_i, and starts again in its stationary law at each change, so that segments stay independent. All φ and σ of a grid are computed
at once, and weighted by their evidence.
"""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices

# EXPECTED: expected changes of a short series; LENGTH: expected points of a segment of a long series.
EXPECTED, LENGTH = 4.0, 500
# MOST, RECENT, ROOM: of ROOM possible starts of the last segment MOST remain: the last RECENT, and the most probable others.
MOST, RECENT, ROOM = 40, 16, 56
# PART: points of a part of a long series; MARGIN: points on either side that are divided with it.
PART, MARGIN = 4096, 512
# NEGLIGIBLE: hypotheses with a smaller probability are dropped.
NEGLIGIBLE = 1e-3
_TINY, _NEVER = 1e-100, -1e300


class NoiseHypotheses(NamedTuple):
    """Autoregressive noise of H kinds: coefficients for each count of known values before a point, variances, and prior probabilities."""

    coefficients: Floats  # (H, p + 1, p), p ≥ 2: row k predicts from k values, the nearest first
    variances: Floats  # (H, p + 1) of the prediction errors, in the unit of the values
    log_priors: Floats  # (H,)
    moves: Floats  # (H, n) the moves of values far from their prediction by p values
    relative: Floats  # (n,) the deviation of each point's noise, over the hypotheses' deviation

    @property
    def shortest(self) -> int:
        """The points of the shortest segment, p + 1: the noise of its last point is predicted from all others."""
        return self.coefficients.shape[1]

    def part(self, which: Indices) -> "NoiseHypotheses":
        """Some of the kinds."""
        columns = (column[which] for column in (self.coefficients, self.variances, self.log_priors, self.moves))
        return NoiseHypotheses(*columns, relative=self.relative)  # type: ignore[call-arg]

    def within(self, stretch: slice) -> "NoiseHypotheses":
        """The kinds on a stretch of the series."""
        return self._replace(moves=self.moves[:, stretch], relative=self.relative[stretch])


def prediction(autocorrelations: Floats) -> tuple[Floats, Floats]:
    """The coefficients (p + 1, p) and error variances (p + 1,) of predictions from 0 to p previous values (Levinson 1946, Durbin 1960).

    autocorrelations (p + 1,); the first is 1.

    >>> prediction(np.array([1.0, 0.5, 0.25]))[0].tolist()
    [[0.0, 0.0], [0.5, 0.0], [0.5, 0.0]]
    """
    order = autocorrelations.size - 1
    coefficients, variances = np.zeros((order + 1, order)), np.ones(order + 1)
    for count in range(1, order + 1):
        before = coefficients[count - 1, : count - 1]
        reflection = (autocorrelations[count] - before @ autocorrelations[count - 1 : 0 : -1]) / variances[count - 1]
        coefficients[count, : count - 1] = before - reflection * before[::-1]
        coefficients[count, count - 1] = reflection
        variances[count] = variances[count - 1] * (1 - reflection**2)
    return coefficients, np.maximum(variances, 1e-6)


def whitened(columns: Floats, coefficients: Floats, count: int) -> Floats:
    """The errors of predicting columns (…, n) from `count` previous values; the first `count` points are 0."""
    result = columns.copy()
    for lag in range(1, count + 1):
        result[..., lag:] -= coefficients[lag - 1] * columns[..., :-lag]
    result[..., :count] = 0.0
    return result


class Divisions(NamedTuple):
    """The probability that a segment begins at each point (n,), and of each kind of noise (H,)."""

    starts: Floats
    kinds: Floats
    log_evidence: float


def divide(times: Floats, values: Floats, noise: NoiseHypotheses) -> Divisions:
    """The probability that a segment begins at each of n points, over all divisions and kinds of noise. Times ascend.

    >>> steps = np.repeat([0.0, 5.0], 50) + np.random.default_rng(1).normal(size=100)
    >>> white = NoiseHypotheses(np.zeros((1, 4, 3)), np.ones((1, 4)), np.zeros(1), np.zeros((1, 100)), np.ones(100))
    >>> divide(np.arange(100.0), steps, white).starts[45:55].round(1).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    count = values.size
    bounds = [(start, min(start + PART, count)) for start in range(0, count, PART)]
    if len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] < noise.shortest:
        bounds[-2:] = [(bounds[-2][0], count)]
    evidence, parts = noise.log_priors.copy(), []
    for start, stop in bounds:
        first, last = max(start - MARGIN, 0), min(stop + MARGIN, count)
        part_evidence, starts = _divide_part(times[first:last], values[first:last], noise.within(slice(first, last)))
        evidence += part_evidence
        parts.append(starts[:, start - first : stop - first])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    return Divisions(weights @ np.concatenate(parts, axis=1), weights, float(evidence.max()))


class WhitenedSums(NamedTuple):
    """Running sums of weighted products of (1, time, value), and the addition of a segment that begins at a point; (6, H, n + 1)."""

    running: Floats
    base: Floats
    log_scales: Floats  # (H, 2) for a segment's first points, and for every other point


def whitened_sums(times: Floats, values: Floats, noise: NoiseHypotheses) -> WhitenedSums:
    """The sums for each kind of noise: `base` replaces the terms of a segment's first p points, which fewer values predict."""
    kinds, order, count = noise.log_priors.size, noise.coefficients.shape[2], values.size
    columns = np.stack([np.ones(count), times, values]) / noise.relative
    running, base = np.zeros((kinds, 6, count + 1)), np.zeros((kinds, 6, count + 1))
    for kind in range(kinds):
        white = [whitened(columns, noise.coefficients[kind, before], before) for before in range(order + 1)]
        white[order][2, order:] += noise.moves[kind, order:]
        products = [_products(part) / variance for part, variance in zip(white, noise.variances[kind], strict=True)]
        np.cumsum(products[order], axis=1, out=running[kind, :, 1:])
        stop = count - order + 1
        base[kind, :, :stop] = -running[kind, :, order:]
        for before in range(order):
            base[kind, :, : count - before] += products[before][:, before:]
    logs = 0.5 * np.log(noise.variances)
    return WhitenedSums(
        running.transpose(1, 0, 2),
        base.transpose(1, 0, 2),
        np.stack([logs[:, :order].sum(axis=1) - order * logs[:, order], logs[:, order]], axis=1),
    )


def _products(columns: Floats) -> Floats:
    one, time, value = columns
    return np.stack([one * one, one * time, time * time, one * value, time * value, value * value])


def _divide_part(times: Floats, values: Floats, noise: NoiseHypotheses) -> tuple[Floats, Floats]:
    """The log evidence of each kind of noise (H,), and the probabilities (H, n) that a segment begins at each point.

    As many stops as the shortest segment has points do not depend on each other, and are computed at once.
    """
    count, kinds, shortest = values.size, noise.log_priors.size, noise.shortest
    times = (times - times.mean()) / max(float(times.std()), _TINY)
    values = values - values.mean()
    chance = min(max(EXPECTED / count, 1 / LENGTH), 0.2)
    change, stay = np.log(chance), np.log1p(-chance)
    sums, prior = whitened_sums(times, values, noise), max(float(values.var()), _TINY)
    candidates = _Candidates.first(kinds, sums)
    stored: list[tuple[Indices, Indices, Floats]] = []
    totals, single = np.full((kinds, count + 1), _NEVER), np.zeros(kinds)
    for before in range(0, count, shortest):
        stops = np.arange(before + 1, min(before + shortest, count) + 1)
        logs = candidates.log_masses(stops, sums, prior, stay, shortest)  # (stops, H, c)
        top = logs.max(axis=2, keepdims=True)
        shares = np.exp(logs - top)
        total = shares.sum(axis=2, keepdims=True)
        shares /= total
        totals[:, stops] = np.where(stops >= shortest, (top + np.log(total))[..., 0].T, _NEVER)
        if stops[-1] == count:  # a single segment has half of the prior probability
            single = np.where(candidates.starts[:, 0] == 0, logs[-1, :, 0] - (count - 1) * stay, _NEVER)
        stored.append((stops, candidates.starts, shares.astype(np.float32)))
        candidates = candidates.without_hopeless(shares[-1]).with_starts(stops, totals[:, stops] + change, sums)
    evidence = np.logaddexp(totals[:, count], single)
    return evidence - np.log(2), _starts(stored, count, kinds) * np.exp(totals[:, count] - evidence)[:, None]


def _starts(stored: list[tuple[Indices, Indices, Floats]], count: int, kinds: int) -> Floats:
    """The probability (H, n) that a segment begins at each point, from the probabilities if a segment ends before each stop."""
    ends = np.zeros((kinds, count + 1))
    ends[:, count] = 1.0
    rows = np.arange(kinds)[:, None]
    for stops, starts, shares in stored[::-1]:
        ends[rows, starts] += np.einsum("hs,shc->hc", ends[:, stops], shares)
    ends[:, 0] = 0.0
    return ends[:, :count]


class _Candidates(NamedTuple):
    """The first points of the last segment, for each kind of noise: (H, c)."""

    starts: Indices
    mass: Floats  # log mass of all divisions before it
    base: Floats  # (6, H, c) the initial sums of a segment

    @classmethod
    def first(cls, kinds: int, sums: WhitenedSums) -> "_Candidates":
        """The candidates of a series' beginning: only its first point."""
        none = cls(np.zeros((kinds, 0), dtype=np.intp), np.zeros((kinds, 0)), np.zeros((6, kinds, 0)))
        return none.with_starts(np.zeros(1, dtype=np.intp), np.zeros((kinds, 1)), sums)

    def with_starts(self, starts: Indices, mass: Floats, sums: WhitenedSums) -> "_Candidates":
        """These candidates and more first points (s,), with the log mass (H, s) of all divisions before each."""
        indices = np.broadcast_to(starts, mass.shape)
        return _Candidates(
            np.concatenate([self.starts, indices], axis=1),
            np.concatenate([self.mass, mass - sums.log_scales[:, :1]], axis=1),
            np.concatenate([self.base, sums.base[:, :, starts]], axis=2),
        )

    def log_masses(self, stops: Indices, sums: WhitenedSums, prior: float, stay: float, shortest: int) -> Floats:
        """The log mass (stops, H, c) of divisions whose last segment is from each first point to each stop."""
        running = sums.running[:, :, stops].transpose(0, 2, 1)[..., None]
        weight, tilt, square, total, cross, squares = self.base[:, None] + running
        weight = np.maximum(weight, _TINY)
        mean = total / weight
        spread = np.maximum(square - tilt * tilt / weight, 1e-12 * weight)
        slope = cross - tilt * mean
        grown = 1 + prior * weight
        shrink, root = 0.5 - 0.5 / grown, 0.5 * np.log(grown)
        with np.errstate(over="ignore"):  # for values of nearly no weight
            gain = np.minimum(slope * slope / spread, -_NEVER) * shrink - root
        level = total * mean * shrink - 0.5 * squares - root
        straight = np.maximum(gain, 0.0) + np.log1p(np.exp(-np.abs(gain)))
        lengths = stops[:, None, None] - self.starts
        logs = self.mass + level + straight + lengths * (stay - sums.log_scales[:, 1:]) - stay - np.log(2)
        return np.where(lengths >= shortest, logs, _NEVER)

    def without_hopeless(self, shares: Floats) -> "_Candidates":
        """The last candidates and the most probable others, if there are too many."""
        count = self.starts.shape[1]
        if count < ROOM:
            return self
        best = np.sort(np.argpartition(-shares[:, :-RECENT], MOST - RECENT - 1, axis=1)[:, : MOST - RECENT], axis=1)
        rows = np.concatenate([best, np.broadcast_to(np.arange(count - RECENT, count), (best.shape[0], RECENT))], axis=1)
        base = np.take_along_axis(self.base, np.broadcast_to(rows, (6, *rows.shape)), axis=2)
        return _Candidates(np.take_along_axis(self.starts, rows, axis=1), np.take_along_axis(self.mass, rows, axis=1), base)
