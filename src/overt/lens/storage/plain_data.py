"""A recording as plain data: numbers, strings, lists and dictionaries, with its tensors stored separately.

Only calls and registered pieces (`overt.attention.pieces`) are written and read, by their names; no code from a file is run.
"""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch

import overt.layers.parts.extra_keys
import overt.lens.capture.written_out.weighted  # noqa: F401  # these two modules register pieces of recordings
from overt.attention import pieces
from overt.attention.kernels.call import Call
from overt.attention.summary import Summary
from overt.errors import InputError
from overt.lens.captured import CapturedCall
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.recurrence import Recurrence
from overt.lens.statistics.roles import PatternScore
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.statistics.verified import Comparison

_KINDS = (Call, CapturedCall, CapturedMixer, CapturedSummary, Comparison, PatternScore, Recurrence, Summary)
_CALLS = {kind.__name__: kind for kind in _KINDS}


class NotRegistered(InputError):
    """A file names a class that is not registered here."""


Check = Callable[[type, dict[str, Any]], dict[str, Any]]


def plain(value: Any, put: Callable[[Any], Any]) -> Any:
    """The value as plain data; `put` stores anything else, such as tensors, and returns plain data that locates it.

    >>> from overt.attention.scores import Dot
    >>> plain(Dot(scale=0.5), put=str)
    {'is': 'Dot', 'with': {'scale': 0.5, 'softcap': None}}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | list):
        values = [plain(part, put) for part in value]
        return values if isinstance(value, list) else {"tuple": values}
    if isinstance(value, dict):
        return {"dict": {key: plain(entry, put) for key, entry in value.items()}}
    name = _written_name(type(value))
    if name is not None:
        return {"is": name, "with": {field.name: plain(getattr(value, field.name), put) for field in fields(value)}}
    return {"put": put(value)}


def restored(data: Any, get: Callable[[Any], Any], check: Check = lambda kind, values: values) -> Any:
    """The value that `plain` converted; `get` returns what `put` stored, and `check` checks the arguments of each class.

    >>> restored({"is": "Window", "with": {"before": 3, "after": 0, "offset": None}}, get=str)
    Window(before=3, after=0, offset=None)
    """
    if isinstance(data, list):
        return [restored(item, get, check) for item in data]
    if not isinstance(data, dict):
        return data
    if "is" in data:
        kind = registered_class(data["is"])
        return kind(**check(kind, {name: restored(entry, get, check) for name, entry in data["with"].items()}))
    ((kind, content),) = data.items()
    if kind == "dict":
        return {key: restored(entry, get, check) for key, entry in content.items()}
    if kind == "tuple":
        return tuple([restored(item, get, check) for item in content])
    if kind == "dtype":
        return _dtype(content)
    return {"float": float, "put": get}[kind](content)


def registered_class(name: Any) -> type:
    """The class that a file names. Raises NotRegistered for one that is not registered.

    >>> registered_class("Causal").__name__
    'Causal'
    """
    kind = (_CALLS.get(name) or pieces.registered.get(name)) if isinstance(name, str) else None
    if kind is None:
        raise NotRegistered(
            "a recording that names registered classes alone",
            got=repr(name),
            fix="import the module that defines it, as a piece (overt.attention.pieces), and load again",
        )
    return kind


def _written_name(kind: type) -> str | None:
    """The name of a class that is written by its name; None for any other."""
    if _CALLS.get(kind.__name__) is kind:
        return kind.__name__
    name = pieces.registered_name(kind)
    return name if pieces.registered.get(name) is kind else None


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch.{name} is not a dtype")
    return dtype


def known(value: Any) -> bool:
    """Whether the value is plain data except for tensors."""
    others: list[Any] = []
    plain(value, lambda leaf: others.append(leaf) if not isinstance(leaf, torch.Tensor) else None)
    return not others
