"""Values that repeat: runs without noise beside others with it, held values, and zeros where nothing happened."""

import numpy as np
import pytest

import overt
from overt.smoothing import analyze
from overt.smoothing.batch import Task, smooth_tasks
from overt.smoothing.data.events import NOT_NORMAL, event_length
from overt.smoothing.data.repeats import flat_runs, hold_length
from overt.smoothing.selection.noise import REPEATED, estimate_noise
from overt.smoothing.selection.rounding import repeated_level

STEPS = np.arange(1000)


def days(seed, length=50, share=0.5, level=0.1):
    """Days with noise and nights of zeros: (truth, series, where it is day)."""
    draw = np.random.default_rng(seed)
    phase = STEPS % length / length
    day = phase > share
    truth = np.where(day, 1 + np.sin(np.pi * (phase - share) / (1 - share)), 0.0)
    return truth, truth + level * day * draw.normal(size=STEPS.size), day


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("length", "share"), [(25, 0.3), (50, 0.5), (200, 0.6)])
def test_nights_stay_and_days_are_smoothed(length, share, seed):
    truth, x, day = days(seed, length, share)
    result = analyze(x)
    np.testing.assert_array_equal(result.repeats.flat, ~day)
    np.testing.assert_array_equal(result.values[~day], 0.0)
    assert np.mean((result.values - truth) ** 2) < 0.35 * np.mean((x - truth) ** 2)
    assert result.noise == pytest.approx(0.1, rel=0.3)
    assert np.mean((result.lower <= truth) & (truth <= result.upper)) > 0.9
    assert (
        f"{np.sum(~day)} points in runs of equal values have no noise, unlike the others, and stay unchanged" in result.sentence
    )
    assert result.filled == 0


def test_the_risk_is_that_of_all_points():
    risks, errors = np.transpose([(result.risk, np.mean((result.values - truth) ** 2)) for truth, result in smoothed_days(12)])
    assert 0.5 < risks.mean() / errors.mean() < 2


def smoothed_days(count):
    for seed in range(count):
        truth, x, _ = days(seed, 100, 0.5)
        yield truth, analyze(x)


def test_a_sensor_that_is_stuck_hides_no_noise_elsewhere():
    draw = np.random.default_rng(0)
    truth = np.where(STEPS < 600, 0.3, np.sin(STEPS / 30))
    x = np.where(STEPS < 600, 0.3, truth + 0.3 * draw.normal(size=STEPS.size))
    result = analyze(x)
    assert result.repeats.flat.sum() == 600
    assert result.noise == pytest.approx(0.3, rel=0.1)
    assert np.mean((result.values - truth) ** 2) < 0.1 * np.mean((x - truth) ** 2)


def test_missing_values_and_unsorted_times_change_nothing():
    _, x, day = days(1)
    x[::7] = np.nan
    known = ~np.isnan(x)
    order = np.random.default_rng(0).permutation(x.size)
    result, shuffled = analyze(x), analyze(x[order], times=STEPS[order].astype(float))
    np.testing.assert_array_equal(result.repeats.flat[known], ~day[known])
    assert result.repeats.flat[~known].sum() > 50
    np.testing.assert_array_equal(result.values[result.repeats.flat], 0.0)
    np.testing.assert_array_equal(shuffled.repeats.flat, result.repeats.flat[order])
    np.testing.assert_allclose(shuffled.values, result.values[order], rtol=1e-9)
    assert result.filled == np.sum(~known)


def test_weights_of_a_flat_point_are_its_own():
    _, x, day = days(2)
    result = analyze(x)
    missing = int(np.flatnonzero(~day)[4])
    x[missing] = np.nan
    assert analyze(x).weights(missing).nonzero()[0].tolist() == [missing - 1]
    x[missing] = 0.0
    for point in (int(np.flatnonzero(~day)[3]), int(np.flatnonzero(day)[3]), -1):
        assert result.weights(point) @ x == pytest.approx(result.values[point], abs=1e-9)
    night = int(np.flatnonzero(~day)[3])
    assert result.weights(night - x.size).nonzero()[0].tolist() == [night]


def test_between_the_points_of_a_flat_run_is_the_run():
    _, x, day = days(2)
    night = int(np.flatnonzero(~day & np.roll(~day, -1))[0])
    values, lower, upper = analyze(x).at([night, night + 0.5], band=True)
    np.testing.assert_allclose(values, 0.0, atol=1e-12)
    assert upper[0] - lower[0] < 1e-12
    assert upper[1] >= 0.0


def test_several_short_series_give_what_each_gives():
    tasks = [Task(str(seed), days(seed)[1][:150], None, {}) for seed in range(4)]
    for task, curve in zip(tasks, smooth_tasks(tasks), strict=True):
        np.testing.assert_allclose(curve.values, analyze(task.values).values, rtol=1e-9)
        assert (curve.values == 0.0).sum() >= 60


