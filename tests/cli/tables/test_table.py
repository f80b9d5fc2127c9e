"""Tables: CSV and Parquet read the same, fail with the same words, and come out whole with their new columns."""

import csv
import datetime
import gzip
import io
import re

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overt.cli.shared.tables.read_table import read_table
from overt.errors import InputError, MissingExtra, install_command

DATES = ["2024-01-01", "2024-01-02", "2024-01-05"]
FRAME = {"day": DATES, "x": [1.5, None, 3.0], "city": ["Ulm", "Bonn", "Ulm"]}


@pytest.fixture(params=["csv", "parquet"])
def path(request, tmp_path):
    """The same table in either kind of file."""
    return save(pd.DataFrame(FRAME), tmp_path / f"a.{request.param}")


def save(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


def parquet(tmp_path, **columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return read_table(tmp_path / "a.parquet")


def row(path, number):
    """How each kind of file names a row: an editor counts lines from 1, the names being line 1; pandas counts from 0."""
    return f"line {number + 2}" if path.suffix == ".csv" else f"row {number}"


def test_numbers_dates_and_names_are_read_alike(path):
    table = read_table(path)
    assert table.header == ["day", "x", "city"]
    np.testing.assert_array_equal(table.numbers("x"), [1.5, np.nan, 3.0])
    np.testing.assert_array_equal(table.times("day"), np.array(DATES, dtype="datetime64[D]"))
    assert table.names("city") == ["Ulm", "Bonn", "Ulm"]


def test_the_written_file_is_the_one_read_with_columns_more(path, tmp_path):
    out = tmp_path / f"b{path.suffix}"
    read_table(path).write(out, {"y": np.array([0.1, 0.2, np.nan]), "z": np.array([1.0, 2.0, 3.0])})
    result = pd.read_csv(out) if path.suffix == ".csv" else pd.read_parquet(out)
    pd.testing.assert_frame_equal(result, pd.DataFrame({**FRAME, "y": [0.1, 0.2, None], "z": [1.0, 2.0, 3.0]}))


def test_a_column_that_is_not_there_lists_those_that_are(path):
    with pytest.raises(InputError, match=r"a column of .*: day, x, city, got 'temp'. Fix: choose one of them"):
        read_table(path).numbers("temp")


def test_text_in_a_column_of_numbers_names_the_row(path):
    with pytest.raises(
        InputError, match=f"a finite number in each cell of column city, got 'Ulm' at {row(path, 0)}. Fix: correct that cell"
    ):
        read_table(path).numbers("city")


@pytest.mark.parametrize("cells", [["1.513.823", "900", "1.200"], ["1'513'823", "900", "1'200"], ["1 513 823", "900", "1 200"]])
def test_equal_marks_that_stand_twice_are_between_thousands(tmp_path, cells):
    (tmp_path / "a.csv").write_text("version;x\n" + "".join(f"v;{cell}\n" for cell in cells))
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv").numbers("x"), [1513823.0, 900.0, 1200.0])


@pytest.mark.parametrize("other", ["192.168.1.1", "192.168.100.200", "31.12.2024", "1.2.3"])
def test_points_that_stand_twice_in_what_is_no_number_say_nothing(tmp_path, other):
    (tmp_path / "a.csv").write_text(f"name,x\n{other},1.5\n{other},2.25\n")
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv").numbers("x"), [1.5, 2.25])


def test_a_number_of_the_other_decimal_mark_names_the_option(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1.513.823,1.5\n900,2.5\n")
    with pytest.raises(
        InputError, match=r"got '1\.513\.823' at line 2\. Fix: pass --decimal , if that is the decimal mark, or"
    ):
        read_table(tmp_path / "a.csv").numbers("x")


def test_a_missing_time_names_the_row(path):
    where = f"an empty cell at {row(path, 1)}"
    with pytest.raises(
        InputError, match=f"a time in each row of column x, got {where}. Fix: fill in that time, or drop that row"
    ):
        read_table(path).times("x")


def test_a_missing_group_names_the_row(path):
    where = f"an empty cell at {row(path, 1)}"
    with pytest.raises(
        InputError, match=f"a group name in each row of column x, got {where}. Fix: fill it in, or drop that row"
    ):
        read_table(path).names("x")


def test_an_infinity_names_the_row(path):
    save(pd.DataFrame({"x": [1.0, np.inf]}), path)
    with pytest.raises(InputError, match=f"a finite number in each cell of column x, got 'inf' at {row(path, 1)}"):
        read_table(path).numbers("x")


@pytest.mark.parametrize("column", ["x", "city"])
def test_a_column_that_is_there_already_is_not_overwritten(path, column, tmp_path):
    with pytest.raises(
        InputError, match=f"no column {column} in .* yet, got such a column: day, x, city. Fix: rename or remove that column"
    ):
        read_table(path).check_target(tmp_path / f"b{path.suffix}", ["new", column])


def test_a_file_comes_out_as_the_kind_it_went_in(path, tmp_path):
    other = "b.parquet" if path.suffix == ".csv" else "b.csv"
    message = f"an output of the input's file format, got {other} for {path.name}. Fix: end the name in {path.suffix}"
    with pytest.raises(InputError, match=message):
        read_table(path).check_target(tmp_path / other, [])


def test_a_file_that_is_not_there_is_said(tmp_path):
    for name in ("no.csv", "no.parquet"):
        with pytest.raises(InputError, match=rf"{name} to be .*, got .*No such file or directory. Fix: check its name"):
            read_table(tmp_path / name)


def test_a_parquet_file_that_is_none_is_said(tmp_path):
    (tmp_path / "a.parquet").write_text("x\n1\n")
    with pytest.raises(InputError, match=r"a.parquet to be a Parquet file, got .* Fix: export it again"):
        read_table(tmp_path / "a.parquet")


def test_a_parquet_file_without_rows_is_said(tmp_path):
    with pytest.raises(InputError, match=r"at least one row in .*a.parquet, got none. Fix: pass a file with rows"):
        parquet(tmp_path, x=pa.array([], type=pa.float64()))


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=f"a Parquet file needs pyarrow.* run: {re.escape(install_command('smooth'))}"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3], type=pa.int32()),
        pa.array([1.0, float("nan"), 3.0], type=pa.float32()),
        pa.array(["1", "NA", " 3 "]),
        pa.array(["1", None, "3"]).dictionary_encode(),
        pa.array([1, None, 3], type=pa.decimal128(5, 2)),
    ],
    ids=["integers", "single precision", "text", "a dictionary", "decimals"],
)
def test_numbers_of_any_type_of_parquet_are_read(tmp_path, column):
    np.testing.assert_array_equal(parquet(tmp_path, x=column).numbers("x"), [1.0, np.nan, 3.0])


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (pa.array([True, False]), "'True' at row 0"),
        (pa.array([1, 2], type=pa.timestamp("s")), "'1970-01-01 00:00:01' at row 0"),
        (pa.array([[1], [2]]), r"'\[1\]' at row 0"),
    ],
    ids=["truth values", "times", "lists"],
)
def test_types_of_parquet_that_are_no_numbers_are_refused(tmp_path, column, got):
    with pytest.raises(InputError, match=f"a finite number in each cell of column x, got {got}"):
        parquet(tmp_path, x=column).numbers("x")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
        pa.array([1704067200, 1704153600], type=pa.timestamp("s")),
        pa.array([1704067200 * 10**9, 1704153600 * 10**9], type=pa.timestamp("ns", tz="Europe/Berlin")),
        pa.array(["2024-01-01T01:00+01:00", "2024-01-02T00:00Z"]),
    ],
    ids=["dates", "timestamps", "timestamps of a zone", "text"],
)
def test_times_of_any_type_of_parquet_are_read_in_utc(tmp_path, column):
    result = parquet(tmp_path, t=column).times("t")
    assert result.dtype.kind == "M"
    np.testing.assert_array_equal(result, np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"))


def test_numbers_in_parquet_may_be_times(tmp_path):
    table = parquet(tmp_path, t=pa.array([2, 1]), late=pa.array([2.5, None]))
    np.testing.assert_array_equal(table.times("t"), [2.0, 1.0])
    with pytest.raises(InputError, match="a time in each row of column late, got an empty cell at row 1"):
        table.times("late")


def test_two_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="one column called x, got 2 columns called x"):
        read_table(tmp_path / "a.parquet").numbers("x")


