"""Seasons: attention to the same phase of other cycles."""

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.data.series import arrange
from overt.smoothing.seasons.detect import find_periods
from overt.smoothing.seasons.phase import (
    Grid,
    PhaseHead,
    attend_phase,
    attend_phase_transposed,
    phase_grid,
    phase_rows,
    self_weights,
)
from overt.smoothing.seasons.season import estimate_seasons

NAN = float("nan")
HEADS = [PhaseHead(0.0, np.inf, 0), PhaseHead(0.0, np.inf, 1), PhaseHead(1.5, 2.0, 1), PhaseHead(0.7, 3.0, 0)]


def repeating(n, period, draw, noise=0.3):
    """A trend, a rough season and noise: what is true (n,), and what is seen."""
    pattern = draw.normal(size=period)
    season = (pattern - pattern.mean())[np.arange(n) % period]
    truth = season + 2 * np.sin(np.arange(n) / n * 5)
    return truth, truth + noise * draw.normal(size=n), season


def hourly(n):
    return np.datetime64("2024-03-01T00", "h") + np.arange(n)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_attention_to_a_phase_is_its_formula(head, causal):
    draw = np.random.default_rng(0)
    grid, weights = Grid(8.0, 8, 6), draw.uniform(0.5, 2, 48) * (draw.random(48) > 0.2)
    values = draw.normal(size=48)
    by_all, by_others = attend_phase(grid, weights * values, phase_rows(grid, weights, head, causal=causal), causal=causal)
    cell, expected, without = np.arange(48), np.full(48, NAN), np.full(48, NAN)
    for i in cell:
        # A key is the phase of a cell beside it, seen from each cycle.
        for seasonal, target in ((True, expected), (False, without)):
            rows, heights, kernel = [], [], []
            for lag in range(-5, 6):
                if not 0 <= i // 8 + lag <= 5 or (lag >= 0 and causal) or (lag == 0 and not seasonal):
                    continue
                reach = int(3 * head.phase)
                if np.isfinite(head.cycles) and abs(lag) > 3 * head.cycles:
                    continue
                for j in range(max(0, i + 8 * lag - reach), min(48, i + 8 * lag + reach + 1)):
                    near = np.exp(-0.5 * ((j - i - 8 * lag) / head.phase) ** 2) if head.phase else 1.0
                    kernel.append(weights[j] * near * np.exp(-0.5 * (lag / head.cycles) ** 2))
                    rows.append(lag)
                    heights.append(values[j])
            k, m, x = np.array(kernel), np.array(rows, float), np.array(heights)
            if not k.size or k.sum() < 1e-9:
                continue
            s0, s1, s2 = k.sum(), k @ m, k @ m**2
            line = head.degree and s0 * s2 - s1**2 > 0.02 * s0 * s2
            target[i] = (s2 * (k @ x) - s1 * (k * m) @ x) / (s0 * s2 - s1**2) if line else k @ x / s0
    np.testing.assert_allclose(by_all, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(by_others, expected if causal else without, rtol=0, atol=1e-11)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_the_transpose_of_attention_by_phase_is_its_transpose(head, causal):
    draw = np.random.default_rng(1)
    grid, weights = Grid(7.5, 8, 5), draw.uniform(0.5, 2, 40)
    rows, values, wanted = phase_rows(grid, weights, head, causal=causal), draw.normal(size=40), draw.normal(size=40)
    season = np.nan_to_num(attend_phase(grid, values, rows, causal=causal)[0])
    back = attend_phase_transposed(grid, wanted, rows, causal=causal)
    assert wanted @ season == pytest.approx(back @ values, rel=1e-11)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("times", [np.arange(60.0), np.cumsum(np.random.default_rng(2).uniform(0.4, 1.6, 60))])
def test_the_own_weight_is_the_derivative(head, times):
    grid = phase_grid(times, 10.0)
    rows = phase_rows(grid, grid.add_up(times, np.ones(60)), head)
    result = self_weights(grid, rows, times)
    for point in (0, 7, 33, 59):
        sums = grid.add_up(times[[point]], np.ones(1))
        season = np.nan_to_num(attend_phase(grid, sums, rows)[0])
        assert result[point] == pytest.approx(grid.read(season, times[[point]])[0], abs=1e-12)


def test_trend_seasons_and_remainder_are_the_observed_series():
    x = repeating(300, 12, np.random.default_rng(3))[1]
    x[[5, 100, 101]] = NAN
    result = analyze(x, period=12)
    np.testing.assert_allclose(result.trend + result.seasonal + result.remainder, x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.trend + result.seasonal, result.values, rtol=0, atol=1e-12)
    assert np.isfinite(result.values).all()


def test_a_season_is_found_again_and_lowers_the_error():
    draw = np.random.default_rng(4)
    truth, x, season = repeating(480, 24, draw)
    result, plain = analyze(x, period=24), overt.smooth(x)
    assert np.mean((result.values - truth) ** 2) < 0.1 * 0.3**2
    assert np.mean((result.values - truth) ** 2) < 0.2 * np.mean((plain - truth) ** 2)
    assert np.mean((result.seasonal - season) ** 2) < 0.25 * 0.3**2


def test_missing_values_are_filled_by_the_season():
    truth, x, _ = repeating(480, 24, np.random.default_rng(5))
    missing = np.r_[40:52, 200:224, 479]
    x[missing] = NAN
    error = np.sqrt(np.mean((overt.smooth(x, period=24)[missing] - truth[missing]) ** 2))
    assert error < 0.3  # of the noise; the season itself deviates by 1


def test_times_need_not_be_even():
    draw = np.random.default_rng(6)
    times = np.sort(draw.uniform(0, 300, 700))
    truth = np.sin(2 * np.pi * times / 14.3) + 0.5 * np.sin(4 * np.pi * times / 14.3) + times / 100
    x = truth + 0.3 * draw.normal(size=700)
    result = analyze(x, times=times, period=14.3)
    assert np.mean((result.values - truth) ** 2) < 0.1 * 0.3**2


def test_several_seasons_are_a_column_each_named_by_their_periods():
    draw, t = np.random.default_rng(7), np.arange(24 * 7 * 6)
    day, week = np.sin(2 * np.pi * t / 24), 1.0 * (t // 24 % 7 < 5)
    result = analyze(day + week + 0.2 * draw.normal(size=t.size), period=[24 * 7, 24])
    assert result.periods == (24.0, 168.0)
    assert result.seasonal_names == ("seasonal_24", "seasonal_168")
    assert result.seasonal.shape == (t.size, 2)
    assert np.mean((result.seasonal[:, 0] - day) ** 2) < 0.01
    np.testing.assert_allclose(result.trend + result.seasonal.sum(axis=1), result.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", ["1D", "24h", "1440min", "86400s", np.timedelta64(1, "D")])
def test_a_length_of_time_is_the_number_of_its_seconds(length):
    x = repeating(240, 24, np.random.default_rng(8))[1]
    expected = overt.smooth(x, times=hourly(240), period=86400)
    np.testing.assert_array_equal(overt.smooth(x, times=hourly(240), period=length), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_the_rows_of_weights_make_the_curve(causal):
    x = repeating(200, 12, np.random.default_rng(9))[1]
    x[[30, 90]] = NAN
    result = analyze(x, period=12, causal=causal, noise=0.3)
    for point in (40, 90, 199):
        assert result.weights(point) @ np.nan_to_num(x) == pytest.approx(result.values[point], abs=1e-9)


def test_the_leverage_of_the_seasons_is_their_derivative():
    draw = np.random.default_rng(10)
    series = arrange(repeating(240, 12, draw)[1], np.arange(240.0))
    seasons = estimate_seasons(series, (12.0,))
    seasonal = seasons.self_weights()
    for point in (60, 121, 180):
        assert seasonal[point] == pytest.approx(seasons.operator.row(point)[point], rel=0.1)


def test_a_causal_season_does_not_change_when_the_future_does():
    draw = np.random.default_rng(11)
    x = repeating(300, 12, draw)[1]
    series = arrange(x, np.arange(300.0))
    seasons = estimate_seasons(series, (12.0,), causal=True)
    for point in (150, 200):
        assert not seasons.operator.row(point)[point + 1 :].any()


def test_between_and_beyond_its_points_a_curve_goes_on_with_its_season():
    x = repeating(480, 24, np.random.default_rng(12))[1]
    result = analyze(x, period=24)
    with pytest.warns(UserWarning, match="beyond the data"):
        later = result.at(np.arange(480.0, 504.0))
    np.testing.assert_allclose(later - later.mean(), result.seasonal[:24] - result.seasonal[:24].mean(), rtol=0, atol=0.4)
    np.testing.assert_allclose(result.at(np.arange(480.0)), result.values, rtol=0, atol=1e-12)


def test_the_stated_risk_counts_the_seasons():
    stated, errors = [], []
    for draw in np.random.default_rng(13).spawn(12):
        truth, x, _ = repeating(480, 24, draw)
        result = analyze(x, period=24, noise=0.3)
        stated.append(result.risk)
        errors.append(np.mean((result.values - truth) ** 2))
    assert 0.67 < np.mean(stated) / np.mean(errors) < 1.5


def test_a_wild_value_does_not_enter_the_season():
    draw = np.random.default_rng(14)
    truth, x, _ = repeating(480, 24, draw)
    x[[50, 300]] += 20.0
    result = analyze(x, period=24)
    assert result.outliers[[50, 300]].all()
    assert np.mean((result.values - truth) ** 2) < 0.3**2 / 2


def test_the_sentence_names_the_period():
    x = repeating(240, 24, np.random.default_rng(15))[1]
    assert "A period of 1 day was given" in analyze(x, times=hourly(240), period="1D").sentence


def test_counts_have_seasons_in_counts():
    draw, t = np.random.default_rng(17), np.arange(480)
    truth = 40 + 15 * np.sin(2 * np.pi * t / 24) * (1 + t / 480)
    x = draw.poisson(truth)
    result = analyze(x, noise="poisson", period=24)
    np.testing.assert_allclose(result.trend + result.seasonal + result.remainder, x, rtol=0, atol=1e-11)
    assert np.mean((result.values - truth) ** 2) < 0.3 * 40
    assert abs(result.trend.mean() - 40) < 4


def test_without_a_period_there_is_no_season():
    x = repeating(240, 24, np.random.default_rng(16))[1]
    result = analyze(x)
    assert result.periods == ()
    assert not result.seasonal.any()
    np.testing.assert_array_equal(result.trend, result.values)


@pytest.mark.parametrize(
    ("period", "sentence"),
    [
        (0, "Fix: pass a finite length above 0"),
        (-3.0, "Fix: pass a finite length above 0"),
        (np.inf, "Fix: pass a finite length above 0"),
        (NAN, "Fix: pass a finite length above 0"),
        (True, 'Expected a period as a number above 0, a length of time such as "7D"'),
        ("monthly", "Fix: write a number and one of s, min, h, D, W, Y"),
        ("1M", "Fix: write a number and one of s, min, h, D, W, Y"),
        ([], "got an empty list. Fix: pass None for a series without a season"),
        ([12, 12.0], "Expected periods that differ"),
        ("7D", "Expected dates as times with a period that is a length of time, got '7D' with times that are steps"),
        (51, "Expected a period of at most half the series, got 51 for a series that is 100 steps long"),
        (1, "Expected a period of at least two steps between points, got 1 for points 1 step apart"),
    ],
)
def test_a_period_that_cannot_be_is_refused_with_a_sentence(period, sentence):
    with pytest.raises(InputError) as caught:
        overt.smooth(np.sin(np.arange(100.0)), period=period)
    assert sentence in str(caught.value)


def test_a_period_longer_than_half_the_dates_is_refused_in_their_unit():
    with pytest.raises(InputError, match=r"got '7D' for a series that is 4\.167 days long"):
        overt.smooth(np.sin(np.arange(100.0)), times=hourly(100), period="7D")


@pytest.mark.parametrize("period", [0.9, 2.3, 5.3, 24.83])
def test_a_period_between_the_steps_and_at_uneven_times_is_smoothed_as_well_as_one_on_them(period):
    draw = np.random.default_rng(22)
    for times in (np.arange(1200.0), np.sort(draw.uniform(0, 1200, 1200))):
        if period < 2 and times[1] == 1:
            continue  # equal steps do not show it
        truth = np.cos(2 * np.pi * times / period) + times / 600
        result = analyze(truth + 0.3 * draw.normal(size=1200), times=times, period=period)
        error = np.mean((result.values - truth) ** 2)
        assert error < 0.06 * 0.3**2
        assert 0.3 < result.risk / error < 3


def test_a_period_of_too_many_cycles_is_refused():
    with pytest.raises(
        InputError, match=r"Expected a period of at most 262,144 cycles, got 1e-06, with [\d,]+. Fix: pass a longer period"
    ):
        overt.smooth(np.zeros(5), times=[0.0, 1e-7, 1.0, 2.0, 3.5], period=1e-6)


def test_a_period_is_for_the_bank():
    with pytest.raises(InputError, match='Expected keys="auto" with a period'):
        overt.smooth(np.sin(np.arange(100.0)), keys="time", period=10)


def test_automatic_periods_are_found_and_named():
    draw, t = np.random.default_rng(20), np.arange(24 * 7 * 6)
    x = np.sin(2 * np.pi * t / 24) + 1.0 * (t // 24 % 7 < 5) + 0.3 * draw.normal(size=t.size)
    result = analyze(x, times=hourly(t.size), period="auto")
    assert result.periods == (86400.0, 604800.0)
    assert "Periods of 1 day and 7 days were found" in result.sentence


def test_a_period_that_is_no_whole_number_is_found():
    draw, t = np.random.default_rng(21), np.arange(900.0)
    result = analyze(np.sin(2 * np.pi * t / 17.4) + 0.5 * draw.normal(size=900), period="auto")
    assert result.periods == pytest.approx([17.4], abs=0.05)


@pytest.mark.parametrize("kind", ["white", "walk", "steps", "smooth"])
def test_no_period_is_found_in_noise(kind):
    for draw in np.random.default_rng(22).spawn(12):
        white = draw.normal(size=300)
        smooth = np.convolve(draw.normal(size=400), np.hanning(41), "same")[50:350]
        x = {"white": white, "walk": np.cumsum(white), "steps": white + 4 * (np.arange(300) // 70 % 3), "smooth": smooth}[kind]
        assert find_periods(arrange(x, np.arange(300.0)), False) == ()


def test_without_a_season_automatic_periods_change_nothing():
    x = np.cumsum(np.random.default_rng(23).normal(size=300))
    result = analyze(x, period="auto")
    np.testing.assert_array_equal(result.values, overt.smooth(x))
    assert "No season was found." in result.sentence


@pytest.mark.parametrize("point", [0, 1, 17, 26])
@pytest.mark.parametrize("wild", [100.0, -50.0])
def test_a_wild_value_in_an_exact_season_of_few_cycles_is_an_outlier(point, wild):
    truth = np.tile(np.arange(10.0, 80.0, 10.0), 5)
    x = truth.copy()
    x[point] = wild
    result = analyze(x, period=7)
    assert np.flatnonzero(result.outliers).tolist() == [point]
    assert np.sqrt(np.mean((result.values - truth) ** 2)) < 0.5


def test_wild_values_leave_no_echoes_in_a_season():
    t = np.arange(280)
    truth = 200 * np.exp(1.6 * np.sin(t / 35)) * np.array([0.7, 1.15, 1.2, 1.15, 1.1, 1.0, 0.7])[t % 7]
    for seed in range(3):
        x = np.random.default_rng(seed).poisson(truth).astype(float)
        x[150], x[200] = -900, 6 * x[200]
        result = analyze(x, period=7)
        assert np.flatnonzero(result.outliers).tolist() == [150, 200]
        assert np.sqrt(np.mean((result.values - truth) ** 2)) < 16


def test_a_peak_of_every_cycle_is_no_outlier():
    t = np.arange(280)
    x = np.where(t % 14 == 3, 30.0, 0.0) + np.random.default_rng(0).normal(size=280)
    result = analyze(x, period=14)
    assert not result.outliers.any()
    assert result.values[t % 14 == 3].min() > 25


SHAPES = {
    "weekend": [1, 1, 1, 1, 1, 0, 0],
    "two bumps": [0, 0, 1, 0, 0, 1, 0],
    "one day": [0, 1, 0, 0, 0, 0, 0],
    "a half": [1, 0, 0, 1, 0.6, 0, 0],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_week_of_daily_values_is_no_half_week(shape):
    times = np.datetime64("2023-01-01") + np.arange(365)
    values = 4 * np.array(SHAPES[shape], float)[np.arange(365) % 7] + np.random.default_rng(2).normal(size=365)
    assert np.array(analyze(values, times=times, period="auto").periods) / 86400 == pytest.approx([7])


def test_a_wave_between_two_steps_keeps_its_period():
    values = 2 * np.sin(2 * np.pi * np.arange(400) / 10.5) + np.random.default_rng(0).normal(size=400)
    assert analyze(values, period="auto").periods == pytest.approx([10.5], rel=0.01)


@pytest.mark.parametrize("start", ["2024-03-11", "2024-10-07"])
def test_a_daily_season_follows_the_clock_of_its_zone(start):
    hours = pd.date_range(start, periods=24 * 40, freq="h", tz="Europe/Berlin")
    truth = 10 + 5.0 * ((hours.hour >= 7) & (hours.hour < 22))
    values = truth + np.random.default_rng(0).normal(0, 0.8, hours.size)
    result = analyze(pd.Series(values, index=hours), period="1D")
    after = slice(24 * 21, 24 * 24)
    assert np.sqrt(np.mean((result.values - truth)[after] ** 2)) < 0.25
    assert result.at(hours[after]) == pytest.approx(result.values[after], abs=1e-9)
    row = result.operator.row(24 * 22)
    assert row @ result.observed == pytest.approx(result.values[24 * 22], abs=0.05)


def test_days_that_begin_at_midnight_are_even_over_a_change_of_the_clock():
    days = pd.date_range("2024-01-01", periods=200, tz="Europe/Berlin")
    values = np.where(days.day_of_week < 5, 10.0, 4.0) + np.random.default_rng(1).normal(size=200)
    aware, naive = (analyze(pd.Series(values, index=index), period="7D") for index in (days, days.tz_localize(None)))
    np.testing.assert_allclose(aware.seasonal, naive.seasonal, atol=0.2)
