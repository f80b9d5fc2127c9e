"""The sentence of a smoothing says what was done and what it rests on."""

import re

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.data.periods import length_in_words
from overt.smoothing.reporting.sentences import families

X = np.sin(np.arange(50.0) / 8) + np.random.default_rng(0).normal(scale=0.3, size=50)


def test_it_names_the_bandwidth_and_who_chose_it():
    near = "the points near it in time, weighted by a Gaussian of bandwidth 3 steps (given)"
    means, lines, parabolas = (analyze(X, keys="time", bandwidth=3.0, degree=degree).sentence for degree in (0, 1, 2))
    assert f"Each point became the mean of {near}" in means
    assert f"Each point became the value of a line through {near}" in lines
    assert f"Each point became the value of a parabola through {near}" in parabolas
    assert "(chosen for the least estimated risk)" in analyze(X, keys="time").sentence
    assert (
        "similar in value, weighted by a Gaussian of bandwidth 0.5 (given)" in analyze(X, keys="value", bandwidth=0.5).sentence
    )
    both = analyze(X, keys="both", bandwidth=(3.0, 0.5), times=np.arange(50.0)).sentence
    assert "weighted by Gaussians of bandwidth 3 and 0.5 (given)" in both
    patches = analyze(X, keys="patch", bandwidth=0.5).sentence
    assert "the mean of the points with similar surroundings, weighted by a Gaussian of bandwidth 0.5 (given)" in patches


def test_it_names_the_heads_that_were_used_and_where():
    waves, steps = np.sin(np.arange(400) / 40), np.repeat([0.0, 3.0, -2.0, 4.0], 50)
    x = np.r_[waves, steps] + 0.3 * np.random.default_rng(0).normal(size=600)
    result = analyze(x)
    assert f"a mixture of {len(result.heads)} heads, with larger weights for lower estimated risk" in result.sentence
    assert re.search(r"means over points that a first smoothing puts at a similar level \(\d+%", result.sentence)
    assert re.search(r"local parabolas \(\d+%, mostly early\)", result.sentence)


def test_every_head_of_the_bank_has_a_name_in_plain_words():
    for causal in (False, True):
        heads = analyze(np.random.default_rng(0).normal(size=4000), causal=causal).heads
        assert not set(families(heads)) & {head.partition(",")[0] for head in heads}


def test_it_says_whether_the_curve_has_seen_the_future():
    assert "Each point attends to past and future points, so the curve is not a forecast." in analyze(X).sentence
    narrow = analyze(X, keys="time", causal=True, window=4.0).sentence
    past = "Each point attends to the present and past only"
    assert f"{past}; chosen from the whole series: the bandwidth. The window is 4 steps to either side." in narrow
    assert f"{past}; chosen from the whole series: the noise level and the heads." in analyze(X, causal=True).sentence
    assert f"{past}." in analyze(X, keys="time", bandwidth=3.0, causal=True).sentence
    assert (
        f"{past}; chosen from the whole series: the outliers."
        in analyze(X, keys="time", bandwidth=3.0, robust=True, causal=True).sentence
    )


def test_it_says_what_it_takes_for_granted_about_the_noise():
    assert (
        "If the noise is independent from point to point and close to normal, with a standard deviation of 0.3 (given)"
        in analyze(X, noise=0.3).sentence
    )
    assert "The second differences show no noise" in analyze([1.0, 1.0, 1.0]).sentence
    assert "The noise was given as 0" in analyze(X, noise=0.0).sentence


def test_it_says_when_the_noise_varies():
    assert "(given, on average: it varies)" in analyze(X, noise=np.linspace(0.1, 0.5, 50)).sentence


def test_it_says_why_there_is_no_band():
    result = analyze(np.random.default_rng(0).normal(size=600).cumsum())
    assert result.withheld in result.sentence
    assert "So the error estimate is unreliable, and there is no band." in result.sentence


def test_an_error_that_the_estimate_cannot_tell_from_none_is_no_number():
    result = analyze(np.sin(np.arange(400) / 60) + np.random.default_rng(1).normal(scale=0.3, size=400))
    assert not result.estimable
    bound = f"{result.risk_upper_bound**0.5:.3g}"
    assert f"the remaining error is below about {bound}; 400 points do not tell it from 0." in result.sentence
    assert "nearly nothing" not in result.sentence
    assert "lowers the error" not in result.sentence


def test_of_a_few_points_no_error_is_told_at_all():
    result = analyze([1.0, 2.5, 2.0, 1.2, 3.1, 2.2])
    assert "6 points are too few to estimate the remaining error" in result.sentence


def test_it_is_what_print_shows():
    result = analyze(X)
    assert repr(result) == f"<Smoothing of 50 points: {result.sentence}>"


def test_two_smoothings_are_equal_only_if_they_are_the_same():
    result = analyze(X)
    assert result == result
    assert result != analyze(X)


def test_a_span_names_its_estimate_as_rough():
    noisy = np.sin(np.arange(300) / 12) + 0.3 * np.random.default_rng(0).normal(size=300)
    rough = r"estimated to raise the error to about [\d.]+; without it, by the same rough estimate, it is about [\d.]+, and"
    assert re.search(rough, analyze(noisy, span=120).sentence)


def test_an_error_that_can_be_estimated_is_a_number():
    result = analyze(
        2 * np.sin(np.arange(400) / 2) + np.random.default_rng(1).normal(scale=0.3, size=400), keys="time", bandwidth=1.5
    )
    assert result.estimable
    assert f"to about {result.risk**0.5:.3g}." in result.sentence


def test_it_says_when_the_error_rises():
    result = analyze(X, keys="time", bandwidth=1000.0)
    assert result.risk > result.noise**2
    assert "smoothing raises the error to about" in result.sentence


def test_it_names_the_flaw_of_the_literal_recipe():
    assert "it depends on the zero of the values" in analyze(X, keys="value", score="dot").sentence
    assert "every point gets the same value" in analyze(X, keys="value", score="dot", normalizer="sum").sentence


def test_it_counts_what_was_missing():
    x = [1.0, float("nan"), 3.0]
    assert "Missing points filled from their neighbours: 1." in analyze(x).sentence
    assert analyze(x, fill=False).sentence.endswith(" Missing points left empty: 1.")
    causal = analyze([float("nan"), *x], keys="time", causal=True).sentence
    assert causal.endswith(
        "Missing points filled from their neighbours: 1. Missing points left empty, with no neighbour to attend to: 1."
    )
    assert "Missing points filled from their neighbours: 1." in analyze([1.0, 2.0, 3.0], weights=[1.0, 0.0, 1.0]).sentence
    outlier = np.where(np.arange(50) == 20, 99.0, X)
    assert "issing" not in analyze(outlier, robust=True).sentence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5 seconds"),
        (1.0, "1 second"),
        (90.0, "1.5 minutes"),
        (7200.0, "2 hours"),
        (86400.0, "1 day"),
        (172800.0, "2 days"),
    ],
)
def test_durations_are_told_in_the_largest_unit_that_fits(seconds, text):
    assert length_in_words(seconds, "seconds") == text
