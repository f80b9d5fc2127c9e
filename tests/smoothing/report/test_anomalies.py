"""Anomalies of a smoothing: what they are, when, how far from what is expected."""

import numpy as np
import pandas

from overt.smoothing import analyze


def noisy(seed, size=400):
    draw = np.random.default_rng(seed)
    return 20 + np.sin(np.arange(size) / 30) + 0.2 * draw.normal(size=size)


def test_outliers_runs_stuck_and_missing_values_are_told_apart_and_sorted():
    values = noisy(0)
    values[30] += 4
    values[100:104] = -999
    values[200:230] = values[200]
    values[300:310] = np.nan
    hits = analyze(values).anomalies()
    assert [(anomaly.time, anomaly.until, anomaly.kind, anomaly.points) for anomaly in hits] == [
        (30, 30, "point", 1), (100, 103, "run", 4), (200, 229, "stuck", 30), (300, 309, "missing", 10),
    ]  # fmt: skip
    assert 15 < hits[0].score < 25
    assert hits[0].value == values[30]
    assert abs(hits[0].expected - values[30] + 4) < 0.8
    assert np.isnan(hits[3].value)
    assert np.isnan(hits[2].score)


def test_noise_without_any_has_few():
    counts = [len(analyze(noisy(seed)).anomalies()) for seed in range(1, 21)]
    assert np.mean(counts) < 0.2


def test_times_are_those_that_were_passed_in_any_order():
    values, index = noisy(3), pandas.date_range("2024-01-01", periods=400, freq="h")
    values[50] -= 5
    order = np.random.default_rng(0).permutation(400)
    [anomaly] = analyze(values[order], times=index[order]).anomalies()
    assert pandas.Timestamp(anomaly.time) == index[50]
    assert anomaly.kind == "point"


def test_of_angles_the_shorter_way_counts():
    values = np.mod(355 + np.sin(np.arange(300) / 30) * 10 + np.random.default_rng(4).normal(size=300) * 3, 360)
    values[150] = 180
    [anomaly] = analyze(values, circular=360).anomalies()
    assert anomaly.time == 150
    assert anomaly.score > 20
