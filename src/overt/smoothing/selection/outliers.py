"""Robust weights, from the distance of each value from the median of its neighbours."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats
from overt.smoothing.noise.shoulders import have_shoulders
from overt.smoothing.selection.medians import medians

# Neighbours to either side.
NEIGHBOURS = 4
# Median absolute deviations beyond which the weight is 0 (Cleveland 1979, section 2.2).
CUTOFF = 6.0
# The standard deviation of a value's distance from the median of the two on either side, of normal noise of 1.
NEARBY_DEVIATION = 1.14
# Isolated values count as outliers from this many standard deviations, in series of `SHORTEST` points and more.
FAR, FAR_ALONE, SHORTEST = 4.5, 8.0, 16
# In a short series a peak of the signal may have a single point. Outliers are as often above as below: where more than this
# share stand out, mostly to one side, or more than the second share at all, they may be peaks. The tails of the noise are not moved then,
# and only a value beyond `FAR_ALONE` counts.
SHARE_OF_SHORT, MOST_OF_SHORT = 0.01, 0.08
# An isolated value is this many times further from the points next to it than they are from those around them. A peak of the signal
# raises its neighbours too: one that falls to a half over one step has a ratio of 2.
RATIO = 4.0
# Where so large a share was found, outliers are part of the noise: they are looked for again without those that were found, with a lower
# ratio, and two of them side by side where chance puts so many pairs into the series.
OFTEN, RATIO_AGAIN, EXPECTED_PAIRS, PASSES = 0.004, 2.2, 0.2, 4
# Two outliers side by side are a peak of the signal, which stays, where chance puts fewer pairs than this among so many others.
CHANCE_OF_A_PAIR = 0.004
# Of short runs far out, at least so many above and below: then they are no peaks.
RUNS = 2
# It is also off to one side of the medians of three on its left and on its right, by this part of the distance at least: a jump is not.
BOTH_SIDES = 0.5
# Isolated values are moved to this many standard deviations from the points next to them; closer where so many of them reach as far that
# the noise has heavy tails. Of normal noise 0.27% reach beyond 3.
CLIP, CLIP_HEAVY, NORMAL_SHARE, HEAVY_ERRORS = 3.0, 1.8, 0.0027, 3.5
# Peaks that recur: at least so many, whose points are at most so many apart; so many of them stand on one side, and less than that part of
# an interval from a grid of equal ones. Fewer than one of 1,000 sets of outliers at random recur. Or the marks of outliers above and below
# have an autocorrelation of so much: those at random have at most half as much.
RECUR, WIDEST, MOSTLY, IRREGULAR, REPEATED = 8, 3, 0.8, 0.06, 0.6
# A value next to a step so many times as long as the median one is compared with so many next to steps of like length.
LONG, LIKE = 2.0, 40
# The median distance among this many neighbours to either side is the least level: within a burst of noise all distances are large.
NEAR = 12
# The median of what normal noise of 1 differs by from the nearer of the medians of the seven values before it and after it.
SEVEN_MEDIAN = 0.49
# The trimmed level is right with 12% outliers, and four times too high with 16%. That median breaks later: below this part of the trimmed
# level (0.27 to 0.56 with 16% and more, 0.75 to 6 without) it takes its place, if it leaves less than this part of the values far out.
BROKEN, LEFT = 0.6, 0.02


def downweight_outliers(values: Floats, times: Floats, weights: Floats | None) -> Floats:
    """The weights (n,) (1 where None), reduced for outliers; values in any order of their times, NaN where missing."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.argsort(times[known], kind="stable")]
    reduced = np.ones(values.size) if weights is None else weights.copy()
    reduced[known] *= outlier_weights(values[known])
    return reduced


