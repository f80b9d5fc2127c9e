"""Values on other scales, within bounds and round a circle: curve, band and error come back in the caller's units."""

import pickle

import numpy as np
import pytest

from overt.errors import InputError
from overt.smoothing import Online, analyze, smooth
from overt.smoothing.batch import Task, smooth_many

TIMES = np.arange(400)
WAVES = {
    "slow": np.sin(TIMES / 60),
    "two": np.sin(TIMES / 45) + 0.4 * np.cos(TIMES / 20),
    "bend": np.abs(TIMES - 200) / 100 - 1,
}


def noise(seed, size=400):
    return np.random.default_rng(seed).normal(size=size)


def turned(angles, turn=360.0):
    return (np.asarray(angles) + turn / 2) % turn - turn / 2


MADE = {
    "log": (lambda curve, level: np.exp(2 + curve + level), lambda curve: np.exp(2 + curve + 0.045)),
    "sqrt": (lambda curve, level: (4 + curve + level) ** 2, lambda curve: (4 + curve) ** 2 + 0.09),
    "logit": (
        lambda curve, level: 1 / (1 + np.exp(-2 - curve - level)),
        lambda curve: np.mean([1 / (1 + np.exp(-2 - curve - 0.3 * one)) for one in noise(0, 2000)], axis=0),
    ),
}


@pytest.mark.parametrize("scale", MADE)
@pytest.mark.parametrize("signal", WAVES)
def test_the_curve_on_a_scale_is_the_mean_of_the_values(scale, signal):
    make, mean = MADE[scale]
    errors, inside = [], []
    for seed in range(3):
        truth, smoothing = mean(WAVES[signal]), analyze(make(WAVES[signal], 0.3 * noise(seed + 10)), scale=scale)
        spread = make(WAVES[signal], 0.3) - make(WAVES[signal], -0.3)
        errors.append(np.sqrt(np.mean((smoothing.values - truth) ** 2)) / np.mean(spread / 2))
        inside.append(np.mean((smoothing.lower <= truth) & (truth <= smoothing.upper)))
        assert smoothing.noise == pytest.approx(np.sqrt(np.mean((spread / 2) ** 2)), rel=0.25)
        assert (smoothing.lower < smoothing.values).all()
    assert np.mean(errors) < 0.3
    assert np.mean(inside) > 0.85


NOISES = {
    "skewed": lambda curve, draw: draw.exponential(size=curve.size),
    "more where values are large": lambda curve, draw: _lognormal(0.1 + 0.3 * (WAVES["slow"] + 1), draw),
    "more where they are small": lambda curve, draw: _lognormal(0.7 - 0.3 * (WAVES["slow"] + 1), draw),
}


def _lognormal(levels, draw):
    return np.exp(levels * draw.normal(size=levels.size) - levels**2 / 2)


@pytest.mark.parametrize("kind", NOISES)
def test_the_mean_of_logarithms_follows_noise_that_is_skewed_or_varies_with_the_values(kind):
    truth, ratios, inside, noises = np.exp(3 + 2 * WAVES["slow"]), [], [], []
    for seed in range(6):
        values = truth * NOISES[kind](truth, np.random.default_rng(seed))
        smoothing = analyze(values, scale="log")
        ratios.append([part.mean() for part in np.array_split((smoothing.values / truth)[np.argsort(truth)], 3)])
        inside.append(np.mean((smoothing.lower <= truth) & (truth <= smoothing.upper)))
        noises.append(smoothing.noise / np.sqrt(np.mean((values - truth) ** 2)))
    assert np.exp(np.mean(np.log(ratios), axis=0)) == pytest.approx(np.ones(3), abs=0.12)
    assert np.mean(inside) > 0.85
    assert np.mean(noises) == pytest.approx(1, abs=0.15)


def test_a_smoothing_on_a_scale_can_be_pickled():
    for options in ({"scale": "log"}, {"scale": "logit", "bounds": (0, 1000)}, {"circular": 360}):
        smoothing = analyze(np.exp(2 + WAVES["slow"] + 0.3 * noise(1)), **options)
        copy = pickle.loads(pickle.dumps(smoothing))
        np.testing.assert_array_equal(copy.at([10.5]), smoothing.at([10.5]))
        np.testing.assert_array_equal(copy.upper, smoothing.upper)


def test_a_scale_smooths_what_it_makes_of_the_values():
    values = np.exp(2 + WAVES["slow"] + 0.3 * noise(1))
    logarithms, smoothing = analyze(np.log(values), scale="linear", noise="gaussian"), analyze(values, scale="log")
    assert smoothing.values == pytest.approx(np.exp(logarithms.values + logarithms.noise**2 / 2), rel=1e-9)
    assert smoothing.upper == pytest.approx(np.exp(logarithms.upper + logarithms.noise**2 / 2), rel=1e-9)
    times = [10.5, 200.25]
    assert smoothing.at(times) == pytest.approx(np.exp(logarithms.at(times) + logarithms.noise**2 / 2), rel=1e-9)


@pytest.mark.parametrize("high", [1.0, 100.0])
def test_rates_near_a_bound_are_recognized_and_others_are_not(high):
    rates = high / (1 + np.exp(-3.5 - WAVES["slow"] - 0.6 * noise(2)))
    assert analyze(rates).kind == "logits"
    assert "between 0 and" in analyze(rates).sentence
    assert analyze(rates, scale="linear").kind == ""
    assert analyze(high * (0.5 + 0.1 * WAVES["slow"] + 0.05 * noise(2))).kind == ""


