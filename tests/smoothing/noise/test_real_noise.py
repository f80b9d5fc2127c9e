"""Noise that real series carry: wild values, levels that vary, correlated neighbours. The default stands it, and states its error."""

from itertools import pairwise

import numpy as np
import pytest

from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.batch import Task, smooth_tasks
from overt.smoothing.selection import outliers
from overt.smoothing.selection.correlation import (
    colored,
    covariance_factors,
    fits_the_spectrum,
    spectral_autoregression,
    white_level,
    whitened,
)
from overt.smoothing.selection.noise import estimate_noise
from overt.smoothing.selection.outliers import clean
from overt.smoothing.selection.tails import tail_factor
from overt.smoothing.selection.variance_laws import segment_edges, segment_variances
from overt.smoothing.selection.varying import FITTED, predicted_squares, varying_levels

POINTS = 1024
T = np.arange(POINTS) / POINTS
TRUTH = np.cos(5 * T) + 0.5 * np.sin(20 * T)


def draw(seed):
    return np.random.default_rng(seed)


def error(result, truth=TRUTH):
    return float(np.mean((result.values - truth) ** 2))


def autoregression(rho, seed, level=0.3):
    white, noise = draw(seed).normal(size=POINTS + 50), np.zeros(POINTS + 50)
    for i in range(1, noise.size):
        noise[i] = rho * noise[i - 1] + white[i]
    return level * np.sqrt(1 - rho**2) * noise[50:]


def third_order(seed, level=0.4):
    white, noise = draw(seed).normal(size=POINTS + 50), np.zeros(POINTS + 50)
    for i in range(3, noise.size):
        noise[i] = 0.5 * noise[i - 1] + 0.2 * noise[i - 2] + 0.1 * noise[i - 3] + white[i]
    return level / noise.std() * noise[50:]


def unevenly(steps, seed=1):
    """Positions about so many steps apart."""
    positions = np.arange(20, POINTS - 20, steps)
    return positions + draw(seed).integers(-6, 4, positions.size)


# Outliers


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_wild_values_are_left_out_and_named(share):
    x = TRUTH + 0.2 * draw(0).normal(size=POINTS)
    struck = draw(1).choice(POINTS, int(share * POINTS), replace=False)
    x[struck] += draw(2).choice([-3.0, 3.0], struck.size)
    result = analyze(x)
    assert np.mean(result.outliers[struck]) > 0.7
    assert np.delete(result.outliers, struck).sum() <= 2
    assert error(result) < 0.2 * error(analyze(x, robust=False))
    assert f"{result.outliers.sum()} isolated outliers were removed (robust=False keeps all values)." in result.sentence
    assert not analyze(x, robust=False).outliers.any()


def test_wild_values_close_together_are_found_where_there_are_many():
    steps = np.where(T < 0.5, 0.0, 3.0)
    x = steps + 0.2 * draw(0).normal(size=POINTS)
    alone, together, at_a_jump = unevenly(25), np.array([701, 705, 706, 708, 711]), np.array([510])
    x[alone] -= 3.0
    x[together] += 2.0
    x[at_a_jump] -= 2.5
    result = analyze(x)
    assert result.outliers[[*together, *at_a_jump]].all()
    assert result.outliers.sum() <= alone.size + together.size + 3
    assert error(result, steps) < 0.25 * 0.2**2


def test_a_peak_of_few_points_is_no_wild_value_where_there_are_many():
    peaks = np.exp(-0.5 * (((np.arange(POINTS) + 28) % 64 - 32) / 2.0) ** 2) * 3.0
    x = peaks + 0.2 * draw(0).normal(size=POINTS)
    alone = np.arange(20, POINTS - 20, 32) + 9
    x[alone] += 3.0
    assert np.delete(analyze(x).outliers, alone).sum() <= 1


def test_wild_values_side_by_side_are_found_where_there_are_many():
    x = TRUTH + 0.2 * draw(0).normal(size=POINTS)
    alone, pairs = unevenly(25), np.array([111, 361, 611, 861])
    x[alone] += 3.0
    x[[*pairs, *(pairs + 1)]] += 3.0
    result = analyze(x).outliers
    assert result[[*pairs, *(pairs + 1)]].all()
    assert result.sum() <= alone.size + 2 * pairs.size + 2


