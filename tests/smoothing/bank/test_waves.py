"""Waves as quick as noise: a weekly pattern of daily values, tides, mains hum. They are signal, and the curve follows them."""

import re

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.selection.contrasts import constant_level
from overt.smoothing.selection.waves import find_waves, have_waves, is_quick

POINTS = np.arange(1024)


def draw(seed, size=1024):
    return np.random.default_rng(seed).normal(size=size)


def autoregression(rho, seed):
    noise = draw(seed, 1124)
    for i in range(1, noise.size):
        noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho**2) * noise[i]
    return noise[100:]


def error(result, truth):
    return float(np.mean((result.values - truth) ** 2))


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.5])
@pytest.mark.parametrize("period", [2.0, 2.6, 3.4, 6.0, 7.0, 13.7, 24.0])
@pytest.mark.few_cases(12)
def test_a_wave_of_any_period_is_followed_and_its_error_stated(period, rho):
    truth = np.cos(POINTS / 250) + np.sin(2 * np.pi * POINTS / period + 0.8)
    for seed in range(2):
        result = analyze(truth + 0.4 * autoregression(rho, seed))
        assert result.noise == pytest.approx(0.4, rel=0.15)
        assert error(result, truth) < 0.35 * 0.4**2
        assert 0.3 < result.risk / error(result, truth) < 3


@pytest.mark.parametrize("period", [5.3, 7, 24])
def test_a_wave_below_the_noise_stays_in_the_curve(period):
    points = np.arange(1200)
    truth = 2 * np.exp(points / 1200) + 0.5 * np.sin(2 * np.pi * points / period)
    for seed in range(2):
        result = analyze(truth + draw(80 + seed, 1200))
        assert error(result, truth) < 0.06  # 0.125 without the wave
        assert np.mean((result.lower <= truth) & (truth <= result.upper)) > 0.85


@pytest.mark.parametrize("size", [120, 365, 3000])
@pytest.mark.few_cases(1)
def test_a_week_of_daily_values_stays(size):
    for seed in range(3):
        week = np.random.default_rng(seed).normal(size=7)
        truth = week[np.arange(size) % 7] + np.arange(size) / 200
        result = analyze(truth + 0.3 * draw(seed, size))
        assert error(result, truth) < 0.9 * 0.3**2
        assert result.risk > 0.2 * error(result, truth)
        assert re.search(r"period=7 separates|period=\"auto\" smooths it as a season", result.report.season)
        seasonal = analyze(truth + 0.3 * draw(seed, size), period="auto")
        assert error(seasonal, truth) < 0.6 * error(result, truth)
        assert "period=" not in seasonal.report.season


def test_slow_waves_need_no_word():
    assert "repeating pattern" not in analyze(np.sin(POINTS / 8) + 0.3 * draw(1)).sentence


@pytest.mark.parametrize("pattern", [[1.0, 2.5, 3.2, 5.1], [0, 1], [0, 1, 2, 3, 4, 5, 6]])
def test_a_pattern_without_noise_stays(pattern):
    result = analyze(np.tile(np.array(pattern, float), 60))
    assert result.noise == 0
    np.testing.assert_allclose(result.values, np.tile(pattern, 60), atol=1e-6)
    assert "nothing to remove" in result.sentence


def test_two_tones_close_to_each_other_are_no_noise():
    # Their differences over 4 to 16 steps grow as those of noise with a correlation of 0.8 do.
    for frequencies in ((70, 88), (80, 90)):
        truth = sum(np.sin(2 * np.pi * frequency * POINTS / 1024) for frequency in frequencies)
        result = analyze(truth + 0.65 * autoregression(0.3, 1))
        assert result.noise_estimate.correlation == pytest.approx(0.3, abs=0.15)
        assert error(result, truth) < 0.3 * 0.65**2


def test_missing_values_hide_no_wave():
    known = np.random.default_rng(3).random(1024) > 0.15
    truth = np.sin(2 * np.pi * POINTS / 5.3)
    x = np.where(known, truth + 0.4 * draw(4), np.nan)
    result = analyze(x)
    assert result.noise == pytest.approx(0.4, rel=0.15)
    assert np.mean((result.values - truth)[known] ** 2) < 0.5 * 0.4**2


def test_wild_values_on_a_quick_wave_are_found():
    truth, wild = np.sin(2 * np.pi * POINTS / 4.7), [100, 333, 512, 800, 901]
    x = truth + 0.2 * draw(5)
    x[wild] += 3.0
    assert set(wild) <= set(np.flatnonzero(analyze(x).outliers))


def test_noise_that_grows_with_a_wave_has_levels_by_the_value():
    truth = np.sin(2 * np.pi * POINTS / 9.3)
    levels = 0.1 + 0.25 * (truth + 1)
    result = analyze(truth + levels * draw(6))
    assert np.corrcoef(result.levels, levels)[0, 1] > 0.5


