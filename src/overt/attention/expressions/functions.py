"""The elementwise functions that an expression may contain, by their names in torch and Python."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _cast(dtype: torch.dtype) -> Callable[[Any], Tensor]:
    return lambda x: torch.as_tensor(x).to(dtype)


def _widened(x: Any, dtype: torch.dtype) -> Tensor:
    """The tensor in the dtype that a sum or product with a score of `dtype` has."""
    return x.to(torch.promote_types(x.dtype, dtype)) if isinstance(x, Tensor) else torch.as_tensor(x, dtype=dtype)


# FUNCTIONS: the recorded functions, by their names in torch and Python's operator module.
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
    "widened": _widened,  # operands of a score, before any other function
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
# OPERATORS: Python's operators, used if a number precedes a tensor; they do not round the number to the tensor's dtype first.
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
