"""Checkpoints: a folder each, written whole or not at all, every file with its SHA-256.

`checkpoints/000500/` holds model.safetensors, optimizer.safetensors and state.json; nothing in them is code. A folder takes its
name only when all of it is on the disk, so a run that is killed at any moment leaves whole checkpoints alone.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as tensors_in
from safetensors.torch import save as bytes_of
from torch import Tensor

from overt.errors import InputError
from overt.files import read_json

FORMAT = 1
_FILES = ("model.safetensors", "optimizer.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A run after an update: its weights, the optimizer's averages, and where it stands."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]  # plain numbers and strings


def write(folder: Path, update: int, checkpoint: Checkpoint) -> Path:
    """Write `folder`/000500 for update 500, whole or not at all.

    Raises InputError for a full disk and a folder that takes no files; earlier checkpoints are as they were.
    """
    target, temporary = folder / f"{update:06d}", folder / f".{update:06d}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        sums = {}
        for name, tensors in zip(_FILES, (checkpoint.model, checkpoint.optimizer), strict=True):
            sums[name] = _written(temporary / name, bytes_of(tensors))
        _written(temporary / "state.json", _sealed({"format": FORMAT, **checkpoint.state, "sha256": sums}))
        temporary.rename(target)
        _synced(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(
            f"the checkpoint {target} cannot be written",
            got=error.strerror or str(error),
            fix=f"make room and start the same command again: it goes on from {_last(folder)}",
        ) from error
    return target


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, every byte checked.

    Raises InputError that names the file which is missing, cut short or changed, or which a newer overt wrote.
    """
    state = _opened(path / "state.json")
    if type(state.get("format")) is not int or not isinstance(state.get("sha256"), dict):
        raise _damaged(path / "state.json", "a state without its format and its sums")
    if state["format"] > FORMAT:
        raise InputError(
            f"this overt reads checkpoints of format {FORMAT}", got=f"format {state['format']} in {path}", fix="update overt"
        )
    model, optimizer = (_tensors(path / name, state["sha256"].get(name)) for name in _FILES)
    return Checkpoint(model, optimizer, state)


def written(folder: Path) -> list[Path]:
    """The whole checkpoints in a folder, oldest first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdigit()), key=lambda path: int(path.name))


def keep(folder: Path, latest: int, besides: int | None = None) -> None:
    """Remove all but the latest checkpoints, and what was half written; the one of update `besides` stays."""
    kept = {f"{besides:06d}" if besides is not None else "", *(path.name for path in written(folder)[-latest:])}
    for half in folder.glob(".[0-9]*"):
        shutil.rmtree(half, ignore_errors=True)
    for path in written(folder):
        if path.name not in kept:
            # Renamed first: a folder that is only partly removed must not look like a checkpoint.
            shutil.rmtree(path.rename(path.with_name(f".{path.name}")), ignore_errors=True)


def _written(path: Path, content: bytes) -> str:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _synced(folder: Path) -> None:
    """See to it that a new name in the folder outlives a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sealed(state: Mapping[str, Any]) -> bytes:
    return json.dumps({**state, "seal": _seal(state)}, indent=1, allow_nan=False).encode()


def _seal(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _opened(path: Path) -> dict[str, Any]:
    try:
        state = read_json(path, "the state of a run", "")
    except InputError as error:
        raise _damaged(path, error.got) from error
    if state.pop("seal", None) != _seal(state):
        raise _damaged(path, "its content was changed")
    return state


def _tensors(path: Path, expected: str | None) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != expected:
            raise ValueError(f"{len(content):,} bytes that are not those written")
        return tensors_in(content)
    except (OSError, ValueError, SafetensorError) as error:
        raise _damaged(path, error.strerror if isinstance(error, OSError) and error.strerror else str(error)) from error


def _damaged(path: Path, reason: str) -> InputError:
    earlier = [other for other in written(path.parent.parent) if int(other.name) < int(path.parent.name)]
    then = f"training goes on from {earlier[-1].name}" if earlier else "training begins anew"
    return InputError(f"{path} is damaged", got=reason, fix=f"remove the folder {path.parent}: {then}")


def _last(folder: Path) -> str:
    paths = written(folder)
    return f"update {int(paths[-1].name)}" if paths else "the beginning"
