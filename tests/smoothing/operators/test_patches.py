"""Patch keys: against plain loops, and their derivative against finite differences."""

import numpy as np
import pytest

from overt import native
from overt.errors import InputError
from overt.smoothing.heads.patches import attend_patch

pytestmark = pytest.mark.usefixtures("form")
FLAT = np.ones(7)
UNEVEN = np.array([0.1, 0.0, 0.7, 1.0, 0.3, 0.2, 0.4])
BACKWARD = np.array([0.3, 0.2, 0.5, 1.0, 0.0, 0.0, 0.0])


def mirrored(x, index):
    """The value at a place that may lie beyond the ends: x_{-1} = x_1, again and again."""
    period = max(2 * (x.size - 1), 1)
    return x[min(index % period, -index % period)]


def continued(x, index):
    return x[max(index, 0)]


def plain_row(i, x, present, weights, profile, bandwidth, window, side="both"):
    """W_ij of one row, pair by pair."""
    half, at = profile.size // 2, continued if side == "past" else mirrored
    row = np.zeros(x.size)
    keys = range(max(i - window, 0), min(i + (0 if side == "past" else window), x.size - 1) + 1)
    for j in (j for j in keys if present[j]):
        within = (m for m in range(-half, half + 1) if profile[m + half])
        distance = sum(profile[m + half] * (at(x, i + m) - at(x, j + m)) ** 2 for m in within)
        row[j] = weights[j] * np.exp(-distance / (2 * bandwidth**2))
    return row / row.sum()


def plain(x, *request):
    """W (n, n)."""
    return np.stack([plain_row(i, x, *request) for i in range(x.size)])


def noisy(n, seed=0):
    generator = np.random.default_rng(seed)
    x = np.where(np.arange(n) % 11 < 5, 1.0, -1.0) + 0.3 * generator.normal(size=n)
    present = generator.random(n) > 0.2
    present[0] = True
    return x, present, generator.uniform(0.2, 3.0, n)


CASES = [
    (60, FLAT, 12, "both"),
    (60, UNEVEN, 12, "both"),
    (60, BACKWARD, 12, "past"),
    (60, np.ones(1), 100, "both"),
    (60, 0.4 * np.ones(23), 12, "both"),
    (23, np.ones(13), 2, "both"),
    (6, UNEVEN[[0, 2, 3, 4, 1, 5, 6, 2, 1]], 9, "both"),
    (2, FLAT, 1, "both"),
    (1, FLAT, 5, "both"),
]


@pytest.mark.parametrize(("n", "profile", "window", "side"), CASES)
@pytest.mark.few_cases(4)
def test_patches_attend_as_plain_loops_do(n, profile, window, side):
    x, present, weights = noisy(n)
    result = attend_patch(x, present, weights, profile=profile, bandwidths=[0.8, 2.0], window=window, side=side)
    for k, bandwidth in enumerate([0.8, 2.0]):
        W = plain(x, present, weights, profile, bandwidth, window, side)
        np.testing.assert_allclose(result.values[k], W @ x, atol=1e-13)
        np.testing.assert_allclose(result.self_weights[k], np.diag(W), atol=1e-13)


@pytest.mark.parametrize(("n", "profile", "window", "side"), CASES)
def test_the_slope_is_the_whole_derivative_at_the_ends_too(n, profile, window, side):
    x, present, weights = noisy(n)
    leverages = attend_patch(x, present, weights, profile=profile, bandwidths=[0.8], window=window, side=side).leverages[0]
    for i in np.flatnonzero(present):
        nudge = 1e-5 * (np.arange(n) == i)
        request = present, weights, profile, 0.8, window, side
        above, below = (plain_row(i, moved, *request) @ moved for moved in (x + nudge, x - nudge))
        assert leverages[i] == pytest.approx((above - below) / 2e-5, abs=1e-8)
    assert np.isnan(leverages[~present]).all()


