"""Where the level or the slope of a series changes, under noise of any tails and of unknown correlation.

Candidates are peaks of the posterior probability that a segment begins (`divisions`), and kinks between them. Every candidate is then
compared, between its neighbours, with no change and with a smooth bend: two constants or lines apart from each other (a change of level),
two lines that meet (a change of slope), one line, or a polynomial. All changes together are then compared with a smooth curve (`bends`).
The evidence of a model is its likelihood less ½ log n for a coefficient (Schwarz 1978), summed over all positions of the change:
positions, intervals and probabilities all come from one posterior distribution.
"""

import itertools
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.operators import bends
from overt.smoothing.operators.divisions import EXPECTED, LENGTH, NoiseHypotheses, divide, prediction, whitened, whitened_sums

# KINDS: kinds of noise: correlation of neighbours in the autoregressive part, share of the variance that is white, prior probability.
KINDS = (
    (0.0, 0.0, 0.5),
    *((correlation, 0.0, 0.05) for correlation in (-0.4, 0.2, 0.4, 0.6, 0.75, 0.86, 0.93, 0.97, 0.99)),
    *((correlation, 0.5, 0.0125) for correlation in (0.8, 0.9, 0.95)), (0.97, 0.7, 0.0125),
)  # fmt: skip
# ORDER: values before a point from which its noise is predicted; SHORT_ORDER: in a series of fewer than LONG points. Segments are longer.
ORDER, SHORT_ORDER, LONG = 8, 3, 100
# DEGREES: the highest degree of a bend.
DEGREES = 14
# MEDIAN: points of the running median; CLIP: the distance from it, in standard deviations, to which values further out are moved.
MEDIAN, CLIP = 15, 3.0
# CANDIDATE: the least probability of a candidate.
CANDIDATE = 0.2
# WIDTHS: half the widths of peaks, in points.
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
# POSITIONS: positions of a change that are compared; ROUNDS: rounds in which candidates are added, moved and removed.
POSITIONS, ROUNDS = 257, 4
# INTERVAL: the probability of an interval of positions; REPORTED: the least probability of a reported change.
INTERVAL, REPORTED = 0.95, 0.5
# BEND: the prior probability of a bend over the prior probability of a change.
BEND = 0.1
# FIRST: the prior odds of a first change over the odds of a further change: half of all series have no change.
FIRST = 0.05
# NEARNESS: weights of the probabilities at -2 to 2 points from a position.
NEARNESS = (0.96, 0.98, 1.0, 0.98, 0.96)
# TOGETHER: changes that are compared with a smooth curve at a time; MARGIN: further changes on either side of them.
TOGETHER, MARGIN = 12, 2
_NODES = ((-(3**0.5), 1 / 6), (0.0, 2 / 3), (3**0.5, 1 / 6))


LEVEL, LINES, SLOPE = 0, 1, 2


class LocatedChange(NamedTuple):
    """A change at a position of n sorted values: the first point after it."""

    position: int
    lower: int
    upper: int
    probability: float
    kind: int  # LEVEL, LINES of different levels, or SLOPE
    before: float  # level, or slope, on either side of it
    after: float


