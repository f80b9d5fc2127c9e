"""Checkpoints: one folder each, written completely or not at all, with a SHA-256 of every file.

`checkpoints/000500/` holds model.safetensors, optimizer.safetensors and state.json; none of them contains code. A folder gets its
name only when all its files are on the disk, so a run that is killed leaves only complete checkpoints.
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
from overt.files import remedy, unwritable
from overt.reading import read_json

FORMAT = 1
_FILES = ("model.safetensors", "optimizer.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A run after an update: weights, optimizer state and run state."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]  # plain numbers and strings


def write(folder: Path, update: int, checkpoint: Checkpoint) -> Path:
    """Write `folder`/000500 for update 500, completely or not at all.

    Raises InputError for a full disk and a folder that cannot be written; earlier checkpoints are unchanged.
    """
    target, temporary = folder / f"{update:06d}", folder / f".{update:06d}"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        sums = {}
        for name, tensors in zip(_FILES, (checkpoint.model, checkpoint.optimizer), strict=True):
            sums[name] = _write_file(temporary / name, bytes_of(tensors))
        state: dict[str, Any] = {"format": FORMAT, **checkpoint.state, "sha256": sums}
        sealed = json.dumps({**state, "seal": _checksum(state)}, indent=1, allow_nan=False)
        _write_file(temporary / "state.json", sealed.encode())
        temporary.rename(target)
        _sync_folder(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        paths = list_checkpoints(folder)
        last = f"update {int(paths[-1].name)}" if paths else "the beginning"
        fix = f"{remedy(error)} and start the same command again: it resumes from {last}"
        raise unwritable(f"the checkpoint {target}", error, fix) from error
    return target


def read(path: Path) -> Checkpoint:
    """Read a checkpoint, and check every byte.

    Raises InputError, which names the file, for a missing, truncated or changed file, or one from a newer version of overt.
    """
    state = _read_state(path / "state.json")
    if type(state.get("format")) is not int or not isinstance(state.get("sha256"), dict):
        raise _damaged(path / "state.json", "no format or no checksums in it")
    if state["format"] > FORMAT:
        raise InputError(f"a checkpoint of format {FORMAT}", got=f"format {state['format']} in {path}", fix="update overt")
    model, optimizer = (_read_tensors(path / name, state["sha256"].get(name)) for name in _FILES)
    return Checkpoint(model, optimizer, state)


def list_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdigit()), key=lambda path: int(path.name))


def remove_old(folder: Path, latest: int, best: int | None = None) -> None:
    """Remove all checkpoints but the `latest` last ones and update `best`, and incomplete folders."""
    retained = {f"{best:06d}" if best is not None else "", *(path.name for path in list_checkpoints(folder)[-latest:])}
    for partial in folder.glob(".[0-9]*"):
        shutil.rmtree(partial, ignore_errors=True)
    for path in list_checkpoints(folder):
        if path.name not in retained:
            # Renamed first, so that a partly removed folder does not look like a checkpoint.
            shutil.rmtree(path.rename(path.with_name(f".{path.name}")), ignore_errors=True)


def _write_file(path: Path, content: bytes) -> str:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Flush the folder to disk, if the system can, so that a new name in it survives a power failure."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = read_json(path, "the state of a run", "")
    except InputError as error:
        raise _damaged(path, error.got) from error
    if state.pop("seal", None) != _checksum(state):
        raise _damaged(path, "changed content")
    return state


def _read_tensors(path: Path, expected: str | None) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != expected:
            raise ValueError(f"{len(content):,} bytes with another checksum")
        return tensors_in(content)
    except (OSError, ValueError, SafetensorError) as error:
        raise _damaged(path, error.strerror if isinstance(error, OSError) and error.strerror else str(error)) from error


def _damaged(path: Path, reason: str) -> InputError:
    earlier = [other for other in list_checkpoints(path.parent.parent) if int(other.name) < int(path.parent.name)]
    resume = f"training resumes from {earlier[-1].name}" if earlier else "training starts from the beginning"
    return InputError(f"{path} to be undamaged", got=reason, fix=f"remove the folder {path.parent}; {resume}")
