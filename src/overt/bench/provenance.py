"""The provenance of a measurement: its code, date and machine, without which nobody can repeat it."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import overt
from overt.bench.machine import machine

_PACKAGE = Path(overt.__file__).resolve().parent


def provenance(**facts: Any) -> dict[str, Any]:
    """The head of every results file: the running commit, the date in UTC, and the machine with additional `facts`."""
    return {"commit": commit(), "date": datetime.now(UTC).date().isoformat(), "machine": machine() | facts}


def commit(package: Path = _PACKAGE) -> str | None:
    """The commit of the checkout from which a package runs, with "-dirty" if files differ from it.

    None if the package does not run from its own checkout: a package installed inside another project's folder would
    otherwise get that project's commit.
    """
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != package.parents[1]:
        return None
    return _git(package, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip() or None
