"""What `overt.smooth` promises."""

import warnings
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_smoother as plain
import overt
from overt.smoothing import analyze

GAUSSIAN = [
    {"keys": "time", "bandwidth": 1.7, "degree": 0},
    {"keys": "time", "bandwidth": 1.7},
    {"keys": "time", "bandwidth": 4.0, "degree": 2},
    {"keys": "value", "bandwidth": 0.4},
    {"keys": "both", "bandwidth": (2.0, 0.5)},
]
PATCH = {"keys": "patch", "bandwidth": 0.5}
DOT = [{"keys": "value", "score": "dot", "scale": 0.8}, {"keys": "value", "score": "dot", "normalizer": "sum"}]
WAYS = [*GAUSSIAN, *DOT]
CHOOSING = [{}, {"keys": "time"}, {"keys": "value"}, {"keys": "both"}, {"keys": "patch"}]
RANGES = [{}, {"window": 3.0}, {"causal": True}, {"window": 2.5, "causal": True}]
NAN = float("nan")

series = st.lists(st.floats(-100, 100), min_size=1, max_size=30).map(np.array)


def noisy(n=60, seed=0):
    generator = np.random.default_rng(seed)
    return 2.0 + np.sin(np.linspace(0, 6, n)) + generator.normal(scale=0.3, size=n), np.sort(generator.uniform(0, n, n))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reach", RANGES)
@pytest.mark.parametrize("even", [True, False])
def test_it_is_attention_as_defined(way, reach, even):
    x, times = noisy()
    times = None if even else times
    np.testing.assert_allclose(overt.smooth(x, times=times, **way, **reach), plain.smooth(x, times, **way, **reach), rtol=1e-11)


@pytest.mark.parametrize("reach", RANGES)
def test_patches_are_attention_as_defined(reach):
    x, _ = noisy()
    np.testing.assert_allclose(overt.smooth(x, **PATCH, **reach), plain.smooth(x, **PATCH, **reach), rtol=1e-11)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reach", RANGES)
def test_its_weights_are_those_of_the_definition_and_sum_to_one(way, reach):
    x, times = noisy()
    result = analyze(x, times=times, **way, **reach)
    rows = np.stack([result.weights(i) for i in range(x.size)])
    np.testing.assert_allclose(rows, plain.weights(x, times, **way, **reach), atol=1e-12)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(series, st.floats(-1e3, 1e3), st.sampled_from([*GAUSSIAN, PATCH]))
def test_adding_a_constant_to_the_series_adds_it_to_the_curve(x, shift, way):
    np.testing.assert_allclose(overt.smooth(x + shift, **way), overt.smooth(x, **way) + shift, atol=1e-7)


def test_the_dot_recipe_moves_with_the_zero_of_the_scale():
    x, _ = noisy()
    moved = overt.smooth(x + 5.0, keys="value", score="dot") - 5.0
    assert np.abs(moved - overt.smooth(x, keys="value", score="dot")).max() > 0.3


def test_the_dot_recipe_sends_points_to_the_extremes_as_it_sharpens():
    x = np.array([-1.0, 0.5, 2.0, -3.0])
    np.testing.assert_allclose(overt.smooth(x, keys="value", score="dot", scale=200.0), [-3.0, 2.0, 2.0, -3.0])


