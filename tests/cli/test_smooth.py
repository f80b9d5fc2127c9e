"""`overt smooth`: from a file to a curve, and what it says when the file will not do."""

import csv
import gzip
import io
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import overt
from full_disk import files_up_to
from json_schemas import validated
from overt.cli import smooth as smooth_command
from overt.cli.main import app
from overt.drawing.letters import sparkline
from overt.errors import install_command
from overt.smoothing import batch

NAN = float("nan")

DAYS = """date,temp,city
2024-01-01,1.5,Ulm
2024-01-02,2.5,Ulm
2024-01-03,,Ulm
2024-01-05,4.0,"Ulm, old town"
2024-01-06,3.5,Ulm
"""


@pytest.fixture
def days(tmp_path):
    path = tmp_path / "days.csv"
    path.write_text(DAYS)
    return path


def run(*args):
    return CliRunner().invoke(app, ["smooth", *map(str, args)])


def read(path):
    return list(csv.reader(path.read_text().splitlines()))


def curve_in(path):
    header, *rows = read(path)
    position = next(position for position, name in enumerate(header) if name.endswith("_smooth"))
    return [float(row[position]) for row in rows]


def message(*args):
    output = run(*args)
    assert output.exit_code == 2, output.output
    assert output.stdout == ""
    return output.stderr


def test_the_written_file_has_the_curve_and_its_band_as_columns_more(days, tmp_path):
    out = tmp_path / "out.csv"
    assert run(days, "--column", "temp", "--time", "date", "--keys", "time", "--bandwidth", 86400, "--out", out).exit_code == 0
    rows = read(out)
    assert rows[0] == ["date", "temp", "city", "temp_smooth", "temp_lower", "temp_upper", "temp_outlier"]
    assert [row[:3] for row in rows] == list(csv.reader(DAYS.splitlines()))
    expected = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], times=[0, 1, 2, 4, 5], keys="time", bandwidth=1.0)
    np.testing.assert_allclose(curve_in(out), expected, rtol=1e-14)


def test_without_times_the_rows_are_evenly_spaced(days, tmp_path):
    out = tmp_path / "out.csv"
    assert run(days, "-c", "temp", "--keys", "both", "--bandwidth", "1.5,2", "--causal", "--out", out).exit_code == 0
    expected = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], keys="both", bandwidth=(1.5, 2.0), causal=True)
    np.testing.assert_allclose(curve_in(out), expected, rtol=1e-14)


def test_what_stays_missing_is_an_empty_cell(tmp_path):
    (tmp_path / "a.csv").write_text("x\nNA\n1\n2\n")
    assert run(tmp_path / "a.csv", "-c", "x", "--causal", "--out", tmp_path / "b.csv").exit_code == 0
    assert (tmp_path / "b.csv").read_text().splitlines()[1].startswith("NA,,")


def test_the_screen_shows_the_report_by_section_and_the_series_before_and_after(days):
    way = (days, "--column", "temp", "--time", "date", "--keys", "time", "--bandwidth", 86400)
    shown = run(*way).stdout
    assert "days.csv · temp by date" in shown
    names = [line.split("  ")[0] for line in shown.splitlines()[2:] if line and not line.startswith(" ")]
    assert names == ["read", "noise", "error left", "take care", "before", "after"]
    words = " ".join(shown.split())
    assert "read 5 rows from 2024-01-01 to 2024-01-06" in words
    assert "1 absent day: 2024-01-04. Missing points filled from their neighbours: 1. 1 missing value: 1 × empty." in words
    assert "too few to estimate how far the curve is from the truth" in words
    assert "before  ▁▄ █▇" in shown
    smooth = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], times=[0, 1, 2, 4, 5], keys="time", bandwidth=1.0)
    assert f"after   {sparkline(smooth, 1.5, 4.0)}" in shown
    explained = " ".join(run(*way, "--explain").stdout.split())
    assert "weighted by a Gaussian of bandwidth 1 day (given)" in explained
    assert "degrees of freedom" in explained
    assert "bandwidth" not in words
    assert "degrees of freedom" not in words


def test_a_report_names_the_options_of_the_command_and_outliers_do_not_flatten_the_strip(tmp_path):
    values = np.where(np.arange(140) % 7 < 5, 10.0, 4.0) + np.random.default_rng(0).normal(size=140)
    values[40] = -999.0
    days = np.datetime64("2024-01-01") + np.arange(140)
    shown = run(series(tmp_path / "a.csv", day=days, x=values.round(2)), "-c", "x", "--time", "day").stdout
    words = " ".join(shown.split())
    assert "The values look weekly: --period 7D separates this season from the trend." in words
    assert "(--no-robust keeps all values). It is at 2024-02-10." in words
    before = next(line for line in shown.splitlines() if line.startswith("before"))
    assert len(set(before[8:])) > 5


