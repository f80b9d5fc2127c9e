"""The smoothers as their definitions say, n×n and without a trick: what the tests compare with."""

import numpy as np


def weights(
    x,
    times=None,
    *,
    weights=None,
    keys="time",
    bandwidth=1.0,
    degree=1,
    score="gaussian",
    normalizer="softmax",
    scale=1.0,
    window=np.inf,
    causal=False,
):
    """W (n, n) of a series without missing values; patches only at even times."""
    x = np.asarray(x, float)
    t = np.arange(x.size) if times is None else np.asarray(times, float)
    w = np.ones(x.size) if weights is None else weights
    if keys == "time":
        return time_rows(t, w, bandwidth, degree, t, window, "past" if causal else "both")
    if keys == "patch":
        scores, window = _of_patches(x, bandwidth, causal), min(window, 200)
    else:
        h_time, h_value = bandwidth if keys == "both" else (np.inf, bandwidth)
        scores = -((t[:, None] - t) ** 2) / (2 * h_time**2) - (x[:, None] - x) ** 2 / (2 * h_value**2)
        scores = scale * x[:, None] * x if score == "dot" else scores
    allowed = np.abs(t[:, None] - t) <= window
    allowed &= (t <= t[:, None]) | (not causal)
    raw = scores if normalizer == "sum" else w * np.exp(scores - np.where(allowed, scores, -np.inf).max(axis=1, keepdims=True))
    raw = np.where(allowed, raw, 0.0)
    return raw / raw.sum(axis=1, keepdims=True)


def smooth(x, times=None, **options):
    """W x."""
    return weights(x, times, **options) @ np.asarray(x, float)


def time_rows(times, weights, bandwidth, degree, targets, window=np.inf, side="both"):
    """Rows l_i (m, n) of time keys: each target's polynomial by numpy.linalg on its own kernel-weighted design matrix."""
    rows = np.full((targets.size, times.size), np.nan)
    for i, target in enumerate(targets):
        away = times - target
        near = np.abs(away) <= window * (1 + 1e-9)
        near &= {"both": near, "past": away <= 0, "future": away >= 0}[side]
        if not near.any():
            continue
        squares = np.where(near, away**2 - np.min(away[near] ** 2), np.inf)
        kernel = np.exp(-squares / bandwidth**2 / 2)
        for size in range(degree + 1, 0, -1):
            design = (away[:, None] / bandwidth) ** np.arange(size)  # (n, size)
            matrix = design.T @ (design * (weights * kernel)[:, None])
            if np.linalg.det(matrix) <= 1e-3 * np.prod(np.diag(matrix)):
                continue
            row = weights * kernel * (design @ np.linalg.inv(matrix)[0])
            if size == 1 or np.sum(row**2 / weights) <= (kernel.sum() / (weights @ kernel)) * (1 + 1e-9):
                rows[i] = row
                break
    return rows


def _of_patches(x, bandwidth, causal):
    """Mean squares of the differences of 11 points around, or of 6 up to each point."""
    padded = np.r_[np.full(5, x[0]), x] if causal else np.pad(x, 5, mode="reflect")
    patches = np.stack([padded[i : i + (6 if causal else 11)] for i in range(x.size)])  # (n, 6 or 11)
    return -((patches[:, None] - patches) ** 2).mean(axis=2) / (2 * bandwidth**2)
