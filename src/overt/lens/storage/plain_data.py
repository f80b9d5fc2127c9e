"""What a recording holds as plain data: numbers, strings, lists and dictionaries, with its tensors put elsewhere.

Only the classes below are written and read, by their names; nothing that is read is run.
"""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch

from overt import biases, masks, normalizers, scores
from overt.attention.kernels.call import Call
from overt.attention.masks.base import Both, Either, Not
from overt.attention.summary import Summary
from overt.layers.parts.bias_sum import SumOfBiases, TensorBias
from overt.layers.parts.extra_keys import BiasWithExtra, MaskWithExtra
from overt.lens.capture.ranges import Ranges
from overt.lens.capture.written_out.weighted import ExpOfLogWeights
from overt.lens.captured import CapturedCall, HeadsOfBias, HeadsOfMask
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.statistics.verified import Comparison

SCORES = (scores.Dot, scores.Bilinear, scores.Additive, scores.Cosine, scores.Gaussian)
_MASKS = (masks.Causal, masks.Window, masks.Lengths, masks.Documents, masks.Dense, masks.Keys, Both, Either, Not, Ranges)
_BIASES = (biases.ALiBi, biases.RelativePositionBias, TensorBias, SumOfBiases)
NORMALIZERS = (
    normalizers.Softmax,
    normalizers.Sparsemax,
    normalizers.Entmax,
    normalizers.Sigmoid,
    normalizers.Sum,
    ExpOfLogWeights,
)
_PARTS = (HeadsOfMask, HeadsOfBias, MaskWithExtra, BiasWithExtra)
_CALLS = (Call, CapturedCall, CapturedSummary, Summary, Comparison)
KNOWN = {kind.__name__: kind for kind in (*SCORES, *_MASKS, *_BIASES, *NORMALIZERS, *_PARTS, *_CALLS)}

Check = Callable[[type, dict[str, Any]], dict[str, Any]]


def plain(value: Any, put: Callable[[Any], Any]) -> Any:
    """The value as plain data; `put` stores what is not, tensors above all, and gives plain data to find it by.

    >>> plain(scores.Dot(scale=0.5), put=str)
    {'is': 'Dot', 'with': {'scale': 0.5, 'softcap': None}}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, tuple | list):
        found = [plain(each, put) for each in value]
        return found if isinstance(value, list) else {"tuple": found}
    if isinstance(value, dict):
        return {"dict": {key: plain(each, put) for key, each in value.items()}}
    if KNOWN.get(type(value).__name__) is type(value):
        held = {each.name: plain(getattr(value, each.name), put) for each in fields(value)}
        return {"is": type(value).__name__, "with": held}
    return {"put": put(value)}


def restored(data: Any, get: Callable[[Any], Any], check: Check = lambda kind, values: values) -> Any:
    """The value that `plain` was given; `get` finds what `put` stored, and `check` sees what each class is made with.

    >>> restored({"is": "Window", "with": {"before": 3, "after": 0, "offset": None}}, get=str)
    Window(before=3, after=0, offset=None)
    """
    if isinstance(data, list):
        return [restored(each, get, check) for each in data]
    if not isinstance(data, dict):
        return data
    if "is" in data:
        kind = KNOWN[data["is"]]
        return kind(**check(kind, {name: restored(each, get, check) for name, each in data["with"].items()}))
    ((kind, held),) = data.items()
    if kind == "dict":
        return {key: restored(each, get, check) for key, each in held.items()}
    if kind == "tuple":
        return tuple([restored(each, get, check) for each in held])
    if kind == "dtype":
        return _dtype(held)
    return {"float": float, "put": get}[kind](held)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch.{name} is no dtype")
    return found


def known(value: Any) -> bool:
    """Whether nothing but tensors would have to be put elsewhere."""
    others: list[Any] = []
    plain(value, lambda held: others.append(held) if not isinstance(held, torch.Tensor) else None)
    return not others
