"""Whether the fields that a file gives for a class have the types that the class declares, checked before it is made."""

import math
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from torch import Tensor

from overt.attention.biases import TensorBias
from overt.attention.kernels.call import Call
from overt.attention.masks import Mask

_LARGEST = 2**63 - 1  # the largest position in a tensor (int64)
_OFFSET = 2**62  # the largest offset, so that the sum of a position and an offset fits int64
# _OURS: the types in a file of fields that accept any class from callers; a file holds only overt's own classes.
_OURS = {("Both", "left"): Mask, ("Both", "right"): Mask, ("Either", "left"): Mask, ("Either", "right"): Mask}
_OURS |= {("Documents", "query_ids"): Tensor}  # never None in a mask that is bound to its call
_OURS |= {("Not", "inner"): Mask, ("HeadsOfMask", "inner"): Mask, ("MaskWithExtra", "inner"): Mask}
# _MEASURED: classes of measured numbers, which may be infinite or NaN.
_MEASURED = {"Comparison", "CapturedSummary", "PatternScore"}
_MAY_BE_INFINITE = {("Gaussian", "bandwidth"), ("Softmax", "temperature")}


def checked(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The checked arguments of a class, with ints converted to floats for fields that are floats.

    A field with a default may be missing, because a file may be older than the field. Raises TypeError for any other missing field, an
    unknown field or another type, and ValueError for a number out of range.

    >>> from overt.attention.scores import Dot
    >>> checked(Dot, {"scale": 2, "softcap": None})
    {'scale': 2.0, 'softcap': None}
    """
    hints = _hints(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    if not needed <= values.keys() <= hints.keys():
        raise TypeError(f"{kind.__name__} has the fields {', '.join(hints)}, not {', '.join(values)}")
    if kind is Call and isinstance(bias := values["bias"], Tensor):
        values = {**values, "bias": TensorBias(bias)}  # files before November 2026 hold a plain tensor
    return {name: _value(kind, name, value, hints[name]) for name, value in values.items()}


def _value(kind: type, name: str, value: Any, hint: Any) -> Any:
    hint = _OURS.get((kind.__name__, name), hint)
    for choice in typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,):
        if _fits(value, choice):
            value = float(value) if choice is float else value
            _in_range(kind, name, value)
            return value
    raise TypeError(f"{name} of {kind.__name__} cannot be of type {type(value).__name__}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin is tuple:
        many = inner[-1] is Ellipsis
        kinds = [inner[0]] * len(value) if many and isinstance(value, tuple) else inner
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if isinstance(hint, typing.TypeVar):  # arrays of any library are tensors in a file
        return isinstance(value, Tensor)
    if origin is Callable:
        return False  # a file holds no code
    if origin is dict:
        return isinstance(value, dict) and all(type(part) is inner[1] for part in value.values())
    if hint in (int, float):
        return type(value) is int or (hint is float and isinstance(value, float))
    if hint in (str, bool):
        return type(value) is hint
    return isinstance(value, hint)


def _in_range(kind: type, name: str, value: Any) -> None:
    if type(value) is int and abs(value) > (_OFFSET if name == "offset" else _LARGEST):
        raise ValueError(f"{name} of {kind.__name__} is larger than 64 bits hold")
    if not isinstance(value, float) or math.isfinite(value) or kind.__name__ in _MEASURED:
        return
    if math.isnan(value) or (kind.__name__, name) not in _MAY_BE_INFINITE:
        raise ValueError(f"{name} of {kind.__name__} is not finite")


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; types that jaxtyping declares are tensors."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints.get(field.name, Tensor) for field in fields(kind)}  # type: ignore[arg-type]
