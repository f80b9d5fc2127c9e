"""Series and tables of polars: as those of pandas in test_frames.py and test_zones.py."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError, KindError
from overt.smoothing import analyze

pytestmark = pytest.mark.slow
pl = pytest.importorskip("polars", reason="polars comes with the extra slow: make test-most")

DAYS = pd.date_range("2024-02-01", periods=80).delete([7, 8, 30])
SECONDS = (DAYS - DAYS[0]).total_seconds().to_numpy()
VALUES = np.sin(SECONDS / 86400 / 9) + 0.3 * np.random.default_rng(5).normal(size=DAYS.size)
WAY = {"keys": "time", "bandwidth": 2 * 86400.0}
EXPECTED = overt.smooth(VALUES, times=SECONDS, **WAY)
COLUMN = pl.Series(DAYS.to_numpy())
TABLE = pl.DataFrame({"day": COLUMN, "a": VALUES, "b": [None, *range(VALUES.size - 1)]})


@pytest.mark.parametrize("times", [COLUMN, COLUMN.dt.replace_time_zone("Asia/Tokyo"), COLUMN.cast(pl.Date)])
def test_a_column_may_be_the_times(times):
    np.testing.assert_allclose(overt.smooth(VALUES, times=times, **WAY), EXPECTED, atol=1e-12)
    analysis = analyze(VALUES, times=times, **WAY)
    np.testing.assert_allclose(analysis.at(times[3:5]), EXPECTED[3:5], atol=1e-12)
    assert analysis.unit == "seconds"


def test_a_table_keeps_its_columns_and_dates():
    smoothed = overt.smooth(TABLE, **WAY)
    np.testing.assert_allclose(smoothed["a"].to_numpy(), EXPECTED, atol=1e-12)
    assert smoothed["day"].equals(TABLE["day"])
    assert smoothed.columns == TABLE.columns
    assert smoothed["b"].is_finite().all()
    alone = overt.smooth(TABLE["b"])
    assert isinstance(alone, pl.Series)
    assert alone.name == "b"


def test_a_table_of_one_column_of_values_is_analyzed_with_its_times():
    analysis = analyze(TABLE[["day", "a"]], **WAY)
    np.testing.assert_allclose(analysis.values, EXPECTED, atol=1e-12)
    assert list(analysis.to_frame().index) == list(DAYS)


def test_of_several_columns_one_is_asked_for():
    fix = r"analyze one column with its times: analyze\(x\['a'\], times=x\['day'\]\)\."
    with pytest.raises(InputError, match=rf"one series of shape \(n,\), got shape \(77, 2\)\. Fix: {fix}"):
        analyze(TABLE)


def test_of_two_columns_of_dates_one_is_asked_for():
    with pytest.raises(InputError, match=r"got 2: 'day', 'sent'"):
        overt.smooth(TABLE.with_columns(sent=COLUMN))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (TABLE.with_columns(day=COLUMN.dt.to_string("%Y-%m-%d")), r"'day', got dtype String\. Fix: convert it with"),
        (TABLE.with_columns(city=pl.lit("Oslo")), r"real numbers in column 'city', got dtype String"),
        (COLUMN, r"got dtype Datetime"),
        (TABLE.lazy(), r"got a LazyFrame\. Fix: pass x\.collect\(\)"),
    ],
)
def test_what_is_no_number_is_not_smoothed(x, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(x)


def test_a_time_with_a_zone_is_taken_by_a_series_with_one_and_no_other():
    hours = pd.date_range("2024-06-01", periods=80, freq="h", tz="America/New_York")
    values = np.sin(np.arange(80) / 8)
    zoned = analyze(pd.Series(values, index=hours), keys="time", bandwidth=1800.0)
    naive = analyze(pd.Series(values, index=hours.tz_localize(None)), keys="time", bandwidth=1800.0)
    noon, bare = pl.Series([datetime(2024, 6, 2, 16)]).dt.replace_time_zone("UTC"), pl.Series([datetime(2024, 6, 2, 12)])
    np.testing.assert_allclose(zoned.at(noon), zoned.values[36:37], rtol=1e-12)
    np.testing.assert_allclose(naive.at(bare), naive.values[36:37], rtol=1e-12)
    with pytest.raises(KindError, match=r"Expected times with a time zone, as the series has, got times without one\."):
        zoned.at(bare)
    with pytest.raises(KindError, match=r"Expected times without a time zone, as those of the series, got times with one\."):
        naive.at(noon)
