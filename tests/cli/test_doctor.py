"""`overt doctor`: what is there, what is missing, what is broken."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from overt import native
from overt.cli.doctor import EXTRAS
from overt.cli.main import app
from overt.errors import install_command

ROOT = Path(__file__).parents[2]


def run():
    return CliRunner().invoke(app, ["doctor"])


def test_it_looks_for_what_the_extras_bring():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, names in EXTRAS.items():
        wanted = {item.split(">=")[0].split("==")[0] for item in extras[extra] if not item.startswith("overt[")}
        assert set(names) == wanted


def test_it_shows_versions_paths_and_the_models_sums():
    torch = pytest.importorskip("torch")
    result = run()
    assert result.exit_code == 0
    lines = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith("✓")}
    assert np.__version__ in lines["numpy"]
    assert "blocked" in lines["paths"]
    if not torch.cuda.is_available():
        assert "-  triton               torch finds no GPU" in result.stdout
    assert "…, correct" in lines["model.safetensors"]


@pytest.mark.parametrize(("version", "status"), [("2.6.0+cpu", 1), ("2.7.1", 0)])
@pytest.mark.few_cases(1)
def test_an_old_torch_is_named_with_what_it_lacks(version, status):
    program = f"import torch\ntorch.__version__ = {version!r}\nfrom overt.cli.main import app\napp(['doctor'])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    assert result.returncode == status
    too_old = f"attention needs torch 2.7 or later, but {version} is installed. Fix: run: {install_command('torch')}"
    slower = "torch before 2.10: the native core reads tensors by their attributes"
    assert (too_old in result.stdout, slower in result.stdout) == (status == 1, status == 0)


def test_what_is_not_installed_is_named_with_its_cure_and_is_no_fault(monkeypatch):
    from importlib import metadata, util

    from overt.cli import doctor

    def missing(name):
        if name == "torch":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "version", missing)
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    result = run()
    assert result.exit_code == 0
    assert f"- torch not installed: {install_command('torch')}" in " ".join(result.stdout.split())
    assert "needs torch; overt smooth works without it" in result.stdout
    assert "all-MiniLM-L6-v2 is not installed: explain " in result.stdout


def test_a_broken_model_file_is_told_whole_and_ends_with_1(monkeypatch, tmp_path):
    from overt.explain import text_model

    for name in text_model.SUMS:
        (tmp_path / name).write_text("damaged")
    monkeypatch.setattr(text_model, "packaged_folder", lambda: tmp_path)
    result = run()
    assert result.exit_code == 1
    assert text_model.SUMS["model.safetensors"] in "".join(result.stdout.split())
    assert "reinstall" in result.stdout


def test_a_torch_that_does_not_load_is_broken(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "torch" else None)
    result = run()
    assert result.exit_code == 1
    assert "torch is installed but cannot be imported" in result.stdout


def test_it_shows_the_level_of_the_native_core():
    result = run()
    assert f"✓ native {native.level()}" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("available", "used", "flags", "expected"),
    [
        (["amx", "avx512_bf16"], "amx", {"amx_bf16", "avx512_bf16", "avx512_fp16"}, [True, "used for", None, "preferred", None, "float16 in float32"]),
        (["avx512_bf16"], "avx512_bf16", {"avx512_bf16"}, [None, "not in this", True, "used for", None, "not in this"]),
        ([], None, set(), [None, "not available", None, "not available", None, "float16 in float32"]),
        ([], None, {"amx_bf16"}, [None, "cannot run", None, "not in this", None, "not in this"]),
    ],
)  # fmt: skip
def test_it_names_the_units_of_half_precision_and_which_are_used(available, used, flags, expected, monkeypatch):
    monkeypatch.delenv("OVERT_SIMD", raising=False)
    from overt.cli import doctor

    units = [*doctor._units([*available, "amx-emulated"], used, flags)]
    assert [unit.name for unit in units] == ["amx", "avx512_bf16", "avx512_fp16"]
    for unit, mark, details in zip(units, expected[::2], expected[1::2], strict=True):
        assert unit.available is (mark is True)
        assert details in unit.details


def test_it_names_the_emulated_unit_and_the_setting_by_which_another_is_not_used(monkeypatch):
    from overt.cli import doctor

    monkeypatch.setenv("OVERT_SIMD", "amx-emulated")
    units = {unit.name: unit for unit in doctor._units(["avx512_bf16", "amx-emulated"], "amx-emulated", {"avx512_bf16"})}
    assert units["amx-emulated"].available
    assert units["amx-emulated"].details == "used for bfloat16: plain C++ for tests, slow"
    assert units["avx512_bf16"].details == "not used: OVERT_SIMD is amx-emulated (OVERT_SIMD=avx512_bf16 selects it)"


def test_a_native_core_that_was_not_built_is_told_whole_with_its_cure_and_is_no_fault(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "its C++ did not compile. Fix: install g++"))
    result = run()
    assert result.exit_code == 0
    message = "-  native: attention uses slower kernels: its C++ did not compile. Fix: install g++."
    assert message in " ".join(result.stdout.split("\n   "))


def test_a_native_core_that_does_not_load_is_broken(monkeypatch):
    monkeypatch.setattr(native, "load", lambda: native.Loaded(None, "it does not load", broken=True))
    result = run()
    assert result.exit_code == 1
    assert "✗  native: it does not load." in result.stdout


def test_a_level_that_the_machine_lacks_is_broken_with_what_there_is(monkeypatch):
    native.module.cache_clear()
    monkeypatch.setenv("OVERT_SIMD", "avx1024")
    result = run()
    assert result.exit_code == 1
    assert "a SIMD level of this machine in OVERT_SIMD: " in result.stdout
