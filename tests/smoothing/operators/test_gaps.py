"""Missing values: filled by what fills deleted gaps of like length best."""

import numpy as np
import pytest
import scipy.signal

import overt
import overt.smoothing.analysis as analysis
from overt.smoothing import analyze
from overt.smoothing.heads.local.gaps import DEGREES, GapKeys, fill_gaps, gap_row
from overt.smoothing.heads.local.long_gaps import bend_across
from overt.smoothing.heads.local.polynomial import polynomial_rows

NAN = float("nan")


def gappy(x, length, every=40):
    """The series with gaps of this length, and which points are missing."""
    missing = (np.arange(x.size) % every >= every - length - 5) & (np.arange(x.size) % every < every - 5)
    return np.where(missing, NAN, x), missing


def waves(count, period, noise):
    """Waves of so many points, where the straight line across a gap is off."""
    return np.sin(np.arange(count) * 2 * np.pi / period + 0.3) + noise * np.random.default_rng(0).normal(size=count)


def keys_of(x, missing):
    return GapKeys(np.flatnonzero(~missing).astype(float), x[~missing], np.zeros((~missing).sum()), None)


def test_a_curve_that_fills_badly_gives_way_to_heads_that_fill_well():
    whole = np.cumsum(np.random.default_rng(1).normal(size=600))
    x, missing = gappy(whole, 1)
    targets = np.flatnonzero(missing).astype(float)
    filling = fill_gaps(
        keys_of(x, missing), targets, np.zeros(targets.size), lambda sets: [np.full(rows.size, 50.0) for rows in sets]
    )
    assert (filling.curve < 1e-6).all()
    errors = (filling.values - whole[missing]) ** 2
    assert errors.mean() < 1.0  # of a walk with steps of 1; the midpoint of two neighbours has 0.5
    assert 0.3 < filling.errors.mean() < 1.0


def test_a_curve_that_fills_well_stays():
    whole = np.sin(np.arange(600) / 30)
    x, missing = gappy(whole + 0.5 * np.random.default_rng(2).normal(size=600), 2)
    keys, targets = keys_of(x, missing), np.flatnonzero(missing).astype(float)
    filling = fill_gaps(keys, targets, np.zeros(targets.size), lambda sets: [np.sin(keys.times[rows] / 30) for rows in sets])
    np.testing.assert_array_equal(filling.curve, 1.0)
    np.testing.assert_array_equal(filling.values, 0.0)


@pytest.mark.parametrize(("curve", "least", "most"), [("the truth", 24, 100), ("a constant", 190, 230)])
def test_more_gaps_are_deleted_only_if_heads_may_replace_the_curve(curve, least, most):
    whole = np.sin(np.arange(400) / 30)
    x, missing = gappy(whole + 0.5 * np.random.default_rng(2).normal(size=400), 1)
    keys, targets, deleted = keys_of(x, missing), np.flatnonzero(missing).astype(float), []

    def curves_without(sets):
        deleted.extend(np.concatenate(sets).tolist())
        return [np.sin(keys.times[rows] / 30) if curve == "the truth" else np.full(rows.size, 9.0) for rows in sets]

    fill_gaps(keys, targets, np.zeros(targets.size), curves_without)
    assert least <= len(deleted) <= most
    assert len({*deleted}) == len(deleted)


def test_noise_that_is_not_white_leaves_the_curve_no_place_of_its_own():
    ratios = []
    for seed in range(10):
        draws = np.random.default_rng(seed)
        whole = np.cumsum(scipy.signal.lfilter([1], [1, -0.7], draws.normal(size=130))[30:])
        x = whole.copy()
        x[draws.choice(np.arange(1, 99), 10, replace=False)] = NAN
        missing, smoothed = np.isnan(x), analyze(x)
        assert not smoothed.noise_estimate.white
        line = np.interp(np.flatnonzero(missing), np.flatnonzero(~missing), x[~missing])
        ratios.append(np.mean((smoothed.values - whole)[missing] ** 2) / np.mean((line - whole[missing]) ** 2))
    assert np.exp(np.log(ratios).mean()) < 0.95  # 1.01 where the curve stays until the heads are surely better


def test_too_few_points_are_left_to_the_curve():
    x, missing = gappy(waves(60, 9, 0.01), 6, every=30)
    targets = np.flatnonzero(missing).astype(float)
    filling = fill_gaps(
        keys_of(x, missing), targets, np.zeros(targets.size), lambda sets: [np.zeros(rows.size) for rows in sets]
    )
    np.testing.assert_array_equal(filling.curve, 1.0)


def test_the_expected_error_grows_towards_the_middle_of_a_gap():
    x, missing = gappy(np.cumsum(np.random.default_rng(3).normal(size=2000)), 9)
    targets = np.flatnonzero(missing).astype(float)
    filling = fill_gaps(
        keys_of(x, missing), targets, np.zeros(targets.size), lambda sets: [np.full(rows.size, 99.0) for rows in sets]
    )
    assert filling.errors[4] > 1.5 * filling.errors[0]