@pytest.mark.parametrize("size", [64, 200, 1024, 5000])
def test_noise_has_no_waves(size):
    assert sum(find_waves(None, draw(seed, size)).any() for seed in range(200)) <= 1
    assert sum(find_waves(None, draw(seed, size).cumsum()).any() for seed in range(60)) <= 5


def test_jumps_are_no_waves():
    # The sum of the strongest waves of a square wave rings at its jumps.
    for period in (40, 64, 150):
        square = np.sign(np.sin(2 * np.pi * (POINTS + 0.3) / period))
        x = square + 0.16 * draw(period)
        assert constant_level(None, x - find_waves(None, x), np.ones(1024)) < 0.18
        assert not is_quick(None, x, find_waves(None, x))
        assert not analyze(x).outliers.sum() > 2


def test_a_series_of_several_parts_has_the_waves_of_each():
    points = np.arange(20_000)
    truth = np.where(points < 10_000, np.sin(points * 1.1), np.sin(points * 2.3))
    waves = find_waves(None, truth + 0.3 * draw(7, 20_000))
    assert np.mean((waves - truth) ** 2) < 0.05


def uneven(kind, size, seed):
    random = np.random.default_rng(seed)
    return {
        "random": lambda: np.sort(random.uniform(0, size, size)),
        "jittered": lambda: np.arange(size) + random.uniform(-0.4, 0.4, size),
        "bursts": lambda: np.cumsum(random.gamma(0.5, 2, size)),
        "a sparse grid": lambda: np.sort(random.choice(np.arange(3.0 * size), size, replace=False)),
        "nights": lambda: np.sort(np.arange(size) // 10 * 10 + random.uniform(0, 3.5, size)),
    }[kind]()


KINDS_OF_TIMES = ["random", "jittered", "bursts", "a sparse grid", "nights"]


@pytest.mark.parametrize("period", [3.3, 5.3, 8.6])
@pytest.mark.parametrize("kind", KINDS_OF_TIMES[:-1])
@pytest.mark.few_cases(2)
def test_a_quick_wave_at_uneven_times_is_signal(kind, period):
    for seed in range(3):
        times = uneven(kind, 1024, seed)
        truth = np.sin(2 * np.pi * times / period) + 2 * times / times[-1]
        x = truth + 0.3 * draw(seed)
        result, seasonal = analyze(x, times=times), analyze(x, times=times, period="auto")
        assert result.noise == pytest.approx(0.3, rel=0.15)
        assert 0.4 < result.risk / error(result, truth) < 2.5
        assert error(result, truth) < 1.1 * 0.3**2
        assert seasonal.periods[0] == pytest.approx(period, rel=0.01)
        assert error(seasonal, truth) < 0.3 * 0.3**2


def test_a_harmonic_at_uneven_times_is_no_season_by_itself():
    times = uneven("random", 2000, 1)
    day = np.array([0.0, 0, 1, 0, 0, 1.2, 0, 0, 2.5, 0, 0, 0])
    truth = np.interp(times % 12, np.arange(13), [*day, day[0]])
    result = analyze(truth + 0.3 * draw(1, 2000), times=times, period="auto")
    assert result.periods[0] == pytest.approx(12, rel=0.01)


@pytest.mark.parametrize("size", [100, 300, 1000])
@pytest.mark.parametrize("kind", KINDS_OF_TIMES)
def test_noise_at_uneven_times_has_no_waves(kind, size):
    assert sum(find_waves(uneven(kind, size, seed), draw(seed, size)).any() for seed in range(100)) <= 1


def test_between_clusters_of_times_no_wave_passes_for_quick():
    # Of nights ten points apart a wave of 13 points may be one of 43, 1/(1/10 - 1/13), too. Within a night both are slow.
    times = uneven("nights", 2000, 0)
    x = np.sin(2 * np.pi * times / 13) + 0.3 * draw(0, 2000)
    assert not is_quick(times, x, find_waves(times, x))
    assert "repeating pattern" not in analyze(x, times=times).sentence


def test_repeated_times_have_waves_too():
    times = np.repeat(np.arange(500.0), 2)
    assert not find_waves(times, draw(9, 1000)).any()
    assert find_waves(times, np.sin(2.1 * times) + draw(9, 1000)).any()


def test_several_series_at_once_have_waves_where_each_has():
    values = np.stack([draw(seed, 200) + (seed % 2) * np.sin(1.9 * np.arange(200)) * 2 for seed in range(20)])
    assert have_waves(values).tolist() == [bool(find_waves(None, each).any()) for each in values]
    assert have_waves(values).tolist() == [False, True] * 10
