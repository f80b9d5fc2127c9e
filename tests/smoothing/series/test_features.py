"""Attention over points of several features, against weighted means and least squares written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overt.smoothing.heads import features
from overt.smoothing.heads.features import Sample, attend_features, choose_bandwidth


def sample(n=40, d=3, seed=0):
    random = np.random.default_rng(seed)
    return Sample(random.normal(size=(n, d)), random.normal(size=n), random.uniform(0.5, 2.0, size=n))


def kernel(points, target, bandwidth):
    """w_j exp(−|z_j − z|²/2h²), pair by pair."""
    return np.array(
        [
            w * np.exp(-sum((a - b) ** 2 for a, b in zip(z, target, strict=True)) / (2 * bandwidth**2))
            for z, w in zip(points.features, points.weights, strict=True)
        ]
    )


def test_degree_0_is_the_weighted_mean():
    points, targets = sample(), sample(7, seed=1).features
    result = attend_features(points, 0.8, 0, targets).values
    for target, value in zip(targets, result, strict=True):
        weights = kernel(points, target, 0.8)
        assert value == pytest.approx((weights * points.values).sum() / weights.sum(), rel=1e-12)


def test_degree_1_is_the_plane_of_weighted_least_squares():
    points, targets = sample(200), sample(7, seed=1).features
    result = attend_features(points, 1.0, 1, targets).values
    for target, value in zip(targets, result, strict=True):
        root = np.sqrt(kernel(points, target, 1.0))
        design = np.column_stack([np.ones(200), points.features - target])
        plane = np.linalg.lstsq(root[:, None] * design, root * points.values, rcond=None)[0]
        assert value == pytest.approx(plane[0], abs=1e-5)  # the slope is held back by a millionth of h²


@pytest.mark.parametrize("degree", [0, 1])
def test_own_is_the_derivative_after_the_points_own_value(degree):
    points = sample()
    result = attend_features(points, 0.9, degree)
    for index in (0, 17):
        moved = points.values.copy()
        moved[index] += 1.0
        other = attend_features(points._replace(values=moved), 0.9, degree)
        assert result.leverages[index] == pytest.approx(other.values[index] - result.values[index], rel=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_points_that_cannot_tell_a_slope_give_their_mean(degree):
    points = Sample(np.zeros((3, 2)), np.array([1.0, 2.0, 6.0]), np.ones(3))
    np.testing.assert_allclose(attend_features(points, 1.0, degree, np.array([[0.5, 0.0]])).values, 3.0)


def test_one_far_from_all_takes_the_nearest():
    points = Sample(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([1.0, 5.0]), np.ones(2))
    np.testing.assert_allclose(attend_features(points, 0.01, 0, np.array([[900.0, 0.0]])).values, 5.0)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.integers(0, 1))
def test_rows_in_blocks_equal_rows_at_once(cells, degree):
    points = sample(25)
    whole = attend_features(points, 0.7, degree)
    before, features.CELLS = features.CELLS, 25 * cells
    try:
        blocked = attend_features(points, 0.7, degree)
    finally:
        features.CELLS = before
    np.testing.assert_allclose(blocked.values, whole.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(blocked.leverages, whole.leverages, rtol=0, atol=1e-12)


def test_the_chosen_bandwidth_has_the_least_error_with_each_point_left_out():
    points = sample(30, d=2)
    points = points._replace(values=np.sin(3 * points.features[:, 0]) + 0.1 * points.values)
    chosen = choose_bandwidth(points, 0)

    def left_out(bandwidth):
        errors = []
        for index in range(30):
            rest = Sample(*(np.delete(column, index, axis=0) for column in points))
            result = attend_features(rest, bandwidth, 0, points.features[[index]]).values[0]
            errors.append(points.weights[index] * (points.values[index] - result) ** 2)
        return sum(errors)

    assert left_out(chosen) <= min(left_out(chosen * factor) for factor in (0.25, 0.5, 2.0, 4.0))


def test_of_a_plane_the_widest_bandwidth_is_chosen_and_it_is_least_squares():
    points = sample(60)
    points = points._replace(values=points.features @ [1.0, -2.0, 0.5] + 3.0)
    result = attend_features(points, choose_bandwidth(points, 1), 1, np.array([[5.0, 5.0, 5.0]])).values
    np.testing.assert_allclose(result, 5.0 * -0.5 + 3.0, atol=1e-2)
