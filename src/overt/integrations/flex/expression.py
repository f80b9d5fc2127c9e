"""A mod as an expression: what torch's FlexAttention calls with single numbers, traced once with symbols in their place.

A symbol records the functions that it passes through. Only functions that treat each element by itself are recorded, so an
expression can be computed again over whole index vectors that broadcast, and compared with the forms that kernels know. A mod that does
anything else (a loop, a dot product, a function of the caller's own) cannot be traced, and runs under `torch.vmap` as it is.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SCORE, BATCH, HEAD, QUERY, KEY = "score", "batch", "head", "query", "key"

# Terms of an expression, those counted again that stand in it again: what reads it goes through all of them.
LARGEST = 10_000


class NotElementwise(Exception):
    """The mod does something that an expression cannot hold."""


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
_OPERATORS: dict[str, Callable[..., Any]] = {
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
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")


class Expression:
    """A function of the library's names above applied to expressions, tensors of no dimension and numbers; or a symbol."""

    def __init__(self, function: str, *arguments: Any, **options: Any):
        self.function = function
        self.arguments: tuple[Any, ...] = arguments
        self.options: dict[str, Any] = options
        self.size: int = 1 + sum(part.size for part in self.parts())
        if self.size > LARGEST:
            raise NotElementwise

    @property
    def symbol(self) -> str | None:
        """The symbol's name; None of what is computed from symbols."""
        return None if self.arguments else self.function

    def parts(self) -> Iterator["Expression"]:
        """The expressions among the arguments."""
        for argument in (*self.arguments, *self.options.values()):
            for each in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(each, Expression):
                    yield each

    def symbols(self) -> set[str]:
        """The names of all symbols inside."""
        return {self.function} if self.symbol else set().union(*(part.symbols() for part in self.parts()))

    def tensors(self) -> Iterator[Tensor]:
        """All tensors that the mod captured."""
        for argument in (*self.arguments, *self.options.values()):
            for each in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(each, Tensor):
                    yield each
        for part in self.parts():
            yield from part.tensors()

    def value(self, values: Mapping[str, Any]) -> Any:
        """The expression computed with tensors that broadcast in the places of the symbols."""
        return self._value(values, {})

    def _value(self, values: Mapping[str, Any], known: dict[int, Any]) -> Any:
        if self.symbol:
            return values[self.function]
        if id(self) not in known:
            arguments = [_value_of(each, values, known) for each in self.arguments]
            options = {name: _value_of(each, values, known) for name, each in self.options.items()}
            if self.function == "getitem":
                tensor, indices = arguments
                known[id(self)] = tensor[tuple(_index(each, tensor) for each in indices)]
            else:
                with_number = arguments and not isinstance(arguments[0], Tensor) and self.function in _OPERATORS
                function = _OPERATORS[self.function] if with_number else FUNCTIONS[self.function]
                known[id(self)] = function(*arguments, **options)
        return known[id(self)]

    def __getitem__(self, index: Any) -> "Expression":
        if self.function != "getitem":
            raise NotElementwise
        tensor, indices = self.arguments
        return indexed(tensor, (*indices, *(index if isinstance(index, tuple) else (index,))))

    @property
    def device(self) -> None:
        """Torch's default: what is to be moved to it or made on it is computed where the indices are."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or ALIASES.get(name, name) not in FUNCTIONS:
            raise NotElementwise
        return lambda *arguments, **options: applied(name, self, *arguments, **options)

    def __bool__(self) -> bool:
        raise NotElementwise

    def __int__(self) -> int:
        raise NotElementwise

    def __index__(self) -> int:
        raise NotElementwise

    def __float__(self) -> float:
        raise NotElementwise

    def __len__(self) -> int:
        raise NotElementwise

    def __iter__(self) -> Iterator[Any]:
        raise NotElementwise

    def __hash__(self) -> int:
        return object.__hash__(self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return recorded(function, arguments, options or {})


def _operators() -> None:
    names = (*_REFLECTED, "ge", "gt", "le", "lt", "eq", "ne", "neg", "abs", "invert")
    for name in names:
        setattr(Expression, f"__{name}__", lambda self, *others, name=name: applied(name, self, *others))
    for name in _REFLECTED:
        setattr(Expression, f"__r{name}__", lambda self, other, name=name: applied(name, other, self))


_operators()


def applied(name: str, *arguments: Any, **options: Any) -> Expression:
    """A function of these arguments, by one of its names; raises NotElementwise where it is none that is recorded."""
    name = ALIASES.get(name, name)
    if name == "to" and not options and all(each is None or isinstance(each, torch.device) for each in arguments[1:]):
        return arguments[0]  # to the device that it is on
    for each in (*arguments, *options.values()):
        incomplete = (
            isinstance(each, Expression) and each.function == "getitem" and len(each.arguments[1]) < each.arguments[0].ndim
        )
        if incomplete or (isinstance(each, Tensor) and each.ndim):
            raise NotElementwise
    if name not in FUNCTIONS:
        raise NotElementwise
    return Expression(name, *arguments, **options)


def indexed(tensor: Any, indices: tuple[Any, ...]) -> Expression:
    """An element of a captured tensor, or a part of one that more indices follow."""
    whole = all((isinstance(each, Expression | int) and not isinstance(each, bool)) or _is_number(each) for each in indices)
    if not isinstance(tensor, Tensor) or not whole or len(indices) > tensor.ndim:
        raise NotElementwise
    return Expression("getitem", tensor, indices)


def recorded(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a call of torch with expressions among its arguments gives."""
    name = getattr(function, "__name__", "").strip("_")
    if name == "getitem":
        tensor, index = arguments
        index = index if isinstance(index, tuple) else (index,)
        return tensor[index] if isinstance(tensor, Expression) else indexed(tensor, index)
    if name[:1] == "r" and name[1:] in _REFLECTED:
        name, arguments = name[1:], arguments[::-1]
    return applied(name, *arguments, **options)


