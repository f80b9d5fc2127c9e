"""Outliers: values that stand alone, from the medians of their neighbours and from the robust curves of quick signals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats
from overt.smoothing.data.weights import CUTOFF, NEIGHBOURS
from overt.smoothing.noise.peaks import above_others, may_be_peaks, resemble_peaks, why_peaks
from overt.smoothing.selection.medians import medians

# The standard deviation of a value's distance from the median of the two on either side, of normal noise of 1.
NEARBY_DEVIATION = 1.14
# Isolated values count as outliers from this many standard deviations, in series of `SHORTEST` points and more.
FAR, SHORTEST = 4.5, 16
# In a short series only a value beyond this counts where several stand out that may be peaks of the signal.
FAR_ALONE = 8.0
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
# A value next to a step more than `GAP` times as long as the median one is next to a gap; beyond `LONG` times it is compared with `LIKE`
# others next to steps of like length.
GAP, LONG, LIKE = 1.5, 2.0, 40
# The median distance among this many neighbours to either side is the least level: within a burst of noise all distances are large.
NEAR = 12
# The median of what normal noise of 1 differs by from the nearer of the medians of the seven values before it and after it.
SEVEN_MEDIAN = 0.49
# The trimmed level is right with 12% outliers, and four times too high with 16%. That median breaks later: below this part of the trimmed
# level (0.27 to 0.56 with 16% and more, 0.75 to 6 without) it takes its place, if it leaves less than this part of the values far out.
BROKEN, LEFT = 0.6, 0.02
# The eighth differences of an outlier of 1, over 70, and their standard deviation in normal noise of 1. A wave of six points a cycle keeps
# 1.4% of its height in them.
IMPULSE, IMPULSE_DEVIATION = np.array([1, -8, 28, -56, 70, -56, 28, -8, 1]) / 70, 1.62
# Cubics that outliers do not move: points to either side; rounds of reweighting, the first by 1/|r|, from this part of the median |r| on,
# the others by the bisquare, from this weight on.
HALF, ROUNDS, FIRST_ROUNDS, LEAST_RESIDUAL, LEAST_WEIGHT = 6, 10, 6, 0.2, 1e-3
# The values around an outlier are so near to a cubic, in levels of the noise or in distances of the outlier from it; the sum of squares is
# below this part of that of a cubic with a jump.
SMOOTH_LEVELS, SMOOTH_DISTANCE, BETTER = 2.0, 0.125, 0.5


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
    are kept. In fewer than 400 points they may be peaks, of which a single point shows, where several are mostly on one side or one in
    twelve points or more stand out: then they are kept if they resemble peaks (`peaks.resemble_peaks`), and only those beyond `FAR_ALONE`
    count if they do not.

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
    first, cleaned, hidden = _looked(values, level)
    none = Cleaned(values, np.zeros(values.size, dtype=bool))
    if why_peaks(values, cleaned.outliers, level):
        return none
    if values.size >= SHORT:
        return cleaned
    if _may_be_peaks(values, first, cleaned.outliers):
        far = np.abs(above_others(values, cleaned.outliers)) > FAR_ALONE * level
        return none if resemble_peaks(values, cleaned.outliers, level) else Cleaned(values, cleaned.outliers & far)
    if first and may_be_peaks(np.where(first.beyond(CLIP), first.above, 0.0)):
        return Cleaned(values, first.beyond(FAR_ALONE) | hidden)
    return cleaned


def any_outlier(values: Floats, level: float) -> bool:
    """Whether a value (n,) may be one: further from the two on either side than outliers are at least."""
    return values.size >= SHORTEST and _any_far_out(values, FAR * NEARBY_DEVIATION * level)


def _median_level(values: Floats) -> float:
    """The level of the noise of values (n,) by the median distance from neighbours; 0 of few values."""
    return float(np.median(_distances(values)[2])) / SEVEN_MEDIAN if values.size >= SHORTEST else 0.0


def stand_alone(values: Floats, level: float) -> NDArray[np.bool_]:
    """Which values (n,) stand alone and are so far out that they count in a short series, too, whether others are or not."""
    first = _first_look(values, level)
    return np.zeros(values.size, dtype=bool) if first is None else first.beyond(FAR_ALONE)


def without_those_beyond_gaps(cleaned: Cleaned, times: Floats, values: Floats, level: float) -> Cleaned:
    """The same without outliers next to long steps in time that are no further out than other values next to such steps, or than outliers
    are where the noise has this level.

    What a signal does over a long step differs more than noise does. times and values (n,), in order.
    """
    steps = np.diff(times)
    longest = np.maximum(np.append(steps[:1], steps), np.append(steps, steps[-1:]))
    usual = np.median(longest)  # 0 where most times have several values
    marked = np.flatnonzero(cleaned.outliers & (longest > GAP * usual))
    if not marked.size:
        return cleaned
    distances, order = _isolated(values, RATIO)[1], np.argsort(longest, kind="stable")
    ranks = np.argsort(order)
    starts = np.clip(ranks[marked] - LIKE // 2, 0, max(times.size - LIKE, 0))
    like = distances[order[np.minimum(starts[:, None] + np.arange(LIKE), times.size - 1)]]
    near = np.zeros(values.size, dtype=bool)
    similar_deviations = np.where(longest[marked] > LONG * usual, np.median(like, axis=1) / 0.6744897501960817, 0.0)
    units = np.maximum(similar_deviations, NEARBY_DEVIATION * level)
    near[marked] = distances[marked] <= FAR * units
    return cleaned.keeping(near, values)


def unremoved_outliers(values: Floats, level: float) -> tuple[int, str]:
    """How many isolated values (n,) are far out, but kept as peaks of the signal, and why; "" if they only may be.

    >>> spikes = np.where(np.arange(60) % 15 == 10, 9.0, 0.0)
    >>> unremoved_outliers(spikes + 0.2 * np.random.default_rng(0).normal(size=60), 0.2)
    (4, '')
    """
    first, (_, outliers), _ = _looked(values, level)
    if not outliers.any():
        return 0, ""
    why = why_peaks(values, outliers, level)
    stay = why or (values.size < SHORT and _may_be_peaks(values, first, outliers))
    return int(outliers.sum()) if stay else 0, why


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


def _may_be_peaks(values: Floats, first: Look | None, outliers: NDArray[np.bool_]) -> bool:
    """Whether the outliers of a short series (n,) may be peaks of a single point, by those of the first look or by all."""
    on_sight = first is not None and may_be_peaks(np.where(first.beyond(FAR), first.above, 0.0))
    return on_sight or may_be_peaks(above_others(values, outliers))


def _looked(values: Floats, level: float) -> tuple[Look | None, Cleaned, NDArray[np.bool_]]:
    """The first look at values (n,), what is left of them, and which of the outliers a quick signal hides from medians (n,)."""
    first = _first_look(values, level)
    cleaned = _cleaned(values, level, first) if first else Cleaned(values, np.zeros(values.size, dtype=bool))
    hidden = np.zeros(values.size, dtype=bool)
    for _ in range(PASSES):  # without those that were found, the neighbours of others are near a cubic
        more = _hidden(values, level, cleaned.outliers | hidden)
        if not more.any():
            break
        hidden |= more
    return first, cleaned._replace(outliers=cleaned.outliers | hidden), hidden


def _hidden(values: Floats, level: float, outliers: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Outliers (n,) that a quick signal hides from medians, beside those that are known (n,): isolated values next to a robust curve."""
    nothing, points = np.zeros(values.size, dtype=bool), np.arange(values.size)
    if values.size < max(SHORTEST, 2 * HALF + 1) or level <= 0:
        return nothing
    values = np.interp(points, points[~outliers], values[~outliers]) if outliers.any() else values
    least = IMPULSE_DEVIATION * level
    differences = np.abs(_eighth_differences(values))
    if differences.max() <= FAR * least:
        return nothing
    large, around = np.flatnonzero(differences > FAR * least), np.pad(differences, NEAR, mode="reflect")
    nearby = np.median(np.lib.stride_tricks.sliding_window_view(around, 2 * NEAR + 1)[large], axis=1) / 0.6744897501960817
    large = _at(large[differences[large] > FAR * nearby], values.size)
    curve = _robust_cubics(values, _near(large, NEAR + HALF)) if large.any() else values
    look = _first_look(values - curve, level)
    if look is None:
        return nothing
    marked = _cleaned(values - curve, level, look).outliers
    marked &= large & ~_next_to(marked)
    return without_those_next_to_jumps(marked, values, np.where(marked, curve, values), level)


