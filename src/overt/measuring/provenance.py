"""Which code measured, and when: a number without them cannot be measured a second time."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import overt

_PACKAGE = Path(overt.__file__).resolve().parent


def provenance() -> dict[str, str | None]:
    """The commit that runs and today's date in UTC, for the head of a file of results."""
    return {"commit": commit(), "date": datetime.now(UTC).date().isoformat()}


def commit(package: Path = _PACKAGE) -> str | None:
    """The commit of the checkout that a package is run from, with "-dirty" where files differ from it.

    None where the package is not run from a checkout of its own: one that is installed inside another project's folder
    would be told that project's commit.
    """
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != package.parents[1]:
        return None
    return _git(package, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
