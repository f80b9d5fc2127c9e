"""One row of weights W_ij, as the definitions say: for people to look at, while the smoothers never build it."""

import numpy as np

from overt.smoothing.data.series import Floats, Series, filled_values
from overt.smoothing.heads.by_definition import intervals, neighbours
from overt.smoothing.heads.head import Head
from overt.smoothing.heads.keys import DotKeys, PatchKeys, Points, TimeKeys
from overt.smoothing.heads.local.direct import reach
from overt.smoothing.heads.local.polynomial import Side, Sums, fit
from overt.smoothing.heads.normalize import plain_sum, softmax


def row_of(series: Series, head: Head, row: int) -> Floats:
    """The weights of one point over all (n,), zero where a value is missing or may not be attended to.

    Time keys of degree 1 and 2 may give negative ones. A missing point that is answered from its neighbours has theirs.
    """
    found = np.zeros(series.times.size)
    if isinstance(head.keys, TimeKeys):
        keys = series.key_times, series.key_weights
        options = {"degree": head.degree, "window": head.window, "side": head.side}
        found[series.present] = time_row(*keys, series.times[row], head.keys.bandwidth, **options)
        return found
    if isinstance(head.keys, PatchKeys):
        return _patch_row(series, head, head.keys, row)
    if np.isnan(series.values[row]):
        mix = neighbours(series, head, np.array([row]))
        for neighbour, share in ((mix.left[0], 1 - mix.share[0]), (mix.right[0], mix.share[0])):
            if neighbour >= 0 and share > 0:
                found += share * row_of(series, head, int(neighbour))
        return found
    start, stop = (int(end[0]) for end in intervals(series, head, head.keys, np.array([row])))
    query = Points(series.times[[row]], series.values[[row]])
    scores = head.keys.scores(query, Points(series.key_times[start:stop], series.key_values[start:stop]))[0]
    if series.key_weights is not None and not isinstance(head.keys, DotKeys):
        scores = scores + np.log(series.key_weights[start:stop])
    plain = isinstance(head.keys, DotKeys) and head.keys.plain_sum
    found[series.present[start:stop]] = plain_sum(scores) if plain else softmax(scores)
    return found


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
    near = reach(times, np.array([target]), bandwidth, window, side)
    part = slice(int(near.start[0]), int(near.stop[0]))
    away, nearest = times[part] - target, near.nearest[0]
    u = away / bandwidth
    kernel = np.exp(-0.5 * ((away - nearest) / bandwidth) * ((away + nearest) / bandwidth))
    weighed = kernel * (1.0 if weights is None else weights[part])
    powers = u ** np.arange(2 * degree + 1)[:, None]  # (2·degree + 1, keys)
    sums = ((terms * powers).sum(axis=1, keepdims=True) for terms in (weighed, weighed * kernel))
    of_weights, of_squares = sums
    found = fit(Sums(of_weights, np.zeros((degree + 1, 1)), of_squares, kernel.sum(keepdims=True)))
    row = np.zeros(times.size)
    row[part] = weighed * (found.coefficients[:, 0] @ powers[: degree + 1])
    return row


def patch_row(
    values: Floats, charges: Floats, row: int, *, profile: Floats, bandwidth: float, window: int, side: Side
) -> Floats:
    """W_ij ∝ w_j exp(−Σ_m g_m (x_{i+m} − x_{j+m})²/2h²) of one point (n,), as `patches.attend_patch` has it."""
    half = profile.size // 2
    padded = np.pad(values, half, mode="edge" if side == "past" else "reflect")
    first, last = max(0, row - window), (row if side == "past" else min(values.size - 1, row + window)) + 1
    patches = np.lib.stride_tricks.sliding_window_view(padded, profile.size)  # (n, 2p + 1)
    scores = -((patches[first:last] - patches[row]) ** 2 @ profile) / (2 * bandwidth**2)
    found = np.zeros(values.size)
    with np.errstate(divide="ignore"):
        found[first:last] = softmax(scores + np.log(charges[first:last]))
    return found


def guided_row(
    times: Floats,
    guide: Floats,
    charges: Floats,
    row: int,
    *,
    bandwidth: float,
    bandwidth_time: float,
    window: float,
    side: Side,
) -> Floats:
    """W_ij ∝ w_j exp(−(t_i − t_j)²/2h_t² − (g_i − g_j)²/2h²) of one point (n,), as `guided.attend_guided` has it."""
    away = times - times[row]
    allowed = (np.abs(away) <= window * (1 + 1e-9)) & (charges > 0) & ((away <= 0) | (side == "both"))
    scores = -((away / bandwidth_time) ** 2) / 2 - ((guide - guide[row]) / bandwidth) ** 2 / 2
    return softmax(np.where(allowed, scores + np.log(np.where(allowed, charges, 1.0)), -np.inf))


def filling_row(times: Floats, known: np.ndarray, row: int, *, causal: bool) -> Floats:
    """The weights of what stands in for a missing value (n,), as `series.filled_values` has it."""
    keys = np.flatnonzero(known)
    next_key = np.searchsorted(keys, row) if causal else np.searchsorted(times[keys], times[row], side="right")
    before, after = keys[max(0, next_key - 1)], keys[min(next_key, keys.size - 1)]
    found = np.zeros(times.size)
    if causal:
        found[before] = float(before < row)
        return found
    share = np.interp(times[row], times[[before, after]], [0.0, 1.0]) if before != after else 0.0
    found[before] += 1 - share
    found[after] += share
    return found


def _patch_row(series: Series, head: Head, keys: PatchKeys, row: int) -> Floats:
    charges = np.where(np.isnan(series.values), 0.0, 1.0 if series.weights is None else series.weights)
    values = filled_values(series, causal=head.causal)
    options = {"profile": keys.profile(head.causal), "bandwidth": keys.bandwidth, "window": keys.reach(head.window)}
    return patch_row(values, charges, row, side=head.side, **options)
