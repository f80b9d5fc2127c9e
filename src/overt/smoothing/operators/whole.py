"""The operator of a whole smoothing, composed of those of its steps: its bank or head, fillings, seasons, and what was set aside."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.repeats import last_known
from overt.smoothing.heads.local.gaps import filled, keys_of
from overt.smoothing.operators.base import Operator, extension, gather, identity, means_of_ties, of_rows, restriction
from overt.smoothing.operators.rows import weight_row
from overt.smoothing.selection.bank.noisy_series import bank_series
from overt.smoothing.selection.bank.stages import bank_operator

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing


def operator_of(result: "Smoothing") -> Operator:
    """How a curve depends on the values, both sorted by time (n,): flat runs are as they are, and all points of a mean share its weight."""
    series, repeats, points = result.series, result.repeats, result.points
    by_head = of_rows((points, points), partial(weight_row, series, result.head)) if result.head else None
    curve = by_head or _of_the_bank(result)
    if repeats.events > 1:
        near = series.present[:, None] - repeats.events // 2 + np.arange(repeats.events)
        means = gather(near, np.full(near.shape, 1 / repeats.events), points)
        curve = curve @ extension(series.present, points) @ means
    if not repeats.flat.any():
        return curve
    flat = repeats.flat[series.order].astype(np.float64)
    last = restriction(last_known(result.observed[series.order]), points)
    return last.times(flat) + curve.times(1 - flat)


def _of_the_bank(result: "Smoothing") -> Operator:
    """y = s + B(x − s) with the bank B, where missing points are filled, and points at one time have the mean of their values."""
    series, estimate, causal = result.series, result.estimate, result.options.causal
    noisy = bank_series(series, result.unit_levels, causal, heavy=estimate.heavy, drawn=result.kind)
    curve = bank_operator(noisy, causal=causal, correlation=estimate.correlation)
    whole, of_seasons = None, np.ones(result.points)
    if result.filling is not None:
        seasonal = np.zeros(result.points) if result.seasons is None else result.seasons.at(series.times).sum(axis=0)
        missing = np.flatnonzero(np.isnan(series.values))
        curve, whole, of_seasons = filled(curve, keys_of(series, seasonal), result.filling, series.times, missing)
    if result.seasons is not None:
        curve = curve + (identity(result.points).times(of_seasons) - curve) @ result.seasons.operator
    if whole is not None:
        curve = curve + whole
    known = ~np.isnan(result.values[series.order])
    return means_of_ties(series.ties, known) @ curve