def drawn_in(values: Floats, relative: Floats | float = 1.0) -> tuple[Floats, float]:
    """Values (n,), at most CLIP deviations, in parts of `relative` (n,), from their running median; and the deviation from it.

    >>> values, deviation = drawn_in(np.append(np.random.default_rng(0).normal(size=99), 1e6))
    >>> round(float(values.max()), 1), round(deviation, 1)
    (2.2, 1.0)
    """
    half = min(MEDIAN // 2, max(values.size // 8, 2))
    # Beyond its ends the series is continued by its point reflection about the median of the last three values.
    first = 2 * np.median(values[:3]) - values[half:0:-1]
    last = 2 * np.median(values[-3:]) - values[-2 : -half - 2 : -1]
    padded = np.concatenate([first, values, last])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    off = (values - middle) / relative
    limit = CLIP * max(1.4826 * float(np.median(np.abs(off))), 1e-12)
    off = np.clip(off, -limit, limit)
    # The running median follows part of the noise: the divisor corrects this for normal noise, to 1%.
    return middle + relative * off, float(np.sqrt(np.mean(off**2))) / (1 - 0.2 / half**1.2)


def noise_kinds(values: Floats, relative: Floats) -> NoiseHypotheses:
    """Hypotheses of the noise of values (n,): all KINDS with three levels about the level of the unpredicted noise."""
    coefficients, variances, priors, moves = [], [], [], []
    order = ORDER if values.size >= LONG else SHORT_ORDER
    for correlation, white, prior in KINDS:
        correlations = (1 - white) * correlation ** np.arange(order + 1.0)
        correlations[0] = 1.0
        predicted, shares = prediction(correlations)
        unpredicted = whitened(values / relative, predicted[order], order)
        moved, level = drawn_in(unpredicted[order:])
        for node, weight in _NODES:
            coefficients.append(predicted)
            variances.append(shares / shares[order] * max(level * np.exp(0.83 * node / values.size**0.5), 1e-12) ** 2)
            priors.append(np.log(prior * weight))
            moves.append(np.concatenate([np.zeros(order), moved - unpredicted[order:]]))
    return NoiseHypotheses(np.array(coefficients), np.array(variances), np.array(priors), np.array(moves), relative)


def locate(times: Floats, values: Floats, relative: Floats) -> list[LocatedChange]:
    """Locate the changes of values (n,) at ascending times (n,), whose noise has these relative deviations (n,).

    >>> steps = np.repeat([0.0, 4.0], 50) + np.random.default_rng(1).normal(size=100)
    >>> [change] = locate(np.arange(100.0), steps, np.ones(100))
    >>> change.position, change.kind == LEVEL, round(change.probability, 2)
    (50, True, 1.0)
    """
    values, _ = drawn_in(values, relative)
    kinds = noise_kinds(values, relative)
    nodes = len(_NODES)
    first = divide(times, values, kinds.part(np.arange(1, len(KINDS) * nodes, nodes)))
    near = np.flatnonzero(first.kinds > 0.01)
    kinds = kinds.part((nodes * near[:, None] + np.arange(nodes)).ravel())
    division = divide(times, values, kinds)
    likely = np.argsort(-division.kinds)[:3]
    likely = likely[division.kinds[likely] > 0.1]
    compared = Compared(times, values, kinds.part(likely), division.kinds[likely] / division.kinds[likely].sum())
    return compared.settled(find_peaks(division.starts))


def find_peaks(starts: Floats) -> list[int]:
    """The positions where the probabilities (n,) that a segment begins add up to a change, sharp peaks first."""
    left, peaks, points = starts.copy(), [], np.arange(starts.size)
    for width in WIDTHS:
        least = CANDIDATE if width == WIDTHS[-1] else 0.5
        low, high = np.maximum(points - width, 0), np.minimum(points + width + 1, points.size)
        while True:
            sums = np.concatenate([[0.0], np.cumsum(left)])
            masses = sums[high] - sums[low]
            middle = int(masses.argmax())
            if masses[middle] < least:
                break
            peaks.append(int(low[middle] + left[low[middle] : high[middle]].argmax()))
            left[max(middle - 2 * width - 2, 0) : middle + 2 * width + 3] = 0.0
    return sorted(peaks)


class Evidence(NamedTuple):
    """The evidence for changes between two neighbours: log densities of each position (m,), by kind, and of no change."""

    positions: Indices
    level: Floats
    lines: Floats
    slope: Floats
    none: float
    bend: float

    @property
    def together(self) -> Floats:
        """The evidence of a change of any kind (m,)."""
        return np.logaddexp(np.logaddexp(self.level, self.lines), self.slope)

    @property
    def total(self) -> float:
        """The evidence of changes at all positions and of no change."""
        return float(np.logaddexp.reduce([*self.together, self.none, self.bend]))


class Compared:
    """A series whose changes are compared with no change, one at a time."""

    def __init__(self, times: Floats, values: Floats, noise: NoiseHypotheses, weights: Floats) -> None:
        self.times: Floats = times
        self.values: Floats = values
        self.noise: NoiseHypotheses = noise
        self.weights: Floats = weights
        self.chance: float = np.log(max(EXPECTED / values.size, 1 / LENGTH) / 3)

    def settled(self, peaks: list[int]) -> list[LocatedChange]:
        """The changes after rounds of removing, moving and adding candidates."""
        changes: list[LocatedChange] = []
        for _ in range(ROUNDS):
            changes = self._remaining(peaks)
            bounds = [0, *(change.position for change in changes), self.values.size]
            more = [self.between(*pair) for pair in itertools.pairwise(bounds)]
            added = [change.position for change in more if change is not None and change.probability >= REPORTED]
            before, peaks = peaks, sorted([change.position for change in changes] + added)
            if peaks == before:
                break
        changes = self._unlike_bends(changes)
        return [self._sized(change, changes) for change in changes if change.probability >= REPORTED]

    def _unlike_bends(self, changes: list[LocatedChange]) -> list[LocatedChange]:
        """The changes, each probability multiplied by the probability of a break, not a bend; a few at a time."""
        together, result = max(min(TOGETHER, bends.CELLS // self.values.size), 1), []
        ends = [0, *(change.position for change in changes), self.values.size]
        for first in range(0, len(changes), together):
            low, high = max(first - MARGIN, 0), min(first + together + MARGIN, len(changes))
            shares = self._sharpness(changes[low:high], ends[low], ends[high + 1])
            result += [
                change._replace(probability=change.probability * share)
                for change, share in zip(changes[first : first + together], shares[first - low :].tolist(), strict=False)
            ]
        return result

    def _sharpness(self, changes: list[LocatedChange], start: int, stop: int) -> Floats:
        """The probabilities (k,) that changes on this stretch are breaks, not bends of a smooth curve."""
        noise, order = self.noise.part(np.array([self.weights.argmax()])).within(slice(start, stop)), self.noise.shortest - 1
        times, values = self.times[start:stop], self.values[start:stop] - self.values[start:stop].mean()
        times = (times - times.mean()) / max(times.std(), 1e-12)
        past = times - times[[change.position - start for change in changes], None]
        slopes = np.array([[change.kind == SLOPE] for change in changes])
        columns, (smooth, frequencies) = np.where(slopes, np.maximum(past, 0.0), past >= 0), bends.smooth_columns(times)
        line = np.stack([np.ones(times.size), times])
        line, columns, smooth, white = (stationary(part / noise.relative, noise) for part in (line, columns, smooth, values))
        white[order:] += noise.moves[0, order:] / np.sqrt(noise.variances[0, order])
        widths = [max(0.64 * (change.upper - change.lower + 1), 1.0) for change in changes]
        chances = self.chance + np.log(widths)
        return bends.sharpness(line, columns, smooth, frequencies, white, chances, steps=not slopes.any())

    def _remaining(self, peaks: list[int]) -> list[LocatedChange]:
        """The candidates that are probable between their neighbours, moved to their most probable position."""
        changes: list[LocatedChange] = []
        for index, peak in enumerate(peaks):
            start = changes[-1].position if changes else 0
            stop = peaks[index + 1] if index + 1 < len(peaks) else self.values.size
            change = self.between(start, stop, peak)
            if change is not None and change.probability >= CANDIDATE:
                changes.append(change)
        return changes

    def between(self, start: int, stop: int, near: int | None = None) -> LocatedChange | None:
        """The most probable change between two neighbours, near a position if one is passed; None if there is no space for one."""
        shortest = self.noise.shortest
        positions = np.arange(shortest, stop - start - shortest + 1)
        if near is not None:
            positions = positions[np.abs(positions - (near - start)) <= POSITIONS // 2]
        if not positions.size:
            return None
        chances, kinds = np.zeros(positions.size), np.zeros(3)
        for kind, weight in enumerate(self.weights):
            evidence = self.evidence(start, stop, positions, kind)
            parts = np.exp(np.stack(evidence[1:4]) - evidence.total)
            chances += weight * parts.sum(axis=0)
            kinds += weight * parts.sum(axis=1)
        total = float(chances.sum())
        shares = np.cumsum(chances) / max(total, np.finfo(float).tiny)
        low, high = np.searchsorted(shares, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]).clip(max=positions.size - 1)
        best = int(np.convolve(chances, NEARNESS)[2:-2].argmax())
        position, lower, upper = (start + int(positions[index]) for index in (best, min(low, best), max(high, best)))
        return LocatedChange(position, lower, upper, total, int(kinds.argmax()), 0.0, 0.0)

    def _sized(self, change: LocatedChange, changes: list[LocatedChange]) -> LocatedChange:
        """A change with the level, or the slope, on either side of it, by least squares between its neighbours."""
        bounds = [0, *(other.position for other in changes), self.values.size]
        index = bounds.index(change.position)
        stretch = slice(bounds[index - 1], bounds[index + 1])
        times, precisions = self.times[stretch] - self.times[change.position], 1 / self.noise.relative[stretch]
        after = (times >= 0).astype(float)
        columns = {
            LEVEL: [1 - after, after],
            LINES: [1 - after, after, (1 - after) * times, after * times],
            SLOPE: [(1 - after) * times, after * times, np.ones(times.size)],
        }[change.kind]
        design = np.stack(columns, axis=1) * precisions[:, None]
        sides = np.linalg.lstsq(design, self.values[stretch] * precisions, rcond=None)[0]
        return change._replace(before=float(sides[0]), after=float(sides[1]))

    def evidence(self, start: int, stop: int, positions: Indices, kind: int) -> Evidence:
        """The evidence of one kind of noise, of a change at each position (m,) from `start`."""
        noise, order = self.noise.part(np.array([kind])).within(slice(start, stop)), self.noise.shortest - 1
        times, values = self.times[start:stop], self.values[start:stop] - self.values[start:stop].mean()
        times = (times - times.mean()) / max(times.std(), 1e-12)
        price = 0.5 * np.log(values.size)
        *line, white = stationary(np.stack([np.ones(times.size), times, values]) / noise.relative, noise)
        white[order:] += noise.moves[0, order:] / np.sqrt(noise.variances[0, order])
        none = no_change(np.stack(line), white, price)
        squares, gains = kink_gains(times, np.stack([*line, white]), positions, noise)
        sums = whitened_sums(times, values, noise)
        level, lines = np.zeros(positions.size), np.zeros(positions.size)
        for part in (sums.running[:, 0, positions] + sums.base[:, 0, :1], sums.running[:, 0, -1:] + sums.base[:, 0, positions]):
            weight, tilt, square, total, cross, value_square = part
            constant = value_square - total**2 / weight
            level -= 0.5 * constant
            lines -= 0.5 * (constant - (cross - tilt * total / weight) ** 2 / np.maximum(square - tilt**2 / weight, 1e-12))
        chance = self.chance + (np.log(FIRST) if values.size == self.values.size else 0.0)
        restart, slope = chance - sums.log_scales[0, 0], chance - 0.5 * (squares - gains) - 3 * price
        evidence = Evidence(positions, level - 2 * price + restart, lines - 4 * price + restart, slope, none, -np.inf)
        if np.exp(evidence.together - evidence.total).sum() < CANDIDATE:
            return evidence
        bases = stationary(
            np.polynomial.legendre.legvander(scaled_to_one(times), min(DEGREES, values.size // 4)).T / noise.relative, noise
        )
        bend = min(BEND * 3 * np.exp(self.chance) * values.size, 0.5)
        return evidence._replace(bend=no_change(bases, white, price) + np.log(bend))


def no_change(basis: Floats, white: Floats, price: float) -> float:
    """The log evidence of the best count of functions of a basis (k, n), the first ones, for values (n,)."""
    orthogonal, _ = np.linalg.qr(basis.T)
    squares = white @ white - np.cumsum((orthogonal.T @ white) ** 2)
    return float(np.max(-0.5 * squares - price * np.arange(1, basis.shape[0] + 1)))


def scaled_to_one(times: Floats) -> Floats:
    """Times (n,) from -1 to 1."""
    return (2 * times - times[0] - times[-1]) / max(times[-1] - times[0], 1e-12)


def kink_gains(times: Floats, white: Floats, positions: Indices, noise: NoiseHypotheses) -> tuple[float, Floats]:
    """The sum of squares about a line, and by how much it falls if a line may change its slope at each position (m,).

    times (n,); white (3, n) are the whitened 1, time and value. The whitened hinge max(t − t_s, 0) is a sum of the whitened time and 1
    after the first points from the position on, which are computed separately.
    """
    order, (one, time, value) = noise.coefficients.shape[2], white
    filters = np.concatenate([[1.0], -noise.coefficients[0, order]]) / np.sqrt(noise.variances[0, order])
    knots, after = times[positions], positions + order
    tails = np.stack([time * time, time * one, one * one, time * value, one * value])
    sums = np.concatenate([np.cumsum(tails[:, ::-1], axis=1)[:, ::-1], np.zeros((5, 1))], axis=1)[
        :, np.minimum(after, times.size)
    ]
    heads = np.zeros((order, positions.size))
    for offset in range(order):
        for lag in range(offset + 1):
            points = np.minimum(positions + offset - lag, times.size - 1)
            heads[offset] += filters[lag] * (times[points] - knots) / noise.relative[points]
    first = white[:, np.minimum(positions + np.arange(order)[:, None], times.size - 1)]  # (3, order, m)
    with_one, with_time, with_value = (first * heads).sum(axis=1)
    with_one, with_time = with_one + sums[1] - knots * sums[2], with_time + sums[0] - knots * sums[1]
    with_value = with_value + sums[3] - knots * sums[4]
    square = (heads**2).sum(axis=0) + sums[0] - 2 * knots * sums[1] + knots**2 * sums[2]
    gram = white[:2] @ white[:2].T
    solved = np.linalg.solve(gram, np.stack([with_one, with_time]))
    onto = white[:2] @ value
    left = square - with_one * solved[0] - with_time * solved[1]
    gains = np.divide((with_value - onto @ solved) ** 2, left, out=np.zeros(left.shape), where=left > 1e-9 * square)
    return float(value @ value - onto @ np.linalg.solve(gram, onto)), gains


def stationary(columns: Floats, noise: NoiseHypotheses) -> Floats:
    """The errors of predicting columns (…, n) from previous values, in standard deviations of the first kind of noise."""
    order = noise.coefficients.shape[2]
    result = whitened(columns, noise.coefficients[0, order], order)
    for before in range(order):
        first = columns[..., : before + 1]
        result[..., before] = whitened(first, noise.coefficients[0, before], before)[..., before] / np.sqrt(
            noise.variances[0, before]
        )
    result[..., order:] /= np.sqrt(noise.variances[0, order])
    return result
