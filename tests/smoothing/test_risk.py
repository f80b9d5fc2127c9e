"""Stein's estimate, its derivative, the noise level, and the bandwidth they choose."""

import itertools

import numpy as np
import pytest

from overt.smoothing import analyze, demonstration, smooth
from overt.smoothing.head import Head
from overt.smoothing.keys import BothKeys, DotKeys, TimeKeys, ValueKeys
from overt.smoothing.risk import mean_risk, noise_level
from overt.smoothing.rows import attend_directly, attend_rows
from overt.smoothing.series import Series, arrange

KEYS = [TimeKeys(2.0), ValueKeys(0.4), BothKeys(TimeKeys(3.0), ValueKeys(0.5)), DotKeys(0.7), DotKeys(1.3, plain_sum=True)]
NAN = float("nan")


def moved(series: Series, point: int, by: float) -> Series:
    values = series.values.copy()
    values[point] += by
    return Series(**{**vars(series), "values": values})


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("even", [True, False])
def test_the_slope_is_the_whole_derivative(keys, causal, even):
    generator = np.random.default_rng(0)
    x = generator.normal(size=24) + 1.5
    x[5] = NAN
    times = np.arange(24.0) if even else np.sort(generator.uniform(0, 24, 24))
    series, head, rows, by = arrange(x, times, shift=False), Head(keys, 9.0, causal), np.arange(24), 1e-5
    slopes = attend_rows(series, head).slopes
    for point in series.present:
        up, down = (attend_directly(moved(series, point, sign * by), head, rows).values[point] for sign in (1, -1))
        assert abs((up - down) / (2 * by) - slopes[point]) < 1e-6 * max(1.0, abs(slopes[point]))


def test_the_diagonal_alone_would_be_wrong_where_keys_hold_the_values():
    found = analyze(np.random.default_rng(0).normal(size=50), keys="value", bandwidth=0.5)
    diagonal = sum(found.weights(i)[i] for i in range(50))
    assert found.degrees_of_freedom > 2 * diagonal


@pytest.mark.parametrize(
    "way", [{"bandwidth": 3.0}, {"keys": "value", "bandwidth": 0.5}, {"keys": "both", "bandwidth": (4.0, 0.8)}]
)
def test_the_estimated_risk_is_the_true_one_on_average(way):
    truth, seeds = np.sin(np.linspace(0, 10, 100)), 300
    estimated, true = np.empty(seeds), np.empty(seeds)
    for seed in range(seeds):
        x = truth + np.random.default_rng(seed).normal(scale=0.3, size=100)
        found = analyze(x, noise=0.3, **way)
        estimated[seed], true[seed] = found.risk, np.mean((found.values - truth) ** 2)
    difference = estimated - true
    assert abs(difference.mean()) < 3 * difference.std() / np.sqrt(seeds)
    assert difference.std() / np.sqrt(seeds) < 0.1 * true.mean()


def test_the_noise_level_is_the_formula_of_second_differences():
    x = np.random.default_rng(0).normal(size=40)
    series = arrange(x, np.arange(40.0))
    formula = np.sqrt(2 / (3 * 38) * np.sum((x[:-2] / 2 - x[1:-1] + x[2:] / 2) ** 2))
    np.testing.assert_allclose(noise_level(series) * series.spread, formula, rtol=1e-12)


def test_the_noise_level_is_found_at_uneven_times_on_a_slope():
    generator = np.random.default_rng(0)
    times = np.sort(generator.uniform(0, 1, 4000))
    found = analyze(50 * times + generator.normal(scale=0.5, size=4000), times=times, bandwidth=0.01)
    assert abs(found.noise - 0.5) < 0.02


def test_a_straight_line_has_no_noise():
    series = arrange(np.array([0.0, 1.0, 3.0, 3.5]), np.array([0.0, 2.0, 6.0, 7.0]))
    assert noise_level(series) < 1e-15


@pytest.mark.parametrize("keys", ["time", "value", "both"])
def test_no_bandwidth_of_an_octave_grid_has_less_risk_than_the_chosen(keys):
    x = np.sin(np.linspace(0, 6, 120)) + np.random.default_rng(3).normal(scale=0.3, size=120)
    chosen = analyze(x, keys=keys)
    times, values = 2.0 ** np.arange(-2, 8), 0.3 * 2.0 ** np.arange(-2, 4)
    grid = {"time": times, "value": values, "both": list(itertools.product(times, values))}[keys]
    assert chosen.risk <= min(analyze(x, keys=keys, bandwidth=bandwidth).risk for bandwidth in grid)


def test_a_long_uneven_series_is_judged_by_some_rows_and_chooses_about_as_well():
    generator = np.random.default_rng(0)
    times = np.sort(generator.uniform(0, 1, 3000))
    series = arrange(np.sin(20 * times) + generator.normal(scale=0.4, size=3000), times)
    noise = noise_level(series)
    chosen = analyze(series.values, times=series.times)
    risks = [mean_risk(series, Head(TimeKeys(2.0**power)), noise) for power in np.arange(0, 10, 0.25)]
    assert mean_risk(series, Head(TimeKeys(chosen.bandwidth)), noise) < min(risks) + 0.01 * noise**2


def test_a_given_noise_level_is_the_one_used():
    x = np.random.default_rng(0).normal(size=100)
    assert analyze(x, noise=0.25).noise == pytest.approx(0.25)
    assert analyze(x, noise=0.05).bandwidth < analyze(x, noise=1.0).bandwidth


def test_without_noise_the_curve_follows_every_point():
    x = np.sin(np.arange(40.0))
    np.testing.assert_allclose(smooth(x, noise=0.0), x, atol=1e-3)


def test_pure_noise_becomes_nearly_its_mean():
    x = np.random.default_rng(1).normal(size=500)
    assert analyze(x).degrees_of_freedom < 5


def test_the_demonstration_is_measured_and_about_sixty_per_cent():
    reductions = [demonstration(seed).reduction for seed in range(20)]
    assert 0.55 < np.mean(reductions) < 0.7
    shown = demonstration()
    error = [np.sqrt(np.mean((curve - shown.truth) ** 2)) for curve in (shown.smoothed, shown.noisy)]
    assert shown.reduction == pytest.approx(1 - error[0] / error[1])
    np.testing.assert_array_equal(shown.smoothed, smooth(shown.noisy))
