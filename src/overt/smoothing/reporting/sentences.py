"""A smoothing described in sentences."""

import functools
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.periods import length_in_words
from overt.smoothing.data.series import SHORT, Floats
from overt.smoothing.selection.outliers import wild_or_peaks
from overt.smoothing.selection.risk import STANDARD_ERRORS
from overt.smoothing.selection.waves import QUICK, roughest_period, roughness

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# The families of heads, in words.
_FAMILIES = {
    "itself": "the points as they are",
    "mean": "means over time",
    "line": "local lines",
    "parabola": "local parabolas",
    "extrapolated parabola": "local parabolas",
    "mean of the past": "one-sided means",
    "mean of the future": "one-sided means",
    "line of the past": "one-sided lines",
    "line of the future": "one-sided lines",
    "parabola of the past": "one-sided parabolas",
    "patches": "similar patches",
    "waves": "waves that a first smoothing shows",
    "segments": "segments that are constant or straight",
    "guided": "means over points that a first smoothing puts at a similar level",
}
# Waves of a longer period, in steps, do not look like noise.
QUICK_PERIOD = 12.0
# Smaller shares are not mentioned.
_MINIMUM_SHARE = 0.1


def describe(result: "Smoothing") -> str:
    """The sentences of `Smoothing.sentence`: the weights, what they depend on, and the remaining error."""
    parts = [
        _heads(result),
        too_narrow(result),
        _seasons(result),
        _waves(result),
        _reach(result),
        _outliers(result),
        _repeats(result),
        _error(result),
        raises_the_error(result),
        _band(result),
        _missing(result),
    ]
    return " ".join(part for part in parts if part)


def too_narrow(result: "Smoothing") -> str:
    """A sentence where a bandwidth that was passed is below half a step; a span has a bandwidth that was not."""
    return "" if result.automatic is not None else result.options.too_narrow(result.times)


def raises_the_error(result: "Smoothing") -> str:
    """A sentence where a span is estimated to raise the error over the automatic choice: by a tenth, and two standard errors."""
    automatic = result.automatic
    if automatic is None or result.withheld or automatic.withheld:
        return ""
    excess, error = _excess_risk(result, automatic)
    least = max(automatic.risk, 0.0)
    if excess < max(STANDARD_ERRORS * error, 0.21 * least):
        return ""
    return (
        f"This span is estimated to raise the error to about {np.sqrt(least + excess):.3g}; without it, by the same rough estimate, "
        f"it is about {np.sqrt(least):.3g}, and the noise is {automatic.noise:.3g}."
    )


def _excess_risk(result: "Smoothing", other: "Smoothing") -> tuple[float, float]:
    """By how much the risk is larger than another curve's, and the standard error: the difference of Stein's estimates, point by point."""
    known = ~np.isnan(result.observed) & ~other.outliers
    squares = (result.residuals[known] ** 2) - (other.residuals[known] ** 2)
    freedom = result.degrees_of_freedom - other.degrees_of_freedom
    return float(squares.mean() + 2 * other.noise**2 * freedom / squares.size), float(squares.std() / np.sqrt(squares.size))


def families(heads: tuple[str, ...]) -> list[str]:
    """The family of each head, in words: heads are called "line, 8 steps" or "patches of 11, 2 σ"."""
    short = [head.partition(",")[0] for head in heads]
    return [_FAMILIES.get("patches" if name.startswith("patches") else name, name) for name in short]


def _heads(result: "Smoothing") -> str:
    """The head or heads, and the weights with which a point attends."""
    options = result.options
    if result.mixture is not None:
        return _bank(result)
    if options.score == "dot":
        form = "the plain sum of" if options.normalizer == "sum" else "softmax of"
        flaw = "every point gets the same value" if options.normalizer == "sum" else "it depends on the zero of the values"
        return f"Each point became the mean of all, weighted by {form} {options.scale:g}·x_i·x_j: the literal recipe; {flaw}."
    source = "given" if options.bandwidths else "chosen for the least estimated risk"
    if isinstance(result.bandwidth, tuple):
        time, value = result.bandwidth
        near, width = "near it in time and similar in value", f"{length_in_words(time, result.unit)} and {value:.3g}"
        return f"Each point became the mean of the points {near}, weighted by Gaussians of bandwidth {width} ({source})."
    h = result.bandwidth or 0.0
    if options.keys == "time":
        through = ("the mean of", "the value of a line through", "the value of a parabola through")[options.degree]
        near, width = "near it in time", length_in_words(h, result.unit)
    else:
        through = "the mean of"
        near, width = ("similar in value" if options.keys == "value" else "with similar surroundings"), f"{h:.3g}"
    return f"Each point became {through} the points {near}, weighted by a Gaussian of bandwidth {width} ({source})."


