"""Each thing that cannot be smoothed gets an error that says the rule, what came and the cure."""

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
        ([], r"n is at least 1; got shape \(0,\)"),
        ([NAN, NAN], r"a series needs at least one value; got only NaN. To mend it, give at least one value that is not NaN"),
        (
            [[1.0, NAN], [2.0, NAN]],
            r"a series needs at least one value; got only NaN in column 1. To mend it, leave that column out",
        ),
        (3.0, r"a series is \(n,\), several are \(n, columns\), and n is at least 1; got shape \(\)"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        ([1.0, INF, 2.0], r"NaN where one is missing; got inf at \[1\]"),
        ([[1.0, 2.0], [1.0, -INF]], r"got -inf at \[1, 1\]"),
        (
            [1e200, -1.0],
            r"numbers up to 1e\+150, or NaN where one is missing; got 1e\+200 at \[0\]. To mend it, mend that value, or",
        ),
    ],
)
def test_a_series_that_is_none(x, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["1", "2"], "a series holds real numbers; got dtype <U1. To mend it, convert it to float first"),
        ([1.0, "two"], "got dtype <U32"),
        (np.array([1.0, "two"], dtype=object), "could not convert string to float: 'two'"),
        ([1.0, 2j], "got dtype complex128"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "got dtype datetime64"),
        (pd.Series(["a", "b"]), "To mend it, select the columns that are numbers"),
    ],
)
def test_a_series_that_holds_no_numbers(x, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("times", "kind", "message"),
    [
        ([1.0, 2.0], InputError, r"there is one time for each point; got times of shape \(2,\) for 3 points"),
        ([1.0, NAN, 2.0], InputError, r"every point has a finite time; got nan at \[1\]"),
        ([1.0, 2.0, INF], InputError, r"every point has a finite time; got inf at \[2\]"),
        (["a", "b", "c"], KindError, r"times are numbers or dates; got dtype <U1. To mend it, pass floats, or dates as numpy"),
        (
            np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[D]"),
            InputError,
            r"every point has a time; got NaT at \[1\]",
        ),
    ],
)
def test_times_that_are_none(times, kind, message):
    with pytest.raises(kind, match=message):
        overt.smooth(FINE, times=times)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"bandwidth": 0}, 'a bandwidth is a number above 0; got 0. To mend it, pass one, or "auto"'),
        ({"bandwidth": -1.0}, "a bandwidth is a number above 0; got -1.0"),
        ({"bandwidth": NAN}, "a bandwidth is a number above 0; got nan"),
        ({"bandwidth": INF}, "a bandwidth is a number above 0; got inf"),
        ({"bandwidth": None}, "a bandwidth is a number above 0; got None"),
        ({"bandwidth": True}, "a bandwidth is a number above 0; got True"),
        ({"bandwidth": (1.0, 2.0)}, r"a bandwidth is a number above 0; got \(1.0, 2.0\)"),
        ({"bandwidth": "wide"}, "bandwidth is \"auto\" or a number above 0; got 'wide'"),
        (
            {"keys": "both", "bandwidth": 1.0},
            'keys="both" take two bandwidths above 0, that of time and that of value; got 1.0',
        ),
        ({"keys": "both", "bandwidth": (1.0, 0.0)}, r"take two bandwidths above 0.*got \(1.0, 0.0\)"),
        ({"keys": "colour"}, 'keys is "time" or "value" or "both"; got \'colour\''),
        ({"keys": "patch"}, 'these keys are not there yet; got "patch". To mend it, pass "time", "value" or "both"'),
        ({"keys": "auto"}, 'these keys are not there yet; got "auto"'),
        ({"score": "cosine"}, 'score is "gaussian" or "dot"'),
        (
            {"score": "dot"},
            'the dot score compares values; got keys="time". To mend it, pass keys="value", or score="gaussian"',
        ),
        (
            {"score": "dot", "keys": "value", "bandwidth": 1.0},
            "the dot score has no bandwidth; got 1.0. To mend it, sharpen it with scale",
        ),
        ({"score": "dot", "keys": "value", "scale": INF}, "a scale is a finite number; got inf"),
        ({"normalizer": "sum"}, "the plain sum is for the dot score; a Gaussian score is a logarithm"),
        ({"normalizer": "mean"}, 'normalizer is "softmax" or "sum"'),
        ({"scale": 2.0}, "the Gaussian score has no scale; got 2.0. To mend it, sharpen it with bandwidth"),
        ({"window": -1.0}, "a window is a distance in time, 0 or more; got -1.0. To mend it, pass one, or None"),
        ({"window": NAN}, "a window is a distance in time, 0 or more; got nan"),
        ({"noise": -0.1}, "noise is a standard deviation, 0 or more; got -0.1"),
    ],
)
def test_choices_that_are_none(way, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(FINE, **way)


def test_a_plain_sum_of_zero_has_no_weights():
    with pytest.raises(
        InputError, match=r"divides by the sum of a row's scores; got a row whose sum is 0. To mend it, use normalizer"
    ):
        overt.smooth([1.0, 0.0, 2.0], keys="value", score="dot", normalizer="sum")


def test_analyze_takes_one_series():
    with pytest.raises(
        InputError, match=r"analyze takes one series, \(n,\); got shape \(2, 2\). To mend it, analyze its columns"
    ):
        analyze([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("point", [3, -4])
def test_weights_are_those_of_a_point_that_is_there(point):
    with pytest.raises(InputError, match=f"weights are those of one point; got {point} of 3. To mend it, pass one from 0 to 2"):
        analyze(FINE).weights(point)


def test_a_window_longer_than_the_series_changes_nothing():
    np.testing.assert_array_equal(overt.smooth(FINE, bandwidth=1.0, window=1e9), overt.smooth(FINE, bandwidth=1.0))
