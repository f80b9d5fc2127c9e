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
        ([], r"with n of at least 1, got shape \(0,\)"),
        ([NAN, NAN], r"a series with at least one value, got only NaN. Fix: pass at least one number that is not NaN"),
        (
            [[1.0, NAN], [2.0, NAN]],
            r"at least one value in each column, got only NaN in column 1. Fix: leave that column out",
        ),
        (3.0, r"one series \(n,\) or several \(n, columns\), with n of at least 1, got shape \(\)"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        ([1.0, INF, 2.0], r"NaN for a missing value, got inf at \[1\]"),
        ([[1.0, 2.0], [1.0, -INF]], r"got -inf at \[1, 1\]"),
        (
            [1e200, -1.0],
            r"numbers up to 1e\+150, or NaN for a missing value, got 1e\+200 at \[0\]. Fix: correct that value, or",
        ),
    ],
)
def test_a_series_that_is_none(x, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["1", "2"], "a series of real numbers, got dtype <U1. Fix: convert it to float first"),
        ([1.0, "two"], "got dtype <U32"),
        (np.array([1.0, "two"], dtype=object), "could not convert string to float: 'two'"),
        ([1.0, 2j], "got dtype complex128"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "got dtype datetime64"),
        ([[1.0, 2.0], [3.0]], "a series of real numbers, got an error: setting an array element with a sequence"),
        ([10**400, 1.0], "got an error: .*int too large to convert to float"),
        (pd.Series(["a", "b"]), "Fix: select the numeric columns"),
    ],
)
def test_a_series_that_holds_no_numbers(x, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize(
    ("times", "kind", "message"),
    [
        ([1.0, 2.0], InputError, r"Expected one time for each point, got times of shape \(2,\) for 3 points"),
        ([1.0, NAN, 2.0], InputError, r"Expected a finite time for every point, got nan at \[1\]"),
        ([1.0, 2.0, INF], InputError, r"Expected a finite time for every point, got inf at \[2\]"),
        (["a", "b", "c"], KindError, r"times as numbers or dates, got text: .*Fix: write dates as 2024-12-31"),
        (
            np.array(["2024-01-01", "NaT", "2024-01-02"], dtype="datetime64[D]"),
            InputError,
            r"Expected a time for every point, got NaT at \[1\]",
        ),
    ],
)
def test_times_that_are_none(times, kind, message):
    with pytest.raises(kind, match=message):
        overt.smooth(FINE, times=times)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"keys": "time", "bandwidth": 0}, 'Expected a bandwidth above 0, got 0. Fix: pass a number above 0, or "auto"'),
        ({"keys": "time", "bandwidth": -1.0}, "Expected a bandwidth above 0, got -1.0"),
        ({"keys": "time", "bandwidth": NAN}, "Expected a bandwidth above 0, got nan"),
        ({"keys": "time", "bandwidth": INF}, "Expected a bandwidth above 0, got inf"),
        ({"keys": "time", "bandwidth": None}, "Expected a bandwidth above 0, got None"),
        ({"keys": "time", "bandwidth": True}, "Expected a bandwidth above 0, got True"),
        ({"keys": "time", "bandwidth": (1.0, 2.0)}, r"Expected a bandwidth above 0, got \(1.0, 2.0\)"),
        ({"keys": "value", "bandwidth": "wide"}, "bandwidth=\"auto\" or a number above 0, got 'wide'"),
        (
            {"keys": "both", "bandwidth": 1.0},
            'two bandwidths above 0 with keys="both", got 1.0',
        ),
        ({"keys": "both", "bandwidth": (1.0, 0.0)}, r"two bandwidths above 0.*got \(1.0, 0.0\)"),
        ({"keys": "colour"}, 'Expected keys="auto" or "time" or "value" or "both" or "patch", got \'colour\''),
        (
            {"bandwidth": 3.0},
            'no bandwidth and no window with keys="auto", which mixes heads of many, got bandwidth=3.0. '
            'Fix: pass keys as well, such as keys="time"',
        ),
        ({"window": 9}, 'keys="auto", which mixes heads of many, got window=9. Fix: pass keys as well'),
        (
            {"keys": "time", "degree": 3},
            "Expected degree 0, 1 or 2, got 3. Fix: pass 0 for a mean, 1 for a line, 2 for a parabola",
        ),
        ({"keys": "time", "degree": True}, "Expected degree 0, 1 or 2, got True"),
        ({"keys": "time", "degree": 1.0}, "Expected degree 0, 1 or 2, got 1.0"),
        (
            {"keys": "value", "degree": 2},
            'keys="time" with a degree, since other keys take means, got keys="value", degree=2. Fix: pass keys="time", or',
        ),
        ({"degree": 0}, 'keys="time" with a degree, since other keys take means, got keys="auto", degree=0'),
        ({"score": "cosine"}, 'score="gaussian" or "dot"'),
        (
            {"score": "dot"},
            'keys="value" with the dot score, got keys="auto". Fix: pass keys="value", or score="gaussian"',
        ),
        (
            {"score": "dot", "keys": "value", "bandwidth": 1.0},
            "no bandwidth with the dot score, got 1.0. Fix: pass scale instead",
        ),
        ({"score": "dot", "keys": "value", "scale": INF}, "Expected a finite scale, got inf"),
        ({"normalizer": "sum"}, 'score="dot" with normalizer="sum"'),
        ({"normalizer": "mean"}, 'normalizer="softmax" or "sum"'),
        ({"scale": 2.0}, "scale as a name with the Gaussian score, got 2.0. Fix: pass bandwidth instead of a factor"),
        ({"window": -1.0}, "a window of 0 or more, a distance in time, got -1.0. Fix: pass such a number, or None"),
        ({"window": NAN}, "a window of 0 or more, a distance in time, got nan"),
        ({"noise": -0.1}, "a noise standard deviation of 0 or more, got -0.1"),
        ({"noise": "loud"}, r'noise="poisson" or "gaussian" or numbers or None'),
        (
            {"noise": [0.1, 0.2]},
            r"noise as one number, or one for each point, got shape \(2,\) for 3 points. Fix: pass as many as the",
        ),
        ({"noise": [0.1, -0.2, 0.1]}, r"finite noise of 0 or more, got -0.2 at \[1\]"),
        ({"noise": [0.1, 0.2, INF]}, r"finite noise of 0 or more, got inf at \[2\]"),
        ({"weights": [1.0, 2.0]}, r"Expected one weight for each point, got weights of shape \(2,\) for 3 points"),
        (
            {"weights": [1.0, -2.0, 1.0]},
            r"finite weights of 0 or more, got -2.0 at \[1\]. Fix: pass weight 0 for a value to leave out",
        ),
        ({"weights": [1.0, NAN, 1.0]}, r"finite weights of 0 or more, got nan at \[1\]"),
        ({"weights": [0.0, 0.0, 0.0]}, "a series with at least one value, got only NaN"),
        (
            {"score": "dot", "keys": "value", "weights": [1.0, 2.0, 1.0]},
            "equal weights with the dot score, got weights that differ. Fix: leave out weights and robust, or",
        ),
        ({"at": [[1.0, 2.0]]}, r"times of shape \(m,\), got shape \(1, 2\). Fix: pass a flat sequence"),
        ({"at": [0.5, INF]}, r"Expected a finite time for every point, got inf at \[1\]"),
    ],
)
def test_choices_that_are_none(way, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(FINE, **way)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"noise": ["a", "b", "c"]}, "noise as numbers, got dtype <U1. Fix: pass floats, a standard deviation for each"),
        ({"weights": ["a", "b", "c"]}, "weights as numbers, got dtype <U1. Fix: pass floats, 1/variance of each value"),
        (
            {"at": np.array(["2024-01-01"], dtype="datetime64[D]")},
            "times that are numbers, as those of the series, got dates. Fix: pass numbers",
        ),
        (
            {"at": [1.0], "times": np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]")},
            "times that are dates, as those of the series, got numbers. Fix: pass dates",
        ),
    ],
)
def test_arguments_of_another_kind(way, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(FINE, **way)


def test_a_plain_sum_of_zero_has_no_weights():
    with pytest.raises(
        InputError, match=r"nonzero sum in each row, to divide by, got a row whose sum is 0. Fix: use normalizer"
    ):
        overt.smooth([1.0, 0.0, 2.0], keys="value", score="dot", normalizer="sum")


def test_analyze_takes_one_series():
    with pytest.raises(InputError, match=r"one series of shape \(n,\), got shape \(2, 2\). Fix: analyze its columns"):
        analyze([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("point", [3, -4])
def test_weights_are_those_of_a_point_that_is_there(point):
    with pytest.raises(InputError, match=f"the index of a point, got {point} for 3 points. Fix: pass an index from 0 to 2"):
        analyze(FINE).weights(point)


def test_a_window_longer_than_the_series_changes_nothing():
    for way in ({"keys": "time", "bandwidth": 1.0}, {"keys": "value"}, {"keys": "both"}, {"keys": "patch"}):
        np.testing.assert_allclose(overt.smooth(FINE, window=1e9, **way), overt.smooth(FINE, **way), rtol=1e-12)