def test_the_band_is_wider_inside_a_gap():
    draw = np.random.default_rng(0)
    truth = np.convolve(draw.normal(size=1500), np.hanning(60) / 8, "same")  # nothing tells how it goes on
    x, missing = gappy(truth + 0.1 * draw.normal(size=1500), 18)
    result = analyze(x, robust=False)
    assert result.deviation is not None
    assert np.median(result.deviation[missing]) > 2 * np.median(result.deviation[~missing])


def test_the_band_covers_waves_that_are_known_well_inside_a_gap():
    truth = waves(900, 30, 0.0)
    x, missing = gappy(waves(900, 30, 0.05), 6)
    result = analyze(x, robust=False)
    inside = (result.lower <= truth) & (truth <= result.upper)
    assert np.median(result.deviation[missing]) > np.median(result.deviation[~missing])
    assert inside[missing].mean() > 0.9


@pytest.mark.parametrize("period", [None, 9])
def test_rows_of_weights_make_the_filled_values(period):
    x, missing = gappy(np.cumsum(np.random.default_rng(4).normal(size=400)), 2)
    result = analyze(x, period=period, robust=False)
    for point in np.flatnonzero(missing)[[0, 5]]:
        assert result.weights(point) @ np.nan_to_num(x) == pytest.approx(result.values[point], abs=1e-9)


def test_a_row_of_the_heads_makes_their_part():
    x, missing = gappy(np.cumsum(np.random.default_rng(5).normal(size=400)), 2)
    keys, targets = keys_of(x, missing), np.flatnonzero(missing).astype(float)
    filling = fill_gaps(keys, targets, np.zeros(targets.size), lambda sets: [np.full(rows.size, 99.0) for rows in sets])
    of_rest, of_whole = (gap_row(keys, keys.rest, targets[3], shares) for shares in filling.shares[3])
    assert (of_rest + of_whole) @ keys.rest == pytest.approx(filling.values[3], abs=1e-10)


def test_points_that_are_there_are_not_changed_by_filling(monkeypatch):
    x, missing = gappy(waves(600, 13, 0.1), 5)
    filled = overt.smooth(x)
    monkeypatch.setattr(analysis, "_filling", lambda *arguments: None)
    plain = overt.smooth(x)
    np.testing.assert_array_equal(filled[~missing], plain[~missing])
    assert (filled[missing] != plain[missing]).any()


@pytest.mark.parametrize("degree", [3, 4])
def test_polynomials_across_a_gap_are_exact_for_their_degree_and_their_rows_sum_to_one(degree):
    draw = np.random.default_rng(0)
    times = np.sort(np.delete(np.arange(60.0), np.arange(25, 31)) + draw.uniform(-0.2, 0.2, 54))
    weights = draw.uniform(0.5, 2, times.size)
    targets = np.arange(24.5, 31)
    near, [rows] = polynomial_rows(times, weights, targets, [2.0], degree)
    assert np.allclose(rows.sum(axis=1), 1, atol=1e-9)
    for power in range(degree + 1):
        values = ((times - 28) / 10) ** power
        assert np.allclose((rows * values[near]).sum(axis=1), ((targets - 28) / 10) ** power, atol=1e-8)


def test_beyond_the_ends_a_polynomial_is_the_nearest_value():
    times = np.arange(30.0)
    near, [rows] = polynomial_rows(times, None, np.array([-3.0, 32.0]), [2.0], 4)
    assert (rows * times[near]).sum(axis=1).tolist() == [0.0, 29.0]


def test_a_gap_in_a_wave_bends_as_the_wave_does():
    t = np.arange(2000.0)
    truth = np.sin(2 * np.pi * t / 24)
    x = truth + 0.02 * np.random.default_rng(0).normal(size=t.size)
    missing = (t % 50 < 6) & (t > 0)
    x[missing] = np.nan
    known = ~missing
    line = np.interp(t[missing], t[known], x[known])
    filled = overt.smooth(x, period=None)[missing]
    assert np.mean((filled - truth[missing]) ** 2) < 0.1 * np.mean((line - truth[missing]) ** 2)


def test_beyond_the_ends_and_in_long_gaps_no_polynomial_runs_away():
    t = np.arange(1500.0)
    truth = np.sin(2 * np.pi * t / 120)
    x = truth + 0.01 * np.random.default_rng(0).normal(size=t.size)
    missing = (t < 4) | (t > 1495) | ((t > 600) & (t < 900)) | (t % 50 == 25)
    x[missing] = NAN
    filling = analyze(x, period=None).filling
    high = DEGREES > 2
    inside = (t[missing] > 3) & (t[missing] < 1496) & ((t[missing] < 601) | (t[missing] > 899))
    assert not filling.shares[~inside][:, :, high].any()  # neither polynomials nor autoregressions
    assert np.abs(filling.values[~inside]).max() < 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few_cases(1)
