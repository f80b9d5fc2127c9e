"""One head over a whole series: each kind of keys is handed to what computes it."""

import numpy as np

from overt.smoothing.data.series import Floats, Indices, Series, filled_values
from overt.smoothing.heads.bilateral import Pairs, attend_both
from overt.smoothing.heads.by_definition import attend_directly, neighbours
from overt.smoothing.heads.fast_sums import Scalar, attend_dot, attend_scalar
from overt.smoothing.heads.head import Head, Outputs
from overt.smoothing.heads.keys import BothKeys, DotKeys, Keys, PatchKeys, Row, TimeKeys, ValueKeys
from overt.smoothing.heads.local.direct import Local, attend_time
from overt.smoothing.heads.patches import attend_patch


def attend_head(series: Series, head: Head) -> Outputs:
    """y_i = Σ_j W_ij x_j and its full derivative ∂y_i/∂x_i for all points.

    A missing point is no key. As a query it has its time; where the score needs its value as well, its answer lies on the
    straight line between those of its neighbours. It stays NaN where it may attend to nothing.
    """
    if isinstance(head.keys, TimeKeys):
        found = attend_in_time(series, head, head.keys.bandwidth)
        return Outputs(found.values, found.own)
    if isinstance(head.keys, PatchKeys):
        return _by_patches(series, head, head.keys)
    outputs = Outputs(np.full(series.times.size, np.nan), np.full(series.times.size, np.nan))
    at = series.present
    outputs.values[at], outputs.slopes[at] = _by_value(series, head, head.keys)
    missing = np.flatnonzero(np.isnan(series.values))
    if missing.size:
        outputs.values[missing] = between(series, head, outputs.values, missing)
    return outputs


def attend_in_time(series: Series, head: Head, bandwidth: float, *, targets: Floats | None = None) -> Local:
    """Time keys of a bandwidth: values, ∂y_i/∂x_i and Σ_j l_ij²/w_j, at all points, or at other times, ascending."""
    keys = series.key_times, series.key_values, series.key_weights
    options = {"degree": head.degree, "window": head.window, "side": head.side}
    if targets is not None:
        return attend_time(*keys, bandwidth, targets=targets, **options)
    if series.present.size == series.times.size:
        return attend_time(*keys, bandwidth, **options)
    return attend_time(*keys, bandwidth, targets=series.times, own=series.own_key, **options)


def between(series: Series, head: Head, smoothed: Floats, rows: Indices) -> Floats:
    """Points without a value (or rows without one), on the straight line between the smoothed neighbours that they may see."""
    mix = neighbours(series, head, rows)
    padded = np.append(smoothed, np.nan)  # −1 stands for "no neighbour"
    left, right = padded[mix.left], padded[mix.right]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    return left + mix.share * (right - left)


def _by_value(series: Series, head: Head, keys: Keys) -> Outputs:
    """Keys that compare values, at the points that have one."""
    found = _pairs(series, head)
    if found is None:
        return attend_directly(series, head, keys, series.present)
    row = Row(found.own, found.variance, series.key_values, found.values)
    return Outputs(found.values, keys.slope(row))


def _pairs(series: Series, head: Head) -> Pairs | Scalar | None:
    """What a slope is made of, by the quickest that serves; None where nothing but the definition does."""
    keys, values = head.keys, series.key_values
    everywhere = not head.causal and np.isinf(head.window)
    if isinstance(keys, DotKeys):
        return attend_dot(values, keys.scale) if everywhere and not keys.plain_sum else None
    if isinstance(keys, ValueKeys) and everywhere:
        return attend_scalar(values, values, series.key_weights, keys.bandwidth)
    time, value = (keys.time.bandwidth, keys.value.bandwidth) if isinstance(keys, BothKeys) else (np.inf, keys.bandwidth)
    return attend_both(series.key_times, values, series.key_weights, time, value, window=head.window, side=head.side)


def _by_patches(series: Series, head: Head, keys: PatchKeys) -> Outputs:
    """Patches, whose points are those of the sequence; where a value is missing, the line between its neighbours stands in.

    The slopes of these two neighbours take that line for given.
    """
    options = {"window": keys.reach(head.window), "side": head.side}
    filled, known = filled_values(series, causal=head.causal), ~np.isnan(series.values)
    found = attend_patch(
        filled, known, series.weights, profile=keys.profile(head.causal), bandwidths=[keys.bandwidth], **options
    )
    return Outputs(found.values[0], found.slopes[0])
