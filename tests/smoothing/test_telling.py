"""The sentence of a smoothing says what was done and what it rests on."""

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.telling import duration

X = np.sin(np.arange(50.0) / 8) + np.random.default_rng(0).normal(scale=0.3, size=50)


def test_it_names_the_bandwidth_and_who_chose_it():
    assert "near it in time, weighted by a Gaussian of bandwidth 3 steps (given)" in analyze(X, bandwidth=3.0).sentence
    assert "(chosen for the least estimated risk)" in analyze(X).sentence
    assert "alike in value, weighted by a Gaussian of bandwidth 0.5 (given)" in analyze(X, keys="value", bandwidth=0.5).sentence
    both = analyze(X, keys="both", bandwidth=(3.0, 0.5), times=np.arange(50.0)).sentence
    assert "weighted by Gaussians of bandwidth 3 and 0.5 (given)" in both


def test_it_says_whether_the_curve_has_seen_the_future():
    assert "saw its future too, so the curve is no forecast." in analyze(X).sentence
    assert "saw only its past and present; none saw farther than 4 steps." in analyze(X, causal=True, window=4.0).sentence


def test_it_says_what_it_takes_for_granted_about_the_noise():
    assert (
        "If the noise is independent from point to point, with a standard deviation of 0.3 (given)"
        in analyze(X, noise=0.3).sentence
    )
    assert "No noise shows in its second differences" in analyze([1.0, 1.0, 1.0]).sentence
    assert "The noise was given as 0" in analyze(X, noise=0.0).sentence


def test_it_says_when_the_error_rises():
    found = analyze(X, bandwidth=1000.0)
    assert found.risk > found.noise**2
    assert "this raises the error to about" in found.sentence


def test_it_names_the_flaw_of_the_literal_recipe():
    assert "it moves with the zero of the values" in analyze(X, keys="value", score="dot").sentence
    assert "every point gets the same value" in analyze(X, keys="value", score="dot", normalizer="sum").sentence


def test_it_counts_what_was_missing():
    assert "1 missing filled from their neighbours." in analyze([1.0, float("nan"), 3.0]).sentence


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 seconds"), (90.0, "1.5 minutes"), (7200.0, "2 hours"), (172800.0, "2 days")]
)
def test_durations_are_told_in_the_largest_unit_that_fits(seconds, text):
    assert duration(seconds, "seconds") == text
