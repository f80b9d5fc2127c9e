"""`recording.plot`: draw and write a figure by its name."""

import inspect
import os
from collections.abc import Callable
from typing import Any

from overt.errors import InputError
from overt.files import separate
from overt.lens.figures.links import arcs
from overt.lens.figures.maps import heads_grid, one_head
from overt.lens.figures.paper import save
from overt.lens.figures.spread import entropy_by_layer
from overt.lens.recorded_calls import RecordedCalls

_OF_ALL: dict[str, Callable[..., Any]] = {"heads": heads_grid, "entropy": entropy_by_layer}
_OF_ONE: dict[str, Callable[..., Any]] = {"map": one_head, "head": one_head, "arcs": arcs}


def plot(recording: RecordedCalls, path: str | os.PathLike[str] | None, figure: str, options: dict[str, Any]) -> Any:
    """Draw the figure of this name, and write it to the path, if any."""
    separate({"path": path}, {"the recording": recording.file})
    if figure not in {**_OF_ALL, **_OF_ONE}:
        names = ", ".join([*_OF_ALL, *_OF_ONE])
        raise InputError(f"one of the figures {names}", got=f"figure={figure!r}", fix="choose one of them")
    _check_options(figure, {**_OF_ALL, **_OF_ONE}[figure], options)
    if figure in _OF_ALL:
        drawn = _OF_ALL[figure](recording, **options)
    else:
        if not {"layer", "head"} <= options.keys():
            names = ", ".join(options) or "no options"
            raise InputError(f"one head for the figure {figure!r}", got=names, fix="name it: layer=5, head=11")
        layer_and_head = options.pop("layer"), options.pop("head")
        drawn = _OF_ONE[figure](recording[layer_and_head], **options)
    if path is not None:
        save(drawn, path)
    return drawn


def _check_options(figure: str, draw: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise InputError for an option that the figure does not have."""
    known = [name for name in inspect.signature(draw).parameters if name not in ("recording", "head")]
    known = known if figure in _OF_ALL else ["layer", "head", *known]
    if unknown := [name for name in options if name not in known]:
        got = ", ".join(f"{name}={options[name]!r}" for name in unknown)
        raise InputError(f"options of the figure {figure!r}: {', '.join(known)}", got=got, fix="choose among them")
