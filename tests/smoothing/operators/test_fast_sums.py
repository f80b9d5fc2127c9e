"""Sums over scalar keys, against sums one by one in extended precision."""

import numpy as np
import pytest

import overt
from overt.smoothing.heads import dispatch
from overt.smoothing.heads.fast_sums import attend_dot, attend_past, attend_scalar, gaussian_sums

pytestmark = pytest.mark.usefixtures("form")


def exact(weights, values):
    """Values, own weights and variance of a matrix of weights, in extended precision."""
    weights = weights / weights.sum(axis=1, keepdims=True)
    mean = weights @ values
    return mean, weights, (weights * (values - mean[:, None]) ** 2).sum(axis=1)


@pytest.mark.parametrize("bandwidth", [0.001, 0.05, 0.7, 20.0, 1e6])
@pytest.mark.few_cases(1)
def test_gaussian_sums_keep_their_bound_against_extended_precision(bandwidth):
    draw = np.random.default_rng(0)
    sources = np.sort(np.concatenate([draw.normal(size=1500), draw.uniform(8, 9, 500), [40.0]]))
    charges, targets = draw.normal(size=(2, sources.size)), np.sort(draw.uniform(-5, 45, 700))
    u = ((sources.astype(np.longdouble) - targets[:, None]) / bandwidth).astype(np.longdouble)
    kernel = np.exp(-u * u / 2)
    result = gaussian_sums(sources, charges, targets, bandwidth, 4)
    bound = 2e-14 * (np.abs(charges) @ (np.abs(u) <= 12).T.astype(float)) + 1e-17 * np.abs(charges).sum(axis=1)[:, None]
    for p in range(5):
        error = np.abs(result[p] - charges @ (kernel * u**p).T)
        assert (error <= bound).all(), f"moment {p}: {float((error / bound).max())} of the bound"


@pytest.mark.parametrize("bandwidth", [1e-4, 0.03, 0.5, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.few_cases(2)
def test_attention_by_value_is_exact_to_1e_13(bandwidth, weighted):
    draw = np.random.default_rng(1)
    x = np.concatenate([draw.normal(size=1200), draw.uniform(50, 51, 300)])
    weights = draw.uniform(0.1, 2, x.size) if weighted else np.ones(x.size)
    result = attend_scalar(x, weights if weighted else None, bandwidth)
    u = (x.astype(np.longdouble)[:, None] - x) / bandwidth
    mean, rows, variances = exact(weights * np.exp(-u * u / 2), x)
    assert np.abs(result.values - mean).max() <= 1e-13 * np.abs(x).max()
    assert np.abs(result.self_weights - np.diag(rows)).max() <= 1e-13
    assert np.abs(result.variances - variances).max() <= 1e-12 * bandwidth**2


@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.3, -2.0, 50.0, 1e6, -1e12])
@pytest.mark.parametrize("offset", [0.0, 5.0])
@pytest.mark.few_cases(8)
def test_dot_attention_is_exact_to_1e_13_at_any_scale(scale, offset):
    x = np.random.default_rng(4).normal(size=600) + offset
    scores = scale * x.astype(np.longdouble)[:, None] * x
    mean, rows, variances = exact(np.exp(scores - scores.max(axis=1, keepdims=True)), x)
    result = attend_dot(x, scale)
    assert np.abs(result.values - mean).max() <= 1e-13 * np.abs(x).max()
    assert np.abs(result.self_weights - np.diag(rows)).max() <= 1e-12
    assert np.abs(result.variances - variances).max() <= 1e-12


def test_equal_values_attend_to_each_other_equally():
    x = np.full(5, 3.0)
    for result in (attend_dot(x, 2.0), attend_scalar(x, None, 0.1)):
        np.testing.assert_allclose(result.values, 3.0, rtol=1e-15)
        np.testing.assert_allclose(result.self_weights, 0.2, rtol=1e-14)
        np.testing.assert_allclose(result.variances, 0.0, atol=1e-14)


@pytest.mark.parametrize("bandwidth", [1e-3, 0.2, 40.0])
@pytest.mark.parametrize("points", [1, 63, 64, 700])
@pytest.mark.few_cases(3)
def test_attention_by_value_to_the_past_is_exact_to_1e_13(points, bandwidth):
    draw = np.random.default_rng(points)
    times = np.sort(draw.integers(0, 1 + points // 2, points)).astype(float)  # two points and more at one time
    x, weights = 50 + np.cumsum(draw.normal(size=points)) / 3, draw.uniform(0.1, 2, points)
    result = attend_past(times, x, weights, bandwidth)
    u = (x.astype(np.longdouble)[:, None] - x) / bandwidth
    mean, rows, variances = exact(np.where(times <= times[:, None], weights * np.exp(-u * u / 2), 0), x)
    assert np.abs(result.values - mean).max() <= 1e-13 * np.abs(x).max()
    assert np.abs(result.self_weights - rows.diagonal()).max() <= 1e-13
    assert np.abs(result.variances - variances).max() <= 1e-13 * bandwidth**2 + 1e-13


def test_a_causal_series_is_attended_to_by_value_as_row_by_row(monkeypatch):
    draw = np.random.default_rng(5)
    x = np.cumsum(draw.normal(size=1500))
    x[draw.random(x.size) < 0.1] = np.nan
    by_row, by_blocks = [], []
    for shortest, results in ((1e9, by_row), (1000, by_blocks)):
        monkeypatch.setattr(dispatch, "SHORTEST", shortest)
        monkeypatch.setattr(dispatch, "attend_past", lambda *series, results=results: results.append(1) or attend_past(*series))
        results.append(overt.smoothing.analyze(x, keys="value", bandwidth=2.0, causal=True))
    assert (len(by_row), len(by_blocks)) == (1, 2)
    np.testing.assert_allclose(by_blocks[-1].values, by_row[-1].values, rtol=0, atol=1e-11)
    assert by_blocks[-1].degrees_of_freedom == pytest.approx(by_row[-1].degrees_of_freedom, rel=1e-11)
