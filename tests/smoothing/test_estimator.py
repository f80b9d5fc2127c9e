"""AttentionSmoother: scikit-learn's own rules, and the numbers of `overt.smooth`."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import check_estimator

import overt
from overt.errors import InputError, install_command
from overt.smoothing import AttentionSmoother


def series(n=200, seed=0):
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(size=n))
    return times, np.sin(times / 10) + random.normal(size=n) * 0.2


def column(times):
    return np.asarray(times).reshape(-1, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks warn of themselves, and fail where it matters
def test_it_keeps_every_rule_of_scikit_learn():
    result = check_estimator(AttentionSmoother(), on_skip=None, on_fail="raise")
    assert {check["status"] for check in result} <= {"passed", "skipped"}
    assert sum(check["status"] == "passed" for check in result) > 50


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "way", [{"keys": "time", "degree": 0}, {"keys": "time", "bandwidth": 0.5}], ids=["means", "a bandwidth"]
)
def test_it_keeps_them_with_other_parameters(way):
    check_estimator(AttentionSmoother(**way), on_skip=None, on_fail="raise")


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"keys": "time"},
        {"keys": "time", "bandwidth": 3.0},
        {"keys": "value", "bandwidth": 0.5},
        {"span": 9.0},
        {"period": 60.0},
    ],
)
@pytest.mark.filterwarnings("ignore:This span")
def test_predicting_at_the_points_is_smoothing_them(way):
    times, values = series()
    result = AttentionSmoother(**way).fit(column(times), values).predict(column(times))
    expected = overt.smooth(values, times=times, **way)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12)


def test_predicting_elsewhere_is_smoothing_at_other_times():
    times, values = series()
    other = np.array([50.0, -3.0, 20.5, 20.5])
    smoother = AttentionSmoother(keys="time", bandwidth=3.0, degree=1).fit(column(times), values)
    with pytest.warns(UserWarning, match="beyond the data"):
        expected = overt.smooth(values, times=times, keys="time", bandwidth=3.0, degree=1, at=other)
    np.testing.assert_allclose(smoother.predict(column(other)), expected, rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="Expected times within half the length of the data beyond either end .* got 1 of 1"):
        smoother.predict([[1e4]])


@pytest.mark.parametrize("way", [{}, {"keys": "time"}])
def test_the_standard_deviation_is_that_of_the_band(way):
    times, values = series()
    inside = np.linspace(times[0], times[-1], 50)
    smoother = AttentionSmoother(**way).fit(column(times), values)
    curve, deviation = smoother.predict(column(inside), return_std=True)
    expected = smoother.smoothing_.at(inside, band=True)
    np.testing.assert_array_equal(curve, expected.values)
    np.testing.assert_allclose(deviation * 2 * 1.959964, expected.upper - expected.lower)


def test_the_standard_deviation_over_several_features_is_that_of_repeated_draws():
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    smoother, targets = AttentionSmoother(bandwidth=0.7), random.normal(size=(10, 2))
    draws = [
        smoother.fit(X, X @ [1.0, 2.0] + 0.5 * random.normal(size=120)).predict(targets, return_std=True) for _ in range(200)
    ]
    curves, deviations = (np.stack(part) for part in zip(*draws, strict=True))
    np.testing.assert_allclose(deviations.mean(axis=0), curves.std(axis=0), rtol=0.2)


def test_noise_without_a_band_has_no_standard_deviation():
    noise = np.random.default_rng(0).normal(size=400)
    walk = np.cumsum(noise) + 1e-9 * noise
    smoother = AttentionSmoother().fit(column(np.cumsum(1 + np.arange(400) % 3)), walk)
    assert smoother.smoothing_.withheld
    with pytest.raises(InputError, match=r"[^.]\. Fix: call predict without return_std\."):
        smoother.predict([[3.0]], return_std=True)


def test_what_was_chosen_is_told():
    times, values = series()
    result = AttentionSmoother(keys="time").fit(column(times), values)
    assert result.bandwidth_ == overt.smoothing.analyze(values, times=times, keys="time").bandwidth
    assert "bandwidth" in result.smoothing_.explanation


@pytest.mark.parametrize("features", [1, 3])
def test_a_weight_of_2_is_the_point_twice_and_one_of_0_is_none(features):
    random = np.random.default_rng(1)
    X, y = random.normal(size=(60, features)), random.normal(size=60)
    weights = random.integers(0, 3, size=60)
    one = AttentionSmoother().fit(X, y, sample_weight=weights).predict(X)
    other = AttentionSmoother().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)).predict(X)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def test_of_one_feature_a_heavier_point_draws_the_curve():
    X, y = column([0.0, 1.0]), np.array([0.0, 1.0])
    result = AttentionSmoother(keys="time", bandwidth=1.0, degree=0).fit(X, y, sample_weight=[1.0, 3.0]).predict(X)
    far = np.exp(-0.5)
    np.testing.assert_allclose(result, [3 * far / (1 + 3 * far), 3 / (3 + far)], rtol=1e-14)


def test_of_several_features_each_counts_in_its_own_deviations():
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=150)
    units = np.array([1000.0, 0.001, 1.0])
    one, other = AttentionSmoother().fit(X, y), AttentionSmoother().fit(X * units + 7.0, y)
    np.testing.assert_allclose(one.predict(X), other.predict(X * units + 7.0), rtol=0, atol=1e-8)


def test_of_a_plane_it_finds_the_plane():
    random = np.random.default_rng(0)
    X = random.normal(size=(100, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0] + 3.0
    expected = LinearRegression().fit(X, y).predict(X[:10] * 2)
    np.testing.assert_allclose(AttentionSmoother().fit(X, y).predict(X[:10] * 2), expected, atol=1e-2)


def test_it_takes_part_in_a_search():
    times, values = series()
    search = GridSearchCV(
        AttentionSmoother(keys="time"), {"bandwidth": [0.1, 5.0, 500.0]}, cv=KFold(5, shuffle=True, random_state=0)
    )
    assert search.fit(column(times), values).best_params_ == {"bandwidth": 5.0}


def test_it_survives_pickling():
    times, values = series()
    result = AttentionSmoother().fit(column(times), values)
    second = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(second.predict(column(times)), result.predict(column(times)))


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            {"keys": "value"},
            r"without window, noise, robust, period and span, for several features, got keys='value'",
        ),
        (
            {"window": 3.0},
            r"window=3\.0, noise=None, period=None, span=None\. Fix: leave these out, or fit one feature, the time",
        ),
        ({"robust": True}, r"robust=True"),
        ({"degree": 2}, r"degree 0 or 1 for several features, got 2\. Fix: choose one of them"),
        ({"bandwidth": 0.0}, r'a bandwidth above 0, got 0\.0\. Fix: pass a number above 0, or "auto"'),
    ],
)
def test_what_several_features_cannot_have_is_refused(way, message):
    X = np.random.default_rng(0).normal(size=(10, 2))
    with pytest.raises(InputError, match=message):
        AttentionSmoother(**way).fit(X, X[:, 0])


def test_a_fit_without_any_weight_is_refused():
    with pytest.raises(ValueError, match="non-zero"):
        AttentionSmoother().fit(column([1.0, 2.0]), [1.0, 2.0], sample_weight=[0.0, 0.0])


@pytest.mark.slow
def test_importing_smoothing_imports_no_scikit_learn():
    program = "import sys, overt.smoothing; assert 'sklearn' not in sys.modules; overt.smoothing.AttentionSmoother; assert 'sklearn' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_scikit_learn_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import overt\n"
        "overt.smooth([1.0, 2.0, 4.0])\n"
        "try:\n    overt.smoothing.AttentionSmoother\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert f"AttentionSmoother needs sklearn, which is not installed. Fix: run: {install_command('smooth')}" in result


def test_without_aeon_its_transformer_says_how_to_get_it():
    program = (
        "import sys; sys.modules['aeon'] = None\n"
        "import overt.smoothing\n"
        "try:\n    overt.smoothing.SeriesSmoother\n"
        "except ImportError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "overt.smoothing.SeriesSmoother needs aeon, which is not installed. Fix: run: pip install aeon" in result


def test_the_transformer_passes_aeons_own_checks_and_smooths_each_channel():
    checking = pytest.importorskip("aeon.testing.estimator_checking")
    from overt.smoothing import SeriesSmoother

    results = checking.check_estimator(SeriesSmoother, raise_exceptions=True)
    assert set(results.values()) == {"PASSED"}
    _, values = series()
    both = np.stack([values, 3 - values])
    np.testing.assert_array_equal(SeriesSmoother().fit_transform(both), [overt.smooth(values), overt.smooth(3 - values)])