def test_wild_values_that_crowd_are_found():
    # Each raises the distances around the others, until those that stand out are gone.
    missed, wrong = 0, 0
    for seed in range(12):
        x, struck = TRUTH + 0.2 * draw(seed).normal(size=POINTS), draw(seed + 100).choice(POINTS, 60, replace=False)
        x[struck] += draw(seed + 200).choice([-2.0, 2.0], 60)
        outliers = clean(x, 0.2).outliers
        missed += 60 - outliers[struck].sum()
        wrong += np.delete(outliers, struck).sum()
    assert missed <= 12 * 2
    assert wrong <= 6


@pytest.mark.parametrize("width", [0.6, 1.0, 1.5])
def test_peaks_that_recur_are_no_outliers(width):
    # As the beats of a heart, sampled so coarsely that a peak has one to three points.
    phase = (np.arange(POINTS) + 0.3) % 61.7
    beats = 3 * np.exp(-0.5 * ((phase - 20) / width) ** 2)
    x = beats + 0.2 * draw(1).normal(size=POINTS)
    result = analyze(x)
    assert result.outliers.sum() <= 1
    assert error(result, beats) < 0.5 * 0.2**2
    assert ("recur at equal intervals" in result.sentence) == (width == 0.6)  # the others are no isolated points
    stray = [40, 300, 777]
    x[stray] -= 4
    assert analyze(x).outliers.sum() <= 3


@pytest.mark.slow
def test_wild_values_at_random_do_not_recur():
    for seed in range(40):
        wild = draw(seed).choice(POINTS, 12, replace=False)
        x = TRUTH + 0.3 * draw(seed).normal(size=POINTS)
        x[wild] += 3.5
        assert analyze(x, keys="auto").outliers.sum() >= 9


def test_two_high_values_of_a_signal_without_outliers_are_kept():
    x = TRUTH + 0.2 * draw(0).normal(size=POINTS)
    x[[400, 401]] += 3.0
    assert not analyze(x).outliers[[400, 401]].any()


def test_white_noise_is_left_as_it_is():
    lost = [clean(draw(seed).normal(size=POINTS), 1.0).outliers.sum() for seed in range(40)]
    assert sum(lost) <= 3
    ratios = []
    for seed in range(6):
        x = TRUTH + 0.3 * draw(seed).normal(size=POINTS)
        ratios.append(error(analyze(x)) / error(analyze(x, robust=False)))
    assert np.exp(np.mean(np.log(ratios))) < 1.03


@pytest.mark.parametrize(
    "signal",
    [
        np.where(np.arange(POINTS) < 500, 0.0, 30.0),  # a jump
        30 * np.exp(-np.abs(np.arange(POINTS) - 500) / 3),  # a cusp that falls to a half in two steps
        np.where((np.arange(POINTS) > 500) & (np.arange(POINTS) < 504), 30.0, 0.0),  # three points
        30 * np.sin(np.arange(POINTS)),  # six points a period
    ],
)
def test_features_of_a_signal_are_no_outliers(signal):
    cleaned = clean(signal + draw(0).normal(size=POINTS), 1.0)
    assert not cleaned.outliers.any()


def test_a_burst_of_noise_is_no_outlier():
    noise = draw(0).normal(size=POINTS) * np.where(np.abs(T - 0.5) < 0.05, 8, 1)
    assert clean(noise, 1.0).outliers.sum() <= 2


def test_causal_series_and_single_heads_keep_all_values():
    x = TRUTH + 0.1 * draw(0).normal(size=POINTS)
    x[300] += 5
    for options in ({"causal": True}, {"keys": "time"}):
        assert not analyze(x, **options).outliers.any()


@pytest.mark.parametrize("points", [90, 150, 200, 365])
def test_outliers_to_one_side_of_a_short_series_are_removed_unless_they_come_at_equal_intervals(points):
    x = np.sin(np.arange(points) / 15) + 0.2 * draw(points).normal(size=points)
    assert not analyze(x).outliers.any()
    for struck, removed in ((np.array([10, 17, 30, 41]), True), (13 * np.arange(1, 5), False)):
        bad = x.copy()
        bad[struck] += 5
        result = analyze(bad)
        np.testing.assert_array_equal(np.flatnonzero(result.outliers), struck if removed else [])
        stayed = "4 isolated values stand far out and were kept: outliers cannot be distinguished from peaks in fewer than 400 points"
        assert (stayed in result.sentence) != removed
        assert ("4 isolated outliers were removed" in result.sentence) == removed


