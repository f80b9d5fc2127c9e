"""Bandwidths, noise, times and values that nobody would choose, and that come all the same."""

from typing import Any

import numpy as np
import pytest

from overt import native
from overt.errors import InputError
from overt.smoothing import analyze, smooth

KEYS = ["time", "value", "both", "patch"]
REACHES = [{}, {"window": 3.0}, {"causal": True}]


def of(keys, bandwidth) -> dict[str, Any]:
    return {"keys": keys, "bandwidth": (bandwidth, bandwidth) if keys == "both" else bandwidth}


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=100)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize(("extreme", "moderate"), [(1e-250, 1e-9), (1e250, 1e9)])
def test_a_bandwidth_that_cannot_be_squared_is_as_good_as_none_or_as_infinite(x, keys, reach, extreme, moderate):
    result, expected = (analyze(x, **of(keys, bandwidth), **reach) for bandwidth in (extreme, moderate))
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-9)
    np.testing.assert_allclose(result.degrees_of_freedom, expected.degrees_of_freedom, rtol=1e-9)
    assert result.bandwidth == of(keys, extreme)["bandwidth"]


@pytest.mark.parametrize("keys", KEYS)
def test_noise_far_above_the_values_leaves_about_their_mean(x, keys):
    np.testing.assert_allclose(smooth(x, keys=keys, noise=1000.0, degree=0 if keys == "time" else 1), x.mean(), atol=0.05)


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.filterwarnings("ignore:.*beyond the data")
def test_far_from_all_points_a_narrow_bandwidth_takes_the_nearest(monkeypatch, core, degree):
    monkeypatch.setattr(native, "available", lambda: core)
    times = np.sort(np.random.default_rng(1).uniform(0, 5, 40))
    result = analyze(np.arange(40.0), times=times, keys="time", bandwidth=1e-3, degree=degree)
    far = np.random.default_rng(2).uniform(0.1, 0.49, 50) * (
        times[-1] - times[0]
    )  # hundreds of bandwidths; further out is refused
    np.testing.assert_allclose(result.at(times[-1] + far), 39.0)
    np.testing.assert_allclose(result.at(times[0] - far), 0.0, atol=1e-12)


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("keys", ["auto", *KEYS])
@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1e30])
@pytest.mark.few_cases(5)
def test_weights_count_up_to_a_factor(x, keys, unit, robust):
    weights = np.random.default_rng(3).uniform(0.5, 2.0, 100)
    result, expected = (analyze(x, weights=inputs, keys=keys, robust=robust) for inputs in (unit * weights, weights))
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-6)
    assert result.risk == pytest.approx(expected.risk, rel=1e-6)
    assert result.noise == pytest.approx(expected.noise * np.sqrt(unit))
    np.testing.assert_allclose(np.asarray(result.upper), np.asarray(expected.upper), rtol=1e-6)


@pytest.mark.parametrize("keys", ["auto", *KEYS])
def test_equal_weights_are_as_good_as_none(x, keys):
    result, expected = analyze(x, weights=np.full(100, 4.0), keys=keys, noise=2.0), analyze(x, keys=keys, noise=1.0)
    np.testing.assert_allclose(result.values, expected.values, rtol=1e-9)
    assert result.noise == pytest.approx(2.0)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_a_row_of_weights_far_from_all_points_is_finite(degree):
    result = analyze([1.0, 2.0, 3.0, np.nan], times=[0.1, 0.2, 0.3, 1e9 / 3], keys="time", bandwidth=1e-3, degree=degree)
    np.testing.assert_allclose(result.weights(3), [0.0, 0.0, 1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("scale", [1e300, -1e300])
@pytest.mark.parametrize("causal", [False, True])
def test_a_dot_score_beyond_all_numbers_takes_the_extremes(x, scale, causal):
    result = smooth(1e9 * x, keys="value", score="dot", scale=scale, causal=causal)
    if not causal:
        expected = np.where(scale * x > 0, x.max(), x.min())
    else:
        expected = [x[: i + 1].max() if scale * x[i] > 0 else x[: i + 1].min() for i in range(x.size)]
    np.testing.assert_allclose(result, 1e9 * np.array(expected))


KINDS = {
    "normal": lambda draw, n: draw.normal(size=n),
    "whole": lambda draw, n: np.round(draw.normal(size=n)),
    "constant": lambda draw, n: np.full(n, 3.0),
    "counts": lambda draw, n: draw.poisson(1.0, n).astype(float),
    "outcomes": lambda draw, n: (draw.random(n) < 0.3).astype(float),
    "mostly zeros": lambda draw, n: np.where(draw.random(n) < 0.8, 0.0, draw.normal(size=n)),
    "half missing": lambda draw, n: np.where(draw.random(n) < 0.5, np.nan, draw.normal(size=n)),
    "over decades": lambda draw, n: np.exp(8 * draw.normal(size=n)),
    "one enormous": lambda draw, n: np.where(np.arange(n) == n // 2, 1e20, draw.normal(size=n)),
    "far from 0": lambda draw, n: np.cumsum(draw.normal(size=n)) + 1e9,
    "a wave": lambda draw, n: np.sin(np.arange(n)),
    "a line": lambda draw, n: np.arange(float(n)),
    "angles": lambda draw, n: 360 * draw.random(n),
}
OPTIONS = [
    *({"keys": keys, "causal": causal} for keys in ("auto", "time", "value", "both", "patch") for causal in (False, True)),
    {"period": 7}, {"period": "auto", "fill": False}, {"scale": "sqrt"}, {"scale": "log"}, {"scale": "logit"}, {"circular": 360.0},
    {"bounds": (-10, 10)}, {"noise": "poisson"}, {"noise": 0.0}, {"robust": True}, {"robust": False}, {"span": 5.0}, {"window": 3.0},
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few_cases(4)
def test_any_series_under_any_options_is_smoothed_without_a_warning_or_refused_in_a_sentence(kind):
    for seed, options in enumerate(OPTIONS):
        draw = np.random.default_rng(seed)
        n = int(draw.choice([1, 2, 3, 4, 5, 7, 10, 16, 33, 60, 130]))
        times = [None, np.sort(draw.random(n)), np.sort(draw.integers(0, n, n)).astype(float)][draw.integers(3)]
        weights = [None, np.exp(5 * draw.normal(size=n)), (draw.random(n) < 0.7).astype(float)][draw.integers(3)]
        try:
            result = analyze(KINDS[kind](draw, n), times=times, weights=weights, **options)
            slopes = result.derivative() if result.series.present.size > 4 and not result.scaled else None
        except InputError as refusal:
            sentence = str(refusal)
        else:
            sentence = result.sentence
            assert result.levels.shape == result.weights(n // 2).shape == (n,)
            assert (np.isfinite(result.values) | np.isnan(result.values)).all()
            if result.lower is not None:
                known = ~np.isnan(result.values)
                slack = 1e-9 * np.abs(result.values[known])
                assert (result.lower[known] <= result.values[known] + slack).all()
                assert (result.values[known] <= result.upper[known] + slack).all()
            assert len(result.anomalies()) <= n
            assert slopes is None or slopes.values.shape == (n,)
        assert sentence.endswith(".") or "Fix: " in sentence
