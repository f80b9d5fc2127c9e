"""Files as programs and people write them are read as they are meant, or asked about."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from json_schemas import schema
from messy_files import develop, frozen
from overt.cli.main import app
from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.series import read_series, read_tables
from overt.errors import InputError

jsonschema = pytest.importorskip("jsonschema")
FILES = [("develop", messy) for messy in develop()] + [("frozen", messy) for messy in frozen()]


def run(*args):
    return CliRunner().invoke(app, ["smooth", *map(str, args)])


@pytest.mark.parametrize("messy", [messy for _, messy in FILES], ids=[f"{kind} {messy.name}" for kind, messy in FILES])
def test_a_messy_file_is_read_or_asked_about(messy, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(messy.content)
    notation = Notation(**messy.options)
    if messy.asks:
        with pytest.raises(InputError) as error:
            read_series(read_tables([path], notation, [messy.column], messy.time, None), [messy.column], messy.time, None)
        assert messy.asks in str(error.value)
        return
    [table] = read_tables([path], notation, [messy.column], messy.time, None)
    [series], [account] = read_series([table], [messy.column], messy.time, None)
    np.testing.assert_allclose(table.numbers(messy.column), messy.values, rtol=1e-12)
    assert messy.remark in " ".join(account.sentences())
    if series.times is not None:
        first = (
            np.timedelta64(5, "h")
            if messy.first == "5h"
            else float(messy.first)
            if "." in messy.first
            else np.datetime64(messy.first)
        )
        assert series.times[0] == first
        assert (np.diff(series.times) > np.zeros(1, dtype=np.diff(series.times).dtype)).all()


WAY = ("-c", "x", "--time", "day", "--keys", "time", "--bandwidth", "3d")


def write(folder, **files):
    for name, rows in files.items():
        (folder / f"{name}.csv").write_text("day,x\n" + "\n".join(rows) + "\n")


ROWS = [f"2024-01-{day:02},{day % 4}" for day in range(1, 25) if day not in (9, 10)]


def test_a_folder_is_smoothed_file_by_file_into_a_folder(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", north=ROWS, south=[*ROWS, "2024-01-25,?"])
    (tmp_path / "in" / "notes.md").write_text("no table")
    result = run(tmp_path / "in", *WAY, "--out", tmp_path / "out", "--json", tmp_path / "a.json", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["north.csv", "south.csv"]
    assert (tmp_path / "out" / "south.csv").read_text().splitlines()[0] == "day,x,x_smooth,x_lower,x_upper,x_outlier"
    content = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(schema("smooth")).validate(content)
    assert [member["name"] for member in content["series"]] == ["north", "south"]
    assert [member["condition"]["absent"] for member in content["series"]] == [2, 2]
    assert [account["missing"] for account in content["read"]] == [{"x": {}}, {"x": {"?": 1}}]
    for one, other in ((("in/north.csv",), "north.csv"), (("in/north.csv", "in/south.csv"), "out2/north.csv")):
        alone = tmp_path / ("north.csv" if len(one) == 1 else "out2")
        assert run(*(tmp_path / name for name in one), *WAY, "--out", alone, "--jobs", 1).exit_code == 0
        assert (tmp_path / other).read_bytes() == (tmp_path / "out" / "north.csv").read_bytes()


def test_files_that_cannot_share_a_folder_are_refused(tmp_path):
    for folder in ("a", "b", "empty"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "a", x=ROWS)
    write(tmp_path / "b", x=ROWS)
    assert "files of different names, got x.csv twice" in run(tmp_path / "a", tmp_path / "b", *WAY).stderr
    assert "a table in the folder" in run(tmp_path / "empty", *WAY).stderr
    out = run(tmp_path / "a", *WAY, "--out", tmp_path / "a" / "x.csv")
    assert "a folder as --out of several files" in out.stderr
    assert "an output file that is not an input file" in run(tmp_path / "a", *WAY, "--out", tmp_path / "a").stderr


def test_the_report_counts_what_was_read(tmp_path):
    write(tmp_path, a=[*ROWS[:5], "2024-01-05,ERR", "2024-01-06,oops", *ROWS[5:]])
    shown = " ".join(run(tmp_path / "a.csv", *WAY, "--missing", "err", "--errors", "missing").stdout.split())
    assert "1 missing value: 1 × ERR. 1 cell is no number and counts as missing: 'oops' at line 8." in shown
    assert "2 rows repeat the time of an earlier row: their values are averaged. 2 absent days" in shown
    assert "--errors ask or missing, got 'drop'" in run(tmp_path / "a.csv", *WAY, "--errors", "drop").stderr
    everything = ",".join(["0,1,2,3", "ERR", "oops"])
    assert "got 1 × ERR, 1 × oops" in run(tmp_path / "a.csv", *WAY, "--missing", everything).stderr


def test_comments_and_units_stay_in_the_written_file(tmp_path):
    (tmp_path / "a.csv").write_text("# station 12\nday,x\n,°C\n" + "\n".join([*ROWS[:4], "# moved", *ROWS[4:]]) + "\n")
    assert run(tmp_path / "a.csv", *WAY, "--out", tmp_path / "b.csv").exit_code == 0
    written = (tmp_path / "b.csv").read_text().splitlines()
    assert written[:3] == ["# station 12", "day,x,x_smooth,x_lower,x_upper,x_outlier", ",°C,°C,°C,°C,"]
    assert written[7] == "# moved"
    assert len(written) == 4 + len(ROWS)