@pytest.mark.parametrize("points", [100, 200, 399])
def test_wild_values_on_both_sides_of_a_short_series_are_left_out(points):
    for seed in range(4):
        random = draw(seed)
        truth = np.sin(np.arange(points) / 12)
        wild = 5 + random.choice((points - 10) // 4, points // 25, replace=False) * 4
        x = truth + 0.2 * random.normal(size=points)
        x[wild] += np.where(np.arange(wild.size) % 2, 2, -2)
        result = analyze(x)
        assert np.isin(wild, np.flatnonzero(result.outliers)).mean() > 0.7
        assert np.mean((result.values - truth) ** 2) < 0.3 * 0.2**2
        assert "kept" not in result.sentence


@pytest.mark.parametrize("every", [7, 13])
def test_single_points_of_peaks_of_a_short_series_stay(every):
    peaks = np.where(np.arange(200) % every == 3, 6.0, 0.0)
    for seed in range(4):
        cleaned = clean(peaks + draw(seed).normal(size=200) / 2, 0.5)
        assert not cleaned.outliers.any()
        assert np.abs(cleaned.values - peaks)[peaks > 0].max() < 2  # no tail is cut either


def test_a_series_in_which_nothing_is_far_out_needs_no_look():
    for seed in range(200):
        random = draw(seed)
        values = random.standard_t(3, size=16 + seed)
        _, distances, _ = outliers._isolated(values, 4.0)
        for far in (1.0, 3.0, 6.0):
            assert outliers._any_far_out(values, far) == (distances > far).any()


def test_robust_is_auto_true_or_false():
    with pytest.raises(InputError, match='robust="auto" or True or False'):
        analyze([1.0, 2.0], robust="always")


# Levels of short series


def test_a_level_that_grows_with_the_value_is_followed_in_a_short_series():
    t = np.arange(250) / 250
    truth, errors = 3 + np.sin(9 * t) + 2 * t, []
    for seed in range(8):
        noise = 0.03 * truth**2.5 * draw(seed).normal(size=250)
        result = analyze(truth + noise)
        assert result.noise_estimate.levels is not None
        errors.append((error(result, truth) / np.mean(noise**2), result.risk / error(result, truth)))
    relative, stated = np.median(errors, axis=0)
    assert relative < 0.15
    assert 0.5 < stated < 2


@pytest.mark.parametrize("points", [200, 300])
def test_a_burst_of_a_short_series_is_not_followed(points):
    t = np.arange(points) / points
    level = np.where(np.abs(t - 0.4) < 0.08, 1.5, 0.25)
    truth = np.sin(7 * t)
    errors = []
    for seed in range(6):
        noise = level * draw(seed).normal(size=points)
        errors.append(error(analyze(truth + noise), truth) / np.mean(noise**2))
    assert np.median(errors) < 0.1


@pytest.mark.parametrize("fitted", FITTED)
def test_points_beside_predict_a_wave_and_no_noise(fitted):
    i = np.arange(200.0)
    noise = draw(0).normal(size=(20, 200))
    assert np.mean(predicted_squares(noise, fitted)) == pytest.approx(1, abs=0.05)
    for period in (2.5, 4, 9, 30):
        waves = 20 * np.sin(2 * np.pi * i / period) + noise
        squares = predicted_squares(waves, fitted)[:, fitted:-fitted]
        assert np.mean(squares) < 3  # second differences of the quick ones have a mean square of a few hundred
    np.testing.assert_array_equal(predicted_squares(np.ones(50), fitted), 0)


# Rounded values


@pytest.mark.parametrize("points", [200, 1000])
@pytest.mark.parametrize("level", [0.1, 0.15, 0.2])
def test_values_rounded_more_coarsely_than_their_noise_are_named_and_their_error_is_no_less_than_it_is(points, level):
    truth = 1.5 * np.sin(np.arange(points) / 80)
    for seed in range(3):
        result = analyze(0.5 * np.round((truth + level * 0.5 * draw(seed).normal(size=points)) / 0.5))
        assert result.lower is None
        assert "rounded more coarsely than their noise" in result.sentence
        assert result.risk > error(result, truth) / 2


@pytest.mark.parametrize("level", [0.6, 1.0])
def test_finer_rounding_is_noise_like_any_other(level):
    truth = 1.5 * np.sin(np.arange(500) / 80)
    result = analyze(0.5 * np.round((truth + level * 0.5 * draw(0).normal(size=500)) / 0.5))
    assert result.noise == pytest.approx(0.5 * (level**2 + 1 / 12) ** 0.5, rel=0.15)
    assert np.mean((result.lower <= truth) & (truth <= result.upper)) > 0.85


def test_exact_steps_are_not_rounded_noise():
    for values in (np.repeat([0.0, 1.0, 0.0, 2.0, 1.0], 60), np.floor(np.arange(300) / 20), np.full(50, 2.0)):
        np.testing.assert_allclose(analyze(values).values, values, atol=1e-12)


@pytest.mark.parametrize("values", [[3.0], [3.0, 4.0], [1.0, np.nan, 3.0]])
def test_one_or_two_values_say_nothing_of_their_noise(values):
    result = analyze(values)
    assert result.lower is None
    assert "Fewer than three values do not show their noise, and stay as they are." in result.sentence
    assert "no noise" not in result.sentence
    assert analyze(values, noise=0.1).lower is not None


# Tails


def test_the_tail_factor_brings_the_trimmed_level_to_the_root_mean_square():
    times, trimmed, corrected = np.arange(POINTS, dtype=float), [], []
    for seed in range(12):
        noise = clean(draw(seed).laplace(size=POINTS), 1.0).values
        level = estimate_noise(times, TRUTH + noise).level
        trimmed.append(np.log(level / noise.std()))
        corrected.append(trimmed[-1] + np.log(tail_factor(times, TRUTH + noise, np.full(POINTS, level))))
    assert np.mean(trimmed) < -0.02  # or there is nothing to correct
    assert abs(np.mean(corrected)) < 0.012


@pytest.mark.parametrize(
    "signal",
    [
        np.zeros(POINTS),
        np.where(np.arange(POINTS) % 200 < 90, 0.0, 30.0),  # jumps
        sum(40 * np.exp(-0.5 * ((np.arange(POINTS) - centre) / 2) ** 2) for centre in range(50, 1000, 100)),  # peaks
        20 * np.sin(np.arange(POINTS) / 8),  # a wave of 50 points
    ],
)
def test_what_a_signal_does_is_no_tail(signal):
    times = np.arange(POINTS, dtype=float)
    factors = [tail_factor(times, signal + draw(seed).normal(size=POINTS), np.ones(POINTS)) for seed in range(6)]
    assert np.mean(factors) < 1.02


@pytest.mark.parametrize("points", [200, 350])
def test_skewed_noise_of_a_short_series_has_its_root_mean_square(points):
    times, levels, ratios = np.arange(points, dtype=float), [], []
    for seed in range(8):
        noise = draw(seed).exponential(size=points) - 1
        level = estimate_noise(times, noise).level
        levels.append(level)
        ratios.append(level * tail_factor(times, noise, np.full(points, level)))
    assert np.mean(levels) < 0.9  # or there is nothing to correct
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)


