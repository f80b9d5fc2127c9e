"""The operator of a whole smoothing, composed of its steps' operators: bank or head, fillings, seasons, means of events, flat runs."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overt.smoothing.data.repeats import last_known
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.local.gaps import filled, gap_keys
from overt.smoothing.operators.base import Operator, extension, gather, identity, means_of_ties, restriction, row_operator
from overt.smoothing.operators.rows import weight_row
from overt.smoothing.selection.bank.noisy_series import bank_series
from overt.smoothing.selection.bank.stages import bank_operator

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing


def smoothing_operator(result: "Smoothing") -> Operator:
    """The operator from values to the curve, both sorted by time (n,): flat runs are unchanged, and points of a mean share its weight."""
    series, repeats, points = result.series, result.repeats, result.points
    curve = head_operator(result) if result.head else _complete_bank(result)
    if repeats.events > 1:
        near = series.present[:, None] - repeats.events // 2 + np.arange(repeats.events)
        means = gather(near, np.full(near.shape, 1 / repeats.events), points)
        curve = curve @ extension(series.present, points) @ means
    if not repeats.flat.any():
        return curve
    flat = repeats.flat[series.order].astype(np.float64)
    last = restriction(last_known(result.observed[series.order]), points)
    return last.times(flat) + curve.times(1 - flat)


def head_operator(result: "Smoothing") -> Operator:
    """The operator of one head, on values sorted by time (n,)."""
    assert result.head is not None
    return row_operator((result.points, result.points), partial(weight_row, result.series, result.head))


class Parts(NamedTuple):
    """The bank's curve: heads over the values without seasons, a share of the seasons, and gaps filled from the values with seasons."""

    heads: Operator
    season_share: Floats  # (n,)
    whole: Operator | None  # None if nothing is filled


def bank_parts(result: "Smoothing") -> Parts:
    """The operators of the bank, on values sorted by time (n,), and of the filling of its missing points."""
    series, estimate, causal = result.series, result.estimate, result.options.causal
    noisy = bank_series(series, result.unit_levels, causal, estimate)
    heads = bank_operator(noisy, causal=causal, correlation=estimate.correlation)
    if result.filling is None:
        return Parts(heads, np.ones(result.points), None)
    missing = np.flatnonzero(np.isnan(series.values))
    heads, whole, season_share = filled(heads, gap_keys(series, season_sum(result)), result.filling, series.times, missing)
    return Parts(heads, season_share, whole)


def season_sum(result: "Smoothing") -> Floats:
    """The sum of the seasons in the series' own units, sorted by time (n,)."""
    return np.zeros(result.points) if result.seasons is None else result.seasons.at(result.series.times).sum(axis=0)


def tie_means(result: "Smoothing") -> Operator:
    """The operator that gives points at one time the mean of their values."""
    return means_of_ties(result.series.ties, ~np.isnan(result.values[result.series.order]))


def _complete_bank(result: "Smoothing") -> Operator:
    """y = s + B(x − s) with the bank B and the seasons s; missing points are filled, and points at one time have their values' mean."""
    curve, season_share, whole = bank_parts(result)
    if result.seasons is not None:
        curve = curve + (identity(result.points).times(season_share) - curve) @ result.seasons.operator
    if whole is not None:
        curve = curve + whole
    return tie_means(result) @ curve