def test_columns_are_judged_each_by_itself():
    truth, x, _ = days(3)
    table = overt.smooth(np.stack([x, truth + 0.1 * np.random.default_rng(0).normal(size=x.size)], axis=1))
    np.testing.assert_allclose(table[:, 0], overt.smooth(x), rtol=1e-9)
    assert (table[:, 1] != 0.0).all()


@pytest.mark.parametrize("choice", [{"keys": "time"}, {"span": 10}, {"causal": True}])
def test_what_is_chosen_by_hand_smooths_all_by_the_noise_of_the_others(choice):
    result = analyze(days(4)[1], **choice)
    assert result.noise == pytest.approx(0.1, rel=0.2)
    assert not result.repeats.flat.any()


def test_a_noise_that_is_passed_is_that_of_all_points():
    assert not analyze(days(5)[1], noise=0.1).repeats.flat.any()


@pytest.mark.parametrize(
    "values",
    [
        np.repeat(np.random.default_rng(0).normal(size=25), 40),  # steps without noise
        np.zeros(1000),
        np.round(np.sin(STEPS / 50) + 0.1 * np.random.default_rng(0).normal(size=1000), 1),  # rounded
        np.random.default_rng(0).normal(size=1000) * (np.random.default_rng(1).random(1000) < 0.3),  # rare events
        np.random.default_rng(0).normal(size=1000),
        np.array([3.0]),
        np.full(10, np.nan),
    ],
    ids=["steps", "constant", "rounded", "rare events", "noise", "one", "none"],
)
def test_nothing_else_is_a_flat_run(values):
    assert not flat_runs(values).any()


@pytest.mark.parametrize("step", [0.3, 0.5, 1.0, 2.5])
def test_rounded_noise_has_flat_runs_in_one_series_of_a_thousand_at_most(step):
    draw = np.random.default_rng(0)
    assert not any(flat_runs(np.round((np.sin(STEPS / 50) + draw.normal(size=1000)) / step)).any() for _ in range(200))


def test_a_stuck_sensor_of_rounded_values_is_seen():
    x = np.round(3 * np.sin(STEPS / 50) + 0.2 * np.random.default_rng(0).normal(size=1000), 1)
    x[300:360] = x[300]
    result = analyze(x)
    np.testing.assert_array_equal(result.repeats.flat.nonzero()[0], np.arange(300, 360))
    assert result.noise == pytest.approx(0.2, rel=0.15)


def test_steps_without_noise_still_have_none():
    x = np.repeat(np.random.default_rng(0).normal(size=25), 40)
    result = analyze(x)
    np.testing.assert_allclose(result.values, x, atol=1e-9)
    assert result.noise == 0.0