def without_those_next_to_jumps(marked: NDArray[np.bool_], values: Floats, others: Floats, level: float) -> NDArray[np.bool_]:
    """Those of marked values (n,) that stand alone among the others (n,), and not next to a jump (n,)."""
    marked = marked.copy()
    marked[:NEIGHBOURS] = marked[-NEIGHBOURS:] = False
    windows = np.lib.stride_tricks.sliding_window_view(others, 2 * NEIGHBOURS + 1)[np.flatnonzero(marked) - NEIGHBOURS].copy()
    windows[:, NEIGHBOURS] = values[marked]
    marked[marked] = _impulses(windows, level)
    return marked


def _impulses(windows: Floats, level: float) -> NDArray[np.bool_]:
    """Whether windows (m, points) are a cubic but for their middle point, and not one with a jump before or after it (m,)."""
    half = windows.shape[1] // 2
    cubics = np.polynomial.legendre.legvander(np.arange(-half, half + 1) / half, 3)
    points = np.arange(-half, half + 1)
    sums, sizes = [], np.zeros(0)
    for column in (points == 0, points >= 0, points > 0):
        design = np.column_stack([cubics, column])
        coefficients = windows @ np.linalg.pinv(design).T
        sums.append(((windows - coefficients @ design.T) ** 2).sum(axis=1))
        sizes = sizes if sizes.size else np.abs(coefficients[:, -1])
    near = np.sqrt(sums[0] / (2 * half - 4)) < np.maximum(SMOOTH_LEVELS * level, SMOOTH_DISTANCE * sizes)
    return near & (sums[0] < BETTER * np.minimum(*sums[1:]))


