"""A row of weights is what made the point: weights(i) @ x is values[i], for every kind of keys."""

import numpy as np
import pytest

import overt.smoothing.selection.bank.stages as bank
from overt.smoothing import analyze

WAYS = {
    "auto": {},
    "time, degree 0": {"keys": "time", "degree": 0},
    "time, degree 1": {"keys": "time"},
    "time, degree 2": {"keys": "time", "degree": 2},
    "time, window": {"keys": "time", "bandwidth": 9.0, "window": 5.0},
    "value": {"keys": "value"},
    "value, window": {"keys": "value", "bandwidth": 0.6, "window": 30.0},
    "both": {"keys": "both", "bandwidth": (8.0, 0.7)},
    "patch": {"keys": "patch"},
    "patch, window": {"keys": "patch", "bandwidth": 0.4, "window": 20.0},
    "dot": {"keys": "value", "score": "dot", "scale": 0.5},
    "plain sum": {"keys": "value", "score": "dot", "normalizer": "sum"},
    "dot, window": {"keys": "value", "score": "dot", "window": 12.0},
}
WEIGHTED = [name for name in WAYS if "dot" not in name and "sum" not in name]
NAN = float("nan")


# The ends, single holes and what is beside them, repeated times, the step, and the gap.
POINTS = [0, 1, 2, 8, 9, 20, 21, 22, 50, 60, 67, 75, 89]


def series(n=90, missing=False, irregular=False):
    """A step on a wave; there may be holes at both ends, single ones, and a gap wider than a patch; repeated times."""
    draw = np.random.default_rng(3)
    times = np.sort(draw.uniform(0, n, n)) if irregular else np.arange(float(n))
    x = 2 + np.sin(times / 9) + np.where(times > 50, 2.0, 0.0) + 0.3 * draw.normal(size=n)
    if irregular:
        times[20:23] = times[20]
    if missing:
        x[[0, 1, 8, 21, 40, n - 1]] = NAN
        x[60:75] = NAN
    return x, times


def expect_rows(x, result):
    rows, curve = np.stack([result.weights(point) for point in POINTS]), result.values[POINTS]
    assert (rows[:, np.isnan(x)] == 0).all()
    there = ~np.isnan(curve)
    np.testing.assert_allclose(rows[there] @ np.nan_to_num(x), curve[there], rtol=0, atol=1e-12)
    assert (rows[~there] == 0).all()
    return rows[there]


@pytest.mark.each_pair
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("irregular", [False, True])
def test_weights_times_values_are_the_curve(way, causal, missing, irregular):
    x, times = series(missing=missing, irregular=irregular)
    # Otherwise values in the tails of the noise count as moved.
    rows = expect_rows(x, analyze(x, times=times, causal=causal, robust=False, **WAYS[way]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("way", WEIGHTED)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.few_cases(3)
def test_points_may_have_weights_of_their_own(way, causal):
    x, times = series(missing=True, irregular=True)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, x.size)
    weights[30] = 0.0
    result = analyze(x, times=times, weights=weights, causal=causal, **WAYS[way])
    expect_rows(np.where(weights > 0, x, NAN), result)


@pytest.mark.parametrize("way", WAYS)
def test_a_causal_row_gives_the_future_nothing(way):
    x, times = series(missing=True)
    result = analyze(x, times=times, causal=True, **WAYS[way])
    for point in POINTS:
        assert (result.weights(point)[point + 1 :] == 0).all()


def test_only_lines_and_parabolas_give_negative_weights():
    x, times = series()
    least = {way: min(analyze(x, times=times, **WAYS[way]).weights(point).min() for point in (0, 45)) for way in WAYS}
    assert least["time, degree 1"] < 0
    assert least["time, degree 2"] < 0
    assert all(least[way] >= 0 for way in ("time, degree 0", "value", "both", "patch", "dot", "plain sum"))


def test_a_row_of_a_long_series_counts_its_stretch_and_heads_that_see_all(monkeypatch):
    monkeypatch.setattr(bank, "BLOCK", 100)
    monkeypatch.setattr(bank, "STRETCH", 300)
    monkeypatch.setattr(bank, "MARGIN", 500)
    x = np.sin(np.arange(4000) / 300) + 0.4 * np.random.default_rng(0).normal(size=4000)
    result = analyze(x, noise=0.4, robust=False)
    for point in (0, 450, 2000, 3999):
        assert result.weights(point) @ x == pytest.approx(result.values[point], abs=1e-12)


@pytest.mark.parametrize("point", [3, -1])
def test_a_point_is_counted_as_it_was_given(point):
    x, times = series(irregular=True)
    times = times + np.arange(x.size) * 1e-3  # of equal times, the first given is the first
    order = np.random.default_rng(1).permutation(x.size)
    shuffled, sorted_ = (analyze(x[o], times=times[o]) for o in (order, np.arange(x.size)))
    np.testing.assert_allclose(shuffled.weights(point), sorted_.weights(int(order[point]))[order], rtol=0, atol=1e-12)
