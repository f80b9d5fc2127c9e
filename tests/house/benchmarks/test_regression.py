"""The comparison of benchmarks with stored ones: a fall counts only where it is large and seen twice."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def regression():
    return importlib.import_module("benchmarks.regression")


def stored(tmp_path, name, **cases):
    contents = [
        {"name": case, "contenders": {"torch": {"times_best_other": 1 / ratio}, "overt native": {"times_best_other": ratio}}}
        for case, ratio in cases.items()
    ]
    (tmp_path / name).write_text(json.dumps({"cases": contents}))
    return tmp_path / name


def status(regression, monkeypatch, *files):
    monkeypatch.setattr("sys.argv", ["regression.py", *map(str, files)])
    return regression.main()


def test_the_stored_results_of_this_repository_do_not_fall_behind_themselves(regression, monkeypatch):
    file = ROOT / "docs" / "results" / "dot.json"
    assert len(regression.ratios(file)) > 5
    assert status(regression, monkeypatch, file, file) == 0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(1.0, 1.0, 0), (0.86, 0.86, 0), (0.84, 0.84, 1), (0.5, 0.9, 0), (0.9, 0.5, 0), (1.5, 2.0, 0)],
)
def test_a_fall_of_more_than_fifteen_per_cent_in_both_runs_fails(regression, monkeypatch, tmp_path, first, second, expected):
    before = stored(tmp_path, "before.json", one=3.0, other=2.0)
    runs = [stored(tmp_path, f"{share}.json", one=3.0 * share, other=2.0) for share in (first, second)]
    assert status(regression, monkeypatch, before, *runs) == expected


def test_cases_of_one_file_alone_are_not_compared_and_none_in_common_is_an_error(regression, monkeypatch, tmp_path):
    before = stored(tmp_path, "before.json", one=3.0, gone=9.0)
    assert status(regression, monkeypatch, before, stored(tmp_path, "now.json", one=3.0, new=0.1)) == 0
    assert status(regression, monkeypatch, before, stored(tmp_path, "none.json", new=0.1)) == 2
