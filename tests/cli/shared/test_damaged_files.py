"""A damaged file of any kind is refused in a sentence or read; the output is written whole or keeps its old content."""

import re
import warnings
import zipfile

import pytest
from typer.testing import CliRunner

from damaged_files import SOUND, bomb, damaged, workbook
from overt.cli.main import app
from overt.cli.shared.tables.read_table import read_table
from overt.errors import OvertError

FEW = range(12)


def smoothed(path, *options):
    target = path.with_name(f"out{path.suffix}")
    target.write_bytes(b"before")
    result = CliRunner().invoke(app, ["smooth", str(path), "--column", "x", "--out", str(target), *options])
    return result, target


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "csv", "csv.gz"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of values near the largest number
def test_a_damaged_table_is_refused_in_a_sentence_or_smoothed(kind, tmp_path):
    refused = 0
    for name, content in damaged(kind, FEW):
        path = tmp_path / f"{name}.{kind}"
        path.write_bytes(content)
        result, target = smoothed(path)
        assert result.exit_code in (0, 2), (name, result.exception)
        if result.exit_code == 2:
            refused += 1
            assert re.match(r"overt: Expected .*\. Fix: ", result.output), name
            assert target.read_bytes() == b"before"
    assert refused > len(FEW) / 3


def readers():
    from overt.explain.recipes.vectors import read_csv
    from overt.learn.config.recipe import read_recipe
    from overt.lens import read_log
    from overt.lens.analysis.surveys.reading.corpus import Corpus

    return {
        "vectors.csv": read_csv,
        "log.jsonl": read_log,
        "corpus.jsonl": lambda path: list(Corpus([path])),
        "toml": lambda path: read_recipe(path, files=False),
    }


@pytest.mark.parametrize("kind", ["vectors.csv", "log.jsonl", "corpus.jsonl", "toml"])
def test_a_damaged_text_is_refused_in_a_sentence_or_read(kind, tmp_path):
    read, messages = readers()[kind], {}
    for name, content in damaged(kind, FEW):
        path = tmp_path / f"{name}.{kind}"
        path.write_bytes(content)
        try:
            read(path)
        except OvertError as error:
            messages[name] = str(error)
    assert messages
    assert all(re.match(r"(?s)Expected .*\. Fix: ", message) for message in messages.values()), messages


def test_the_sound_files_are_read(tmp_path):
    for kind in ("xlsx", "parquet", "csv", "csv.gz"):
        path = tmp_path / f"sound.{kind}"
        path.write_bytes(SOUND[kind][0]())
        table = read_table(path)
        assert (table.length, table.header[:3]) == (40, ["t", "x", "note"])


class Draws:
    """Chooses the bomb of that name."""

    def __init__(self, kind):
        self.kind = kind

    def choice(self, _):
        return self.kind


@pytest.mark.parametrize("kind", ["spaces", "far row", "far cells", "entities"])
def test_a_workbook_made_to_fill_the_memory_is_refused_or_read(kind, tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(bomb(workbook(), Draws(kind)))
    result, target = smoothed(path)
    assert result.exit_code == (0 if kind == "far cells" else 2)
    assert ("Expected" in result.output) == (kind != "far cells")
    assert (target.read_bytes() == b"before") == (kind != "far cells")


@pytest.mark.parametrize(
    "content", [b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), b"<html></html>", b"", b"PK\x03\x04", b"x\n1\n"]
)
def test_a_file_of_another_kind_under_the_name_of_a_workbook_is_refused(content, tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    result, target = smoothed(path)
    assert result.exit_code == 2
    assert "a.xlsx to be an Excel workbook with a table on its first sheet" in result.output
    assert target.read_bytes() == b"before"


def test_a_workbook_whose_other_sheet_is_damaged_is_refused_before_the_work(tmp_path, monkeypatch):
    path = tmp_path / "a.xlsx"
    path.write_bytes(workbook())
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content[: len(content) // 2] if "sheet2" in name else content)
    monkeypatch.setattr("overt.cli.smooth._curves", lambda *_: pytest.fail("the work began"))
    result, _ = smoothed(path)
    assert result.exit_code == 2
    assert "Fix: export it again as .xlsx" in result.output


def test_warnings_of_the_reading_library_are_not_shown(tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(workbook())
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if "styles" not in name}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, _ = smoothed(path)
    assert result.exit_code in (0, 2)
