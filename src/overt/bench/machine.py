"""The machine and the packages of a measurement."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import overt

_PACKAGES = ["torch", "numpy", "pykeops", "keras"]


def machine() -> dict[str, str | int | None]:
    """The processor, the number of processors, Python, and the versions of overt and of the packages compared with it."""
    facts: dict[str, str | int | None] = {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "overt": overt.__version__,
    }
    return facts | {name: package_version(name) for name in _PACKAGES}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def package_version(package: str) -> str | None:
    """The installed version; None if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
