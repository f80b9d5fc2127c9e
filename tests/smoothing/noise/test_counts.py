"""Poisson counts: found by themselves, smoothed under the transform that gives their noise one level, brought back without bias."""

import numpy as np
import pytest

from overt.errors import InputError
from overt.smoothing import analyze, smooth
from overt.smoothing.noise import counts as counts_module
from overt.smoothing.noise.counts import (
    are_counts,
    mean_of_stabilized,
    risk_levels_of_counts,
    slope_of_mean,
    stabilized,
    variances_of_counts,
)

POINTS = 1024
T = np.arange(POINTS) / POINTS
SHAPE = 0.5 + 0.45 * np.sin(9 * T)


def draw(seed):
    return np.random.default_rng(seed)


def error(values, truth):
    return float(np.mean((values - truth) ** 2))


@pytest.mark.parametrize("mean", [0.05, 0.7, 3.0, 40.0, 190.0, 210.0, 5000.0])
def test_the_inverse_of_the_transforms_expectation_is_the_mean(mean):
    expectation = stabilized(draw(0).poisson(mean, 400_000)).mean()
    assert mean_of_stabilized(expectation) == pytest.approx(mean, abs=4 * np.sqrt(mean / 400_000))


def test_the_slope_is_the_derivative_of_the_inverse():
    values = np.array([1.3, 2.0, 5.0, 20.0, 28.2, 28.4, 100.0])
    step = 0.01
    difference = (mean_of_stabilized(values + step) - mean_of_stabilized(values - step)) / (2 * step)
    assert slope_of_mean(values) == pytest.approx(difference, rel=0.02)


def test_a_curve_below_that_of_no_counts_is_zero():
    assert mean_of_stabilized(np.array([0.0, stabilized(np.array(0.0))])).tolist() == [0.0, 0.0]


def test_the_stated_risk_of_counts_is_their_error_on_average():
    truth = 8 + 5 * np.sin(np.arange(1000) / 60)
    results = [(analyze(x, noise="poisson"), x) for seed in range(8) for x in [draw(seed).poisson(truth).astype(float)]]
    stated = np.mean([result.risk for result, _ in results])
    assert 0.6 < stated / np.mean([error(result.values, truth) for result, _ in results]) < 1.6


def test_risks_of_few_counts_rank_curves_as_their_errors_do():
    # In units of a curve that follows the noise they do not: it is low where the noise was, and so counts more there.
    truth, gaps = np.full(2000, 1.5), {"own": [], "averaged": []}
    for seed in range(20):
        x = draw(seed).poisson(truth).astype(float)
        follows = np.convolve(np.pad(x, 2, mode="symmetric"), np.full(5, 0.2), "valid")
        levels = np.sqrt(variances_of_counts(follows))
        for name, units in (("own", levels), ("averaged", risk_levels_of_counts(levels, 1.0))):
            # Of the mean and of the curve that follows the noise: how much more the second risks, by estimate and in truth.
            residuals = (x - follows) ** 2 - (x - x.mean()) ** 2
            estimate = np.mean((residuals + 2 * levels**2 * (0.2 - 1 / x.size)) / units**2)
            gaps[name].append(estimate * np.mean(units**2) - (error(follows, truth) - error(x.mean(), truth)))
    spread = np.std(gaps["averaged"]) / np.sqrt(20)
    assert abs(np.mean(gaps["averaged"])) < 0.02 + 3 * spread
    assert np.mean(gaps["own"]) < -5 * np.std(gaps["own"]) / np.sqrt(20)


def test_levels_of_risks_are_means_over_the_points_that_hold_enough_counts():
    levels = np.sqrt(draw(0).uniform(2, 6, size=900))
    reach = int(100 / (4 * np.mean(levels**2)))  # 200 counts within 2 reach + 1 points, at 2 units a level
    padded = np.pad(levels**2, reach, mode="symmetric")
    means = [padded[i : i + 2 * reach + 1].mean() for i in range(900)]
    assert risk_levels_of_counts(levels, 2.0) == pytest.approx(np.sqrt(means))
    assert risk_levels_of_counts(levels, 1e-3) == pytest.approx(np.full(900, 2.0), rel=0.03)  # few in all: nearly all points