def test_tails_are_no_signal_with_robust_false():
    errors = [
        [error(analyze(TRUTH + 0.4 * (draw(seed).exponential(size=POINTS) - 1), robust=robust)) for robust in ("auto", False)]
        for seed in range(3)
    ]
    cleaned, whole = np.mean(errors, axis=0)
    assert whole < 4 * cleaned  # 9.6 times if the level is the trimmed one


@pytest.mark.parametrize("points", [200, 350])
def test_narrow_peaks_that_recur_are_no_tail_of_a_short_series(points):
    times = np.arange(points, dtype=float)
    factors = [
        tail_factor(times, 30.0 * (times % 13 == 5) + draw(seed).normal(size=points), np.ones(points)) for seed in range(6)
    ]
    assert np.mean(factors) < 1.02


@pytest.mark.slow
def test_smooth_signals_are_not_followed_into_heavy_tails():
    parabola = 3 * (T - 0.4) ** 2
    errors = [error(analyze(parabola + 0.15 * draw(seed).laplace(size=POINTS)), parabola) for seed in range(8)]
    # Of the noise's variance 2 · 0.15²; a parabola by least squares leaves 0.003 of it.
    assert np.mean(errors) < 0.012 * 2 * 0.15**2


# Levels


def levels_of(noise, level):
    return varying_levels(None, TRUTH + noise, np.ones(POINTS), level)


