"""The record `run.json` in a run's folder, by which a resumed run recognises its own folder."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from overt.errors import InputError
from overt.files import make_folder, whole
from overt.learn.config.settings import Training
from overt.reading import read_json

# _CHANGEABLE: settings that may change when a run is resumed: duration, frequency, and the composition of the finished model.
_CHANGEABLE = {"updates", "patience", "average", "start_share", "keep", "evaluate_every", "checkpoint_every"}


def describe_run(
    model: nn.Module, batches: list[list[int]], settings: Training, recipe: dict[str, Any] | None
) -> dict[str, Any]:
    """The settings, the model, the first epoch's batches (as a sum) and the recipe, as plain JSON."""
    content = {
        "training": asdict(settings),
        "model": {"kind": type(model).__name__, **(getattr(model, "config", None) or {})},
        "batches": hashlib.sha256(json.dumps(batches).encode()).hexdigest()[:12],
        "recipe": recipe or {},
    }
    return json.loads(json.dumps(content))


def claim_folder(folder: Path, content: dict[str, Any]) -> None:
    """Write this run's record into its folder.

    Raises InputError if the folder contains another run; the message names the differences.
    """
    path = folder / "run.json"
    if path.exists():
        other = read_json(path, "the record of a run", "choose another folder")
        differences = list(_differences(other, content))
        if differences:
            raise InputError(
                f"{folder} to hold this run",
                got="; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else ""),
                fix="choose another folder, or use the recipe of that run",
            )
    make_folder(folder)
    with whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")


def _differences(there: Any, here: Any, name: str = "") -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            if not (name.endswith("training") and key in _CHANGEABLE):
                yield from _differences(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif there != here:
        yield f"{name} {there!r} in the folder, {here!r} in this run"
