"""What the values are recognized as: error codes, outcomes, values that scatter in proportion over decades; and what is not taken for these."""

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.noise.amounts import recognize_amounts
from overt.smoothing.noise.codes import find_codes
from overt.smoothing.noise.logarithms import are_proportional
from overt.smoothing.noise.outcomes import are_outcomes

T = np.arange(400)
CURVE = 20 + 3 * np.sin(T / 26) + np.cos(T / 9)


def draw(seed):
    return np.random.default_rng(seed)


def noisy(seed, level=0.3):
    return CURVE + level * draw(seed).normal(size=T.size)


def rms(errors):
    return np.sqrt(np.nanmean(np.square(errors)))


RUNS = {
    "single values": [(40, 1), (90, 1), (200, 1), (333, 1)],
    "pairs": [(40, 2), (190, 2), (300, 2)],
    "a run of three": [(200, 3)],
    "runs of twelve": [(100, 12), (260, 12), (388, 12)],
    "at both ends": [(0, 3), (396, 4)],
}


@pytest.mark.parametrize("code", [-999.0, 85.0, -127.0, 9999.0, 1e20, -3.4028235e38, 2147483647.0, 65535.0])
@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
@pytest.mark.few_cases(6)
def test_error_codes_count_as_missing_values(code, runs):
    x, bad = noisy(1), np.zeros(T.size, dtype=bool)
    for start, length in runs:
        bad[start : start + length] = True
    x[bad] = code
    result, without = analyze(x), analyze(np.where(bad, np.nan, x))
    assert np.array_equal(result.outliers & bad, bad)
    np.testing.assert_allclose(result.values, without.values, rtol=0, atol=1e-12)
    assert (result.risk, result.noise) == (without.risk, without.noise)
    assert result.filled == 0
    assert f"{code:.6g} ({bad.sum()} times) is far from all other values" in result.sentence


def test_different_codes_are_found_together_and_named():
    x = noisy(2)
    x[[30, 31, 100]], x[[200, 250, 301]], x[77] = -999.0, 9999.0, 1e30
    result = analyze(x)
    assert np.flatnonzero(result.codes).tolist() == [30, 31, 77, 100, 200, 250, 301]
    assert "-999 (3 times) and 9999 (3 times) and 1e+30 are far from all other values" in result.sentence


def test_missing_values_stay_missing_without_fill_and_codes_get_the_curve():
    x = noisy(3)
    x[[50, 51, 52]], x[200] = -999.0, np.nan
    result = analyze(x, fill=False)
    assert np.flatnonzero(np.isnan(result.values)).tolist() == [200]
    assert rms((result.values - CURVE)[[50, 51, 52]]) < 1
    assert analyze(x).filled == 1


RISING = 1 / (1 + np.exp((200 - T) / 60))
OF_EACH_KIND = {
    "outcomes": (draw(5).random(T.size) < RISING).astype(float),
    "counts": draw(6).poisson(4 + 12 * RISING).astype(float),
    "logarithms": 10 ** (3 * RISING) * np.exp(0.2 * draw(7).normal(size=T.size)),
    "amounts": draw(8).gamma(1.0, size=T.size) * (1 + RISING),
    "": noisy(9),
}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_missing_values_that_stay_missing_change_nothing_at_the_others(kind):
    x = OF_EACH_KIND[kind].copy()
    x[draw(10).choice(T.size, 40, replace=False)] = np.nan
    filled, empty = analyze(x), analyze(x, fill=False)
    assert (filled.kind or "", empty.kind or "") == (kind, kind)
    np.testing.assert_array_equal(np.isnan(empty.values), np.isnan(x))
    np.testing.assert_array_equal(empty.values, np.where(np.isnan(x), np.nan, filled.values))
    assert empty.filled == 0
    assert 0 < empty.risk <= 1.0001 * filled.risk


def test_robust_false_keeps_codes_as_values():
    x = noisy(4)
    x[[50, 51, 52]] = -999.0
    assert analyze(x, robust=False).codes is None


@pytest.mark.parametrize(
    "values",
    [
        CURVE,
        np.where(T % 50 < 25, 0.0, 100.0),
        np.where(T < 200, 1.0, 1e6) + draw(0).normal(size=T.size),
        np.where(T % 90 < 5, 300.0, 0.0) + draw(1).normal(size=T.size),
        np.maximum(draw(2).normal(size=T.size), 0.0),
        draw(3).poisson(0.3, T.size).astype(float),
        draw(4).standard_cauchy(T.size),
        np.round(np.exp(draw(5).normal(2, 1.5, T.size))),
        np.exp(T / 30.0),
        np.clip(noisy(6), 17, 23),
    ],
    ids=["a curve", "a square wave", "a step", "pulses", "zeros", "rare counts", "heavy tails", "sales", "growth", "clipped"],
)
def test_signals_and_noise_are_not_taken_for_codes(values):
    assert not find_codes(values).any()


