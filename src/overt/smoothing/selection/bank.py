"""The default smoother: a bank of heads over one series, mixed point by point by estimated risk, in several looks.

At the first look heads compare the noisy series with itself: by time, with lines and parabolas of many bandwidths, with means
and lines of one side for jumps; and by patches. Their mixture is a pilot. At the second look heads compare the pilot, which
has little noise left, and average the series over what it holds alike; all heads are mixed anew, and that is looked at once more.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.guided import attend_guided
from overt.smoothing.heads.local.direct import attend_time
from overt.smoothing.heads.local.polynomial import Side
from overt.smoothing.heads.patches import attend_patch
from overt.smoothing.heads.single_row import filling_row, guided_row, patch_row, time_row
from overt.smoothing.selection.mixture import Heads, Mixed, Observed, mix
from overt.smoothing.threads import side_by_side

# Bandwidths of time, in steps: narrow ones, by factors of √2, then ones that see beyond a stretch of a long series.
NARROW = 0.5 * np.sqrt(2.0) ** np.arange(16)  # 0.5 … 91
ONE_SIDED = 2.0 ** np.arange(8)  # 1 … 128
# Patches: points to either side, and bandwidths in units of the noise, for the root of the sum of squares.
PATCHES = ((2, 2.0 ** np.arange(0, 2, 0.5)), (5, 2.0 ** np.arange(0.5, 2.5, 0.5)), (10, 2.0 ** np.arange(1, 3, 0.5)))
PATCH_WINDOW = 60
# The second look, and the third, at what the second gave: bandwidths of time, with windows three times as long, and bandwidths
# of the pilot in units of the noise. The second only makes a better pilot, and need not see so far.
GUIDED = ((16.0, 64.0), (16.0, 64.0, 256.0))
GUIDED_BY = (1.2, 0.6, 0.3)
WINDOW = 3.0
# A long series is taken in equal stretches of at most so many points, each with as many more to either side as bear on it. All are
# whole blocks of risks (`mixture`), so that a stretch is divided into blocks where the series would be.
BLOCK = 1920
STRETCH, MARGIN = 34 * BLOCK, 4 * BLOCK


class Points(NamedTuple):
    """A series as heads see it, in sequence; all (n,)."""

    times: Floats  # in steps, ascending
    values: Floats  # where one is missing, what lies on the line between its neighbours
    weights: Floats  # w_i, 0 where the value is missing
    levels: Floats  # the noise's standard deviation at weight 1

    def part(self, rows: slice) -> "Points":
        """Some of the points."""
        return Points(*(column[rows] for column in self))

    @property
    def noise(self) -> Floats:
        """σ_i of each value, infinite where it is missing."""
        with np.errstate(divide="ignore"):
            return self.levels / np.sqrt(self.weights)


Row = Callable[[int], Floats]  # the weights of one point over all of those that the head was given (n,)


class Look(NamedTuple):
    """Heads, their names, family first ("line, 8 steps"), and what gives one row of their weights."""

    names: list[str]
    heads: Heads
    rows: list[Row]

    def part(self, rows: slice) -> "Look":
        """The same heads at some of the points."""
        return Look(self.names, Heads(*(column[:, rows] for column in self.heads)), self.rows)


class Room(threading.local):
    """Memory for the heads of a stretch, kept for a thread's next: to be given as much anew takes longer than to fill it."""

    def __init__(self) -> None:
        self._memory = np.empty((len(Heads._fields), 0))

    def of(self, heads: int, points: int) -> Heads:
        """Columns of heads, what they hold unsaid."""
        if self._memory.shape[1] < heads * points:
            self._memory = np.empty((len(Heads._fields), heads * points))
        return Heads(*(column[: heads * points].reshape(heads, points) for column in self._memory))


class Attended(NamedTuple):
    """The bank's answer, (n,); and the weight of each head, averaged over equal runs of points (heads, cells)."""

    values: Floats
    slopes: Floats
    variances: Floats
    names: list[str]
    mixture: Floats