@pytest.mark.parametrize(
    "level",
    [
        np.exp(2 * T),
        1 + 3 * (np.abs(T - 0.4) < 0.08),
        np.where(T < 0.6, 1, 3),
        0.3 + 0.6 * (TRUTH - TRUTH.min()),
    ],
)
def test_levels_that_vary_are_found_to_a_fifth(level):
    for seed in range(3):
        estimated = levels_of(0.2 * level * draw(seed).normal(size=POINTS), 0.2 * np.sqrt(np.mean(level**2)))
        assert estimated is not None
        assert np.median(np.abs(np.log(estimated / (0.2 * level)))) < 0.2


def test_white_and_heavy_tailed_noise_has_one_level():
    kinds = [draw(seed).normal(size=POINTS) for seed in range(15)] + [draw(seed).laplace(size=POINTS) for seed in range(15)]
    assert sum(levels_of(noise, 1.0) is not None for noise in kinds) <= 1


@pytest.mark.parametrize("level", [np.exp(2 * T) / 3, pytest.param(1 + 4 * (np.abs(T - 0.3) < 0.06), marks=pytest.mark.slow)])
def test_the_stated_error_is_the_true_one_within_its_standard_error(level):
    differences, errors = [], []
    for seed in range(6):
        result = analyze(TRUTH + 0.3 * level * draw(seed).normal(size=POINTS))
        differences.append(result.risk - error(result))
        errors.append(result.risk_error)
    assert abs(np.mean(differences)) < 2.5 * np.mean(errors) / np.sqrt(6)


# Correlation


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_an_autoregression_is_estimated_and_smoothed_away(rho):
    for seed in range(3):
        x = TRUTH + autoregression(rho, seed)
        result = analyze(x)
        assert result.noise_estimate.correlation == pytest.approx(rho, abs=0.2)
        assert result.withheld == ""
        assert error(result) < 0.75 * np.mean((x - TRUTH) ** 2)
        assert "autoregressive with a correlation of" in result.sentence


@pytest.mark.parametrize("rho", [-0.3, -0.6])
def test_alternating_noise_has_a_band_that_holds_the_truth(rho):
    inside = []
    for seed in range(3):
        result = analyze(TRUTH + autoregression(rho, seed))
        assert result.noise_estimate.correlation == pytest.approx(rho, abs=0.15)
        assert result.noise == pytest.approx(0.3, rel=0.15)
        inside.append(np.mean((result.lower <= TRUTH) & (result.upper >= TRUTH)))
    assert np.mean(inside) > 0.85


def test_gaps_of_outliers_and_missing_values_do_not_hide_an_autoregression():
    x = TRUTH + autoregression(0.6, 0)
    x[draw(1).choice(POINTS, 20, replace=False)] += 4
    x[draw(2).choice(POINTS, 20, replace=False)] = np.nan
    result = analyze(x)
    assert result.outliers.any()
    assert result.noise_estimate.correlation == pytest.approx(0.6, abs=0.2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(
            lambda seed: autoregression(0.8, seed, 0.25) + 0.25 * draw(seed + 50).normal(size=POINTS), id="with white noise"
        ),
        pytest.param(third_order, id="third order"),
    ],
)
def test_a_curve_that_follows_hidden_correlation_has_no_band_that_misses_the_truth(noise, seed):
    result = analyze(TRUTH + noise(seed))
    inside = 0.0 if result.lower is None else float(np.mean((result.lower <= TRUTH) & (result.upper >= TRUTH)))
    assert inside > 0.85 or "does not distinguish correlated noise" in str(result)


