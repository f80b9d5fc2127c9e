"""The last look at a finished curve: whether it contradicts the noise that was found, so that its error and band mean nothing."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats, Series
from overt.smoothing.data.times import Times, moment_in_words
from overt.smoothing.noise.peaks import autocovariances
from overt.smoothing.selection.correlation import hidden_correlation
from overt.smoothing.selection.noise import NoiseEstimate
from overt.smoothing.selection.outliers import unremoved_outliers

# A curve of more degrees of freedom than this part of the values follows their noise; shorter series have few values beyond their signal.
FOLLOWED, LEAST_VALUES = 0.8, 30
# With so many degrees of freedom, and where the correlations that few values do not exclude raise the level by this factor, a curve may
# follow correlated noise: at 150 to 240 points all bands under AR 0.8 go (they held 0.61 of the truth), 13 of 17 under 0.95, 5 of 140 under
# white noise.
PERHAPS_FOLLOWED, PERHAPS_CORRELATED = 0.36, 1.05
# Series from SHORT points on: so many degrees of freedom, and so much more log-likelihood if a part of the noise is an autoregression. The
# largest tenth of the curve's squared steps are at most this part of their sum: 0.44 of normal ones, 0.4 to 0.7 of a curve that follows
# such noise, 0.8 to 1 of peaks and jumps. At 400 and 1,000 points 83 and 90% of the bands under AR(3) go (they held 0.47 and 0.55 of the
# truth), 70 and 92% under AR(1) with white noise (0.70 and 0.68), and under white noise 10 and 0 of 195, 8 of these at chirps. Beyond an
# estimated ρ it is more, since its error gives some. Steps whose autocorrelation returns to this are those of a signal that repeats: 0.9 to
# 1 of seasons, at most 0.84 of 198 curves that follow such noise.
QUICK, HIDDEN, BEYOND_ESTIMATED, CONCENTRATED, REPEATING = 0.08, 0.5, 1.0, 0.75, 0.85
# A curve may leave the range of the values by this part of it.
BEYOND = 1.0
# The ratio of the distance between the 10% and 90% quantiles to the interquartile range of normal noise, and by how much it is less for
# residuals, times √n: at most 6 in 24 kinds of noise but rounded values, 9 and more if a signal that switches quickly is left in them.
# The middle of skewed noise is so far at most from the middle of these quantiles, in halves of their distance: 0.56 if lognormal.
NORMAL, CLOSER, SKEWED, QUANTILES = 1.902, 8.0, 0.7, np.array([0.1, 0.25, 0.5, 0.75, 0.9])
# An abrupt run has so few points and is compared with a line through the medians of so many on either side. It is so many levels of the
# noise from that line, begins and ends with a step of this part of its height, and all points stay within a third of it, or so many levels.
# Of 1,188 series of the development signals under white noise 20 have one, of those with two pairs of outliers 1,016, of those with two
# longer runs 965.
SHORTEST, LONGEST, COMPARED = 2, 12, 8
HEIGHT, STEP, WITHIN, LEVELS_WITHIN = 7.0, 0.6, 1 / 3, 3.5
# So many abrupt runs to one side, and none to the other, are events of the signal.
EVENTS = 3
# So many runs are named.
NAMED = 4


def objection(values: Floats, curve: Floats, degrees_of_freedom: float, noise: float, level_factor: float = 1.0) -> str:
    """Why no error can be stated for a curve (n,) of known values (n,), one sentence; "" if nothing contradicts it.

    `level_factor`: by how much the correlations that so few values do not exclude raise the level of the noise.

    >>> objection(np.arange(100.0), np.arange(100.0), 99.0, 1.0).partition(",")[0]
    'The curve has 99 degrees of freedom for 100 values'
    """
    many = values.size >= LEAST_VALUES
    if noise > 0 and many and degrees_of_freedom > FOLLOWED * values.size:
        return (
            f"The curve has {degrees_of_freedom:.3g} degrees of freedom for {values.size} values, so that it follows nearly all of them: "
            "the noise is of a kind that was not recognized, or the signal is as quick as noise."
        )
    if many and level_factor > PERHAPS_CORRELATED and degrees_of_freedom > PERHAPS_FOLLOWED * values.size:
        return (
            "So few values do not distinguish correlated noise from a quick signal: the curve follows either, with "
            f"{degrees_of_freedom:.3g} degrees of freedom for {values.size} values."
        )
    if many and noise > 0 and _switch(values - curve):
        return (
            "The residuals are not distributed like noise: most of them are at two levels, as those of a signal that switches quickly, "
            "which the curve has smoothed away."
        )
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    slack = BEYOND * (high - low)
    known = curve[~np.isnan(curve)]
    if known.size and (known.min() < low - slack or known.max() > high + slack):
        return "The curve leaves the range of the values by more than that range."
    return ""


def correlation_objection(values: Floats, curve: Floats, estimate: NoiseEstimate, degrees_of_freedom: float) -> str:
    """Why no error can be stated for a curve (n,) of values (n,) that may be a smooth signal and correlated noise, which it follows."""
    if values.size < SHORT or estimate.drawn or estimate.level == 0 or degrees_of_freedom < QUICK * values.size:
        return ""
    steps = np.diff(curve)
    squares = np.sort(steps**2)
    if squares[-(steps.size // 10) :].sum() > CONCENTRATED * squares.sum() or _repeat(steps):
        return ""
    least = BEYOND_ESTIMATED if estimate.correlation else HIDDEN
    if hidden_correlation(estimate.rest(values), estimate.correlation) < least:
        return ""
    return (
        "The spectrum does not distinguish correlated noise from a quick signal: the curve follows either, with "
        f"{degrees_of_freedom:.3g} degrees of freedom for {values.size} values."
    )


def _repeat(steps: Floats) -> bool:
    """Whether the autocorrelation of steps (n,) returns after it has fallen below 0, within a third of them."""
    products = autocovariances(steps)
    below = np.flatnonzero(products < 0)
    return bool(below.size and products[below[0] :].max() > REPEATING * products[0])


def _switch(residuals: Floats) -> bool:
    """Whether residuals (n,) are at two levels: their quantiles are too close for noise, or too far to one side."""
    ranked = np.sort(residuals[~np.isnan(residuals)])
    low, first, middle, third, high = np.interp(QUANTILES * (ranked.size - 1), np.arange(ranked.size), ranked)
    close = third > first and (high - low) / (third - first) < NORMAL - CLOSER / residuals.size**0.5
    return bool(close or abs(low + high - 2 * middle) > SKEWED * (high - low) > 0)


def abrupt_runs(values: Floats, level: float) -> NDArray[np.intp]:
    """Runs of a few values (n,) that jump away and back: 1 at points of those above, −1 below, 0 elsewhere (n,).

    They are errors of the sensor or events of the signal, and nothing in the values distinguishes these.

    >>> values = np.random.default_rng(0).normal(size=60)
    >>> values[30:34] += 12.0
    >>> np.flatnonzero(abrupt_runs(values, 1.0))
    array([30, 31, 32, 33])
    """
    runs, steps = np.zeros(values.size, dtype=np.intp), np.diff(values)
    large = np.where(np.abs(steps) > STEP * HEIGHT * level, np.sign(steps), 0.0)
    if not large.any():
        return runs
    for length in range(SHORTEST, LONGEST + 1):
        starts = 1 + np.flatnonzero(large[:-length] * large[length:] < 0)
        starts = starts[(starts >= COMPARED) & (starts + length + COMPARED <= values.size)]
        for start in starts[_jump_back(values[starts[:, None] + np.arange(-COMPARED, length + COMPARED)], level)]:
            runs[start : start + length] = large[start - 1]
    return runs


def _jump_back(windows: Floats, level: float) -> NDArray[np.bool_]:
    """Whether the middle points of windows (m, points), `COMPARED` to either side of them, are an abrupt run (m,)."""
    length = windows.shape[1] - 2 * COMPARED
    before, after = np.median(windows[:, :COMPARED], axis=1), np.median(windows[:, -COMPARED:], axis=1)
    # ±½ in the middle of those to either side.
    along = (np.arange(windows.shape[1]) - (windows.shape[1] - 1) / 2) / (length + COMPARED)
    windows = windows - (before + after)[:, None] / 2 - (after - before)[:, None] * along
    inside = windows[:, COMPARED:-COMPARED]
    height = np.median(inside, axis=1)
    steps = np.abs(inside[:, [0, -1]] - windows[:, [COMPARED - 1, -COMPARED]]).min(axis=1, initial=np.inf)
    inside -= height[:, None]
    height = np.abs(height)
    near = np.abs(windows).max(axis=1, initial=0.0) < np.maximum(LEVELS_WITHIN * level, WITHIN * height)
    return near & (height > HEIGHT * level) & (steps > STEP * height) & (np.abs(after - before) < height)


def doubt(series: Series, times: Times, levels: Floats, estimate: NoiseEstimate) -> str:
    """Which values may be errors or not, in a sentence; "" if none; levels (n,)."""
    sentence, peaks = unremoved_sentence(series, estimate) if series.present.size < SHORT else ("", False)
    return _doubtful_runs(series, times, levels) if peaks or not sentence else sentence


def unremoved_sentence(series: Series, estimate: NoiseEstimate) -> tuple[str, bool]:
    """A sentence if isolated values stand far out but stay in the series, and whether these are peaks of the signal.

    Noise that follows the curve has no one level that values could be far out of.
    """
    if estimate.drawn:
        return "", False
    count, why = unremoved_outliers(estimate.rest(series.key_values), estimate.level)
    if not count:
        return "", False
    unknown = f"outliers cannot be distinguished from peaks in fewer than {SHORT} points"
    choice = (
        "robust=True reduces their weight"
        if why
        else "pass robust=True if they are outliers, or robust=False if they are peaks"
    )
    return f"{count} isolated values stand far out and were kept: {why or unknown} ({choice}).", bool(why)


def _doubtful_runs(series: Series, times: Times, levels: Floats) -> str:
    """Which abrupt runs may be errors, one sentence; "" without any, and where several are to one side, as events are; levels (n,)."""
    runs = abrupt_runs(series.key_values, float(np.median(levels)))
    starts = np.flatnonzero(runs * (runs != np.append(0, runs[:-1])))
    if not starts.size or (starts.size >= EVENTS and np.ptp(runs[starts]) == 0):
        return ""
    moments = series.start + series.step * series.key_times[starts[:NAMED]]
    named = ", ".join(moment_in_words(moment, times) for moment in moments) + (", …" if starts.size > NAMED else "")
    return (
        f"Short runs of points jump away and back, from {named}: errors and events look alike. Mark errors as missing, or pass "
        "robust=False if all are events."
    )
