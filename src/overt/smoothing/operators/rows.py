"""Rows of weights W_ij of heads by definition, for inspection; smoothing never builds them."""

import numpy as np

from overt.smoothing.data.series import Floats, Series, filled_values
from overt.smoothing.heads.by_definition import block_weights, interpolation, intervals
from overt.smoothing.heads.head import SeriesHead
from overt.smoothing.heads.keys import DotKeys, KeyPoints, PatchKeys, Points, TimeKeys
from overt.smoothing.heads.local.direct_sums import find_targets, local_rows
from overt.smoothing.heads.local.polynomial import Side
from overt.smoothing.heads.normalize import softmax


def weight_row(series: Series, head: SeriesHead, row: int) -> Floats:
    """The weights of one point over all points (n,), zero if a value is missing or masked.

    Time keys of degree 1 and 2 may have negative weights. A missing point that is interpolated has the weights of its neighbours.
    """
    row_weights = np.zeros(series.times.size)
    if isinstance(head.keys, TimeKeys):
        keys = series.key_times, series.key_weights
        options = {"degree": head.degree, "window": head.window, "side": head.side}
        row_weights[series.present] = time_row(*keys, series.times[row], head.keys.bandwidth, **options)
        return row_weights
    if isinstance(head.keys, PatchKeys):
        return _patch_row(series, head, head.keys, row)
    if np.isnan(series.values[row]):
        between = interpolation(series, head, np.array([row]))
        for neighbour, share in ((between.left[0], 1 - between.share[0]), (between.right[0], between.share[0])):
            if neighbour >= 0 and share > 0:
                row_weights += share * weight_row(series, head, int(neighbour))
        return row_weights
    reached = intervals(series, head, head.keys, np.array([row]))
    keys = KeyPoints(series.key_times, series.key_values, None if isinstance(head.keys, DotKeys) else series.key_weights)
    [weights] = block_weights(head.keys, keys, Points(series.times[[row]], series.values[[row]]), reached)
    row_weights[series.present[reached.span]] = weights
    return row_weights


def time_row(
    times: Floats,
    weights: Floats | None,
    target: float,
    bandwidth: float,
    *,
    degree: int,
    window: float = np.inf,
    side: Side = "both",
) -> Floats:
    """l_j (n,) of the polynomial fitted around a target, β_0 = Σ_j l_j x_j.

    >>> time_row(np.array([0.0, 1.0]), None, 2.0, 5.0, degree=0).round(2)
    array([0.49, 0.51])
    """
    row, near = np.zeros(times.size), find_targets(times, np.array([target]), bandwidth, window, side)
    for rows in local_rows(times, weights, near, bandwidth, degree):
        row[rows.keys] = rows.weights[0]
    return row


def patch_row(
    values: Floats, key_weights: Floats, row: int, *, profile: Floats, bandwidth: float, window: int, side: Side
) -> Floats:
    """W_ij ∝ w_j exp(−Σ_m g_m (x_{i+m} − x_{j+m})²/2h²) of one point (n,), as in `patches.attend_patch`."""
    half = profile.size // 2
    padded = np.pad(values, half, mode="edge" if side == "past" else "reflect")
    first, last = max(0, row - window), (row if side == "past" else min(values.size - 1, row + window)) + 1
    patches = np.lib.stride_tricks.sliding_window_view(padded, profile.size)  # (n, 2p + 1)
    scores = -((patches[first:last] - patches[row]) ** 2 @ profile) / (2 * bandwidth**2)
    row_weights = np.zeros(values.size)
    with np.errstate(divide="ignore"):
        row_weights[first:last] = softmax(scores + np.log(key_weights[first:last]))
    return row_weights


def guided_row(
    times: Floats,
    guide: Floats,
    key_weights: Floats,
    row: int,
    *,
    bandwidth: float,
    bandwidth_time: float,
    window: float,
    side: Side,
) -> Floats:
    """W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (g_i − g_j)²/2h²) of one point (n,), as in `guided.attend_guided`."""
    away = times - times[row]
    allowed = (np.abs(away) <= window * (1 + 1e-9)) & (key_weights > 0) & ((away <= 0) | (side == "both"))
    scores = -((away / bandwidth_time) ** 2) / 2 - ((guide - guide[row]) / bandwidth) ** 2 / 2
    return softmax(np.where(allowed, scores + np.log(np.where(allowed, key_weights, 1.0)), -np.inf))


def _patch_row(series: Series, head: SeriesHead, keys: PatchKeys, row: int) -> Floats:
    key_weights = np.where(np.isnan(series.values), 0.0, 1.0 if series.weights is None else series.weights)
    values = filled_values(series, causal=head.causal)
    options = {"profile": keys.profile(head.causal), "bandwidth": keys.bandwidth, "window": keys.reach(head.window)}
    return patch_row(values, key_weights, row, side=head.side, **options)
