"""The causal smoother point by point: what the batch gives, from what has arrived."""

import datetime
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import overt
from overt.errors import InputError, KindError
from overt.smoothing import analyze
from overt.smoothing.streaming.online import Online

NAN, INF = float("nan"), float("inf")


def online(x, times=None, **way):
    smoother = Online(**way)
    times = [None] * len(x) if times is None else times
    return np.array([smoother.update(value, time) for value, time in zip(x, times, strict=True)])


def assert_equals_the_batch(x, times=None, **way):
    batch = overt.smooth(x, times=times, causal=True, **way)
    known = np.asarray(x)[~np.isnan(x)]
    np.testing.assert_allclose(online(x, times, **way), batch, rtol=0, atol=1e-12 * np.abs(known).max())


values = st.one_of(st.floats(-10, 10).map(lambda value: round(value, 6)), st.just(NAN))
steps = st.one_of(st.floats(0.01, 2.0), st.floats(2.0, 60.0))
series = st.lists(st.tuples(steps, values), min_size=1, max_size=60).filter(lambda s: any(x == x for _, x in s))
bandwidths = st.floats(0.1, 20.0)
windows = st.one_of(st.none(), st.floats(0.0, 50.0))


def parts(points):
    gaps, x = np.array(points).T
    return x, np.cumsum(gaps)


@pytest.mark.filterwarnings("ignore:A bandwidth of")
@settings(deadline=None, max_examples=150)
@given(series, bandwidths, windows, st.integers(0, 2))
def test_time_keys_of_every_degree_equal_the_batch(points, bandwidth, window, degree):
    x, times = parts(points)
    assert_equals_the_batch(x, times, keys="time", bandwidth=bandwidth, window=window, degree=degree)


@settings(deadline=None, max_examples=100)
@given(series, bandwidths, st.floats(0.0, 50.0))
def test_value_keys_equal_the_batch(points, bandwidth, window):
    x, times = parts(points)
    assert_equals_the_batch(x, times, keys="value", bandwidth=bandwidth, window=window)


@pytest.mark.filterwarnings("ignore:A bandwidth of")
@settings(deadline=None, max_examples=100)
@given(series, bandwidths, bandwidths, windows)
def test_keys_of_both_equal_the_batch(points, of_time, of_value, window):
    x, times = parts(points)
    assert_equals_the_batch(x, times, keys="both", bandwidth=(of_time, of_value), window=window)


@settings(deadline=None, max_examples=100)
@given(st.lists(values, min_size=1, max_size=60).filter(lambda x: any(v == v for v in x)), bandwidths, st.integers(0, 30))
def test_patches_equal_the_batch(x, bandwidth, window):
    assert_equals_the_batch(x, keys="patch", bandwidth=bandwidth, window=window)


def test_patches_without_a_window_equal_the_batch_at_any_times():
    random = np.random.default_rng(0)
    x = np.where(random.random(600) < 0.1, NAN, np.cumsum(random.normal(size=600)))
    assert_equals_the_batch(x, np.cumsum(random.exponential(size=600)), keys="patch", bandwidth=0.7)


def test_a_window_of_patches_counts_points():
    with pytest.raises(
        InputError, match=r"no times with a window of patches, which counts points, got the time .*\. Fix: leave out the times"
    ):
        Online(keys="patch", bandwidth=1.0, window=5.0).update(1.0, 3.0)


@settings(deadline=None, max_examples=50)
@given(series, st.floats(-1.0, 1.0), st.floats(0.0, 50.0))
def test_the_dot_score_equals_the_batch(points, scale, window):
    x, times = parts(points)
    assert_equals_the_batch(x, times, keys="value", score="dot", scale=scale, window=window)


def test_the_plain_sum_equals_the_batch():
    x = np.random.default_rng(0).uniform(1.0, 2.0, size=50)
    assert_equals_the_batch(x, keys="value", score="dot", normalizer="sum", window=7)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.few_cases(1)
def test_a_long_series_equals_the_batch_with_gaps_far_from_zero(degree):
    random = np.random.default_rng(0)
    x = 1e6 + np.cumsum(random.normal(size=3000))
    x[random.random(3000) < 0.1] = NAN
    x[500:800] = NAN
    times = 1.7e9 + np.cumsum(random.exponential(size=3000))
    assert_equals_the_batch(x, times, keys="time", bandwidth=5.0, degree=degree)


def test_without_times_points_are_counted():
    assert_equals_the_batch([1.0, NAN, 3.0, 2.0], keys="time", bandwidth=2.0)


def test_by_hand():
    # Weights e^0 and e^(-1/2) of two points one bandwidth apart.
    far = np.exp(-0.5)
    assert online([1.0, 3.0], keys="time", bandwidth=1.0, degree=0)[1] == pytest.approx((3 + far) / (1 + far), rel=1e-15)


