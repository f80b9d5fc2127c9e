"""Robust smoothing: what lies far from its neighbours counts for less, or for nothing."""

import numpy as np
import pytest

import overt
from overt.smoothing import analyze
from overt.smoothing.data.weights import outlier_weights
from overt.smoothing.selection.medians import CHUNK, MANY, medians, middle_network
from overt.smoothing.selection.outliers import clean

NAN = float("nan")
TIMES = np.arange(200.0)
TRUTH = np.sin(TIMES / 15)


def noisy(seed=0):
    return TRUTH + 0.2 * np.random.default_rng(seed).normal(size=200)


def struck(x, share=0.05, seed=0):
    """The series with some values far off."""
    draw = np.random.default_rng(seed)
    return np.where(draw.random(x.size) < share, x + draw.choice([-8.0, 8.0], x.size), x)


def plain_weights(x):
    """Bisquare weights of distances from the median of four neighbours to either side, the series mirrored at its ends."""
    mirrored = {**dict(enumerate(x)), **{-i: x[i] for i in range(1, 5)}, **{x.size - 1 + i: x[-1 - i] for i in range(1, 5)}}
    off = np.array([x[i] - np.median([mirrored[i + k] for k in range(-4, 5) if k]) for i in range(x.size)])
    far = 6 * np.median(np.abs(off))
    return np.where(np.abs(off) < far, (1 - (off / far) ** 2) ** 2, 0.0)


def test_weights_are_bisquares_of_the_distance_from_the_neighbours_median():
    x = struck(noisy())
    np.testing.assert_allclose(outlier_weights(x), plain_weights(x), rtol=1e-12)
    assert (outlier_weights(x) == 0).any()


@pytest.mark.parametrize("x", [[1.0], [1.0, 90.0], [2.0, 2.0, 2.0, 2.0]])
def test_too_few_and_constant_values_keep_their_weight(x):
    np.testing.assert_array_equal(outlier_weights(np.array(x)), np.ones(len(x)))


def test_values_off_a_constant_count_for_nothing():
    np.testing.assert_array_equal(outlier_weights(np.array([3.0, 3.0, 3.0, 9.0, 3.0, 3.0, 3.0])), [1, 1, 1, 0, 1, 1, 1])


@pytest.mark.parametrize("keys", ["auto", "time", "value", "both", "patch"])
def test_a_robust_curve_hardly_notices_outliers(keys):
    x, clean = struck(noisy()), overt.smooth(noisy(), keys=keys, robust=True)
    off = np.sqrt(np.mean((overt.smooth(x, keys=keys, robust=True) - clean) ** 2))
    assert off < 0.15
    assert off < 0.2 * np.sqrt(np.mean((overt.smooth(x, keys=keys, robust=False) - clean) ** 2))


@pytest.mark.parametrize("keys", ["auto", "time"])
def test_robust_is_giving_the_weights_of_outliers(keys):
    x = struck(noisy())
    weights = outlier_weights(x)
    robust, weighted = (
        overt.smooth(x, keys=keys, robust=True),
        overt.smooth(x, keys=keys, weights=weights, robust=False),
    )
    np.testing.assert_array_equal(robust[weights > 0], weighted[weights > 0])
    # A weight of 0 is a missing value, which the automatic heads fill as a gap; at an outlier their curve stays.
    np.testing.assert_allclose(robust, weighted, atol=0.1 if keys == "auto" else 0)


def test_neighbours_are_those_in_time_whatever_the_order():
    x, order = struck(noisy()), np.random.default_rng(1).permutation(200)
    expected = overt.smooth(x, times=TIMES, keys="time", robust=True)[order]
    np.testing.assert_allclose(overt.smooth(x[order], times=TIMES[order], keys="time", robust=True), expected, rtol=1e-12)


def test_an_outlier_is_not_missing():
    x = np.where(TIMES == 100, 50.0, noisy())
    x[20] = NAN
    result = analyze(x, keys="time", robust=True, fill=False)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(result.values)), [20])
    assert analyze(x, keys="time", robust=True).filled == 1


