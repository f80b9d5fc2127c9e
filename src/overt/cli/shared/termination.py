"""End a command by SIGTERM like Ctrl-C: the stack is unwound, so that no temporary file remains."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STATUS = 128 + signal.SIGTERM  # a shell's status for a process that the signal ended


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit(143); a second one ends the process at once.

    Without effect outside of the main thread, since only that may set handlers, and if the program has its own handler.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise SystemExit(STATUS)


def discard_output() -> None:
    """Discard the remaining standard output: it could not be written, and Python would try again at exit."""
    with suppress(OSError, ValueError):  # closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
