"""The report of a smoothing in sentences, by section: from the input to warnings."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overt.smoothing.data.condition import Condition
from overt.smoothing.data.periods import length_as_option, length_in_words
from overt.smoothing.data.times import date_in_words, moment_in_words
from overt.smoothing.noise.guard import unremoved_sentence
from overt.smoothing.reporting.changes import known_changes
from overt.smoothing.reporting.explanation import chosen_from_all
from overt.smoothing.reporting.steps import kind_in_words, step_text
from overt.smoothing.seasons.detect import CALENDAR, calendar_multiple, suggested_period
from overt.smoothing.selection.risk import STANDARD_ERRORS
from overt.smoothing.selection.waves import is_quick, roughest_period

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# QUICK_PERIOD: longest period, in steps, of a wave that looks like noise.
QUICK_PERIOD = 12.0
# CORRELATED: least factor on the noise level from which correlations that few points do not exclude are mentioned.
CORRELATED = 1.1
# TURNS: full turns in question; JUMP: least jump between neighbours, in turns; LEAST_JUMPS, LEAST_TURNED: fewest jumps and values.
TURNS, JUMP, LEAST_JUMPS, LEAST_TURNED = {2 * np.pi: "2π", 24.0: "24", 360.0: "360"}, 0.75, 3, 20
# NO_FORECAST: sentence on every curve that is not causal.
NO_FORECAST = "Each point of the curve uses later values as well, so the curve is not a forecast."
# _LISTED: changes that are listed.
_LISTED = 3


class Report(NamedTuple):
    """The sections of a report, in the order in which an analyst reads them; "" if there is nothing to report."""

    read: str
    noise: str
    error: str
    outliers: str
    season: str
    changes: str
    caution: str  # warnings


def make_report(result: "Smoothing") -> Report:
    """The report of `Smoothing.report`."""
    condition = result.condition
    return Report(
        read=_joined(_rows(result, condition), *condition.time_sentences(), step_text(result, "repeats", "filling", "empty")),
        noise=_joined(_noise(result), step_text(result, "flat")),
        error=_joined(_error(result), _band(result)),
        outliers=_outliers(result),
        season=_joined(_seasons(result), _suggestion(result)),
        changes=_changes(result),
        caution=_joined(
            too_narrow(result),
            raises_the_error(result),
            _turns(result),
            *(sentence for sentence in condition.value_sentences() if sentence not in result.withheld),
            _outliers_that_stay(result),
            _forecast(result),
        ),
    )


def describe(result: "Smoothing") -> str:
    """The sentences of `Smoothing.sentence`: all sections of the report."""
    return _joined(*make_report(result))


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _rows(result: "Smoothing", condition: Condition) -> str:
    """The sentence on the number of rows, their first and last time, and the step between them."""
    counted = f"{result.points} row" if result.points == 1 else f"{result.points} rows"
    times = result.times
    if times.unit == "steps" or result.points == 1:
        return f"{counted}."
    first, last = (moment_in_words(moment, times) for moment in (times.moments.min(), times.moments.max()))
    apart = ", at uneven times" if result.points > 5 else ""
    if condition.step is not None and not condition.rate_changes:
        apart = (
            f", one per {condition.step_name}"
            if condition.step_name
            else f", {length_in_words(condition.step, times.unit)} apart"
        )
    return f"{counted} from {first} to {last}{apart}."


def _outliers_that_stay(result: "Smoothing") -> str:
    """The sentence on isolated values that are far out but recur, or are too many to be removed from a short series."""
    if not result.options.cleans:
        return ""
    sentence, _ = unremoved_sentence(result.series, result.estimate)
    return "" if sentence in result.withheld else sentence


def _outliers(result: "Smoothing") -> str:
    """The sentence on removed values, or on their absence."""
    removed = step_text(result, "codes", "outliers")
    cleaned = result.options.cleans or result.options.robust is True
    return removed or (
        "No outliers were found." if cleaned and not unremoved_sentence(result.series, result.estimate)[0] else ""
    )


def _seasons(result: "Smoothing") -> str:
    automatic = isinstance(result.options.period, str) and result.options.period == "auto"
    return step_text(result, "season") or ("No season was found." if automatic else "")


def _forecast(result: "Smoothing") -> str:
    """The sentence on the use of later values."""
    if not result.options.causal:
        return NO_FORECAST
    chosen = chosen_from_all(result)
    return f"Each point uses the present and the past only, but later values entered the choice of {chosen}." if chosen else ""


def _changes(result: "Smoothing") -> str:
    """The sentences on changes of level and slope, with size and probability, if they are computed."""
    changes, zone = known_changes(result), result.times.zone
    if changes is None:
        return ""
    named = [
        f"The {change.kind} {'rises' if change.size > 0 else 'falls'} by {abs(change.size):.3g} at {date_in_words(change.time, zone)} "
        f"(probability {change.probability:.2g})."
        for change in changes[:_LISTED]
    ]
    more = len(changes) - _LISTED
    others = f"… and {more} more {'change' if more == 1 else 'changes'}." if more > 0 else ""
    return _joined(*named, others) or "No change of level or slope was found."


def too_narrow(result: "Smoothing") -> str:
    """The sentence on a passed bandwidth below half a step; "" for a span, whose bandwidth was not passed."""
    return "" if result.automatic is not None else result.options.too_narrow(result.times)


def raises_the_error(result: "Smoothing") -> str:
    """The sentence on a span that is estimated to raise the error over the automatic choice, by a tenth and two standard errors."""
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
    """The risk minus that of another curve, and its standard error, from pointwise differences of Stein's estimates."""
    known = ~np.isnan(result.observed) & ~other.outliers
    squares = (result.residuals[known] ** 2) - (other.residuals[known] ** 2)
    freedom = result.degrees_of_freedom - other.degrees_of_freedom
    return float(squares.mean() + 2 * other.noise**2 * freedom / squares.size), float(squares.std() / np.sqrt(squares.size))


