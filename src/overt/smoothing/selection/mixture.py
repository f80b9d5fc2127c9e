"""Attention over heads: many smoothers of one series, mixed point by point by how well each does around there.

What a head's error is, nobody knows; but Stein's unbiased estimate of it can be computed, is noisy at a point, and steady on
the average of many neighbours. How many is a choice too, made in the same way: wide where one head is best everywhere,
narrow where the signal changes character.
"""

import math
from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.normalize import softmax

# How many neighbours a risk is averaged over, as standard deviations of a Gaussian, in points; the last also where the averages
# themselves are chosen among.
WIDTHS = (15, 60, 240, 1920)
# Risks are added up in blocks of WIDTH / FINENESS points before they are averaged, and weights lie on straight lines between.
FINENESS = 3
# Standard deviations beyond which a neighbour's risk counts for nothing.
CUT = 3
# A causal average adds up blocks that are over, of this many points, and the points of its own block one by one.
BLOCK = 12
# The temperature of one point: 4 among heads, 2 among widths, where there is less to choose from.
HEADS, AMONG_WIDTHS = 4.0, 2.0
# Points mixed at a time, so that the weights of all heads there stay in a processor's cache.
CHUNK = 2**11


class Heads(NamedTuple):
    """What heads give: y_i, ∂y_i/∂x_i, and the variance of y_i if its weights were fixed; all (heads, n)."""

    values: Floats
    slopes: Floats
    variances: Floats

    def first(self, count: int) -> "Heads":
        """Only the first so many heads."""
        return Heads(self.values[:count], self.slopes[:count], self.variances[:count])


class Observed(NamedTuple):
    """What heads are judged by: x_i, any number where it is missing, and σ_i, infinite there; both (n,)."""

    values: Floats
    noise: Floats


class Shares(NamedTuple):
    """The weight of each head in the middle of each block of `step` points (heads, blocks); between lie straight lines.

    `stiffness` (blocks,) is 2κ/T: how much a point's own risk counts in its choice.
    """

    weights: Floats
    stiffness: Floats
    step: int

    def at(self, points: Indices) -> tuple[Floats, Floats]:
        """Weights (heads, points) and stiffness (points,)."""
        place = np.clip((points - (self.step - 1) / 2) / self.step, 0, self.stiffness.size - 1)
        left = place.astype(np.intp)
        right, part = np.minimum(left + 1, self.stiffness.size - 1), place - left
        between = [table[..., left] * (1 - part) + table[..., right] * part for table in (self.weights, self.stiffness)]
        return between[0], between[1]


