"""Two smoothed series compared: a band that holds the whole difference, and where it leaves out 0."""

import numpy as np
import pandas
import pytest

from overt.errors import InputError
from overt.smoothing import analyze, compare

TIMES = np.arange(300.0)


def noisy(curve, seed, level=0.3):
    return analyze(curve + level * np.random.default_rng(seed).normal(size=curve.size))


def test_equal_curves_rarely_differ_anywhere():
    curve = np.sin(TIMES / 30)
    differing = [compare(noisy(curve, seed), noisy(curve, 100 + seed)).differ.any() for seed in range(40)]
    assert np.mean(differing) <= 0.1


def test_a_change_is_found_where_it_is():
    comparison = compare(noisy(np.sin(TIMES / 30) + (TIMES >= 180), 1), noisy(np.sin(TIMES / 30), 2))
    [(start, stop)] = comparison.stretches
    assert abs(start - 180) < 8
    assert stop == 299
    assert comparison.difference[200:].mean() == pytest.approx(1, abs=0.15)
    assert ((comparison.lower < comparison.difference) & (comparison.difference < comparison.upper)).all()


@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
def test_dates_of_both_within_both(zone):
    one = pandas.Series(np.random.default_rng(0).normal(size=90), index=pandas.date_range("2024-01-01", periods=90, tz=zone))
    other = pandas.Series(
        np.random.default_rng(1).normal(size=120), index=pandas.date_range("2024-02-01 12:00", periods=120, tz=zone)
    )
    times = compare(analyze(one), analyze(other)).times
    assert times.size == 2 * 58
    assert str(times[0])[:10] in ("2024-01-31", "2024-02-01")


def test_what_cannot_be_compared_is_a_sentence():
    one, walk = noisy(TIMES, 3), analyze(np.random.default_rng(4).normal(size=1000).cumsum())
    with pytest.raises(InputError, match="two smoothings with a band"):
        compare(one, walk)
    with pytest.raises(InputError, match="times of one kind"):
        compare(one, analyze(pandas.Series(TIMES[:50], index=pandas.date_range("2024", periods=50))))
    with pytest.raises(InputError, match="two series that overlap in time"):
        compare(one, analyze(np.sin(TIMES), times=TIMES + 1000))
    with pytest.raises(InputError, match="both angles"):
        compare(one, analyze(np.mod(TIMES, 360), circular=360))
