"""The front door is typed: a type checker refuses each mistake of tests/house/typed/mistakes.py and nothing of tests/house/typed/correct.py."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import overt

pytestmark = pytest.mark.slow

TYPED = Path(__file__).parent / "typed"


@pytest.fixture(scope="module")
def errors():
    """The lines that pyright reports, by file."""
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(TYPED.parents[2]), *map(str, TYPED.glob("*.py"))]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert report["summary"]["filesAnalyzed"] == 2
    lines: dict[str, dict[int, str]] = {"mistakes.py": {}, "correct.py": {}}
    for each in report["generalDiagnostics"]:
        lines[Path(each["file"]).name][each["range"]["start"]["line"] + 1] = each["message"]
    return lines


def test_every_marked_line_is_an_error_and_no_other(errors):
    marked = {
        number for number, line in enumerate((TYPED / "mistakes.py").read_text().splitlines(), 1) if line.endswith("# error")
    }
    assert len(marked) >= 30
    assert set(errors["mistakes.py"]) == marked


def test_correct_calls_are_accepted(errors):
    assert errors["correct.py"] == {}


def test_correct_calls_run():
    runpy.run_path(str(TYPED / "correct.py"))


@pytest.mark.parametrize("name", ["scores", "normalizers", "biases", "masks"])
def test_dir_of_a_module_shows_its_public_names(name):
    module = getattr(overt, name)
    assert sorted(dir(module)) == sorted(module.__all__)
    assert not [public for public in module.__all__ if public.startswith("_")]
    assert all(
        getattr(module, public).__module__.startswith("overt") for public in module.__all__ if callable(getattr(module, public))
    )
