"""Smoothing needs no torch, and `import overt` is quick."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys, time
start = time.perf_counter()
import overt
seconds = time.perf_counter() - start
at_import = [name for name in ("numpy", "torch", "rich", "typer") if name in sys.modules]
overt.smooth([1.0, 2.0, 4.0, 3.0])
overt.smoothing.reweight([[1.0, 2.0]])
overt.smoothing.demonstration()
print(json.dumps([seconds, at_import, "torch" in sys.modules or "pandas" in sys.modules]))
"""


def run() -> list:
    return json.loads(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout)


def test_smoothing_imports_neither_torch_nor_pandas():
    assert run()[2] is False


def test_importing_overt_imports_nothing_heavy_and_takes_under_three_tenths_of_a_second():
    # The quickest of three, since another process may hold the machine.
    runs = [run() for _ in range(3)]
    assert runs[0][1] == []
    assert min(seconds for seconds, _, _ in runs) < 0.3