@pytest.mark.parametrize("top", [1, 4, 30, 200, 2000])
@pytest.mark.few_cases(2)
def test_counts_are_found(top):
    assert all(analyze(draw(seed).poisson(top * SHAPE)).counts for seed in range(4))


@pytest.mark.slow
def test_jumps_between_counts_are_smoothed_with_less_error_than_as_gaussian():
    steps, ratios = 0.1 + 0.9 * (np.floor(8 * T) % 3) / 2, []
    for top in (4, 15, 60, 200):
        truth = top * steps
        x = draw(top).poisson(truth)
        ratios.append(error(smooth(x, noise="poisson"), truth) / error(smooth(x, noise="gaussian"), truth))
    assert np.exp(np.mean(np.log(ratios))) < 0.8


def test_rare_counts_are_smoothed_as_they_are_too(monkeypatch):
    as_they_are, under_the_root = [], []
    for seed in range(6):
        truth = 3 * (np.arange(1024) / 1024 - 0.4) ** 2 + 0.05
        x = draw(seed).poisson(6 * truth).astype(float)
        as_they_are.append(error(analyze(x, noise="poisson").values, 6 * truth))
        with monkeypatch.context() as patch:
            patch.setattr(counts_module, "LEAST_MEAN_COUNT", np.inf)
            under_the_root.append(error(analyze(x, noise="poisson").values, 6 * truth))
    assert np.exp(np.mean(np.log(np.divide(as_they_are, under_the_root)))) < 0.8


@pytest.mark.parametrize("top", [4, 60])
def test_the_band_of_counts_holds_the_mean_and_stays_above_zero(top):
    inside = []
    for seed in range(4):
        result = analyze(draw(seed).poisson(top * SHAPE))
        assert result.lower.min() >= 0
        inside.append(np.mean((result.lower <= top * SHAPE) & (top * SHAPE <= result.upper)))
    assert np.mean(inside) > 0.9


@pytest.mark.parametrize(
    "values",
    [
        np.round(50 + 10 * SHAPE + 2 * draw(0).normal(size=POINTS)),  # rounded
        draw(0).poisson(30 * SHAPE) + 0.5,  # fractional
        draw(0).poisson(30 * SHAPE) - 20.0,  # negative
        draw(0).poisson(draw(1).gamma(3, 10 * SHAPE)).astype(float),  # overdispersed
        (draw(0).random(POINTS) < 0.5).astype(float),  # yes and no
        np.arange(POINTS, dtype=float),  # without noise
    ],
)
@pytest.mark.few_cases(2)
def test_other_numbers_are_not_taken_for_counts(values):
    assert not are_counts(values)
    assert not analyze(values).counts


def test_long_series_of_counts_are_found_too():
    assert are_counts(draw(0).poisson(20 + 15 * np.sin(np.arange(200_000) / 5000)).astype(float))


def test_the_report_says_that_values_are_counts_and_how_to_refuse_it():
    x = draw(0).poisson(30 * SHAPE)
    assert 'Poisson counts (recognized from the values; noise="gaussian" turns this off)' in analyze(x).sentence
    assert "Poisson counts (given)" in analyze(x, noise="poisson").sentence
    assert not analyze(x, noise="gaussian").counts


def test_counts_may_be_missing_and_the_curve_is_read_between_them():
    x = draw(0).poisson(30 * SHAPE).astype(float)
    x[[3, 500]] = np.nan
    result = analyze(x, noise="poisson")
    assert result.filled == 2
    assert np.isfinite(result.values).all()
    between = result.at([10.5])[0]
    assert min(result.values[10:12]) <= between <= max(result.values[10:12])


