"""Flat runs: stretches of equal values in a series whose other values have noise, as at night, at rest or at an end of the range."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import Times

# Equal values in a row that make a flat run. Continuous noise never repeats a value.
SHORTEST = 5
# Of the other neighbours at most this part is equal: rounded values repeat by chance, and so do the zeros of rare events.
EQUAL_ELSEWHERE = 0.01
# The other values: at least this many, in stretches of at least this mean length. Steps between constants leave fewer.
LEAST_OTHERS, MEAN_STRETCH = 20, 4


def flat_runs(values: Floats) -> NDArray[np.bool_]:
    """Which values (n,) of a series in the order of time, NaN where missing, stand in flat runs; missing values do not end a run.

    >>> day = np.sin(np.arange(24) / 8) + 0.1 * np.random.default_rng(0).normal(size=24)
    >>> flat_runs(np.concatenate([np.zeros(6), day, np.zeros(8)])).nonzero()[0]
    array([ 0,  1,  2,  3,  4,  5, 30, 31, 32, 33, 34, 35, 36, 37])
    """
    flat = np.zeros(values.size, dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    equal = np.diff(values[known]) == 0
    if equal.sum() < SHORTEST - 1:
        return flat
    run = np.concatenate([[0], np.cumsum(~equal)])
    in_run = np.bincount(run)[run] >= SHORTEST
    others = np.flatnonzero(~in_run)
    stretches = 1 + np.sum(np.diff(others) > 1)
    if others.size < max(LEAST_OTHERS, MEAN_STRETCH * stretches):
        return flat
    elsewhere = equal[~(in_run[1:] & in_run[:-1])]
    if in_run.any() and elsewhere.mean() <= EQUAL_ELSEWHERE:
        flat[known[in_run]] = True
    return flat


def flat_values(values: Floats, times: Times, weights: Floats | None, options: Options) -> NDArray[np.bool_]:
    """Which values (n,) stand in flat runs and stay as they are: where the heads are chosen automatically, from the whole series."""
    flat = np.zeros(values.size, dtype=bool)
    if options.keys == "auto" and not options.causal and options.noise is None and weights is None:
        order = np.argsort(times.moments, kind="stable")
        flat[order] = flat_runs(values[order])
    return flat