@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("2024-01-01", periods=4, freq="7h"),
        list(pd.date_range("2024-01-01", periods=4, freq="7h").to_pydatetime()),
        pd.date_range("2024-01-01", periods=4, freq="7h", tz="Europe/Berlin"),
        pd.date_range("2024-01-01", periods=4, freq="7h").to_numpy(),
    ],
    ids=["pandas", "datetime", "with a zone", "numpy"],
)
def test_dates_are_taken_in_seconds(dates):
    x = [1.0, 2.0, NAN, 3.0]
    np.testing.assert_allclose(
        *(online(x, times, keys="time", bandwidth=3e4) for times in (dates, 7 * 3600.0 * np.arange(4))), rtol=0, atol=1e-12
    )


def test_a_point_before_any_value_has_no_answer():
    np.testing.assert_array_equal(online([NAN, NAN, 2.0], keys="time", bandwidth=1.0), [NAN, NAN, 2.0])


def test_a_missing_point_beyond_the_window_has_no_answer():
    for way in ({"keys": "time", "bandwidth": 1.0}, {"keys": "both", "bandwidth": (1.0, 1.0)}):
        np.testing.assert_array_equal(online([2.0, NAN, NAN], window=1.0, **way), [2.0, 2.0, NAN])


def test_missing_points_stay_missing_unless_they_are_to_be_filled():
    np.testing.assert_array_equal(online([2.0, NAN, 2.0], keys="time", bandwidth=1.0, fill=False), [2.0, NAN, 2.0])


def test_memory_is_bounded_by_the_reach():
    smoother = Online(keys="time", bandwidth=3.0, window=20.0)
    tracemalloc.start()
    memory = []
    for _ in range(3):
        for _ in range(1000):
            smoother.update(0.0)
        memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert memory[2] - memory[1] < 2_000


@pytest.mark.parametrize("offset", [pytest.param(0.0, marks=pytest.mark.slow), 1e6])
@pytest.mark.slow
def test_the_bank_gives_what_the_batch_gives_for_the_last_points(offset):
    random = np.random.default_rng(3)
    times = 1e9 + np.cumsum(random.integers(1, 4, size=80))
    x = offset + np.sin(times / 30.0) + 0.3 * random.normal(size=80)
    x[[0, 1, 40, 41, 79]] = NAN
    result = online(x, times, history=50)
    assert np.isnan(result[:2]).all()
    for index in (2, 30, 49, 50, 78, 79):
        last = slice(max(0, index - 49), index + 1)
        batch = overt.smooth(x[last], times=times[last], causal=True)
        assert result[index] == pytest.approx(batch[-1], abs=1e-9 * max(1.0, offset))
    assert np.isnan(online(x, times, history=50, fill=False)[[40, 79]]).all()


@pytest.mark.slow
def test_the_bank_lowers_the_error_of_a_stream_without_any_choice():
    draw = np.random.default_rng(8)
    truth = np.where(np.arange(150) < 85, 0.0, 4.0)
    x = truth + 0.5 * draw.normal(size=150)
    late = slice(50, None)
    assert np.mean((online(x, history=100)[late] - truth[late]) ** 2) < 0.3 * np.mean((x - truth)[late] ** 2)


def test_the_bank_forgets_what_lies_before_its_history():
    smoother = Online(history=30)
    for _ in range(40):
        smoother.update(1e6)
    assert [smoother.update(2.0) for _ in range(30)][-1] == 2.0


def test_it_goes_on_as_an_analysis_of_history_did():
    x = np.sin(np.arange(300) / 10) + np.random.default_rng(0).normal(size=300) * 0.3
    result = analyze(x, keys="time", causal=True)
    smoother = Online.like(result)
    np.testing.assert_allclose([smoother.update(value) for value in x], result.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            {"keys": "time"},
            r'Expected a bandwidth, got bandwidth="auto"\. Fix: pass one, or choose it on some history: Online\.like\(overt\.smoothing',
        ),
        (
            {"bandwidth": 1.0},
            r'no bandwidth and no window with keys="auto", which mixes heads of many, got bandwidth=1\.0\. Fix: pass keys',
        ),
        ({"history": 0}, r"a history of 1 point or more, got 0\. Fix: pass how many points"),
        ({"keys": "patch"}, r'Expected a bandwidth, got bandwidth="auto"'),
        (
            {"keys": "value", "bandwidth": 1.0},
            r'a window with keys="value", to bound the memory, got none\. Fix: pass window=',
        ),
        ({"keys": "value", "score": "dot"}, r"a window with keys=.value., to bound the memory, got none"),
        ({"keys": "time", "bandwidth": 0.0}, r"a bandwidth above 0, got 0\.0"),
        ({"keys": "time", "bandwidth": NAN}, r"a bandwidth above 0, got nan"),
        ({"keys": "time", "bandwidth": 1.0, "window": -1.0}, r"a window of 0 or more, a distance in time, got -1\.0"),
        ({"keys": "time", "bandwidth": 1.0, "degree": 3}, r"Expected degree 0, 1 or 2, got 3"),
        ({"keys": "colour", "bandwidth": 1.0}, r"got 'colour'"),
    ],
)
def test_options_that_cannot_be_had_are_refused(way, message):
    with pytest.raises(InputError, match=message):
        Online(**way)


