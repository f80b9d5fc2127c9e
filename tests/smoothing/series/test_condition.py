"""What a series shows before it is smoothed: duplicates, absent times, stuck sensors, changes of rate, resets, error codes."""

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.data.condition import find_condition
from overt.smoothing.data.times import read_times

COUNT = 400
HOURS = np.datetime64("2024-01-01T00") + np.arange(COUNT)
DAYS = np.datetime64("2024-01-01") + np.arange(COUNT)
MONTHS = (np.datetime64("2000-01") + np.arange(120)).astype("datetime64[D]")


def warmth(seed=0, digits=2, count=COUNT):
    draw = np.random.default_rng(seed)
    return np.round(20 + 3 * np.sin(np.arange(count) / 20) + draw.normal(0, 0.4, count), digits)


def condition(values, times=None):
    return find_condition(np.asarray(values, dtype=float), read_times(times, len(values)))


def counter():
    counts = np.cumsum(np.random.default_rng(1).poisson(3, COUNT)).astype(float)
    counts[150:] -= counts[150]
    counts[300:] -= counts[300]
    return counts


@pytest.mark.parametrize("digits", [0, 1, 2, 9])
@pytest.mark.parametrize("seed", range(5))
def test_of_a_series_in_good_condition_nothing_is_said(digits, seed):
    assert condition(warmth(seed, digits), HOURS).sentences() == []


@pytest.mark.parametrize("seed", range(5))
def test_other_kinds_of_series_are_in_good_condition_too(seed):
    draw = np.random.default_rng(seed)
    series = {
        "walk": draw.normal(size=COUNT).cumsum(),
        "rain": np.where(draw.random(COUNT) < 0.3, draw.gamma(2.0, size=COUNT).round(1), 0.0),
        "sun": np.maximum(0, np.sin((np.arange(COUNT) % 24 - 6) / 12 * np.pi)).round(2) * 100,
        "counts": draw.poisson(4, COUNT),
        "shares": np.repeat(draw.normal(size=20), 20),
        "rising": np.cumsum(draw.poisson(3, COUNT)),
        "yes and no": draw.random(COUNT) < 0.5,
    }
    assert {name: condition(values, HOURS).sentences() for name, values in series.items()} == {name: [] for name in series}


@pytest.mark.parametrize("seed", range(5))
def test_uneven_times_have_no_grid(seed):
    draw = np.random.default_rng(seed)
    for times in (np.sort(draw.uniform(0, 1000, COUNT)), HOURS.astype("datetime64[s]") + draw.integers(-100, 100, COUNT)):
        assert condition(warmth(seed), times).sentences() == []


@pytest.mark.parametrize(
    ("times", "left", "sentence"),
    [
        (
            HOURS,
            [*range(30, 60), 100, *range(200, 260)],
            "91 absent hours; the longest gap is 2.5 days, from 2024-01-09 08:00.",
        ),
        (DAYS, range(30, 42), "12 absent days; the longest gap is 12 days, from 2024-01-31."),
        (DAYS, [5], "1 absent day: 2024-01-06."),
        (np.datetime64("2024-01-01T00:00:00") + np.arange(400) * 600, range(20, 110), "90 absent rows in a grid of 10 minutes"),
        (MONTHS, [5, 50, 51], "3 absent months; the longest gap is 2 months, from 2004-03-01."),
        (DAYS[(DAYS.astype(int) + 3) % 7 < 5], [5, 50], "2 absent days, weekends not counted; the longest gap is 3 days"),
        (np.arange(0.0, 200.0, 0.5), [7, 8], "2 absent rows in a grid of 0.5; the longest gap is 1, from 3.5."),
    ],
)
def test_absent_times_of_a_grid_are_counted_in_its_unit(times, left, sentence):
    stays = np.setdiff1d(np.arange(len(times)), list(left))
    [actual] = condition(warmth(count=len(stays)), times[stays]).sentences()
    assert actual.startswith(sentence)


def test_weekends_are_no_gaps():
    business = DAYS[(DAYS.astype(int) + 3) % 7 < 5]
    actual = condition(warmth(count=business.size), business)
    assert (actual.absent, actual.weekends, actual.sentences()) == (0, True, [])


def test_times_that_repeat_are_counted():
    values, times = np.append(warmth(), [*warmth()[:3], 5.0]), np.append(HOURS, HOURS[[0, 1, 2, 9]])
    actual = condition(values, times)
    assert (actual.duplicates, actual.equal_duplicates) == (4, 3)
    assert actual.sentences() == [
        "4 rows repeat the time of an earlier row, 3 of them with the same value: their values are averaged."
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_stuck_sensor_is_named_with_its_times(seed):
    values = warmth(seed, digits=1)
    values[100:148] = values[100]
    [run] = condition(values, HOURS).stuck
    assert (run.value, 48 <= run.points <= 50) == (values[100], True)
    assert "times in a row, from 2024-01-05 0" in condition(values, HOURS).sentences()[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_change_of_the_rate_is_found_where_it_is(seed):
    draw = np.random.default_rng(seed)
    first, later = np.arange(200) * 3600, 200 * 3600 + np.arange(200) * 600
    seconds = np.concatenate([first, later]) + draw.integers(-20, 20, 400)
    [change] = condition(warmth(seed), np.datetime64("2024-01-01T00:00:00") + seconds).rate_changes
    assert change.time == pytest.approx(200 * 3600, abs=2 * 3600)
    assert (change.before, change.after) == (pytest.approx(3600, rel=0.02), pytest.approx(600, rel=0.05))


def test_absent_times_are_counted_at_either_rate():
    seconds = np.concatenate([np.arange(200) * 3600, 200 * 3600 + np.arange(200) * 600])
    stays = np.setdiff1d(np.arange(400), [*range(50, 60), *range(300, 320)])
    assert condition(warmth(count=370), np.datetime64("2024-01-01T00:00:00") + seconds[stays]).absent == 30


def test_a_counter_that_begins_again_is_recognised():
    actual = condition(counter(), HOURS)
    assert [actual.facts()["resets"]] == [["2024-01-07 06:00", "2024-01-13 12:00"]]
    assert "like a counter that starts again 2 times" in actual.sentences()[0]


@pytest.mark.parametrize("code", [85.0, -127.0, 0.0, 32.0])
@pytest.mark.parametrize("seed", range(5))
def test_runs_of_one_value_far_away_are_suggested_as_a_code(code, seed):
    values = warmth(seed)
    values[[50, 51, 52, 120, 121, 122, 300, 301, 302]] = code
    assert condition(values, HOURS).sentences() == [
        f"{code:g} occurs 9 times in runs of up to 3: an error code? missing=[{code:g}]"
    ]


def test_the_facts_are_plain_data():
    import json

    for values, times in ((counter(), HOURS), (warmth(), None), (warmth(), np.arange(400.0))):
        json.dumps(condition(values, times).facts(), allow_nan=False)


@pytest.mark.parametrize("length", [3, 12])
def test_values_that_may_be_codes_withhold_the_band_until_the_analyst_decides(length):
    draw = np.random.default_rng(length)
    values = np.round(20 + np.arange(300) / 30 + draw.normal(size=300), 2)
    for start in (40, 120, 230):
        values[start : start + length] = 42.0
    result = analyze(values)
    assert result.lower is None
    assert result.sentence.count("an error code? missing=[42]") == 1
    assert analyze(values, robust=False).lower is not None
    cured = analyze(values, missing=[42.0])
    assert cured.lower is not None
    assert cured.values == pytest.approx(20 + np.arange(300) / 30, abs=0.8)