def attend_bank(points: Points, level: float, *, causal: bool = False, cells: int = 400) -> Attended:
    """Smooth a series by the bank, stretch by stretch where it is long; `level` is its noise as a whole.

    With `causal` all heads and all averages of risks are of the past; what is then still of the whole series is `level`.

    >>> steps = np.repeat([0.0, 5.0], 100)
    >>> noisy = steps + np.random.default_rng(0).normal(size=200)
    >>> found = attend_bank(Points(np.arange(200.0), noisy, np.ones(200), np.ones(200)), 1.0)
    >>> bool(np.abs(found.values - steps).mean() < 0.25)
    True
    """
    count = points.values.size
    far = _far(points, causal)
    cells, room = min(cells, count), Room()
    sampled = np.unique(np.linspace(0, count - 1, min(count, 4 * cells)).astype(np.intp))
    cell = sampled * cells // count

    def attend(inner: slice) -> tuple[slice, Floats, list[str], Indices, Floats]:
        outer = _with_margin(inner, count)
        mixed, look = attend_stretch(points.part(outer), far.part(outer), level, causal, room)
        columns = np.stack([column[inner.start - outer.start :][: inner.stop - inner.start] for column in mixed[:3]])
        here = (sampled >= inner.start) & (sampled < inner.stop)
        return inner, columns, look.names, cell[here], mixed.weights(sampled[here] - outer.start)

    found, mixture, names = np.empty((3, count)), np.zeros((0, cells)), []
    for inner, columns, names, where, weights in side_by_side(attend, _stretches(count)):
        found[:, inner] = columns
        mixture = mixture if mixture.size else np.zeros((len(names), cells))
        np.add.at(mixture.T, where, weights.T)
    return Attended(found[0], found[1], found[2], names, mixture / np.bincount(cell, minlength=cells))


def bank_row(points: Points, level: float, row: int, *, causal: bool = False) -> Floats:
    """The weights with which one point attends to all (n,), the mixture's and its heads' multiplied."""
    count = points.values.size
    inner = next(stretch for stretch in _stretches(count) if row < stretch.stop)
    outer = _with_margin(inner, count)
    far = _far(points, causal)
    mixed, look = attend_stretch(points.part(outer), far.part(outer), level, causal, Room())
    shares = mixed.weights(np.array([row - outer.start]))[:, 0]
    found = np.zeros(count)
    alone = filling_row(points.times, points.weights > 0, row, causal=causal)
    for share, name, weigh in zip(shares, look.names, look.rows, strict=True):
        weights = np.zeros(count)
        reached = slice(None) if name in far.names else outer
        weights[reached] = weigh(row if name in far.names else row - outer.start)
        found += share * (weights if weights.any() else alone)
    return found