@pytest.mark.filterwarnings("ignore:.*beyond the data")
def test_bounds_are_kept_by_curve_and_band():
    smoothing = analyze(
        np.abs(0.5 * WAVES["slow"] + 0.51 + 0.05 * noise(3)), bounds=(0, None), scale="linear", noise="gaussian"
    )
    assert smoothing.values.min() >= 0
    assert smoothing.lower.min() >= 0
    assert smoothing.at([3.3, 500.0], band=True).lower.min() >= 0


@pytest.mark.parametrize(("turn", "start"), [(360.0, 350.0), (24.0, 23.5), (2 * np.pi, 0.1)])
@pytest.mark.parametrize("signal", WAVES)
def test_angles_are_smoothed_the_shorter_way_round(turn, start, signal):
    straight = start + turn / 12 * WAVES[signal] + turn / 20 * noise(4)
    values, expected = np.mod(straight, turn), analyze(straight)
    smoothing = analyze(values, circular=turn)
    assert turned(smoothing.values - expected.values, turn) == pytest.approx(0, abs=1e-8 * turn)
    assert smoothing.upper - smoothing.values == pytest.approx(expected.upper - expected.values, rel=1e-6)
    assert smoothing.residuals == pytest.approx(expected.residuals, abs=1e-8 * turn)
    assert smoothing.risk == pytest.approx(expected.risk, rel=1e-6)
    assert smoothing.values.min() >= 0
    assert smoothing.values.max() < turn
    further = smooth(np.mod(values + 0.3 * turn, turn), circular=turn)  # where zero is does not matter
    assert turned(further - smoothing.values - 0.3 * turn, turn) == pytest.approx(0, abs=1e-6 * turn)


def test_angles_go_on_over_a_gap_and_at_other_times():
    truth = 340 + 0.2 * TIMES
    values = np.mod(truth + 8 * noise(5), 360)
    values[90:110] = np.nan
    smoothing = analyze(values, circular=360)
    assert np.abs(turned(smoothing.values - truth)).max() < 8
    assert np.abs(turned(smoothing.at([99.5]) - truth[99] - 0.1)).max() < 8


def test_values_that_wrap_are_asked_about_once():
    values = np.mod(355 + 8 * noise(6), 360)
    assert "circular=360 smooths them the shorter way round" in analyze(values).sentence
    assert "smooths them" not in analyze(values, circular=360).sentence
    assert "smooths them" not in analyze(180 + 8 * noise(6)).sentence


def test_numbers_that_mark_missing_values_are_missing():
    values = 20 + WAVES["slow"] + 0.2 * noise(7)
    broken = values.copy()
    broken[[3, 50, 51]] = -999, 85, 85
    expected = values.copy()
    expected[[3, 50, 51]] = np.nan
    assert smooth(broken, missing=[-999, 85]) == pytest.approx(smooth(expected))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "log"}, 'Expected values above 0 with scale="log", got -2 at [1], and 1 more.'),
        ({"scale": "logit", "bounds": (-2, 5)}, "Expected values above -2 and below 5"),
        ({"scale": "sqrt"}, "Expected values of 0 or more"),
        ({"bounds": (0, 9)}, "Expected values from 0 to 9, as bounds say, got -2 at [1], and 1 more."),
        ({"bounds": (3, 1)}, "Expected bounds as (low, high) with low below high"),
        ({"bounds": 3}, "Expected bounds as (low, high)"),
        ({"circular": 0}, "Expected circular as a full turn above 0"),
        ({"circular": 3}, "Expected values from -3 to 3 with circular=3, got 4 at [3]."),
        ({"circular": 360, "scale": "log"}, "Expected no bounds, scale or counts with circular values"),
        ({"missing": [1, -2, 3, 4, -1]}, "Expected missing to leave a value"),
        ({"missing": ["ERR"]}, "Expected missing as numbers"),
        ({"scale": "root"}, 'Expected scale="auto" or "linear"'),
    ],
)
def test_what_does_not_fit_is_a_sentence(options, message):
    with pytest.raises(InputError) as raised:
        analyze([1.0, -2.0, 3.0, 4.0, -1.0], **options)
    assert message in str(raised.value)


def test_a_stream_takes_values_as_they_are():
    with pytest.raises(InputError, match="a smoothing of the values as they are"):
        Online.like(analyze([1.0, 2.0, 3.0, 4.0], keys="time", bandwidth=1.0, causal=True, scale="log"))


def test_several_series_at_once_keep_bounds_and_missing_values_too():
    draw = np.random.default_rng(0)
    columns = [np.abs(draw.normal(size=90)) + 0.1 for _ in range(3)]
    columns[1][[4, 5]] = -999
    options = {"missing": [-999], "bounds": (0, None)}
    tasks = [Task(str(index), column, None, options) for index, column in enumerate(columns)]
    for index, curve in smooth_many(tasks):
        assert curve.values == pytest.approx(analyze(columns[index], **options).values, abs=1e-9)
    with pytest.raises(InputError, match=r"as bounds say \(series 1\), got -999 at \[4\]"):
        list(smooth_many([Task(str(index), column, None, {"bounds": (0, None)}) for index, column in enumerate(columns)]))
