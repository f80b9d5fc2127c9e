"""What may be given with a series: weights, other times to ask at, and whether what is missing is filled."""

import numpy as np
import pandas as pd
import pytest

import naive_smoother as plain
import overt
from overt.errors import InputError
from overt.smoothing import analyze

NAN = float("nan")
WAYS = [
    {"keys": "time", "bandwidth": 2.0, "degree": 0},
    {"keys": "time", "bandwidth": 2.0},
    {"keys": "time", "bandwidth": 4.0, "degree": 2},
    {"keys": "value", "bandwidth": 0.4},
    {"keys": "both", "bandwidth": (3.0, 0.5)},
]
TIME = WAYS[:3]
PATCH = {"keys": "patch", "bandwidth": 0.5}
ALL = [*WAYS, PATCH, {}]


def series(n=60, seed=0):
    draw = np.random.default_rng(seed)
    times = np.sort(draw.uniform(0, n, n))
    return 2.0 + np.sin(times / 9) + 0.3 * draw.normal(size=n), times, draw.uniform(0.3, 3.0, n)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("causal", [False, True])
def test_weights_multiply_those_of_attention(way, causal):
    x, times, weights = series()
    result = analyze(x, times=times, weights=weights, causal=causal, **way)
    np.testing.assert_allclose(result.values, plain.smooth(x, times, weights=weights, causal=causal, **way), rtol=1e-10)
    rows = np.stack([result.weights(point) for point in range(x.size)])
    np.testing.assert_allclose(rows, plain.weights(x, times, weights=weights, causal=causal, **way), rtol=0, atol=1e-12)


# One-sided lines may fall to means beside a gap, and where they do rests on what a single value's variance is.
@pytest.mark.parametrize(
    ("way", "causal"), [*((way, False) for way in WAYS), *((way, True) for way in WAYS if way not in TIME[1:])]
)
def test_a_weight_of_two_is_the_point_twice(way, causal):
    x, times, _ = series()
    twice = np.r_[np.arange(60), 7, 30, 31]
    weights = np.bincount(twice).astype(float)
    doubled = overt.smooth(x[twice], times=times[twice], causal=causal, **way)[:60]
    np.testing.assert_allclose(overt.smooth(x, times=times, weights=weights, causal=causal, **way), doubled, rtol=1e-10)


@pytest.mark.parametrize("way", ALL)
def test_a_weight_of_zero_is_a_missing_value(way):
    x, _, weights = series()
    weights[[0, 20, 21]] = 0.0
    without = np.where(weights > 0, x, NAN)
    np.testing.assert_array_equal(overt.smooth(x, weights=weights, **way), overt.smooth(without, weights=weights, **way))


@pytest.mark.parametrize("way", ALL)
def test_only_the_ratios_of_weights_count(way):
    x, times, weights = series()
    times = np.arange(60.0) if way == PATCH else times
    expected = overt.smooth(x, times=times, weights=weights, **way)
    np.testing.assert_allclose(overt.smooth(x, times=times, weights=1e6 * weights, **way), expected, rtol=1e-9)


def test_equal_weights_are_no_weights():
    x, times, _ = series()
    np.testing.assert_array_equal(overt.smooth(x, times=times, weights=np.full(60, 3.0)), overt.smooth(x, times=times))


def test_noise_is_that_of_a_value_of_weight_one():
    x, times, weights = series()
    result = analyze(x, times=times, weights=weights, keys="time", noise=0.3)
    risk = (x - result.values) ** 2 + 0.3**2 / weights * (2 * np.array([result.weights(i)[i] for i in range(60)]) - 1)
    assert result.risk == pytest.approx(risk.mean(), rel=1e-9)
    assert result.noise == pytest.approx(0.3)


@pytest.mark.parametrize("call", [overt.smooth, analyze])
@pytest.mark.parametrize("way", [{}, {"keys": "time"}, {"keys": "time", "bandwidth": 3.0}, {"span": 5.0}])
def test_noise_of_each_point_and_weights_would_divide_the_variance_twice(call, way):
    x, times, weights = series()
    message = (
        "Expected noise as one number with weights, got one for each point. Fix: pass noise for a point of weight 1, or leave"
    )
    with pytest.raises(InputError, match=message):
        call(x, times=times, weights=weights, noise=0.3 / np.sqrt(weights), **way)


def test_noise_of_each_point_goes_with_weights_that_leave_points_out():
    x, times, _ = series()
    noise, weights = np.linspace(0.2, 0.4, 60), np.ones(60)
    weights[7] = 0.0
    expected = overt.smooth(np.where(weights > 0, x, NAN), times=times, noise=noise)
    np.testing.assert_array_equal(overt.smooth(x, times=times, weights=weights, noise=noise), expected)


