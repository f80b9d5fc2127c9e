"""What a release carries: files that agree with each other, and workflows that can be read."""

import re
import tomllib
from pathlib import Path

import pytest

import overt

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_all_files_name_one_version():
    assert PROJECT["version"] == overt.__version__
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == overt.__version__
    assert f"## {overt.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_each_licence_that_a_file_may_have_is_there():
    annotations = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
    used = {name for each in annotations for name in re.split(r" AND | OR ", each["SPDX-License-Identifier"])}
    assert used == {path.stem for path in (ROOT / "LICENSES").iterdir()}
    assert (ROOT / "LICENSES" / "Apache-2.0.txt").read_text() == (ROOT / "LICENSE").read_text()


def test_workflows_call_only_targets_and_files_that_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = workflow.read_text()
        assert set(re.findall(r"make PYTHON=python ([\w-]+)", text)) <= targets, workflow.name
        for script in re.findall(r"python ((?:benchmarks|docs|tests)/\S+\.py)", text):
            assert (ROOT / script).is_file(), f"{workflow.name}: {script}"


def test_workflows_and_the_citation_are_yaml():
    yaml = pytest.importorskip("yaml")
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(workflow.read_text())["jobs"]
        assert all(job["steps"] for job in jobs.values()), workflow.name
        needed = {name for job in jobs.values() for name in job.get("needs", [])}
        assert needed <= set(jobs), workflow.name
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(citation)


def test_a_chapter_opens_as_a_notebook_where_the_site_is_built_for_a_repository(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "making")
    import hooks

    page = hooks.with_notebook("# Title\n\nText", "chapters/3-six-steps.md", "someone/overt")
    assert page.startswith(
        "# Title\n\n[Open in Colab](https://colab.research.google.com/github/someone/overt/blob/main/notebooks/3-six-steps.ipynb)"
    )
    assert page.endswith("\nText")
    for source, repository in (("chapters/3-six-steps.md", None), ("dot.md", "someone/overt")):
        assert hooks.with_notebook("# Title\n\nText", source, repository) == "# Title\n\nText"
    for chapter in (ROOT / "docs" / "chapters").glob("*.md"):
        assert (ROOT / "notebooks" / f"{chapter.stem}.ipynb").is_file()
