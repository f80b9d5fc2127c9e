"""How strong the noise is, where it varies, and whether it is white, on series whose noise is known."""

import csv

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.selection.contrasts import contrasts, trimmed_deviation
from overt.smoothing.selection.noise import NoiseEstimate, estimate_noise, estimate_noises

# The signals of Donoho and Johnstone 1994, and two with kinks and waves.
JUMPS = [0.1, 0.13, 0.15, 0.23, 0.25, 0.4, 0.44, 0.65, 0.76, 0.78, 0.81]
HEIGHTS = [4, -5, 3, -4, 5, -4.2, 2.1, 4.3, -3.1, 2.1, -4.2]
PEAKS = [4, 5, 3, 4, 5, 4.2, 2.1, 4.3, 3.1, 5.1, 4.2]
WIDTHS = [0.005, 0.005, 0.006, 0.01, 0.01, 0.03, 0.01, 0.01, 0.005, 0.008, 0.005]
SPIKES = [(0.75, 500, 0.23), (1.5, 2000, 0.33), (3, 8000, 0.47), (2.25, 16000, 0.69), (0.5, 32000, 0.83)]
SIGNALS = {
    "spikes": lambda t: sum(height * np.exp(-width * (t - at) ** 2) for height, width, at in SPIKES),
    "bumps": lambda t: sum(h / (1 + abs(t - p) / w) ** 4 for h, p, w in zip(PEAKS, JUMPS, WIDTHS, strict=True)),
    "blocks": lambda t: sum((t > p) * h for h, p in zip(HEIGHTS, JUMPS, strict=True)),
    "doppler": lambda t: np.sqrt(t * (1 - t)) * np.sin(2.1 * np.pi / (t + 0.05)),
    "heavisine": lambda t: 4 * np.sin(4 * np.pi * t) - np.sign(t - 0.3) - np.sign(0.72 - t),
    "angles": lambda t: np.interp(t, [0, 0.2, 0.5, 0.6, 0.8, 1], [0, 1, -0.5, -0.5, 0.9, 0.5]),
    "waves": lambda t: np.sin(20 * np.pi * t),
    "line": lambda t: t,
}


def evenly(values, weights=None) -> NoiseEstimate:
    return estimate_noise(np.arange(float(len(values))), np.asarray(values, float), weights)


def draw(size, seed=0):
    return np.random.default_rng(seed).normal(size=size)


def signal(name, size, ratio):
    """The signal, so high above noise of standard deviation 1."""
    values = SIGNALS[name](np.arange(1, size + 1) / size)
    return ratio * values / np.std(values)


def autoregressive(coefficient, size, seed=0):
    errors = draw(size + 200, seed)
    for i in range(1, errors.size):
        errors[i] += coefficient * errors[i - 1]
    return errors[200:]


# Contrasts


@pytest.mark.parametrize("positions", [(0, 1, 2), (0, 2, 3), (0, 2, 4, 6), (0, 1, 2, 3, 4, 5), (0, 3, 6, 9, 12, 15)])
def test_a_contrast_is_the_one_combination_that_no_polynomial_of_lower_degree_passes(positions):
    generator = np.random.default_rng(0)
    times, weights = np.sort(generator.uniform(0, 5, positions[-1] + 1)), generator.uniform(0.5, 2, positions[-1] + 1)
    each = [contrasts(times, unit, weights, positions)[0] for unit in np.eye(times.size)]
    polynomials = np.vander(times[list(positions)], len(positions) - 1)
    null = np.linalg.svd(polynomials.T)[2][-1]
    null /= np.sqrt(np.sum(null**2 / weights[list(positions)]))
    used = np.array(each)[list(positions)]
    np.testing.assert_allclose(used * np.sign(used[0]), null * np.sign(null[0]), rtol=1e-6)
    assert np.count_nonzero(each) == len(positions)


def test_equal_steps_need_no_times():
    x, ones = draw(50), np.ones(50)
    for positions in [(0, 1, 2), (0, 1, 3), (0, 3, 6, 9)]:
        np.testing.assert_allclose(
            contrasts(None, x, ones, positions), contrasts(np.arange(50.0), x, ones, positions), rtol=1e-9
        )