def test_a_single_far_value_remains_a_matter_of_outliers():
    x = noisy(5)
    x[123] += 60
    assert not find_codes(x).any()
    assert analyze(x).outliers[123]


def decades(seed, spread, share, count=300):
    t = np.arange(count)
    curve = 10 ** (spread / 2 * np.sin(t / 31 + seed))
    return curve, curve * np.exp(share * draw(seed).normal(size=count) - share**2 / 2)


@pytest.mark.parametrize("spread", [2.0, 3.0, 4.0, 6.0, 9.0])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.few_cases(8)
def test_values_over_decades_are_smoothed_by_their_logarithms(spread, share):
    errors, stated, inside = [], [], []
    for seed in range(3):
        curve, x = decades(seed, spread, share)
        result = analyze(x)
        assert result.kind == "logarithms"
        assert (result.values > 0).all()
        errors.append(rms((result.values - curve) / curve))
        stated.append(np.sqrt(result.risk) / rms(result.values - curve))
        inside.append(np.mean((result.lower <= curve) & (curve <= result.upper)))
    assert np.mean(errors) < 0.6 * share
    assert 0.4 < np.median(stated) < 2.5
    assert np.mean(inside) > 0.85
    assert "logarithms were smoothed" in analyze(x).sentence


def test_logarithms_keep_the_mean_and_take_missing_values_codes_and_other_times():
    curve, x = decades(1, 4.0, 0.3)
    x[[20, 21, 200]], x[100:105] = -999.0, np.nan
    result = analyze(x)
    assert result.kind == "logarithms"
    assert result.codes.sum() == 3
    assert np.median(result.values / curve) == pytest.approx(1, abs=0.06)
    values, lower, upper = result.at([50.5, 102.0], band=True)
    assert np.all((lower > 0) & (lower < values) & (values < upper))
    assert not analyze(x, noise="gaussian").kind


@pytest.mark.parametrize(
    "values",
    [
        CURVE + 0.3 * draw(0).normal(size=T.size),
        10 ** (1 + np.sin(T / 30)) + 0.5 * np.abs(draw(1).normal(size=T.size)),
        draw(2).poisson(10 ** (1.5 + np.sin(T / 40))).astype(float) + 1,
        -(10 ** (2 + 2 * np.sin(T / 30))),
        1e-3 + np.where(T % 80 < 4, 50.0, 1.0) + 0.1 * draw(3).normal(size=T.size) ** 2,
    ],
    ids=["one decade", "a constant level", "as of counts", "negative values", "pulses"],
)
def test_other_noise_is_not_taken_for_proportional(values):
    assert not are_proportional(values)


SHAPES = {
    "rises": 1 / (1 + np.exp(-(T - 200) / 30)),
    "waves": 0.5 + 0.4 * np.sin(T / 40),
    "constant": np.full(T.size, 0.3),
    "rare": 0.06 + 0.05 * np.sin(T / 60),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-5.0, 20.0)])
def test_outcomes_are_smoothed_to_their_probability(shape, low, high):
    truth, errors, stated = low + (high - low) * shape, [], []
    for seed in range(4):
        x = np.where(draw(seed).random(T.size) < shape, high, low)
        result = analyze(x)
        assert result.kind == "outcomes"
        assert not result.outliers.any()
        assert low <= result.values.min() <= result.values.max() <= high
        assert low <= result.lower.min() <= result.upper.max() <= high
        errors.append(rms(result.values - truth) / (high - low))
        stated.append(np.sqrt(max(result.risk, 0)) / rms(result.values - truth))
    assert np.mean(errors) < 0.09
    assert 0.4 < np.median(stated) < 2.5
    assert f"outcomes of {low:g} and {high:g}" in result.sentence


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([0.0, 1.0, 0.0, 1.0], 100),
        (T % 40 < 20) * 1.0,
        np.zeros(400),
        np.eye(1, 400, 7)[0],
        np.tile([0.0, 1.0, 2.0, 1.0], 100),
    ],
    ids=["four states", "a square wave", "zeros", "one event", "three values"],
)
def test_states_that_switch_are_not_taken_for_outcomes(values):
    assert not are_outcomes(values)


def test_outcomes_may_be_missing():
    x = (draw(0).random(T.size) < SHAPES["waves"]).astype(float)
    x[::7] = np.nan
    result = analyze(x)
    assert result.kind == "outcomes"
    assert np.isfinite(result.values).all()
    assert result.filled == np.isnan(x).sum()


def rates(curve, generator):
    return generator.beta(curve * 50, (1 - curve) * 50)


def durations(curve, generator):
    return curve * generator.exponential(size=curve.size)


def lognormal(curve, generator):
    return curve * np.exp(0.7 * generator.normal(size=curve.size) - 0.245)


