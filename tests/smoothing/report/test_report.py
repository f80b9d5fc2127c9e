"""The report of a smoothing: what was read, what remains uncertain, and how the curve was computed."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from overt.smoothing import analyze
from overt.smoothing.data.periods import length_in_words
from overt.smoothing.reporting.explanation import family_members

X = np.sin(np.arange(50.0) / 8) + np.random.default_rng(0).normal(scale=0.3, size=50)


DAYS = pd.date_range("2024-01-01", periods=200)


def noisy_days():
    values = np.sin(np.arange(200) / 30) + 0.1 * np.random.default_rng(0).normal(size=200)
    values[60], values[80:83] = 9.0, np.nan
    return pd.Series(values, index=DAYS).drop(DAYS[100:110])


def test_its_sections_are_in_the_order_in_which_they_are_read():
    result = analyze(noisy_days())
    report = result.report
    assert report._fields == ("read", "noise", "error", "outliers", "season", "changes", "caution")
    assert result.sentence == " ".join(filter(None, report))
    first = "190 rows from 2024-01-01 to 2024-07-18, one per day. 10 absent days; the longest gap is 10 days, from 2024-04-10."
    assert report.read == f"{first} Missing points filled from their neighbours: 3."
    assert report.outliers == "1 isolated outlier was removed (robust=False keeps all values). It is at 2024-03-01."
    assert "heads" not in result.sentence
    assert "degrees of freedom" not in result.sentence
    assert "degrees of freedom for 190 points" in result.explanation


def test_times_are_in_the_zone_of_the_series():
    series = noisy_days().tz_localize("America/New_York")
    assert analyze(series).report.outliers.endswith("It is at 2024-03-01.")


def test_changes_are_listed_and_drawn_where_a_result_has_them():
    days = np.datetime64("2024-01-01") + np.arange(50)
    result = analyze(X, times=days)
    changes = [SimpleNamespace(time=days[row], kind="level", size=1.25 - row, probability=0.987) for row in (1, 12, 20, 31)]
    vars(result)["changes"] = changes
    first = (
        "The level rises by 0.25 at 2024-01-02 (probability 0.99). The level falls by 10.8 at 2024-01-13 (probability 0.99)."
    )
    assert result.report.changes.startswith(first)
    assert result.report.changes.endswith("… and 1 more change.")
    lines = [line.get_xdata()[0] for line in result.plot().axes[0].lines if line.get_linestyle() == "--"]
    assert [np.datetime64(line, "D") for line in lines] == [change.time for change in changes]


def weekly(days=210, *, weekend=6.0, seed=0):
    times = np.datetime64("2024-01-01") + np.arange(days)
    values = 20 - weekend * (np.arange(days) % 7 >= 5) + np.random.default_rng(seed).normal(size=days)
    return times, values


def test_a_season_that_was_not_modelled_is_suggested_with_its_option():
    times, values = weekly()
    expected = 'The values look weekly: period="7D" separates this season from the trend.'
    assert analyze(values, times=times).report.season == expected
    assert analyze(values).report.season.startswith("The values repeat every 7 steps: period=7 separates")
    assert "look" not in analyze(values, times=times, period="7D").report.season
    values[50:60] = np.nan
    assert "and fills gaps (the longest is 10 days) from other cycles." in analyze(values, times=times).report.season


@pytest.mark.parametrize("seed", range(8))
def test_no_season_is_suggested_for_noise_and_trends(seed):
    draw = np.random.default_rng(seed)
    times = np.datetime64("2020-01-01T00") + np.arange(400) * np.timedelta64(1, "h")
    for values in (draw.normal(size=400), np.arange(400) / 50 + draw.normal(size=400), draw.normal(size=400).cumsum()):
        assert analyze(values, times=times).report.season == ""


def test_it_names_the_bandwidth_and_who_chose_it():
    near = "the points near it in time, weighted by a Gaussian of bandwidth 3 steps (given)"
    means, lines, parabolas = (analyze(X, keys="time", bandwidth=3.0, degree=degree).explanation for degree in (0, 1, 2))
    assert f"Each point became the mean of {near}" in means
    assert f"Each point became the value of a line through {near}" in lines
    assert f"Each point became the value of a parabola through {near}" in parabolas
    assert "(chosen for the least estimated risk)" in analyze(X, keys="time").explanation
    assert (
        "similar in value, weighted by a Gaussian of bandwidth 0.5 (given)"
        in analyze(X, keys="value", bandwidth=0.5).explanation
    )
    both = analyze(X, keys="both", bandwidth=(3.0, 0.5), times=np.arange(50.0)).explanation
    assert "weighted by Gaussians of bandwidth 3 and 0.5 (given)" in both
    patches = analyze(X, keys="patch", bandwidth=0.5).explanation
    assert "the mean of the points with similar surroundings, weighted by a Gaussian of bandwidth 0.5 (given)" in patches


def test_it_names_the_heads_that_were_used_and_where():
    waves, steps = np.sin(np.arange(400) / 40), np.repeat([0.0, 3.0, -2.0, 4.0], 50)
    x = np.r_[waves, steps] + 0.3 * np.random.default_rng(0).normal(size=600)
    result = analyze(x)
    assert f"a mixture of {len(result.heads)} heads, with larger weights for lower estimated risk" in result.explanation
    assert re.search(r"averages of points at similar levels \(\d+%", result.explanation)
    assert re.search(r"local parabolas \(\d+%, mostly early\)", result.explanation)


def test_every_head_of_the_bank_has_a_name_in_plain_words():
    for causal in (False, True):
        heads = analyze(np.random.default_rng(0).normal(size=4000), causal=causal).heads
        assert not set(family_members(heads)[0]) & {head.partition(",")[0] for head in heads}


def test_it_says_whether_the_curve_has_seen_the_future():
    assert "Each point attends to past and future points, so the curve is not a forecast." in analyze(X).explanation
    narrow = analyze(X, keys="time", causal=True, window=4.0).explanation
    past = "Each point attends to the present and past only"
    assert f"{past}; chosen from the whole series: the bandwidth. The window is 4 steps to either side." in narrow
    assert f"{past}; chosen from the whole series: the noise level and the heads." in analyze(X, causal=True).explanation
    assert f"{past}." in analyze(X, keys="time", bandwidth=3.0, causal=True).explanation
    assert (
        f"{past}; chosen from the whole series: the outliers."
        in analyze(X, keys="time", bandwidth=3.0, robust=True, causal=True).explanation
    )


def test_it_says_what_it_takes_for_granted_about_the_noise():
    expected = (
        "The noise has a standard deviation of 0.3 (given), if it is independent from point to point and close to normal."
    )
    assert analyze(X, noise=0.3).report.noise == expected
    assert "The second differences show no noise" in analyze([1.0, 1.0, 1.0]).sentence
    assert "The noise was given as 0" in analyze(X, noise=0.0).sentence


def test_it_says_when_the_noise_varies():
    assert "(given, on average: it varies)" in analyze(X, noise=np.linspace(0.1, 0.5, 50)).sentence


def test_it_says_why_there_is_no_band():
    result = analyze(np.random.default_rng(0).normal(size=600).cumsum())
    assert result.withheld in result.report.error
    assert result.report.error.endswith("So there is no error estimate and no band.")


def test_an_error_that_the_estimate_cannot_tell_from_none_is_no_number():
    result = analyze(np.sin(np.arange(400) / 60) + np.random.default_rng(1).normal(scale=0.3, size=400))
    assert not result.estimable
    bound = f"{result.risk_upper_bound**0.5:.3g}"
    assert f"The curve is less than {bound} from the truth (root mean square, 97% certainty)" in result.report.error
    assert "How much less, 400 points do not show." in result.report.error
    assert "The curve is about" not in result.sentence


def test_of_a_few_points_no_error_is_told_at_all():
    result = analyze([1.0, 2.5, 2.0, 1.2, 3.1, 2.2])
    assert "6 points are too few to estimate how far the curve is from the truth." in result.sentence


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
    low, high = (result.risk + sign * 2 * result.risk_error for sign in (-1, 1))
    certain = f"(root mean square; {low**0.5:.2g} to {high**0.5:.2g} with 95% certainty)"
    assert f"The curve is about {result.risk**0.5:.3g} from the truth {certain}" in result.report.error


def test_it_says_when_the_error_rises():
    result = analyze(X, keys="time", bandwidth=1000.0)
    assert result.risk > result.noise**2
    assert "farther than the values: smoothing raises the error" in result.report.error


def test_it_names_the_flaw_of_the_literal_recipe():
    assert "it depends on the zero of the values" in analyze(X, keys="value", score="dot").explanation
    assert "every point gets the same value" in analyze(X, keys="value", score="dot", normalizer="sum").explanation


def test_it_counts_what_was_missing():
    x = [1.0, float("nan"), 3.0]
    assert "Missing points filled from their neighbours: 1." in analyze(x).sentence
    assert analyze(x, fill=False).report.read.endswith(" Missing points left empty: 1.")
    causal = analyze([float("nan"), *x], keys="time", causal=True).report.read
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
