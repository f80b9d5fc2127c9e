"""The log of a run: one JSON line for each update and each evaluation, in `log.jsonl`."""

import json
import math
from pathlib import Path
from typing import Any

from overt.errors import InputError
from overt.files import reason, whole

_CURE = "remove the file, or choose another folder"


class Log:
    """Appends lines to a file, each written at once, so that a run that is killed has its log up to there.

    >>> import tempfile
    >>> log = Log(Path(tempfile.mkdtemp()) / "log.jsonl")
    >>> log.add(update=1, loss=2.5)
    >>> read_log(log.path)
    [{'update': 1, 'loss': 2.5}]
    """

    def __init__(self, path: Path):
        self.path = path

    def add(self, **entry: Any) -> None:
        """Append one line: numbers have six digits, more than a curve shows, and those that are not finite are null."""
        line = json.dumps(_rounded(entry), allow_nan=False) + "\n"
        try:
            with self.path.open("a") as file:
                file.write(line)
        except OSError as error:
            fix = "make room and start the same command again: it goes on from the last checkpoint"
            raise InputError(f"{self.path} cannot be written", got=error.strerror or str(error), fix=fix) from error

    def cut(self, update: int) -> None:
        """Forget what came after an update: a run that goes on from there writes it again."""
        kept = [entry for entry in read_log(self.path) if entry["update"] <= update and "finished" not in entry]
        with whole(self.path) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last line that was cut short by a kill is left out."""
    if not path.exists():
        return []
    try:
        *lines, _ = path.read_text(encoding="utf-8").split("\n")
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is the log of a run", got=reason(error), fix=_CURE) from error
    if not all(isinstance(entry, dict) and type(entry.get("update")) is int for entry in entries):
        raise InputError(f"{path} is the log of a run", got="a line without its update", fix=_CURE)
    return entries


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
