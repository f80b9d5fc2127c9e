"""Changes of level and slope: where, how large, how surely; none where only the noise is large, correlated or heavy."""

import itertools

import numpy as np
import pandas
import pytest

from overt.errors import InputError
from overt.smoothing import analyze
from overt.smoothing.operators import bends
from overt.smoothing.operators.changes import LEVEL, LINES, SLOPE, locate
from overt.smoothing.operators.divisions import EXPECTED, NoiseHypotheses, divide, prediction


def correlated(draw, count, correlation):
    noise = draw.normal(size=count + 200)
    for index in range(1, noise.size):
        noise[index] += correlation * noise[index - 1]
    return noise[200:] * np.sqrt(1 - correlation**2)


def by_enumeration(times, values, correlation):
    """The probabilities that a segment begins, and the log evidence, from the covariance of each division into segments of 4 points or more."""
    count, prior = values.size, values.var()
    chance = min(EXPECTED / count, 0.2)
    values, times = values - values.mean(), (times - times.mean()) / times.std()
    noise = correlation ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))

    def density(part):
        inverse = np.linalg.inv(noise[part, part])
        one, time = np.ones(values[part].size), times[part]
        weight = one @ inverse @ one
        off = time - one @ inverse @ time / weight
        total = 0.0
        for columns in ([one], [one, off / np.sqrt(off @ inverse @ off / weight)]):
            design = np.stack(columns, axis=1)
            covariance = noise[part, part] + prior * design @ design.T
            total += (
                0.5 * np.exp(-0.5 * values[part] @ np.linalg.solve(covariance, values[part])) / np.linalg.det(covariance) ** 0.5
            )
        return total

    starts, evidence = np.zeros(count), 0.5 * density(slice(0, count))
    for amount in range(count // 4):
        for inner in itertools.combinations(range(4, count - 3), amount):
            bounds = [0, *inner, count]
            if min(np.diff(bounds)) < 4:
                continue
            mass = np.prod([density(slice(*pair)) for pair in itertools.pairwise(bounds)])
            mass *= 0.5 * chance ** len(inner) * (1 - chance) ** (count - 1 - len(inner))
            evidence += mass
            starts[[*inner]] += mass
    return starts / evidence, np.log(evidence)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_probabilities_are_those_of_all_divisions(correlation):
    draw, times = np.random.default_rng(0), np.cumsum(np.random.default_rng(1).uniform(0.5, 2.0, 13))
    values = correlated(draw, 13, correlation) + 2.0 * (np.arange(13) >= 6)
    coefficients, variances = prediction(correlation ** np.arange(4.0))
    noise = NoiseHypotheses(coefficients[None], variances[None], np.zeros(1), np.zeros((1, 13)), np.ones(13))
    division = divide(times, values, noise)
    starts, evidence = by_enumeration(times, values, correlation)
    np.testing.assert_allclose(division.starts, starts, rtol=1e-5, atol=1e-9)
    assert division.log_evidence == pytest.approx(evidence, rel=1e-9)


def test_a_level_and_a_slope_have_their_times_sizes_and_intervals():
    draw, days = np.random.default_rng(0), pandas.date_range("2024-01-01", periods=400)
    point = np.arange(400)
    values = 20 + 5.0 * (point >= 150) + 0.4 * np.maximum(point - 300, 0) + draw.normal(size=400)
    level, slope = analyze(values, times=days).changes
    assert (level.kind, slope.kind) == ("level", "slope")
    assert level.time == days[150].to_datetime64()
    assert level.size == pytest.approx(5, abs=0.5)
    assert slope.lower <= days[300].to_datetime64() <= slope.upper
    assert slope.size == pytest.approx(0.4, abs=0.05)  # per day
    assert min(level.probability, slope.probability) > 0.99


@pytest.mark.parametrize("kind", ["white", "correlated", "heavy", "beside white"])
def test_noise_alone_makes_none(kind):
    counts = []
    for seed in range(5):
        draw = np.random.default_rng(seed)
        noise = {
            "white": lambda draw=draw: draw.normal(size=300),
            "correlated": lambda draw=draw: correlated(draw, 300, 0.8),
            "heavy": lambda draw=draw: draw.standard_t(2, size=300),
            "beside white": lambda draw=draw: correlated(draw, 300, 0.95) + draw.normal(size=300),
        }[kind]()
        counts.append(len(locate(np.arange(300.0), noise, np.ones(300))))
    assert sum(counts) == 0


def test_outliers_and_seasons_make_none_and_hide_none():
    draw, point = np.random.default_rng(2), np.arange(480)
    values = 8 * np.sin(2 * np.pi * point / 24) + 6.0 * (point >= 200) + draw.normal(size=480)
    values[[50, 51, 400]] = 60
    [change] = analyze(values, period=24).changes
    assert abs(change.time - 200) <= 2


def test_times_may_come_in_any_order_and_values_be_missing():
    draw = np.random.default_rng(3)
    values = np.repeat([0.0, 6.0], 100) + draw.normal(size=200)
    values[[20, 21, 150]] = np.nan
    order = draw.permutation(200)
    [change] = analyze(values[order], times=order.astype(float)).changes
    assert change.time == 100


def test_on_another_scale_the_size_is_in_the_unit_of_the_values():
    noisy = np.repeat([10.0, 40.0], 100) * np.exp(0.3 * np.random.default_rng(0).normal(size=200))
    [change] = analyze(noisy, scale="log").changes
    assert change.kind == "level"
    assert change.size == pytest.approx(30 * np.exp(0.045), rel=0.15)


def test_without_noise_a_step_is_a_step_and_a_constant_has_none():
    [change] = locate(np.arange(100.0), np.repeat([0.0, 5.0], 50), np.ones(100))
    assert change.position == 50
    assert locate(np.arange(100.0), np.full(100, 3.0), np.ones(100)) == []


def test_few_points_are_refused():
    assert analyze(np.random.default_rng(0).normal(size=10)).changes == []
    with pytest.raises(InputError, match=r"Expected 10 values or more to look for changes, got 9\. Fix: pass a longer series"):
        analyze(np.random.default_rng(0).normal(size=9)).changes


@pytest.mark.parametrize("steps", [False, True])
def test_changes_are_compared_with_a_smooth_curve_by_their_densities(steps):
    draw, times = np.random.default_rng(0), np.linspace(-1, 1, 60)
    smooth, frequencies = bends.smooth_columns(times)
    line, changes = (
        np.stack([np.ones(60), times]),
        np.stack([np.maximum(times, 0), 1.0 * (times >= 0.5), np.maximum(times + 0.6, 0)]),
    )
    chances = np.array([-2.0, -3.0, -1.0])
    values = 40 * changes[0] + 8 * changes[1] + draw.normal(size=60)
    unit = values @ values / np.mean(np.sum(smooth**2, axis=1))

    def density(fixed, prior):
        """Of the values without any part of the fixed columns, from n × n covariances."""
        left = np.linalg.qr(fixed.T, mode="complete")[0][:, len(fixed) :].T
        covariance = np.eye(60) + (smooth.T * prior) @ smooth
        covariance, off = left @ covariance @ left.T, left @ values
        return (
            -0.5 * off @ np.linalg.solve(covariance, off)
            - 0.5 * np.linalg.slogdet(covariance)[1]
            - 0.5 * np.log(60) * len(fixed)
        )

    def curved(*which):
        fixed = np.concatenate([line, changes[[*which]]])
        shapes = [np.exp(-((frequencies / scale) ** 2)) for scale in bends.SCALES]
        priors = [unit * amount * shape / shape.sum() for shape in shapes for amount in bends.AMOUNTS]
        return (
            np.logaddexp.reduce([density(fixed, prior) - np.log(len(priors)) for prior in priors])
            + (chances[[*which]] + bends.BESIDE_CURVE).sum()
        )

    first, both = curved(1) - curved(), curved(0, 1) - curved(1)
    assert first > both > 0 > curved(0, 1, 2) - curved(0, 1)
    lines = density(np.concatenate([line, changes]), 0 * frequencies) + chances.sum()
    levels = density(np.concatenate([line[:1], changes]), 0 * frequencies) + chances.sum()
    odds = np.exp(lines - curved(0, 1) + bends.LINES) + steps * np.exp(levels - curved(0, 1) + bends.LEVELS)
    gained = [np.exp(both), np.exp(first), 0.0]
    expected = (odds + np.divide(gained, np.add(gained, 1))) / (1 + odds)
    np.testing.assert_allclose(
        bends.sharpness(line, changes, smooth, frequencies, values, chances, steps=steps), expected, atol=1e-6
    )


@pytest.mark.parametrize("curve", ["sine", "exponential", "logistic", "bump"])
def test_smooth_curves_have_no_change(curve):
    t, changes = np.linspace(0, 1, 250), []
    for seed in range(6):
        draw = np.random.default_rng(100 + seed)
        shape = {
            "sine": np.sin(2 * np.pi * (2 * t + draw.random())),
            "exponential": 2 * np.exp(-4 * t),
            "logistic": 1 / (1 + np.exp((0.5 - t) / 0.06)),
            "bump": np.exp(-0.5 * ((t - 0.4) / 0.1) ** 2),
        }[curve]
        changes += locate(np.arange(250.0), 5 * shape + draw.normal(size=250), np.ones(250))
    assert changes == []


def test_a_step_between_constant_levels_is_a_change():
    located = []
    for seed in range(8):
        values = 2.0 * (np.arange(200) >= 120) + np.random.default_rng(seed).normal(size=200)
        located += [change.position for change in locate(np.arange(200.0), values, np.ones(200)) if change.kind == LEVEL]
    assert len(located) >= 7
    assert np.abs(np.array(located) - 120).max() <= 5


def test_a_kink_and_a_step_of_one_curve_are_both_changes():
    t = np.linspace(0, 1, 250)
    for seed in range(6):
        noise = np.random.default_rng(seed).normal(size=250)
        kink, step = locate(np.arange(250.0), 30 * np.abs(t - 0.5) + 8 * (t > 0.8) + noise, np.ones(250))
        assert (kink.kind, step.kind) == (SLOPE, LINES)
        assert abs(kink.position - 125) <= 8
        assert step.position == 200
