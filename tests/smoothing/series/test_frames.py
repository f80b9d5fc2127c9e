"""Series and tables of pandas: which numbers are smoothed, which times count, and what comes back. test_polars.py has those of polars."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest

import overt
from overt.errors import InputError, KindError
from overt.smoothing import analyze

DAYS = pd.date_range("2024-02-01", periods=80).delete([7, 8, 30])
SECONDS = (DAYS - DAYS[0]).total_seconds().to_numpy()
VALUES = np.sin(SECONDS / 86400 / 9) + 0.3 * np.random.default_rng(5).normal(size=DAYS.size)
WAY = {"keys": "time", "bandwidth": 2 * 86400.0}
EXPECTED = overt.smooth(VALUES, times=SECONDS, **WAY)
TABLE = pd.DataFrame({"day": DAYS, "a": VALUES, "b": 2 * VALUES})


@pytest.mark.parametrize(
    "index",
    [
        DAYS,
        DAYS.tz_localize("Asia/Tokyo"),
        DAYS.to_period("D"),
        DAYS - DAYS[0],
        pd.Index(SECONDS),
        pd.Index(SECONDS.astype(int)),
        pd.Index([day.date() for day in DAYS]),
    ],
    ids=["dates", "dates with a zone", "periods", "lengths of time", "floats", "integers", "dates of Python"],
)
def test_an_index_of_times_or_numbers_is_the_times(index):
    x = pd.Series(VALUES, index=index, name="a")
    pd.testing.assert_series_equal(overt.smooth(x, **WAY), pd.Series(EXPECTED, index=index, name="a"))
    pd.testing.assert_series_equal(
        overt.smooth(TABLE[["a"]].set_index(index), **WAY)["a"], pd.Series(EXPECTED, index=index, name="a")
    )


@pytest.mark.parametrize("index", [None, pd.Index([f"p{at}" for at in range(DAYS.size)])])
def test_names_and_counts_are_no_times(index):
    x = pd.Series(VALUES, index=index)
    np.testing.assert_array_equal(overt.smooth(x), overt.smooth(VALUES))
    assert analyze(x).unit == "steps"


@pytest.mark.parametrize(
    "times",
    [
        DAYS.to_period("D"),
        pd.Series(DAYS.to_period("D")),
        list(DAYS.to_period("D")),
        DAYS - DAYS[0],
        [timedelta(seconds=seconds) for seconds in SECONDS],
        [f"{day:%Y-%m-%d}" for day in DAYS],
        pd.Series([f"{day:%Y-%m-%d %H:%M}" for day in DAYS]),
    ],
)
def test_times_may_be_passed_as_either_library_has_them(times):
    np.testing.assert_allclose(overt.smooth(VALUES, times=times, **WAY), EXPECTED, atol=1e-12)
    analysis = analyze(VALUES, times=times, **WAY)
    np.testing.assert_allclose(analysis.at(times[3:5]), EXPECTED[3:5], atol=1e-12)
    assert analysis.unit == "seconds"


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        DAYS.tz_localize("UTC"),
        DAYS.to_period("D"),
        DAYS - DAYS[0],
        [date.fromisoformat(f"{day:%Y-%m-%d}") for day in DAYS],
        pd.array(DAYS, dtype="timestamp[us][pyarrow]"),
    ],
)
def test_the_one_column_of_dates_of_a_table_is_the_times_and_stays(column):
    table = TABLE.assign(day=column)
    smoothed = overt.smooth(table, **WAY)
    np.testing.assert_allclose(smoothed[["a", "b"]], np.stack([EXPECTED, 2 * EXPECTED], axis=1), atol=1e-12)
    pd.testing.assert_series_equal(smoothed["day"], table["day"])
    pd.testing.assert_frame_equal(TABLE.assign(day=column), table)


def test_a_filtered_table_has_the_times_of_its_column():
    part = TABLE[TABLE["a"] > 0].sample(frac=1, random_state=0)
    np.testing.assert_allclose(
        overt.smooth(part, **WAY)["a"], overt.smooth(part["a"].to_numpy(), times=part["day"].to_numpy(), **WAY)
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.assign(sent=DAYS), r"got 2: 'day', 'sent'\. Fix: pass the time of the rows, as in times=x\['day'\]"),
        (TABLE.set_index(DAYS), r"an index of times and the column 'day'"),
        (TABLE[["day"]], r"a column of numbers, got none"),
        (TABLE.set_index("day")[::-1], r"does not go back in time, got 2024-04-19 00:00:00 after 2024-04-20 00:00:00 at \[1\]"),
        (pd.concat([TABLE["a"], TABLE["a"]]), r"does not go back in time, got 0 after 76 at \[77\]"),
        (TABLE.set_index([["x"] * 77, "day"]), r"an index of one level, got 2 levels"),
    ],
)
def test_times_that_are_not_clear_are_asked_for(table, message):
    with pytest.raises(InputError, match=message):
        overt.smooth(table)


def test_times_that_are_passed_decide_among_columns_of_dates():
    np.testing.assert_allclose(
        overt.smooth(TABLE.assign(sent=DAYS[::-1]), times=TABLE["day"], **WAY)["a"], EXPECTED, atol=1e-12
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (TABLE["day"], r"real numbers in the series, got dtype datetime64"),
        (DAYS.to_series() - DAYS[0], r"real numbers in the series, got dtype timedelta64"),
        (TABLE.assign(city="Oslo"), r"in column 'city', got dtype (str|object)\. Fix: select the numeric columns"),
        (
            TABLE.assign(day=DAYS.strftime("%Y-%m-%d")),
            r"'day', got dtype (str|object)\. Fix: convert it with pandas\.to_datetime \(polars: str\.to_datetime\)",
        ),
        (TABLE.assign(day=DAYS.strftime("%d/%m/%Y")), r"Fix: convert it with pandas\.to_datetime"),
        (pd.Series(["2024-01-01", "2024-01-02"]), r"the series, got dtype (str|object)\. Fix: select the numeric columns"),
        (pd.Series([1j, 2.0]), r"got dtype complex128"),
    ],
)
def test_what_is_no_number_is_not_smoothed(x, message):
    with pytest.raises(KindError, match=message):
        overt.smooth(x)


@pytest.mark.parametrize("table", [TABLE[["day", "a"]], TABLE[["a"]].set_index(DAYS)])
def test_a_table_of_one_column_of_values_is_analyzed_with_its_times(table):
    analysis = analyze(table, **WAY)
    np.testing.assert_allclose(analysis.values, EXPECTED, atol=1e-12)
    assert list(analysis.to_frame().index) == list(DAYS)


def test_times_that_are_passed_decide_for_a_table_of_one_column_too():
    np.testing.assert_allclose(analyze(TABLE[["a"]], times=TABLE["day"], **WAY).values, EXPECTED, atol=1e-12)
    assert analyze(TABLE[["a"]]).unit == "steps"


@pytest.mark.parametrize(
    ("table", "fix"),
    [
        (TABLE, r"analyze one column with its times: analyze\(x\['a'\], times=x\['day'\]\)\."),
        (TABLE.set_index("day"), r"analyze one column: analyze\(x\['a'\]\)\."),
        (VALUES[:76].reshape(38, 2), r"analyze its columns one by one\."),
    ],
)
def test_of_several_columns_one_is_asked_for(table, fix):
    with pytest.raises(InputError, match=rf"one series of shape \(n,\), got shape \(\d+, 2\)\. Fix: {fix}"):
        analyze(table)


def test_times_as_text_that_is_no_date_are_refused():
    with pytest.raises(KindError, match=r"times as numbers or dates, got text: .*01/02/2024.* as with pandas\.to_datetime"):
        overt.smooth([1.0, 2.0], times=["01/02/2024", "02/02/2024"])


@pytest.mark.parametrize(
    ("times", "kind", "fix"),
    [
        (DAYS - DAYS[0], "lengths of time", r'pass lengths of time, as pandas\.Timedelta\("00:07:30"\)'),
        (SECONDS, "numbers", "pass numbers"),
    ],
)
def test_text_is_no_time_of_a_series_without_dates(times, kind, fix):
    with pytest.raises(KindError, match=rf"times that are {kind}, as those of the series, got text\. Fix: {fix}\."):
        analyze(VALUES, times=times, **WAY).at(["00:07:30"])


def test_the_analysis_as_a_table_has_the_index_and_everything_by_point():
    x = pd.Series(VALUES, index=DAYS)
    x.iloc[20] = 40.0
    analysis = analyze(x, period="7D")
    table = analysis.to_frame()
    assert list(table.columns) == ["observed", "smooth", "lower", "upper", "trend", "seasonal", "residual", "outlier"]
    pd.testing.assert_index_equal(table.index, x.index)
    np.testing.assert_allclose(table["observed"], table["trend"] + table["seasonal"] + table["residual"])
    np.testing.assert_array_equal(np.flatnonzero(table["outlier"]), [20])
    np.testing.assert_array_equal(analysis.residuals, table["residual"])
    assert list(analyze(VALUES, times=DAYS).to_frame().index) == list(DAYS)
    assert list(analyze(VALUES).to_frame().index) == list(range(77))
