"""Stein's estimate, its derivative, the noise level, and the bandwidth they choose."""

import itertools

import numpy as np
import pytest

from overt.smoothing import analyze, demonstration, smooth
from overt.smoothing.data.series import arrange
from overt.smoothing.heads.dispatch import attend_head
from overt.smoothing.heads.head import SeriesHead
from overt.smoothing.heads.keys import BothKeys, DotKeys, PatchKeys, TimeKeys, ValueKeys
from overt.smoothing.selection.noise import estimate_noise

HEADS = {
    "mean in time": (TimeKeys(2.0), 0),
    "line in time": (TimeKeys(2.0), 1),
    "parabola in time": (TimeKeys(4.0), 2),
    "value": (ValueKeys(0.4), 0),
    "both": (BothKeys(TimeKeys(3.0), ValueKeys(0.5)), 0),
    "patch": (PatchKeys(0.6, 3), 0),
    "dot": (DotKeys(0.7), 0),
    "plain sum": (DotKeys(1.3, plain_sum=True), 0),
}
NAN = float("nan")


@pytest.mark.each_pair
@pytest.mark.parametrize(
    ("head", "weighted"),
    [(head, weighted) for head in HEADS for weighted in (False, True) if not (weighted and head in ("dot", "plain sum"))],
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [9.0, np.inf])
@pytest.mark.parametrize("even", [True, False])
def test_the_slope_is_the_whole_derivative(head, weighted, causal, window, even):
    generator = np.random.default_rng(0)
    x = generator.normal(size=24) + 1.5
    x[[5, 17]] = NAN
    times = np.arange(24.0) if even else np.sort(generator.uniform(0, 24, 24))
    series = arrange(x, times, generator.uniform(0.3, 3.0, 24) if weighted else None, shift=False)
    (keys, degree), by = HEADS[head], 1e-5
    attending = SeriesHead(keys, window, causal, degree)
    leverages = attend_head(series, attending).leverages
    beside_a_hole = {4, 6, 16, 18} if head == "patch" and not causal else set()  # the line across the hole moves with these
    for point in set(series.present) - beside_a_hole:
        moved = (series.with_values(series.values + sign * by * (np.arange(24) == point)) for sign in (1, -1))
        up, down = (attend_head(one, attending).values[point] for one in moved)
        assert abs((up - down) / (2 * by) - leverages[point]) < 1e-6 * max(1.0, abs(leverages[point]))


def test_the_diagonal_alone_would_be_wrong_where_keys_hold_the_values():
    result = analyze(np.random.default_rng(0).normal(size=50), keys="value", bandwidth=0.5)
    diagonal = sum(result.weights(i)[i] for i in range(50))
    assert result.degrees_of_freedom > 2 * diagonal


@pytest.mark.parametrize(
    "way",
    [
        {"keys": "time", "bandwidth": 3.0},
        {"keys": "time", "bandwidth": 6.0, "degree": 2},
        {"keys": "value", "bandwidth": 0.5},
        {"keys": "both", "bandwidth": (4.0, 0.8)},
        {"keys": "patch", "bandwidth": 0.5},
    ],
)
@pytest.mark.few_cases(1)
def test_the_estimated_risk_is_the_true_one_on_average(way):
    truth, seeds = np.sin(np.linspace(0, 10, 100)), 300
    estimated, true = np.empty(seeds), np.empty(seeds)
    for seed in range(seeds):
        x = truth + np.random.default_rng(seed).normal(scale=0.3, size=100)
        result = analyze(x, noise=0.3, **way)
        estimated[seed], true[seed] = result.risk, np.mean((result.values - truth) ** 2)
    difference = estimated - true
    assert abs(difference.mean()) < 3 * difference.std() / np.sqrt(seeds)
    assert difference.std() / np.sqrt(seeds) < 0.1 * true.mean()


@pytest.mark.parametrize("noise", [0.3, None], ids=["known", "estimated"])
@pytest.mark.parametrize("points", [60, 300])
@pytest.mark.few_cases(1)
def test_the_standard_error_of_the_risk_is_the_spread_of_its_estimate(points, noise):
    truth, seeds = np.sin(np.linspace(0, 6, points)), 200
    off, stated = np.empty(seeds), np.empty(seeds)
    for seed in range(seeds):
        x = truth + np.random.default_rng(seed).normal(scale=0.3, size=points)
        result = analyze(x, keys="time", bandwidth=points / 30, noise=noise)
        off[seed], stated[seed] = result.risk - np.mean((result.values - truth) ** 2), result.risk_error
    # Where a curve of many degrees of freedom follows the noise, an estimated level has a part in both terms, and less is left.
    assert (0.8 if noise else 0.5) * stated.mean() < off.std() < 1.2 * stated.mean()


@pytest.mark.parametrize("way", [{}, {"causal": True}, {"keys": "time"}], ids=str)
@pytest.mark.slow
def test_the_true_error_hardly_ever_exceeds_what_is_told_of_it(way):
    t = np.linspace(0, 1, 200)
    truths = [np.sin(6 * np.pi * t), np.where(t > 0.5, 2.0, 0.0), 0 * t, np.exp(-(((t - 0.5) / 0.02) ** 2))]
    inside, small = [], []
    for seed, truth in itertools.product(range(12), truths):
        result = analyze(truth + np.random.default_rng(seed).normal(scale=0.3, size=200), **way)
        there = ~np.isnan(result.values)
        inside.append(np.mean((result.values - truth)[there] ** 2) <= result.risk_upper_bound)
        small.append(not result.estimable)
    assert np.mean(inside) >= 0.95
    assert np.mean(small) >= 0.3, "the rule is put to the test"


