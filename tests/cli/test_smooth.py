"""`overt smooth`: from a file to a curve, and what it says when the file will not do."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

import overt
from overt.cli.main import app
from overt.lens.letters import sparkline

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
    return [float(row[-1]) for row in read(path)[1:]]


def message(*args):
    found = run(*args)
    assert found.exit_code == 2, found.output
    assert found.stdout == ""
    return found.stderr


def test_the_written_file_has_the_curve_as_one_column_more(days, tmp_path):
    out = tmp_path / "out.csv"
    assert run(days, "--column", "temp", "--time", "date", "--bandwidth", 86400, "--out", out).exit_code == 0
    rows = read(out)
    assert rows[0] == ["date", "temp", "city", "temp_smooth"]
    assert [row[:3] for row in rows] == list(csv.reader(DAYS.splitlines()))
    expected = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], times=[0, 1, 2, 4, 5], bandwidth=1.0)
    np.testing.assert_allclose(curve_in(out), expected, rtol=1e-14)


def test_without_times_the_rows_are_evenly_spaced(days, tmp_path):
    out = tmp_path / "out.csv"
    assert run(days, "-c", "temp", "--keys", "both", "--bandwidth", "1.5,2", "--causal", "--out", out).exit_code == 0
    expected = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], keys="both", bandwidth=(1.5, 2.0), causal=True)
    np.testing.assert_allclose(curve_in(out), expected, rtol=1e-14)


def test_what_stays_missing_is_an_empty_cell(tmp_path):
    (tmp_path / "a.csv").write_text("x\nNA\n1\n2\n")
    assert run(tmp_path / "a.csv", "-c", "x", "--causal", "--out", tmp_path / "b.csv").exit_code == 0
    assert (tmp_path / "b.csv").read_text().splitlines()[1] == "NA,"


def test_the_screen_shows_the_facts_the_series_before_and_after_and_the_sentence(days):
    shown = run(days, "--column", "temp", "--time", "date", "--bandwidth", 86400).stdout
    assert "days.csv · temp by date" in shown
    assert "points      5       1 missing, 1 filled" in shown
    assert "bandwidth   1 days  given" in shown
    assert "before  ▁▄ █▇" in shown
    smooth = overt.smooth([1.5, 2.5, float("nan"), 4.0, 3.5], times=[0, 1, 2, 4, 5], bandwidth=1.0)
    assert f"after   {sparkline(smooth, 1.5, 4.0)}" in shown
    assert "saw its future too" in " ".join(shown.split())


def test_the_picture_is_written_whole_and_named(days, tmp_path):
    picture = tmp_path / "curve.png"
    found = run(days, "--column", "temp", "--time", "date", "--plot", picture)
    assert found.exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "curve.png" in "".join(found.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "days.csv"]


def test_a_picture_in_an_unknown_format_is_refused_before_anything_is_written(days, tmp_path):
    text = message(days, "-c", "temp", "--plot", tmp_path / "curve.doc", "--out", tmp_path / "out.csv")
    assert "a picture's format is its file's ending" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days.csv"]


def test_a_picture_without_matplotlib_says_what_to_install(days, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    text = message(days, "-c", "temp", "--plot", tmp_path / "curve.png")
    assert text == 'overt: a picture needs matplotlib, which is not installed. To mend it, run: pip install "overt[plot]"\n'


@pytest.mark.parametrize("text", ["t;x\n2;1.5\n1;2.5\n", "\ufefft\tx\n2\t1.5\n1\t2.5\n", "t|x\r\n2|1.5\r\n\r\n1|2.5\r\n"])
def test_other_separators_marks_and_line_ends_are_read(tmp_path, text):
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert run(tmp_path / "a.csv", "-c", "x", "--time", "t", "--bandwidth", 1, "--out", tmp_path / "b.csv").exit_code == 0
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 3


def test_zones_are_honoured(tmp_path):
    times = ["2024-01-01T00:00+01:00", "2024-01-01T00:00Z", "2024-01-01T03:00Z"]
    (tmp_path / "a.csv").write_text("t,x\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    run(tmp_path / "a.csv", "-c", "x", "--time", "t", "--bandwidth", 3600, "--out", tmp_path / "b.csv")
    np.testing.assert_allclose(curve_in(tmp_path / "b.csv"), overt.smooth([0, 1, 2], times=[0, 1, 4], bandwidth=1.0))


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("a,b\n1,2\n", [], "a column is named; got no --column. To mend it, pass one of: a, b."),
        ("a,b\n1,2\n", ["-c", "c"], "has the columns of its first line; got 'c'. To mend it, choose one of: a, b."),
        ("a,a\n1,2\n", ["-c", "a"], "a column is known by its name; got 2 columns called a."),
        ("x\n1\ntwo\n", ["-c", "x"], "the column x holds numbers; got 'two' at line 3, column x. To mend it, mend that cell"),
        ("x\n1\ninf\n", ["-c", "x"], "got 'inf' at line 3, column x"),
        ("x\n\n1\n\n3;4\n", ["-c", "x"], "got '3;4' at line 5, column x"),
        ("x\n\n\n", ["-c", "x"], "has a line of names and at least one row; got the first line only."),
        ("", ["-c", "x"], "has a line of names and at least one row; got an empty file."),
        ("x,y\n1,2\n3\n", ["-c", "x"], "as many cells as its first line, 2; got 1 at line 3. To mend it, mend that row."),
        ("x\nNA\n\nnan\n", ["-c", "x"], "a series needs at least one value; got only NaN."),
        (
            "t,x\n2024-01-01,1\n2024-13-01,2\n",
            ["-c", "x", "--time", "t"],
            "got '2024-13-01' at line 3, column t. To mend it, write dates",
        ),
        ("t,x\n1,1\nx,2\n", ["-c", "x", "--time", "t"], "the column t holds numbers; got 'x' at line 3, column t"),
        ("t,x\n1,1\n,2\n", ["-c", "x", "--time", "t"], "every point has a time; got an empty cell at line 3, column t"),
        (
            "t,x\n2024-01-01T00:00Z,1\n2024-01-02,2\n",
            ["-c", "x", "--time", "t"],
            "all have a zone, or none has; got both, first at line 3",
        ),
        ("x,x_smooth\n1,2\n", ["-c", "x", "--out", "o.csv"], "already has a column x_smooth"),
        ("x\n1\n2\n", ["-c", "x", "--bandwidth", "wide"], "a bandwidth is a number above 0; got 'wide'"),
        ("x\n1\n2\n", ["-c", "x", "--bandwidth", "0"], "a bandwidth is a number above 0; got 0.0"),
        ("x\n1\n2\n", ["-c", "x", "--keys", "colour"], "got 'colour'"),
        ("x\n1\n2\n", ["-c", "x", "--out", "no/where/o.csv"], "an output file goes into a folder that exists"),
    ],
)
def test_what_will_not_do_is_said(tmp_path, monkeypatch, text, args, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(text)
    assert expected in message("a.csv", *args)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_that_is_no_text_is_said(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x\n\xff\xfe\n")
    assert "is text in UTF-8" in message(tmp_path / "a.csv", "-c", "x")
    assert "Is a directory" in message(tmp_path, "-c", "x")
