"""Time zones: times that have one are never taken for times that have none, and pictures name theirs."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import overt
from overt.cli.main import app
from overt.cli.shared.tables.notation import Notation
from overt.errors import InputError, KindError
from overt.smoothing import Online, analyze
from overt.smoothing.batch import Task
from overt.smoothing.data.times import read_times
from overt.smoothing.data.zones import recorded_zone
from overt.smoothing.reporting.curve import extract_curve
from overt.smoothing.reporting.page import write_page
from overt.smoothing.reporting.plot import Panel, draw_figure

HOURS = pd.date_range("2024-06-01", periods=80, freq="h", tz="America/New_York")
VALUES = np.sin(np.arange(80) / 8)
NOON = pd.Timestamp("2024-06-02T12:00", tz="America/New_York")  # the 36th hour
ZONED = analyze(pd.Series(VALUES, index=HOURS), keys="time", bandwidth=1800.0)
NAIVE = analyze(pd.Series(VALUES, index=HOURS.tz_localize(None)), keys="time", bandwidth=1800.0)


@pytest.mark.parametrize(
    "times",
    [
        [NOON],
        NOON,
        pd.DatetimeIndex([NOON]),
        [NOON.tz_convert("Asia/Tokyo")],
        [NOON.to_pydatetime()],
        [datetime(2024, 6, 2, 12, tzinfo=timezone(timedelta(hours=-4)))],
        ["2024-06-02T12:00-04:00"],
        ["2024-06-02 16:00:00+00:00"],
        "2024-06-02T16:00Z",
        ["2024-06-02T12:00:00.000-0400"],
        pd.array([NOON], dtype="timestamp[us, tz=America/New_York][pyarrow]"),
    ],
)
def test_a_time_of_any_zone_is_that_moment(times):
    np.testing.assert_allclose(ZONED.at(times), ZONED.values[36:37], rtol=1e-12)


@pytest.mark.parametrize(
    "times",
    [
        ["2024-06-02T12:00"],
        [datetime(2024, 6, 2, 12)],
        np.array(["2024-06-02T12:00"], dtype="datetime64[s]"),
        pd.DatetimeIndex(["2024-06-02 12:00"]),
    ],
)
def test_a_series_with_a_zone_refuses_times_without_one_and_the_other_way_round(times):
    fix = r"Fix: add it, as in 2024-12-31T12:00\+00:00 or pandas\.Timestamp\(.*, tz=\"America/New_York\"\)"
    with pytest.raises(KindError, match=rf"Expected times with a time zone, as the series has, got times without one\. {fix}"):
        ZONED.at(times)
    np.testing.assert_allclose(NAIVE.at(times), NAIVE.values[36:37], rtol=1e-12)
    expected = "Expected times without a time zone, as those of the series, got times with one. Fix: pass them without"
    with pytest.raises(KindError, match=expected):
        NAIVE.at([NOON])


@pytest.mark.parametrize("times", [["2024-06-01T00:00Z", "2024-06-01T01:00"], [HOURS[0], datetime(2024, 6, 1, 1)]])
def test_times_of_which_some_have_a_zone_are_refused(times):
    with pytest.raises(InputError, match=r"times all with a time zone, or all without, got both, first '2024-06-01.01:00"):
        overt.smooth([1.0, 2.0], times=times)


def test_a_missing_time_among_those_with_a_zone_is_named():
    with pytest.raises(InputError, match=r"a time for every point, got NaT at \[1\]"):
        overt.smooth([1.0, 2.0], times=[HOURS[0], pd.NaT])


def test_a_missing_time_among_dates_without_one_is_named():
    with pytest.raises(InputError, match=r"a time for every point, got NaT at \[1\]"):
        overt.smooth([1.0, 2.0], times=[datetime(2024, 1, 1), pd.NaT])


@pytest.mark.parametrize("kind", ["timestamp[us, tz=+02:00][pyarrow]", "timestamp[us, tz=Asia/Tokyo][pyarrow]"])
def test_a_zone_of_pyarrow_is_one(kind):
    result = analyze(VALUES[:3], times=pd.array(HOURS[:3], dtype=kind))
    assert result.times.zone is not None


def test_times_that_were_passed_with_a_zone_are_the_index_of_the_table():
    table = analyze(VALUES, times=HOURS, keys="time").to_frame()
    assert list(table.index) == list(HOURS)
    assert str(table.index.tz) == "America/New_York"


@pytest.mark.parametrize(("first", "second"), [("2024-01-01T00:00Z", "2024-01-01T01:00"), (HOURS[0], datetime(2025, 1, 1))])
def test_points_that_arrive_have_all_a_zone_or_none(first, second):
    online = Online(keys="time", bandwidth=3600.0)
    online.update(1.0, first)
    with pytest.raises(InputError, match="times of one kind, got a date after a date with a time zone. Fix: pass a number for"):
        online.update(2.0, second)


def test_text_with_a_zone_is_a_time_of_a_point_that_arrives():
    online, other = (Online(keys="time", bandwidth=3600.0) for _ in range(2))
    for value, text in enumerate(["2024-01-01T00:00+01:00", "2024-01-01T00:00Z", "2024-01-01T02:00+01:00"]):
        assert online.update(value, text) == other.update(value, 3600.0 * value)


def ticks(figure):
    figure.canvas.draw()
    axes = figure.axes[-1]
    return axes.get_xlabel(), [label.get_text() for label in axes.get_xticklabels()]


def test_a_picture_is_in_the_zone_of_the_series_and_says_so():
    day = analyze(VALUES[:24], times=HOURS[:24], keys="time", bandwidth=7200.0)
    label, hours = ticks(day.plot())
    assert label == "(America/New_York)"
    assert hours[0] in ("Jun-01", "00:00")
    assert "04:00" not in hours[:1]
    assert ticks(NAIVE.plot())[0] == ""


def test_pictures_of_dates_that_were_read_in_utc_say_so(tmp_path):
    panel = Panel("load", NAIVE.times.as_passed, VALUES, extract_curve(NAIVE), UTC)
    assert ticks(draw_figure([panel], x="when"))[0] == "when (UTC)"
    write_page(tmp_path / "a.html", [panel], x="when", title="load")
    assert "when (UTC)" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("cell", "form", "zoned"),
    [
        ("2024-06-01T00:00-04:00", None, True),
        ("2024-06-01 00:00", None, False),
        ("01.06.2024 00:00 +0200", "%d.%m.%Y %H:%M %z", True),
        ("01.06.2024", "%d.%m.%Y", False),
    ],
)
def test_a_column_of_a_file_has_a_zone_where_its_first_date_has(tmp_path, cell, form, zoned):
    from overt.cli.shared.tables.read_table import read_table

    (tmp_path / "a.csv").write_text(f"when,x\n{cell},1\n")
    assert (read_table(tmp_path / "a.csv", Notation(date_format=form)).zone("when") is not None) is zoned


@pytest.mark.parametrize("passed", ["texts", "dates", "file"])
def test_a_daily_season_follows_the_clock_that_the_distances_from_utc_of_its_dates_show(tmp_path, passed):
    hours = pd.date_range("2024-03-01", "2024-04-30", freq="h", tz="Europe/Berlin")
    draw = np.random.default_rng(5)
    truth = np.where((hours.hour >= 8) & (hours.hour < 18), 10.0, 2.0)
    values = truth + draw.normal(size=hours.size)
    texts = [moment.isoformat() for moment in hours]
    assert {text[-6:] for text in texts} == {"+01:00", "+02:00"}
    if passed == "file":
        pd.DataFrame({"when": texts, "load": values}).to_csv(tmp_path / "a.csv", index=False)
        options = ["--column", "load", "--time", "when", "--period", "1D"]
        files = str(tmp_path / "a.csv"), "--out", str(tmp_path / "b.csv")
        assert CliRunner().invoke(app, ["smooth", *files, *options]).exit_code == 0
        curve = pd.read_csv(tmp_path / "b.csv")["load_smooth"].to_numpy()
    else:
        times = texts if passed == "texts" else [datetime.fromisoformat(text) for text in texts]
        curve = analyze(values, times=times, period="1D").values
    in_zone = analyze(values, times=hours, period="1D").values
    assert np.mean((curve - truth) ** 2) < 1.05 * np.mean((in_zone - truth) ** 2)
    assert np.mean((analyze(values, times=hours.tz_convert("UTC"), period="1D").values - truth) ** 2) > 2 * np.mean(
        (curve - truth) ** 2
    )


def test_the_clock_of_recorded_distances_shows_an_hour_twice_and_leaves_one_out():
    utc = [datetime(2024, 10, 26, 22, tzinfo=UTC) + timedelta(minutes=30 * step) for step in range(12)]
    berlin = [moment.astimezone(ZoneInfo("Europe/Berlin")) for moment in utc]
    zone = recorded_zone([datetime.fromisoformat(moment.isoformat()) for moment in berlin])
    for moment, expected in zip(utc, berlin, strict=True):
        local = pickle.loads(pickle.dumps(zone)).fromutc(moment.replace(tzinfo=zone))
        assert (local.replace(tzinfo=None), local.fold) == (expected.replace(tzinfo=None), expected.fold)
        assert local.astimezone(UTC) == moment


def test_dates_of_many_zones_follow_no_clock():
    dates = [datetime(2024, 1, day, tzinfo=timezone(timedelta(hours=day % 3))) for day in range(1, 20)]
    assert recorded_zone(dates) is UTC


def test_stored_curves_are_of_one_clock():
    moments = np.datetime64("2024-03-30T00:00") + np.arange(60) * np.timedelta64(1, "h")
    berlin = [
        date.replace(tzinfo=UTC).astimezone(ZoneInfo("Europe/Berlin")) for date in moments.astype("datetime64[us]").tolist()
    ]
    zones = [None, UTC, recorded_zone([datetime.fromisoformat(date.isoformat()) for date in berlin])]
    digests = {Task("a", np.zeros(60), read_times(moments, 60, zone), {"period": "1D"}).digest for zone in zones}
    assert len(digests) == 3
