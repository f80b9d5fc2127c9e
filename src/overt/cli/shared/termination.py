"""What a command does when it is asked to end: SIGTERM unwinds it as Ctrl-C does, so that no temporary file stays behind."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STATUS = 128 + signal.SIGTERM  # what a shell reports of a process that the signal ended


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit(143); a second one ends the process at once.

    Nothing changes outside of the main thread, which alone may set handlers, nor where the program has a handler of its own.
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
    """Write the rest of standard output nowhere: what it still holds could not be written, and Python tries again at its end."""
    with suppress(OSError, ValueError):  # closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
