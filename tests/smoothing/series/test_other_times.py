"""The curve at other times with its band, and spans chosen by hand."""

import warnings

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError
from overt.smoothing import analyze

NAN = float("nan")


def wave(n=300, seed=0, noise=0.3):
    return np.sin(np.arange(n) / 12) + noise * np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize(
    "way", [{}, {"keys": "time"}, {"keys": "time", "bandwidth": 4.0}, {"keys": "both"}, {"causal": True}, {"period": 75.4}]
)
def test_the_band_at_the_points_is_the_band_of_the_points(way):
    analysis = analyze(wave(), **way)
    result = analysis.at(np.arange(300.0)[::-1], band=True)
    for end, expected in zip(result, (analysis.values, analysis.lower, analysis.upper), strict=True):
        np.testing.assert_allclose(end[::-1], expected, atol=1e-9)
    np.testing.assert_array_equal(analysis.at([3.5]), analysis.at([3.5], band=True).values)


def test_the_band_of_counts_is_above_zero_and_holds_the_mean():
    counts = np.random.default_rng(0).poisson(4 + 3 * np.sin(np.arange(400) / 20))
    result = analyze(counts, noise="poisson").at(np.arange(0, 399, 0.5), band=True)
    mean = 4 + 3 * np.sin(np.arange(0, 399, 0.5) / 20)
    assert (result.lower >= 0).all()
    assert np.mean((result.lower <= mean) & (mean <= result.upper)) > 0.85


@pytest.mark.parametrize("way", [{}, {"keys": "time"}])
def test_the_truth_is_in_the_band_inside_gaps_too(way):
    inside = []
    for seed in range(20):
        start = 60 + 7 * seed
        remaining = np.r_[:start, start + 12 : 300]
        x = wave(seed=seed)[remaining]
        gap = np.arange(start, start + 12.0)
        result = analyze(x, times=remaining, **way).at(gap, band=True)
        inside.append((result.lower <= np.sin(gap / 12)) & (np.sin(gap / 12) <= result.upper))
    assert np.mean(inside) >= 0.85


BEYOND = "beyond the data: the curve is extrapolated there, and its band widens"


def test_the_band_widens_into_a_gap_and_beyond_the_ends():
    remaining = np.r_[:100, 130:300]
    with pytest.warns(UserWarning, match=f"^2 of 5 times are {BEYOND}"):
        result = analyze(wave()[remaining], times=remaining).at([50.0, 104.0, 115.0, 305.0, 320.0], band=True)
    width = result.upper - result.lower
    assert width[0] < width[1] < width[2]
    assert width[0] < width[3] < width[4]


@pytest.mark.parametrize("times", [[450.0], [3.0, -150.0, 1e9]])
def test_times_far_beyond_the_data_are_refused_with_a_pointer(times):
    far = sum(time < -149.5 or time > 448.5 for time in times)
    expected = (
        r"^Expected times within half the length of the data beyond either end \(149\.5 steps\), "
        rf"got {far} of {len(times)} times further out\. Fix: ask for nearer times, or forecast with a library"
    )
    with pytest.warns(UserWarning, match=BEYOND), pytest.raises(InputError, match=expected):
        analyze(wave()).at(times)


@pytest.mark.filterwarnings("ignore:40 of 40 times are beyond")
@pytest.mark.parametrize("sign", [1, -1])
def test_a_line_goes_on_beyond_both_ends_and_a_level_stays(sign):
    noise, times = 0.3 * np.random.default_rng(3).normal(size=300), np.arange(300.0)
    later = 299 + np.arange(1.0, 41) if sign == 1 else -np.arange(1.0, 41)
    line, level = analyze(times / 10 + noise).at(later, band=True), analyze(noise).at(later, band=True)
    assert np.abs(line.values - later / 10).max() < 0.3
    assert np.abs(level.values).max() < 0.15
    assert np.all((line.lower <= later / 10) & (later / 10 <= line.upper) & (level.lower <= 0) & (level.upper >= 0))