def _stretches(count: int) -> list[slice]:
    """As few as may be, so equal in length that what is divided among threads takes each as long."""
    length = -(-count // -(-count // STRETCH))
    length = -(-length // BLOCK) * BLOCK
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _with_margin(inner: slice, count: int) -> slice:
    """A stretch, and what lies beside it."""
    return slice(max(0, inner.start - MARGIN), min(count, inner.stop + MARGIN))


def attend_stretch(points: Points, far: Look, level: float, causal: bool, room: Room) -> tuple[Mixed, Look]:
    """All looks at one stretch."""
    observed = Observed(points.values, points.noise)
    parts = [*_first_look(points, level, causal), far]
    count = sum(len(part.names) for part in parts)
    heads = room.of(count + len(GUIDED[-1]) * len(GUIDED_BY), points.values.size)
    _put(heads, parts, 0)
    mixed = mix(heads.first(count), observed, causal=causal)
    again: list[Look] = []
    for bandwidths in GUIDED:
        again = [_guided(points, mixed, bandwidth, level, causal) for bandwidth in bandwidths]
        _put(heads, again, count)
        mixed = mix(heads.first(count + len(bandwidths) * len(GUIDED_BY)), observed, causal=causal)
    parts += again
    names, rows = [name for part in parts for name in part.names], [row for part in parts for row in part.rows]
    return mixed, Look(names, heads, rows)


def _first_look(points: Points, level: float, causal: bool) -> Iterator[Look]:
    yield _itself(points)
    yield from (_by_time(points, h, degree, side) for h, degree, side in _time_heads(causal))
    yield from (_by_patches(points, half, scales, level, causal) for half, scales in PATCHES)


def _time_heads(causal: bool) -> Iterator[tuple[float, int, Side]]:
    """Bandwidth, degree and side."""
    if causal:
        for h, degree in product(NARROW, (0, 1, 2)):
            yield float(h), degree, "past"
        return
    for h, degree in product(NARROW, (1, 2)):
        yield float(h), degree, "both"
    for h, degree in product(ONE_SIDED, (0, 1)):
        yield float(h), degree, "past"
        yield float(h), degree, "future"


def _far(points: Points, causal: bool) -> Look:
    """Heads of bandwidths beyond the narrow ones, up to a quarter of the series; they need all of it."""
    octaves = int(np.log2(max(points.times[-1] - points.times[0], 1.0) / 4 / 128)) if points.times[-1] >= 512 else -1
    sides: tuple[Side, ...] = ("past",) if causal else ("both",)
    degrees = (0, 1, 2) if causal else (1, 2)
    bandwidths = 128.0 * 2.0 ** np.arange(octaves + 1)
    wanted: list[tuple[float, int, Side]] = list(product(bandwidths.tolist(), degrees, sides))
    heads = Heads(*(np.empty((len(wanted), points.values.size)) for _ in Heads._fields))
    names, rows = [], []
    for place, part in enumerate(side_by_side(lambda head: _by_time(points, *head), wanted)):
        _put(heads, [part], place)
        names, rows = names + part.names, rows + part.rows
    return Look(names, heads, rows)


def _put(heads: Heads, parts: list[Look], place: int) -> None:
    """Write the parts' heads, one after the other, from `place` on."""
    for part in parts:
        for column, own in zip(heads, part.heads, strict=True):
            column[place : place + len(part.names)] = own
        place += len(part.names)


def _itself(points: Points) -> Look:
    variance = points.levels**2 / np.where(points.weights > 0, points.weights, 1.0)
    heads = Heads(points.values[None], np.ones((1, points.values.size)), variance[None])
    return Look(["itself"], heads, [lambda row: np.eye(1, points.values.size, row)[0] * (points.weights > 0)])


def _by_time(points: Points, bandwidth: float, degree: int, side: Side) -> Look:
    keys, options = points.weights > 0, {"degree": degree, "side": side}
    if (points.weights == 1).all():
        found = attend_time(points.times, points.values, None, bandwidth, **options)
    else:
        own = np.where(keys, np.cumsum(keys) - 1, -1)
        known = points.times[keys], points.values[keys], points.weights[keys]
        found = attend_time(*known, bandwidth, targets=points.times, own=own, **options)
    values, slopes, squares = found
    if not keys.all():
        # With nothing on this side, the point itself.
        alone = np.isnan(values)
        values, squares = np.where(alone, points.values, values), np.where(alone, 1.0, squares)
        slopes = np.where(np.isnan(slopes), 0.0, slopes)
    shape, whose = ("mean", "line", "parabola")[degree], "" if side == "both" else f" of the {side}"

    def weigh(row: int) -> Floats:
        weights = np.zeros(keys.size)
        weights[keys] = time_row(points.times[keys], points.weights[keys], points.times[row], bandwidth, **options)
        return weights

    heads = Heads(values[None], slopes[None], (squares * points.levels**2)[None])
    return Look([f"{shape}{whose}, {bandwidth:.3g} steps"], heads, [weigh])


def _by_patches(points: Points, half: int, scales: Floats, level: float, causal: bool) -> Look:
    profile = np.ones(2 * half + 1)
    if causal:
        profile[half + 1 :] = 0.0
    window, side = min(PATCH_WINDOW, points.values.size - 1), ("past" if causal else "both")
    present = points.weights > 0
    weights = None if (points.weights[present] == 1).all() else points.weights
    found = attend_patch(points.values, present, weights, profile=profile, bandwidths=scales * level, window=window, side=side)
    names = [f"patches of {int(profile.sum())}, {scale:.3g} σ" for scale in scales]
    values = np.where(np.isnan(found.values), points.values, found.values)
    rows: list[Row] = [
        partial(patch_row, points.values, points.weights, profile=profile, bandwidth=scale * level, window=window, side=side)
        for scale in scales
    ]
    return Look(names, Heads(values, *_noisy(points, found.slopes)), rows)


def _guided(points: Points, pilot: Mixed, bandwidth: float, level: float, causal: bool) -> Look:
    """Means over what is near in time and alike in the pilot p, whose own derivative moves the weights: W_ii + ∂p_i/∂x_i Cov_W(p, x)/h².

    That p_j moves with x_i as well is left out: it makes the weights move less.
    """
    scales = np.array(GUIDED_BY)
    options = {"bandwidth_time": bandwidth, "window": WINDOW * bandwidth, "side": "past" if causal else "both"}
    found = attend_guided(points.times, pilot.values, points.values, points.weights, scales * level, **options)
    slopes = found.own + pilot.slopes * found.covariance / (scales[:, None] * level) ** 2
    names = [f"second look, {bandwidth:.3g} steps and {scale:.3g} σ" for scale in scales]
    rows: list[Row] = [
        partial(guided_row, points.times, pilot.values, points.weights, bandwidth=scale * level, **options) for scale in scales
    ]
    values = np.where(np.isnan(found.values), points.values, found.values)
    return Look(names, Heads(values, *_noisy(points, slopes)), rows)


def _noisy(points: Points, slopes: Floats) -> tuple[Floats, Floats]:
    """Slopes and variances of heads that compare values: Σ_j W_ij² is at most W_ii for most smoothers, and moves with the slope."""
    known = points.weights > 0
    if not known.all():
        places = np.arange(known.size)
        slopes = np.stack([np.interp(places, places[known], row[known]) for row in slopes])
    variances = np.maximum(slopes, 0.0) * points.levels**2 / np.where(known, points.weights, 1.0)
    return np.where(known, slopes, 0.0), variances
