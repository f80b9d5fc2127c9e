"""Autoregressions that fill gaps at equal steps."""

import numpy as np
import pandas as pd
import pytest

import overt
from overt.smoothing import analyze
from overt.smoothing.heads.local import autoregression
from overt.smoothing.heads.local.autoregression import ORDERS, Autoregression, Gappy, _burg, equal_steps
from overt.smoothing.heads.local.gaps import AUTOREGRESSED, LONG

NAN = float("nan")


def gappy(x):
    known = np.flatnonzero(~np.isnan(x))
    return Gappy.from_positions(known, x[known], LONG)


def season(count, noise, seed=0):
    """A pattern of twelve values that repeats on a random walk, as of monthly sales."""
    draw = np.random.default_rng(seed)
    pattern = draw.normal(size=12)
    return pattern[np.arange(count) % 12] + 0.2 * np.cumsum(draw.normal(size=count)) + noise * draw.normal(size=count)


def with_gaps(x, length=5, every=37):
    missing = (np.arange(x.size) % every >= every - length - 4) & (np.arange(x.size) % every < every - 4)
    return np.where(missing, NAN, x), missing


def expected(x, model):
    """The expectation of the missing values given the others, from the dense matrix of all errors of prediction."""
    order, n = model.coefficients.size - 1, x.size
    forward = np.zeros((n - order, n))
    for row in range(n - order):
        forward[row, row : row + order + 1] = model.coefficients[::-1]
    backward = forward[::-1, ::-1]
    precision = forward.T @ forward + backward.T @ backward
    missing = np.isnan(x)
    centred = x[~missing] - model.mean
    return model.mean - np.linalg.solve(precision[np.ix_(missing, missing)], precision[np.ix_(missing, ~missing)] @ centred)


@pytest.mark.parametrize("order", [1, 3, 12])
@pytest.mark.parametrize("length", [1, 4, 20])
@pytest.mark.parametrize("dense", [0, autoregression.DENSE])  # by conjugate gradients, and by elimination
def test_missing_values_are_the_expectation_given_all_others(order, length, dense, monkeypatch):
    monkeypatch.setattr(autoregression, "DENSE", dense)
    x, missing = with_gaps(season(300, 0.1), length, 60)
    x[-2] = NAN  # near an end, where errors are fewer
    model = Autoregression(0.3, _burg(season(300, 0.1) - 0.3, order))
    np.testing.assert_allclose(gappy(x).filled(model), expected(x, model), atol=1e-6)
    assert missing.sum() == gappy(x).missing.size - 1


def test_fits_have_the_orders_that_the_values_suffice_for():
    x = season(200, 0.1)
    assert [filled.model.coefficients.size - 1 for filled in gappy(x).fit()] == [order for order in ORDERS if order <= 66]
    assert gappy(x[:2]).fit() == []


def test_a_fit_finds_the_coefficients_though_values_are_missing():
    draw, x = np.random.default_rng(1), np.zeros(8000)
    for step in range(2, x.size):
        x[step] = 1.5 * x[step - 1] - 0.8 * x[step - 2] + draw.normal()
    x[draw.random(x.size) < 0.1] = NAN
    model = gappy(x).fit()[1].model
    np.testing.assert_allclose(model.coefficients, [1, -1.5, 0.8], atol=0.05)


def test_a_long_gap_is_in_no_fit():
    draw = np.random.default_rng(2)
    x = draw.normal(size=2000)
    x[400:1400] = NAN  # its straight line would look like a slow signal
    grid = gappy(x)
    assert grid.missing.size == 0
    assert abs(grid.fit()[0].model.coefficients[1]) < 0.1


@pytest.mark.parametrize("position", [33, 150, 298])
def test_a_row_of_weights_makes_the_filled_value(position):
    x, _ = with_gaps(season(300, 0.1))
    x[position] = NAN
    x[200:280] = NAN  # a long gap, which is interpolated linearly
    grid = gappy(x)
    model = Autoregression(float(np.nanmean(x)), _burg(season(300, 0.1) - np.nanmean(x), 24))
    row = grid.row(model, position)
    assert row.sum() == pytest.approx(1)
    assert row @ x[~np.isnan(x)] == pytest.approx(grid.whole(grid.filled(model))[position], abs=1e-6)


def test_constants_and_pure_waves_are_filled():
    wave = np.sin(np.arange(444) * 0.4)
    for whole in (np.full(444, 3.0), wave, 1e-140 * wave, 1e140 * wave):
        x, missing = with_gaps(whole)
        filled = overt.smooth(x)
        assert np.abs(filled - whole)[missing].max() <= 0.02 * np.abs(whole).max()


def test_a_season_that_was_not_named_is_continued_through_gaps():
    whole = season(400, 0.1)
    x, missing = with_gaps(whole)
    result = analyze(x)
    shares = result.filling.shares[..., AUTOREGRESSED]
    assert shares.sum() > 0.8 * missing.sum()
    line = np.interp(np.flatnonzero(missing), np.flatnonzero(~missing), x[~missing])
    assert np.mean((result.values - whole)[missing] ** 2) < 0.1 * np.mean((line - whole[missing]) ** 2)


@pytest.mark.parametrize("period", [None, 12])
def test_weights_make_the_curve_inside_gaps(period):
    x, missing = with_gaps(season(300, 0.1))
    result = analyze(x, period=period, robust=False)
    assert result.filling.shares[..., AUTOREGRESSED].any()
    for point in np.flatnonzero(missing)[[0, 7]]:
        assert result.weights(point) @ np.nan_to_num(x) == pytest.approx(result.values[point], abs=1e-6)


def test_months_are_equal_steps_and_days_that_lack_are_missing():
    whole = season(240, 0.1)
    x, missing = with_gaps(whole)
    months = pd.Series(x, pd.date_range("2000-01-01", periods=240, freq="MS"))
    np.testing.assert_allclose(overt.smooth(months)[missing], overt.smooth(x)[missing], atol=0.3)
    assert analyze(months).filling.shares[..., AUTOREGRESSED].any()
    absent = np.delete(np.arange(240.0), [50, 51, 120])
    assert equal_steps(absent).positions.tolist() == absent.astype(int).tolist()


@pytest.mark.parametrize(
    "times", [[0.0, 1.0, 1.0, 2.0], [0.0], [0.0, 0.4, 1.9, 3.0], [0.0, 1.0, 2.0, 50.0]], ids=["tied", "one", "uneven", "sparse"]
)
def test_other_times_have_no_autoregression(times):
    assert equal_steps(np.array(times)) is None


def test_noise_on_a_smooth_curve_is_not_followed_into_gaps():
    t = np.arange(2000)
    truth = np.sin(t / 100)
    errors = []
    for seed in range(4):
        x = truth + 0.5 * np.random.default_rng(seed).normal(size=t.size)
        missing = t % 10 == 5
        errors.append(np.mean((overt.smooth(np.where(missing, NAN, x)) - truth)[missing] ** 2))
    assert np.mean(errors) < 0.005  # of white noise of variance 0.25


def test_few_points_are_judged_in_several_sets():
    whole = season(70, 0.05)
    x, missing = with_gaps(whole, 4, 30)
    assert not analyze(x).filling.joined.any()
    line = np.interp(np.flatnonzero(missing), np.flatnonzero(~missing), x[~missing])
    assert np.mean((overt.smooth(x) - whole)[missing] ** 2) < 0.3 * np.mean((line - whole[missing]) ** 2)