@pytest.mark.parametrize(
    "signal",
    [
        pytest.param(lambda: np.cumsum(draw(3).choice([0, 1, -1], POINTS, p=[0.96, 0.02, 0.02])), id="jumps"),
        pytest.param(lambda: 2 * np.exp(-((POINTS * T % 93 - 46) ** 2) / 12), id="peaks"),
        pytest.param(lambda: np.sin(POINTS * T / 4) + 0.5 * np.cos(POINTS * T / 2), id="a season"),
    ],
)
def test_a_quick_signal_under_white_noise_has_its_band(signal):
    assert analyze(signal() + 0.3 * draw(4).normal(size=POINTS)).lower is not None


def test_a_wave_without_noise_has_its_error():
    assert not analyze(np.sin(np.arange(800) / 5)).withheld


def test_a_random_walk_is_no_autoregression():
    walks = [estimate_noise(np.arange(2000.0), draw(seed).normal(size=2000).cumsum(), correlated=True) for seed in range(10)]
    assert sum(estimate.white for estimate in walks) <= 1
    assert all("positive correlation" in estimate.reason for estimate in walks if not estimate.white)


@pytest.mark.parametrize("seed", range(3))
def test_an_autoregression_on_waves_is_that_of_the_rest(seed):
    beats = np.sin(2 * np.pi * np.arange(POINTS) / 40) * np.sin(2 * np.pi * np.arange(POINTS) / 300)
    several = np.sin(2 * np.pi * 12 * T + 8 * T**2) * (1 + T) + np.sin(2 * np.pi * 37 * T)
    for waves, rho, most in ((beats, 0.5, 0.4), (several, 0.8, 0.7)):
        x = waves + autoregression(rho, seed)
        result = analyze(x)
        assert result.noise_estimate.correlation == pytest.approx(rho, abs=0.15)
        assert error(result, waves) < most * np.mean((x - waves) ** 2)
        assert 0.5 < result.risk / error(result, waves) < 2
        assert result.lower is not None


def quick_path(seed, points=40):
    """A signal whose quarter waves have about ten points, of no one frequency."""
    lags = np.arange(-200, 201)
    path = np.convolve(
        draw(seed).normal(size=POINTS + 400), np.cos(2 * np.pi * lags / points) * np.exp(-0.5 * (lags / 60) ** 2), "valid"
    )
    return path / path.std()


def test_an_autoregression_beneath_a_quick_signal_is_seen_in_the_spectrum():
    signal = quick_path(50)
    result = analyze(signal + autoregression(0.5, 0))
    assert result.noise_estimate.correlation == pytest.approx(0.5, abs=0.15)
    assert error(result, signal) < 0.4 * 0.3**2
    assert "beneath the waves of a signal" in result.withheld
    assert result.lower is None


def test_a_strong_autoregression_beneath_a_quick_signal_is_seen_in_the_spectrum():
    signal = 1.4 * quick_path(50)
    x = signal + autoregression(0.8, 0)
    result = analyze(x)
    assert result.noise_estimate.correlation == pytest.approx(0.8, abs=0.15)
    assert error(result, signal) < 0.7 * np.mean((x - signal) ** 2)
    assert 0.5 < result.risk / error(result, signal) < 2
    assert "beneath the waves of a signal" in result.withheld
    assert result.lower is None


def test_the_spectrum_of_a_random_walk_shows_no_autoregression():
    walks = [spectral_autoregression(draw(seed).normal(size=1000).cumsum()) for seed in range(60)]
    assert sum(spectral.shows for spectral in walks) <= 3


@pytest.mark.parametrize("size", [1000, 30_000])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_the_spectrum_shows_an_autoregression_in_series_of_any_length(rho, size):
    white = draw(3).normal(size=size + 50)
    noise = np.convolve(white, rho ** np.arange(50))[50:size]
    assert spectral_autoregression(noise + 5 * np.sin(np.arange(noise.size) / 7)).rho == pytest.approx(rho, abs=0.12)


@pytest.mark.parametrize("rho", [-0.5, 0.5, 0.7])
def test_an_autoregression_is_corrected_for_in_short_series(rho):
    results = []
    for seed in range(12):
        signal, noise = np.sin(2 * np.pi * np.arange(300) / 150), autoregression(rho, 100 + seed)[:300]
        result = analyze(signal + noise)
        if result.noise_estimate.correlation:
            results.append(
                (result.noise_estimate.correlation, error(result, signal) / 0.3**2, result.risk / error(result, signal))
            )
    assert len(results) >= 6
    median, errors, stated = np.median(results, axis=0)
    assert median == pytest.approx(rho, abs=0.15)
    assert errors < 0.25
    assert 0.5 < stated < 2


