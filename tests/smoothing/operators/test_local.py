"""Local polynomials by time, against weighted least squares solved one target at a time."""

import numpy as np
import pytest

from naive_smoother import time_rows as plain_rows
from overt import native
from overt.smoothing.heads.local.polynomial import Local
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.heads.local.short_grid import EXTRAPOLATED, attend_short_grid

pytestmark = pytest.mark.usefixtures("form")
SIDES = ["both", "past", "future"]


def series(n=120, seed=0):
    """Irregular times with two gaps and repeats, values on a large offset, weights."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.uniform(0, n, n))
    times[40:] += 25
    times[90:] += 300
    times[10:13] = times[10]
    return times, 1e3 + np.cumsum(draw.normal(size=n)), draw.uniform(0.2, 3, n)


def expect(result, rows, values, weights, self_index):
    centered = values - values.mean()
    np.testing.assert_allclose(result.values, rows @ centered + values.mean(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.unit_variances, (rows**2 / weights).sum(axis=1), rtol=1e-9, atol=0)
    expected = np.where(self_index < 0, np.nan, rows[np.arange(self_index.size), self_index])
    np.testing.assert_allclose(result.leverages, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.each_pair
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("bandwidth", [0.3, 4.0, 500.0])
def test_values_own_and_squares_are_those_of_least_squares(bandwidth, degree, side):
    times, values, weights = series()
    result = attend_time(times, values, weights, bandwidth, degree=degree, side=side)
    rows = plain_rows(times, weights, bandwidth, degree, times, side=side)
    expect(result, rows, values, weights, np.arange(times.size))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_a_window_bars_keys_farther_away(degree, side):
    times, values, weights = series()
    result = attend_time(times, values, weights, 6.0, degree=degree, side=side, window=5.0)
    rows = plain_rows(times, weights, 6.0, degree, times, window=5.0, side=side)
    expect(result, rows, values, weights, np.arange(times.size))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_targets_may_be_anywhere(degree, side):
    times, values, weights = series()
    targets = np.sort(np.concatenate([times[[3, 60]], np.linspace(-30, times[-1] + 30, 97)]))
    self_index = np.where(np.isin(targets, times), np.searchsorted(times, targets), -1)
    result = attend_time(times, values, weights, 2.0, degree=degree, targets=targets, self_index=self_index, side=side)
    rows = plain_rows(times, weights, 2.0, degree, targets, side=side)
    expect(result, rows, values, weights, self_index)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_a_polynomial_of_the_degree_is_kept_where_its_points_are_dense(degree):
    times = np.sort(np.random.default_rng(1).uniform(0, 100, 300))
    values = (times / 10) ** degree
    np.testing.assert_allclose(attend_time(times, values, None, 5.0, degree=degree).values, values, atol=1e-10)


def test_the_own_weight_is_the_derivative():
    times, values, weights = series()
    result = attend_time(times, values, weights, 3.0, degree=2)
    moved = values.copy()
    moved[50] += 1e-3
    change = attend_time(times, moved, weights, 3.0, degree=2).values - result.values
    assert change[50] / 1e-3 == pytest.approx(result.leverages[50], abs=1e-8)


def test_squares_at_a_point_never_exceed_one_where_weights_are_equal():
    times, values, _ = series()
    for bandwidth in (0.2, 1.0, 30.0):
        assert attend_time(times, values, None, bandwidth, degree=2).unit_variances.max() <= 1 + 1e-9


def test_a_line_does_not_leap_across_a_wide_gap():
    times = np.concatenate([np.arange(10.0), np.arange(200.0, 210.0)])
    values = np.tile(np.arange(10.0), 2)
    result = attend_time(times, values, None, 2.0, degree=1, targets=np.linspace(10, 199, 50))
    assert result.unit_variances.max() <= 1 + 1e-9
    assert result.values.min() >= -1
    assert result.values.max() <= 11


def test_a_target_without_a_key_in_reach_is_nan():
    times, targets = np.array([0.0, 1.0]), np.array([-1.0, 0.5, 9.0])
    values = np.array([1.0, 3.0])
    assert np.isnan(attend_time(times, values, None, 1.0, targets=targets, window=2.0).values).tolist() == [False, False, True]
    assert np.isnan(attend_time(times, values, None, 1.0, targets=targets, side="past").values).tolist() == [True, False, False]


def test_without_a_window_a_far_target_takes_the_nearest_key():
    result = attend_time(np.array([0.0, 1.0]), np.array([1.0, 3.0]), None, 0.01, targets=np.array([-1e6, 1e6]))
    np.testing.assert_array_equal(result.values, [1.0, 3.0])
    np.testing.assert_array_equal(result.unit_variances, [1.0, 1.0])


@pytest.mark.each_pair
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("window", [5.0, 60.0, np.inf])
@pytest.mark.parametrize("bandwidth", [0.2, 3.0, 25.0, 1e5])
def test_evenly_spaced_points_are_attended_to_like_any_others(bandwidth, window, side):
    times = 7 + 0.1 * np.arange(700)
    values = 1e3 + np.cumsum(np.random.default_rng(0).normal(size=times.size))
    targets = np.arange(0, 700, 23)
    for degree in (0, 1, 2):
        result = attend_time(times, values, None, 0.1 * bandwidth, degree=degree, window=0.1 * window, side=side)
        some = type(result)(*(column[targets] for column in result))
        ones = np.ones(times.size)
        rows = plain_rows(times, ones, 0.1 * bandwidth, degree, times[targets], window=0.1 * window, side=side)
        expect(some, rows, values, ones, targets)


@pytest.mark.parametrize("points", [2, 3, 17, 90])
@pytest.mark.few_cases(3)
def test_many_heads_on_a_short_grid_give_what_least_squares_give_head_by_head(points):
    heads = tuple((h, degree, side) for h in (0.4, 2.7, 31.0, 1e5) for degree in (0, 1, 2) for side in SIDES)
    steps, ones = np.arange(float(points)), np.ones(points)
    for seed in range(2):  # the second series uses the rows of the first
        values = 1e3 + np.cumsum(np.random.default_rng(seed).normal(size=points))
        result = attend_short_grid(values[None], heads)
        for index, (bandwidth, degree, side) in enumerate(heads):
            rows = plain_rows(steps, ones, bandwidth, degree, steps, side=side)
            fitted = Local(result.values[0, index], result.leverages[index], result.unit_variances[index])
            expect(fitted, rows, values, ones, np.arange(points))


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_boxes_give_what_keys_one_by_one_give(degree, weighted):
    draw = np.random.default_rng(0)
    times = np.sort(draw.uniform(0, 3000, 3000))
    times[1000:] += 300  # ten bandwidths: targets in the middle are far from all keys
    times[2000:] += 80
    values, weights = 1e3 + np.cumsum(draw.normal(size=times.size)), draw.uniform(0.5, 2, times.size)
    targets = np.sort(np.concatenate([times[::50], np.linspace(-400, times[-1] + 400, 80)]))
    self_index = np.where(np.isin(targets, times), np.searchsorted(times, targets), -1)
    weights = weights if weighted else np.ones(times.size)
    result = attend_time(
        times, values, weights if weighted else None, 30.0, degree=degree, targets=targets, self_index=self_index
    )
    expect(result, plain_rows(times, weights, 30.0, degree, targets), values, weights, self_index)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    times = np.sort(np.random.default_rng(0).uniform(0, 9000, 9000))
    values = np.sin(times / 50)
    for moments in (times, np.arange(9000.0)):
        for bandwidth in (0.5, 40.0):
            monkeypatch.setattr(native, "threads", lambda: 1)
            one = attend_time(moments, values, None, bandwidth, degree=2)
            monkeypatch.setattr(native, "threads", lambda: 3)
            for alone, shared in zip(one, attend_time(moments, values, None, bandwidth, degree=2), strict=True):
                np.testing.assert_array_equal(alone, shared)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("window", [np.inf, 430.0])
def test_long_rows_on_a_grid_are_those_of_single_targets(side, window):
    values = 1e3 + np.cumsum(np.random.default_rng(0).normal(size=9000))
    times = np.arange(9000.0)
    targets = times[::71]
    for degree in (0, 2):
        result = attend_time(times, values, None, 90.0, degree=degree, window=window, side=side)
        some = attend_time(times, values, None, 90.0, degree=degree, window=window, side=side, targets=targets)
        np.testing.assert_allclose(result.values[::71], some.values, rtol=0, atol=1e-9)
        np.testing.assert_allclose(result.unit_variances[::71], some.unit_variances, rtol=1e-9)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("bandwidth", [400.0, 3e3, 1e6])
def test_bandwidths_beyond_the_series_lose_no_digits(bandwidth, degree):
    times = np.sort(np.random.default_rng(0).uniform(0, 800, 2000))
    values = np.cumsum(np.random.default_rng(1).normal(size=times.size))
    targets = times[::97]
    result = attend_time(times, values, None, bandwidth, degree=degree)
    some = type(result)(*(column[::97] for column in result))
    ones = np.ones(times.size)
    expect(some, plain_rows(times, ones, bandwidth, degree, targets), values, ones, np.arange(0, times.size, 97))


def test_extrapolated_parabolas_follow_a_polynomial_of_degree_four_where_parabolas_do_not():
    t = (np.arange(128.0) - 64) / 32
    quartic = 1 - t + 2 * t**2 - t**3 + 3 * t**4
    heads = ((4.0, 2, "both"), (4.0 * 2**0.5, 2, "both"), (4.0, EXTRAPOLATED, "both"))
    fits = attend_short_grid(quartic[None], heads)
    away = np.abs(fits.values[0] - quartic)[:, 54:74].max(axis=1)
    assert away[2] < 1e-10 < 1e-3 < away[0]
    impulse = attend_short_grid(np.eye(1, 128, 64), heads)
    np.testing.assert_allclose(fits.leverages[2, 64], impulse.values[0, 2, 64], rtol=1e-12)
    rows = attend_short_grid(np.eye(128), heads).values[:, 2, 64]
    np.testing.assert_allclose(fits.unit_variances[2, 64], np.sum(rows**2), rtol=1e-3)
