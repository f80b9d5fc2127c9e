"""Columns that share times: each as if alone, and the outliers that several share."""

import numpy as np
import pandas
import pytest

from overt.errors import InputError
from overt.smoothing import analyze, analyze_columns


@pytest.fixture(scope="module")
def table():
    values = np.random.default_rng(0).normal(size=(150, 3)) + 10
    values[40, [0, 2]] = 50
    values[90, 1] = 50
    return pandas.DataFrame(values, columns=["a", "b", "c"], index=pandas.date_range("2024-01-01", periods=150))


def test_each_column_is_smoothed_as_if_alone(table):
    columns = analyze_columns(table)
    for name in table:
        np.testing.assert_allclose(columns.smoothings[name].values, analyze(table[name]).values, rtol=1e-9)


def test_the_report_names_shared_outliers(table):
    columns = analyze_columns(table)
    [(time, names)] = columns.shared_outliers
    assert (pandas.Timestamp(time), names) == (table.index[40], ("a", "c"))
    assert columns.sentence.splitlines()[-1].endswith("(a, c).")
    assert [line[:2] for line in columns.sentence.splitlines()[:3]] == ["a:", "b:", "c:"]


def test_without_shared_outliers_the_report_names_none(table):
    assert len(analyze_columns(table[["a", "b"]]).sentence.splitlines()) == 2


def test_bad_columns_are_refused():
    with pytest.raises(InputError, match="at least one value"):
        analyze_columns(np.full((20, 2), np.nan))
