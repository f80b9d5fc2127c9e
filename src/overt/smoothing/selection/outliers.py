"""Outliers: isolated values, detected by medians of their neighbours and by robust curves through quick signals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats
from overt.smoothing.data.weights import CUTOFF, NEIGHBOURS
from overt.smoothing.noise.peaks import above_others, may_be_peaks, resemble_peaks, why_peaks
from overt.smoothing.selection.medians import medians

# NEARBY_DEVIATION: standard deviation of the distance between a value and the median of the two on either side, in normal noise of 1.
NEARBY_DEVIATION = 1.14
# FAR: least distance of an outlier, in standard deviations of such distances; SHORTEST: fewest points of a series that is searched.
FAR, SHORTEST = 4.5, 16
# FAR_ALONE: FAR for a short series with several isolated values that may be peaks of the signal.
FAR_ALONE = 8.0
# RATIO: how many times farther an outlier is from its neighbours than these are from the points around them. A peak of the signal raises
# its neighbours too: a peak that falls to a half over one step has a ratio of 2.
RATIO = 4.0
# OFTEN: share of outliers that makes them part of the noise; they are then removed and the search is repeated, PASSES times at most, with
# RATIO_AGAIN, and with pairs side by side if chance puts more than EXPECTED_PAIRS into the series.
OFTEN, RATIO_AGAIN, EXPECTED_PAIRS, PASSES = 0.004, 2.2, 0.2, 4
# CHANCE_OF_A_PAIR: if chance puts fewer pairs of outliers into the series, a pair side by side is a peak of the signal and stays.
CHANCE_OF_A_PAIR = 0.004
# RUNS: fewest short runs far out above, and as many below: runs on both sides are no peaks.
RUNS = 2
# BOTH_SIDES: least distance, to one side, from the medians of three values before and after, over the distance: it excludes jumps.
BOTH_SIDES = 0.5
# CLIP: distance, in standard deviations, to which isolated values are moved; CLIP_HEAVY: this distance in noise with heavy tails, whose
# share beyond CLIP exceeds NORMAL_SHARE (0.27%, as in normal noise) by HEAVY_ERRORS standard errors.
CLIP, CLIP_HEAVY, NORMAL_SHARE, HEAVY_ERRORS = 3.0, 1.8, 0.0027, 3.5
# GAP: a longer step, in median steps, is a gap; LONG: values next to a longer step are compared with LIKE values next to similar steps.
GAP, LONG, LIKE = 1.5, 2.0, 40
# NEAR: neighbours on either side whose median distance is the least level, because all distances are large within a burst of noise.
NEAR = 12
# SEVEN_MEDIAN: median distance of normal noise of 1 from the nearer of the medians of the seven values before and after.
SEVEN_MEDIAN = 0.49
# BROKEN: ratio below which the level from SEVEN_MEDIAN replaces the trimmed one (0.27 to 0.56 with 16% outliers and more, 0.75 to 6
# without), if less than LEFT of the values are far out. The trimmed level is right with 12% outliers, four times too high with 16%.
BROKEN, LEFT = 0.6, 0.02
# IMPULSE: eighth differences of an outlier of 1, over 70; IMPULSE_DEVIATION: their standard deviation in normal noise of 1. A wave of six
# points per cycle keeps 1.4% of its height in them.
IMPULSE, IMPULSE_DEVIATION = np.array([1, -8, 28, -56, 70, -56, 28, -8, 1]) / 70, 1.62
# HALF: points on either side in a robust cubic; ROUNDS: rounds of reweighting, of which FIRST_ROUNDS are by 1/|r|, |r| at least
# LEAST_RESIDUAL medians, the others by the bisquare, at least LEAST_WEIGHT.
HALF, ROUNDS, FIRST_ROUNDS, LEAST_RESIDUAL, LEAST_WEIGHT = 6, 10, 6, 0.2, 1e-3
# SMOOTH_LEVELS, SMOOTH_DISTANCE: largest deviation of the values around an outlier from a cubic, in noise levels or in distances of the
# outlier from it; BETTER: largest sum of squares, over that of a cubic with a jump.
SMOOTH_LEVELS, SMOOTH_DISTANCE, BETTER = 2.0, 0.125, 0.5


class Cleaned(NamedTuple):
    """A series without its outliers: values (n,) with heavy tails cut, and the mask of outliers (n,)."""

    values: Floats
    outliers: NDArray[np.bool_]

    def keeping(self, some: NDArray[np.bool_], values: Floats) -> "Cleaned":
        """The cleaned series with the original values (n,) at `some` points (n,), which are no outliers."""
        return Cleaned(np.where(some, values, self.values), self.outliers & ~some)


def clean(values: Floats, level: float) -> Cleaned:
    """The series without isolated outliers (n,), in the order of their times, and with the tails of the noise moved to its middle.

    Distances are measured from the median of the two values on either side, in units of the noise `level` or of the median distance
    nearby, if that is larger. Only isolated values count: a peak of the signal raises its neighbours, and a jump is near one side. White
    normal noise of 1,024 points loses one value in 40 series, and a quarter of a percent is moved. With several outliers the search is
    repeated among the other values; with many it includes pairs and outliers next to others. Outliers that recur, or whose neighbours
    rise with them, are peaks of the signal: then all values stay. In fewer than 400 points a peak may have a single point: if several
    outliers are mostly on one side, or one in twelve points or more is far out, they stay if they resemble peaks
    (`peaks.resemble_peaks`), and otherwise only outliers beyond `FAR_ALONE` count.

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
    """Whether any value (n,) may be an outlier: its distance from the median of the two on either side is at least `FAR`."""
    return values.size >= SHORTEST and _any_far_out(values, FAR * NEARBY_DEVIATION * level)


