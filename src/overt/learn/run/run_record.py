"""What makes two runs the same run, as `run.json` in the run's folder."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from overt.errors import InputError
from overt.files import make_folder, read_json, whole
from overt.learn.config.settings import Training

# How long and how often, not what is learnt: these may change when a run goes on.
_FREE = {"updates", "patience", "average", "keep", "evaluate_every", "checkpoint_every"}


def record(model: nn.Module, batches: list[list[int]], settings: Training, recipe: dict[str, Any] | None) -> dict[str, Any]:
    """The settings, the model, the first epoch's batches (as a sum) and the recipe, as plain JSON."""
    held = {
        "training": asdict(settings),
        "model": {"kind": type(model).__name__, **(getattr(model, "config", None) or {})},
        "batches": hashlib.sha256(json.dumps(batches).encode()).hexdigest()[:12],
        "recipe": recipe or {},
    }
    return json.loads(json.dumps(held))


def claim(folder: Path, held: dict[str, Any]) -> None:
    """Make the folder this run's.

    Raises InputError if it is another run's, naming what differs.
    """
    path = folder / "run.json"
    if path.exists():
        other = read_json(path, "the record of the run that this folder holds", "choose another folder")
        differences = list(_differences(other, held))
        if differences:
            raise InputError(
                f"{folder} holds another run",
                got="; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else ""),
                fix="choose another folder, or go on with that run's recipe",
            )
    make_folder(folder)
    with whole(path) as temporary:
        temporary.write_text(json.dumps(held, indent=1) + "\n")


def _differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            if not (name.endswith("training") and key in _FREE):
                yield from _differences(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif there != here:
        yield f"{name} {there!r} there, {here!r} here"
