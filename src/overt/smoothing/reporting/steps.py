"""The steps from the values of a series to its curve, as functions and in words. Reports read them, tests apply them."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.periods import length_in_words
from overt.smoothing.data.repeats import last_known
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import moment_in_words
from overt.smoothing.noise.recognized import kind_named
from overt.smoothing.operators.base import Operator, nothing
from overt.smoothing.operators.whole import bank_parts, head_operator, season_sum, tie_means
from overt.smoothing.reporting.explanation import heads_in_words, listed_in_words

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MOVED: least change of a value, over the spread of the series; smaller changes are rounding.
MOVED = 1e-9
# _LISTED: times of outliers that are listed.
_LISTED = 3


class Step(NamedTuple):
    """One step: its name, its effect in words, and the function from the output of the previous step (n,) to its own.

    Choices from the values (heads and their mixture, seasons, removed points) are fixed.
    """

    name: str
    text: str
    apply: Callable[[Floats], Floats]


def list_steps(result: "Smoothing") -> tuple[Step, ...]:
    """The steps of `Smoothing.steps`, in their order."""
    return tuple(_steps(result))


def step_text(result: "Smoothing", *names: str) -> str:
    """The texts of the steps with these names; "" if there are none."""
    return " ".join(step.text for step in result.steps if step.name in names and step.text)


def _steps(result: "Smoothing") -> Iterator[Step]:
    yield from _removed(result)
    if result.scaled is None:
        yield from _smoothed(result)
    else:
        inner, scale = result.scaled
        yield Step("scale", kind_in_words(result), scale.forward)
        inside = (step for step in inner.steps if step.name not in ("codes", "outliers", "empty"))
        yield from (step._replace(text=_filled(result)) if step.name == "filling" else step for step in inside)
        yield Step("back", "", scale.mean)
    if np.isfinite(result.bounds).any():
        yield Step("bounds", "", lambda curve: np.clip(curve, *result.bounds))
    empty = np.isnan(result.values)
    if empty.any():
        reason = ", with no neighbour to attend to" if result.options.fill else ""
        text = f"Missing points left empty{reason}: {int(empty.sum())}."
        yield Step("empty", text, lambda curve: np.where(empty, np.nan, curve))


def _removed(result: "Smoothing") -> Iterator[Step]:
    """The steps that remove error codes and outliers."""
    codes = np.zeros(result.points, dtype=bool) if result.codes is None else result.codes
    if codes.any():
        yield Step("codes", _codes(result), lambda values: np.where(codes, np.nan, values))
    outliers = result.outliers & ~codes
    if outliers.any():
        yield Step("outliers", _outliers(result, outliers), lambda values: np.where(outliers, np.nan, values))


def _smoothed(result: "Smoothing") -> Iterator[Step]:
    """The steps of a series in its own units: repeats, weights, tails, seasons, heads, gaps."""
    repeats, series, order = result.repeats, result.series, result.series.order
    counted = np.where(result.outliers, np.nan, result.observed)
    if repeats.out.any():
        yield Step("repeats", _repeats(result), lambda values: repeats.others(values, result.times))
        counted = repeats.others(counted, result.times)
    weightless = series.unsort(np.isnan(series.values)) & ~np.isnan(counted)
    if weightless.any():
        text = f"{int(weightless.sum())} values of weight 0 count as missing."
        yield Step("weights", text, lambda values: np.where(weightless, np.nan, values))
    season = series.unsort(season_sum(result)) * series.spread
    shift = np.nan_to_num(series.restore(series.values) + season - counted)
    moved = np.abs(shift) > MOVED * series.spread
    if moved.any():
        text = f"{int(moved.sum())} values in the tails of the noise were moved towards its middle (robust=False keeps all)."
        yield Step("tails", text, lambda values: values + np.where(moved, shift, 0.0))
    if result.head is not None:
        yield Step("heads", heads_in_words(result), lambda values: _by_row(result, values))
    else:
        yield from _by_the_bank(result, season)
    if result.filled and result.filling is None:  # a head fills gaps by itself
        yield Step("filling", _filled(result), lambda curve: curve)
    if repeats.flat.any():
        last = series.unsort(result.observed[order][last_known(result.observed[order])])
        yield Step("flat", _flat(result), lambda curve: np.where(repeats.flat, last, curve))


def _by_row(result: "Smoothing", values: Floats) -> Floats:
    """The curve of one head for values in the caller's order (n,)."""
    return result.series.unsort(head_operator(result).apply(values[result.series.order]))