class PastShares(NamedTuple):
    """The weight of each head by its risk up to a point: in whole blocks before the point's own, and in this as far as the point."""

    before: Floats  # Σ_j κ_j r_j over the blocks before each (heads, blocks)
    within: Floats  # Σ_j r_j over the block up to each point (heads, n)
    counts: Floats  # Σ_j κ_j and Σ_j κ_j² over the blocks before (2, blocks)
    known: Floats  # points with a value in the block up to each (n,)
    temperature: float

    def at(self, points: Indices) -> tuple[Floats, Floats]:
        """Weights (heads, points) and stiffness (points,)."""
        sums = self.before[:, points // BLOCK] + self.within[:, points]
        coldness = self.coldness(points)
        return softmax(-(sums * coldness).T).T, 2 * coldness

    def coldness(self, points: Indices) -> Floats:
        """κ/T of a point itself (points,)."""
        total, squares = np.maximum(self.counts[:, points // BLOCK] + self.known[points], np.finfo(float).tiny)
        return total / squares / self.temperature


class Mixed(NamedTuple):
    """A mixture of heads, itself as good as one head: the same columns, (n,); and how it came about."""

    values: Floats
    slopes: Floats
    variances: Floats
    shares: tuple[Shares | PastShares, ...]  # of the heads, width by width
    among: Shares | PastShares  # of the widths

    def weights(self, points: Indices) -> Floats:
        """The weights of the heads at some points (heads, points)."""
        parts = zip(self.among.at(points)[0], self.shares, strict=True)
        return np.sum([part * share.at(points)[0] for part, share in parts], axis=0)


def mix(heads: Heads, observed: Observed, *, causal: bool = False) -> Mixed:
    """Mix heads by estimated risk, averaged over neighbourhoods of several widths; then mix these mixtures in the same way.

    At each point the weights are softmax_k(−r_k / T). r_k is Stein's unbiased estimate of head k's squared error in units of
    σ² (Stein 1981), ((x_i − y_i)/σ_i)² − 1 + 2 ∂y_i/∂x_i, averaged over neighbours. The temperature goes with the average:
    T = 4/N over N points, with which a mixture of projections is never much worse than the best of them (Leung and Barron 2006,
    theorem 5), and 2/N among widths. For weights κ_j of the neighbours, N = (Σκ)²/Σκ².

    Attention over heads compares noisy numbers, as attention over values does, and its derivative has the same form:

        ∂y_i/∂x_i = Σ_k W_k ∂y_ki/∂x_i + (2κ/T) Var_W(y_ki)/σ_i²,    κ the point's own share of its average,

    but for the residuals of its neighbours, which are taken not to move with x_i. The variance is that of Buckland, Burnham
    and Augustin (1997, equation 9), √v = Σ_k W_k √(v_k + (y_k − y)²): where heads disagree it is wide.

    Missing points count in no average. With `causal`, averages are over the point and its past, whose residuals do not move.

    >>> flat, itself = np.zeros(500), np.random.default_rng(0).normal(size=500)
    >>> heads = Heads(*(np.stack([flat, column]) for column in (itself, flat + 1, flat + 1)))
    >>> mix(heads, Observed(itself, flat + 1)).weights(np.arange(500)).mean(axis=1).round(2)
    array([1., 0.])
    """
    shares = _shares(heads, observed, WIDTHS, HEADS, causal)
    candidates = blend(heads, observed, shares)
    (among,) = _shares(candidates, observed, WIDTHS[-1:], AMONG_WIDTHS, causal)
    mixed = blend(candidates, observed, (among,))
    return Mixed(mixed.values[0], mixed.slopes[0], mixed.variances[0], shares, among)


def blend(heads: Heads, observed: Observed, shares: tuple[Shares | PastShares, ...]) -> Heads:
    """Heads mixed by each of several shares (shares, n)."""
    if not native.available():
        return Heads(*map(np.stack, zip(*(_blend(heads, observed, share) for share in shares), strict=True)))
    mixed = Heads(*(np.empty((len(shares), observed.values.size)) for _ in Heads._fields))
    columns = [np.ascontiguousarray(column) for column in (*heads, 1 / observed.noise)]
    past = [share for share in shares if isinstance(share, PastShares)]
    if past:
        cold = [share.coldness(np.arange(observed.values.size)) for share in past]
        before = [share.before for share in past]
        native.module().blend_past(*columns, before, past[0].within, cold, BLOCK, native.threads(), *mixed)
    else:
        native.module().blend(*columns, *map(list, zip(*shares, strict=True)), native.threads(), *mixed)
    return mixed


def _blend(heads: Heads, observed: Observed, shares: Shares | PastShares) -> tuple[Floats, Floats, Floats]:
    points = observed.values.size
    mixed = np.empty((3, points))
    for start in range(0, points, CHUNK):
        part = slice(start, min(start + CHUNK, points))
        weights, stiffness = shares.at(np.arange(part.start, part.stop))
        own = Heads(*(column[:, part] for column in heads))
        noise = observed.noise[part]
        mixed[0, part] = (weights * own.values).sum(axis=0)
        off = (own.values - mixed[0, part]) ** 2  # (heads, points)
        mixed[1, part] = (weights * own.slopes).sum(axis=0) + stiffness * (weights * off).sum(axis=0) / noise**2
        mixed[2, part] = (weights * np.sqrt(own.variances + off)).sum(axis=0) ** 2
    return mixed[0], mixed[1], mixed[2]


def _risks(heads: Heads, observed: Observed) -> Floats:
    """Risks in units of σ², 0 where there is nothing to judge by (heads, n)."""
    risks = heads.values - observed.values
    risks /= observed.noise
    np.square(risks, out=risks)
    risks += 2 * heads.slopes - 1
    risks[:, np.isinf(observed.noise)] = 0.0
    return risks


def _risk_sums(heads: Heads, observed: Observed, step: int, *, running: bool = False) -> Floats:
    """Risks added up in blocks (heads, blocks), or from the beginning of each point's block to the point (heads, n)."""
    if not native.available():
        risks = _risks(heads, observed)
        return _within(risks) if running else _blocks(risks, step)
    count, points = heads.values.shape
    sums = np.empty((count, points if running else -(-points // step)))
    columns = map(np.ascontiguousarray, (heads.values, heads.slopes, observed.values, 1 / observed.noise))
    native.module().risks(*columns, step, running, native.threads(), sums)
    return sums


def _shares(
    heads: Heads, observed: Observed, widths: tuple[int, ...], temperature: float, causal: bool
) -> tuple[Shares | PastShares, ...]:
    known = np.isfinite(observed.noise).astype(np.float64)[None]
    if causal:
        within, counts = _risk_sums(heads, observed, BLOCK, running=True), _within(known)
        return tuple(_of_past(within, counts, width, temperature) for width in widths)
    finest = math.gcd(*(width // FINENESS for width in widths))
    sums, counts = _risk_sums(heads, observed, finest), _blocks(known, finest)
    return tuple(_around(sums, counts, finest, width, temperature) for width in widths)


def _around(sums: Floats, counts: Floats, finest: int, width: int, temperature: float) -> Shares:
    """Weights from risks averaged over a Gaussian of the given width; they come added up in blocks of `finest` points."""
    step = width // FINENESS
    sums, counts = _blocks(sums, step // finest), _blocks(counts, step // finest)
    reach = min(CUT * FINENESS, counts.shape[1] - 1)
    distance = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (distance * (step / width)) ** 2)
    total, squares = _slide(counts, kernel)[0], _slide(counts, kernel**2)[0]
    total, squares = np.maximum(total, np.finfo(float).tiny), np.maximum(squares, np.finfo(float).tiny)
    coldness = total**2 / squares / temperature  # N / temperature = 1 / T
    weights = softmax(-(_slide(sums, kernel) * (coldness / total)).T).T
    return Shares(np.ascontiguousarray(weights), 2 * coldness / total, step)


def _of_past(within: Floats, known: Floats, width: int, temperature: float) -> PastShares:
    """The same of the point and its past; not each point, but each block grows older."""
    ends = np.minimum(np.arange(BLOCK - 1, known.shape[1] + BLOCK - 1, BLOCK), known.shape[1] - 1)
    sums, counts = within[:, ends], known[:, ends]
    reach = min(CUT * width // BLOCK, counts.shape[1] - 1)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * (BLOCK / width)) ** 2)
    kernel[reach:] = 0.0
    before = np.concatenate([_slide(counts, kernel), _slide(counts, kernel**2)])
    return PastShares(np.ascontiguousarray(_slide(sums, kernel)), within, before, known[0], temperature)


def _within(rows: Floats) -> Floats:
    """Sums from the beginning of each point's block to the point (rows, n)."""
    length = rows.shape[1]
    padded = np.pad(rows, ((0, 0), (0, -length % BLOCK))).reshape(rows.shape[0], -1, BLOCK)  # (rows, blocks, BLOCK)
    return padded.cumsum(axis=2).reshape(rows.shape[0], -1)[:, :length]  # (rows, n)


def _blocks(rows: Floats, step: int) -> Floats:
    """Sums over blocks of `step` points (rows, blocks), the last one shorter."""
    return np.add.reduceat(rows, np.arange(0, rows.shape[1], step), axis=1)


def _slide(rows: Floats, kernel: Floats) -> Floats:
    """Σ_d kernel_d · row_{b+d}, nothing beyond the ends (rows, blocks)."""
    reach, length = kernel.size // 2, rows.shape[1]
    if native.available():
        apart = np.pad(rows, ((0, 0), (0, reach)))  # so that rows, end to end, do not meet
        found = np.empty(apart.shape)
        native.module().filter(apart.reshape(-1), kernel, reach, native.threads(), found.reshape(-1))
        return found[:, :length]
    found = np.zeros_like(rows)
    for weight, shift in zip(kernel, range(-reach, reach + 1), strict=True):
        if weight:
            found[:, max(0, -shift) : length - max(0, shift)] += weight * rows[:, max(0, shift) : length + min(0, shift)]
    return found