def _median_level(values: Floats) -> float:
    """The noise level of values (n,) from the median distance to neighbours; 0 for fewer than `SHORTEST` values."""
    return float(np.median(_distances(values)[2])) / SEVEN_MEDIAN if values.size >= SHORTEST else 0.0


def stand_alone(values: Floats, level: float) -> NDArray[np.bool_]:
    """The mask of isolated values (n,) beyond `FAR_ALONE`, which are outliers of a short series whatever the other values are."""
    first = _first_look(values, level)
    return np.zeros(values.size, dtype=bool) if first is None else first.beyond(FAR_ALONE)


def without_those_beyond_gaps(cleaned: Cleaned, times: Floats, values: Floats, level: float) -> Cleaned:
    """The cleaned series without outliers next to long time steps that are no farther out than other values next to similar steps.

    Over a long step a signal changes by more than the noise, so an outlier must exceed `FAR` both by these values and by the noise
    `level`. times and values (n,), in order.
    """
    steps = np.diff(times)
    longest = np.maximum(np.append(steps[:1], steps), np.append(steps, steps[-1:]))
    usual = np.median(longest)  # 0 if most times have several values
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
    """The number of isolated values (n,) that are far out but stay as peaks of the signal, and why; "" if they only may be peaks.

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
    """Values compared with the values around them; all (n,)."""

    nearby: Floats  # the median of the two values on either side
    above: Floats  # the value minus `nearby`
    unit: Floats  # the unit of distances
    isolated: NDArray[np.bool_]

    def beyond(self, far: float) -> NDArray[np.bool_]:
        """The mask of isolated values that are farther than `far` units from their neighbours (n,)."""
        return self.isolated & (np.abs(self.above) > far * self.unit)


def _first_look(values: Floats, level: float) -> Look | None:
    """The comparison for the original series; None if nothing is far out, as in most short series."""
    if values.size < SHORTEST or level <= 0 or not _any_far_out(values, CLIP * NEARBY_DEVIATION * level):
        return None
    look = _look(values, level, RATIO)
    return look if look.beyond(CLIP).any() or _among_others(values, NEARBY_DEVIATION * level, similar=2).any() else None


def _any_far_out(values: Floats, far: float) -> bool:
    """Whether any value is farther than `far` from the median of the two on either side, in few steps for short series."""
    one = np.diff(np.concatenate([values[[2, 1]], values, values[[-2, -3]]]))
    two = one[1:] + one[:-1]
    differences = np.stack([one[1:-2], two[:-2], -one[2:-1], -two[2:]])  # from x_{i−1}, x_{i−2}, x_{i+1} and x_{i+2}
    twice_from_median = np.sort(differences, axis=0)[1:3].sum(axis=0)
    return bool(np.abs(twice_from_median).max() > 2 * far)


def _may_be_peaks(values: Floats, first: Look | None, outliers: NDArray[np.bool_]) -> bool:
    """Whether the outliers of a short series (n,) may be peaks of a single point, by the first comparison or by all outliers."""
    on_sight = first is not None and may_be_peaks(np.where(first.beyond(FAR), first.above, 0.0))
    return on_sight or may_be_peaks(above_others(values, outliers))


def _looked(values: Floats, level: float) -> tuple[Look | None, Cleaned, NDArray[np.bool_]]:
    """The first comparison of values (n,), the cleaned series, and the mask of outliers that a quick signal hides from medians (n,)."""
    first = _first_look(values, level)
    cleaned = _cleaned(values, level, first) if first else Cleaned(values, np.zeros(values.size, dtype=bool))
    hidden = np.zeros(values.size, dtype=bool)
    for _ in range(PASSES):  # once an outlier is removed, the neighbours of others are near a cubic
        more = _hidden(values, level, cleaned.outliers | hidden)
        if not more.any():
            break
        hidden |= more
    return first, cleaned._replace(outliers=cleaned.outliers | hidden), hidden


def _hidden(values: Floats, level: float, outliers: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Outliers (n,) that a quick signal hides from medians, next to known outliers (n,): isolated values far from a robust curve."""
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
    """The marked values (n,) that are isolated among the others (n,) and not next to a jump (n,)."""
    marked = marked.copy()
    marked[:NEIGHBOURS] = marked[-NEIGHBOURS:] = False
    windows = np.lib.stride_tricks.sliding_window_view(others, 2 * NEIGHBOURS + 1)[np.flatnonzero(marked) - NEIGHBOURS].copy()
    windows[:, NEIGHBOURS] = values[marked]
    marked[marked] = _impulses(windows, level)
    return marked