def _by_the_bank(result: "Smoothing", season: Floats) -> Iterator[Step]:
    """The steps y = s + B(x − s) with the season s (n,), the filling of missing points, and the means of points at one time."""
    series = result.series
    parts = cache(lambda: bank_parts(result))

    def applied(operator: Operator, values: Floats) -> Floats:
        return series.unsort(operator.apply(values[series.order]))

    if result.seasons is not None:
        yield Step("season", _season(result), lambda values: values - season)
    yield Step("heads", heads_in_words(result), lambda values: applied(parts().heads, values))
    if result.seasons is not None:
        yield Step("season back", "", lambda curve: curve + series.unsort(parts().season_share) * season)
    if result.filling is not None:
        whole = series.restore(series.values) + season
        yield Step("filling", _filled(result), lambda curve: curve + applied(parts().whole or nothing(result.points), whole))
    if series.ties[-1] < result.points - 1:
        yield Step("ties", "Points at one time have the mean of their curve.", lambda curve: applied(tie_means(result), curve))


def kind_in_words(result: "Smoothing") -> str:
    """The sentence on the recognized kind of noise and how to turn it off, or on the passed kind."""
    options = result.options
    passed = options.noise is not None or options.transform or options.circular
    source = "given" if passed else 'recognized from the values; noise="gaussian" turns this off'
    return kind_named(result.kind).sentence(result, source)


def _codes(result: "Smoothing") -> str:
    """The sentence on error codes and their frequencies."""
    assert result.codes is not None
    values, counts = np.unique(result.observed[result.codes], return_counts=True)
    listed = [
        f"{value:.6g} ({count} times)" if count > 1 else f"{value:.6g}" for value, count in zip(values, counts, strict=True)
    ]
    verb = "is far from all other values, and was" if len(listed) == 1 else "are far from all other values, and were"
    return f"{' and '.join(listed)} {verb} removed, because such values are codes, not measurements (robust=False keeps all values)."


def _outliers(result: "Smoothing", marked: NDArray[np.bool_]) -> str:
    """The sentence on the number of removed values and the times of the first ones."""
    count = int(marked.sum())
    moments = [moment_in_words(moment, result.times) for moment in np.sort(result.times.moments[marked])[:_LISTED]]
    verb = "1 isolated outlier was" if count == 1 else f"{count} isolated outliers were"
    where = "It is at" if count == 1 else "They are at" if count <= _LISTED else "The first are at"
    return f"{verb} removed (robust=False keeps all values). {where} {listed_in_words(moments)}."


def _repeats(result: "Smoothing") -> str:
    """The sentence on held values or rare events, of which fewer values than rows were smoothed."""
    if result.repeats.hold > 1:
        return (
            f"Each value is held for {result.repeats.hold} points: the first of them counts, and the curve continues between."
        )
    if result.repeats.events > 1:
        return (
            f"The series is mostly zeros with occasional events, so averages of {result.repeats.events} points were smoothed."
        )
    return ""


def _flat(result: "Smoothing") -> str:
    """The sentence on values without noise, which stay unchanged."""
    count = int(result.repeats.flat.sum())
    return (
        f"{count} points in runs of equal values have no noise, unlike the others, and stay unchanged. If such a run only fills a gap, "
        "make it NaN."
    )


def _season(result: "Smoothing") -> str:
    """The sentence on the periods, their source and the variation that they predict."""
    assert result.seasons is not None
    source = "found" if isinstance(result.options.period, str) and result.options.period == "auto" else "given"
    kind, verb = ("A period", "was") if len(result.periods) == 1 else ("Periods", "were")
    listed = " and ".join(length_in_words(period, result.unit) for period in result.periods)
    gains = " and ".join(f"{max(season.gain, 0):.0%}" for season in result.seasons.each)
    return (
        f"{kind} of {listed} {verb} {source}: from other cycles "
        f"attention to the same phase predicts {gains} of the variation within a cycle."
    )


def _filled(result: "Smoothing") -> str:
    return f"Missing points filled from their neighbours: {result.filled}." if result.filled else ""