def test_points_at_one_time_are_compared_with_each_other():
    x = draw(4000)
    for repeats in (2, 3, 10):
        result = contrasts(
            np.repeat(np.arange(4000.0 // repeats), repeats), x[: 4000 // repeats * repeats], np.ones(4000), (0, 1, 2)
        )
        assert result.size > 3900
        assert np.std(result) == pytest.approx(1, abs=0.05)


def test_trimming_leaves_out_what_no_normal_distribution_holds():
    x = draw(100_000)
    assert trimmed_deviation(x) == pytest.approx(1, abs=0.02)
    assert trimmed_deviation(np.concatenate([x, np.full(5000, 1e6)])) == pytest.approx(1, abs=0.04)
    assert trimmed_deviation(np.zeros(5)) == trimmed_deviation(np.empty(0)) == 0.0


@pytest.mark.parametrize("points", [2, 3, 5, 12, 100, 399])
def test_several_short_series_have_the_noise_that_each_has_alone(points):
    x = np.stack([draw(points, seed) for seed in range(12)])
    x[1], x[2] = 0, np.arange(points)
    x[3] = x[3].cumsum()
    x[4, : points // 2] *= 20
    x[5] = np.round(x[5])
    x[6] = np.repeat(x[6, : -(-points // 3)], 3)[:points]
    alone = [evenly(values) for values in x]
    for together, each in zip(estimate_noises(x), alone, strict=True):
        assert (together.white, together.reason) == (each.white, each.reason)
        assert together.level == pytest.approx(each.level, rel=1e-12)
        np.testing.assert_equal(together.levels, each.levels)
    if points == 399:
        assert {each.white for each in alone} == {True, False}
        assert {each.levels is None for each in alone} == {True, False}


# The level


@pytest.mark.parametrize(
    "values", [np.full(50, 3.7), 1e6 + 0.1 * np.arange(50.0), np.repeat([1e3, 1.5, -2.0], 40), [1.0, 5.0, 9.0]]
)
def test_constants_lines_and_exact_steps_have_no_noise(values):
    assert evenly(values) == NoiseEstimate(0.0, None, True, "")


@pytest.mark.parametrize("size", range(12))
def test_a_few_points_are_no_reason_to_fail(size):
    result = evenly(draw(size))
    assert result.white == (size not in (1, 2))
    assert result.levels is None
    assert result.level > 0 or size < 3


def test_a_line_at_uneven_times_has_no_noise():
    times = np.sort(np.random.default_rng(0).uniform(0, 1e6, 500))
    assert estimate_noise(times, 3 - 7.3 * times).level == 0.0


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.few_cases(2)
def test_the_level_is_within_some_percent_under_any_signal(name):
    result = [evenly(signal(name, 1024, ratio) + draw(1024, seed)).level for ratio in (1, 3, 7) for seed in range(8)]
    assert abs(np.mean(result) - 1) < 0.05
    assert np.sqrt(np.mean((np.array(result) - 1) ** 2)) < 0.06


def test_bumps_raise_the_mean_square_of_second_differences_by_far_more():
    x = signal("bumps", 1024, 7) + draw(1024)
    assert np.sqrt(2 / 3 * np.mean((x[:-2] / 2 - x[1:-1] + x[2:] / 2) ** 2)) > 1.4
    assert evenly(x).level < 1.1


def test_the_standard_error_on_noise_alone_is_one_over_the_root_of_n():
    result = [evenly(draw(400, seed)).level for seed in range(100)]
    assert np.std(result) == pytest.approx(1 / 20, rel=0.2)


def test_the_level_is_that_of_a_value_of_weight_1():
    weights = np.random.default_rng(1).uniform(0.1, 10, 20_000)
    assert evenly(2 * draw(20_000) / np.sqrt(weights), weights).level == pytest.approx(2, rel=0.02)


def test_a_value_of_weight_0_says_nothing():
    values, weights = draw(200), np.ones(200)
    values[::5], weights[::5] = 1e9, 0.0
    remaining = weights > 0
    assert evenly(values, weights) == estimate_noise(np.arange(200.0)[remaining], values[remaining])


@pytest.mark.parametrize("times", [np.arange(20_000.0), np.sort(np.random.default_rng(0).uniform(0, 2e4, 20_000).round())])
def test_the_level_is_found_at_uneven_and_equal_times_on_a_slope(times):
    result = estimate_noise(times, 50 * times + 0.5 * draw(20_000))
    assert result.level == pytest.approx(0.5, rel=0.03)
    assert result.white
    assert result.levels is None


def test_outliers_and_jumps_are_not_noise():
    values = draw(2000) + 20 * (np.arange(2000) // 200 % 2)
    values[np.random.default_rng(1).choice(2000, 100, replace=False)] += 1e4
    assert evenly(values).level == pytest.approx(1, rel=0.1)


def test_units_change_the_level_alone():
    x = autoregressive(0.6, 1000)
    plain, other = evenly(x), estimate_noise(86400 * np.arange(1000.0) + 1e9, 1e-5 * x + 7)
    assert other.level == pytest.approx(1e-5 * plain.level, rel=1e-6)
    assert (other.white, other.reason) == (plain.white, plain.reason)


# Noise that varies


def test_noise_that_grows_with_time_is_followed():
    truth = np.linspace(1, 3, 4000)
    result = evenly(signal("blocks", 4000, 3) + truth * draw(4000))
    assert result.levels is not None
    assert np.max(np.abs(np.log(result.levels / truth))) < 0.2
    assert result.level == pytest.approx(np.sqrt(np.mean(truth**2)), rel=0.05)
    assert result.white


def test_noise_that_grows_as_its_weights_say_does_not_vary():
    truth = np.linspace(1, 3, 4000)
    assert evenly(truth * draw(4000), truth**-2).levels is None


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("size", [300, 1024])
@pytest.mark.few_cases(4)
def test_signals_do_not_pass_for_noise_that_varies_or_is_correlated(name, size):
    result = [evenly(signal(name, size, ratio) + draw(size, seed)) for ratio in (1, 3, 7) for seed in range(8)]
    assert sum(noise.levels is not None for noise in result) <= 1
    assert sum(not noise.white for noise in result) <= 1


# Noise that is not white


@pytest.mark.parametrize("errors", ["standard_cauchy", "exponential", "uniform", "laplace"])
def test_independent_noise_of_any_distribution_is_white(errors):
    x = getattr(np.random.default_rng(0), errors)(size=5000)
    assert evenly(x).white


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("coefficient", "how"), [(0.3, "positive"), (0.6, "positive"), (-0.3, "negative"), (-0.6, "negative")])
def test_correlated_noise_is_found_on_a_signal(coefficient, how, seed):
    result = evenly(signal("doppler", 2000, 3) + autoregressive(coefficient, 2000, seed))
    assert not result.white
    assert result.reason.startswith("The noise does not look independent")
    assert f"{how} correlation" in result.reason


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [1, 2])
def test_walks_and_integrated_walks_are_found(steps, seed):
    x = draw(500, seed)
    for _ in range(steps):
        x = np.cumsum(x)
    assert not evenly(x).white


def test_what_was_smoothed_before_is_found():
    assert not evenly(np.convolve(draw(1000), np.ones(3) / 3)).white
    assert not evenly(np.cumsum(np.convolve(draw(1000), np.ones(3) / 3))).white


def test_a_wave_alone_has_no_noise():
    estimate = evenly(np.sin(np.arange(1000) / 20))
    assert estimate.level == 0
    assert estimate.white


def test_a_random_walk_says_how_much_larger_its_differences_are():
    # Its second differences over k places have k times the variance of those over one: √(√2·√3) on average.
    assert "are 1.6 times those over one" in evenly(np.cumsum(draw(200_000))).reason


def test_every_stock_price_of_a_few_hundred_is_found_to_be_a_walk():
    from matplotlib import cbook

    with cbook.get_sample_data("Stocks.csv") as file:
        rows = list(csv.DictReader(line for line in file.read().splitlines() if not line.startswith("#")))
    dates = np.array([row["Date"] for row in rows], dtype="datetime64[D]").astype(float)
    for name in set(rows[0]) - {"Date"}:
        prices = np.array([float(row[name] or "nan") for row in rows])
        known = ~np.isnan(prices)
        if known.sum() > 200:
            assert not estimate_noise(dates[known], prices[known]).white, name


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1000.0])
def test_levels_and_the_estimate_are_in_the_users_unit(scale):
    draw, points = np.random.default_rng(0), np.arange(300)
    result = analyze(scale * (3 * np.sin(points / 20) + 0.5 * draw.normal(size=300)), times=points[::-1])
    assert result.levels == pytest.approx(result.noise)
    assert result.noise_estimate.level == pytest.approx(result.noise)
    assert result.noise == pytest.approx(0.5 * scale, rel=0.15)


def test_levels_follow_the_points_in_the_callers_order_on_every_scale():
    draw = np.random.default_rng(1)
    points = draw.permutation(400)
    curve = 10 ** (2 + 2 * np.sin(points / 40))
    logarithms = analyze(curve * np.exp(0.2 * draw.normal(size=400)), times=points)
    assert logarithms.kind == "logarithms"
    counts = analyze(draw.poisson(40 + 30 * np.sin(points / 40)).astype(float), times=points)
    assert counts.kind == "counts"
    for result, levels in ((logarithms, 0.2 * curve), (counts, np.sqrt(40 + 30 * np.sin(points / 40)))):
        assert np.median(np.abs(np.log(result.levels / levels))) < 0.2
        assert np.sqrt(np.mean(result.levels**2)) == pytest.approx(result.noise, rel=0.05)
        assert result.noise_estimate.level == pytest.approx(result.noise, rel=0.05)