def test_given_weights_and_those_of_outliers_are_multiplied():
    x, weights = struck(noisy()), np.random.default_rng(0).uniform(0.3, 3.0, 200)
    expected = overt.smooth(x, keys="time", weights=weights * outlier_weights(x))
    np.testing.assert_array_equal(overt.smooth(x, keys="time", weights=weights, robust=True), expected)


def test_values_beside_wild_ones_are_moved_once_these_are_out():
    """Beside a wild value another, less far out, does not stand alone: that is seen when the first has gone."""
    unmoved = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        values = random.normal(size=1000)
        wild = random.choice(np.arange(20, 980, 8), 40, replace=False)
        values[wild] += 9 * random.choice([-1, 1], 40)
        beside = wild[:12] + 3
        values[beside] = np.sign(values[wild[:12]]) * 4.2
        cleaned = clean(values, 1.0)
        assert cleaned.outliers[wild].mean() > 0.8
        unmoved += [*(np.abs(cleaned.values[beside]) > 4)[~cleaned.outliers[beside]]]
    assert np.mean(unmoved) < 0.15  # by the first look alone it is a quarter


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 12, 13, 25])
@pytest.mark.parametrize("points", [1, 50, MANY, CHUNK + 1])
def test_medians_are_numpys_to_the_bit(count, points):
    columns = np.random.default_rng(count).normal(size=(count, points)).round(1)  # with equal ones
    columns[:, points // 2] = np.sort(columns[:, points // 2])[::-1]
    np.testing.assert_array_equal(medians([*columns]), np.median(columns, axis=0))


@pytest.mark.parametrize("count", range(1, 12))
def test_the_network_finds_the_middle_of_every_order_of_zeros_and_ones(count):
    """Knuth's zero-one principle: what sorts all these sorts all numbers."""
    bits = (np.arange(2**count) >> np.arange(count)[:, None]) & 1
    ranked = [*bits]
    for low, high in middle_network(count):
        ranked[low], ranked[high] = np.minimum(ranked[low], ranked[high]), np.maximum(ranked[low], ranked[high])
    middle = [(count - 1) // 2, count // 2]
    np.testing.assert_array_equal([ranked[row] for row in middle], np.sort(bits, axis=0)[middle])


@pytest.mark.parametrize("size", [300, 1024])
@pytest.mark.parametrize("height", [8.0, -25.0])
def test_two_values_side_by_side_are_never_lost_without_a_word(size, height):
    for seed in range(5):
        truth = 3 * np.sin(np.arange(size) / 60)
        truth[[size // 2, size // 2 + 1]] += height
        result = analyze(truth + np.random.default_rng(seed).normal(size=size))
        lost = np.abs(result.values - truth) > 0.5 * abs(height)
        assert not lost.any() or (height == 8 and "1 isolated outlier was removed" in result.sentence)


def test_a_value_beyond_a_gap_is_an_outlier_only_beside_others_beyond_gaps():
    draw = np.random.default_rng(4)
    times = np.cumsum(draw.gamma(0.5, 2, 1000))
    for truth, wild in ((np.sin(times / 2), False), (np.sin(times / 60), True)):
        far = 1 + int(np.argmax(np.minimum(np.diff(times)[:-1], np.diff(times)[1:])))
        x = truth + 0.05 * draw.normal(size=1000)
        x[far] = truth[far] + (1.0 if wild else 0.0)
        assert analyze(x, times=times).outliers[far] == wild


# Lynx trapped in Canada in each year from 1821 to 1934 (Elton and Nicholson 1942).
LYNX = """
269 321 585 871 1475 2821 3928 5943 4950 2577 523 98 184 279 409 2285 2685 3409 1824 409 151 45 68 213 546 1033 2129 2536 957 361 377 225
360 731 1638 2725 2871 2119 684 299 236 245 552 1623 3311 6721 4254 687 255 473 358 784 1594 1676 2251 1426 756 299 201 229 469 736 2042
2811 4431 2511 389 73 39 49 59 188 377 1292 4031 3495 587 105 153 387 758 1307 3465 6991 6313 3794 1836 345 382 808 1388 2713 3800 3091
2985 3790 674 81 80 108 229 399 1132 2432 3574 2935 1537 529 485 662 1000 1590 2657 3396
"""


def test_a_peak_of_a_quick_series_is_no_outlier_where_its_neighbours_are_missing():
    x = np.array(LYNX.split(), dtype=float)
    peaks = [year for year in range(4, 110) if x[year] == x[year - 3 : year + 4].max()]
    assert len(peaks) == 11
    for peak in peaks:
        without = x.copy()
        without[[peak - 1, peak + 1]] = NAN
        assert not analyze(without).outliers[peak]
    one = noisy()
    one[80] += 3
    one[[79, 81]] = NAN
    assert np.flatnonzero(analyze(one).outliers).tolist() == [80]


def test_an_outlier_among_several_values_of_each_time_is_removed():
    times = np.repeat(np.arange(40.0), 6)  # the median step is 0
    x = np.sin(times / 9) + 0.2 * np.random.default_rng(0).normal(size=240)
    x[100] += 9
    assert np.flatnonzero(analyze(x, times=times).outliers).tolist() == [100]


def with_runs(runs, seed=0):
    """A wave with noise of 0.3, with so much added to runs of values."""
    values = 3 * np.sin(np.arange(400) / 30) + 0.3 * np.random.default_rng(seed).normal(size=400)
    for start, length, height in runs:
        values[start : start + length] += height
    return values


@pytest.mark.parametrize(
    "runs",
    [
        [(100, 4, 4.0), (260, 6, -4.0)],
        [(200, 9, 3.5)],
        [(60, 3, -5.0), (300, 12, 5.0), (350, 3, 5.0)],
        [(120, 2, 4.0), (310, 2, 4.0)],
    ],
)
def test_no_error_is_stated_where_short_runs_may_be_errors_or_events(runs):
    values = with_runs(runs)
    result = analyze(values)
    assert result.lower is None
    assert f"from row {runs[0][0] + 1}" in result.withheld
    for start, length, _ in runs:
        values[start : start + length] = np.nan
    assert analyze(values).lower is not None


def test_several_short_runs_to_one_side_are_events():
    assert analyze(with_runs([(60, 5, 4.0), (150, 5, 4.0), (290, 5, 4.0)])).lower is not None


def test_all_runs_are_events_if_the_caller_says_so():
    assert analyze(with_runs([(100, 4, 4.0), (260, 6, -4.0)]), robust=False).lower is not None


@pytest.mark.parametrize("share", [0.14, 0.18])
def test_outliers_that_break_the_level_of_contrasts_are_removed(share):
    draw = np.random.default_rng(3)
    truth = 3 * np.sin(np.arange(400) / 30)
    values = truth + 0.3 * draw.normal(size=400)
    wild = draw.choice(400, round(share * 400), replace=False)
    values[wild] += 4 * draw.choice([-1, 1], wild.size)
    result = analyze(values)
    assert result.outliers[wild].mean() > 0.9
    assert np.mean((result.values - truth) ** 2) < 0.02


@pytest.mark.parametrize("period", [19.0, 27.4, 41.7])
def test_a_pulse_with_a_dip_that_recurs_is_kept_in_a_short_series(period):
    errors = []
    for seed in range(4):
        phase = (np.arange(400) / period + 0.1 * seed) % 1
        truth = np.exp(-0.5 * ((phase - 0.4) * period / 1.2) ** 2) - 0.35 * np.exp(-0.5 * ((phase - 0.6) * period / 1.4) ** 2)
        truth /= truth.std()
        result = analyze(truth + 0.1 * np.random.default_rng(seed).normal(size=400))
        assert not result.outliers.any()
        errors.append(np.mean((result.values - truth) ** 2))
    assert np.median(errors) < 0.01


@pytest.mark.parametrize("share", [0.03, 0.1])
def test_outliers_at_random_do_not_repeat(share):
    removed = []
    for seed in range(6):
        draw = np.random.default_rng(50 + seed)
        bad = draw.random(400) < share
        result = analyze(np.sin(np.arange(400) / 40) + 0.1 * draw.normal(size=400) + bad * draw.choice([-3.0, 3.0], 400))
        removed.append(result.outliers[bad].mean())
    assert np.mean(removed) > 0.9


@pytest.mark.parametrize(("points", "ratio"), [(400, 12), (400, 40), (1200, 12)])
def test_narrow_peaks_at_irregular_times_are_kept_because_of_their_shoulders(points, ratio):
    errors = []
    for seed in range(4):
        draw, times = np.random.default_rng(30 + seed), np.arange(points)
        middles = np.cumsum(draw.uniform(14, 45, points // 25))
        truth = sum(np.exp(-0.5 * ((times - middle) / draw.uniform(0.9, 1.5)) ** 2) for middle in middles)
        truth = truth / truth.std()
        errors.append(np.mean((analyze(truth + draw.normal(size=points) / ratio).values - truth) ** 2) * ratio**2)
    assert np.max(errors) < 1.0  # in the noise's variance: without these peaks it is 100 and more


def test_the_report_says_why_peaks_were_kept():
    times, draw = np.arange(500), np.random.default_rng(8)
    middles = np.cumsum(draw.uniform(14, 40, 17))
    peaks = sum(6 * np.exp(-0.5 * ((times - middle) / 1.1) ** 2) for middle in middles)
    assert "their neighbours rise or fall with them" in analyze(peaks + 0.1 * draw.normal(size=500)).sentence


@pytest.mark.parametrize(("period", "points"), [(12.4, 600), (17, 1200), (24, 300)])
def test_outliers_in_a_quick_signal_are_removed(period, points):
    missed, wrong = [], []
    for seed in range(4):
        draw, times = np.random.default_rng(60 + seed), np.arange(points)
        truth = np.sin(2 * np.pi * times / period) * (1 + 0.3 * np.sin(times / 90))
        bad = np.zeros(points, dtype=bool)
        bad[8 + 30 * np.arange(points // 30) + draw.integers(0, 15, points // 30)] = True
        values = truth + 0.05 * draw.normal(size=points) + bad * draw.choice([-1, 1], points) * draw.uniform(0.6, 1.5, points)
        outliers = analyze(values).outliers
        missed.append(1 - outliers[bad].mean())
        wrong.append(outliers[~bad].sum())
    assert np.mean(missed) < 0.3  # medians of neighbours see none of them
    assert np.mean(wrong) <= 0.5


@pytest.mark.parametrize("shape", ["sawtooth", "square", "pulses of two"])
def test_points_next_to_jumps_of_a_quick_signal_are_no_outliers(shape):
    for seed in range(4):
        draw, times = np.random.default_rng(70 + seed), np.arange(600)
        truth = {
            "sawtooth": (times / draw.uniform(9, 30)) % 1,
            "square": (times // draw.integers(5, 20)) % 2,
            "pulses of two": (times % draw.integers(14, 40)) < 2,
        }[shape].astype(float)
        truth /= truth.std()
        for ratio in (5, 12):
            assert analyze(truth + draw.normal(size=600) / ratio).outliers.sum() <= 1


def test_values_that_may_be_peaks_withhold_the_band_until_the_analyst_decides():
    draw = np.random.default_rng(4)
    values = np.sin(np.arange(120) / 20) + 0.1 * draw.normal(size=120)
    values[[25, 54, 83]] += 2.0
    unknown = analyze(values)
    assert unknown.lower is None
    assert unknown.outliers.sum() == 0
    assert unknown.sentence.count("3 isolated values stand far out and were kept") == 1
    assert "pass robust=True if they are outliers, or robust=False if they are peaks" in unknown.withheld
    assert "No outliers were found" not in unknown.sentence
    assert analyze(values, robust=False).lower is not None


def test_outliers_that_medians_hide_are_found_next_to_the_waves_of_a_series():
    times, removed = np.arange(400), []
    packets = [
        np.exp(-0.5 * ((times - middle) / 40) ** 2) * np.sin(2 * np.pi * times / period)
        for middle, period in ((110, 12), (290, 16))
    ]
    for seed in range(5):
        draw = np.random.default_rng(90 + seed)
        bad = 10 + 20 * np.arange(19) + draw.integers(0, 12, 19)
        values = sum(packets) + 0.06 * draw.normal(size=400)
        values[bad] += draw.choice([-1, 1], 19) * draw.uniform(0.6, 1.6, 19)
        outliers = analyze(values).outliers
        assert outliers.sum() == outliers[bad].sum()
        removed.append(outliers.sum())
    assert np.mean(removed) > 18  # of 19; the medians alone find 10 or 11
