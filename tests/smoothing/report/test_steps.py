"""`steps` are what was done: applied one after the other to the input they give the curve, and the report says no step that is not there."""

import pickle

import numpy as np
import pytest

from overt.smoothing import analyze

NAN = float("nan")
TIMES = np.arange(120.0)


def draw(seed=5):
    return np.random.default_rng(seed)


def wave(size=120):
    return 5 + 2 * np.sin(np.arange(size) / 15) + 0.4 * draw().normal(size=size)


def put(x, at, value):
    x = np.array(x)
    x[at] = value
    return x


def seasonal():
    return wave() + np.tile(3 * draw(7).normal(size=12), 10)


def counts(means):
    return draw().poisson(means).astype(float)


SERIES = {
    "white noise": (wave(), {}, "heads"),
    "outliers and tails": (put(wave() + 0.3 * draw(2).standard_t(2, 120), [40, 91], [30.0, -21.0]), {}, "outliers"),
    "codes": (put(wave(), [20, 21, 22, 90, 91, 100], -999.0), {}, "codes"),
    "codes, gaps left empty": (put(put(wave(), [20, 21, 22, 90], -999.0), slice(50, 60), NAN), {"fill": False}, "empty"),
    "gaps": (put(put(wave(), slice(50, 65), NAN), [3, 90, 119], NAN), {}, "filling"),
    "a season": (seasonal(), {"period": 12}, "season"),
    "a season, gaps and outliers": (put(put(seasonal(), slice(30, 38), NAN), [50, 100], 40.0), {"period": "auto"}, "season back"),
    "decades": (10 ** (np.sin(TIMES / 15) * 2 + 0.1 * draw().normal(size=120)), {}, "scale"),
    "a scale with gaps": (put(np.exp(wave() / 3), slice(50, 60), NAN), {"scale": "log"}, "back"),
    "rates": (1 / (1 + np.exp(-wave())), {"scale": "logit", "bounds": (0, 1)}, "bounds"),
    "angles": (np.mod(360 * TIMES / 47 + 10 * draw().normal(size=120), 360), {"circular": 360}, "scale"),
    "counts": (counts(np.maximum(wave(), 0.2)), {"noise": "poisson"}, "heads"),
    "counts, causal": (counts(np.maximum(wave(), 0.2)), {"noise": "poisson", "causal": True}, "scale"),
    "counts with a season in proportion": (
        counts(np.exp(1 + TIMES / 50 + np.tile([0.0, 0.5, 1.0, 0.3, -0.5, -1.0], 20))), {"noise": "poisson", "period": 6}, "season",
    ),
    "outcomes": ((draw().random(120) < 0.5 + 0.4 * np.sin(TIMES / 20)).astype(float), {}, "heads"),
    "amounts": ((2 + np.sin(TIMES / 20)) * draw().exponential(size=120), {}, "heads"),
    "held values": (np.repeat(wave(40), 3), {}, "repeats"),
    "rare events": (np.where(draw().random(300) < 0.15, draw(3).gamma(2.0, size=300), 0.0), {}, "repeats"),
    "flat runs": (put(put(wave(), slice(30, 50), 5.0), slice(90, 102), 6.0), {}, "flat"),
    "weights": (wave(), {"weights": put(draw().uniform(0.5, 2, 120), [30, 31], 0.0)}, "weights"),
    "reduced weights of outliers": (put(wave(), 40, 30.0), {"robust": True}, "heads"),
    "bounds": (np.maximum(wave() - 4, 0.0), {"bounds": (0, None), "scale": "linear"}, "bounds"),
    "two readings at each time": (wave(), {"times": TIMES // 2}, "ties"),
    "uneven times": (wave(), {"times": np.sort(draw().uniform(0, 100, 120))}, "heads"),
    "alternating noise": (wave() + np.tile([0.5, -0.5], 60) * draw(4).normal(size=120), {}, "heads"),
    "causal": (put(wave(), [0, 1, 77], NAN), {"causal": True}, "filling"),
    "one head": (put(wave(), slice(20, 23), NAN), {"keys": "patch"}, "heads"),
    "a span": (wave(), {"span": 15}, "heads"),
}  # fmt: skip


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", SERIES)
def test_the_steps_applied_to_the_input_give_the_curve(name):
    x, options, expected = SERIES[name]
    smoothing = analyze(x, **options)
    curve = smoothing.observed
    for step in smoothing.steps:
        curve = step.apply(curve)
    assert expected in [step.name for step in smoothing.steps]
    np.testing.assert_allclose(curve, smoothing.values, rtol=1e-9, atol=1e-9 * np.nanstd(x))


@pytest.mark.parametrize("name", SERIES)
def test_reports_name_a_transform_or_a_removal_only_with_its_step(name):
    x, options, _ = SERIES[name]
    smoothing = analyze(x, **options)
    names = {step.name for step in smoothing.steps}
    for words, step in {"logarithms": "scale", "2√": "scale", "log(x": "scale", "isolated outlier": "outliers", "are codes": "codes",
                        "filled from": "filling", "left empty": "empty", "averages of": "repeats", "A period of": "season"}.items():  # fmt: skip
        assert words not in smoothing.sentence or step in names


def test_values_in_the_tails_are_moved_by_a_step_and_the_explanation_says_how_many():
    smoothing = analyze(wave() + draw(2).standard_t(2, 120))
    [tails] = [step for step in smoothing.steps if step.name == "tails"]
    before = np.where(smoothing.outliers, NAN, smoothing.observed)
    moved = int(np.sum(np.nan_to_num(tails.apply(before) - before) != 0))
    assert tails.text.startswith(f"{moved} values in the tails of the noise were moved")
    assert tails.text in smoothing.explanation


@pytest.mark.parametrize("name", ["a season, gaps and outliers", "counts, causal"])
def test_a_result_whose_report_was_read_can_be_pickled(name):
    x, options, _ = SERIES[name]
    smoothing = analyze(x, **options)
    sentence, row = smoothing.sentence, smoothing.weights(60)
    loaded = pickle.loads(pickle.dumps(smoothing))
    assert loaded.sentence == sentence
    np.testing.assert_array_equal(loaded.weights(60), row)
