"""The final check of a curve: if it contradicts the estimated noise, its error and band mean nothing."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import SHORT, Floats, Series
from overt.smoothing.data.times import Times, moment_in_words
from overt.smoothing.noise.peaks import autocovariances
from overt.smoothing.selection.correlation import hidden_correlation
from overt.smoothing.selection.noise import NoiseEstimate
from overt.smoothing.selection.outliers import unremoved_outliers

# FOLLOWED: a curve follows the noise if its degrees of freedom exceed this part of the values; LEAST_VALUES: fewest values for the check,
# since shorter series have few values beyond their signal.
FOLLOWED, LEAST_VALUES = 0.8, 30
# PERHAPS_FOLLOWED, PERHAPS_CORRELATED: degrees of freedom over values, and factor on the noise level from correlations that are not
# excluded, above which a curve may follow correlated noise. At 150 to 240 points all bands under AR 0.8 go (they held 0.61 of the truth),
# 13 of 17 under AR 0.95, 5 of 140 under white noise.
PERHAPS_FOLLOWED, PERHAPS_CORRELATED = 0.36, 1.05
# QUICK, HIDDEN, BEYOND_ESTIMATED: from SHORT points on, least degrees of freedom over values, and least gain in log-likelihood if a part of
# the noise is an autoregression: without an estimated ρ, and with one, whose error adds some gain. At 400 and 1,000 points 83 and 90% of
# the bands go under AR(3) (they held 0.47 and 0.55 of the truth), 70 and 92% under AR(1) with white noise (0.70 and 0.68), and 10 and 0 of
# 195 under white noise, 8 of these at chirps.
QUICK, HIDDEN, BEYOND_ESTIMATED = 0.08, 0.5, 1.0
# CONCENTRATED: largest share of the curve's squared steps in their largest tenth: 0.44 if normal, 0.4 to 0.7 if the curve follows such
# noise, 0.8 to 1 at peaks and jumps. REPEATING: least autocorrelation of the steps of a repeating signal: 0.9 to 1 for seasons, at most
# 0.84 for 198 curves that follow such noise.
CONCENTRATED, REPEATING = 0.75, 0.85
# BEYOND: how far a curve may leave the range of the values, in widths of that range.
BEYOND = 1.0
# NORMAL: 10% to 90% range of normal noise over its interquartile range; CLOSER: how much less it is for residuals, times √n: at most 6 in
# 24 kinds of noise but rounded values, 9 and more if a quickly switching signal is left in them.
NORMAL, CLOSER = 1.902, 8.0
# SKEWED: largest distance of the median from the middle of the 10% to 90% range, in halves of that range: 0.56 if lognormal.
SKEWED, QUANTILES = 0.7, np.array([0.1, 0.25, 0.5, 0.75, 0.9])
# SHORTEST, LONGEST: points of an abrupt run; COMPARED: points on either side whose medians define the line below the run. Of 1,188 series
# of the development signals 20 have a run under white noise, 1,016 with two pairs of outliers, 965 with two longer runs.
SHORTEST, LONGEST, COMPARED = 2, 12, 8
# HEIGHT: least distance of a run from the line, in noise levels; STEP: least first and last step, in heights; WITHIN, LEVELS_WITHIN:
# largest distance of a point from the median of the run or from the line, in heights or in noise levels.
HEIGHT, STEP, WITHIN, LEVELS_WITHIN = 7.0, 0.6, 1 / 3, 3.5
# EVENTS: fewest abrupt runs that are events of the signal, if all are on one side. NAMED: runs that a sentence names.
EVENTS = 3
NAMED = 4


def objection(values: Floats, curve: Floats, degrees_of_freedom: float, noise: float, level_factor: float = 1.0) -> str:
    """Why no error can be stated for a curve (n,) of known values (n,), one sentence; "" if nothing contradicts it.

    `level_factor`: the factor on the noise level from correlations that the values are too few to exclude.

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
    """Why no error can be stated for a curve (n,) of values (n,), if the curve may follow correlated noise; "" otherwise."""
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
    """Whether the autocorrelation of steps (n,) returns to `REPEATING` after it has fallen below 0, at lags below n/3."""
    products = autocovariances(steps)
    below = np.flatnonzero(products < 0)
    return bool(below.size and products[below[0] :].max() > REPEATING * products[0])


def _switch(residuals: Floats) -> bool:
    """Whether residuals (n,) are at two levels: their quantiles are too close together for noise, or too asymmetric."""
    ranked = np.sort(residuals[~np.isnan(residuals)])
    low, first, middle, third, high = np.interp(QUANTILES * (ranked.size - 1), np.arange(ranked.size), ranked)
    close = third > first and (high - low) / (third - first) < NORMAL - CLOSER / residuals.size**0.5
    return bool(close or abs(low + high - 2 * middle) > SKEWED * (high - low) > 0)


def abrupt_runs(values: Floats, level: float) -> NDArray[np.intp]:
    """Runs of a few values (n,) that jump away and back: 1 at points of runs upward, −1 of runs downward, 0 elsewhere (n,).

    Runs are errors of the sensor or events of the signal; the values do not distinguish these.

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
    """Whether the middle points of windows (m, points), without the `COMPARED` at either end, are an abrupt run (m,)."""
    length = windows.shape[1] - 2 * COMPARED
    before, after = np.median(windows[:, :COMPARED], axis=1), np.median(windows[:, -COMPARED:], axis=1)
    # The position along the line: ±½ at the middle of the compared points on either side.
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
    """The sentence on values that may or may not be errors, with noise levels (n,); "" if there are none."""
    sentence, peaks = unremoved_sentence(series, estimate) if series.present.size < SHORT else ("", False)
    return _doubtful_runs(series, times, levels) if peaks or not sentence else sentence


def unremoved_sentence(series: Series, estimate: NoiseEstimate) -> tuple[str, bool]:
    """The sentence on isolated values that are far out but stay in the series, and whether they are peaks of the signal.

    Noise that follows the curve has no single level by which values could be far out: then the sentence is "".
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
    """The sentence on abrupt runs that may be errors, with noise levels (n,); "" without any, or if several to one side are events."""
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
