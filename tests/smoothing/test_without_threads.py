"""Pyodide has no threads, no processes and no file locks, and no native core: overt imports and smooths all the same."""

import subprocess
import sys

import numpy as np
import pytest

import overt

TAKEN_AWAY = """
import os, subprocess, sys, sysconfig, threading, _thread

def refuse(*arguments, **options):
    raise RuntimeError("can't start new thread")

sysconfig.get_config_vars()  # read from a file that is named by the platform
sys.platform = "emscripten"
for module in ("_multiprocessing", "_posixshmem", "_winapi", "fcntl", "msvcrt", "resource", "termios", "overt._native", "torch"):
    sys.modules[module] = None
for name in ("fork", "forkpty", "posix_spawn", "register_at_fork", "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
threading.Thread.start = _thread.start_new_thread = subprocess.Popen.__init__ = refuse
os.cpu_count = lambda: 4
"""
SMOOTHS = """
import numpy as np, overt
noisy = np.load(sys.argv[1])
found = overt.smoothing.analyze(noisy)
online = overt.smoothing.Online()
steps = [online.update(value) for value in noisy[:50]]
np.savez(sys.argv[2], values=overt.smooth(noisy), low=found.lower, high=found.upper, columns=overt.smooth(np.stack([noisy, -noisy])))
"""


@pytest.mark.slow
def test_it_smooths_without_threads_processes_and_locks(tmp_path):
    noisy = np.sin(np.linspace(0, 6, 900)) + 0.3 * np.random.default_rng(0).normal(size=900)
    np.save(tmp_path / "noisy.npy", noisy)
    command = [sys.executable, "-c", TAKEN_AWAY + SMOOTHS, str(tmp_path / "noisy.npy"), str(tmp_path / "smooth.npz")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    smooth = np.load(tmp_path / "smooth.npz")
    np.testing.assert_allclose(smooth["values"], overt.smooth(noisy), atol=1e-9)
    assert np.isfinite([smooth["low"], smooth["high"]]).all()
    np.testing.assert_allclose(smooth["columns"], overt.smooth(np.stack([noisy, -noisy])), atol=1e-9)