@pytest.mark.parametrize("hold", [2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few_cases(4)
def test_of_values_that_are_held_the_first_counts(hold, seed):
    noisy = np.sin(STEPS / 80) + 0.2 * np.random.default_rng(seed).normal(size=1000)
    x = np.repeat(noisy[::hold], hold)[:1000]
    result = analyze(x)
    assert result.repeats.hold == hold
    assert result.noise == pytest.approx(0.2, rel=0.25)
    np.testing.assert_allclose(result.values[::hold], analyze(noisy[::hold]).values, rtol=1e-9)
    assert np.mean((result.lower <= np.sin(STEPS / 80)) & (np.sin(STEPS / 80) <= result.upper)) > 0.8
    assert f"Each value is held for {hold} points: the first of them counts" in result.sentence
    assert result.filled == 0
    result = analyze(x, robust=False)
    assert result.weights(hold + 1) @ x == pytest.approx(result.values[hold + 1], abs=1e-9)


def test_a_hold_that_begins_before_the_series_is_found_too():
    x = np.repeat(np.random.default_rng(0).normal(size=200), 4)[3:]
    result = analyze(x)
    np.testing.assert_array_equal(
        result.repeats.copies.nonzero()[0] % 4, np.tile([0, 2, 3], 300)[: result.repeats.copies.sum()]
    )


@pytest.mark.parametrize(
    "values",
    [
        np.repeat(np.arange(250.0), 4),
        np.repeat(np.random.default_rng(0).normal(size=25), 40),
        np.random.default_rng(0).normal(size=999),
    ],
    ids=["staircase", "steps", "noise"],
)
def test_nothing_else_is_held(values):
    assert hold_length(values) == 1


def test_copies_at_random_have_the_noise_of_what_changes():
    draw = np.random.default_rng(0)
    x = np.sin(STEPS / 80) + 0.2 * draw.normal(size=1000)
    for i in np.flatnonzero(draw.random(1000) < 0.6):
        x[i] = x[i - 1]
    result = analyze(x)
    assert result.noise == pytest.approx(0.2, rel=0.5)
    assert result.withheld == REPEATED


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("rare", [0.25, 0.4, 0.6])
@pytest.mark.few_cases(2)
def test_zeros_where_nothing_happened_are_averaged(rare, decimals):
    draw = np.random.default_rng(0)
    rate = 1 + np.sin(STEPS / 60)
    x = np.where(draw.random(1000) < rare, rate * draw.gamma(1, 1 / rare, 1000), 0.0)
    result = analyze(x if decimals is None else np.round(x, decimals))
    assert np.mean((result.values - rate) ** 2) < 0.05 * np.mean((x - rate) ** 2)
    assert abs(np.mean(result.values) - np.mean(x)) < 0.1
    assert result.noise == pytest.approx(np.std(x - rate), rel=0.3)
    assert result.withheld == NOT_NORMAL
    assert f"averages of {result.repeats.events} points" in result.sentence


def rare_events(draw, count=1000):
    return np.where(draw.random(count) < 0.3, draw.gamma(2.0, size=count), 0.0)


def test_the_weights_of_rare_events_are_those_of_their_means():
    x = rare_events(np.random.default_rng(1), 300)
    result = analyze(x)
    block = slice(150 - result.repeats.events, 150)
    for point in (0, 100, 299):
        weights = result.weights(point)
        assert weights.sum() == pytest.approx(1)
        assert np.unique(weights[block].round(12)).size <= 2
        # The curve compares values, and is what its weights make of them but for values far out in the tails.
        assert weights @ x == pytest.approx(result.values[point], rel=0.1)
    assert np.array_equal(result.residuals, x - result.values)


def test_rare_events_that_go_back_in_time_are_the_same_series():
    x, times = rare_events(np.random.default_rng(4), 300), np.arange(300.0)
    forwards, backwards = analyze(x, times=times), analyze(x[::-1], times=times[::-1])
    assert backwards.repeats.events == forwards.repeats.events > 1
    np.testing.assert_allclose(backwards.values[::-1], forwards.values)
    np.testing.assert_allclose(backwards.weights(3)[::-1], forwards.weights(296), atol=1e-12)


def test_no_large_amount_is_an_outlier():
    draw = np.random.default_rng(6)
    for _ in range(10):
        claims = np.where(draw.random(600) < 0.35, draw.lognormal(0.0, 1.3, size=600), 0.0)
        assert not analyze(claims).outliers.any()


RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(
    "values",
    [
        np.maximum(np.sin(STEPS / 40) + 0.1 * RANDOM.normal(size=1000), 0),
        np.where(STEPS % 7 < 5, RANDOM.gamma(2.0, size=1000), 0),
        np.maximum(np.sin(2 * np.pi * STEPS / 24), 0) * (1 + 0.3 * RANDOM.normal(size=1000)),
        np.where(RANDOM.random(1000) < 0.6, 5 + np.sin(STEPS / 40) + 0.1 * RANDOM.normal(size=1000), 0),
        np.where(RANDOM.random(1000) < 0.4, RANDOM.normal(size=1000), 0),
        np.round(np.sin(STEPS / 40) + 0.3 * RANDOM.normal(size=1000)),
        np.repeat(RANDOM.normal(size=500), 2),
        np.zeros(1000),
    ],
    ids=["clipped", "weekends", "nights", "dropouts", "both signs", "rounded", "held", "constant"],
)
def test_nothing_else_is_a_rare_event(values):
    assert event_length(values) == 1


@pytest.mark.parametrize("missing", [0, 3])
def test_held_values_and_rare_events_are_filled_though_missing_ones_are_not(missing):
    x = np.repeat(np.random.default_rng(2).normal(size=100), 3)
    assert not np.isnan(analyze(x, fill=False).values).any()
    events = rare_events(np.random.default_rng(3))
    events[:missing] = np.nan
    assert np.isnan(analyze(events, fill=False).values).sum() == missing


@pytest.mark.parametrize("deviation", [0.7, 1.0, 2.0, 4.0])
def test_values_that_are_rounded_finely_are_not_repeated(deviation):
    x = np.round(30 * np.sin(STEPS / 50) + deviation * np.random.default_rng(0).normal(size=1000))
    assert (np.diff(x) == 0).mean() > 0.05
    estimate = estimate_noise(STEPS.astype(float), x)
    assert estimate.white
    assert estimate.level == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize(
    "values",
    [
        np.repeat(np.arange(200.0), 5),
        np.round(30 * np.sin(STEPS / 100)),
        np.zeros(1000),
        np.random.default_rng(0).normal(size=1000),
    ],
    ids=["staircase", "digits", "constant", "noise"],
)
def test_nothing_else_is_repeated(values):
    assert repeated_level(STEPS.astype(float), values, 0.0) is None