@pytest.mark.filterwarnings("ignore:2 of 2 times are beyond")
def test_extrapolation_without_dates_is_that_of_dates_and_of_other_units():
    values, later = wave() + np.arange(300) / 50, np.array([302.0, 310.0])
    dates = pd.date_range("2024-01-01", periods=311, freq="h")
    steps = analyze(values).at(later, band=True)
    hours = analyze(pd.Series(values, dates[:300])).at(dates[[302, 310]], band=True)
    scaled = analyze(1e6 * values - 3e6).at(later, band=True)
    for one, other, third in zip(steps, hours, scaled, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)
        np.testing.assert_allclose(third, 1e6 * one - 3e6, rtol=1e-6)


def test_without_a_band_there_is_none_at_other_times():
    times = np.cumsum(1 + np.arange(400) % 3)
    analysis = analyze(np.cumsum(np.random.default_rng(0).normal(size=400)), times=times)
    assert analysis.withheld
    result = analysis.at([2.5], band=True)
    assert result.lower is None
    assert result.upper is None
    np.testing.assert_array_equal(result.values, analysis.at([2.5]))


@pytest.mark.filterwarnings("ignore:This span")
def test_a_span_lets_as_much_noise_through_as_a_running_mean():
    noise = np.random.default_rng(0).normal(size=20_000)
    curve = overt.smooth(noise, keys="time", span=15)
    np.testing.assert_allclose(curve.std(), 1 / np.sqrt(15), rtol=0.05)
    np.testing.assert_array_equal(curve, overt.smooth(noise, keys="time", bandwidth=15 / (2 * np.sqrt(np.pi))))


@pytest.mark.filterwarnings("ignore:This span")
def test_a_span_is_a_length_of_time_where_there_are_dates():
    dates = pd.date_range("2024-01-01", periods=300, freq="6h")
    x = pd.Series(wave(), index=dates)
    for span in ("2D", "48h", pd.Timedelta(days=2), np.timedelta64(2, "D"), 2 * 86400):
        np.testing.assert_allclose(overt.smooth(x, span=span), overt.smooth(wave(), span=8), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.few_cases(2)
def test_a_span_that_raises_the_error_is_told_of(seed):
    with pytest.warns(UserWarning, match="This span is estimated to raise the error"):
        overt.smooth(wave(seed=seed), span=120)
    truth, text = np.sin(np.arange(300) / 12), 0
    for span in (5, 15, 25, 40, 80):
        analysis = analyze(wave(seed=seed), span=span)
        if "This span is estimated to raise the error" in analysis.sentence:
            text += 1
            assert np.mean((analysis.values - truth) ** 2) > np.mean((analysis.automatic.values - truth) ** 2)
    assert text >= 2


def test_a_span_that_fits_is_taken_without_a_word():
    line = np.arange(300) / 100 + 0.3 * np.random.default_rng(0).normal(size=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overt.smooth(line, span=600)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"span": 0.5}, r"a span of at least one step between points, got 0\.5 for points 1 step apart"),
        ({"span": "7D"}, r"dates as times with a span that is a length of time, got '7D' with times that are steps"),
        ({"span": -3}, r"a span as a number above 0"),
        ({"span": "soon"}, r"got 'soon'\. Fix: write a number and one of s, min, h"),
        ({"span": True}, r"a span as a number above 0"),
        ({"span": NAN}, r"a finite length above 0"),
        ({"span": 9, "keys": "value"}, r"no keys but those of time with a span, got keys='value'"),
        ({"span": 9, "keys": "time", "bandwidth": 3.0}, r"no bandwidth and no keys"),
        ({"span": 9, "period": 50}, r"no period with a span"),
    ],
)
def test_what_a_span_cannot_be(way, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(wave(), **way)


@pytest.mark.filterwarnings("ignore:24 of 24 times are beyond")
def test_the_band_holds_the_truth_one_season_ahead():
    inside, times = [], np.arange(264)
    for seed in range(12):
        draw = np.random.default_rng(seed)
        truth = 4 * np.sin(2 * np.pi * times / 24) + np.cumsum(0.1 * draw.normal(size=264))
        result = analyze((truth + draw.normal(size=264))[:240], period=24).at(times[240:].astype(float), band=True)
        inside.append((result.lower <= truth[240:]) & (truth[240:] <= result.upper))
    assert np.mean(inside) > 0.85
