"""Ctrl-C ends a kernel that would run for minutes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = [sys.executable, str(Path(__file__).with_name("endless_program.py"))]
SOON = 20  # seconds: where other programs share the processors; the kernels would run for minutes


@pytest.mark.parametrize("kernel", ["dot", "additive", "summary", "dot gradients", "additive gradients"])
def test_ctrl_c_ends_a_long_kernel_and_the_next_call_runs(kernel):
    with subprocess.Popen([*PROGRAM, kernel], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "started\n"
            time.sleep(1)
            assert process.poll() is None
            sent = time.time()
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=SOON)
        finally:
            process.kill()
    word, ended, right = output.split()
    assert (word, right, process.returncode) == ("interrupted", "True", 0)
    assert float(ended) - sent < SOON
    print(f"{kernel}: {float(ended) - sent:.3f} s")


def test_a_signal_whose_handler_raises_nothing_changes_nothing():
    done = subprocess.run([*PROGRAM, "a handler that goes on"], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
