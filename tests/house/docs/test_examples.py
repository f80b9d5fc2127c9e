"""Every script in examples/ fits a screen, runs, and says what it is there to say."""

import runpy
import sys
import tempfile
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[3] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
TELLING = {
    "hidden_states.py": "equal: True, (1, 4, 3) became (1, 4, 6)",
    "attention_and_self_attention.py": "order changes nothing: True",
    "six_steps.py": "recomputed vs. model",
    "reweighting.py": "of the noise is gone",
    "one_token_at_a_time.py": "padding reaches nobody: True",
    "inside_a_model.py": "equal when read back: True",
    "order_and_distance.py": "a sequence and its permutation are one: True",
}


def test_each_script_has_its_telling_line():
    assert {script.name for script in SCRIPTS} == set(TELLING)


TRAINS = {"order_and_distance.py"}


@pytest.mark.parametrize(
    "script",
    [pytest.param(script, id=script.name, marks=[pytest.mark.slow] if script.name in TRAINS else []) for script in SCRIPTS],
)
def test_a_script_fits_one_screen_and_runs(script, monkeypatch, tmp_path, capsys):
    assert len(script.read_text().splitlines()) <= 60
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script)])
    with torch.enable_grad():  # a script may turn gradients off for good
        runpy.run_path(str(script), run_name="__main__")
    assert TELLING[script.name] in capsys.readouterr().out
