"""A kind of noise is added in one file: shares of m trials, whose variance is p(1 − p)/m, which the library does not know."""

from dataclasses import replace

import numpy as np
import pytest

from overt.smoothing import analyze
from overt.smoothing.noise import recognized
from overt.smoothing.noise.images import PASSES, with_risks
from overt.smoothing.noise.kind import Kind

TRIALS = 12


class Shares(Kind):
    """Multiples of 1/m between 0 and 1, smoothed as they are under the variances of the last curve."""

    names = ("shares",)

    def holds(self, series):
        """Whether all values are whole numbers of trials, and more than two of them occur."""
        trials = series.known * TRIALS
        return bool(
            series.undeclared
            and np.allclose(trials, np.round(trials))
            and trials.min() >= 0
            and trials.max() <= TRIALS
            and np.unique(trials).size > 2
        )

    def variances(self, curve):
        """The variance of a share at each probability (n,)."""
        return np.clip(curve * (1 - curve), 0.02, 0.25) / TRIALS

    def smooth(self, series, analyze):
        """The smoothing of the probability, under the variance of its mean and then of the last curve."""
        values, options = series.values, series.options
        curve = np.full(values.size, np.nanmean(values))
        for _ in range(1 + PASSES):
            noise = np.sqrt(self.variances(curve))
            result = series.smoothed(analyze, values, replace(options, noise=noise, robust=False, from_curve="outcomes"))
            curve = np.clip(result.values, 0.0, 1.0)
        result = replace(result, values=curve, kind="shares", bounds=(0.0, 1.0), options=options)
        return with_risks(result, values, self.variances(curve), self.variances(curve))

    def sentence(self, result, source):
        """What they are."""
        return f"The values are shares of {TRIALS} trials ({source}): they were smoothed with the variance of a share."


@pytest.fixture
def _shares(monkeypatch):
    monkeypatch.setattr(recognized, "KINDS", [Shares(), *recognized.KINDS])


def shares(seed, points=300):
    draw = np.random.default_rng(seed)
    truth = 0.5 + 0.42 * np.sin(np.arange(points) / 25)
    return truth, draw.binomial(TRIALS, truth) / TRIALS


@pytest.mark.usefixtures("_shares")
def test_a_kind_in_one_file_gives_curve_band_noise_report_and_steps():
    truth, x = shares(0)
    result = analyze(x)
    assert result.kind == "shares"
    assert f"The values are shares of {TRIALS} trials (recognized" in result.sentence
    np.testing.assert_allclose(np.mean(result.noise**2), np.mean(truth * (1 - truth)) / TRIALS, rtol=0.1)
    curve = result.observed
    for step in result.steps:
        curve = step.apply(curve)
    np.testing.assert_allclose(curve, result.values, atol=1e-9)
    assert result.values.min() >= 0
    assert result.values.max() <= 1


@pytest.mark.usefixtures("_shares")
def test_its_bands_hold_the_truth_and_its_risk_is_right():
    inside, stated = [], []
    for seed in range(8):
        truth, x = shares(seed)
        result = analyze(x)
        inside.append(np.mean((result.lower <= truth) & (truth <= result.upper)))
        stated.append(result.risk / np.mean((result.values - truth) ** 2))
    assert 0.9 < np.mean(inside) < 0.99
    assert 0.5 < np.median(stated) < 2.5


def test_without_it_the_same_values_are_of_no_such_kind():
    assert analyze(shares(0)[1]).kind != "shares"
    with pytest.raises(StopIteration):
        recognized.kind_named("shares")
