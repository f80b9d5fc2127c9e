"""The peak memory of a run in this process, as Linux counts it."""

import time
from collections.abc import Callable
from pathlib import Path

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
NO_MEMORY = "" if _CLEAR_REFS.exists() else "this system has no /proc, from which peak memory is read"


def seconds_and_memory(run: Callable[[], object]) -> tuple[float, int]:
    """The seconds of a run, and its peak memory in bytes above that of this process before it; `NO_MEMORY` says where there is no way."""
    _CLEAR_REFS.write_text("5")  # resets the peak
    before, start = _resident("VmRSS"), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return seconds, _resident("VmHWM") - before


def _resident(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
