"""Several short series at once give what each gives alone: in the bank, and in its kernels where single rows are computed apart."""

import numpy as np
import pytest

from overt import native
from overt.smoothing.data.series import overall_level
from overt.smoothing.heads.guided import GuidedInputs, attend_pairs, attend_rows
from overt.smoothing.heads.guided import attend_several as attend_guides
from overt.smoothing.heads.local.short_grid import LONGEST
from overt.smoothing.heads.patches import PatchInputs, attend_by_lag, attend_inputs, reflected
from overt.smoothing.heads.patches import attend_several as attend_patches
from overt.smoothing.selection.bank.candidates import NoisySeries
from overt.smoothing.selection.bank.stages import attend_bank
from overt.smoothing.selection.bank.together import attend_banks


def series_of(count):
    """A constant, noise, steps, a spike of 10⁶ and noise whose level grows (5, n), and the levels (5, n)."""
    draw, at = np.random.default_rng(count), np.arange(count)
    values = np.stack([np.full(count, 3.0), draw.normal(size=count), 5.0 * (at > count // 2), 1e6 * (at == count // 3), at / 7])
    levels = np.ones((5, count))
    levels[4] = np.where(at < count // 2, 0.5, 4.0)
    return values + levels * draw.normal(size=values.shape) * np.array([0, 1, 1, 1, 1])[:, None], levels


@pytest.mark.parametrize("count", [2, 3, 7, 40, LONGEST])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_bank_of_several_is_that_of_each(monkeypatch, count, threads):
    monkeypatch.setattr(native, "threads", lambda: threads)
    several = [
        NoisySeries(np.arange(float(count)), *row, np.ones(count), level) for *row, level in zip(*series_of(count), strict=True)
    ]
    for one, outputs in zip(several, attend_banks(several), strict=True):
        alone = attend_bank(one, overall_level(one.levels))
        assert outputs.names == alone.names
        for name in ("values", "leverages", "variances", "mixture"):
            result, expected = getattr(outputs, name), getattr(alone, name)
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12 * max(1.0, np.abs(expected).max()), err_msg=name)


@pytest.mark.parametrize("past", [False, True])
def test_patches_of_several_have_rows_whose_weights_underflow(past):
    values, _ = series_of(60)
    weights = np.where(np.arange(60) == 20, 0.0, 1.0)  # a spike that gets no weight: it reaches no key
    source = reflected(60, 2, past)
    profile = np.array([1.0, 1.0, 1.0, 0.0, 0.0]) if past else np.ones(5)
    rates = 0.5 / np.multiply.outer([1.0, 2.0, 0.5, 1.0, 1.0], [0.5, 1.0]) ** 2
    several = attend_patches(PatchInputs(values, weights, values[:, source], source, profile, rates, 20, past))
    faint = 0
    for index, (row, of_row) in enumerate(zip(values, rates, strict=True)):
        inputs = PatchInputs(row, weights, row[source], source, profile, of_row, 20, past)
        faint += np.isnan(attend_by_lag(inputs).values).sum()
        for column, expected in zip(several, attend_inputs(inputs), strict=True):
            assert not np.isnan(expected).any()
            np.testing.assert_array_equal(column[index], expected)
    assert faint  # or the test shows nothing


def test_guides_of_several_have_rows_whose_weights_underflow():
    values, _ = series_of(60)
    weights = np.where(np.arange(60) == 20, 0.0, 1.0)
    bandwidths = np.multiply.outer([1.0, 2.0, 0.5, 1.0, 1.0], [2.0, 1.0, 0.5])
    inputs = GuidedInputs(np.arange(60.0), values, values, weights, bandwidths, 16.0, 48.0, "both", even=True)
    several = attend_guides(inputs)
    for index, (row, of_row) in enumerate(zip(values, bandwidths, strict=True)):
        one = GuidedInputs(inputs.times, row, row, weights, of_row, 16.0, 48.0, "both", even=True)
        for column, expected, by_rows in zip(several, attend_pairs(one), attend_rows(one, np.arange(60)), strict=True):
            np.testing.assert_array_equal(column[index], expected)
            np.testing.assert_allclose(expected, by_rows, rtol=1e-7, atol=1e-7)
