"""Ctrl-C ends a kernel that would run for minutes."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

PROGRAM = [sys.executable, str(Path(__file__).with_name("endless_program.py"))]
SOON = 20  # seconds: where other programs share the processors; the kernels would run for minutes


@pytest.fixture(scope="module")
def program():
    """A process that starts one kernel after the other."""
    with subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()
        assert process.wait(SOON) == 0


@pytest.mark.parametrize("kernel", ["dot", "additive", "summary", "dot gradients", "additive gradients"])
@pytest.mark.few_cases(2)
def test_ctrl_c_ends_a_long_kernel_and_the_next_call_runs(kernel, program):
    print(kernel, file=program.stdin, flush=True)
    assert program.stdout.readline() == "started\n"
    time.sleep(0.5)
    assert program.poll() is None
    sent = time.time()
    program.send_signal(signal.SIGINT)
    too_late = threading.Timer(SOON, program.kill)
    too_late.start()
    word, ended, right = program.stdout.readline().split()
    too_late.cancel()
    assert (word, right) == ("interrupted", "True")
    assert float(ended) - sent < SOON
    print(f"{kernel}: {float(ended) - sent:.3f} s")


@pytest.mark.slow
def test_a_signal_whose_handler_raises_nothing_changes_nothing():
    done = subprocess.run([*PROGRAM, "a handler that goes on"], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