def test_a_smoothing_that_saw_its_future_is_no_model():
    message = r"a causal smoothing, got one that is not causal\. Fix: analyze with causal=True"
    with pytest.raises(InputError, match=message):
        Online.like(analyze([1.0, 2.0, 3.0], keys="time", bandwidth=1.0))


@pytest.mark.parametrize("way", [{"robust": True}, {"weights": [1.0, 2.0, 1.0, 1.0, 1.0]}])
def test_a_weighted_smoothing_is_no_model(way):
    result = analyze([1.0, 2.0, 90.0, 3.0, 2.0], keys="time", bandwidth=1.0, causal=True, **way)
    message = r"a smoothing with equal weights, got one with weights\. Fix: analyze without weights and robust"
    with pytest.raises(InputError, match=message):
        Online.like(result)


@pytest.mark.parametrize(
    ("value", "time", "kind", "message"),
    [
        (1.0, 3.0, InputError, r"a time after the last one, got 3\.0 after 3\.0\. Fix: pass points in the order"),
        (1.0, 2.5, InputError, r"a time after the last one, got 2\.5 after 3\.0"),
        (1.0, NAN, InputError, r"a finite time for every point, got nan"),
        (1.0, None, InputError, r"times of one kind, got no time after a number\. Fix: pass a number for every point"),
        (1.0, datetime.datetime(2024, 1, 1), InputError, r"times of one kind, got a date after a number"),
        ("two", 4.0, KindError, r"Expected real numbers, got 'two'\. Fix: pass one number per point"),
        (INF, 4.0, InputError, r"numbers up to 1e\+150, or NaN for a missing value, got inf"),
    ],
)
def test_a_point_that_will_not_do_is_refused_and_forgotten(value, time, kind, message):
    smoother, other = Online(keys="time", bandwidth=2.0), Online(keys="time", bandwidth=2.0)
    for one in (smoother, other):
        one.update(5.0, 3.0)
    with pytest.raises(kind, match=message):
        smoother.update(value, time)
    assert smoother.update(7.0, 4.0) == other.update(7.0, 4.0)


def test_what_is_no_time_is_refused():
    with pytest.raises(KindError, match=r"times as numbers or dates, got 'soon'\. Fix: pass floats, or dates"):
        Online(keys="time", bandwidth=2.0).update(1.0, "soon")
    with pytest.raises(InputError, match=r"a finite time for every point, got NaT"):
        Online(keys="time", bandwidth=2.0).update(1.0, np.datetime64("NaT", "s"))


def test_one_value_apart_from_all_others_is_left_out_and_a_jump_is_not():
    draw = np.random.default_rng(0)
    truth = np.sin(np.arange(60) / 10)
    x = truth + 0.2 * draw.normal(size=60)
    x[40] = 50.0
    assert np.abs(online(x)[[40, 41, 59]] - truth[[40, 41, 59]]).max() < 1
    jumped = truth + 0.2 * draw.normal(size=60) + np.where(np.arange(60) < 45, 0.0, 50.0)
    assert np.abs(online(jumped)[[50, 59]] - truth[[50, 59]] - 50).max() < 1


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_a_robust_stream_names_anomalies_at_once_and_a_level_after_four_points(correlation):
    verdicts = []
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=300)
        for index in range(1, 300):
            noise[index] += correlation * noise[index - 1]
        noise[100] += 15
        noise[200:] += 20
        online = Online(keys="time", bandwidth=4.0, robust=True)
        named = {
            index: online.verdict for index, value in enumerate(noise) if np.isfinite(online.update(value)) and online.verdict
        }
        assert named.pop(100) == "anomaly"
        assert named.pop(203) == "change"
        verdicts += [index for index in named if index not in (200, 201, 202)]
    assert len(verdicts) <= 3  # of 3000 points


def test_a_robust_stream_follows_the_new_level_and_not_the_anomaly():
    values = np.random.default_rng(0).normal(size=120)
    values[50] = 100
    values[80:] += 30
    online, plain = (Online(keys="time", bandwidth=4.0, robust=robust) for robust in (True, False))
    robust, others = (np.array([stream.update(value) for value in values]) for stream in (online, plain))
    assert abs(robust[50]) < 2
    assert abs(others[50]) > 10
    assert np.abs(robust[83:] - 30).max() < 3


def test_missing_points_and_plain_streams_have_no_verdict():
    online = Online(keys="time", bandwidth=4.0)
    for value in [*np.random.default_rng(0).normal(size=40), np.nan, 1000.0]:
        online.update(value)
        assert online.verdict == ""
    robust = Online(keys="time", bandwidth=4.0, robust=True)
    for value in [*np.random.default_rng(0).normal(size=40), np.nan]:
        robust.update(value)
        assert robust.verdict == ""
