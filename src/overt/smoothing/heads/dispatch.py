"""One head over a whole series: dispatch each kind of keys to the function that computes it."""

import numpy as np

from overt.smoothing.data.series import Floats, Indices, Series, filled_values
from overt.smoothing.heads.bilateral import attend_both
from overt.smoothing.heads.by_definition import attend_by_definition, interpolation
from overt.smoothing.heads.fast_sums import SHORTEST, attend_dot, attend_past, attend_scalar
from overt.smoothing.heads.head import Outputs, SeriesHead
from overt.smoothing.heads.keys import BothKeys, DotKeys, PatchKeys, RowMoments, SeriesKeys, TimeKeys, ValueKeys
from overt.smoothing.heads.local.regression import Local, attend_time
from overt.smoothing.heads.patches import attend_patch


def attend_head(series: Series, head: SeriesHead) -> Outputs:
    """y_i = Σ_j W_ij x_j and its full derivative ∂y_i/∂x_i for all points.

    A missing point is no key. As a query it has its time; if the score also needs its value, its output is interpolated linearly
    between the outputs of its neighbours. It stays NaN if it may attend to no key.
    """
    if isinstance(head.keys, TimeKeys):
        local = attend_in_time(series, head, head.keys.bandwidth)
        return Outputs(local.values, local.leverages)
    if isinstance(head.keys, PatchKeys):
        return _attend_patches(series, head, head.keys)
    outputs = Outputs(np.full(series.times.size, np.nan), np.full(series.times.size, np.nan))
    outputs.values[series.present], outputs.leverages[series.present] = _attend_values(series, head, head.keys)
    missing = np.flatnonzero(np.isnan(series.values))
    if missing.size:
        outputs.values[missing] = interpolate_missing(series, head, outputs.values, missing)
    return outputs


def attend_in_time(series: Series, head: SeriesHead, bandwidth: float, *, targets: Floats | None = None) -> Local:
    """The head with time keys of this bandwidth: values, leverages and Σ_j l_ij²/w_j at all points, or at ascending `targets`."""
    keys = series.key_times, series.key_values, series.key_weights
    options = {"degree": head.degree, "window": head.window, "side": head.side}
    if targets is not None:
        return attend_time(*keys, bandwidth, targets=targets, **options)
    if series.present.size == series.times.size:
        return attend_time(*keys, bandwidth, **options)
    return attend_time(*keys, bandwidth, targets=series.times, self_index=series.key_index, **options)


def interpolate_missing(series: Series, head: SeriesHead, smoothed: Floats, rows: Indices) -> Floats:
    """Rows without a value, interpolated linearly between the smoothed neighbours that they may attend to."""
    between = interpolation(series, head, rows)
    padded = np.append(smoothed, np.nan)  # the index −1 means "no neighbour"
    left, right = padded[between.left], padded[between.right]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    return left + between.share * (right - left)


def _attend_values(series: Series, head: SeriesHead, keys: SeriesKeys) -> Outputs:
    """Keys that compare values, at the points that have one."""
    row = _row_moments(series, head)
    if row is None:
        return attend_by_definition(series, head, keys, series.present)
    return Outputs(row.values, keys.leverage(row, series.key_values))


def _row_moments(series: Series, head: SeriesHead) -> RowMoments | None:
    """The terms of the leverage by the fastest method; None if there is only the definition."""
    keys, values = head.keys, series.key_values
    unmasked = not head.causal and np.isinf(head.window)
    if isinstance(keys, DotKeys):
        return attend_dot(values, keys.scale) if unmasked and not keys.plain_sum else None
    if isinstance(keys, ValueKeys) and unmasked:
        return attend_scalar(values, series.key_weights, keys.bandwidth)
    if isinstance(keys, ValueKeys) and head.causal and np.isinf(head.window) and values.size >= SHORTEST:
        return attend_past(series.key_times, values, series.key_weights, keys.bandwidth)
    time, value = (keys.time.bandwidth, keys.value.bandwidth) if isinstance(keys, BothKeys) else (np.inf, keys.bandwidth)
    return attend_both(series.key_times, values, series.key_weights, time, value, window=head.window, side=head.side)


def _attend_patches(series: Series, head: SeriesHead, keys: PatchKeys) -> Outputs:
    """Patch keys, which count points, not times. A missing value is interpolated linearly between its neighbours.

    The leverages of these two neighbours treat the interpolated values as constants.
    """
    patches = attend_patch(
        filled_values(series, causal=head.causal),
        ~np.isnan(series.values),
        series.weights,
        profile=keys.profile(head.causal),
        bandwidths=[keys.bandwidth],
        window=keys.reach(head.window),
        side=head.side,
    )
    return Outputs(patches.values[0], patches.leverages[0])