def _turns(result: "Smoothing") -> str:
    """The question whether values are angles or times of day, if they jump from one end of a full turn to the other."""
    known = result.observed[~np.isnan(result.observed)]
    if result.options.circular is not None or known.size < LEAST_TURNED or known.min() < 0:
        return ""
    for turn, name in TURNS.items():
        jumps = int(np.sum(np.abs(np.diff(known)) > JUMP * turn))
        if known.max() <= turn and jumps >= LEAST_JUMPS:
            return (
                f"The values jump {jumps} times between near 0 and near {name}. Are they angles or times of day? "
                f"circular={turn:.6g} smooths them the shorter way round."
            )
    return ""


def _suggestion(result: "Smoothing") -> str:
    """The sentence on the option that models a season in a series that was smoothed without one."""
    if result.options.period is not None:
        return ""
    step = result.series.step
    period = suggested_period(result.series, dates=result.times.origin is not None)
    if period is None:
        return _waves(result)
    seconds = period * step
    name = CALENDAR.get(seconds) if result.unit == "seconds" else None
    looks = f"The values look {name}" if name else f"The values repeat every {length_in_words(seconds, result.unit)}"
    gap = _longest_gap(result)
    fills = (
        f" and fills gaps (the longest is {length_in_words(gap, result.unit)}) from other cycles" if gap > seconds / 2 else ""
    )
    return f"{looks}: period={length_as_option(seconds, result.unit)} separates this season from the trend{fills}."


def _longest_gap(result: "Smoothing") -> float:
    """The longest time without a value, in the unit of the times."""
    known = np.sort(result.times.moments[~np.isnan(result.observed)])
    return float(np.diff(known).max(initial=0.0)) - result.series.step


def _waves(result: "Smoothing") -> str:
    """The sentence on waves that differences cannot distinguish from noise: only the spectrum shows them."""
    waves, series = result.estimate.waves, result.series
    if waves is None or not is_quick(series.key_times, series.key_values, waves):
        return ""
    period = roughest_period(series.key_times, waves)
    if period > QUICK_PERIOD:
        return ""
    seconds = period * series.step
    whole = calendar_multiple(seconds) if result.times.origin is not None else None
    option = length_as_option(whole, result.unit) if whole else '"auto"'
    part = f" (part of a {CALENDAR[whole]} cycle?)" if whole else ""
    return (
        f"There is a repeating pattern of {length_in_words(seconds, result.unit)}{part}, which stays in the curve although it is as quick "
        f"as noise. period={option} smooths it as a season."
    )


def _noise(result: "Smoothing") -> str:
    """The sentence on the kind of noise and its standard deviation."""
    if result.kind:
        return f"{step_text(result, 'scale') or kind_in_words(result)} {_level(result)}"
    if result.noise == 0.0:
        if result.withheld:
            return ""
        return "The noise was given as 0." if result.options.noise is not None else "The second differences show no noise."
    return _level(result)


def _level(result: "Smoothing") -> str:
    source = "estimated" if result.options.noise is None or isinstance(result.options.noise, str) else "given"
    varies = ", on average: it varies" if result.kind or np.ptp(result.unit_levels) > 1e-12 * result.unit_levels.max() else ""
    deviation = f"The noise has a standard deviation of {result.noise:.3g} ({source}{varies})"
    if result.kind or result.withheld:
        return f"{deviation}."
    correlation = result.estimate.correlation
    kind = "independent from point to point" if not correlation else f"autoregressive with a correlation of {correlation:.2g}"
    if result.estimate.level_factor > CORRELATED:
        kind = "correlated as far as so few points do not exclude"
    return f"{deviation}, if it is {kind} and close to normal."


def _error(result: "Smoothing") -> str:
    """The sentence on the distance between the curve and the truth, with its certainty; a bound if the estimate does not differ from 0."""
    if result.withheld:
        return ""
    if result.noise == 0.0:
        return "There is nothing to remove."
    points, values = result.series.present.size, f"the values are {result.noise:.3g} from it"
    bound = float(np.sqrt(result.risk_upper_bound))
    if result.estimable:
        error, low = np.sqrt(result.risk), np.sqrt(max(result.risk - STANDARD_ERRORS * result.risk_error, 0.0))
        away = f"The curve is about {error:.3g} from the truth (root mean square; {low:.2g} to {bound:.2g} with 95% certainty)"
        return f"{away}; {values}." if error < result.noise else f"{away}, farther than the values: smoothing raises the error."
    if bound >= result.noise:
        return f"{points} points are too few to estimate how far the curve is from the truth."
    return (
        f"The curve is less than {bound:.3g} from the truth (root mean square, 97% certainty); {values}. "
        f"How much less, {points} points do not show."
    )


def _band(result: "Smoothing") -> str:
    return (
        f"The error of the curve is unknown. {result.withheld} So there is no error estimate and no band."
        if result.withheld
        else ""
    )
