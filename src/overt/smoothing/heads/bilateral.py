"""Keys of time and value together: the bilateral filter, over the keys within a window."""

import numpy as np

from overt import native
from overt.errors import InputError
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.blocks import KeyRange
from overt.smoothing.heads.by_definition import attend_points
from overt.smoothing.heads.keys import BothKeys, KeyPoints, Points, RowMoments, TimeKeys, ValueKeys


def attend_both(
    times: Floats,
    values: Floats,
    weights: Floats | None,
    bandwidth_time: float,
    bandwidth_value: float,
    *,
    window: float = np.inf,
    side: str = "both",
) -> RowMoments:
    """Attend to points near in time and in value: W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (x_i − x_j)²/2h_x²), y_i = Σ_j W_ij x_j.

    The bilateral filter (Tomasi and Manduchi 1998, section 2). ∂y_i/∂x_i = W_ii + Σ_j W_ij (x_j − y_i)²/h_x².

    Keys are the points with |t_i − t_j| <= window; for side="past" also t_j <= t_i, for "future" t_j >= t_i. Keys more than nine h_t
    beyond the nearest key are negligible. h_t may be infinite: then time enters through the window only.

    times (n,) ascending, values (n,), weights (n,) above 0 (None for 1). Returns (n,) each. Time O(n·window), memory O(n).

    >>> step = np.array([0.0, 0.2, 0.1, 8.0, 8.1])
    >>> attend_both(np.arange(5.0), step, None, 2.0, 0.5).values.round(2)
    array([0.09, 0.11, 0.11, 8.05, 8.05])
    """
    if side not in ("both", "past", "future"):
        raise InputError('side "both", "past" or "future"', got=repr(side), fix="choose one of them")
    keys, reach = BothKeys(TimeKeys(bandwidth_time), ValueKeys(bandwidth_value)), window * (1 + 1e-9)
    weights = None if weights is None or (weights == 1).all() else weights / weights.max()
    points = KeyPoints(np.ascontiguousarray(times), np.ascontiguousarray(values), weights)
    rates, reach = (0.5 / bandwidth_time**2, 0.5 / bandwidth_value**2), min(reach, keys.radius)
    outputs = RowMoments(*(np.full(times.size, np.nan) for _ in RowMoments._fields))
    if native.available() and side == "both":
        native.module().bilateral(*points, *rates, reach, native.threads(), *outputs)
        return outputs
    start = np.searchsorted(times, times if side == "future" else times - reach, side="left")
    stop = np.searchsorted(times, times if side == "past" else times + reach, side="right")
    key_range, rows = KeyRange(start, stop), np.arange(times.size)
    if native.available():
        native.module().bilateral_rows(*points, *rates, *points[:2], *key_range, rows, native.threads(), *outputs)
        return outputs
    return attend_points(keys, points, Points(*points[:2]), rows, key_range)
