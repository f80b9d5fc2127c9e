"""What benchmarks write for the pages: each file says where it was measured and is read by a page."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "docs" / "results").glob("*.json"))


@pytest.fixture
def results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("results")


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_says_where_it_was_measured(file):
    assert json.loads(file.read_text())["machine"]


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_is_read_by_a_page(file):
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "making").rglob("*.py")]
    assert any(f'"{file.stem}"' in page.read_text() for page in pages)


def test_every_result_that_a_page_reads_is_there():
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "making").rglob("*.py")]
    asked = {name for page in pages for name in re.findall(r'\bresult\(["\']([\w-]+)["\']\)', page.read_text())}
    assert asked <= {file.stem for file in RESULTS}


def test_a_benchmark_writes_its_command_without_the_place_of_the_file(results, tmp_path, monkeypatch):
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["/somewhere/benchmarks/page.py", "--runs", "3", "--out", str(out)])
    results.write(out, seconds={"one": 1.5}, curve=[[1, 2], [3, 4]])
    told = json.loads(out.read_text())
    assert told["command"] == "python benchmarks/page.py --runs 3"
    assert told["machine"]["python"]
    assert told["curve"] == [[1, 2], [3, 4]]


def test_a_benchmark_that_is_given_no_file_writes_none(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results.write(None, seconds=1)
    assert not list(tmp_path.iterdir())