def _at(points: NDArray[np.intp], count: int) -> NDArray[np.bool_]:
    """Points as marks (count,)."""
    marks = np.zeros(count, dtype=bool)
    marks[points] = True
    return marks


def _eighth_differences(values: Floats) -> Floats:
    """In units of an outlier's size (n,); at the ends the series is reflected through its first and last value."""
    return np.convolve(np.pad(values, IMPULSE.size // 2, mode="reflect", reflect_type="odd"), IMPULSE, "valid")


def _near(marked: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """Which points are so near to marked ones (n,)."""
    counts = np.cumsum(np.pad(marked, (reach + 1, reach)))
    return counts[2 * reach + 1 :] > counts[: -2 * reach - 1]


def _robust_cubics(values: Floats, some: NDArray[np.bool_]) -> Floats:
    """Values (n,), with some of them (n,) on a cubic through those around them that outliers do not move (bisquare, after least |r|)."""
    points, width = np.flatnonzero(some), 2 * HALF + 1
    starts = np.clip(points - HALF, 0, values.size - width)
    basis = np.polynomial.legendre.legvander(np.linspace(-1, 1, width), 3)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)[starts]  # (m, window)
    products = (basis[:, :, None] * basis[:, None, :]).reshape(width, 16)
    weights, fitted = np.ones(windows.shape), windows
    for turn in range(ROUNDS):
        matrices = (weights @ products).reshape(-1, 4, 4)
        fitted = np.linalg.solve(matrices, ((weights * windows) @ basis)[..., None])[..., 0] @ basis.T
        residuals = np.abs(windows - fitted)
        least = np.maximum(np.finfo(float).eps * np.abs(windows).max(axis=1, keepdims=True), np.finfo(float).tiny)
        relative = residuals / np.maximum(np.median(residuals, axis=1, keepdims=True), least)
        bisquare = np.maximum(1 - (relative / CUTOFF) ** 2, 0.0) ** 2
        weights = 1 / np.maximum(relative, LEAST_RESIDUAL) if turn < FIRST_ROUNDS else np.maximum(bisquare, LEAST_WEIGHT)
    curve = values.copy()
    curve[points] = fitted[np.arange(points.size), points - starts]
    return curve


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