def test_single_heads_and_causal_curves_take_counts_that_are_named():
    x = draw(0).poisson(30 * SHAPE)
    for options in ({"keys": "time"}, {"keys": "time", "bandwidth": 20.0}, {"causal": True}):
        assert not analyze(x, **options).counts
        result = analyze(x, noise="poisson", **options)
        assert result.counts
        assert np.allclose(result.values, smooth(x, noise="poisson", **options))
        assert result.values.mean() == pytest.approx(x.mean(), rel=0.02)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ([1, 2, -3, 4], {}, r'whole numbers of 0 or more with noise="poisson", got -3 at \[2\]'),
        ([1, 2.5, 3, 4], {}, r"got 2.5 at \[1\]"),
        ([1, 2, 3, 4], {"weights": [1, 1, 2, 1]}, 'equal weights with noise="poisson"'),
        ([1, 2, 3, 4], {"keys": "value", "score": "dot"}, 'score="gaussian" with noise="poisson"'),
    ],
)
def test_what_are_no_counts_is_refused_in_a_sentence(x, options, message):
    with pytest.raises(InputError, match=message):
        analyze(x, noise="poisson", **options)


def test_other_kinds_of_noise_are_refused():
    with pytest.raises(InputError, match='noise="poisson" or "gaussian" or numbers or None'):
        analyze([1, 2, 3], noise="laplace")


def test_counts_of_some_size_are_smoothed_as_they_are_which_serves_a_parabola_that_comes_near_zero(monkeypatch):
    truth, ratios = 60 * (0.03 + 0.97 * (2 * T - 1) ** 2), []
    for seed in range(4):
        x = draw(seed).poisson(truth)
        monkeypatch.setattr(counts_module, "PASSES", 2)
        as_they_are = smooth(x, noise="poisson")
        monkeypatch.setattr(counts_module, "PASSES", 0)
        ratios.append(error(as_they_are, truth) / error(smooth(x, noise="poisson"), truth))
    assert np.mean(ratios) < 0.8


def test_rows_of_weights_make_the_curve_of_counts_and_a_wild_count_has_none():
    x = draw(1).poisson(30 * SHAPE).astype(float)
    x[700] = 400
    result = analyze(x, noise="poisson")
    assert result.outliers.nonzero()[0].tolist() == [700]
    assert result.observed[700] == 400
    assert abs(result.values[700] - 30 * SHAPE[700]) < 6
    weights = result.weights(100)
    assert weights[700] == 0
    assert weights @ x == pytest.approx(result.values[100], rel=1e-6)


def test_a_curve_and_a_band_of_counts_stay_above_zero_between_and_beyond_the_points_too():
    x = draw(2).poisson(np.where(T < 0.5, 40.0, 0.05))
    result = analyze(x, noise="poisson")
    with pytest.warns(UserWarning, match="beyond the data"):
        ends = result.at(np.linspace(-5, 1030, 300), band=True)
    assert min(each.min() for each in (*ends, result.values, result.lower)) >= 0


def test_counts_with_a_season_in_proportion_are_smoothed_by_their_logarithms():
    t, ratios, inside = np.arange(300), [], []
    for seed in range(6):
        week = np.random.default_rng(seed).uniform(0.6, 1.4, 7)
        truth = 150 * np.exp(1.2 * np.sin(t / 37 + seed)) * week[t % 7]
        result = analyze(np.random.default_rng(40 + seed).poisson(truth).astype(float), period=7)
        assert result.kind == "logarithms of counts"
        ratios.append(np.sqrt(np.mean((result.values - truth) ** 2) / truth.mean()))
        inside.append(np.mean((result.lower <= truth) & (truth <= result.upper)))
    assert np.mean(ratios) < 0.5
    assert 0.85 < np.mean(inside) < 0.99
    assert "season in proportion" in result.sentence


def test_counts_with_a_season_that_adds_are_not():
    t = np.arange(300)
    truth = 60 + 40 * np.sin(t / 50) + np.array([-8.0, 4, 6, 2, 0, -1, -3])[t % 7]
    result = analyze(np.random.default_rng(1).poisson(truth).astype(float), period=7)
    assert result.kind in ("counts", "square roots")
