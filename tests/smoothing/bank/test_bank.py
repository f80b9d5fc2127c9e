"""The default: a bank of heads, mixed point by point, whatever the series."""

import numpy as np
import pytest

import overt
import overt.smoothing.selection.bank.mixture as mixture
import overt.smoothing.selection.bank.stages as bank
from overt import native
from overt.smoothing import analyze

NAN = float("nan")
TIMES = np.arange(300)
TRUTHS = {
    "wave": np.sin(TIMES / 12),
    "steps": np.where(TIMES < 100, 0.0, np.where(TIMES < 220, 3.0, -1.0)),
    "spikes": np.where(TIMES % 40 == 0, 5.0, 0.0),
}


def noisy(truth="wave", seed=0, sigma=0.5):
    return TRUTHS[truth] + sigma * np.random.default_rng(seed).normal(size=300)


def hard():
    """A wave, then steps, at uneven times, with holes and weights."""
    draw = np.random.default_rng(5)
    x = np.where(TIMES < 150, np.sin(TIMES / 12), 2.0 * (TIMES // 40 % 2)) + 0.4 * draw.normal(size=300)
    x[[0, 1, 30, 31, 200, 299]] = NAN
    return x, {"times": np.cumsum(draw.uniform(0.2, 2.0, 300)), "weights": draw.uniform(0.3, 3.0, 300)}


@pytest.mark.parametrize("now", [0, 20, 99, 151, 298])
def test_a_causal_curve_does_not_change_when_the_future_does(now):
    x, inputs = hard()
    changed = np.where(np.arange(300) > now, -30.0 * x + 7.0, x)
    before, after = (overt.smooth(one, noise=0.4, causal=True, **inputs) for one in (x, changed))
    np.testing.assert_allclose(after[: now + 1], before[: now + 1], rtol=0, atol=1e-11)


def test_a_causal_curve_is_what_its_past_alone_gives():
    x = noisy("steps")
    whole = overt.smooth(x, noise=0.5, causal=True)
    for now in (5, 99, 100, 104, 240):
        assert overt.smooth(x[: now + 1], noise=0.5, causal=True)[-1] == pytest.approx(whole[now], abs=1e-11)


@pytest.mark.parametrize("causal", [False, True])
def test_without_the_native_core_it_gives_the_same(causal, monkeypatch):
    x, inputs = hard()
    compiled = analyze(x, causal=causal, **inputs)
    monkeypatch.setattr(native, "available", lambda: False)
    plainly = analyze(x, causal=causal, **inputs)
    np.testing.assert_allclose(plainly.values, compiled.values, rtol=0, atol=1e-10)
    np.testing.assert_allclose(plainly.deviation, compiled.deviation, rtol=1e-8)
    np.testing.assert_allclose(plainly.mixture, compiled.mixture, rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_points_may_come_in_any_order_with_their_times(causal):
    x, inputs = hard()
    order = np.random.default_rng(1).permutation(300)
    shuffled = {name: column[order] for name, column in inputs.items()}
    expected = overt.smooth(x, causal=causal, **inputs)[order]
    np.testing.assert_array_equal(overt.smooth(x[order], causal=causal, **shuffled), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_shifted_and_scaled_values_are_shifted_and_scaled_curves(causal):
    x, inputs = hard()
    expected = 7.0 * overt.smooth(x, causal=causal, **inputs) + 1e3
    np.testing.assert_allclose(overt.smooth(7.0 * x + 1e3, causal=causal, **inputs), expected, rtol=0, atol=1e-9)


def test_a_curve_upside_down_is_the_curve_of_the_series_upside_down():
    np.testing.assert_array_equal(overt.smooth(-noisy("spikes")), -overt.smooth(noisy("spikes")))


def test_a_series_reversed_has_the_curve_reversed():
    # Risks are added up in blocks from the first point on: only whole blocks are the same from the end. The first points of segments that
    # are dropped are not those from the end either.
    whole = np.lcm.reduce([width // mixture.FINENESS for width in mixture.CAUSAL_WIDTHS])
    for count, off in ((whole, 1e-5), (500, 0.05)):
        x = np.sin(np.arange(count) / 9) + np.random.default_rng(0).normal(size=count)
        np.testing.assert_allclose(overt.smooth(x[::-1], noise=1.0)[::-1], overt.smooth(x, noise=1.0), rtol=0, atol=off)


@pytest.mark.parametrize("causal", [False, True])
def test_a_value_of_weight_zero_is_a_missing_one(causal):
    x, inputs = hard()
    without, dropped = x.copy(), inputs["weights"].copy()
    without[[50, 160]], dropped[[50, 160]] = NAN, 0.0
    times, weights = inputs["times"], inputs["weights"]
    result = overt.smooth(x, times=times, weights=dropped, causal=causal)
    np.testing.assert_array_equal(result, overt.smooth(without, times=times, weights=weights, causal=causal))


@pytest.mark.parametrize("causal", [False, True])
def test_the_shares_of_the_heads_add_up_to_one_over_time(causal):
    x, inputs = hard()
    result = analyze(x, causal=causal, **inputs)
    assert result.mixture.shape == (len(result.heads), 300)
    assert len(set(result.heads)) == len(result.heads)
    assert result.mixture.min() >= 0
    np.testing.assert_allclose(result.mixture.sum(axis=0), 1.0, rtol=1e-12)


def test_a_long_series_has_its_mixture_summed_up_in_some_hundred_cells():
    result = analyze(np.random.default_rng(0).normal(size=3001))
    assert result.mixture.shape == (len(result.heads), 400)
    np.testing.assert_allclose(result.mixture.sum(axis=0), 1.0, rtol=1e-12)


def test_patches_join_short_series_and_those_without_segments():
    def has_patches(points, **options):
        x = np.random.default_rng(1).normal(size=points) + np.arange(points) / 100
        return any("patches" in head for head in analyze(x, noise=1.0, **options).heads)

    assert has_patches(bank.PATCHED)
    assert not has_patches(bank.PATCHED + 1)
    assert has_patches(bank.PATCHED + 1, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_guided_heads_have_one_bandwidth_of_the_pilot_in_long_series(causal, monkeypatch):
    monkeypatch.setattr(bank, "LONG", 600)
    x = np.random.default_rng(1).normal(size=601)
    every, scales = bank.PILOT_BANDWIDTHS, bank.LONG_PILOT_BANDWIDTHS
    for points, expected in ((600, every), (601, every if causal else scales)):
        result = analyze(x[:points], noise=1.0, causal=causal, robust=False)
        assert sum("guided" in head for head in result.heads) == len(expected) * len(bank.GUIDED[-1])
        assert np.nansum(result.weights(300) * x[:points]) == pytest.approx(result.values[300], abs=1e-9)


def test_stretches_are_whole_blocks_of_risks():
    for step in (*(width // mixture.FINENESS for width in mixture.CAUSAL_WIDTHS), mixture.BLOCK):
        assert bank.STRETCH % step == bank.MARGIN % step == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.few_cases(1)
def test_stretches_give_nearly_what_the_whole_gives(causal, monkeypatch):
    # What a margin cuts off is the far end of the widest averages, which counts where heads are nearly as good, at jumps.
    draw, times = np.random.default_rng(0), np.arange(15360)
    x = np.where(times % 700 < 300, 2.0, 0.0) + np.sin(times / 100) + 0.5 * draw.normal(size=times.size)
    whole = overt.smooth(x, noise=0.5, causal=causal)
    monkeypatch.setattr(bank, "STRETCH", 1920)
    off = np.abs(overt.smooth(x, noise=0.5, causal=causal) - whole) / 0.5
    assert 0 < off.max() < 0.15
    assert np.sqrt(np.mean(off**2)) < 0.003
    assert np.median(off) < 1e-4  # the error of the curve is 0.17


def errors(truth, ways, seeds=4):
    """Mean squared errors of several smoothers (ways,), in units of the noise's variance."""
    result = [[np.mean((overt.smooth(noisy(truth, s), **way) - TRUTHS[truth]) ** 2) for way in ways] for s in range(seeds)]
    return np.mean(result, axis=0) / 0.5**2


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.few_cases(1)
def test_it_is_hardly_worse_than_any_one_kind_of_keys(truth):
    single = [{"keys": "time"}, {"keys": "time", "degree": 2}, {"keys": "value"}, {"keys": "patch"}]
    mixed, *others = errors(truth, [{}, *single])
    assert mixed < 1.1 * min(others)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.few_cases(1)
def test_seeing_the_future_helps(truth):
    two_sided, causal = errors(truth, [{}, {"causal": True}], seeds=4)
    assert two_sided < causal < 0.5


def off_the_true_risk(causal, truth, seeds):
    """Estimated minus true mean squared error, in units of the noise's variance (seeds,)."""
    result = []
    for seed in range(seeds):
        one = analyze(noisy(truth, seed), noise=0.5, causal=causal)
        result.append(one.risk - np.mean((one.values - TRUTHS[truth]) ** 2))
    return np.array(result) / 0.5**2


def test_the_estimated_risk_is_nearly_the_true_one_on_average():
    off = np.concatenate([off_the_true_risk(False, truth, 8) for truth in TRUTHS])
    assert abs(off.mean()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_estimated_risk_is_the_true_one_to_three_hundredths_of_the_noise(truth, causal):
    off = off_the_true_risk(causal, truth, 100)
    assert abs(off.mean()) < 0.03
    assert off.std() / 10 < 0.01


def test_stretches_beside_each_other_give_what_they_give_in_turn(monkeypatch):
    for name, points in (("BLOCK", 100), ("STRETCH", 300), ("MARGIN", 500)):
        monkeypatch.setattr(bank, name, points)
    x = np.sin(np.arange(2000) / 300) + 0.4 * np.random.default_rng(0).normal(size=2000)
    curves = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(native, "threads", lambda threads=threads: threads)
        result = analyze(x, noise=0.4)
        curves.append((result.values, result.upper, result.mixture))
    for curve in curves[1:]:
        for one, other in zip(curves[0], curve, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [1, 1920, 34 * 1920, 34 * 1920 + 1, 100_000, 1_000_000])
def test_stretches_are_whole_blocks_as_equal_as_these_allow_and_leave_nothing_out(count):
    stretches = bank._stretches(count)
    assert [stretch.start for stretch in stretches] == [0, *(stretch.stop for stretch in stretches[:-1])]
    assert stretches[-1].stop == count
    assert all(stretch.start % bank.BLOCK == 0 for stretch in stretches)
    lengths = [stretch.stop - stretch.start for stretch in stretches]
    assert max(lengths) <= bank.STRETCH
    assert len(stretches) == -(-count // bank.STRETCH)
