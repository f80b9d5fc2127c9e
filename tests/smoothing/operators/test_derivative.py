"""Slopes and curvatures of smoothed series: their error, their band, their unit; and the models by their definition."""

import numpy as np
import pytest

from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.heads.state_space import smoothed_states

TIMES = np.arange(300.0)
SIGNALS = {
    "waves": (np.sin(TIMES / 25) + 0.5 * np.cos(TIMES / 11), np.cos(TIMES / 25) / 25 - np.sin(TIMES / 11) / 22),
    "bump": (np.exp(-(((TIMES - 120) / 20) ** 2)), -(TIMES - 120) / 200 * np.exp(-(((TIMES - 120) / 20) ** 2))),
    "bend": (np.maximum(TIMES - 150, 0) / 50, (TIMES > 150) / 50),
}


def noise(seed, size=300):
    return np.random.default_rng(seed).normal(size=size)


def test_two_derivatives_are_the_cubic_smoothing_spline():
    from scipy.interpolate import make_smoothing_spline

    draw = np.random.default_rng(0)
    times = np.cumsum(draw.uniform(0.3, 2.0, 60))
    values = np.sin(times / 8) + 0.3 * draw.normal(size=60)
    states = smoothed_states(times, values, np.full(60, 0.09), np.array([2.0, 6.0]), 2)
    for head, bandwidth in enumerate((2.0, 6.0)):
        spline = make_smoothing_spline(times, values, lam=bandwidth**3)
        assert states.means[0, head] == pytest.approx(spline(times), abs=2e-3)  # of a state of which little is known at first
        assert states.means[1, head] == pytest.approx(spline.derivative()(times), abs=2e-3)


def test_the_models_are_the_posterior_of_their_covariances():
    times, levels, bandwidth = np.array([0.0, 1.0, 1.5, 4.0]), np.array([0.1, 0.2, 0.1, 0.3]), 2.0
    values = np.array([1.0, 0.2, -0.5, 0.4])
    states = smoothed_states(times, values, levels, np.array([bandwidth]), 2)
    # An integrated Wiener process from a state of variance D: cov(f_s, f_t) = D(1 + st/h²) + q s²(3t − s)/6 for s ≤ t.
    start = 1e2 * max(np.var(values), levels.mean())
    early, late = np.minimum.outer(times, times), np.maximum.outer(times, times)
    covariance = start * (1 + early * late / bandwidth**2) + levels.mean() / bandwidth**3 * early**2 * (3 * late - early) / 6
    gain = covariance @ np.linalg.inv(covariance + np.diag(levels))
    assert states.means[0, 0] == pytest.approx(values[0] + gain @ (values - values[0]))
    assert states.variances[0, 0] == pytest.approx(np.diag(covariance - gain @ covariance))
    left = np.diag(np.linalg.inv(covariance + np.diag(levels)))
    residuals = np.linalg.inv(covariance + np.diag(levels)) @ (values - values[0]) / left
    assert states.log_densities(values, levels)[0] == pytest.approx(-0.5 * (np.log(2 * np.pi / left) + residuals**2 * left))


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_slope_is_near_the_truth_and_its_band_holds_it(signal):
    values, slope = SIGNALS[signal]
    inside = []
    for seed in range(3):
        derivative = analyze(values + 0.1 * noise(seed)).derivative()
        assert np.sqrt(np.mean((derivative.values - slope) ** 2)) < 0.35 * slope.std()
        assert 0.5 < derivative.error / np.sqrt(np.mean((derivative.values - slope) ** 2)) < 3
        inside.append(np.mean((derivative.lower <= slope) & (slope <= derivative.upper)))
    assert np.mean(inside) > 0.9


def test_curvature_is_the_second_derivative():
    values = np.sin(TIMES / 25)
    curvature = analyze(values + 0.02 * noise(4)).derivative(2)
    inner = slice(20, -20)
    assert np.sqrt(np.mean((curvature.values + values / 625)[inner] ** 2)) < 0.25 / 625
    assert curvature.unit == "per step²"


@pytest.mark.parametrize(
    ("step", "unit", "per", "name"), [("6h", "hour", "1D", "1D"), ("1D", "day", "1h", "1h"), ("30s", "second", "1min", "1min")]
)
def test_a_slope_is_for_a_unit_of_time(step, unit, per, name):
    import pandas

    index = pandas.date_range("2024-03-01", periods=200, freq=step)
    smoothing = analyze(pandas.Series(np.arange(200.0) + 0.01 * noise(5, 200), index=index))
    seconds = pandas.Timedelta(step).total_seconds()
    size = {"hour": 3600, "day": 86400, "second": 1, "1D": 86400, "1h": 3600, "1min": 60}
    assert smoothing.derivative().unit == f"per {unit}"
    assert np.median(smoothing.derivative().values) == pytest.approx(size[unit] / seconds, rel=0.01)
    assert smoothing.derivative(per=per).unit == f"per {name}"
    assert np.median(smoothing.derivative(per=per).values) == pytest.approx(size[name] / seconds, rel=0.01)


def test_on_a_scale_it_follows_the_chain_rule():
    smoothing = analyze(np.exp(2 + np.sin(TIMES / 40) + 0.1 * noise(6)), scale="log")
    slope = np.exp(2.005 + np.sin(TIMES / 40)) * np.cos(TIMES / 40) / 40
    assert np.sqrt(np.mean((smoothing.derivative().values - slope) ** 2)) < 0.25 * slope.std()
    turning = analyze(np.mod(350 + 0.5 * TIMES + noise(7), 360), circular=360).derivative()
    assert turning.values == pytest.approx(0.5, abs=0.1)


def test_a_season_has_its_slope_and_missing_values_theirs():
    season = np.sin(2 * np.pi * TIMES / 20)
    values = 0.02 * TIMES + season + 0.1 * noise(8)
    values[[40, 41, 150]] = np.nan
    slope = 0.02 + 2 * np.pi / 20 * np.cos(2 * np.pi * TIMES / 20)
    derivative = analyze(values, period=20).derivative().values
    assert np.sqrt(np.mean((derivative - slope) ** 2)) < 0.25 * slope.std()


def test_long_series_take_means_first_and_wide_models_too():
    times = np.arange(30_000)
    derivative = analyze(np.sin(times / 4000) + 0.5 * noise(9, times.size)).derivative()
    assert np.abs(derivative.values - np.cos(times / 4000) / 4000).max() < 0.2 / 4000


def test_where_there_is_no_band_there_is_none_of_the_slope():
    smoothing = analyze(noise(10, 1000).cumsum())
    assert smoothing.withheld
    assert smoothing.derivative().upper is None
    assert smoothing.derivative().error is None


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([1.0, 2.0, 4.0, 3.0], {}, "Expected 5 values or more for a derivative, got 4."),
        (TIMES, {"order": 3}, "Expected derivative of order 1 or 2, got 3."),
        (TIMES, {"per": "1D"}, "Expected dates as times with `per` as a length of time, got '1D'."),
    ],
)
def test_what_has_no_derivative_is_a_sentence(values, options, message):
    with pytest.raises(InputError) as raised:
        analyze(values).derivative(**options)
    assert message in str(raised.value)
