"""Each thing that cannot be smoothed gets an error that says the rule, what came and the fix."""

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError, KindError
from overt.smoothing import analyze

NAN, INF = float("nan"), float("inf")
FINE = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([], r"n is at least 1, got shape \(0,\)"),
        ([NAN, NAN], r"a series needs at least one value, got only NaN. Fix: give at least one value that is not NaN"),
        (
            [[1.0, NAN], [2.0, NAN]],
            r"a series needs at least one value, got only NaN in column 1. Fix: leave that column out",
        ),
        (3.0, r"a series is \(n,\), several are \(n, columns\), and n is at least 1, got shape \(\)"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        ([1.0, INF, 2.0], r"NaN where one is missing, got inf at \[1\]"),
        ([[1.0, 2.0], [1.0, -INF]], r"got -inf at \[1, 1\]"),
        (
            [1e200, -1.0],
            r"numbers up to 1e\+150, or NaN where one is missing, got 1e\+200 at \[0\]. Fix: mend that value, or",
        ),
    ],
)
def test_a_series_that_is_none(x, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["1", "2"], "a series holds real numbers, got dtype <U1. Fix: convert it to float first"),
        ([1.0, "two"], "got dtype <U32"),
        (np.array([1.0, "two"], dtype=object), "could not convert string to float: 'two'"),
        ([1.0, 2j], "got dtype complex128"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "got dtype datetime64"),
        ([[1.0, 2.0], [3.0]], "a series holds real numbers, got setting an array element with a sequence"),
        ([10**400, 1.0], "got int too large to convert to float"),
        (pd.Series(["a", "b"]), "Fix: select the columns that are numbers"),
    ],
)
def test_a_series_that_holds_no_numbers(x, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("times", "kind", "message"),
    [
        ([1.0, 2.0], InputError, r"there is one time for each point, got times of shape \(2,\) for 3 points"),
        ([1.0, NAN, 2.0], InputError, r"every point has a finite time, got nan at \[1\]"),
        ([1.0, 2.0, INF], InputError, r"every point has a finite time, got inf at \[2\]"),
        (["a", "b", "c"], KindError, r"times are numbers or dates, got dtype <U1. Fix: pass floats, or dates as numpy"),
        (
            np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[D]"),
            InputError,
            r"every point has a time, got NaT at \[1\]",
        ),
    ],
)
def test_times_that_are_none(times, kind, message):
    with pytest.raises(kind, match=message):
        overt.smooth(FINE, times=times)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"keys": "time", "bandwidth": 0}, 'a bandwidth is a number above 0, got 0. Fix: pass one, or "auto"'),
        ({"keys": "time", "bandwidth": -1.0}, "a bandwidth is a number above 0, got -1.0"),
        ({"keys": "time", "bandwidth": NAN}, "a bandwidth is a number above 0, got nan"),
        ({"keys": "time", "bandwidth": INF}, "a bandwidth is a number above 0, got inf"),
        ({"keys": "time", "bandwidth": None}, "a bandwidth is a number above 0, got None"),
        ({"keys": "time", "bandwidth": True}, "a bandwidth is a number above 0, got True"),
        ({"keys": "time", "bandwidth": (1.0, 2.0)}, r"a bandwidth is a number above 0, got \(1.0, 2.0\)"),
        ({"keys": "value", "bandwidth": "wide"}, "bandwidth is \"auto\" or a number above 0, got 'wide'"),
        (
            {"keys": "both", "bandwidth": 1.0},
            'keys="both" take two bandwidths above 0, that of time and that of value, got 1.0',
        ),
        ({"keys": "both", "bandwidth": (1.0, 0.0)}, r"take two bandwidths above 0.*got \(1.0, 0.0\)"),
        ({"keys": "colour"}, 'keys is "auto" or "time" or "value" or "both" or "patch", got \'colour\''),
        (
            {"bandwidth": 3.0},
            'keys="auto" mix heads of many bandwidths and windows, got bandwidth=3.0. '
            'Fix: say what it is for, as in keys="time"',
        ),
        ({"window": 9}, 'keys="auto" mix heads of many bandwidths and windows, got window=9. Fix: say what it is for'),
        (
            {"keys": "time", "degree": 3},
            "a degree is 0, 1 or 2: through the weighted points goes a mean, a line or a parabola, got 3",
        ),
        ({"keys": "time", "degree": True}, "a degree is 0, 1 or 2: through the weighted points goes .*, got True"),
        ({"keys": "time", "degree": 1.0}, "a degree is 0, 1 or 2: through the weighted points goes .*, got 1.0"),
        (
            {"keys": "value", "degree": 2},
            'a degree is for time keys; others take means, got keys="value", degree=2. Fix: pass keys="time", or',
        ),
        ({"degree": 0}, 'a degree is for time keys; others take means, got keys="auto", degree=0'),
        ({"score": "cosine"}, 'score is "gaussian" or "dot"'),
        (
            {"score": "dot"},
            'the dot score compares values, got keys="auto". Fix: pass keys="value", or score="gaussian"',
        ),
        (
            {"score": "dot", "keys": "value", "bandwidth": 1.0},
            "the dot score has no bandwidth, got 1.0. Fix: sharpen it with scale",
        ),
        ({"score": "dot", "keys": "value", "scale": INF}, "a scale is a finite number, got inf"),
        ({"normalizer": "sum"}, "the plain sum is for the dot score; a Gaussian score is a logarithm"),
        ({"normalizer": "mean"}, 'normalizer is "softmax" or "sum"'),
        ({"scale": 2.0}, "the Gaussian score has no scale, got 2.0. Fix: sharpen it with bandwidth"),
        ({"window": -1.0}, "a window is a distance in time, 0 or more, got -1.0. Fix: pass one, or None"),
        ({"window": NAN}, "a window is a distance in time, 0 or more, got nan"),
        ({"noise": -0.1}, "noise is a standard deviation, 0 or more, got -0.1"),
        ({"noise": "loud"}, "noise is a standard deviation, 0 or more, got 'loud'"),
        (
            {"noise": [0.1, 0.2]},
            r"noise is one number, or one for each point, got shape \(2,\) for 3 points. Fix: pass noise of the",
        ),
        ({"noise": [0.1, -0.2, 0.1]}, r"noise is a standard deviation, finite and 0 or more, got -0.2 at \[1\]"),
        ({"noise": [0.1, 0.2, INF]}, r"noise is a standard deviation, finite and 0 or more, got inf at \[2\]"),
        ({"weights": [1.0, 2.0]}, r"there is one weight for each point, got weights of shape \(2,\) for 3 points"),
        (
            {"weights": [1.0, -2.0, 1.0]},
            r"a weight is finite and 0 or more, got -2.0 at \[1\]. Fix: give a value that does not count weight 0",
        ),
        ({"weights": [1.0, NAN, 1.0]}, r"a weight is finite and 0 or more, got nan at \[1\]"),
        ({"weights": [0.0, 0.0, 0.0]}, "a series needs at least one value, got only NaN"),
        (
            {"score": "dot", "keys": "value", "weights": [1.0, 2.0, 1.0]},
            "the dot score takes all points alike, got weights that differ. Fix: leave out weights and robust, or",
        ),
        ({"at": [[1.0, 2.0]]}, r"times are \(m,\), got shape \(1, 2\). Fix: pass one after the other"),
        ({"at": [0.5, INF]}, r"every point has a finite time, got inf at \[1\]"),
    ],
)
def test_choices_that_are_none(way, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(FINE, **way)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"noise": ["a", "b", "c"]}, "noise is numbers, got dtype <U1. Fix: pass floats, a standard deviation for each"),
        ({"weights": ["a", "b", "c"]}, "weights are numbers, got dtype <U1. Fix: pass floats, 1/variance of each value"),
        (
            {"at": np.array(["2024-01-01"], dtype="datetime64[D]")},
            "a series whose times are numbers is asked at numbers, got dates. Fix: pass numbers",
        ),
        (
            {"at": [1.0], "times": np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]")},
            "a series whose times are dates is asked at dates, got numbers. Fix: pass dates",
        ),
    ],
)
def test_arguments_of_another_kind(way, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(FINE, **way)


def test_a_plain_sum_of_zero_has_no_weights():
    with pytest.raises(
        InputError, match=r"divides by the sum of a row's scores, got a row whose sum is 0. Fix: use normalizer"
    ):
        overt.smooth([1.0, 0.0, 2.0], keys="value", score="dot", normalizer="sum")


def test_analyze_takes_one_series():
    with pytest.raises(InputError, match=r"analyze takes one series, \(n,\), got shape \(2, 2\). Fix: analyze its columns"):
        analyze([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("point", [3, -4])
def test_weights_are_those_of_a_point_that_is_there(point):
    with pytest.raises(InputError, match=f"weights are those of one point, got {point} of 3. Fix: pass one from 0 to 2"):
        analyze(FINE).weights(point)


def test_a_window_longer_than_the_series_changes_nothing():
    for way in ({"keys": "time", "bandwidth": 1.0}, {"keys": "value"}, {"keys": "both"}, {"keys": "patch"}):
        np.testing.assert_allclose(overt.smooth(FINE, window=1e9, **way), overt.smooth(FINE, **way), rtol=1e-12)
