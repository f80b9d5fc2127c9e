"""Several short series at once give what each gives alone: in the bank, and in its kernels where single rows are computed apart."""

from dataclasses import replace

import numpy as np
import pytest

from overt import native
from overt.smoothing.heads.guided import GuidedInputs, attend_rows
from overt.smoothing.heads.guided import attend_inputs as attend_guides
from overt.smoothing.heads.local.short_grid import LONGEST
from overt.smoothing.heads.patches import PatchInputs, attend_by_lag, reflected
from overt.smoothing.heads.patches import attend_inputs as attend_patches
from overt.smoothing.selection.bank.noisy_series import NoisySeries, coarser_grid
from overt.smoothing.selection.bank.stages import attend_bank


def series_of(count):
    """A constant, noise, steps, a spike of 10⁶ and noise whose level grows (5, n), and the levels (5, n)."""
    draw, at = np.random.default_rng(count), np.arange(count)
    values = np.stack([np.full(count, 3.0), draw.normal(size=count), 5.0 * (at > count // 2), 1e6 * (at == count // 3), at / 7])
    levels = np.ones((5, count))
    levels[4] = np.where(at < count // 2, 0.5, 4.0)
    return values + levels * draw.normal(size=values.shape) * np.array([0, 1, 1, 1, 1])[:, None], levels


def noisy_series(count):
    """The same as the bank takes them, one by one."""
    rows = zip(*series_of(count), strict=True)
    return [NoisySeries.single(np.arange(float(count)), values, np.ones(count), levels) for values, levels in rows]


def with_gaps(series):
    """The same without some of their values, others in each, unless those that remain are on a coarser grid, which no batch has."""
    count = series[0].times.size
    weights = np.ones((len(series), count))
    weights[0, 2::5], weights[1, 1], weights[2, 3::7], weights[2, 4::7], weights[3, count // 3 : 2 * count // 3] = 0, 0, 0, 0, 0
    gappy = [one._replace(weights=row[None]) for one, row in zip(series, weights, strict=True)]
    return [one if coarser_grid(less) is not None else less for one, less in zip(series, gappy, strict=True)]


@pytest.mark.parametrize("count", [2, 3, 7, 40, LONGEST])
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("gaps", [False, True])
def test_the_bank_of_several_is_that_of_each(monkeypatch, count, threads, gaps):
    monkeypatch.setattr(native, "threads", lambda: threads)
    if not threads:  # the form in NumPy
        monkeypatch.setattr(native, "available", lambda: False)
    single = with_gaps(noisy_series(count)) if gaps else noisy_series(count)
    several = attend_bank(NoisySeries.joined(single))
    for index, one in enumerate(single):
        outputs, alone = several.one(index), attend_bank(one).one(0)
        assert outputs.names == alone.names
        for name in ("values", "leverages", "variances", "mixture"):
            result, expected = getattr(outputs, name), getattr(alone, name)
            np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12 * max(1.0, np.abs(expected).max()), err_msg=name)


@pytest.mark.parametrize("past", [False, True])
def test_patches_of_several_have_rows_whose_weights_underflow(past):
    values, _ = series_of(60)
    weights = np.ones((5, 60))
    weights[:4, 20] = 0.0  # a spike that gets no weight: it reaches no key
    source = reflected(60, 2, past)
    profile = np.array([1.0, 1.0, 1.0, 0.0, 0.0]) if past else np.ones(5)
    rates = 0.5 / np.multiply.outer([1.0, 2.0, 0.5, 1.0, 1.0], [0.5, 1.0]) ** 2
    inputs = PatchInputs(values, weights, values[:, source], source, profile, rates, 20, past)
    several = attend_patches(inputs)
    assert np.isnan(attend_by_lag(inputs).values).any()  # or the test shows nothing
    for index in range(len(values)):
        for column, expected in zip(several, attend_patches(inputs.part(slice(index, index + 1))), strict=True):
            assert not np.isnan(expected).any()
            np.testing.assert_array_equal(column[index], expected[0])


def test_guides_of_several_have_rows_whose_weights_underflow():
    values, _ = series_of(60)
    weights = np.ones((5, 60))
    weights[:4, 20] = 0.0
    bandwidths = np.multiply.outer([1.0, 2.0, 0.5, 1.0, 1.0], [2.0, 1.0, 0.5])
    inputs = GuidedInputs(np.arange(60.0), values, values, weights, bandwidths, 16.0, 48.0, "both", even=True)
    several = attend_guides(inputs)
    for index in range(len(values)):
        alone = replace(
            inputs, guide=values[[index]], values=values[[index]], weights=weights[[index]], bandwidths=bandwidths[[index]]
        )
        by_rows = attend_rows(inputs.one(index), np.arange(60))
        for column, expected, by_row in zip(several, attend_guides(alone), by_rows, strict=True):
            np.testing.assert_array_equal(column[index], expected[0])
            np.testing.assert_allclose(expected[0], by_row, rtol=1e-7, atol=1e-7)