def test_short_random_walks_are_no_autoregression():
    walks = [estimate_noise(np.arange(250.0), draw(seed).normal(size=250).cumsum(), correlated=True) for seed in range(40)]
    assert sum(estimate.correlation != 0 for estimate in walks) <= 6
    assert sum(estimate.correlation != 0 and estimate.white for estimate in walks) <= 2


def test_the_spectrum_of_a_quick_signal_is_not_that_of_an_autoregression():
    frequencies = np.fft.rfftfreq(300)
    fitting = []
    for seed in range(60):
        band = np.fft.irfft(np.fft.rfft(draw(seed).normal(size=300)) * np.exp(-0.5 * ((10 * frequencies - 1) / 0.2) ** 2), 300)
        quick, red = band / band.std() + 0.4 * draw(1000 + seed).normal(size=300), autoregression(0.6, seed)[:300]
        fitting.append([fits_the_spectrum(quick, 0.6), fits_the_spectrum(red, 0.6)])
    quick, red = np.mean(fitting, axis=0)
    assert quick < 0.3
    assert red > 0.9


def test_short_series_that_are_smoothed_together_are_corrected_alike():
    rhos = (0.0, -0.4, 0.75, *[0.5] * 12)  # of 300 points differences only hint at 0.5
    several = np.stack([np.sin(np.arange(POINTS) / 60) + autoregression(rho, seed) for seed, rho in enumerate(rhos)])
    tasks = [Task(str(index), x, None, {}) for index, x in enumerate(several[:, :300])]
    for task, curve in zip(tasks, smooth_tasks(tasks), strict=True):
        np.testing.assert_allclose(curve.values, analyze(task.values).values, rtol=1e-9)
    assert sum(analyze(task.values).noise_estimate.correlation != 0 for task in tasks) >= 5


def test_degrees_of_freedom_are_not_negative_where_noise_is_correlated():
    # A path as rough as the noise: heads that compare values have negative derivatives where they turn away from a point.
    path = np.convolve(draw(102).normal(size=POINTS + 99), np.hanning(100), mode="valid")
    result = analyze(path / path.std() + autoregression(0.85, 2))
    assert 0 < result.degrees_of_freedom < POINTS


def test_waves_without_noise_are_no_autoregression():
    waves = np.sin(2 * np.pi * np.arange(POINTS) / 40)
    assert error(analyze(waves), waves) < 1e-4


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_the_factor_of_a_leverage_is_the_sum_over_a_gaussians_weights(rho):
    for width in (0.6, 2.0, 30.0):
        lags = np.arange(-300, 301)
        weights = np.exp(-(lags**2) / (2 * width**2))
        weights /= weights.sum()
        expected = np.sum(weights * rho ** np.abs(lags)) / weights.max()
        assert covariance_factors(np.array([weights.max()]), rho)[0] == pytest.approx(expected, rel=0.02)


def test_a_negative_leverage_is_no_wide_head():
    assert covariance_factors(np.array([-0.3, -1e-3]), 0.85).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("rho", [-0.2, -0.5, -0.85])
def test_whitening_is_undone_and_leaves_white_noise(rho):
    x = 5 + np.cumsum(draw(0).normal(size=500))
    np.testing.assert_allclose(colored(whitened(x, rho), rho)[150:], x[150:], rtol=0, atol=1e-8)
    np.testing.assert_allclose(whitened(np.full(9, 2.5), rho), 2.5, rtol=1e-14)
    noise = autoregression(rho, 0)
    white = whitened(noise, rho)[1:]
    assert white.std() == pytest.approx(noise.std() * white_level(rho), rel=0.05)
    assert abs(np.corrcoef(white[1:], white[:-1])[0, 1]) < 0.08


@pytest.mark.slow
def test_noise_that_alternates_is_smoothed_better_than_white_noise_of_its_level():
    for rho in (-0.4, -0.6):
        alternating = [error(analyze(TRUTH + autoregression(rho, seed))) for seed in range(4)]
        white = [error(analyze(TRUTH + 0.3 * draw(seed).normal(size=POINTS))) for seed in range(4)]
        assert np.mean(alternating) < 0.7 * np.mean(white)


