"""Lengths of time such as "7D" for windows and bandwidths, and numbers that are seconds where times are dates."""

import warnings

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError
from overt.smoothing import Online, analyze

DAYS = pd.date_range("2024-01-01", periods=120)
VALUES = np.sin(np.arange(120) / 9) + 0.3 * np.random.default_rng(0).normal(size=120)
DAILY = pd.Series(VALUES, index=DAYS)
MONTHLY = pd.Series(VALUES, index=pd.date_range("2014-01-01", periods=120, freq="MS"))


@pytest.mark.parametrize("week", ["7D", "7d", "168h", pd.Timedelta(days=7), np.timedelta64(7, "D"), 7 * 86400])
def test_a_bandwidth_and_a_window_may_be_lengths_of_time(week):
    np.testing.assert_allclose(
        overt.smooth(DAILY, keys="time", bandwidth=week), overt.smooth(VALUES, keys="time", bandwidth=7), rtol=1e-12
    )
    np.testing.assert_allclose(
        overt.smooth(DAILY, keys="value", bandwidth=0.5, window=week),
        overt.smooth(VALUES, keys="value", bandwidth=0.5, window=7),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        overt.smooth(DAILY, keys="both", bandwidth=(week, 0.5)),
        overt.smooth(VALUES, keys="both", bandwidth=(7, 0.5)),
        rtol=1e-12,
    )
    assert analyze(DAILY, keys="time", bandwidth=week).bandwidth == 7 * 86400.0


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            {"keys": "time", "bandwidth": "7D"},
            "dates as times with a bandwidth that is a length of time, got '7D' with times that are",
        ),
        ({"keys": "time", "window": "7D"}, "Fix: pass the window as a number"),
        ({"keys": "both", "bandwidth": ("7D", 0.5)}, "with times that are steps. Fix: pass the bandwidth as a number"),
        ({"keys": "time", "bandwidth": "wide"}, "got 'wide'. Fix: write a number and one of s, min, h, D, W, Y"),
        ({"keys": "time", "window": "wide"}, 'a length of time such as "7D" or "12h", got \'wide\'. Fix: write a number'),
        ({"keys": "time", "bandwidth": "-7D"}, "got '-7D'"),
        ({"keys": "time", "bandwidth": "0D"}, "Fix: pass a finite length above 0"),
        ({"keys": "value", "bandwidth": "7D"}, "bandwidth=\"auto\" or a number above 0, got '7D'"),
        ({"keys": "patch", "bandwidth": np.timedelta64(1, "D")}, "a bandwidth above 0, got np.timedelta64"),
        ({"keys": "both", "bandwidth": ("soon", 0.5)}, "got 'soon'. Fix: write a number"),
        ({"bandwidth": "7D"}, "no bandwidth and no window with keys=\"auto\", which mixes heads of many, got bandwidth='7D'"),
        ({"window": "7D"}, "which mixes heads of many, got window='7D'"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(way, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        overt.smooth(VALUES, **way)


@pytest.mark.parametrize(
    "way", [{"bandwidth": "7D"}, {"bandwidth": 3.0, "window": "7D"}, {"bandwidth": np.timedelta64(7, "D")}]
)
def test_points_that_arrive_have_no_lengths_of_time(way):
    with pytest.raises(
        InputError, match="as a number, got .*Fix: pass it in the unit of the times, which is seconds for dates"
    ):
        Online(keys="time", **way)


@pytest.mark.parametrize(
    ("series", "way", "message"),
    [
        (MONTHLY, {"period": 12}, r'got 12 for points 31 days apart\. Fix: a number is in seconds here: write "12D", "12h" …'),
        (DAILY, {"span": 7}, r'got 7 for points 1 day apart\. Fix: a number is in seconds here: write "7D", "7h" …'),
        (DAILY, {"period": "1h"}, r"got '1h' for points 1 day apart\. Fix: pass a longer period"),
        (DAILY, {"span": "1h"}, r"got '1h' for points 1 day apart\. Fix: pass a longer span"),
    ],
)
def test_a_plain_number_that_is_too_short_for_dates_is_named_as_seconds(series, way, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(series, **way)


SECONDS = r'changes next to nothing\. Where times are dates a number is in seconds: write "7D" or "12h"\.'


@pytest.mark.parametrize(
    ("series", "way", "message"),
    [
        (DAILY, {"keys": "time", "bandwidth": 7}, rf"^A bandwidth of 7 seconds for points 1 day apart {SECONDS}$"),
        (DAILY, {"keys": "both", "bandwidth": ("11h", 0.5)}, rf"^A bandwidth of 11 hours for points 1 day apart {SECONDS}$"),
        (DAILY, {"keys": "time", "window": 7}, rf"^A window of 7 seconds for points 1 day apart {SECONDS}$"),
        (
            VALUES,
            {"keys": "time", "bandwidth": 0.4},
            r"^A bandwidth of 0\.4 steps for points 1 step apart changes next to nothing\.$",
        ),
    ],
)
def test_a_width_that_reaches_no_neighbour_is_warned_of(series, way, message):
    with pytest.warns(UserWarning, match=message):
        overt.smooth(series, **way)
    assert "changes next to nothing." in analyze(series, **way).sentence


def test_a_narrow_bandwidth_averages_the_points_of_one_time_without_a_word():
    np.testing.assert_allclose(
        overt.smooth([1.0, 3.0, 2.0, 6.0], times=[1, 1, 2, 2], keys="time", bandwidth=0.01), [2, 2, 4, 4]
    )


@pytest.mark.parametrize(
    "way", [{"bandwidth": 0.5}, {"bandwidth": 5.0, "window": 1.0}, {"bandwidth": 5.0, "window": 0.0}, {"span": 1.0}]
)
def test_a_width_that_reaches_a_neighbour_is_taken_without_a_word(way):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This span")
        overt.smooth(VALUES, keys="time", **way)
    assert "next to nothing" not in analyze(VALUES, keys="time", **way).sentence
