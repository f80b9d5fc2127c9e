"""The head that attends within segments: the posterior mean itself, its derivative as leverage, and rows that make its values."""

import itertools

import numpy as np
import pytest

from overt import native
from overt.smoothing import analyze
from overt.smoothing.selection.bank import segments, stages
from overt.smoothing.selection.bank.segments import attend_segments, fit_prior, posterior, segment_row

LEVELS = native.module().levels()


def a_series(n, seed=0, *, missing=False):
    """Times at unequal steps, a noisy level and slope with a jump, and precisions."""
    draw = np.random.default_rng(seed)
    times, levels = np.cumsum(draw.uniform(0.2, 2.0, n)), draw.uniform(0.3, 1.0, n)
    values = np.where(np.arange(n) < n // 3, 3.0, -2.0) + 0.05 * times + levels * draw.normal(size=n)
    return times, values, np.where(draw.uniform(size=n) < 0.1 * missing, 0.0, 1 / levels**2)


def by_enumeration(times, values, precisions):
    """Posterior means and variances over all 2^(n − 1) divisions, by matrices."""
    prior, n = fit_prior(values, precisions), values.size
    total, sums = 0.0, np.zeros((2, n))
    for changes in itertools.product([False, True], repeat=n - 1):
        bounds = [0, *(np.flatnonzero(changes) + 1), n]
        mass = np.prod([1 / segments.LENGTH if change else 1 - 1 / segments.LENGTH for change in changes])
        moments = np.zeros((2, n))
        for start, stop in itertools.pairwise(bounds):
            part, of_segment = slice(start, stop), np.zeros((2, stop - start))
            shares = 0.0
            for straight in (False, True):
                if straight and stop - start < 3:
                    continue
                weights, x = precisions[part], values[part] - prior.center
                off = times[part] - weights @ times[part] / weights.sum()
                columns = [np.ones(x.size)] + ([off / np.sqrt(weights @ off**2 / weights.sum())] if straight else [])
                design = np.stack(columns, axis=1)
                covariance = np.diag(1 / weights) + prior.variance * design @ design.T
                gain = prior.variance * design @ design.T @ np.linalg.inv(covariance)
                share = (
                    0.5
                    * np.exp(-0.5 * x @ np.linalg.solve(covariance, x))
                    / np.sqrt(np.linalg.det(covariance * weights[:, None]))
                )
                curve = gain @ x
                spread = np.diag(prior.variance * design @ design.T - gain @ (prior.variance * design @ design.T))
                of_segment += share * np.stack([curve, curve**2 + spread])
                shares += share
            mass *= shares
            moments[:, part] = of_segment / shares
        total += mass
        sums += mass * moments
    means, squares = sums / total
    return prior.center + means, squares - means**2


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_it_is_the_posterior_mean_over_all_divisions(monkeypatch, compiled, n):
    monkeypatch.setattr(native, "available", lambda: compiled)
    columns = a_series(n)
    for result, expected in zip(posterior(*columns), by_enumeration(*columns), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=3e-5)  # segments of less than 1e-6 are left out


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("n", [1, 16, 100, 700])
@pytest.mark.parametrize("missing", [False, True])
def test_it_is_computed_natively_as_in_numpy(monkeypatch, level, n, missing):
    columns = a_series(n, missing=missing)
    compiled, row = posterior(*columns), segment_row(*columns, n // 2)
    monkeypatch.setattr(native, "available", lambda: False)
    for result, plain in zip(compiled, posterior(*columns), strict=True):
        np.testing.assert_allclose(result, plain, rtol=0, atol=1e-9)
    np.testing.assert_allclose(row, segment_row(*columns, n // 2), rtol=0, atol=1e-9)


def test_its_leverage_is_the_derivative_by_the_point_itself():
    times, values, precisions = a_series(120)
    prior = fit_prior(values, precisions)

    def means(of):
        results = np.empty((1, 120)), np.empty((1, 120))
        columns = (times[None], np.ascontiguousarray(of)[None], precisions[None])
        native.module().segments(
            *columns, 1 / segments.LENGTH, np.array([prior.variance]), np.array([prior.center]), 1, *results
        )
        return results[0][0], results[1][0]

    _, variances = means(values)
    for row in (0, 5, 39, 40, 41, 90, 119):
        step = 1e-4 * np.eye(120)[row]
        derivative = (means(values + step)[0][row] - means(values - step)[0][row]) / 2e-4
        assert derivative == pytest.approx(variances[row] * precisions[row], abs=2e-3)


@pytest.mark.parametrize("missing", [False, True])
def test_rows_of_weights_sum_to_one_and_make_the_values(missing):
    columns = a_series(9000, missing=missing)
    values, _ = attend_segments(*columns)
    for row in (0, 1, 4095, 4096, 8999):
        weights = segment_row(*columns, row)
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert weights @ columns[1] == pytest.approx(values[row], abs=1e-9)
        assert (weights[columns[2] == 0] == 0).all()


def test_any_number_of_threads_and_of_series_gives_the_same_numbers(monkeypatch):
    several = [np.stack(column) for column in zip(*(a_series(9000, seed) for seed in range(3)), strict=True)]
    together = attend_segments(*several)
    for threads in (1, 2):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        for one in range(3):
            alone = attend_segments(*(column[one] for column in several))
            for column, same in zip(together, alone, strict=True):
                np.testing.assert_array_equal(column[one], same)


def test_a_shift_shifts_and_a_scale_scales_the_values():
    times, values, precisions = a_series(300)
    means, leverages = attend_segments(times, values, precisions)
    scaled, same = attend_segments(times, 1000 + 50 * values, precisions / 2500)
    np.testing.assert_allclose(scaled, 1000 + 50 * means, rtol=1e-9)
    np.testing.assert_allclose(same, leverages, rtol=0, atol=1e-7)


@pytest.mark.parametrize("height", [1e2, 1e4, 1e6])
def test_high_steps_keep_their_variance(height):
    steps = height * np.repeat([0.0, 5.0, -3.0, 2.0], 75)
    values, variances = posterior(np.arange(300.0), steps + np.random.default_rng(0).normal(size=300), np.ones(300))
    np.testing.assert_allclose(values, steps, rtol=0, atol=0.5)
    np.testing.assert_allclose(variances, 1 / 75, rtol=0.35 + 1e-12 * height**2)


def test_estimated_risks_are_the_errors():
    """Stein's estimate with the leverages, without the factor for the search, over many draws, beside the true error."""
    draw, steps = np.random.default_rng(0), np.repeat([0.0, 2.0, -1.0, 1.0], 64)
    estimates, errors = [], []
    for _ in range(3000):
        noise = draw.normal(size=256)
        noisy = steps + noise
        values, variances = posterior(np.arange(256.0), noisy, np.ones(256))
        estimates.append(np.mean((values - noisy) ** 2 - noise**2 + 2 * variances))
        errors.append(np.mean((values - steps) ** 2))
    assert np.mean(estimates) == pytest.approx(np.mean(errors), rel=0.1)


def test_steps_lose_a_quarter_of_the_error(monkeypatch):
    steps = np.repeat(4 * np.random.default_rng(5).normal(size=16), 64)
    noisy = [steps + np.random.default_rng(seed).normal(size=1024) for seed in range(6)]

    def error():
        return np.mean([np.mean((analyze(each).values - steps) ** 2) for each in noisy])

    assert "segments that are constant or straight" in analyze(noisy[0]).explanation
    with_segments = error()
    monkeypatch.setattr(stages, "_segments", lambda *_: None)
    assert with_segments < 0.75 * error()


def test_short_series_have_it_too():
    steps = np.repeat([0.0, 4.0], 50)
    result = analyze(steps + np.random.default_rng(0).normal(size=100))
    assert result.heads[-1] == segments.NAME


@pytest.mark.parametrize("options", [{"causal": True}, {"keys": "time"}])
def test_a_curve_that_may_not_see_the_future_has_no_segments(options):
    assert segments.NAME not in analyze(np.random.default_rng(0).normal(size=200), **options).heads


def test_correlated_noise_has_no_segments():
    draw = np.random.default_rng(0)
    noise = np.zeros(1024)
    for i in range(1, 1024):
        noise[i] = 0.8 * noise[i - 1] + draw.normal()
    assert segments.NAME not in analyze(np.sin(np.arange(1024) / 80) + noise).heads


def test_a_point_of_a_curve_with_gaps_says_which_points_it_is_made_of():
    noisy = np.repeat([0.0, 4.0, 1.0], 100) + np.random.default_rng(0).normal(size=300)
    noisy[[40, 41, 42, 43, 150]] = np.nan
    result = analyze(noisy, robust=False)
    known = ~np.isnan(noisy)
    for row in (10, 41, 99, 100, 150, 299):
        weights = result.weights(row)
        assert weights[known] @ noisy[known] == pytest.approx(result.values[row], abs=1e-9)
        assert weights.sum() == pytest.approx(1, abs=1e-9)
