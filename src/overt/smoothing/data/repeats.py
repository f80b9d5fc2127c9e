"""Values that repeat in a series with noise: flat runs, for example at night; values that are held; zeros between rare events."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.events import event_length, event_means
from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.times import Times

# SHORTEST: fewest equal values in a row of a flat run if no other neighbours are equal: continuous noise never repeats a value.
SHORTEST = 5
# FALSE_RUNS: chance runs expected to be taken for flat ones in one series; EQUAL_ELSEWHERE: largest share of equal neighbours outside
# runs: beyond it, values are rounded more coarsely than their noise, or most values are zero.
FALSE_RUNS, EQUAL_ELSEWHERE = 1e-3, 0.3
# LEAST_OTHERS: fewest values outside flat runs; MEAN_STRETCH: least mean length of their stretches. Steps between constants leave fewer.
LEAST_OTHERS, MEAN_STRETCH = 20, 4
# LEAST_CHANGES: fewest changes between held values; LONGEST_HOLD: most points of a held value; TURNS: least share of changes that turn. A
# signal has fewer and longer steps, and a staircase does not turn; two thirds of the changes of noise turn.
LEAST_CHANGES, LONGEST_HOLD, TURNS = 20, 8, 0.25


class Repeats(NamedTuple):
    """Values that are excluded from smoothing: flat runs, repeats of held values, and rare events, whose means replace them."""

    flat: NDArray[np.bool_]  # (n,)
    copies: NDArray[np.bool_]  # (n,) for rare events all but the middle point of a mean
    hold: int = 1  # points for which a value is held
    events: int = 1  # points of a mean of rare events

    @classmethod
    def none(cls, count: int) -> "Repeats":
        """No repeats among `count` values."""
        return cls(np.zeros(count, dtype=bool), np.zeros(count, dtype=bool))

    @property
    def out(self) -> NDArray[np.bool_]:
        """The mask of excluded values (n,)."""
        return self.flat | self.copies

    def others(self, values: Floats, times: Times) -> Floats:
        """The values (n,) that count, NaN if excluded; means of rare events."""
        others = np.where(self.out, np.nan, values)
        if self.events > 1:
            order = np.argsort(times.moments, kind="stable")
            others[order] = event_means(values[order], self.events)
        return others


def find_repeats(values: Floats, times: Times, weights: Floats | None, options: Options) -> Repeats:
    """The repeats among values (n,); none unless the two-sided bank smooths, without noise= and weights."""
    flat, copies, hold, events = Repeats.none(values.size)
    if options.two_sided_bank and options.noise is None and weights is None:
        order = np.argsort(times.moments, kind="stable")
        steps = np.diff(times.moments[order])
        even = steps.size > 0 and np.ptp(steps) <= 1e-9 * steps[0]
        events = event_length(values[order]) if even and options.period is None else 1
        if events > 1:
            copies[order] = np.isnan(event_means(values[order], events))
            return Repeats(flat, copies, hold, events)
        flat[order] = flat_runs(values[order])
        length = 1 if flat.any() or not even else hold_length(values[order])
        if length > 1:
            hold, first = length, int(np.flatnonzero(np.diff(values[order]))[0] + 1)
            copies[order] = (np.arange(values.size) - first) % hold > 0
    return Repeats(flat, copies, hold)


def hold_length(values: Floats) -> int:
    """The number of points for which values (n,) are held, if they change only at equal distances and like noise; else 1.

    >>> hold_length(np.repeat(np.random.default_rng(0).normal(size=50), 3)[1:])
    3
    """
    differences = np.diff(values)
    changes = np.flatnonzero(differences)
    if not LEAST_CHANGES <= changes.size <= differences.size / 2 + 1 or np.isnan(values).any():
        return 1
    hold = int(np.gcd.reduce(np.diff(changes)))
    return hold if hold <= LONGEST_HOLD and share_of_turns(differences[changes]) >= TURNS else 1


def share_of_turns(changes: Floats) -> float:
    """The share of changes at which a series turns from up to down or from down to up."""
    return float(np.mean(np.diff(np.sign(changes)) != 0))


def flat_runs(values: Floats) -> NDArray[np.bool_]:
    """The mask of values (n,), in the order of their times, NaN if missing, in flat runs; missing values within a run belong to it.

    If independent neighbours are equal with the probability p = Σ_v P(v)², as rounded values are, a run of L begins at a point with the
    probability Σ_v P(v)^L ≤ p^(L/2), so n points begin at most n·p^(L/2) runs on average. A flat run is long enough to make this number
    `FALSE_RUNS`. p is the share of equal neighbours outside flat runs: in the whole series or within a run's length of it, if larger.

    >>> day = np.sin(np.arange(24) / 8) + 0.1 * np.random.default_rng(0).normal(size=24)
    >>> flat_runs(np.concatenate([np.zeros(6), day, np.zeros(8)])).nonzero()[0]
    array([ 0,  1,  2,  3,  4,  5, 30, 31, 32, 33, 34, 35, 36, 37])
    """
    known = np.flatnonzero(~np.isnan(values))
    equal = np.diff(values[known]) == 0
    if equal.sum() < SHORTEST - 1:
        return np.zeros(values.size, dtype=bool)
    starts = np.flatnonzero(np.concatenate([[True], ~equal]))
    lengths = np.diff(starts, append=known.size)
    runs, before = lengths >= SHORTEST, 0
    while runs.sum() != before:  # a run that is dropped raises the share of equal neighbours outside runs
        before, runs = runs.sum(), _longer_than_by_chance(equal, starts, lengths, runs)
    flat = np.zeros(values.size, dtype=bool)
    flat[known] = np.repeat(runs, lengths)
    # A missing value is in a run if the known values on either side are in the same run.
    rows, back = last_known(values), values.size - 1 - last_known(values[::-1])[::-1]
    return flat | (np.isnan(values) & flat[rows] & flat[back] & (values[rows] == values[back]))


def _longer_than_by_chance(
    equal: NDArray[np.bool_], starts: Indices, lengths: Indices, runs: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The mask of runs (runs,) that are longer than by chance among the neighbours outside runs; `equal` (m − 1,) neighbours."""
    in_run = np.repeat(runs, lengths)
    others, count = np.flatnonzero(~in_run), in_run.size
    if others.size < max(LEAST_OTHERS, MEAN_STRETCH * (1 + np.sum(np.diff(others) > 1))):
        return np.zeros_like(runs)
    outside = ~(in_run[1:] & in_run[:-1])
    # Prefix sums of neighbours outside runs, and of the equal ones among them.
    sums = np.pad(np.cumsum([outside, outside & equal], axis=1), ((0, 0), (1, 0)))
    first, length = starts[runs], lengths[runs]
    last = first + length - 1
    from_first, to_last = np.maximum(first - length, 0), np.minimum(last + length, count - 1)
    nearby = sums[:, first] - sums[:, from_first] + sums[:, to_last] - sums[:, last]
    shares = np.maximum(sums[1, -1] / sums[0, -1], nearby[1] / np.maximum(nearby[0], 1))
    needed = 2 * np.log(count / FALSE_RUNS) / np.log(1 / np.clip(shares, 1e-9, EQUAL_ELSEWHERE))
    longer = np.zeros_like(runs)
    longer[runs] = (length >= needed) & (shares <= EQUAL_ELSEWHERE)
    return longer


def last_known(values: Floats) -> Indices:
    """The row of the last value that is not NaN, at or before every value (n,); 0 before the first."""
    return np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(values.size)))