def test_a_long_gap_is_bridged_smoothly_though_the_series_jumps_elsewhere(seed):
    t = np.arange(2000)
    truth = np.sin(t / 100) + 2 * (t > 1400)
    x = truth + 0.4 * np.random.default_rng(seed).normal(size=t.size)
    x[500:620] = NAN
    result = analyze(x)
    assert np.abs(np.diff(result.values[499:621])).max() < 0.05
    assert np.abs(result.values - truth)[500:620].max() < 0.35
    assert np.mean((result.lower <= truth) & (truth <= result.upper)) > 0.9


def test_rows_of_weights_make_the_values_of_a_long_gap():
    x = waves(500, 250, 0.3)
    x[100:180] = NAN
    for options in ({}, {"period": 50.0}):
        result = analyze(x, **options)
        for row in (100, 130, 179):
            weights = result.weights(row)
            assert weights[np.isnan(x)] == pytest.approx(0)
            assert np.nansum(weights * x) == pytest.approx(result.values[row], abs=2e-3)


def test_the_parabola_across_a_long_gap_is_the_curves_and_none_where_it_fits_badly():
    times = np.delete(np.arange(600.0), slice(250, 350))
    keys = GapKeys(times, (times / 100) ** 2, np.zeros(times.size), None)
    bend = bend_across(keys.times, keys.rest, 250)
    targets = np.arange(250.0, 350.0)
    line = np.interp(targets, times, keys.rest)
    curvature = bend.row @ keys.rest[bend.near]
    np.testing.assert_allclose(line + curvature * bend.at(targets), (targets / 100) ** 2, atol=1e-9)
    rough = keys._replace(rest=np.random.default_rng(1).normal(size=30).repeat(20)[: times.size])
    assert abs(bend_across(rough.times, rough.rest, 250).row @ rough.rest[bend.near]) < 1


def test_without_a_judgement_a_gap_is_the_line_between_its_ends():
    np.testing.assert_allclose(overt.smooth([1.0, 2.0, NAN, 4.0, 5.0]), [1, 2, 3, 4, 5], atol=1e-9)
    np.testing.assert_allclose(overt.smooth([1.0, NAN, 3.0, 4.0]), [1, 2, 3, 4], atol=1e-9)


@pytest.mark.parametrize("every", [2, 7, 24])
@pytest.mark.few_cases(1)
def test_known_points_on_a_coarser_grid_are_smoothed_on_it(every):
    draw = np.random.default_rng(every)
    daily = np.sin(np.arange(150) / 15) + 0.3 * draw.normal(size=150)
    daily[[20, 21, 90]] = np.nan
    hourly = np.full(150 * every + 5, np.nan)
    hourly[3::every][:150] = daily
    result, coarse = analyze(hourly, robust=False), analyze(daily, robust=False)
    np.testing.assert_allclose(result.values[3::every][:20], coarse.values[:20], rtol=1e-9)
    for point in (3, 3 + every // 2, 3 + 20 * every, 3 + 50 * every + 1):
        assert result.weights(point) @ np.nan_to_num(hourly) == pytest.approx(result.values[point], abs=1e-9)
    whole = np.nan_to_num(daily)  # the lengths of gaps, which decide what fills them, are in steps of the finer grid
    hourly[3::every][:150] = whole
    assert analyze(hourly, robust=False).risk == pytest.approx(analyze(whole, robust=False).risk, rel=1e-6)


@pytest.mark.parametrize("length", [60, 150])
def test_the_stated_error_includes_that_of_filled_points(length):
    draw = np.random.default_rng(length)
    truth = np.sin(np.arange(400) / 15)
    values = truth + 0.2 * draw.normal(size=400)
    values[120 : 120 + length] = np.nan
    result = analyze(values)
    assert 0.3 < result.risk / np.mean((result.values - truth) ** 2) < 3


@pytest.mark.parametrize(("length", "count", "seed"), [(60, 700, 3), (110, 1500, 4)])
def test_a_gap_of_some_cycles_is_filled_by_what_fills_deleted_ones_of_its_length(length, count, seed):
    draw = np.random.default_rng(seed)
    turns = 2 * np.pi * np.arange(count) / 20
    truth = 3 * np.sin(turns) + np.sin(2 * turns + seed) + np.arange(count) / 200
    x = truth + 0.5 * draw.normal(size=count)
    missing = (np.arange(count) >= 300) & (np.arange(count) < 300 + length)
    result = analyze(np.where(missing, NAN, x))
    assert np.sqrt(np.mean((result.values - truth)[missing] ** 2)) < 0.5  # a straight line misses it by 3
    inside = (result.lower <= truth) & (truth <= result.upper)
    assert inside[missing].mean() > 0.9
    point = 300 + length // 2
    assert result.weights(point) @ np.where(missing, 0.0, x) == pytest.approx(result.values[point], abs=1e-6)


def test_a_long_gap_of_a_walk_stays_joined_by_a_line():
    walk = np.cumsum(np.random.default_rng(6).normal(size=1200))
    missing = (np.arange(1200) >= 500) & (np.arange(1200) < 580)
    values = analyze(np.where(missing, NAN, walk), robust=False).values[missing]
    line = np.linspace(walk[499], walk[580], 82)[1:-1]
    assert np.abs(values - line).max() < 0.2 * np.abs(walk[500:580] - line).max() + 2.0
