"""Attention over heads: its weights by their definition, and its derivative by finite differences."""

import numpy as np
import pytest

import overt.smoothing.selection.bank.mixture as mixture
from overt import native
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.selection.bank.mixture import mix
from overt.smoothing.selection.bank.risk_sums import HeadOutputs, Observations

N, SIGMA = 400, 0.5
TIMES = np.arange(float(N))
TRUTHS = {
    "wave": np.sin(TIMES / 25),
    "steps": np.where(TIMES < 150, 0.0, 2.0) - np.where(TIMES > 300, 3.0, 0.0),
    "spikes": np.where(np.arange(N) % 50 == 0, 4.0, 0.0),
    "nothing": np.zeros(N),
}


@pytest.fixture(autouse=True, params=["numpy", "native"])
def form(request, monkeypatch):
    """With the native core and without."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "available", lambda: False)


def noisy(truth="wave", seed=0):
    return TRUTHS[truth] + SIGMA * np.random.default_rng(seed).normal(size=N)


def heads_of(x, causal=False):
    """Means and lines of five bandwidths, and the series itself."""
    side, rows = "past" if causal else "both", [(x, np.ones(N), np.full(N, SIGMA**2))]
    for bandwidth in (1.0, 3.0, 9.0, 27.0, 81.0):
        for degree in (0, 1):
            result = attend_time(TIMES, x, None, bandwidth, degree=degree, side=side)
            rows.append((result.values, result.leverages, SIGMA**2 * result.unit_variances))
    return HeadOutputs(*map(np.stack, zip(*rows, strict=True)))


def observed(x, sigma=SIGMA):
    return Observations(x, np.full(N, sigma))


def plain_weights(heads, visible, point, width, temperature, step, causal=False, premium=0.0):
    """softmax_k(−r_k N / temperature) at one point: κ falls from block to block of `step` points, those later than it left out."""
    known = np.isfinite(visible.noise)
    risks = np.where(known, ((visible.values - heads.values) / visible.noise) ** 2 - 1 + 2 * heads.leverages, 0.0)
    fading = np.clip(heads.leverages, 0, None) * np.clip(1 - 2 * heads.leverages, 0, None)
    risks += np.where(known, 2 * premium * fading, 0.0)
    away = np.arange(N) // step - point // step
    kappa = np.where(known, np.exp(-0.5 * (away * step / width) ** 2), 0.0)
    kappa[(np.abs(away) * step > mixture.CUT * width) | (causal & (np.arange(N) > point))] = 0.0
    mean, count = risks @ kappa / kappa.sum(), kappa.sum() ** 2 / (kappa**2).sum()
    weights = np.exp(-(mean - mean.min()) * count / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("premium", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
def test_each_width_weighs_by_the_mean_risk_around_a_point(causal, premium):
    x = noisy("steps")
    heads, visible = heads_of(x, causal), observed(x)
    visible.noise[100:120] = np.inf
    mixed = mix(heads, visible, causal=causal, premium=premium)
    for width, shares in zip(mixture.CAUSAL_WIDTHS if causal else mixture.WIDTHS, mixed.head_weights, strict=True):
        step = mixture.BLOCK if causal else width // mixture.FINENESS
        for block in range(N // step):
            point = block * step + (step - 1) // 2
            middle = np.array([point]) if causal else np.array([block * step + (step - 1) / 2])
            expected = plain_weights(heads, visible, point, width, mixture.TEMPERATURE, step, causal, premium)
            np.testing.assert_allclose(shares.at(middle)[0][:, 0], expected, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("truth", TRUTHS)
def test_weights_are_shares_of_the_whole_and_make_the_curve(truth, causal):
    x = noisy(truth)
    heads = heads_of(x, causal)
    mixed = mix(heads, observed(x), causal=causal)
    weights = mixed.weights(np.arange(N))
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose((weights * heads.values).sum(axis=0), mixed.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_that_are_alike_mix_to_themselves(copies, causal):
    x = noisy()
    one = HeadOutputs(*(column[4:5] for column in heads_of(x)))
    mixed = mix(HeadOutputs(*(np.repeat(column, copies, axis=0) for column in one)), observed(x), causal=causal)
    for column, expected in zip((mixed.values, mixed.leverages, mixed.variances), one, strict=True):
        np.testing.assert_allclose(column, expected[0], rtol=1e-9, atol=1e-12)


def test_each_head_is_used_where_it_is_the_better_one():
    count = 4 * N
    times = np.arange(count)
    x = np.where(times < count // 2, 0.0, 4.0 * np.sin(times)) + SIGMA * np.random.default_rng(0).normal(size=count)
    flat, itself = np.zeros(count), np.ones(count)
    heads = HeadOutputs(np.stack([flat, x]), np.stack([flat, itself]), np.stack([flat, SIGMA**2 * itself]))
    weights = mix(heads, Observations(x, SIGMA * itself)).weights(times)
    reach = mixture.CUT * mixture.WIDTHS[0] + mixture.WIDTHS[0] // mixture.FINENESS
    assert weights[0, : count // 2 - reach].min() > 0.9
    assert weights[1, count // 2 + reach :].min() > 0.9


@pytest.mark.few_cases(1)
def test_a_mixture_is_hardly_worse_than_the_best_of_its_heads():
    for truth in TRUTHS:
        errors = []
        for seed in range(20):
            x = noisy(truth, seed)
            heads = heads_of(x)
            curves = np.concatenate([heads.values, mix(heads, observed(x)).values[None]])
            errors.append(((curves - TRUTHS[truth]) ** 2).mean(axis=1))
        *each, mixed = np.mean(errors, axis=0)
        assert mixed < min(each) + 0.02 * SIGMA**2


def test_values_of_missing_points_do_not_count():
    x = noisy("steps")
    visible, heads = observed(x), heads_of(x)
    visible.noise[[0, 40, 41, 200, N - 1]] = np.inf
    other = visible._replace(values=np.where(np.isinf(visible.noise), 1e6, x))
    for column, same in zip(mix(heads, visible)[:3], mix(heads, other)[:3], strict=True):
        np.testing.assert_array_equal(column, same)


@pytest.mark.parametrize("causal", [False, True])
def test_risks_are_judged_in_units_of_each_points_own_noise(causal):
    x, factor = noisy("steps"), np.where(TIMES < 170, 1.0, 20.0)
    heads, points = heads_of(x, causal), np.arange(N)
    louder = heads._replace(values=factor * heads.values), Observations(factor * x, factor * SIGMA)
    expected = mix(heads, observed(x), causal=causal).weights(points)
    np.testing.assert_allclose(mix(*louder, causal=causal).weights(points), expected, rtol=0, atol=1e-12)


def test_a_causal_mixture_does_not_change_when_the_future_does():
    x = noisy("steps")
    heads = heads_of(x, causal=True)
    before = mix(heads, observed(x), causal=True)
    for now in (0, 5, 100, 203):
        later = np.arange(N) > now
        changed = HeadOutputs(*(np.where(later, 7.0, column) for column in heads))
        after = mix(changed, observed(np.where(later, -3.0, x)), causal=True)
        for column, same in zip(before[:3], after[:3], strict=True):
            np.testing.assert_allclose(column[: now + 1], same[: now + 1], rtol=0, atol=1e-12)


def of_curve(x, points, causal, mixed=None):
    """∂y_i/∂x_i by finite differences of the whole: heads, risks and mixture."""
    mixed = mixed or (lambda series: mix(heads_of(series, causal), observed(series), causal=causal))
    by, result = 1e-5, []
    for point in points:
        ends = [x + way * by * (np.arange(N) == point) for way in (1, -1)]
        above, below = (mixed(end).values[point] for end in ends)
        result.append((above - below) / (2 * by))
    return np.array(result)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.few_cases(1)
def test_the_slope_is_nearly_the_derivative_and_on_the_mean_not_below_it(truth, causal):
    # The residuals of neighbours move with a point, too, which the formula leaves out: some up, some down. A risk needs the mean.
    x, points = noisy(truth), np.arange(3, N, 19)
    over = mix(heads_of(x, causal), observed(x), causal=causal).leverages[points] - of_curve(x, points, causal)
    assert -0.003 < over.mean() < (0.03 if causal else 0.01)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.few_cases(1)
def test_the_slope_is_nearly_the_derivative_where_risks_are_in_other_units(truth):
    x, points, factors = noisy(truth), np.arange(3, N, 19), 1 + 0.6 * np.cos(TIMES / 60)

    def mixed(series):
        heads = heads_of(series)
        visible = Observations(series, SIGMA / np.sqrt(factors), factors)
        return mix(heads._replace(leverages=heads.leverages * factors), visible)

    assert -0.003 < (mixed(x).leverages[points] - of_curve(x, points, False, mixed)).mean() < 0.015


def test_the_slope_counts_how_the_weights_move():
    x, points = noisy("spikes"), np.arange(0, N, 50)
    heads = heads_of(x)
    mixed, leverages = mix(heads, observed(x)), of_curve(x, points, False)
    as_if_they_stood_still = (mixed.weights(points) * heads.leverages[:, points]).sum(axis=0)
    assert as_if_they_stood_still.mean() < 0.95 * leverages.mean()
    assert mixed.leverages[points].mean() == pytest.approx(leverages.mean(), rel=0.2)


def test_the_variance_is_wide_where_heads_disagree():
    x = noisy()
    apart = HeadOutputs(np.stack([x - 1, x + 1]), np.ones((2, N)), np.full((2, N), 0.09))
    mixed = mix(apart, observed(x, 100.0))  # so much noise that neither is the better one
    np.testing.assert_allclose(mixed.variances, 0.09 + 1, rtol=1e-3)
