"""The bilateral filter over windows: against the n×n formula, with weights, sides and gaps."""

import numpy as np
import pytest

from overt import native
from overt.errors import InputError
from overt.smoothing.heads.bilateral import attend_both

pytestmark = pytest.mark.usefixtures("form")


def noisy(n, seed=0):
    generator = np.random.default_rng(seed)
    times = np.sort(generator.uniform(0, n, n))
    times[n // 3 : n // 3 + 4] = times[n // 3]  # several at one time
    times[n // 2 :] += 40.0  # and a gap
    values = np.where(np.arange(n) % 17 < 8, 1.0, -1.0) + 0.3 * generator.normal(size=n)
    return times, values, generator.uniform(0.2, 3.0, n)


def plain(times, values, weights, h_time, h_value, window, side="both"):
    """W (n, n), as the definition says, in extended precision."""
    gap, step = (np.asarray(column, np.longdouble)[:, None] - column for column in (times, values))
    allowed = (np.abs(gap) <= window) & (weights > 0)
    allowed &= {"both": gap > -np.inf, "past": gap >= 0, "future": gap <= 0}[side]
    scores = np.where(allowed, -((gap / h_time) ** 2) / 2 - (step / h_value) ** 2 / 2, -np.inf)
    peak = scores.max(axis=1, keepdims=True)
    W = weights * np.exp(scores - np.where(np.isinf(peak), 0, peak))
    total = W.sum(axis=1, keepdims=True)
    return W / np.where(total > 0, total, np.nan)


def check(result, W, values):
    y = W @ values
    np.testing.assert_allclose(result.values, y.astype(float), atol=1e-13)
    np.testing.assert_allclose(result.variances, (W * (values - y[:, None]) ** 2).sum(axis=1).astype(float), atol=1e-13)
    np.testing.assert_allclose(result.self_weights, np.diag(W).astype(float), atol=1e-13)


BANDWIDTHS = [(3.0, 0.5), (1e6, 0.5), (np.inf, 0.5), (3.0, 1e6), (0.5, 0.01)]


@pytest.mark.each_pair
@pytest.mark.parametrize(("h_time", "h_value"), BANDWIDTHS)
@pytest.mark.parametrize("window", [np.inf, 20.0, 0.0])
@pytest.mark.parametrize("side", ["both", "past", "future"])
def test_pairs_attend_as_the_formula_says(h_time, h_value, window, side):
    times, values, weights = noisy(300)
    result = attend_both(times, values, weights, h_time, h_value, window=window, side=side)
    check(result, plain(times, values, weights, h_time, h_value, window, side), values)


@pytest.mark.parametrize("n", [1, 2, 3, 65, 257, 1030])
def test_every_length_is_served(n):
    times, values, _ = noisy(n + 8)
    times, values = times[:n], values[:n]
    check(attend_both(times, values, None, 3.0, 0.5), plain(times, values, np.ones(n), 3.0, 0.5, np.inf), values)


def test_a_window_that_equals_a_distance_includes_it():
    times, values = 0.1 * np.arange(60), np.sin(np.arange(60.0))
    W = plain(np.arange(60.0), values, np.ones(60), np.inf, 0.5, 3.0)
    check(attend_both(times, values, None, np.inf, 0.5, window=0.3), W, values)


def test_the_slope_made_of_own_and_variance_is_the_derivative():
    times, values, weights = noisy(60)
    result = attend_both(times, values, weights, 3.0, 0.5, window=20.0)
    leverages = result.self_weights + result.variances / 0.5**2
    for i in range(60):
        nudge = 1e-5 * (np.arange(60) == i)
        above, below = ((plain(times, x, weights, 3.0, 0.5, 20.0) @ x)[i] for x in (values + nudge, values - nudge))
        assert leverages[i] == pytest.approx(float(above - below) / 2e-5, abs=1e-8)


def test_moving_all_values_moves_the_outputs_and_no_variance():
    times, values, weights = noisy(300)
    near, far = (attend_both(times, values + level, weights, 3.0, 0.5) for level in (0.0, 2.0**20))
    np.testing.assert_allclose(far.values - 2.0**20, near.values, atol=1e-9)
    np.testing.assert_allclose(far.variances, near.variances, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("side", ["both", "past"])
@pytest.mark.few_cases(3)
def test_the_number_of_threads_changes_no_digit(monkeypatch, side, weighted):
    times, values, weights = noisy(5000)
    by_threads = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        by_threads.append(attend_both(times, values, weights if weighted else None, 40.0, 0.5, window=300.0, side=side))
    for several in by_threads[1:]:
        for column, same in zip(by_threads[0], several, strict=True):
            np.testing.assert_array_equal(column, same)
    monkeypatch.setattr(native, "available", lambda: False)
    plainly = attend_both(times, values, weights if weighted else None, 40.0, 0.5, window=300.0, side=side)
    for column, same in zip(by_threads[0], plainly, strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-12, atol=1e-13)


def test_another_side_is_refused():
    with pytest.raises(InputError, match='side "both", "past" or "future", got \'left\''):
        attend_both(np.arange(3.0), np.arange(3.0), None, 1.0, 1.0, side="left")
