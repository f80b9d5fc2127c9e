"""The smoothers as their definitions say, n×n and without a trick: what the tests compare with."""

import numpy as np


def weights(
    x, times=None, *, keys="time", bandwidth=1.0, score="gaussian", normalizer="softmax", scale=1.0, window=np.inf, causal=False
):
    """W (n, n) of a series without missing values."""
    x = np.asarray(x, float)
    t = np.arange(x.size) if times is None else np.asarray(times, float)
    h_time, h_value = bandwidth if keys == "both" else (bandwidth, bandwidth)
    near_in_time = -((t[:, None] - t) ** 2) / (2 * h_time**2)
    near_in_value = -((x[:, None] - x) ** 2) / (2 * h_value**2)
    scores = {"time": near_in_time, "value": near_in_value, "both": near_in_time + near_in_value}[keys]
    scores = scale * x[:, None] * x if score == "dot" else scores
    allowed = np.abs(t[:, None] - t) <= window
    allowed &= (t <= t[:, None]) | (not causal)
    raw = scores if normalizer == "sum" else np.exp(scores - np.where(allowed, scores, -np.inf).max(axis=1, keepdims=True))
    raw = np.where(allowed, raw, 0.0)
    return raw / raw.sum(axis=1, keepdims=True)


def smooth(x, times=None, **options):
    """W x."""
    return weights(x, times, **options) @ np.asarray(x, float)