def _bank(result: "Smoothing") -> str:
    """The families of heads with the largest weights, and where in the series each is strongest."""
    if result.mixture is None:
        return ""
    kinds, members = _kinds(result.heads)
    shares = members @ result.mixture  # (kinds, cells)
    means = shares.mean(axis=1)
    used = [kind for kind in np.argsort(-means) if means[kind] >= _MINIMUM_SHARE]
    parts = [
        f"{kinds[kind]} ({means[kind]:.0%}{where})" for kind, where in zip(used, _strongest_thirds(shares[used]), strict=True)
    ]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return (
        f"Each point is a mixture of {len(result.heads)} heads, with larger weights for lower estimated risk: mostly {listed}."
    )


@functools.lru_cache(maxsize=16)
def _kinds(heads: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """The families, and which heads belong to each (kinds, heads): the same for every series of one length."""
    names = families(heads)
    kinds = list(dict.fromkeys(names))
    return kinds, np.array([[float(name == kind) for name in names] for kind in kinds])


def _strongest_thirds(shares: Floats) -> list[str]:
    """The third of the series where each share (kinds, cells) is largest, if it is at least twice the share elsewhere."""
    cells = shares.shape[1]
    if cells < 3:
        return [""] * shares.shape[0]
    starts = np.array([0, -(-cells // 3), -(-cells * 2 // 3)])
    thirds = np.add.reduceat(shares, starts, axis=1) / np.diff(starts, append=cells)
    return [
        "" if third.max() < third.sum() - third.max() else ", mostly " + ("early", "in the middle", "late")[third.argmax()]
        for third in thirds
    ]


def _reach(result: "Smoothing") -> str:
    """The points that each point attends to."""
    scope = "Each point attends to past and future points, so the curve is not a forecast"
    if result.options.causal:
        chosen = _chosen_from_all(result)
        scope = "Each point attends to the present and past only"
        scope += f"; chosen from the whole series: {chosen}" if chosen else ""
    window = result.options.window
    return f"{scope}." if window is None else f"{scope}. The window is {length_in_words(window, result.unit)} to either side."


def _chosen_from_all(result: "Smoothing") -> str:
    """What depends on the whole series even in a causal curve."""
    options = result.options
    parts = ["the outliers"] if options.weighs_outliers else []
    if result.mixture is not None:
        parts += ["the heads"] if options.noise is not None else ["the noise level", "the heads"]
    elif options.score == "gaussian" and options.bandwidths is None:
        parts += ["the bandwidth"]
    return " and ".join(parts)


def _seasons(result: "Smoothing") -> str:
    """The periods, where they are from, and what they explain."""
    automatic = isinstance(result.options.period, str) and result.options.period == "auto"
    if result.seasons is None:
        return "No season was found." if automatic else ""
    kind, verb = ("A period", "was") if len(result.periods) == 1 else ("Periods", "were")
    listed = " and ".join(length_in_words(period, result.unit) for period in result.periods)
    gains = " and ".join(f"{max(season.gain, 0):.0%}" for season in result.seasons.each)
    return (
        f"{kind} of {listed} {verb} {'found' if automatic else 'given'}: from other "
        f"cycles attention to the same phase predicts {gains} of the variation within a cycle."
    )


def _waves(result: "Smoothing") -> str:
    """A word on waves that differences do not tell from noise: they are as quick, but stand out in the spectrum."""
    waves, series = result.estimate.waves, result.series
    if waves is None or roughness(series.key_times, series.key_values, waves) > QUICK:
        return ""
    period = roughest_period(series.key_times, waves)
    if period > QUICK_PERIOD:
        return ""
    length = length_in_words(period * series.step, result.unit)
    return (
        f"A wave of {length} is as quick as noise but stands out in the spectrum, so that it stays in the curve; "
        'period="auto" smooths it as a season.'
    )


def _outliers(result: "Smoothing") -> str:
    codes = _codes(result)
    count = int(result.outliers.sum()) - (0 if result.codes is None else int(result.codes.sum()))
    if not count:
        return codes or _outliers_that_stay(result)
    verb = "1 isolated outlier was" if count == 1 else f"{count} isolated outliers were"
    return f"{codes} {verb} left out (robust=False keeps all values).".strip()


def _codes(result: "Smoothing") -> str:
    """How often each error code occurs."""
    if result.codes is None:
        return ""
    values, counts = np.unique(result.observed[result.codes], return_counts=True)
    listed = [
        f"{value:.6g} ({count} times)" if count > 1 else f"{value:.6g}" for value, count in zip(values, counts, strict=True)
    ]
    verb = "is far from all other values, and was" if len(listed) == 1 else "are far from all other values, and were"
    return f"{' and '.join(listed)} {verb} left out as no measurement (robust=False keeps all values)."


def _repeats(result: "Smoothing") -> str:
    """What stays as it is, or does not count, and what to do where it should not."""
    count, hold = int(result.repeats.flat.sum()), result.repeats.hold
    if hold > 1:
        return f"Each value is held for {hold} points: the first of them counts, and the curve goes on between."
    if result.repeats.events > 1:
        return f"Something happens at some of the points alone: means of {result.repeats.events} points were smoothed."
    if not count:
        return ""
    return (
        f"{count} points in runs of equal values show no noise, beside others that do, and stay as they are. Where such a run only fills "
        "a gap, make it NaN."
    )


def _outliers_that_stay(result: "Smoothing") -> str:
    """A word where isolated values stand far out, but recur, or are more than may be left out of a short series."""
    if not result.options.cleans:
        return ""
    estimate = result.estimate
    count, recur = wild_or_peaks(estimate.rest(result.series.key_values), estimate.level)
    if not count:
        return ""
    why = (
        "they recur at equal intervals, as peaks of a signal do"
        if recur
        else f"fewer than {SHORT} points do not tell wild values from peaks"
    )
    return f"{count} isolated values stand far out and were kept: {why} (robust=True reduces their weight)."


def _error(result: "Smoothing") -> str:
    if result.kind:
        source = "given" if result.options.noise is not None else 'recognized from the values; noise="gaussian" turns this off'
        return (
            f"{_kind(result).format(source=source)} {_remaining_error(result).capitalize()}. "
            f"The curve has {result.degrees_of_freedom:.3g} degrees of freedom for {result.points} points."
        )
    if result.noise == 0.0 and result.withheld:
        return ""
    if result.noise == 0.0:
        zero = "The noise was given as 0" if result.options.noise is not None else "The second differences show no noise"
        return f"{zero}, so there is nothing to remove."
    source = "given" if result.options.noise is not None else "estimated"
    varies = ", on average: it varies" if np.ptp(result.unit_levels) > 1e-12 * result.unit_levels.max() else ""
    correlation = result.estimate.correlation
    kind = "independent from point to point" if not correlation else f"autoregressive with a correlation of {correlation:.2g}"
    return (
        f"If the noise is {kind} and close to normal, with a standard deviation of {result.noise:.3g} "
        f"({source}{varies}), {_remaining_error(result)}. "
        f"The curve has {result.degrees_of_freedom:.3g} degrees of freedom for {result.points - int(result.repeats.out.sum())} "
        f"{'points' if result.repeats.events == 1 else 'means'}."
    )


def _kind(result: "Smoothing") -> str:
    """What the values were recognized as, and how they were smoothed."""
    if result.kind == "logarithms":
        return (
            "The values span decades, and their noise is in proportion to them ({source}): their logarithms were smoothed, "
            "and the curve is the mean of the values."
        )
    if result.kind == "outcomes":
        low, high = result.bounds
        return f"The values are outcomes of {low:g} and {high:g} ({{source}}): their mean p was smoothed, with the variance of each."
    if result.kind == "square roots":
        return "The values are Poisson counts ({source}): 2√(x + 3/8) was smoothed, and the curve is the mean of the counts."
    return "The values are Poisson counts ({source}): they were smoothed with their mean as variance."


def _remaining_error(result: "Smoothing") -> str:
    """The remaining error: a number if its estimate differs from 0, else an upper bound."""
    if result.estimable:
        error = float(np.sqrt(result.risk))
        return f"smoothing {'lowers' if error < result.noise else 'raises'} the error to about {error:.3g}"
    bound, points = float(np.sqrt(result.risk_upper_bound)), result.series.present.size
    if bound >= result.noise:
        return f"{points} points are too few to estimate the remaining error"
    return f"the remaining error is below about {bound:.3g}; {points} points do not tell it from 0"


def _band(result: "Smoothing") -> str:
    if not result.withheld:
        return ""
    return f"{result.withheld} So the error estimate is unreliable, and there is no band."


def _missing(result: "Smoothing") -> str:
    empty = int(np.isnan(result.values).sum())
    reason = ", with no neighbour to attend to" if result.options.fill else ""
    parts = [f"Missing points filled from their neighbours: {result.filled}."] if result.filled else []
    parts += [f"Missing points left empty{reason}: {empty}."] if empty else []
    return " ".join(parts)