def outlier_weights(values: Floats) -> Floats:
    """Bisquare weights (1 − (r/6s)²)² of values (n,) in the order of their times; 0 where |r| ≥ 6s.

    The residual r is the distance from the median of four neighbours on either side, s the median of all |r|: the weights of
    Cleveland's robust regression (1979, section 2.2), with residuals that outliers do not influence. If more than half of the
    values equal their neighbours' median (s = 0), these have weight 1 and the others 0.

    >>> outlier_weights(np.array([1.0, 2.0, 1.0, 2.0, 90.0, 2.0, 1.0, 2.0, 1.0])).round(1)
    array([0.9, 1. , 0.9, 1. , 0. , 1. , 0.9, 1. , 0.9])
    """
    count = values.size
    if count < 3:
        return np.ones(count)
    half = min(NEIGHBOURS, (count - 1) // 2)
    padded = np.pad(values, half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)  # (n, 2·half + 1)
    residuals = np.abs(values - np.median(np.delete(windows, half, axis=1), axis=1))
    scale = CUTOFF * np.median(residuals)
    if scale == 0:
        return (residuals == 0).astype(np.float64)
    return np.maximum(1 - (residuals / scale) ** 2, 0.0) ** 2


class Cleaned(NamedTuple):
    """A series without its outliers: values (n,) with heavy tails cut, and which of them are outliers (n,)."""

    values: Floats
    outliers: NDArray[np.bool_]

    def keeping(self, some: NDArray[np.bool_], values: Floats) -> "Cleaned":
        """The same with these of the values (n,) as they were, and no outliers."""
        return Cleaned(np.where(some, values, self.values), self.outliers & ~some)


def clean(values: Floats, level: float) -> Cleaned:
    """Find isolated outliers (n,), in the order of their times, and bring the tails of the noise near its middle.

    A value's distance is that from the median of the two values on either side, in units of the noise's `level` or, where that is more,
    of the median distance nearby. Only isolated values count: a peak of the signal has neighbours that rise with it, and a jump has
    one side on which it is near. White normal noise of 1,024 points loses one value in 40 series, and a quarter of a percent is
    moved. Where there are several, they are looked for again among what is left, and tails are moved again; where there are many, pairs
    and those next to others are found too. Those that recur, or whose neighbours rise with them, are peaks of the signal: then all values
    are kept. In fewer
    than 400 points they may be peaks, of which a single point shows: where several are mostly on one side, or one in twelve points or
    more stand out, they are kept.

    >>> values = np.sin(np.arange(500) / 40) + 0.1 * np.random.default_rng(0).normal(size=500)
    >>> values[250] += 3
    >>> np.flatnonzero(clean(values, 0.1).outliers)
    array([250])
    """
    median = _median_level(values)
    if 0 < median < BROKEN * level:
        cleaned = clean(values, median)
        known = cleaned.values[~cleaned.outliers]
        if np.mean(_distances(known)[2] > FAR * median) < LEFT:
            return cleaned
    first = _first_look(values, level)
    if first is None:
        return Cleaned(values, np.zeros(values.size, dtype=bool))
    cleaned = _cleaned(values, level, first)
    if _are_peaks(values, cleaned.outliers, level):
        return Cleaned(values, np.zeros(values.size, dtype=bool))
    if values.size >= SHORT:
        return cleaned
    if _may_be_peaks(values, first, cleaned.outliers):
        return Cleaned(values, np.zeros(values.size, dtype=bool))
    if _like_peaks(np.where(first.beyond(CLIP), first.above, 0.0)):
        return Cleaned(values, first.beyond(FAR_ALONE))
    return cleaned


def _median_level(values: Floats) -> float:
    """The level of the noise of values (n,) by the median distance from neighbours; 0 of few values."""
    return float(np.median(_distances(values)[2])) / SEVEN_MEDIAN if values.size >= SHORTEST else 0.0


def stand_alone(values: Floats, level: float) -> NDArray[np.bool_]:
    """Which values (n,) stand alone and are so far out that they count in a short series, too, whether others are or not."""
    first = _first_look(values, level)
    return np.zeros(values.size, dtype=bool) if first is None else first.beyond(FAR_ALONE)


def without_those_beyond_gaps(cleaned: Cleaned, times: Floats, values: Floats) -> Cleaned:
    """The same without outliers next to long steps in time that are no further out than other values next to such steps.

    What a signal does over a long step differs more than noise does. times and values (n,), in order.
    """
    if not cleaned.outliers.any():
        return cleaned
    steps = np.diff(times)
    longest = np.maximum(np.append(steps[:1], steps), np.append(steps, steps[-1:]))
    marked = np.flatnonzero(cleaned.outliers & (longest > LONG * np.median(longest)))
    if not marked.size:
        return cleaned
    distances, order = _isolated(values, RATIO)[1], np.argsort(longest, kind="stable")
    ranks = np.argsort(order)
    starts = np.clip(ranks[marked] - LIKE // 2, 0, max(times.size - LIKE, 0))
    like = distances[order[np.minimum(starts[:, None] + np.arange(LIKE), times.size - 1)]]
    near = np.zeros(values.size, dtype=bool)
    near[marked] = distances[marked] <= FAR / 0.6744897501960817 * np.median(like, axis=1)
    return cleaned.keeping(near, values)


def unremoved_outliers(values: Floats, level: float) -> tuple[int, str]:
    """How many isolated values (n,) are far out, but kept as peaks of the signal, and why; "" if they only may be.

    >>> spikes = np.where(np.arange(60) % 15 == 10, 9.0, 0.0)
    >>> unremoved_outliers(spikes + 0.2 * np.random.default_rng(0).normal(size=60), 0.2)
    (4, '')
    """
    first = _first_look(values, level)
    if first is None:
        return 0, ""
    outliers = _cleaned(values, level, first).outliers
    why = _are_peaks(values, outliers, level)
    stay = why or (values.size < SHORT and _may_be_peaks(values, first, outliers))
    return int(outliers.sum()) if stay else 0, why


def _are_peaks(values: Floats, outliers: NDArray[np.bool_], level: float) -> str:
    """Why outliers (n,) are peaks of the signal; "" if they are not."""
    if _recur(outliers, _above_others(values, outliers)):
        return "they recur at equal intervals, as peaks of a signal do"
    return "their neighbours rise or fall with them, as those of a peak do" if have_shoulders(values, outliers, level) else ""


class Look(NamedTuple):
    """How each value stands to those around it; all (n,)."""

    nearby: Floats  # the median of the two values on either side
    above: Floats  # the value less that
    unit: Floats  # what its distance is measured in
    isolated: NDArray[np.bool_]

    def beyond(self, far: float) -> NDArray[np.bool_]:
        """Which values stand alone, and further than so many units from those next to them (n,)."""
        return self.isolated & (np.abs(self.above) > far * self.unit)


def _first_look(values: Floats, level: float) -> Look | None:
    """The look at a series as it is; None where nothing is far out, as in most short series."""
    if values.size < SHORTEST or level <= 0 or not _any_far_out(values, CLIP * NEARBY_DEVIATION * level):
        return None
    look = _look(values, level, RATIO)
    return look if look.beyond(CLIP).any() or _among_others(values, NEARBY_DEVIATION * level, similar=2).any() else None


def _any_far_out(values: Floats, far: float) -> bool:
    """Whether a value is further than that from the median of the two on either side, in a few steps for short series."""
    one = np.diff(np.concatenate([values[[2, 1]], values, values[[-2, -3]]]))
    two = one[1:] + one[:-1]
    differences = np.stack([one[1:-2], two[:-2], -one[2:-1], -two[2:]])  # from x_{i−1}, x_{i−2}, x_{i+1} and x_{i+2}
    twice_from_median = np.sort(differences, axis=0)[1:3].sum(axis=0)
    return bool(np.abs(twice_from_median).max() > 2 * far)


def _may_be_peaks(values: Floats, first: Look, outliers: NDArray[np.bool_]) -> bool:
    """Whether the outliers of a short series (n,) may be peaks of a single point, by those of the first look or by all."""
    return _like_peaks(np.where(first.beyond(FAR), first.above, 0.0)) or _like_peaks(_above_others(values, outliers))


def _above_others(values: Floats, outliers: NDArray[np.bool_]) -> Floats:
    """By how much outliers are above the lines between the other values (n,); 0 for these."""
    above, marked, known = np.zeros(values.size), np.flatnonzero(outliers), np.flatnonzero(~outliers)
    above[marked] = values[marked] - np.interp(marked, known, values[known])
    return above


def _like_peaks(above: Floats) -> bool:
    """Whether those that stand out, by how much they are above the others (n,), are several on one side, or too many."""
    fewer, more = sorted((int(np.sum(above > 0)), int(np.sum(above < 0))))
    on_one_side = more > max(1, int(SHARE_OF_SHORT * above.size)) and fewer < more / 4
    return on_one_side or fewer + more > MOST_OF_SHORT * above.size


def _recur(outliers: NDArray[np.bool_], above: Floats) -> bool:
    """Whether outliers (n,), `above` the others by so much, come at equal intervals and to one side, or as a pattern that repeats.

    >>> marks = np.zeros(500, dtype=bool)
    >>> marks[np.rint(np.arange(3, 490, 40.3)).astype(int)] = True
    >>> marks[[124, 200]] = False, True
    >>> _recur(marks, np.ones(500)), _recur(np.random.default_rng(0).random(500) < 0.03, np.ones(500))
    (True, False)
    """
    marked = np.flatnonzero(outliers)
    if marked.size >= RECUR and _repeat(np.where(outliers, np.sign(above), 0.0)):
        return True
    if marked.size < RECUR or not _mostly_on_one_side(above[marked]):
        return False
    first = marked[np.append(True, np.diff(marked) > WIDEST)]  # of each peak
    steps = np.diff(first)
    turns = np.append(0, np.cumsum(np.rint(steps / np.median(steps)))) if steps.size else np.zeros(1)
    if turns[-1] < RECUR:
        return False
    near, slope, distances = np.ones(first.size, dtype=bool), 0.0, np.zeros(first.size)
    for _ in range(3):
        slope, start = np.polyfit(turns[near], first[near], 1)
        distances = np.abs(first - start - slope * turns)
        near = distances <= np.quantile(distances, MOSTLY)
    return bool(np.mean(distances < IRREGULAR * slope) >= MOSTLY)


def _repeat(marks: Floats) -> bool:
    """Whether marks (n,), 1 above and −1 below, repeat themselves after some points, up to one point of jitter.

    >>> pulse = np.where(np.arange(400) % 37 < 2, 1.0, 0.0) - np.where(np.arange(400) % 37 == 5, 1.0, 0.0)
    >>> _repeat(pulse), _repeat(np.random.default_rng(0).permutation(pulse))
    (True, False)
    """
    count = marks.size
    wide = np.clip(np.convolve(marks, np.ones(3), "same"), -1, 1)
    deviations = wide - wide.mean()
    products = np.fft.irfft(np.abs(np.fft.rfft(deviations, 2 * count)) ** 2)[: count // 3] / (count - np.arange(count // 3))
    return bool(products[2 * WIDEST :].max(initial=0.0) > REPEATED * products[0])


def _mostly_on_one_side(above: Floats) -> bool:
    return abs(float(np.mean(above > 0)) - 0.5) >= MOSTLY - 0.5


def to_one_side(values: Floats, outliers: NDArray[np.bool_]) -> bool:
    """Whether outliers (n,) are many enough to recur, and mostly above the other values (n,) or below them."""
    return bool(outliers.sum() >= RECUR) and _mostly_on_one_side(_above_others(values, outliers)[outliers])


def _cleaned(values: Floats, level: float, first: Look) -> Cleaned:
    count, look = values.size, first
    outlying, peaks = np.zeros((2, count), dtype=bool)
    current, clipped, heavy = values, values, False
    for pass_number in range(PASSES):
        if pass_number:
            # Outliers raise the distances around them: without those that were found, others next to them stand out.
            current = values.copy()
            current[outlying] = np.interp(np.flatnonzero(outlying), np.flatnonzero(~outlying), values[~outlying])
            look = _look(current, level, RATIO_AGAIN)
        else:
            heavy = np.mean(look.beyond(CLIP)) > NORMAL_SHARE + HEAVY_ERRORS * (NORMAL_SHARE / count) ** 0.5
        if heavy or not pass_number:
            limit = CLIP_HEAVY if heavy else CLIP
            clipped = np.where(look.beyond(limit), look.nearby + np.sign(look.above) * limit * look.unit, clipped)
        marked = look.beyond(FAR)
        if count * outlying.mean() ** 2 > EXPECTED_PAIRS:
            marked |= _pairs(current, FAR * look.unit) | _among_others(current, NEARBY_DEVIATION * level)
        elif _on_both_sides(runs := _among_others(current, NEARBY_DEVIATION * level, similar=2), look.above):
            marked |= runs
        else:
            pairs = marked & _next_to(marked)
            if count * (marked & ~pairs).mean() ** 2 < CHANCE_OF_A_PAIR:
                marked, peaks = marked & ~pairs, peaks | pairs
        more, outlying = (marked & ~outlying).any(), outlying | marked
        if not more or outlying.mean() < OFTEN:
            break
    return Cleaned(np.where(peaks & ~outlying, values, clipped), outlying)


def _look(values: Floats, level: float, ratio: float) -> Look:
    nearby, distances, isolated = _isolated(values, ratio)
    # In units of the noise's level, or of the median distance nearby, if that is more.
    unit = np.maximum(NEARBY_DEVIATION * level, medians(_shifted(distances, NEAR, NEAR)) / 0.6744897501960817)
    return Look(nearby, values - nearby, unit, isolated)


def _shifted(values: Floats, before: int, after: int) -> list[Floats]:
    """The values `before` points earlier (n,), one point nearer, and so on to `after` points later; a series is reflected at its ends."""
    padded = np.pad(values, (before, after), mode="reflect")
    return [padded[start : start + values.size] for start in range(before + 1 + after)]


def _isolated(values: Floats, ratio: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The median of the two values on either side of each (n,), the distance from it, and whether the value stands alone."""
    near = _shifted(values, 6, 6)  # the value itself at 6
    nearby, around = medians([*near[4:6], *near[7:9]]), medians([*near[:4], *near[9:]])
    left, right = values - medians(near[3:6]), values - medians(near[7:10])
    distances = np.abs(values - nearby)
    return nearby, distances, _stands_out(left, right, distances) & (distances > ratio * np.abs(nearby - around))


def _next_to(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the value before or after each is marked (n,)."""
    return np.append(False, marked[:-1]) | np.append(marked[1:], False)


def _stands_out(left: Floats, right: Floats, distances: Floats) -> NDArray[np.bool_]:
    return (np.sign(left) == np.sign(right)) & (np.minimum(np.abs(left), np.abs(right)) > BOTH_SIDES * distances)


def _pairs(values: Floats, far: Floats) -> NDArray[np.bool_]:
    """Neighbours that both stand far out, to one side, from the three values before and after them (n,)."""
    near = _shifted(values, 6, 7)  # a pair at 6 and 7
    before, after = medians(near[3:6]), medians(near[8:11])
    nearby, around = medians([*near[3:6], *near[8:11]]), medians([*near[:3], *near[11:]])
    first, second = near[6] - nearby, near[7] - nearby
    nearer = np.where(np.abs(first) < np.abs(second), first, second)
    distances = np.abs(nearer)
    marked = (np.sign(first) == np.sign(second)) & (distances > far) & (distances > RATIO_AGAIN * np.abs(nearby - around))
    marked &= _stands_out(nearer + nearby - before, nearer + nearby - after, distances)
    marked[-1] = False
    return marked | np.append(False, marked[:-1])


def _distances(values: Floats) -> tuple[Floats, Floats, Floats]:
    """How far each value is above the medians of the seven before it and after it, and the distance from the nearer one; all (n,)."""
    near = _shifted(values, 7, 7)
    left, right = values - medians(near[:7]), values - medians(near[8:])
    return left, right, np.minimum(np.abs(left), np.abs(right))


def _on_both_sides(runs: NDArray[np.bool_], above: Floats) -> bool:
    """Whether at least so many short runs of values far out (n,) are above the others and below them: peaks are on one side."""
    starts = runs & ~np.append(False, runs[:-1])
    return bool(min(np.sum(above[starts] > 0), np.sum(above[starts] < 0)) >= RUNS)


def _among_others(values: Floats, level: float, similar: int = 1) -> NDArray[np.bool_]:
    """Values far out, to one side, from the medians of the seven before and after them, also next to other outliers (n,).

    A peak has similar neighbours: of the four values next to an outlier, so many at most are near it.
    """
    left, right, distances = _distances(values)
    unit = np.maximum(level, medians(_shifted(distances, NEAR, NEAR)) / SEVEN_MEDIAN)
    near = _shifted(values, 2, 2)
    alike = sum((np.abs(neighbour - values) < distances / 2).astype(np.intp) for neighbour in (*near[:2], *near[3:]))
    return (np.sign(left) == np.sign(right)) & (distances > FAR * unit) & (alike <= similar)
