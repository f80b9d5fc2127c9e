"""What benchmarks write for the pages: each file says where it was measured and is read by a page."""

import importlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from overt.bench import provenance
from overt.errors import InputError

ROOT = Path(__file__).parents[3]
RESULTS = sorted((ROOT / "docs" / "results").glob("*.json"))


@pytest.fixture
def results():
    return importlib.import_module("benchmarks.results")


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_says_which_code_measured_when_and_where_or_that_it_was_not_recorded(file):
    message = json.loads(file.read_text())
    for head in message["runs"] if isinstance(message.get("runs"), list) else [message]:
        assert {"commit", "date", "machine"} <= head.keys()
        assert head["machine"] or not head["commit"]


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_a_result_is_read_by_a_page(file):
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "making").rglob("*.py")]
    assert any(f'"{file.stem}"' in page.read_text() for page in pages)


def test_every_result_that_a_page_reads_is_there():
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "making").rglob("*.py")]
    requested = {name for page in pages for name in re.findall(r'\bresult\(["\']([\w-]+)["\']\)', page.read_text())}
    assert requested <= {file.stem for file in RESULTS}


def test_a_benchmark_writes_its_command_without_the_place_of_the_file(results, tmp_path, monkeypatch):
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", ["/benchmarks/of/mine/benchmarks/lens/page.py", "--runs", "3", "--out", str(out)])
    results.write(out, seconds={"one": 1.5}, curve=[[1, 2], [3, 4]])
    message = json.loads(out.read_text())
    assert message["command"] == "python -m benchmarks.lens.page --runs 3"
    assert message["machine"]["python"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", message["date"])
    assert message["commit"] == provenance.commit()
    assert message["curve"] == [[1, 2], [3, 4]]


def test_a_benchmark_that_is_given_no_file_writes_none(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results.write(None, seconds=1)
    assert not list(tmp_path.iterdir())


def git(folder, *arguments):
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True
    )


@pytest.fixture
def checkout(tmp_path):
    """A checkout of a package, whose folder is given."""
    package = tmp_path / "checkout" / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path / "checkout", "init", "-q")
    git(tmp_path / "checkout", "add", ".")
    git(tmp_path / "checkout", "commit", "-qm", "first")
    return package


def test_the_commit_is_that_of_the_packages_own_checkout(checkout):
    commit = provenance.commit(checkout) or ""
    assert re.fullmatch(r"[0-9a-f]{12}", commit)
    (checkout / "__init__.py").write_text("changed = True")
    assert provenance.commit(checkout) == f"{commit}-dirty"


def test_a_package_that_is_installed_in_another_projects_folder_has_no_commit(checkout, tmp_path):
    installed = checkout.parents[1] / ".venv" / "lib" / "site-packages" / "package"
    installed.mkdir(parents=True)
    assert provenance.commit(installed) is None
    assert provenance.commit(tmp_path) is None


@pytest.fixture
def ladder():
    return importlib.import_module("benchmarks.learn.ladder")


@pytest.fixture
def pictures(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(ROOT / "docs" / "making")
    return importlib.import_module("pictures")


def run_of(folder, name, *, seed, validation, test):
    """A finished run, as `overt train` leaves it."""
    (folder / name).mkdir(parents=True)
    scores = {"bleu": test, "chrf": 60.0, "bleu_signature": "nrefs:1", "by_length": []}
    recipe = (ROOT / "recipes" / "multi30k-transformer-tiny.toml").read_text()
    message = {"recipe_text": recipe, "seed": seed, "hardware": "A Processor", "threads": 1, "parameters": 2, "updates": 3}
    message |= {"tokens": 4, "seconds": 5.0, "validation": {"bleu": validation, "perplexity": 5.0}, "test": scores}
    (folder / name / "results.json").write_text(json.dumps(message))
    (folder / name / "log.jsonl").write_text('{"update": 3, "validation": {"bleu": 40}}\n')


def test_every_run_of_a_recipe_is_recorded_and_the_best_by_validation_is_shown(ladder, pictures, tmp_path, monkeypatch):
    for name, seed, validation, test in (("", 0, 41.0, 39.0), ("-seed1", 1, 42.0, 38.0), ("-seed2", 2, 40.0, 43.0)):
        run_of(tmp_path / "runs", f"multi30k-transformer-tiny{name}", seed=seed, validation=validation, test=test)
    out = tmp_path / "results" / "ladder.json"
    out.parent.mkdir()
    out.write_text(
        json.dumps({"runs": [{"recipe": None, "tried": "something"}, {"recipe": "multi30k-transformer-tiny", "seed": 1}]})
    )
    monkeypatch.setattr("sys.argv", ["ladder.py", str(tmp_path / "runs"), "--out", str(out)])
    ladder.main()
    runs = json.loads(out.read_text())["runs"]
    assert sorted(str(run.get("seed")) for run in runs) == ["0", "1", "2", "None"]
    assert {run["commit"] for run in runs if run["recipe"]} == {None}
    monkeypatch.setattr(pictures, "result", lambda name: {"runs": [run for run in runs if run["recipe"]]})
    assert pictures.ladder("single")["Transformer"]["bleu"] == 38.0


def test_a_folder_whose_name_says_another_seed_is_refused(ladder, tmp_path):
    run_of(tmp_path, "multi30k-transformer-tiny-seed2", seed=1, validation=1.0, test=1.0)
    with pytest.raises(InputError, match="a folder's name says its run's seed, got .*-seed2 of seed 1"):
        ladder.finished(tmp_path)


def test_the_runs_that_are_shown_are_recorded_in_full(pictures):
    for part in ("single", "alike", "joined"):
        for run in pictures.ladder(part).values():
            assert run["curve"]
            assert run["by_length"]


def test_a_table_says_how_many_runs_the_contenders_of_each_case_have(pictures, monkeypatch):
    kernels = importlib.import_module("shown.kernels")
    cases = {"one": {"a": 21, "b": 21}, "two": {"a": 6, "b": 5}, "three": {"a": 4, "b": 4}, "four": {"a": 4, "b": 4}}
    message = [
        {"name": name, "contenders": {who: {"runs": [1.0] * n} for who, n in case.items()}} for name, case in cases.items()
    ]
    monkeypatch.setattr(kernels, "result", lambda name: {"cases": message})
    text = kernels.runs("any")
    assert "21 runs, in turns, in 1 of 4 cases" in text
    assert "| a 6, b 5 | `two` |" in text
    assert "| 4 | `three`, `four` |" in text
    monkeypatch.setattr(kernels, "result", lambda name: {"cases": message[:1]})
    assert kernels.runs("any") == "Medians are of 21 runs, in turns."
