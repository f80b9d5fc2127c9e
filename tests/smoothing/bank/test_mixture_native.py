"""The mixture of heads: natively as in NumPy, at every length and SIMD level, with any number of threads."""

import numpy as np
import pytest

from overt import native
from overt.smoothing.selection.bank.mixture import bank_risks, mix, mix_pilot
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations

LEVELS = native.module().levels()


def some_heads(n, count=7, seed=0):
    generator = np.random.default_rng(seed)
    columns = generator.normal(size=(count, n)), generator.uniform(0, 1, (count, n)), generator.uniform(0, 1, (count, n))
    noise = generator.uniform(0.5, 2.0, n)
    noise[3::50] = np.inf
    return HeadOutputs(*columns), Observations(generator.normal(size=n), noise)


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("n", [1, 2, 5, 6, 127, 128, 129, 2000])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_are_mixed_natively_as_in_numpy(monkeypatch, level, n, causal):
    heads, observed = some_heads(n)
    attend_compiled = mix(heads, observed, causal=causal)
    monkeypatch.setattr(native, "available", lambda: False)
    plainly = mix(heads, observed, causal=causal)
    for column, same in zip(attend_compiled[:3], plainly[:3], strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-12, atol=1e-13)
    points = np.arange(n)
    np.testing.assert_allclose(attend_compiled.weights(points), plainly.weights(points), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [5, 129, 2000])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_pilot_is_the_mixture_without_variances_and_risks_may_be_known(monkeypatch, n, causal, compiled):
    monkeypatch.setattr(native, "available", lambda: compiled)
    heads, observed = some_heads(n)
    mixed, options = mix(heads, observed, causal=causal, premium=0.3), {"causal": causal, "premium": 0.3}
    parts = [bank_risks(part, observed, **options) for part in (heads.part(0, 4), heads.part(4, 7))]
    for pilot in (mix_pilot(heads, observed, **options), mix_pilot(heads, observed, risks=np.concatenate(parts), **options)):
        for column, same in zip(pilot, mixed[:2], strict=True):
            np.testing.assert_array_equal(column, same)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_without_weight_change_nothing(causal):
    heads, observed = some_heads(2000)
    wrong = HeadOutputs(np.full((2, 2000), 1e3), np.ones((2, 2000)), np.ones((2, 2000)))
    more = HeadOutputs(*(np.concatenate([column, other]) for column, other in zip(heads, wrong, strict=True)))
    mixed, same = mix(more, observed, causal=causal), mix(heads, observed, causal=causal)
    # At the first points a causal average is of a few risks, but each of these is a million.
    for column, expected in zip(mixed[:3], same[:3], strict=True):
        np.testing.assert_allclose(column, expected, rtol=1e-13, atol=1e-15)
    assert mixed.weights(np.arange(2000))[-2:].max() < 1e-30


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_head_that_is_not_a_number_shows(monkeypatch, causal, compiled):
    monkeypatch.setattr(native, "available", lambda: compiled)
    heads, observed = some_heads(2000)
    heads.values[3, 1000] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.isnan(mix(heads, observed, causal=causal).values[1000:1012]).all()


@pytest.mark.parametrize("causal", [False, True])
def test_the_values_are_the_heads_under_the_weights_that_the_mixture_names(causal):
    heads, observed = some_heads(2000)
    mixed = mix(heads, observed, causal=causal)
    weights = mixed.weights(np.arange(2000))
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose((weights * heads.values).sum(axis=0), mixed.values, rtol=1e-10, atol=1e-12)


def test_the_number_of_threads_changes_no_digit_of_a_mixture(monkeypatch):
    heads, observed = some_heads(2000)
    by_threads = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        by_threads.append(mix(heads, observed))
    for several in by_threads[1:]:
        for column, same in zip(by_threads[0][:3], several[:3], strict=True):
            np.testing.assert_array_equal(column, same)


def test_heads_that_are_parts_of_longer_ones_are_mixed_alike():
    heads, observed = some_heads(2000)
    part = HeadOutputs(*(column[:, 500:900] for column in heads)), Observations(*(column[500:900] for column in observed[:2]))
    copy = HeadOutputs(*map(np.ascontiguousarray, part[0])), Observations(*map(np.ascontiguousarray, part[1]))
    for column, same in zip(mix(*part)[:3], mix(*copy)[:3], strict=True):
        np.testing.assert_array_equal(column, same)


def test_what_a_missing_point_holds_does_not_count():
    heads, observed = some_heads(2000)
    mixed = mix(heads, observed)
    observed.values[3::50] = 1e9
    for column, same in zip(mixed[:3], mix(heads, observed)[:3], strict=True):
        np.testing.assert_array_equal(column, same)


def test_no_heads_have_no_risks():
    """As of a bank without its guided heads (benchmarks/smoothing/ablation.py)."""
    outputs = HeadOutputs(*(np.empty((3, 50)) for _ in range(3))).part(3, 3)
    assert bank_risks(outputs, Observations(np.zeros(50), np.ones(50))).shape == (0, 3)
