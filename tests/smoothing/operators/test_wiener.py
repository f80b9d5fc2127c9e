"""Heads that compare waves: natively as in NumPy, by rows as by columns, with the leverages that their risks need."""

import numpy as np
import pytest

from overt import native
from overt.smoothing import analyze
from overt.smoothing.selection.bank import stages
from overt.smoothing.selection.bank.wiener import LENGTHS, attend_wiener, wiener_lengths, wiener_row

LEVELS = native.module().levels()


def a_series(n, seed=0, *, alike=False):
    """A noisy wave, the variances of its noise, and a pilot."""
    draw = np.random.default_rng(seed)
    wave, levels = np.sin(0.3 * np.arange(n)), np.full(n, 0.5) if alike else draw.uniform(0.2, 1.0, n)
    noisy = wave + levels * draw.normal(size=n)
    return noisy, levels**2, 0.8 * wave + 0.1 * noisy


@pytest.mark.parametrize("level", LEVELS, indirect=True)
@pytest.mark.parametrize("n", [16, 100, 1024, 1100])
@pytest.mark.parametrize(("alike", "rho"), [(True, 0.0), (False, 0.0), (False, 0.7)])
def test_windows_are_filtered_natively_as_in_numpy(monkeypatch, level, n, alike, rho):
    columns = a_series(n, alike=alike)
    compiled = [attend_wiener(*columns, length, rho) for length in wiener_lengths(n)]
    monkeypatch.setattr(native, "available", lambda: False)
    for (values, leverages), length in zip(compiled, wiener_lengths(n), strict=True):
        plain_values, plain_leverages = attend_wiener(*columns, length, rho)
        np.testing.assert_allclose(values, plain_values, rtol=0, atol=1e-12)
        np.testing.assert_allclose(leverages, plain_leverages, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_any_number_of_threads_and_of_series_gives_the_same_numbers(monkeypatch, compiled):
    monkeypatch.setattr(native, "available", lambda: compiled)
    several = [np.stack(column) for column in zip(*(a_series(40_000, seed) for seed in range(3)), strict=True)]
    for length in (16, 256):
        together = attend_wiener(*several, length)
        for threads in (1, 2):
            monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
            for one in range(3):
                alone = attend_wiener(*(column[one] for column in several), length)
                for column, same in zip(together, alone, strict=True):
                    np.testing.assert_array_equal(column[one], same)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_rows_of_weights_sum_to_one_and_make_the_values(length, rho):
    noisy, squares, pilot = a_series(1050)
    values, _ = attend_wiener(noisy, squares, pilot, length, rho)
    for row in (0, 1, 517, 1049):
        weights = wiener_row(noisy, squares, pilot, length, rho, None, row)
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert weights @ noisy == pytest.approx(values[row], abs=1e-12)


def test_a_shift_shifts_and_a_scale_scales_the_values():
    noisy, squares, pilot = a_series(300)
    values, leverages = attend_wiener(noisy, squares, pilot, 64)
    scaled, same = attend_wiener(1000 + 50 * noisy, 2500 * squares, 1000 + 50 * pilot, 64)
    np.testing.assert_allclose(scaled, 1000 + 50 * values, rtol=1e-12)
    np.testing.assert_allclose(same, leverages, rtol=1e-9)


def test_what_the_pilot_does_not_show_is_left_out_and_what_it_shows_is_kept():
    noisy, squares, _ = a_series(256)
    flat, flat_leverages = attend_wiener(noisy, squares, np.zeros(256), 64)
    row = wiener_row(noisy, squares, np.zeros(256), 64, 0.0, None, 100)
    assert (row >= 0).all()
    assert row.max() < 2 / 64
    assert flat.std() < 0.2
    np.testing.assert_allclose(flat_leverages, 1 / 64, rtol=1e-12)
    loud = 1e6 * np.random.default_rng(1).normal(size=256)
    same, leverages = attend_wiener(loud, squares, loud, 64)
    np.testing.assert_allclose(same, loud, rtol=0, atol=1)
    np.testing.assert_allclose(leverages, 1, atol=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_leverages_are_the_covariance_with_the_noise(rho):
    """Of gains that the noise does not change: those of a pilot with many large waves, all of the lower half of the frequencies."""
    n, squares, draw = np.arange(512), np.ones(512), np.random.default_rng(0)
    frequencies = np.linspace(0, np.pi / 2, 200)[:, None]
    pilot = 300 * np.cos(frequencies * n + draw.uniform(0, 2 * np.pi, (200, 1))).sum(axis=0)
    _, leverages = attend_wiener(pilot, squares, pilot, 64, rho)
    rows = np.stack([wiener_row(pilot, squares, pilot, 64, rho, None, row) for row in n[100:400]])
    covariances = (rows * rho ** np.abs(n - n[100:400, None])).sum(axis=1)
    np.testing.assert_allclose(leverages[100:400].mean(), covariances.mean(), rtol=0.1)


def test_estimated_risks_are_the_errors_where_the_pilot_follows_the_noise():
    """Stein's estimate with the leverages, over many draws, beside the true error: a pilot as the bank has it, which changes with the noise.

    They are a little cautious: the pilot follows each wave less than its gain says.
    """
    draw, wave = np.random.default_rng(0), np.sin(0.4 * np.arange(256)) * (np.arange(256) > 128)
    estimates, errors = [], []
    for _ in range(200):
        noisy = wave + 0.5 * draw.normal(size=256)
        pilot, squares = np.convolve(noisy, [0.1, 0.2, 0.4, 0.2, 0.1], "same"), np.full(256, 0.25)
        values, leverages = attend_wiener(noisy, squares, pilot, 32)
        estimates.append(np.mean((values - noisy) ** 2 - 0.25 + 0.5 * leverages))
        errors.append(np.mean((values - wave) ** 2))
    assert 1 < np.mean(estimates) / np.mean(errors) < 1.25


@pytest.mark.parametrize("gaps", [False, True])
def test_packets_of_waves_lose_half_of_the_error(monkeypatch, gaps):
    draw, t = np.random.default_rng(3), np.linspace(0, 1, 1024)
    packets = sum(np.cos(2 * np.pi * 45 * (t - c)) * np.exp(-0.5 * ((t - c) / 0.06) ** 2) for c in (0.2, 0.6, 0.85))
    noisy = packets + 0.4 * draw.normal(size=1024)
    if gaps:
        noisy[draw.choice(1024, 60, replace=False)] = np.nan
    error = np.mean((analyze(noisy).values - packets) ** 2)
    monkeypatch.setattr(stages, "wiener_lengths", lambda points: ())
    assert error < 0.6 * np.mean((analyze(noisy).values - packets) ** 2)


def test_a_point_of_a_curve_with_waves_says_which_points_it_is_made_of():
    t = np.arange(600)
    noisy = np.sin(0.5 * t) + 0.4 * np.random.default_rng(0).normal(size=600)
    result = analyze(noisy, robust=False)
    assert any(name.startswith("waves") for name in result.heads)
    weights = result.weights(300)
    assert weights @ noisy == pytest.approx(result.values[300], abs=1e-9)
    assert "waves that a first smoothing shows" in result.explanation
