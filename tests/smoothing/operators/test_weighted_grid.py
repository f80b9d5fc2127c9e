"""Means and lines on a grid with missing values and weights: convolutions give what sums key by key give."""

import numpy as np
import pytest

from overt import native
from overt.smoothing.heads.local.direct_sums import WeightedPoints, attend_directly, find_targets
from overt.smoothing.heads.local.grid import attend_grid_with_gaps, attend_weighted_grid
from overt.smoothing.selection.bank import candidates
from overt.smoothing.selection.bank.noisy_series import NoisySeries
from overt.smoothing.selection.bank.stages import attend_bank

N = 700


def weights_of(kind):
    draw = np.random.default_rng(1)
    weights = draw.uniform(0.1, 3.0, N) if kind == "weights" else np.ones(N)
    match kind:
        case "one missing":
            weights[300] = 0
        case "a tenth missing":
            weights[draw.random(N) < 0.1] = 0
        case "a gap and the ends missing" | "weights":
            weights[200:500] = weights[:3] = weights[-2:] = 0
        case "few there":
            weights[draw.random(N) < 0.95] = 0
    return weights


@pytest.mark.parametrize("kind", ["one missing", "a tenth missing", "a gap and the ends missing", "weights", "few there"])
@pytest.mark.parametrize("scale", [4.0, 16.0, 90.0])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("side", ["past", "future", "both"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.each_pair
def test_it_is_the_sum_key_by_key(kind, scale, degree, side, offset):
    values, weights, steps = offset + np.random.default_rng(0).normal(size=N), weights_of(kind), np.arange(float(N))
    values[weights == 0] = np.nan
    is_key = weights > 0
    points = WeightedPoints(steps[is_key], values[is_key], weights[is_key])
    expected = attend_directly(points, find_targets(points.times, steps, scale, np.inf, side), scale, degree)
    result = attend_weighted_grid(values, weights, scale, degree, side)
    for columns in (result, expected):
        columns[1, ~is_key] = 0.0  # a leverage is that of a key
    for column, same in zip(result, expected, strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("side", ["past", "future", "both"])
@pytest.mark.each_pair
def test_beside_few_missing_values_it_is_the_sum_key_by_key(scale, degree, side):
    values, steps = 1e3 + np.random.default_rng(0).normal(size=N), np.arange(float(N))
    present = np.ones(N, bool)
    present[[0, 1, 300, 301, 302, 420, N - 1]] = False
    values[~present] = 0.0
    points = WeightedPoints(steps[present], values[present], np.ones(present.sum()))
    expected = attend_directly(points, find_targets(points.times, steps, scale, np.inf, side), scale, degree)
    result = attend_grid_with_gaps(values, present, scale, degree, side)
    for columns in (result, expected):
        columns[1, ~present] = 0.0
    for column, same in zip(result, expected, strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-9, atol=1e-9)


def test_many_missing_values_are_another_ways():
    assert attend_grid_with_gaps(np.zeros(N), np.arange(N) % 9 > 0, 8.0, 1, "both") is None


@pytest.mark.parametrize("causal", [False, True])
def test_a_bank_with_missing_values_does_not_depend_on_the_way(monkeypatch, causal):
    if not native.available():
        pytest.skip("the other way is native")
    values, weights = np.random.default_rng(0).normal(size=N), weights_of("a tenth missing")
    series = NoisySeries.single(np.arange(float(N)) * 0.1, values, weights, np.ones(N))
    taken = []

    def never(keys, degree, side):
        taken.append(keys)
        return False

    fast = attend_bank(series, causal=causal)
    monkeypatch.setattr(candidates, "favors_convolutions", never)
    slow = attend_bank(series, causal=causal)
    assert max(taken) > 16
    for column, same in zip(fast[:3], slow[:3], strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-9, atol=1e-9)