def test_a_cell_of_any_size_in_a_column_that_nobody_asked_for_is_no_error(tmp_path):
    import csv

    before = csv.field_size_limit()
    long = "x" * 200_000
    (tmp_path / "a.csv").write_text(f"note,v\n{long},1\n{long},2\n")
    table = read_table(tmp_path / "a.csv")
    assert table.numbers("v").tolist() == [1.0, 2.0]
    assert csv.field_size_limit() == before
    table.write(tmp_path / "b.csv", {"w": table.numbers("v")})
    assert (tmp_path / "b.csv").read_text() == f"note,v,w\n{long},1,1.0\n{long},2,2.0\n"


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".xlsx", ".parquet"])
def test_text_that_a_spreadsheet_would_run_is_copied_unchanged(suffix, tmp_path):
    cells = ["=1+1", "+3", "-cmd|' /C calc'!A0", "@SUM(A1)", "\tx", '=HYPERLINK("x";"y")', "'=1", "", "plain"]
    path, target = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    if suffix == ".parquet":
        pd.DataFrame({"x": np.arange(9.0), "=note": cells}).to_parquet(path)
    elif suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row, (number, cell) in enumerate([("x", "=note"), *zip(range(9), cells, strict=True)], start=1):
            book.worksheets[0].cell(row, 1, number)
            book.worksheets[0].cell(row, 2, cell).data_type = "s"
        book.save(path)
    else:
        text = io.StringIO()
        csv.writer(text).writerows([("x", "=note"), *zip(range(9), cells, strict=True)])
        content = text.getvalue().encode()
        path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    read_table(path).write(target, {"x_smooth": np.zeros(9)})
    if suffix == ".parquet":
        assert pd.read_parquet(target)["=note"].tolist() == cells
    elif suffix == ".xlsx":
        written = list(openpyxl.load_workbook(target).worksheets[0].iter_rows(min_row=2, min_col=2, max_col=2))
        assert [(cell.value or "", cell.data_type) for (cell,) in written if cell.value] == [
            (cell, "s") for cell in cells if cell
        ]
    else:
        content = target.read_bytes()
        text = (gzip.decompress(content) if suffix.endswith(".gz") else content).decode()
        assert [row[1] for row in csv.reader(io.StringIO(text, newline=""))] == ["=note", *cells]
