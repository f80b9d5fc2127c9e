"""What a release carries: files that agree with each other, and workflows that can be read."""

import re
import tomllib
from pathlib import Path

import pytest

import overt

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_all_files_name_one_version():
    assert PROJECT["version"] == overt.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == overt.__version__
    version, date = re.search(r"^## (\S+), (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).groups()
    assert (version, date) == (overt.__version__, re.search(r"^date-released: (.+)$", citation, re.MULTILINE)[1])
    assert set(re.findall(r"overt-([\d.]+\d)-", (ROOT / "README.md").read_text())) == {overt.__version__}


def test_actions_of_others_are_named_by_their_commit_and_version():
    used = [
        line
        for file in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in file.read_text().splitlines()
        if "uses:" in line
    ]
    assert used
    assert [line for line in used if not re.search(r"uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)] == []


def test_a_workflow_may_only_read_unless_a_job_says_what_it_writes():
    yaml = pytest.importorskip("yaml")
    writing = {}
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}, file.name
        for name, job in workflow["jobs"].items():
            if rights := {right for right, level in job.get("permissions", {}).items() if level == "write"}:
                writing[name] = rights
    assert writing == {"publish": {"attestations", "contents", "id-token"}, "site": {"contents"}}


def test_a_wheel_without_the_native_core_is_for_every_python():
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert builds["wheel"]["py-api"] == "cp312"
    assert [each["wheel"]["py-api"] for each in builds["overrides"] if not each["wheel"]["cmake"]] == ["py3", "py3"]


def test_each_package_that_a_user_installs_is_listed_with_its_licence():
    extras = PROJECT["optional-dependencies"]
    wanted = [
        PROJECT["dependencies"],
        *(packages for extra, packages in extras.items() if extra not in {"dev", "slow", "docs", "mutants"}),
    ]
    names = {re.split(r"[<>=; \[]", package)[0] for packages in wanted for package in packages} - {"overt"}
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    assert set(re.findall(r"^\| ([\w-]+) \| [A-Za-z]", page, re.MULTILINE)) - {"package"} == names


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
        for module in re.findall(r"python -m (benchmarks\.\S+)", text):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), f"{workflow.name}: {module}"


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
