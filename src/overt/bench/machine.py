"""The machine and the packages of a measurement, and what a run takes of both: seconds and memory."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import overt

_PACKAGES = ["torch", "numpy", "pykeops", "keras"]
_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
NO_MEMORY = "" if _CLEAR_REFS.exists() else "this system has no /proc, from which peak memory is read"


def machine() -> dict[str, str | int | None]:
    """The processor, the number of processors, Python, and the versions of overt and of the packages it is compared with."""
    facts: dict[str, str | int | None] = {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "overt": overt.__version__,
    }
    return facts | {name: _version(name) for name in _PACKAGES}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