@pytest.mark.parametrize("points", [(0, 42, POINTS - 1), pytest.param((1, 2, 39, 500), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_row_of_weights_makes_a_point_of_a_series_whose_noise_alternates(points):
    x = TRUTH + autoregression(-0.5, 1)
    x[[0, 40, 41, 300]] = np.nan
    result = analyze(x)
    assert result.noise_estimate.correlation < -0.3
    for point in points:
        weights = result.weights(point)
        assert (weights[np.isnan(x)] == 0).all()
        assert weights @ np.nan_to_num(x) == pytest.approx(result.values[point], abs=1e-11)


def test_residuals_give_a_level_closer_to_the_true_one_than_differences():
    away = []
    for seed in range(3):
        level = np.where((np.abs(T - 0.3) < 0.05) | (np.abs(T - 0.7) < 0.07), 5.0, 1.0) / 6
        x = np.sin(140 * T) + np.sin(57 * T) + level * draw(seed).normal(size=POINTS)
        by_differences = varying_levels(None, x, np.ones(POINTS), 0.3)
        result = analyze(x)
        by_residuals = result.levels
        away.append([np.mean(np.log(each / level) ** 2) for each in (by_residuals, by_differences)])
    by_residuals, by_differences = np.mean(away, axis=0)
    assert by_residuals < min(0.8 * by_differences, 0.016)


@pytest.mark.parametrize(("first", "length", "factor"), [(300, 90, 4.0), (711, 130, 5.0), (40, 60, 6.0)])
def test_a_burst_is_not_followed_at_its_edges(first, length, factor):
    """Where an edge is found late, the burst's first points count as quiet ones, and the curve goes through them."""
    inside, truth = (np.arange(POINTS) >= first) & (np.arange(POINTS) < first + length), 2 * (T - 0.4) ** 2
    noises = [0.3 * np.where(inside, factor, 1.0) * draw(seed).normal(size=POINTS) for seed in range(4)]
    assert np.mean([error(analyze(truth + noise), truth) / np.mean(noise**2) for noise in noises]) < 0.01


def test_edges_that_are_close_stay_within_the_series():
    for seed in range(30):
        random = draw(seed)
        squares = np.exp(np.repeat(3 * random.normal(size=40), random.integers(1, 40, 40))) * random.normal(size=()) ** 2
        edges = segment_edges(squares, 5.0)
        assert edges == sorted({*edges})
        assert (edges[0], edges[-1]) == (0, squares.size)
        variances = segment_variances(squares, edges)
        assert variances.shape == squares.shape
        assert (
            squares.min() * 0.999 <= variances.min() <= variances.max() <= squares.max() * 1.001
        )  # sums are differences of sums


def test_edges_of_bursts_are_those_of_the_largest_likelihood():
    for seed in range(5):
        random = draw(seed)
        edges = [0, *(np.cumsum(random.integers(60, 200, 4))), 900]
        scales = random.choice([1.0, 25.0], 5) * random.uniform(0.8, 1.2, 5)
        scales[1::2] *= 5  # neighbours differ
        squares = np.repeat(scales, np.diff(edges)) * random.normal(size=900) ** 2
        cut = segment_edges(squares, 20.0)

        def cost(positions, squares=squares):
            parts = [squares[a:b] for a, b in pairwise(positions)]
            return sum(part.size / 2 * np.log(part.mean()) for part in parts)

        for index in range(1, len(cut) - 1):
            for moved in range(max(cut[index - 1] + 24, cut[index] - 40), min(cut[index + 1] - 24, cut[index] + 40) + 1):
                assert cost(cut) <= cost([*cut[:index], moved, *cut[index + 1 :]]) + 1e-9


@pytest.mark.parametrize("correlation", [0.8, 0.95])
def test_a_short_series_of_correlated_noise_has_no_band(correlation):
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=300)
        for i in range(1, noise.size):
            noise[i] += correlation * noise[i - 1]
        result = analyze(np.sin(np.arange(200) / 30) + noise[-200:])
        assert result.lower is None
        assert result.withheld
