"""The condition of a series: properties of its times and values that an analyst should know before trusting a curve."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.periods import length_in_words
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.times import Times, moment_in_words

# _EVEN, _WHOLE: least shares of single steps and of whole numbers of steps in a grid of times; _TOLERANCE: largest deviation, in steps.
_EVEN, _TOLERANCE, _WHOLE = 0.6, 0.1, 0.9
# _STEPS_OF_RATE: steps whose median is the rate; _FACTOR: least factor of a change; _LEAST_POINTS: fewest points on either side of it.
_STEPS_OF_RATE, _FACTOR, _LEAST_POINTS = 9, 1.5, 12
# _STUCK: fewest points in the run of a stuck sensor; _LONGER: its least length, over the longest run apart from the _FEW longest ones.
_STUCK, _LONGER, _FEW = 8, 3.0, 3
# _MOST_EQUAL: fewest runs of equal values per point; values that change more rarely are steps of a signal, such as prices.
_MOST_EQUAL = 0.3
# _LEAST_RISES: fewest rises of a counter; _FALLS: largest share of falls; _TO_START: largest height after a fall, over that before.
_LEAST_RISES, _FALLS, _TO_START = 12, 0.1, 0.2
# _LEAST_REPEATS, _LARGEST_SHARE: repeats of a suggested code; _FAR: its least distance from other values, over the distance between these.
_LEAST_REPEATS, _FAR, _LARGEST_SHARE = 3, 6.0, 0.25
_MONTH_NAMES = {1: "month", 3: "quarter", 12: "year"}
_STEP_OF_DAYS = 86400.0
_STEPS = {1.0: "second", 60.0: "minute", 3600.0: "hour", _STEP_OF_DAYS: "day", 604800.0: "week"}


class Stuck(NamedTuple):
    """A run of one value."""

    value: float
    points: int
    start: float  # in the unit of the times, from their origin
    end: float


class RateChange(NamedTuple):
    """A time at which the step between points changes."""

    time: float
    before: float
    after: float


class Code(NamedTuple):
    """A value that may be an error code."""

    value: float
    occurrences: int
    longest_run: int


@dataclass(frozen=True)
class Condition:
    """Properties of the times and values of a series. Lengths and times are in the unit of the times, from their origin."""

    points: int
    missing: int  # values that are NaN
    duplicates: int  # points at the time of an earlier point
    equal_duplicates: int  # duplicates with the value of the earlier point
    absent: int  # times of a regular grid without a point
    step: float | None  # step of the grid; None for uneven times
    step_name: str  # for example "day"; "" if the step has no name
    weekends: bool  # whether the grid has no Saturdays and Sundays
    longest_gap: float  # between two points, minus the step; 0 if no point is absent
    longest_absent: int  # points of the grid in the longest gap
    gap_start: float
    rate_changes: tuple[RateChange, ...]
    stuck: tuple[Stuck, ...]
    resets: tuple[float, ...]  # times at which a counter restarts
    codes: tuple[Code, ...]
    times: Times

    def facts(self) -> dict[str, Any]:
        """The counts as plain data, with times as text if they are dates."""
        facts = asdict(self)
        del facts["times"], facts["step_name"]
        facts["gap_start"] = self._when(self.gap_start) if self.absent else None
        facts["rate_changes"] = [{**change._asdict(), "time": self._when(change.time)} for change in self.rate_changes]
        facts["stuck"] = [{**run._asdict(), "start": self._when(run.start), "end": self._when(run.end)} for run in self.stuck]
        facts["resets"] = [self._when(time) for time in self.resets]
        facts["codes"] = [code._asdict() for code in self.codes]
        return facts

    def sentences(self) -> list[str]:
        """The sentences for an analyst, the most important first; none for a series in good condition."""
        return self.time_sentences() + self.value_sentences()

    def time_sentences(self) -> list[str]:
        """Sentences on duplicated and absent times, and on changes of the step."""
        return [part for part in (self._duplicates(), self._absent(), self._rates()) if part]

    def value_sentences(self) -> list[str]:
        """Sentences on a stuck sensor, a counter and error codes: questions, since only an analyst knows the answer."""
        return [part for part in (self._stuck(), self._resets(), codes_in_words(self.codes)) if part]

    def _duplicates(self) -> str:
        if not self.duplicates:
            return ""
        equal = f", {self.equal_duplicates} of them with the same value" if self.equal_duplicates else ""
        rows = "1 row repeats" if self.duplicates == 1 else f"{self.duplicates} rows repeat"
        return f"{rows} the time of an earlier row{equal}: their values are averaged."

    def _absent(self) -> str:
        if not self.absent or self.step is None:
            return ""
        name = "row" if self.rate_changes or not self.step_name else self.step_name
        counted = f"{self.absent} absent {name if self.absent == 1 else name + 's'}"
        gap = self._length(self.longest_gap)
        if name in _MONTH_NAMES.values():
            gap = f"{self.longest_absent} {name if self.longest_absent == 1 else name + 's'}"
        weekends = ", weekends not counted" if self.weekends else ""
        longest = (
            f"; the longest gap is {gap}, from {self._text(self.gap_start)}"
            if self.absent > 1
            else f": {self._text(self.gap_start)}"
        )
        grid = "" if self.step_name or self.rate_changes else f" in a grid of {self._length(self.step)}"
        return f"{counted}{grid}{weekends}{longest}."

    def _rates(self) -> str:
        changes = [
            f"at {self._text(change.time)} from {self._length(change.before)} to {self._length(change.after)}"
            for change in self.rate_changes[:3]
        ]
        more = f" and {len(self.rate_changes) - 3} more times" if len(self.rate_changes) > 3 else ""
        return f"The step between points changes {', '.join(changes)}{more}." if changes else ""

    def _stuck(self) -> str:
        if not self.stuck:
            return ""
        run, others = self.stuck[0], len(self.stuck) - 1
        more = f" ({others} more such {'run' if others == 1 else 'runs'})" if others else ""
        times = f"from {self._text(run.start)} to {self._text(run.end)}"
        return f"The value {run.value:g} repeats {run.points} times in a row, {times}: a stuck sensor?{more}"

    def _resets(self) -> str:
        if not self.resets:
            return ""
        times = ", ".join(self._text(time) for time in self.resets[:3]) + (", …" if len(self.resets) > 3 else "")
        counted = "once" if len(self.resets) == 1 else f"{len(self.resets)} times"
        return f"The values rise like a counter that starts again {counted} ({times}): smooth its differences instead."

    def _text(self, moment: float) -> str:
        """The text of a time; rows are counted from 1."""
        when = self._when(moment)
        return f"{when:g}" if isinstance(when, float | int) else when

    def _length(self, length: float) -> str:
        return length_in_words(length, self.times.unit)

    def _when(self, moment: float) -> float | str:
        """The text of a time if the times are dates, else a number."""
        if self.times.origin is None:
            return float(f"{moment:.6g}") if self.times.unit != "steps" else int(moment) + 1
        return moment_in_words(moment, self.times)


def find_condition(values: Floats, times: Times) -> Condition:
    """The condition of a series (n,) with its times, in any order.

    >>> days = np.datetime64("2024-01-01") + np.array([0, 1, 2, 2, 3, 6, 7, 8, 9, 10])
    >>> from overt.smoothing.data.times import read_times
    >>> for sentence in find_condition(np.arange(10.0) % 3, read_times(days, 10)).sentences():
    ...     print(sentence)
    1 row repeats the time of an earlier row: their values are averaged.
    2 absent days; the longest gap is 2 days, from 2024-01-05.
    """
    order = np.argsort(times.moments, kind="stable")
    moments, ordered = times.moments[order], values[order]
    repeated = np.flatnonzero(np.diff(moments) == 0)
    distinct = moments[np.append(True, np.diff(moments) > 0)]
    rates = _rate_changes(distinct) if times.unit != "steps" else ()
    grid = _grids(distinct, rates, times) if times.unit != "steps" else _Grid()
    return Condition(
        points=values.size,
        missing=int(np.isnan(values).sum()),
        duplicates=repeated.size,
        equal_duplicates=int((ordered[repeated] == ordered[repeated + 1]).sum()),
        **grid._asdict(),
        rate_changes=rates,
        stuck=_stuck_runs(ordered, moments),
        resets=_resets(ordered, moments),
        codes=possible_codes(ordered),
        times=times,
    )


class _Grid(NamedTuple):
    absent: int = 0
    step: float | None = None
    step_name: str = ""
    weekends: bool = False
    longest_gap: float = 0.0
    longest_absent: int = 0
    gap_start: float = 0.0


def _grids(moments: Floats, rates: tuple[RateChange, ...], times: Times) -> _Grid:
    """The grid of times whose step may change: absent points are counted in every part."""
    cuts = np.searchsorted(moments, [change.time for change in rates])
    grids = [_grid(part, times) for part in np.split(moments, cuts)]
    if len(grids) == 1:
        return grids[0]
    longest = max(grids, key=lambda grid: grid.longest_gap)
    step = longest.step or next((grid.step for grid in grids if grid.step), None)
    return longest._replace(absent=sum(grid.absent for grid in grids), step=step)


def _grid(moments: Floats, times: Times) -> _Grid:
    """The regular grid of distinct times, and the points that are absent from it."""
    steps = np.diff(moments)
    if steps.size < 4:
        return _Grid()
    step = _middle(steps)
    positions, name, weekends = _positions(moments, step, times)
    ratios = np.diff(positions) / _middle(np.diff(positions))
    counts = np.rint(ratios).astype(np.int64)
    whole = np.abs(ratios - counts) <= _TOLERANCE * np.maximum(1.0, counts / 10)
    if np.mean(whole & (counts == 1)) < _EVEN or np.mean(whole) < _WHOLE:
        return _Grid()
    longest = int(np.argmax(np.where(counts > 1, steps, 0)))
    if counts[longest] < 2:
        return _Grid(0, step, name, weekends)
    start = _after(float(moments[longest]), step, name, weekends, times)
    absent, gap = int(np.maximum(counts - 1, 0).sum()), float(steps[longest] - step)
    return _Grid(absent, step, name, weekends, gap, int(counts[longest]) - 1, start)


def _middle(steps: Floats) -> float:
    return float(np.partition(steps, (steps.size - 1) // 2)[(steps.size - 1) // 2])


def _dates(moments: Floats, times: Times) -> NDArray[Any]:
    return np.asarray(times.origin).astype("datetime64[s]") + np.rint(moments).astype("timedelta64[s]")


def _positions(moments: Floats, step: float, times: Times) -> tuple[Floats, str, bool]:
    """Times as numbers that are even on their calendar, the name of the step, and whether weekends are excluded."""
    if times.origin is None:
        return moments, _STEPS.get(step, "") if times.unit == "seconds" else "", False
    dates = _dates(moments, times)
    months = _months(dates)
    if months is not None:
        return months, _MONTH_NAMES.get(int(_middle(np.diff(months))), ""), False
    days = dates.astype("datetime64[D]")
    weekdays = (days.astype(np.int64) + 3) % 7
    if step == _STEP_OF_DAYS and (weekdays < 5).all() and days[-1] - days[0] > np.timedelta64(14, "D"):
        return np.busday_count(np.datetime64("1970-01-01"), days).astype(np.float64), "day", True
    return moments, _STEPS.get(step, ""), False


def _after(moment: float, step: float, name: str, weekends: bool, times: Times) -> float:
    """The next time on the grid."""
    if times.origin is None or not (weekends or name in _MONTH_NAMES.values()):
        return moment + step
    date = _dates(np.array([moment]), times)[0]
    if weekends:
        later = np.busday_offset(date.astype("datetime64[D]"), 1)
        return moment + float((later - date.astype("datetime64[D]")) / np.timedelta64(1, "s"))
    month = date.astype("datetime64[M]")
    months = next(count for count, other in _MONTH_NAMES.items() if other == name)
    later = (month + np.timedelta64(months, "M")).astype("datetime64[s]")
    return moment + float((later - month.astype("datetime64[s]")) / np.timedelta64(1, "s"))


def _months(dates: NDArray[Any]) -> Floats | None:
    """Dates as numbers of months, if all are the same day of their months, or all the last day; else None."""
    months, days = dates.astype("datetime64[M]"), dates.astype("datetime64[D]")
    day = (days - months.astype("datetime64[D]")).astype(np.int64)
    last = (days + np.timedelta64(1, "D")).astype("datetime64[M]") > months
    same = bool(np.unique(day).size == 1 or last.all()) and bool(np.unique(dates - days).size == 1)
    return months.astype(np.int64).astype(np.float64) if same and (np.diff(months.astype(np.int64)) > 0).all() else None


def _rate_changes(moments: Floats) -> tuple[RateChange, ...]:
    """The times at which the median of nine steps changes lastingly by a factor."""
    steps = np.diff(moments)
    if steps.size < 2 * _LEAST_POINTS:
        return ()
    half = _STEPS_OF_RATE // 2
    padded = np.pad(steps, half, mode="edge")
    rates = np.median(np.lib.stride_tricks.sliding_window_view(padded, _STEPS_OF_RATE), axis=1)
    starts = np.flatnonzero(np.append(True, np.abs(np.diff(rates)) > 0.05 * np.minimum(rates[1:], rates[:-1])))
    lengths = np.diff(starts, append=steps.size)
    lasting = starts[lengths >= _LEAST_POINTS]
    lengths = lengths[lengths >= _LEAST_POINTS]
    changes = []
    for start, length, following, after in zip(lasting[:-1], lengths[:-1], lasting[1:], lengths[1:], strict=True):
        before, later = steps[start : start + length], steps[following : following + after]
        old, new = float(np.median(before)), float(np.median(later))
        even = all(np.mean(np.abs(part - np.median(part)) <= _TOLERANCE * np.median(part)) >= 0.7 for part in (before, later))
        if even and max(old, new) >= _FACTOR * min(old, new):
            near = np.arange(max(start, following - half - 1), following + half)
            first = near[np.argmax(np.abs(steps[near] - new) <= _TOLERANCE * new)]
            changes.append(RateChange(float(moments[first]), old, new))
    return tuple(changes)


def _stuck_runs(values: Floats, moments: Floats) -> tuple[Stuck, ...]:
    """Long runs of one value, the longest first; runs that recur, such as zeros at night, do not count."""
    known = np.flatnonzero(~np.isnan(values))
    starts, lengths = _runs(values[known])
    if not lengths.size or np.unique(values[known]).size < 5:
        return ()
    usual = np.sort(lengths)[:-_FEW].max(initial=1)
    long = np.flatnonzero(lengths >= np.maximum(_STUCK, _LONGER * usual))
    # Runs of zeros are normal if no value is negative.
    long = long[(values[known[starts[long]]] != 0) | (values[known].min() < 0)]
    others = np.delete(lengths, long)
    if others.size < _MOST_EQUAL * others.sum():
        return ()
    runs = [
        Stuck(
            float(values[known[starts[at]]]),
            int(lengths[at]),
            float(moments[known[starts[at]]]),
            float(moments[known[starts[at] + lengths[at] - 1]]),
        )
        for at in long[np.argsort(-lengths[long], kind="stable")]
    ]
    return tuple(runs) if len(runs) <= _FEW else ()


def _runs(values: Floats) -> tuple[Indices, Indices]:
    """The starts and the lengths of runs of equal values."""
    starts = np.flatnonzero(np.append(True, np.diff(values) != 0))[: values.size]
    return starts, np.diff(starts, append=values.size)


def _resets(values: Floats, moments: Floats) -> tuple[float, ...]:
    """The times at which a counter restarts: values that rise, but fall a few times by most of their height."""
    known = np.flatnonzero(~np.isnan(values))
    counts = values[known]
    changes = np.diff(counts)
    falls, rises = np.flatnonzero(changes < 0), int((changes > 0).sum())
    if not falls.size or rises < _LEAST_RISES or falls.size > _FALLS * (rises + falls.size):
        return ()
    low = counts.min()
    if (counts[falls + 1] - low > _TO_START * (counts[falls] - low)).any() or falls.size * 3 > rises:
        return ()
    return tuple(float(moments[known[fall + 1]]) for fall in falls)


def codes_in_words(codes: tuple[Code, ...]) -> str:
    """The question whether values are error codes, since only an analyst knows the answer; "" without any."""
    listed = [
        f"{code.value:g} occurs {code.occurrences} times"
        + (f" in runs of up to {code.longest_run}" if code.longest_run > 1 else "")
        for code in codes
    ]
    values = ",".join(f"{code.value:g}" for code in codes)
    return (
        f"{' and '.join(listed)}: {'an error code' if len(codes) == 1 else 'error codes'}? missing=[{values}]" if codes else ""
    )


def possible_codes(values: Floats) -> tuple[Code, ...]:
    """The values (n,), in the order of their times, that repeat exactly and are far from the values before and after them."""
    known = values[~np.isnan(values)]
    levels, counts = np.unique(known, return_counts=True)
    if known.size < 20 or levels.size < 8 or counts.max() < _LEAST_REPEATS:
        return ()
    between, starts, lengths = np.diff(levels), *_runs(known)
    nearest = np.minimum(np.append(np.inf, between), np.append(between, np.inf))
    alone = (counts >= _LEAST_REPEATS) & (counts <= _LARGEST_SHARE * known.size) & (nearest > _FAR * np.median(between))
    codes = []
    for level, count in zip(levels[alone], counts[alone], strict=True):
        runs = np.flatnonzero(known[starts] == level)
        if runs.size < 2:
            continue
        before, after = known[np.maximum(starts[runs] - 1, 0)], known[np.minimum(starts[runs] + lengths[runs], known.size - 1)]
        leaps = np.minimum(
            np.abs(level - before)[before != level].min(initial=np.inf),
            np.abs(level - after)[after != level].min(initial=np.inf),
        )
        usual = float(np.quantile(np.abs(np.diff(known[known != level])), 0.95))
        if np.isfinite(leaps) and leaps > max(_FAR / 2 * usual, 0.0):
            codes.append(Code(float(level), int(count), int(lengths[runs].max())))
    return tuple(codes) if len(codes) <= 3 else ()