def _impulses(windows: Floats, level: float) -> NDArray[np.bool_]:
    """Whether windows (m, points) are a cubic except for the middle point, and no cubic with a jump before or after it (m,)."""
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
    """A mask with True at points (count,)."""
    marks = np.zeros(count, dtype=bool)
    marks[points] = True
    return marks


def _eighth_differences(values: Floats) -> Floats:
    """Eighth differences, in units of an outlier's size (n,); the series is reflected through its first and last value."""
    return np.convolve(np.pad(values, IMPULSE.size // 2, mode="reflect", reflect_type="odd"), IMPULSE, "valid")


def _near(marked: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """The mask of points within `reach` of marked points (n,)."""
    counts = np.cumsum(np.pad(marked, (reach + 1, reach)))
    return counts[2 * reach + 1 :] > counts[: -2 * reach - 1]


def _robust_cubics(values: Floats, some: NDArray[np.bool_]) -> Floats:
    """Values (n,), with `some` (n,) replaced by robust cubics through the values around them (bisquare, after least |r|)."""
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
            # Outliers raise the distances around them: once removed, outliers next to them become visible.
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
    unit = np.maximum(NEARBY_DEVIATION * level, medians(_shifted(distances, NEAR, NEAR)) / 0.6744897501960817)
    return Look(nearby, values - nearby, unit, isolated)


def _shifted(values: Floats, before: int, after: int) -> list[Floats]:
    """The values shifted by −`before` to `after` points, (n,) each; the series is reflected at its ends."""
    padded = np.pad(values, (before, after), mode="reflect")
    return [padded[start : start + values.size] for start in range(before + 1 + after)]


def _isolated(values: Floats, ratio: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The median of the two values on either side, the distance from it, and whether the value is isolated; all (n,)."""
    near = _shifted(values, 6, 6)  # the value itself at 6
    nearby, around = medians([*near[4:6], *near[7:9]]), medians([*near[:4], *near[9:]])
    left, right = values - medians(near[3:6]), values - medians(near[7:10])
    distances = np.abs(values - nearby)
    return nearby, distances, _stands_out(left, right, distances) & (distances > ratio * np.abs(nearby - around))


def _next_to(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the previous or the next value is marked (n,)."""
    return np.append(False, marked[:-1]) | np.append(marked[1:], False)


def _stands_out(left: Floats, right: Floats, distances: Floats) -> NDArray[np.bool_]:
    return (np.sign(left) == np.sign(right)) & (np.minimum(np.abs(left), np.abs(right)) > BOTH_SIDES * distances)


def _pairs(values: Floats, far: Floats) -> NDArray[np.bool_]:
    """The mask of pairs of neighbours that are far out to one side from the three values before and after them (n,)."""
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
    """Heights above the median of the seven values before and of the seven after, and the smaller distance; all (n,)."""
    near = _shifted(values, 7, 7)
    left, right = values - medians(near[:7]), values - medians(near[8:])
    return left, right, np.minimum(np.abs(left), np.abs(right))


def _on_both_sides(runs: NDArray[np.bool_], above: Floats) -> bool:
    """Whether at least `RUNS` short runs of values far out (n,) are above the others, and as many below: peaks are on one side."""
    starts = runs & ~np.append(False, runs[:-1])
    return bool(min(np.sum(above[starts] > 0), np.sum(above[starts] < 0)) >= RUNS)


def _among_others(values: Floats, level: float, similar: int = 1) -> NDArray[np.bool_]:
    """The mask of values far out to one side from the medians of the seven before and after, also next to other outliers (n,).

    A peak has similar neighbours: at most `similar` of the four values next to an outlier are near it.
    """
    left, right, distances = _distances(values)
    unit = np.maximum(level, medians(_shifted(distances, NEAR, NEAR)) / SEVEN_MEDIAN)
    near = _shifted(values, 2, 2)
    alike = sum((np.abs(neighbour - values) < distances / 2).astype(np.intp) for neighbour in (*near[:2], *near[3:]))
    return (np.sign(left) == np.sign(right)) & (distances > FAR * unit) & (alike <= similar)