def test_the_plain_sum_makes_every_series_a_constant():
    x, _ = noisy()
    np.testing.assert_allclose(overt.smooth(x, keys="value", score="dot", normalizer="sum"), (x**2).sum() / x.sum())


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from([GAUSSIAN[3], DOT[0]]))
def test_value_keys_know_no_order(data, way):
    x = data.draw(series) / 20
    order = data.draw(st.permutations(range(x.size)).map(list))
    np.testing.assert_allclose(overt.smooth(x[order], **way), overt.smooth(x, **way)[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_points_may_come_in_any_order_with_their_times(way):
    x, times = noisy()
    order = np.random.default_rng(1).permutation(x.size)
    expected = overt.smooth(x, times=times, causal=True, **way)
    np.testing.assert_allclose(overt.smooth(x[order], times=times[order], causal=True, **way), expected[order], rtol=1e-12)
    weights = analyze(x[order], times=times[order], **way).weights(3)
    np.testing.assert_allclose(weights, analyze(x, times=times, **way).weights(int(order[3]))[order], rtol=1e-12)


def test_equal_values_get_equal_weights_wherever_they_stand():
    result = analyze([1.0, 5.0, 2.0, 5.0, 3.0, 5.0], keys="value", bandwidth=2.0)
    for point in range(6):
        weights = result.weights(point)
        assert weights[1] == weights[3] == weights[5]


@pytest.mark.parametrize("way", [*GAUSSIAN, PATCH, *CHOOSING, {"causal": True}])
@pytest.mark.parametrize("constant", [0.0, 0.1, -7.3e8, 1e-300, 1e149])
def test_a_constant_series_stays_itself_to_the_bit(way, constant):
    np.testing.assert_array_equal(overt.smooth([constant] * 7, **way), [constant] * 7)


@pytest.mark.parametrize("way", [*CHOOSING, {"causal": True}, PATCH, *WAYS])
def test_a_single_point_stays_itself(way):
    np.testing.assert_allclose(overt.smooth([3.0], **way), [3.0], rtol=1e-15)


@pytest.mark.parametrize("way", CHOOSING)
def test_two_points_show_no_noise_and_stay_themselves(way):
    np.testing.assert_allclose(overt.smooth([3.0, 4.0], **way), [3.0, 4.0], atol=1e-3)


def test_a_causal_curve_does_not_change_when_the_future_does():
    x, _ = noisy()
    changed = np.where(np.arange(x.size) > 30, 99.0, x)
    for way in [*GAUSSIAN, PATCH]:
        before = overt.smooth(x, causal=True, **way)[:31]
        np.testing.assert_allclose(overt.smooth(changed, causal=True, **way)[:31], before, rtol=1e-12)


def test_a_window_counts_both_its_ends_however_the_times_round():
    times = np.arange(20) * 0.1
    weights = analyze(np.arange(20.0), times=times, keys="time", bandwidth=1.0, window=0.2).weights(10)
    np.testing.assert_array_equal(np.flatnonzero(weights), [8, 9, 10, 11, 12])


def test_a_missing_value_is_no_key():
    x, times = noisy()
    holes = np.isin(np.arange(x.size), [0, 7, 8, 30, 59])
    for way in WAYS:
        full = overt.smooth(np.where(holes, NAN, x), times=times, **way)
        np.testing.assert_allclose(full[~holes], overt.smooth(x[~holes], times=times[~holes], **way), rtol=1e-12)
        assert np.isfinite(full).all()


def test_time_keys_fill_a_missing_value_by_kernel_regression():
    filled = overt.smooth([0.0, NAN, 1.0, 4.0], keys="time", degree=0, bandwidth=1.0)[1]
    weights = np.exp([-0.5, -0.5, -2.0])
    np.testing.assert_allclose(filled, weights @ [0.0, 1.0, 4.0] / weights.sum())


@pytest.mark.parametrize("way", [{"keys": "value", "bandwidth": 0.5}, {"keys": "both", "bandwidth": (1.0, 0.5)}])
def test_keys_that_need_a_value_fill_on_the_line_between_the_smoothed_neighbours(way):
    result = analyze([0.0, NAN, NAN, 3.0], **way)
    first, last = result.values[0], result.values[3]
    np.testing.assert_allclose(result.values[1:3], [first + (last - first) / 3, first + 2 * (last - first) / 3])
    np.testing.assert_allclose(result.weights(1) @ [0.0, 0.0, 0.0, 3.0], result.values[1])
    assert result.filled == 2


def test_missing_ends_take_the_nearest_smoothed_value():
    x = [NAN, 1.0, 2.0, NAN]
    curve = overt.smooth(x, keys="value", bandwidth=0.5)
    assert curve[0] == curve[1]
    assert curve[3] == curve[2]


@pytest.mark.parametrize("way", GAUSSIAN)
def test_what_may_attend_to_nothing_stays_missing(way):
    result = analyze([NAN, 1.0, 2.0, NAN, NAN, NAN], causal=True, window=2.0, **way)
    np.testing.assert_array_equal(np.isnan(result.values), [True, False, False, False, False, True])
    np.testing.assert_array_equal(result.weights(0), np.zeros(6))
    assert "left empty, with no neighbour to attend to: 2." in result.sentence


@pytest.mark.filterwarnings("ignore:A bandwidth of")
def test_a_far_hole_is_filled_from_its_nearest_points_without_underflow():
    x = np.r_[np.full(5, 1.0), np.full(2000, NAN), np.full(5, 2.0)]
    curve = overt.smooth(x, keys="time", bandwidth=0.3)
    np.testing.assert_allclose(curve[[500, 1500]], [1.0, 2.0])


def test_columns_are_smoothed_one_by_one():
    x = np.stack([noisy(seed=1)[0], noisy(seed=2)[0]], axis=1)
    np.testing.assert_allclose(overt.smooth(x)[:, 1], overt.smooth(x[:, 1]), rtol=1e-12)
    assert overt.smooth(x).shape == x.shape


def test_integers_booleans_lists_and_none_are_numbers():
    np.testing.assert_array_equal(overt.smooth([1, 2, 4], keys="time"), overt.smooth([1.0, 2.0, 4.0], keys="time"))
    assert np.isfinite(overt.smooth([1.0, None, 3.0])).all()
    assert overt.smooth(np.array([True, False, True])).dtype == np.float64


def test_the_input_is_left_as_it_was():
    x, times = noisy()
    remaining = x.copy(), times.copy()
    overt.smooth(x, times=times)
    np.testing.assert_array_equal((x, times), remaining)


def test_repeated_times_see_each_other_and_share_a_value():
    curve = overt.smooth([0.0, 4.0, 8.0], times=[1.0, 1.0, 9.0], keys="time", bandwidth=1.0, causal=True)
    np.testing.assert_allclose(curve, [2.0, 2.0, 8.0])


@pytest.mark.parametrize("way", [*CHOOSING, {"causal": True}])
@pytest.mark.parametrize("scale", [1e-150, 1e140])
def test_the_unit_of_values_and_times_does_not_matter(scale, way):
    x, times = noisy()
    expected = overt.smooth(x, times=times, **way) * scale
    np.testing.assert_allclose(overt.smooth(x * scale, times=times * 1e-5, **way), expected, rtol=1e-9)


def test_a_pandas_series_keeps_its_index_and_name():
    x = pd.Series([1.0, None, 3.0], index=pd.Index([5, 6, 8]), name="height")
    expected = pd.Series(overt.smooth(x.to_numpy(), times=[5, 6, 8]), index=x.index, name="height")
    pd.testing.assert_series_equal(overt.smooth(x), expected)


def test_a_pandas_frame_keeps_its_index_and_columns():
    frame = pd.DataFrame({"a": [1, 2, 4], "b": pd.array([1, None, 3], dtype="Int64")}, index=list("xyz"))
    curve = overt.smooth(frame)
    assert list(curve.columns) == ["a", "b"]
    assert list(curve.index) == list("xyz")
    assert curve.notna().all().all()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_pandas_index_of_dates_gives_the_times(zone):
    dates = pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06"], tz=zone)
    x = pd.Series([1.0, 2.0, 4.0, 3.0], index=dates)
    seconds = np.array([0.0, 1.0, 4.0, 5.0]) * 86400
    way = {"keys": "time", "bandwidth": 86400.0}
    np.testing.assert_allclose(overt.smooth(x, **way), overt.smooth(x.to_numpy(), times=seconds, **way))
    result = analyze(x, **way)
    assert result.unit == "seconds"
    assert "bandwidth 1 day" in result.explanation


def test_dates_as_numpy_arrays_count_in_seconds():
    dates = np.array(["2024-01-01T00:00", "2024-01-01T00:01", "2024-01-01T00:03"], dtype="datetime64[m]")
    curve = overt.smooth([1.0, 2.0, 4.0], times=dates, keys="time", bandwidth=60.0)
    np.testing.assert_allclose(curve, overt.smooth([1.0, 2.0, 4.0], times=[0, 1, 3], keys="time", bandwidth=1.0))


@pytest.mark.parametrize("unit", ["Y", "D", "s", "us", "ns"])
def test_dates_may_be_centuries_apart(unit):
    dates = np.array(["1700-01-01", "1701-01-01", "1990-01-01", "2210-01-01"], dtype=f"datetime64[{unit}]")
    days = dates.astype("datetime64[D]").astype(float)
    result = analyze([1.0, 2.0, 5.0, 4.0], times=dates, keys="time", bandwidth=86400e5)
    expected = analyze([1.0, 2.0, 5.0, 4.0], times=days, keys="time", bandwidth=1e5)
    np.testing.assert_allclose(result.values, expected.values)
    np.testing.assert_allclose(result.at(dates[2]), expected.at(days[2]))


@pytest.mark.parametrize("zone", [None, UTC])
def test_dates_as_python_and_pandas_have_them_are_dates(zone):
    dates = [datetime(2024, 1, day, tzinfo=zone) for day in (1, 2, 4, 9)]
    result = analyze([1.0, 2.0, 5.0, 4.0], times=dates, keys="time", bandwidth=86400.0)
    assert result.unit == "seconds"
    for same in (pd.DatetimeIndex(dates), pd.Series(dates), np.array(dates, dtype=object)):
        np.testing.assert_array_equal(
            analyze([1.0, 2.0, 5.0, 4.0], times=same, keys="time", bandwidth=86400.0).values, result.values
        )
    np.testing.assert_allclose(result.at(pd.Timestamp(dates[2])), result.values[2])


def test_what_an_array_masks_is_missing():
    masked = np.ma.masked_array([1.0, 2.0, 1e6, 4.0], mask=[False, False, True, False])
    np.testing.assert_array_equal(overt.smooth(masked), overt.smooth([1.0, 2.0, NAN, 4.0]))


def test_it_warns_of_nothing_on_hard_series():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in ([0.0, 1e-308, 0.0, 1e150, -7e149], [0.0, 1e-310, 0.0], [NAN, 5.0], np.arange(50.0), [1e16, 1.0, 1e16, 1.0]):
            for way in CHOOSING:
                assert np.isfinite(overt.smooth(x, **way)).all()


@pytest.mark.parametrize("way", [GAUSSIAN[0], *GAUSSIAN[3:], PATCH])
@settings(max_examples=25, deadline=None)
@given(x=series)
def test_a_mean_lies_between_the_least_and_the_largest_value(way, x):
    curve = overt.smooth(x, **way)
    assert x.min() - 1e-12 <= curve.min()
    assert curve.max() <= x.max() + 1e-12


def appended(points, more, **options):
    """By how much the causal curve of the first points moves when more arrive, and wild ones."""
    x = np.sin(np.arange(points + more) / 20) + 0.3 * np.random.default_rng(0).normal(size=points + more)
    wild = np.concatenate([x[:points], 50 * x[points:] + 7])
    first = overt.smooth(x[:points], causal=True, **options)
    return max(np.nanmax(np.abs(overt.smooth(longer, causal=True, **options)[:points] - first)) for longer in (x, wild))


@pytest.mark.parametrize(
    "options",
    [
        {"keys": "time", "bandwidth": 5.0},
        {"keys": "time", "bandwidth": 5.0, "degree": 2, "window": 9.0},
        {"keys": "value", "bandwidth": 0.5},
        {"keys": "both", "bandwidth": (5.0, 0.5)},
        {"keys": "patch", "bandwidth": 0.5},
        {"keys": "value", "score": "dot", "scale": 0.1},
    ],
    ids=str,
)
def test_of_a_head_that_is_given_no_point_sees_its_future(options):
    assert appended(120, 60, **options) < 1e-12


def test_what_is_chosen_sees_the_whole_series_as_the_readme_says():
    assert appended(120, 60) > 1e-6


def test_a_causal_mixture_attends_to_nothing_that_comes_later():
    result = analyze(np.sin(np.arange(80) / 9) + 0.3 * np.random.default_rng(0).normal(size=80), causal=True)
    for point in (0, 7, 40, 79):
        assert not result.weights(point)[point + 1 :].any()