class _Recording(TorchFunctionMode):
    """While a mod is traced: sees a captured tensor that is indexed by a symbol, of which torch itself would know nothing."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        everything = [*arguments, *options.values()]
        everything += [each for argument in everything if isinstance(argument, tuple | list) for each in argument]
        if any(isinstance(each, Expression) for each in everything):
            return recorded(function, arguments, options)
        return function(*arguments, **options)


def traced(mod: Callable[..., Any], *names: str) -> Expression | bool | None:
    """The expression that a mod computes of these symbols, or a constant bool; None where it is no expression.

    >>> traced(lambda b, h, q, k: q >= k, BATCH, HEAD, QUERY, KEY).function
    'ge'
    """
    try:
        with _Recording():
            result = mod(*(Expression(name) for name in names))
    except Exception:  # whatever the mod's own code raises on a symbol; under vmap it raises again if it is wrong
        return None
    if isinstance(result, Tensor) and not result.ndim and result.dtype == torch.bool and not result.is_meta:
        result = bool(result)
    return result if isinstance(result, Expression | bool) else None


def is_minus_infinity(argument: Any) -> bool:
    """Whether an argument of an expression is the constant −inf."""
    if isinstance(argument, Expression) and argument.function == "full_like":
        argument = argument.arguments[1] if len(argument.arguments) > 1 else argument.options.get("fill_value")
    if isinstance(argument, Tensor) and argument.device.type == "cpu" and not argument.requires_grad and not argument.ndim:
        argument = argument.item()
    return isinstance(argument, float) and argument == -math.inf


def _is_number(argument: Any) -> bool:
    return (
        isinstance(argument, Tensor) and not argument.ndim and not argument.is_floating_point() and argument.dtype != torch.bool
    )


def _value_of(argument: Any, values: Mapping[str, Any], known: dict[int, Any]) -> Any:
    """What an argument comes to. Not inside of `_value`: a function that calls itself would keep all values until they are collected."""
    if isinstance(argument, tuple):
        return tuple(_value_of(each, values, known) for each in argument)
    return argument._value(values, known) if isinstance(argument, Expression) else argument


def _index(index: Any, tensor: Tensor) -> Any:
    return index.to(tensor.device) if isinstance(index, Tensor) and index.ndim else index


def linear_in_positions(expression: Any) -> tuple[int, int, Any] | None:
    """The coefficients of the query's and the key's position in a sum of integers, and the rest, free of both; None for no such sum.

    >>> q, k = Expression(QUERY), Expression(KEY)
    >>> linear_in_positions(2 + k - q)
    (-1, 1, 2)
    """
    if isinstance(expression, int) and not isinstance(expression, bool):
        return 0, 0, expression
    if _is_number(expression):
        return 0, 0, expression
    if not isinstance(expression, Expression):
        return None
    if expression.symbol in (QUERY, KEY):
        return int(expression.symbol == QUERY), int(expression.symbol == KEY), 0
    if not expression.symbols() & {SCORE, QUERY, KEY}:
        return 0, 0, expression
    if expression.function in ("int", "long", "neg"):
        inside = linear_in_positions(expression.arguments[0])
        return None if inside is None else inside if expression.function != "neg" else _combined(0, inside, -1)
    if expression.function in ("add", "sub") and not expression.options:
        first, second = (linear_in_positions(each) for each in expression.arguments)
        return None if first is None or second is None else _combined(first, second, 1 if expression.function == "add" else -1)
    return None


def _combined(first: Any, second: tuple[int, int, Any], sign: int) -> tuple[int, int, Any]:
    q, k, rest = first or (0, 0, 0)
    more = second[2] if sign > 0 else operator.neg(second[2])
    return q + sign * second[0], k + sign * second[1], more if isinstance(rest, int) and rest == 0 else rest + more