def series(path, **columns):
    path.write_text(
        ",".join(columns) + "\n" + "\n".join(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))
    )
    return path


def test_an_error_too_small_to_estimate_is_a_bound_and_not_a_number(tmp_path):
    noise = 0.3 * np.random.default_rng(1).normal(size=400)
    smooth, waves = np.sin(np.arange(400) / 60) + noise, 2 * np.sin(np.arange(400) / 9) + noise
    walk = 0.3 * np.random.default_rng(2).normal(size=400).cumsum()
    table = series(tmp_path / "a.csv", smooth=smooth, waves=waves, walk=walk)
    shown = run(table, "-c", "smooth").stdout
    most = f"{overt.smoothing.analyze(smooth).risk_upper_bound ** 0.5:.3g}"
    assert f"error left The curve is less than {most} from the truth" in " ".join(shown.split())
    shown = run(table, "-c", "smooth", "-c", "walk", "--explain").stdout
    assert re.search(rf"^smooth +400 +[\d.]+ +< {most} ", shown, flags=re.MULTILINE)
    assert re.search(r"^walk +400 +[\d.]+ +unknown +\d+ +none", shown, flags=re.MULTILINE)


def test_the_picture_is_written_whole_and_named(days, tmp_path):
    picture = tmp_path / "curve.png"
    output = run(days, "--column", "temp", "--time", "date", "--plot", picture)
    assert output.exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "curve.png" in "".join(output.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "days.csv"]


def test_a_picture_in_an_unknown_format_is_refused_before_anything_is_written(days, tmp_path):
    text = message(days, "-c", "temp", "--plot", tmp_path / "curve.doc", "--out", tmp_path / "out.csv")
    assert "a picture file with a known suffix" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days.csv"]


