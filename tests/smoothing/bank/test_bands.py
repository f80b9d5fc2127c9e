"""The band: how far the curve may be from its own mean, and where nothing of the kind can be said."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import cbook

from overt.smoothing import analyze

NAN = float("nan")
N, SIGMA = 300, 0.5
TIMES = np.arange(float(N))
SMOOTH = [2 * np.sin(TIMES / 40), TIMES / 60 + np.sin(TIMES / 30), 3 * np.exp(-(((TIMES - 150) / 40) ** 2))]
OTHERS = {"value": 0.5, "both": (8.0, 1.0), "patch": 0.5}


def noisy(truth=0, seed=0):
    return SMOOTH[truth] + SIGMA * np.random.default_rng(seed).normal(size=N)


def covered(seeds, **way):
    """How often the band holds the truth, over all points of three smooth signals."""
    result = [(truth, analyze(noisy(truth, seed), **way)) for truth in range(3) for seed in range(seeds)]
    bands = [(truth, one) for truth, one in result if not one.withheld]
    assert len(bands) > 0.9 * len(result)
    return np.mean([(one.lower <= SMOOTH[truth]) & (SMOOTH[truth] <= one.upper) for truth, one in bands])


@pytest.mark.parametrize("noise", [None, SIGMA])
@pytest.mark.parametrize(
    "way",
    [
        {"bandwidth": 4.0, "degree": 0},
        {"bandwidth": 4.0},
        {"bandwidth": 8.0, "degree": 2},
        {"bandwidth": 4.0, "degree": 2, "causal": True},
    ],
)
@pytest.mark.few_cases(2)
def test_bands_of_time_keys_hold_smooth_truths_95_times_in_100(way, noise):
    assert 0.93 < covered(20, keys="time", noise=noise, **way) < 0.97


@pytest.mark.parametrize("degree", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_they_do_about_as_well_where_the_bandwidth_is_chosen(degree):
    assert 0.92 < covered(15, keys="time", degree=degree) < 0.97


def test_bands_of_the_bank_hold_smooth_truths_about_95_times_in_100():
    assert 0.92 < covered(8) < 0.98


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_bands_of_time_keys_are_the_noise_through_the_rows(degree, causal):
    draw = np.random.default_rng(0)
    x, times, weights = draw.normal(size=60), draw.permutation(np.sort(draw.uniform(0, 60, 60))), draw.uniform(0.3, 3.0, 60)
    x[[0, 20, 21]] = NAN
    way = {"keys": "time", "bandwidth": 3.0, "degree": degree, "causal": causal, "noise": 0.4}
    result = analyze(x, times=times, weights=weights, **way)
    there = ~np.isnan(result.values)
    rows = np.stack([result.weights(point) for point in np.flatnonzero(there)])
    np.testing.assert_allclose(result.deviation[there], 0.4 * np.sqrt((rows**2 / weights).sum(axis=1)), rtol=1e-9)
    assert np.isnan(result.deviation[~there]).all()


def test_the_band_is_as_wide_as_the_noise_is_strong_there():
    x, noise = noisy(), np.linspace(0.1, 2.0, N)
    way = {"keys": "time", "bandwidth": 4.0}
    one = analyze(x, noise=1.0, **way).deviation
    np.testing.assert_allclose(analyze(x, noise=noise, **way).deviation, noise * one, rtol=1e-12)


@pytest.mark.parametrize("keys", ["time", *OTHERS])
def test_the_band_lies_evenly_around_the_curve(keys):
    result = analyze(noisy(), keys=keys, bandwidth=OTHERS.get(keys, 4.0))
    np.testing.assert_allclose(result.upper - result.values, 1.959964 * result.deviation, rtol=1e-9)
    np.testing.assert_allclose(result.values - result.lower, 1.959964 * result.deviation, rtol=1e-9)


@pytest.mark.parametrize("keys", OTHERS)
@pytest.mark.few_cases(1)
def test_bands_of_other_keys_are_as_wide_as_their_curves_vary(keys):
    way = {"keys": keys, "bandwidth": OTHERS[keys], "noise": SIGMA}
    curves = np.stack([analyze(noisy(seed=seed), **way).values for seed in range(100)])
    message = np.mean([analyze(noisy(seed=seed), **way).deviation ** 2 for seed in range(3)])
    assert 0.8 < np.sqrt(message / curves.var(axis=0).mean()) < 1.25


@pytest.mark.parametrize("keys", ["auto", "time", *OTHERS])
def test_a_missing_point_has_a_band_and_an_empty_one_has_none(keys):
    x = np.where(np.isin(TIMES, [0, 50, 51, 299]), NAN, noisy())
    result = analyze(x, keys=keys, noise=SIGMA)
    assert (result.deviation > 0).all()
    empty = analyze(x, keys=keys, noise=SIGMA, fill=False)
    np.testing.assert_array_equal(np.isnan(empty.deviation), np.isnan(x))
    np.testing.assert_array_equal(np.isnan(empty.lower), np.isnan(x))


def walk(seed, n=1000):
    return np.random.default_rng(seed).normal(size=n).cumsum()


def correlated(share, seed, n=1000):
    """A wave under AR(1) noise."""
    noise = np.random.default_rng(seed).normal(size=n)
    for i in range(1, n):
        noise[i] += share * noise[i - 1]
    return 3 * np.sin(np.arange(n) / 50) + noise


def expect_no_band(x, **way):
    result = analyze(x, **way)
    assert (result.lower, result.upper, result.deviation) == (None, None, None)
    assert result.withheld.startswith("The noise does not look independent")
    assert result.withheld in result.sentence
    assert np.isfinite(result.values).all()


@pytest.mark.parametrize("way", [{}, {"keys": "time"}, {"keys": "time", "bandwidth": 5.0, "noise": 1.0}, {"keys": "patch"}])
def test_a_random_walk_has_no_band(way):
    for seed in range(3):
        expect_no_band(walk(seed), **way)


@pytest.mark.parametrize("share", [-0.6, -0.3, 0.6])
def test_a_series_with_correlated_noise_has_no_band(share):
    for seed in range(3):
        expect_no_band(correlated(share, seed), keys="time")


@pytest.mark.parametrize("share", [-0.6, -0.3, 0.6])
@pytest.mark.few_cases(1)
def test_the_bank_has_a_band_under_an_autoregression(share):
    truth, inside = 3 * np.sin(np.arange(1000) / 50), []
    for seed in range(5):
        result = analyze(correlated(share, seed))
        assert result.noise_estimate.correlation == pytest.approx(share, abs=0.15)
        assert result.noise == pytest.approx((1 - share**2) ** -0.5, rel=0.2)
        inside.append(np.mean((result.lower <= truth) & (truth <= result.upper)))
    assert np.mean(inside) > 0.85


def test_prices_of_stocks_have_no_band():
    with cbook.get_sample_data("Stocks.csv") as file:
        prices = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True)
    long = [name for name in prices if prices[name].notna().sum() > 200]
    assert len(long) > 5
    for name in long:
        expect_no_band(prices[name], keys="time")
    expect_no_band(prices[long[0]])


def test_white_noise_has_a_band():
    for seed in range(5):
        assert analyze(noisy(seed=seed)).withheld == ""


@pytest.mark.parametrize(("share", "points"), [(0.0, 100), (0.35, 100), (0.5, 200)])
def test_the_band_of_few_points_allows_for_correlation(share, points):
    truth, inside, stated = 2 * np.sin(np.arange(points) / 15), [], []
    for seed in range(48):
        noise, draw = np.zeros(points + 50), np.random.default_rng(70 + seed).normal(size=points + 50)
        for i in range(1, noise.size):
            noise[i] = share * noise[i - 1] + draw[i]
        result = analyze(truth + noise[50:])
        stated.append(np.sqrt(result.risk) / np.sqrt(np.mean((result.values - truth) ** 2)))
        if result.lower is not None:
            inside.append(np.mean((result.lower <= truth) & (truth <= result.upper)))
    assert 0.88 < np.mean(inside) < 0.99
    assert 0.6 < np.median(stated) < 1.7
