"""The joint bilateral filter over windows: against the n×n formula, with weights, sides, gaps, ties and a derivative."""

import numpy as np
import pytest

from overt import native
from overt.errors import InputError
from overt.smoothing.heads.bilateral import attend_both
from overt.smoothing.heads.guided import attend_guided

LEVELS = native.module().levels()
pytestmark = pytest.mark.usefixtures("form")


def even(n, seed=0):
    generator = np.random.default_rng(seed)
    guide = np.where(np.arange(n) % 40 < 19, 1.0, -1.0) + np.sin(np.arange(n) / 9)
    return np.arange(float(n)), guide, guide + 0.3 * generator.normal(size=n), generator.uniform(0.2, 3.0, n)


def uneven(n, seed=0):
    _, guide, values, weights = even(n, seed)
    times = np.sort(np.random.default_rng(seed).uniform(0, n, n))
    times[n // 3 : n // 3 + 4] = times[n // 3]  # several at one time
    times[n // 2 :] += 40.0  # and a gap
    return times, guide, values, weights


def plain(series, h, h_time, window, side="both"):
    """Values, own weights and covariance (n,), as the definition says, in extended precision."""
    times, guide, values, weights = series
    gap, rise = (np.subtract.outer(column, column).astype(np.longdouble) for column in (times, guide))  # of i and j
    allowed = (np.abs(gap) <= window * (1 + 1e-9)) & (weights > 0)
    allowed &= {"both": gap > -np.inf, "past": gap >= 0, "future": gap <= 0}[side]
    scores = np.where(allowed, -((gap / h_time) ** 2) / 2 - (rise / h) ** 2 / 2, -np.inf)
    peak = scores.max(axis=1, keepdims=True)
    W = weights * np.exp(scores - np.where(np.isinf(peak), 0, peak))
    total = W.sum(axis=1, keepdims=True)
    W /= np.where(total > 0, total, np.nan)
    y = W @ values
    return y, np.diag(W), (W * -rise * (values - y[:, None])).sum(axis=1)


def check(result, series, bandwidths, h_time, window, side="both"):
    for b, h in enumerate(bandwidths):
        for column, wanted in zip(result, plain(series, h, h_time, window, side), strict=True):
            np.testing.assert_allclose(column[b], wanted.astype(float), rtol=1e-12, atol=1e-13)


def attend(series, bandwidths, h_time, window, side="both"):
    times, guide, values, weights = series
    return attend_guided(times, guide, values, weights, bandwidths, bandwidth_time=h_time, window=window, side=side)


@pytest.mark.each_pair
@pytest.mark.parametrize("series", [even, uneven])
@pytest.mark.parametrize(("h_time", "window"), [(5.0, 15.0), (np.inf, 20.0), (40.0, np.inf), (0.3, 100.0), (5.0, 0.0)])
@pytest.mark.parametrize("side", ["both", "past", "future"])
def test_points_attend_as_the_formula_says(series, h_time, window, side):
    series = series(300)
    check(attend(series, [0.4], h_time, window, side), series, [0.4], h_time, window, side)


BANDWIDTHS = [[0.8, 0.4, 0.2], [0.2, 0.8, 0.4], [1.6, 0.1], [1.0, 0.7, 0.5], [3.2, 1.6, 0.8, 0.4, 0.2, 0.1, 0.05]]


@pytest.mark.parametrize("bandwidths", BANDWIDTHS)
def test_bandwidths_are_those_of_separate_calls_in_any_order_and_ratio(bandwidths):
    series = uneven(300)
    result = attend(series, bandwidths, 5.0, 15.0)
    assert result.values.shape == (len(bandwidths), 300)
    check(result, series, bandwidths, 5.0, 15.0)


@pytest.mark.parametrize("series", [even, uneven])
@pytest.mark.parametrize("n", [1, 2, 3, 65, 127, 128, 129, 257, 700])
def test_every_length_is_served(series, n):
    times, guide, values, _ = (column[:n] for column in series(n + 8))
    result = attend((times, guide, values, None), [0.4], 30.0, 90.0)
    check(result, (times, guide, values, np.ones(n)), [0.4], 30.0, 90.0)


def test_no_points_give_no_outputs():
    nothing = np.zeros(0)
    assert attend((nothing, nothing, nothing, None), [1.0], 1.0, 1.0).values.shape == (1, 0)


def test_a_window_that_equals_a_distance_includes_it():
    _, guide, values, _ = even(60)
    result = attend((0.1 * np.arange(60), guide, values, None), [0.4], np.inf, 0.3)
    check(result, (np.arange(60.0), guide, values, np.ones(60)), [0.4], np.inf, 3.0)


@pytest.mark.parametrize("series", [even, uneven])
@pytest.mark.parametrize("side", ["both", "past", "future"])
def test_a_point_of_weight_zero_attends_and_is_not_attended_to(series, side):
    times, guide, values, weights = series(300)
    weights[5:290:7] = 0.0
    guide[47] = 1e4  # far from every key
    series = times, guide, values, weights
    result = attend(series, [0.8, 0.4], 5.0, 15.0, side)
    check(result, series, [0.8, 0.4], 5.0, 15.0, side)
    assert (result.self_weights[:, 5:290:7] == 0).all()
    values[5:290:7] = -1e9
    moved = attend(series, [0.8, 0.4], 5.0, 15.0, side)
    np.testing.assert_allclose(moved.values[:, 6:290:7], result.values[:, 6:290:7], rtol=1e-12)


def test_weights_of_any_size_are_relative():
    times, guide, values, weights = uneven(300)
    weights[::2] *= 1e-290
    series = times, guide, values, weights
    check(attend(series, [0.8, 0.01], 5.0, 15.0), series, [0.8, 0.01], 5.0, 15.0)


def test_a_row_without_a_key_in_reach_is_missing():
    times, guide, values, weights = even(60)
    weights[20:40] = 0.0
    result = attend((times, guide, values, weights), [0.4], 5.0, 4.0)
    assert np.flatnonzero(np.isnan(result.values[0])).tolist() == list(range(24, 36))


def test_with_the_values_as_guide_it_is_the_bilateral_filter():
    times, _, values, weights = uneven(300)
    result = attend((times, values, values, weights), [0.5], 3.0, 20.0)
    pairs = attend_both(times, values, weights, 3.0, 0.5, window=20.0)
    np.testing.assert_allclose(result.values[0], pairs.values, rtol=1e-12)
    np.testing.assert_allclose(result.self_weights[0], pairs.self_weights, rtol=1e-12)
    np.testing.assert_allclose(result.covariance[0], pairs.variances, atol=1e-12)


@pytest.mark.parametrize("follows", [0.0, 0.3, 1.0])
def test_the_slope_made_of_own_weight_and_covariance_is_the_derivative(follows):
    times, guide, values, weights = uneven(60)
    result = attend((times, guide, values, weights), [0.4], 5.0, 15.0)
    leverages = result.self_weights[0] + follows * result.covariance[0] / 0.4**2
    for i in range(60):
        nudge = 1e-5 * (np.arange(60) == i)
        moved = ((times, guide + follows * by, values + by, weights) for by in (nudge, -nudge))
        above, below = (plain(series, 0.4, 5.0, 15.0)[0][i] for series in moved)
        assert leverages[i] == pytest.approx(float(above - below) / 2e-5, abs=1e-8)


def test_moving_guide_and_values_moves_the_outputs_alone():
    times, guide, values, _ = uneven(300)
    near = attend((times, guide, values, None), [0.4], 5.0, 15.0)
    far = attend((times, guide + 2.0**20, values - 2.0**20, None), [0.4], 5.0, 15.0)
    np.testing.assert_allclose(far.values + 2.0**20, near.values, atol=1e-9)
    np.testing.assert_allclose(far.covariance, near.covariance, atol=1e-9)


@pytest.mark.parametrize("form", LEVELS, indirect=True)
@pytest.mark.parametrize("series", [even, uneven])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("side", ["both", "past"])
def test_the_number_of_threads_changes_no_digit(monkeypatch, series, side, weighted):
    times, guide, values, weights = series(3000)
    series = times, guide, values, weights if weighted else None
    by_threads = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        by_threads.append(attend(series, [0.8, 0.4], 30.0, 90.0, side))
    for several in by_threads[1:]:
        for column, same in zip(by_threads[0], several, strict=True):
            np.testing.assert_array_equal(column, same)


@pytest.mark.parametrize("form", LEVELS, indirect=True)
@pytest.mark.parametrize("series", [even, uneven])
@pytest.mark.parametrize("side", ["both", "past", "future"])
def test_numpy_gives_the_same_numbers(monkeypatch, series, side):
    series = series(3000)
    result = attend(series, [0.8, 0.4, 0.2], 40.0, 300.0, side)
    monkeypatch.setattr(native, "available", lambda: False)
    for column, same in zip(result, attend(series, [0.8, 0.4, 0.2], 40.0, 300.0, side), strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-12, atol=1e-13)


def test_what_cannot_be_a_side_or_a_bandwidth_is_refused():
    with pytest.raises(InputError, match='side "both", "past" or "future", got \'left\''):
        attend(even(3), [1.0], 1.0, 1.0, "left")
    with pytest.raises(InputError, match=r"one or more bandwidths above 0, got \[1. 0.\]"):
        attend(even(3), [1.0, 0.0], 1.0, 1.0)
