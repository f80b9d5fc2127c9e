"""The functions that an expression may hold: those that treat each element by itself, by the names that torch and Python use."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _cast(dtype: torch.dtype) -> Callable[[Any], Tensor]:
    return lambda x: torch.as_tensor(x).to(dtype)


def _widened(x: Any, dtype: torch.dtype) -> Tensor:
    """In the dtype that a sum or product with a score of this one has."""
    return x.to(torch.promote_types(x.dtype, dtype)) if isinstance(x, Tensor) else torch.as_tensor(x, dtype=dtype)


# The functions that are recorded, by the name under which torch and Python's operators know them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "neg")},
    **{name: getattr(torch, name) for name in ("abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "square", "sign")},
    **{name: getattr(torch, name) for name in ("tanh", "sigmoid", "sin", "cos", "erf", "relu", "floor", "ceil", "round")},
    **{name: getattr(torch, name) for name in ("where", "minimum", "maximum", "clamp", "full_like", "zeros_like", "ones_like")},
    **{name: getattr(torch, name) for name in ("ge", "gt", "le", "lt", "eq", "ne")},
    **{name: getattr(torch, f"bitwise_{name}") for name in ("and", "or", "xor", "not", "left_shift", "right_shift")},
    **{f"logical_{name}": getattr(torch, f"logical_{name}") for name in ("and", "or", "xor", "not")},
    "float": _cast(torch.float32),
    "double": _cast(torch.float64),
    "int": _cast(torch.int32),
    "long": _cast(torch.int64),
    "bool": _cast(torch.bool),
    "widened": _widened,  # what meets a score, before anything else is done to it
    "to": lambda x, *options, **named: torch.as_tensor(x).to(*options, **named),
}
ALIASES = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "negative": "neg",
    "absolute": "abs",
    "invert": "not",
    "bitwise_not": "not",
    "clip": "clamp",
    "greater_equal": "ge",
    "greater": "gt",
    "less_equal": "le",
    "less": "lt",
    "not_equal": "ne",
    "min": "minimum",
    "max": "maximum",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "type": "to",
    **{f"bitwise_{name}": name for name in ("and", "or", "xor", "left_shift", "right_shift")},
}
# A number before a tensor takes Python's operator, which does not round it to a tensor's dtype first.
OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "pow", "ge", "gt", "le", "lt", "eq", "ne")},
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
}
REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
