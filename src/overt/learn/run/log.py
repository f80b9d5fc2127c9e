"""The log of a run: one JSON line for each update and each evaluation, in `log.jsonl`."""

import json
import math
from pathlib import Path
from typing import Any

from overt.errors import InputError
from overt.files import remedy, unwritable, whole
from overt.reading import parse_json, reason

_FIX = "remove the file, or choose another folder"


class TrainingLog:
    """Appends lines to a file and writes each immediately, so that the log of a killed run is complete to that point.

    >>> import tempfile
    >>> log = TrainingLog(Path(tempfile.mkdtemp()) / "log.jsonl")
    >>> log.add(update=1, loss=2.5)
    >>> read_log(log.path)
    [{'update': 1, 'loss': 2.5}]
    """

    def __init__(self, path: Path):
        self.path = path

    def add(self, **entry: Any) -> None:
        """Append one line; numbers are rounded to six digits, and non-finite ones become null."""
        line = json.dumps(_rounded(entry), allow_nan=False) + "\n"
        try:
            with self.path.open("a") as file:
                file.write(line)
        except OSError as error:
            fix = f"{remedy(error)} and start the same command again: it resumes from the last checkpoint"
            raise unwritable(self.path, error, fix) from error

    def truncate(self, update: int) -> None:
        """Remove the entries after an update; a run that resumes there writes them again."""
        entries = [entry for entry in read_log(self.path) if entry["update"] <= update and "finished" not in entry]
        with whole(self.path) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log, without an incomplete last line."""
    if not path.exists():
        return []
    try:
        *lines, _ = path.read_text(encoding="utf-8").split("\n")
        entries = [parse_json(line) for line in lines]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} to be the log of a run", got=reason(error), fix=_FIX) from error
    if not all(isinstance(entry, dict) and type(entry.get("update")) is int for entry in entries):
        raise InputError(f"{path} to be the log of a run", got="a line without an update", fix=_FIX)
    return entries


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
