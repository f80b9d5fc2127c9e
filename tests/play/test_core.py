"""The compiled core of live pages: the bytes are those of its source, and it needs nothing of a browser but memory."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "overt" / "play" / "core.wasm"
COMPILER = "14.0.6"  # the bytes in the repository are those of this clang


def test_the_core_is_small():
    assert CORE.stat().st_size < 300_000


@pytest.mark.slow
def test_the_core_is_what_its_source_compiles_to(tmp_path):
    if shutil.which("clang++") is None or shutil.which("wasm-ld") is None:
        pytest.skip("needs clang and lld, with their target wasm32: apt install clang lld")
    version = subprocess.run(["clang++", "--version"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["make", "wasm", f"CORE={tmp_path / 'core.wasm'}"], check=True, cwd=ROOT, capture_output=True)
    if COMPILER not in version:
        pytest.skip(f"needs clang {COMPILER} to compare bytes; {version.splitlines()[0]} compiles it too, to others")
    assert (tmp_path / "core.wasm").read_bytes() == CORE.read_bytes(), "native/ has changed: run `make wasm`"


def test_the_core_imports_nothing(chromium):
    page = chromium.page()
    bytes_of = f"new Uint8Array({list(CORE.read_bytes())})"
    assert page.ask(f"WebAssembly.Module.imports(new WebAssembly.Module({bytes_of})).length") == 0