def test_a_missing_value_gets_no_weight_but_an_output():
    x, present, _ = noisy(60)
    W = plain(x, present, np.ones(60), FLAT, 0.8, 12)
    result = attend_patch(x, present, profile=FLAT, bandwidths=[0.8], window=12)
    assert (W[:, ~present] == 0).all()
    np.testing.assert_allclose(result.values[0], W @ x, atol=1e-13)
    assert (result.self_weights[0, ~present] == 0).all()


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.0, 1.0, 1.0, 3.0])])
def test_a_point_far_from_all_keys_takes_the_most_similar_one(weights):
    x, present = np.array([0.0, 0.1, 1e4, 2.0, 0.2, 0.1]), np.array([True, True, weights is not None, True, True, True])
    result = attend_patch(x, present, weights, profile=[1.0], bandwidths=[0.01], window=5)
    assert result.values[0, 2] == pytest.approx(2.0, abs=1e-12)
    assert result.self_weights[0, 2] == 0


def test_a_point_with_no_key_in_reach_is_missing():
    present = np.array([True, False, False, False, True, True])
    result = attend_patch(np.arange(6.0), present, profile=[1.0, 1.0, 1.0], bandwidths=[1.0], window=1)
    assert np.isnan(result.values[0]).tolist() == [False, False, True, False, False, False]


def test_a_constant_series_stays_itself_whatever_its_level():
    result = attend_patch(np.full(30, 1e9), np.ones(30, bool), profile=FLAT, bandwidths=[1e-3], window=4)
    assert (result.values == 1e9).all()
    assert result.self_weights[0, 15] == pytest.approx(1 / 9)


def test_looking_back_only_leaves_the_past_alone():
    x, present, weights = noisy(60)
    before, after = (
        attend_patch(series, present, weights, profile=BACKWARD, bandwidths=[0.8], window=12, side="past")
        for series in (x, np.concatenate([x[:20], -5.0 * x[20:]]))
    )
    np.testing.assert_array_equal(before.values[:, :20], after.values[:, :20])
    np.testing.assert_array_equal(before.leverages[:, :20], after.leverages[:, :20])


@pytest.mark.parametrize("side", ["both", "past"])
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.few_cases(3)
def test_blocks_give_what_lags_give_however_many_threads_share_them(form, monkeypatch, complete, side):
    x, present, weights = noisy(5000)
    present, weights = (np.ones(5000, bool), None) if complete else (present, weights)
    request = {"profile": BACKWARD, "bandwidths": [0.5, 1.0, 2.0], "window": 300, "side": side}
    by_threads = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        by_threads.append(attend_patch(x, present, weights, **request))
    for several in by_threads[1:]:
        for column, same in zip(by_threads[0], several, strict=True):
            np.testing.assert_array_equal(column, same)
    monkeypatch.setattr(native, "available", lambda: False)
    for column, same in zip(by_threads[0], attend_patch(x, present, weights, **request), strict=True):
        np.testing.assert_allclose(column, same, rtol=1e-12, atol=1e-13)


def test_wrong_requests_are_refused():
    x, present = np.arange(4.0), np.ones(4, bool)
    with pytest.raises(InputError, match=r"a profile of 0 for later points, got \[1. 1. 1.\]. Fix: make g_m = 0 for m > 0"):
        attend_patch(x, present, profile=[1, 1, 1], bandwidths=[1], window=2, side="past")
    with pytest.raises(InputError, match="an odd number of finite weights, 0 or more"):
        attend_patch(x, present, profile=[1, 1], bandwidths=[1], window=2)
    with pytest.raises(InputError, match="Expected bandwidths above 0"):
        attend_patch(x, present, profile=[1], bandwidths=[0], window=2)
    with pytest.raises(InputError, match='side "both" or "past", got \'future\''):
        attend_patch(x, present, profile=[1], bandwidths=[1], window=2, side="future")