def test_a_picture_without_matplotlib_says_what_to_install(days, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    text = message(days, "-c", "temp", "--plot", tmp_path / "curve.png")
    assert text == f"overt: a picture needs matplotlib, which is not installed. Fix: run: {install_command('plot')}\n"


@pytest.mark.parametrize("text", ["t;x\n2;1.5\n1;2.5\n", "\ufefft\tx\n2\t1.5\n1\t2.5\n", "t|x\r\n2|1.5\r\n\r\n1|2.5\r\n"])
def test_other_separators_marks_and_line_ends_are_read(tmp_path, text):
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert (
        run(
            tmp_path / "a.csv", "-c", "x", "--time", "t", "--keys", "time", "--bandwidth", 1, "--out", tmp_path / "b.csv"
        ).exit_code
        == 0
    )
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 3


def test_zones_are_honoured(tmp_path):
    times = ["2024-01-01T00:00+01:00", "2024-01-01T00:00Z", "2024-01-01T03:00Z"]
    (tmp_path / "a.csv").write_text("t,x\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    run(tmp_path / "a.csv", "-c", "x", "--time", "t", "--keys", "time", "--bandwidth", 3600, "--out", tmp_path / "b.csv")
    np.testing.assert_allclose(
        curve_in(tmp_path / "b.csv"), overt.smooth([0, 1, 2], times=[0, 1, 4], keys="time", bandwidth=1.0)
    )


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("a,b\n1,2\n", [], "a column to smooth, got no --column. Fix: pass one of: a, b."),
        ("a,b\n1,2\n", ["-c", "c"], "Expected a column of a.csv: a, b, got 'c'. Fix: choose one of them."),
        ("a,a\n1,2\n", ["-c", "a"], "one column called a, got 2 columns called a."),
        ("x\n1\ntwo\n", ["-c", "x"], "a finite number in each cell of column x, got 'two' at line 3. Fix: correct that cell"),
        ("x\n1\ninf\n", ["-c", "x"], "column x, got 'inf' at line 3"),
        ("x\n\n1\n\n3;4\n", ["-c", "x"], "column x, got '3;4' at line 5"),
        ("x\n\n\n", ["-c", "x"], "a line of column names and at least one row in a.csv, got only the first line."),
        ("", ["-c", "x"], "a line of column names and at least one row in a.csv, got an empty file."),
        (
            "x,y\n1,2\n3\n",
            ["-c", "x"],
            "2 cells in each row of a.csv, as in its first line, got 1 at line 3. Fix: correct that row, or pass --errors missing",
        ),
        ("x\nNA\n\nnan\n", ["-c", "x"], "a series with at least one value, got 1 × NA, 1 × nan. Fix: check --missing"),
        (
            "t,x\n2024-01-01,1\n2024-13-01,2\n",
            ["-c", "x", "--time", "t"],
            "times in column t, got '2024-13-01' at line 3. Fix: write dates",
        ),
        ("t,x\n1,1\nx,2\n", ["-c", "x", "--time", "t"], "a finite number in each cell of column t, got 'x' at line 3"),
        ("t,x\n1,1\n,2\n", ["-c", "x", "--time", "t"], "a time in each row of column t, got an empty cell at line 3"),
        (
            "t,x\n2024-01-01T00:00Z,1\n2024-01-02,2\n",
            ["-c", "x", "--time", "t"],
            "times all with a time zone, or all without in column t, got both, first '2024-01-02'",
        ),
        ("x,x_smooth\n1,2\n", ["-c", "x", "--out", "o.csv"], "no column x_smooth in a.csv yet"),
        ("x\n1\n2\n", ["-c", "x", "--keys", "time", "--bandwidth", "wide"], 'length of time such as "7D" or "12h"'),
        ("x\n1\n2\n", ["-c", "x", "--keys", "time", "--bandwidth", "0"], "a bandwidth above 0 (series x), got 0.0"),
        ("x\n1\n2\n", ["-c", "x", "--keys", "both", "--bandwidth", "1,2,3"], "got (1.0, 2.0, 3.0)"),
        ("x\n1\n2\n", ["-c", "x", "--keys", "colour"], "got 'colour'"),
        ("x\n1\n2\n", ["-c", "x", "--out", "no/where/o.csv"], "an output path in an existing folder"),
        ("x\n1\n2\n", ["-c", "x", "--out", "o.parquet"], "an output of the input's file format, got o.parquet for a.csv."),
        ("x,g\n1,a\n2,\n", ["-c", "x", "--group", "g"], "a group name in each row of column g, got an empty cell at line 3."),
        ("x,g\n1,a\n2,b\n", ["-c", "x", "--group", "h"], "Expected a column of a.csv: x, g, got 'h'. Fix: choose one of them."),
        ("x,y\nNA,\nnan,\n", ["-c", "x", "-c", "y"], "a series with at least one value, got 1 × NA, 1 × nan, 2 × empty."),
        (
            "x\n1\n2\n",
            ["-c", "x", "--keys", "time", "--window", "-1"],
            "a window of 0 or more, a distance in time (series x), got -1.0",
        ),
        ("x\n1\n2\n", ["-c", "x", "--keys", "time", "--degree", "7"], "Expected degree 0, 1 or 2 (series x), got 7"),
        ("x\n1\n2\n", ["-c", "x", "--noise", "-1"], "a noise standard deviation of 0 or more (series x), got -1.0"),
    ],
)
def test_what_will_not_do_is_said(tmp_path, monkeypatch, text, args, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(text)
    assert expected in message("a.csv", *args)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_that_is_no_text_is_said(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x\n\xff\xfe\n")
    text = message(tmp_path / "a.csv", "-c", "x")
    assert "a.csv to be UTF-8 text, got" in text
    assert "Fix: save it as UTF-8, or `iconv -f cp1252 -t utf-8 FILE | overt smooth -`." in text


CITIES = pd.DataFrame(
    {
        "day": ["2024-01-02", "2024-01-01", "2024-01-01", "2024-01-03", "2024-01-02", "2024-01-03"],
        "city": ["Ulm", "Ulm", "Bonn", "Ulm", "Bonn", "Bonn"],
        "warm": [2.0, 1.0, 10.0, 4.0, 11.0, 13.0],
        "wet": [0.5, NAN, 0.1, 0.7, 0.2, NAN],
    }
)
WAY = ("--time", "day", "--keys", "time", "--bandwidth", 86400)


@pytest.fixture(params=["csv", "parquet"])
def cities(request, tmp_path):
    path = tmp_path / f"cities.{request.param}"
    CITIES.to_csv(path, index=False) if request.param == "csv" else CITIES.to_parquet(path)
    return path


def frame(path):
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


def test_workers_that_started_before_a_table_was_read_smooth_it_too(cities, tmp_path, monkeypatch):
    args = (cities, "-c", "warm", "-c", "wet", "--group", "city", *WAY, "--jobs", 2, "--out")
    late, early = tmp_path / f"late{cities.suffix}", tmp_path / f"early{cities.suffix}"
    assert run(*args, late).exit_code == 0
    started = []

    def start(count):
        started.append(count)
        return batch.start_workers(count)

    monkeypatch.setattr(smooth_command, "start_workers", start)
    monkeypatch.setattr(smooth_command, "_WORTH_AN_EARLY_START", 1)
    assert run(*args, early).exit_code == 0
    assert started == [2]
    assert early.read_bytes() == late.read_bytes()
    assert "a column of" in message(cities, "-c", "cold", "--group", "city", "--jobs", 2)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.few_cases(2)
def test_each_column_of_each_group_is_smoothed_by_itself(cities, tmp_path, jobs):
    out = tmp_path / f"out{cities.suffix}"
    output = run(cities, "-c", "warm", "-c", "wet", "--group", "city", *WAY, "--jobs", jobs, "--out", out)
    assert output.exit_code == 0, output.output
    written = frame(out)
    pd.testing.assert_frame_equal(written[list(CITIES)], CITIES)
    for _, rows in CITIES.groupby("city"):
        times = pd.to_datetime(rows["day"]).to_numpy()
        for column in ("warm", "wet"):
            expected = overt.smooth(rows[column].to_numpy(), times=times, keys="time", bandwidth=86400.0)
            np.testing.assert_allclose(written[f"{column}_smooth"][rows.index], expected, rtol=1e-14)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([cities.name, out.name])


def test_of_many_series_the_screen_shows_a_line_each(cities):
    shown = run(cities, "-c", "warm", "-c", "wet", "--group", "city", *WAY).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["warm", "·", "Ulm", "3"] in [line[:4] for line in lines]
    assert ["wet", "·", "Bonn", "3", "1"] in [line[:5] for line in lines]
    first = next(index for index, line in enumerate(shown.splitlines()) if line.startswith("series"))
    table = shown.splitlines()[first : first + 5]
    for column in ("points", "missing", "noise", "error", "outliers"):  # each set to the right, under its head
        end = table[0].index(column) + len(column)
        assert all(line[end : end + 1] in ("", " ") for line in table)
        cells = [line[end - 1] != " " for line in table[1:]]
        assert any(cells) is (column != "outliers") if column in ("missing", "outliers") else all(cells)  # none is no number
    start = table[0].index("band")
    assert {line[start:] for line in table[1:]} <= {"95%", "none", "no values"}


def test_why_a_band_is_withheld_is_said_once(tmp_path):
    walks = np.cumsum(np.random.default_rng(3).normal(size=(500, 2)), axis=0)
    pd.DataFrame(walks, columns=["a", "b"]).to_csv(tmp_path / "a.csv", index=False)
    shown = " ".join(run(tmp_path / "a.csv", "-c", "a", "-c", "b", "--keys", "time", "--jobs", 1).stdout.split())
    assert shown.count(" none ") == 2
    assert shown.count("does not look independent") == 1
    assert "2 of 2 series have no band. a: The noise does not look independent" in shown


def test_more_series_than_a_screen_are_counted(tmp_path):
    table = pd.DataFrame({"x": np.arange(50.0), "group": np.repeat(np.arange(25), 2)})
    table.to_csv(tmp_path / "a.csv", index=False)
    shown = run(tmp_path / "a.csv", "-c", "x", "--group", "group", "--keys", "time", "--bandwidth", 1, "--jobs", 1).stdout
    assert "… and 5 more series" in shown


def test_a_group_without_a_value_is_left_empty_and_said(tmp_path):
    (tmp_path / "a.csv").write_text("g,x\na,1\nb,\na,2\n")
    out = tmp_path / "b.csv"
    output = run(tmp_path / "a.csv", "-c", "x", "--group", "g", "--keys", "time", "--bandwidth", 1, "--jobs", 1, "--out", out)
    assert "no values" in output.stdout
    assert read(out)[2][:3] == ["b", "", ""]


@pytest.mark.few_cases(1)
def test_many_series_share_one_picture(cities, tmp_path):
    picture = tmp_path / "curve.png"
    assert run(cities, "-c", "warm", "--group", "city", *WAY, "--jobs", 1, "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_too_many_series_is_refused_before_anything_is_computed(tmp_path):
    table = pd.DataFrame({"x": np.arange(26.0), "group": np.repeat(np.arange(13), 2)})
    table.to_csv(tmp_path / "a.csv", index=False)
    text = message(tmp_path / "a.csv", "-c", "x", "--group", "group", "--plot", tmp_path / "a.png", "--out", tmp_path / "b.csv")
    assert "at most 12 series in a picture, got 13. Fix: leave out the picture" in text
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_stopped_job_goes_on_from_its_parts_and_sweeps_them_up(cities, tmp_path, monkeypatch):
    out = tmp_path / f"out{cities.suffix}"
    args = (cities, "-c", "warm", "--group", "city", *WAY, "--jobs", 1, "--out", out)
    once, computed = batch.smooth_task, []

    def stopped(task):
        if computed:
            raise KeyboardInterrupt
        computed.append(task.name)
        return once(task)

    monkeypatch.setattr(batch, "smooth_task", stopped)
    assert run(*args).exit_code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([cities.name, f"{out.name}.parts"])
    monkeypatch.setattr(batch, "smooth_task", lambda task: computed.append(task.name) or once(task))
    assert run(*args).exit_code == 0
    assert computed == ["Ulm", "Bonn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([cities.name, out.name])


def test_a_full_disk_is_said_and_leaves_no_half_file(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x\n" + "1.25\n" * 2000)
    with files_up_to(4096):
        text = message(tmp_path / "a.csv", "-c", "x", "--keys", "time", "--bandwidth", 1, "--out", tmp_path / "b.csv")
    assert (
        "b.csv to be writable, got File too large. Fix: raise the limit of a file's size (ulimit -f), or choose another folder"
        in text
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_in_a_pipe_there_is_no_progress_bar(days):
    output = run(days, "-c", "temp")
    assert output.stderr == ""
    assert "\x1b" not in output.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t,x\n5,3\n", [3.0]),
        ("t,x\n1,3\n2,3\n3,3\n4,3\n", [3.0, 3.0, 3.0, 3.0]),
        ("t,x\n4,8\n1,2\n3,6\n2,4\n", [8.0, 2.0, 6.0, 4.0]),
        ("t,x\n1,1\n1,3\n2,2\n2,2\n", [2.0, 2.0, 2.0, 2.0]),
    ],
    ids=["one point", "a constant", "a line out of order", "times that repeat"],
)
def test_the_least_of_series_have_their_natural_answer(tmp_path, text, expected):
    (tmp_path / "a.csv").write_text(text)
    way = ("--keys", "time", "--bandwidth", 5, "--window", 1000)
    assert run(tmp_path / "a.csv", "-c", "x", "--time", "t", *way, "--out", tmp_path / "b.csv").exit_code == 0
    np.testing.assert_allclose(curve_in(tmp_path / "b.csv"), expected, atol=1e-12)
    automatic = run(tmp_path / "a.csv", "-c", "x", "--time", "t", "--out", tmp_path / "c.csv")
    assert automatic.exit_code == 0, automatic.output
    assert np.isfinite(curve_in(tmp_path / "c.csv")).all()


def test_a_season_is_a_column_beside_its_trend(tmp_path):
    hours = np.datetime64("2024-01-01T00") + np.arange(480)
    values = np.sin(np.arange(480) * 2 * np.pi / 24)
    path, out = tmp_path / "hours.csv", tmp_path / "out.csv"
    path.write_text("hour,load\n" + "".join(f"{hour}:00,{value}\n" for hour, value in zip(hours, values, strict=True)))
    result = run(path, "-c", "load", "--time", "hour", "--period", "1D", "--out", out)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(out)
    np.testing.assert_allclose(table["load_trend"] + table["load_seasonal"], table["load_smooth"], atol=1e-12)
    assert np.abs(table["load_seasonal"] - values)[48:-48].max() < 0.05
    assert "1 day " in result.output


def test_a_bandwidth_and_a_window_may_be_lengths_of_time(days, tmp_path):
    args = (days, "-c", "temp", "--time", "date", "--keys", "time")
    for name, widths in (("a", ("1d", "2D")), ("b", ("24h", 2 * 86400))):
        output = run(*args, "--bandwidth", widths[0], "--window", widths[1], "--out", tmp_path / f"{name}.csv")
        assert output.exit_code == 0, output.output
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert "with times that are steps. Fix: pass the window as a number" in message(
        days, "-c", "temp", "--keys", "time", "--window", "7d"
    )
    assert "got 'soon'. Fix: write a number and one of" in message(days, "-c", "temp", "--keys", "time", "--window", "soon")
    assert "next to nothing" in " ".join(run(*args, "--bandwidth", 7).stdout.split())


@pytest.mark.parametrize(("zone", "label"), [("-04:00", '"when (UTC)"'), ("", '"when"')])
def test_a_page_of_times_with_a_zone_says_that_they_are_in_utc(tmp_path, zone, label):
    path = series(tmp_path / "a.csv", when=[f"2024-06-01T{hour:02}:00{zone}" for hour in range(24)], x=np.arange(24) % 5)
    output = run(path, "-c", "x", "--time", "when", "--keys", "time", "--bandwidth", "2h", "--html", tmp_path / "a.html")
    assert output.exit_code == 0, output.output
    assert label in (tmp_path / "a.html").read_text()


def test_a_period_may_be_a_number_of_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x\n" + "".join(f"{row % 5}\n" for row in range(40)))
    assert "5 steps" in run(path, "-c", "x", "--period", "5").output


def test_several_periods_are_all_taken(tmp_path):
    rows = np.arange(120)
    path = series(tmp_path / "a.csv", x=np.sin(rows * 2 * np.pi / 6) + np.cos(rows * 2 * np.pi / 24))
    assert "Periods of 6 steps and 24 steps were given" in run(path, "-c", "x", "--period", "6", "--period", "24").output
    assert "24 steps" not in run(path, "-c", "x", "--period", "6").output


def test_noise_is_told_as_given_where_it_is(days):
    for options, origin in (((), "estimated"), (("--noise", "0.25"), "given")):
        shown = run(days, "-c", "temp", *options).stdout
        assert re.search(rf"noise The noise has a standard deviation of [\d.]+ \({origin}\)", " ".join(shown.split()))


def test_noise_of_counts_is_told_as_theirs_however_they_were_recognised(tmp_path):
    counts = np.random.default_rng(0).poisson(20 + 10 * np.sin(np.arange(300) / 30))
    table = series(tmp_path / "a.csv", cases=counts)
    for options in ((), ("--noise", "poisson")):
        shown = run(table, "-c", "cases", *options).stdout
        assert re.search(r"noise The values are Poisson counts .* of [\d.]+ \(estimated, on average", " ".join(shown.split()))


@pytest.mark.parametrize("args", [[], ["-c", "v"]])
def test_numbers_in_the_first_line_are_no_names(tmp_path, args):
    (tmp_path / "a.csv").write_text("0.070\n0.1\n0.2\n")
    assert "1; the file has no line of names" in message(tmp_path / "a.csv", *args)
    (tmp_path / "a.csv").write_text("x\n0.1\n0.2\n")
    assert "line of names" not in message(tmp_path / "a.csv", *args)


def test_times_of_day_are_read_and_go_on_after_midnight(tmp_path):
    clock = [f"{(1430 + minute) // 60 % 24:02}:{(1430 + minute) % 60:02}" for minute in range(20)]
    path = series(tmp_path / "a.csv", when=clock, x=np.arange(20) % 3)
    out = run(path, "-c", "x", "--time", "when", "--keys", "time", "--bandwidth", "2min", "--out", tmp_path / "b.csv")
    assert out.exit_code == 0, out.output
    expected = overt.smooth(np.arange(20) % 3, times=np.arange(20.0), keys="time", bandwidth=2.0)
    np.testing.assert_allclose(curve_in(tmp_path / "b.csv"), expected, rtol=1e-12)


def test_a_file_may_have_any_name_but_the_one_of_standard_output(days, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(days, "-c", "temp", "--out", "!.csv").exit_code == 0
    assert read(tmp_path / "!.csv")[0][-1] == "temp_outlier"


def test_a_period_that_is_no_length_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x\n" + "1\n2\n" * 20)
    result = run(path, "-c", "x", "--period", "monthly")
    assert result.exit_code == 2
    assert "a length of time such as" in result.output


TEMPERATURES = 1200 + 300 * np.sin(np.arange(60) / 8) + 40 * np.random.default_rng(0).normal(size=60)
DATED = pd.date_range("2024-01-01", periods=60)


def european(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def in_every_kind(folder):
    """One table as six files, by name."""
    plain = "".join(f"{day:%Y-%m-%d},{value:.2f}\n" for day, value in zip(DATED, TEMPERATURES, strict=True))
    (folder / "iso.csv").write_text("day,x\n" + plain)
    (folder / "iso.csv.gz").write_bytes(gzip.compress(("day,x\n" + plain).encode()))
    (folder / "compact.csv").write_text("day,x\n" + re.sub(r"(\d{4})-(\d\d)-(\d\d)", r"\1\2\3", plain))
    rows = zip(DATED, TEMPERATURES, strict=True)
    (folder / "european.csv").write_text("day;x\n" + "".join(f"{day:%d.%m.%Y};{european(value)}\n" for day, value in rows))
    rows = zip(DATED, TEMPERATURES, strict=True)
    (folder / "american.tsv").write_text("day\tx\n" + "".join(f"{day:%m/%d/%Y}\t{value:,.2f}\n" for day, value in rows))
    pd.DataFrame({"day": DATED, "x": TEMPERATURES.round(2)}).to_excel(folder / "book.xlsx", index=False)
    return ["iso.csv", "iso.csv.gz", "compact.csv", "european.csv", "american.tsv", "book.xlsx"]


def extract_curve(path):
    if path.suffix == ".xlsx":
        return pd.read_excel(path)["x_smooth"].to_numpy()
    if path.name.startswith("european"):
        return pd.read_csv(path, sep=";", decimal=",", thousands=".")["x_smooth"].to_numpy()
    return pd.read_csv(path, sep=None, engine="python")["x_smooth"].to_numpy()


def test_one_table_in_every_notation_and_kind_of_file_has_one_curve(tmp_path):
    for name in in_every_kind(tmp_path):
        out = tmp_path / f"out-{name}" if not name.startswith("european") else tmp_path / "european-out.csv"
        result = run(tmp_path / name, "-c", "x", "--time", "day", "--out", out)
        assert result.exit_code == 0, (name, result.output)
        expected = overt.smooth(TEMPERATURES.round(2), times=DATED)
        np.testing.assert_allclose(extract_curve(out), expected, rtol=1e-12, err_msg=name)
    assert (tmp_path / "out-iso.csv.gz").read_bytes().startswith(b"\x1f\x8b")


def test_a_workbook_keeps_its_formulas_and_its_blank_rows(tmp_path):
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["x", "y"], [1.0, "=A2*2"], [None, None], [3.0, 5.0]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    assert (
        run(tmp_path / "a.xlsx", "-c", "x", "--keys", "value", "--bandwidth", 1e9, "--out", tmp_path / "b.xlsx").exit_code == 0
    )
    rows = list(openpyxl.load_workbook(tmp_path / "b.xlsx").active.iter_rows(values_only=True))
    assert [row[:3] for row in rows] == [("x", "y", "x_smooth"), (1.0, "=A2*2", 2.0), (None, None, None), (3.0, 5.0, 2.0)]


@pytest.mark.parametrize("name", ["iso.csv", "iso.csv.gz", "book.xlsx"])
@pytest.mark.few_cases(1)
def test_standard_input_is_read_and_standard_output_written(tmp_path, name):
    in_every_kind(tmp_path)
    content = (tmp_path / name).read_bytes()
    command = [sys.executable, "-m", "overt", "smooth", "-", "-c", "x", "--time", "day", "--out", "-"]
    if name == "book.xlsx":
        command[-2:] = ["--out", str(tmp_path / "out.xlsx")]
    result = subprocess.run(command, input=content, capture_output=True, check=True)
    if name != "book.xlsx":
        expected = overt.smooth(TEMPERATURES.round(2), times=DATED)
        np.testing.assert_allclose(pd.read_csv(io.BytesIO(result.stdout))["x_smooth"], expected, rtol=1e-12)
        assert b"points" in result.stderr


def test_what_is_said_of_the_notation_is_believed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("t x\n01/02/2024 1,234\n01/03/2024 1,250\n01/04/2024 1,300\n")
    assert "--decimal" in message(path, "-c", "x", "--sep", " ")
    assert "--date-format" in message(path, "-c", "x", "--sep", " ", "--decimal", ",", "--time", "t")
    way = ["--sep", " ", "--decimal", ",", "--date-format", "%d/%m/%Y", "--keys", "time", "--bandwidth", 1e9, "--degree", 0]
    out = tmp_path / "b.txt"
    assert run(path, "-c", "x", "--time", "t", *way, "--out", out).exit_code == 0
    assert out.read_text().splitlines()[1].startswith("01/02/2024 1,234 1,261")


def test_times_that_repeat_beside_text_are_asked_about(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("day,city,x\n" + "".join(f"2024-01-0{day},{city},{day}\n" for day in (1, 2, 3) for city in ("Ulm", "Bonn")))
    error = message(path, "-c", "x", "--time", "day")
    assert "different times in column day, or a --group, got one that is there twice, first at line 3" in error
    assert "Fix: pass --group city, or --group - if the rows are one series." in error.replace("\n", " ")
    for group in ("city", "-"):
        assert run(path, "-c", "x", "--time", "day", "--group", group).exit_code == 0


def test_a_span_is_taken_and_told_of_where_it_raises_the_error(tmp_path):
    in_every_kind(tmp_path)
    wide = run(tmp_path / "iso.csv", "-c", "x", "--time", "day", "--span", "40d")
    assert wide.exit_code == 0
    assert "This span is estimated to raise the error" in wide.output.replace("\n", " ")
    assert "a span of at least one step" in message(tmp_path / "iso.csv", "-c", "x", "--time", "day", "--span", "1h")


def test_the_page_needs_no_network_and_escapes_names(tmp_path):
    path, page = tmp_path / "a.csv", tmp_path / "a.html"
    path.write_text("<b>x</b>\n" + "\n".join(str(value) for value in TEMPERATURES))
    assert run(path, "-c", "<b>x</b>", "--html", page).exit_code == 0
    text = page.read_text()
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>x</b>" not in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    assert "end the name in .html" in message(path, "-c", "<b>x</b>", "--html", tmp_path / "a.txt")


def test_the_report_says_why_there_is_no_band(tmp_path):
    draw = np.random.default_rng(0)
    table = series(tmp_path / "a.csv", sales=np.where(draw.random(400) < 0.4, draw.gamma(2.0, size=400), 0.0))
    shown = run(table, "-c", "sales").stdout
    assert "error left The error of the curve is unknown. Means of a few events are not normal" in " ".join(shown.split())


def test_scale_bounds_and_full_turns_are_options(tmp_path):
    path, out = tmp_path / "wind.csv", tmp_path / "smooth.csv"
    draw = np.random.default_rng(0)
    angles = np.mod(350 + 8 * draw.normal(size=80), 360)
    path.write_text(
        "angle,share\n" + "\n".join(f"{one:.2f},{share:.3f}" for one, share in zip(angles, draw.uniform(0.2, 0.8, 80)))
    )
    runner = CliRunner()
    assert runner.invoke(app, ["smooth", str(path), "-c", "angle", "--circular", "360", "--out", str(out)]).exit_code == 0
    curve = pd.read_csv(out)["angle_smooth"].to_numpy()
    assert (np.abs((curve - 350 + 180) % 360 - 180) < 8).all()
    arguments = ["smooth", str(path), "-c", "share", "--scale", "logit", "--bounds", "0,1"]
    assert "The logits of the values, between 0 and 1" in " ".join(runner.invoke(app, arguments).output.split())
    for bounds in ("0", "a,1", "1,0"):
        refused = runner.invoke(app, ["smooth", str(path), "-c", "share", "--bounds", bounds])
        assert refused.exit_code == 2
        assert "bounds" in refused.output


@pytest.fixture
def step_with_outlier(tmp_path):
    """A step from 0 to 6 after 60 of 120 days, an outlier and a missing value."""
    values = np.repeat([0.0, 6.0], 60) + np.random.default_rng(0).normal(size=120)
    values[[30, 80]] = 40, NAN
    path = tmp_path / "step.csv"
    pd.DataFrame({"day": pd.date_range("2024-01-01", periods=120), "v": values}).to_csv(path, index=False)
    return path


def test_derivative_anomalies_and_changes_are_written(step_with_outlier, tmp_path):
    out, written, json_file = tmp_path / "out.csv", tmp_path / "anomalies.csv", tmp_path / "a.json"
    names = ("--column", "v", "--time", "day", "--out", out, "--json", json_file)
    report = run(step_with_outlier, *names, "--derivative", "--changes", "--anomalies", written)
    assert report.exit_code == 0, report.output
    expected = "The level changes by 5.68 at 2024-03-01 (2024-03-01 to 2024-03-01, probability 1.00)."
    assert expected in " ".join(report.output.split())
    table = pd.read_csv(out)
    assert table["v_outlier"].to_numpy().nonzero()[0].tolist() == [30]
    assert (table["v_slope_lower"] <= table["v_slope"]).all()
    header, point, missing = read(written)
    assert header == ["series", "time", "until", "kind", "points", "value", "expected", "score"]
    assert point[:6] == ["v", "2024-01-31", "2024-01-31", "point", "1", "40.0"]
    assert missing[3:6] == ["missing", "1", ""]
    [series] = validated(json_file, "smooth")["series"]
    assert [change["time"] for change in series["changes"]] == ["2024-03-01"]
    assert [row["kind"] for row in series["anomalies"]] == ["point", "missing"]
    assert len(series["slope"]) == 120


def test_without_times_findings_name_rows(step_with_outlier, tmp_path):
    written = tmp_path / "anomalies.csv"
    report = run(step_with_outlier, "--column", "v", "--changes", "--anomalies", written)
    assert "at 61 (61 to 61, probability 1.00)" in report.output.replace("\n", " ")
    assert [row[1] for row in read(written)[1:]] == ["31", "81"]