def rainfall(curve, generator):
    return generator.gamma(curve / 2, 2.0)


def rain_on_some_days(curve, generator):
    rainy = generator.random(curve.size) < 0.85
    return np.round(curve / 0.85 * generator.gamma(0.8, 1 / 0.8, curve.size) * rainy, 1)


def sales(curve, generator):
    return generator.negative_binomial(1.5, 1.5 / (1.5 + curve)).astype(float)


AMOUNTS = {
    "rates": (rates, 0.05),
    "durations": (durations, 30.0),
    "lognormal": (lognormal, 2e5),
    "of a gamma process": (rainfall, 5.0),
    "with zeros": (rain_on_some_days, 20.0),
    "counts": (sales, 12.0),
}


@pytest.mark.parametrize(("make", "size"), AMOUNTS.values(), ids=AMOUNTS)
def test_skewed_amounts_are_smoothed_without_cutting_their_tail(make, size):
    errors, stated, inside = [], [], []
    for seed in range(4):
        curve = size * (1 + 0.7 * np.sin(T / 33 + seed))
        x = make(curve, draw(seed))
        result = analyze(x)
        assert result.kind == "amounts"
        assert result.values.min() >= 0
        errors.append(rms(result.values - curve) / rms(x - curve))
        stated.append(np.sqrt(result.risk) / rms(result.values - curve))
        inside.append(np.mean((result.lower <= curve) & (curve <= result.upper)))
    assert np.mean(errors) < 0.3
    assert 0.5 < np.median(stated) < 2
    assert 0.88 < np.mean(inside) < 0.995
    assert "skewed amounts" in result.sentence


@pytest.mark.parametrize("make", [durations, rain_on_some_days, sales])
def test_few_amounts_are_recognized_too(make):
    ratios = []
    for seed in range(8):
        curve = 20 * (1 + 0.7 * np.sin(T[:70] / 12 + seed))
        x = make(curve, draw(seed))
        ratios.append(rms(analyze(x).values - curve) / rms(analyze(x, noise="gaussian").values - curve))
    assert np.exp(np.mean(np.log(ratios))) < 0.9


@pytest.mark.parametrize("make", [durations, sales, lognormal])
def test_an_outlier_among_amounts_is_named_and_left_out(make):
    curve, moved, others = 20 * (1 + 0.7 * np.sin(T / 33)), [], 0
    for seed in range(4):
        x = make(curve, draw(seed))
        with_outlier = np.where(T == 200, 40 * x.mean(), x)
        result = analyze(with_outlier)
        assert (result.kind, result.outliers[200]) == ("amounts", True)
        assert "row 201" in result.sentence
        assert "stand far out" not in result.sentence
        assert with_outlier[200] in [one.value for one in result.anomalies()]
        others += result.outliers.sum() - 1
        without = analyze(np.where(result.outliers, np.nan, x))
        moved.append(rms(result.values - without.values) / rms(x - curve))
    assert others <= 1
    assert np.mean(moved) < 0.02


def test_amounts_take_missing_values_and_their_row_gives_the_curve():
    curve = 3 + 2 * np.sin(T / 40)
    x = durations(curve, draw(7))
    x[[50, 51, 200]] = np.nan
    result = analyze(x)
    assert (result.kind, result.filled) == ("amounts", 3)
    row = result.weights(120)
    assert np.nansum(row * x) == pytest.approx(result.values[120], abs=1e-9)
    assert not analyze(x, noise="gaussian").kind


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "values",
    [
        lambda generator: 3 + np.sin(T / 30) + generator.normal(size=T.size),
        lambda generator: 4 + np.sin(T / 30) + generator.laplace(size=T.size),
        lambda generator: 0.5 + 8.0 * (generator.random(T.size) < 0.03) + 0.2 * generator.normal(size=T.size),
        lambda generator: 0.5 + 6 * np.exp(-0.5 * ((T % 60 - 30) / 3) ** 2) + 0.3 * generator.normal(size=T.size),
        lambda generator: np.where(T % 80 < 30, 5.0, 1.0) + 0.5 * generator.normal(size=T.size),
        lambda generator: np.full(T.size, 3.0),
        lambda generator: np.exp(np.sin(T * 2 * np.pi / 12) + 0.4 * generator.normal(size=T.size)),
        lambda generator: np.exp(1.2 * np.sin(T * 2 * np.pi / 3.7)) * (1 + 0.2 * generator.random(T.size)),
        lambda generator: np.resize([1.0, 2.5, 3.2, 5.1], T.size),
    ],
    ids=["white", "Laplace", "outliers", "peaks", "jumps", "a constant", "a wave", "a quick wave", "a pattern"],
)
def test_symmetric_noise_of_positive_values_is_not_taken_for_amounts(values, seed):
    assert recognize_amounts(np.abs(values(draw(seed))) + 1e-3) is None