@pytest.mark.filterwarnings("ignore:.*beyond the data")
def test_leave_one_out_is_the_error_in_predicting_each_value_from_the_others():
    generator = np.random.default_rng(0)
    times = np.sort(generator.uniform(0, 40, 40))
    x = np.sin(times / 6) + 0.3 * generator.normal(size=40)
    way = {"keys": "time", "bandwidth": 2.0, "degree": 0}
    others = [np.arange(40) != i for i in range(40)]
    predicted = [smooth(x[rest], times=times[rest], at=times[~rest], **way)[0] for rest in others]
    result = analyze(x, times=times, **way)
    np.testing.assert_allclose(result.leave_one_out, np.mean((x - predicted) ** 2), rtol=1e-9)


@pytest.mark.parametrize("way", [{}, {"keys": "value"}, {"keys": "both"}, {"keys": "patch"}])
def test_there_is_no_leave_one_out_where_weights_hold_the_values(way):
    assert analyze(np.random.default_rng(0).normal(size=50), **way).leave_one_out is None


@pytest.mark.parametrize("keys", ["time", "value", "both", "patch"])
def test_no_bandwidth_of_an_octave_grid_has_less_risk_than_the_chosen(keys):
    x = np.sin(np.linspace(0, 6, 120)) + np.random.default_rng(3).normal(scale=0.3, size=120)
    chosen = analyze(x, keys=keys)
    times, values = 2.0 ** np.arange(-2, 8), 0.3 * 2.0 ** np.arange(-2, 4)
    grid = {"time": times, "value": values, "both": list(itertools.product(times, values)), "patch": values}[keys]
    assert chosen.risk <= min(analyze(x, keys=keys, bandwidth=bandwidth).risk for bandwidth in grid)


@pytest.mark.parametrize("keys", ["patch", pytest.param("both", marks=pytest.mark.slow)])
def test_a_long_series_is_judged_by_stretches_and_chooses_about_as_well(keys):
    x = np.sin(np.arange(6000) / 40) + np.random.default_rng(0).normal(scale=0.4, size=6000)
    series = arrange(x, np.arange(6000.0))
    noise = estimate_noise(series.times, series.values).level
    chosen = analyze(x, keys=keys)
    grid = itertools.product(2.0 ** np.arange(2, 7), series.spread * noise * 2.0 ** np.arange(0, 5)) if keys == "both" else None
    bandwidths = grid or noise * series.spread * 2.0 ** np.arange(-2, 4, 0.5)
    assert chosen.risk < min(analyze(x, keys=keys, bandwidth=h).risk for h in bandwidths) + 0.02 * 0.4**2


def test_a_given_noise_level_is_the_one_used():
    x = np.random.default_rng(0).normal(size=100)
    assert analyze(x, noise=0.25).noise == pytest.approx(0.25)
    assert analyze(x, keys="time", noise=0.05).bandwidth < analyze(x, keys="time", noise=1.0).bandwidth


@pytest.mark.parametrize("keys", ["auto", "time", "value", "both", "patch"])
def test_one_noise_for_each_point_is_one_for_all_where_they_are_equal(keys):
    x = np.sin(np.arange(80) / 9) + 0.3 * np.random.default_rng(0).normal(size=80)
    one, each = analyze(x, keys=keys, noise=0.3), analyze(x, keys=keys, noise=np.full(80, 0.3))
    np.testing.assert_array_equal(one.values, each.values)
    assert (one.risk, one.noise) == (each.risk, each.noise)


def test_noise_of_each_point_is_what_it_is_judged_by():
    x, noise = np.random.default_rng(0).normal(size=50), np.linspace(0.1, 2.0, 50)
    result = analyze(x, keys="time", bandwidth=3.0, noise=noise)
    leverages = np.array([result.weights(i)[i] for i in range(50)])
    np.testing.assert_allclose(result.risk, np.mean((x - result.values) ** 2 - noise**2 + 2 * noise**2 * leverages), rtol=1e-9)
    assert result.noise == pytest.approx(np.sqrt(np.mean(noise**2)))


@pytest.mark.parametrize("keys", ["auto", "time"])
def test_where_the_noise_is_strong_more_is_smoothed_away(keys):
    noise = np.where(np.arange(400) < 200, 0.05, 1.0)
    truth = np.sin(np.arange(400) / 12)
    result = analyze(truth + noise * np.random.default_rng(0).normal(size=400), noise=noise, keys=keys)
    error = (result.values - truth) ** 2
    assert error[:200].mean() < (0.05**2 if keys == "auto" else 0.2**2)
    assert error[200:].mean() < 0.2


def test_without_noise_the_curve_follows_every_point():
    x = np.sin(np.arange(40.0))
    np.testing.assert_allclose(smooth(x, noise=0.0), x, atol=1e-3)


@pytest.mark.parametrize("keys", ["auto", "time"])
def test_pure_noise_becomes_nearly_its_mean(keys):
    result = [analyze(np.random.default_rng(seed).normal(size=500), keys=keys) for seed in range(10)]
    assert np.mean([one.degrees_of_freedom for one in result]) < 12
    assert np.mean([np.mean(one.values**2) for one in result]) < 0.02


def test_the_demonstration_is_measured_and_about_sixty_per_cent():
    reductions = [demonstration(seed).reduction for seed in range(20)]
    assert 0.55 < np.mean(reductions) < 0.7
    shown = demonstration()
    error = [np.sqrt(np.mean((curve - shown.truth) ** 2)) for curve in (shown.smoothed, shown.noisy)]
    assert shown.reduction == pytest.approx(1 - error[0] / error[1])
    np.testing.assert_array_equal(shown.smoothed, smooth(shown.noisy))