@pytest.mark.parametrize("way", TIME)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 5.0])
@pytest.mark.filterwarnings("ignore:.*beyond the data")
def test_time_keys_fit_at_other_times_as_at_the_points(way, causal, window):
    x, times, weights = series()
    requested = np.r_[times[[40, 3]], 12.34, -0.5 + times[0], 12.34, 59.9]
    result = overt.smooth(x, times=times, weights=weights, at=requested, causal=causal, window=window, **way)
    reach = {"window": np.inf if window is None else window, "side": "past" if causal else "both"}
    rows = plain.time_rows(times, weights, way["bandwidth"], way.get("degree", 1), requested, **reach)
    np.testing.assert_allclose(result, rows @ x, rtol=1e-10)


@pytest.mark.parametrize("way", ALL)
@pytest.mark.parametrize("causal", [False, True])
def test_at_the_points_the_curve_is_the_curve(way, causal):
    x, times, _ = series()
    result, order = analyze(x, times=times, causal=causal, **way), np.random.default_rng(0).permutation(60)
    np.testing.assert_allclose(result.at(times[order]), result.values[order], rtol=1e-12)


@pytest.mark.parametrize("way", [*WAYS[3:], PATCH, {}])
def test_between_points_other_keys_go_straight(way):
    x, times, _ = series()
    result = analyze(x, times=times, **way)
    middles = (result.values[:-1] + result.values[1:]) / 2
    np.testing.assert_allclose(result.at((times[:-1] + times[1:]) / 2), middles, rtol=1e-12)


@pytest.mark.parametrize("way", [*WAYS[3:], PATCH, {}])
@pytest.mark.filterwarnings("ignore:.*beyond the data")
def test_a_causal_curve_stays_as_it_was_until_the_next_point(way):
    x, times, _ = series()
    result = analyze(x, times=times, causal=True, **way)
    later = result.at(np.r_[times[0] - 1.0, (times[:-1] + times[1:]) / 2, times[-1] + 3.0])
    np.testing.assert_allclose(later, np.r_[NAN, result.values], rtol=1e-12)


def test_dates_are_asked_at_dates():
    dates = pd.date_range("2024-01-01", periods=30, freq="D")
    x = pd.Series(np.sin(np.arange(30) / 5), index=dates)
    requested = pd.DatetimeIndex(["2024-01-10 12:00", "2024-01-03"])
    way = {"keys": "time", "degree": 1}
    result = overt.smooth(x, at=requested, bandwidth=2 * 86400.0, **way)
    np.testing.assert_allclose(result, overt.smooth(x.to_numpy(), at=[9.5, 2.0], bandwidth=2.0, **way), rtol=1e-9)


def test_columns_are_asked_at_the_same_times():
    x, times, _ = series()
    both = np.stack([x, -x], axis=1)
    result = overt.smooth(both, times=times, at=[3.0, 4.0, 5.0])
    assert result.shape == (3, 2)
    np.testing.assert_array_equal(result[:, 1], overt.smooth(-x, times=times, at=[3.0, 4.0, 5.0]))


@pytest.mark.parametrize("way", ALL)
@pytest.mark.parametrize("causal", [False, True])
def test_without_filling_what_is_missing_stays_missing_and_nothing_else_changes(way, causal):
    x, _, _ = series()
    x[[0, 20, 21, 59]] = NAN
    filled, result = (overt.smooth(x, causal=causal, fill=fill, **way) for fill in (True, False))
    np.testing.assert_array_equal(result, np.where(np.isnan(x), NAN, filled))
    assert np.isfinite(filled[1:]).all()


def test_the_plot_shows_the_curve_and_its_data(tmp_path):
    x, times, _ = series()
    result = analyze(x, times=times)
    figure = result.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000
    drawn = [line.get_ydata() for axes in figure.axes for line in axes.get_lines()]
    assert any(np.shape(line) == (60,) and np.allclose(line, result.values) for line in drawn)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"period": 25}])
def test_several_readings_at_one_time_have_one_value_and_the_weights_that_make_it(options):
    draw = np.random.default_rng(0)
    times = np.sort(draw.integers(0, 70, 120)).astype(float)
    x = np.where(times > 40, 4.0, np.sin(times / 8)) + 0.3 * draw.normal(size=120)
    shuffled = draw.permutation(120)
    result = analyze(x[shuffled], times=times[shuffled], robust=False, noise=0.3, **options)
    for time in np.unique(times):
        assert np.ptp(result.values[times[shuffled] == time]) == 0
    for point in (0, 3, 60, 119):
        assert result.weights(point) @ x[shuffled] == pytest.approx(result.values[point], abs=1e-11)


def test_a_missing_reading_takes_the_value_of_the_others_at_its_time():
    times = np.repeat(np.arange(40.0), 3)
    x = np.sin(times / 5) + 0.2 * np.random.default_rng(0).normal(size=120)
    x[[30, 60, 61]] = np.nan
    result = analyze(x, times=times)
    assert np.ptp(result.values.reshape(40, 3), axis=1).max() == 0
