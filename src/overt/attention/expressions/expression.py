"""Expressions: a caller's function runs once on symbols, which record its operations.

Only elementwise functions are recorded, so an expression can be recomputed on whole vectors that broadcast, and compared
with the forms that kernels support. FlexAttention's mods are traced with symbols for single numbers (`traced`), callers'
scores with tensors of pairs (`stand_ins`); both record these expressions.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from overt.attention.expressions.functions import ALIASES, FUNCTIONS, OPERATORS, REFLECTED

# LARGEST: terms of an expression. A term that is used twice counts twice, since readers of the expression visit it twice.
LARGEST = 10_000


class NotElementwise(Exception):
    """The function does something that an expression cannot represent."""


class Expression:
    """A function, by the names above, applied to expressions, tensors without dimensions and numbers; or a symbol."""

    def __init__(self, function: str, *arguments: Any, **options: Any):
        self.function = function
        self.arguments: tuple[Any, ...] = arguments
        self.options: dict[str, Any] = options
        self.shape: tuple[int, ...] = ()  # of the result, if it is a tensor of pairs
        self.size: int = 1 + sum(part.size for part in self.parts())
        if self.size > LARGEST:
            raise NotElementwise

    @property
    def symbol(self) -> str | None:
        """The symbol's name; None for a computed expression."""
        return None if self.arguments else self.function

    def parts(self) -> Iterator["Expression"]:
        """The expressions among the arguments."""
        return (item for item in self._items() if isinstance(item, Expression))

    def symbols(self) -> set[str]:
        """The names of all symbols inside."""
        return {self.function} if self.symbol else set().union(*(part.symbols() for part in self.parts()))

    def tensors(self) -> Iterator[Tensor]:
        """All tensors that the function captured."""
        yield from (item for item in self._items() if isinstance(item, Tensor))
        for part in self.parts():
            yield from part.tensors()

    def _items(self) -> Iterator[Any]:
        """All arguments, with tuples flattened."""
        for argument in (*self.arguments, *self.options.values()):
            yield from argument if isinstance(argument, tuple) else (argument,)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Evaluate the expression with tensors that broadcast in place of the symbols."""
        return self._value(values, {})

    def _value(self, values: Mapping[str, Any], known: dict[int, Any]) -> Any:
        if self.symbol:
            return values[self.function]
        if id(self) not in known:
            arguments = [_argument_value(argument, values, known) for argument in self.arguments]
            options = {name: _argument_value(option, values, known) for name, option in self.options.items()}
            if self.function == "getitem":
                tensor, indices = arguments
                known[id(self)] = tensor[tuple(_index(index, tensor) for index in indices)]
            else:
                with_number = arguments and not isinstance(arguments[0], Tensor) and self.function in OPERATORS
                function = OPERATORS[self.function] if with_number else FUNCTIONS[self.function]
                known[id(self)] = function(*arguments, **options)
        return known[id(self)]

    def __getitem__(self, index: Any) -> "Expression":
        if self.function != "getitem":
            raise NotElementwise
        tensor, indices = self.arguments
        return indexed(tensor, (*indices, *(index if isinstance(index, tuple) else (index,))))

    @property
    def device(self) -> None:
        """None, torch's default device: tensors are created on the device of the indices."""

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
    names = (*REFLECTED, "ge", "gt", "le", "lt", "eq", "ne", "neg", "abs", "invert")
    for name in names:
        setattr(Expression, f"__{name}__", lambda self, *others, name=name: applied(name, self, *others))
    for name in REFLECTED:
        setattr(Expression, f"__r{name}__", lambda self, other, name=name: applied(name, other, self))


_operators()


def applied(name: str, *arguments: Any, **options: Any) -> Expression:
    """Apply the function of this name to the arguments; raises NotElementwise if it cannot be recorded."""
    name = ALIASES.get(name, name)
    if (
        name == "to"
        and not options
        and all(argument is None or isinstance(argument, torch.device) for argument in arguments[1:])
    ):
        return arguments[0]  # moved to the device that it is on
    for value in (*arguments, *options.values()):
        incomplete = (
            isinstance(value, Expression) and value.function == "getitem" and len(value.arguments[1]) < value.arguments[0].ndim
        )
        if incomplete or (isinstance(value, Tensor) and value.ndim):
            raise NotElementwise
    if name not in FUNCTIONS:
        raise NotElementwise
    return Expression(name, *arguments, **options)


def indexed(tensor: Any, indices: tuple[Any, ...]) -> Expression:
    """An element of a captured tensor, or a slice of one that later indices reduce."""
    whole = all((isinstance(index, (Expression, int)) and not isinstance(index, bool)) or is_index(index) for index in indices)
    if not isinstance(tensor, Tensor) or not whole or len(indices) > tensor.ndim:
        raise NotElementwise
    return Expression("getitem", tensor, indices)


def recorded(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The result of a torch function with expressions among its arguments."""
    name = getattr(function, "__name__", "").strip("_")
    if name == "getitem":
        tensor, index = arguments
        index = index if isinstance(index, tuple) else (index,)
        return tensor[index] if isinstance(tensor, Expression) else indexed(tensor, index)
    if name[:1] == "r" and name[1:] in REFLECTED:
        name, arguments = name[1:], arguments[::-1]
    return applied(name, *arguments, **options)


class _Recording(TorchFunctionMode):
    """Intercept indexing of a captured tensor by a symbol while a mod is traced; torch itself does not support it."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        everything = [*arguments, *options.values()]
        everything += [item for argument in everything if isinstance(argument, (tuple, list)) for item in argument]
        if any(isinstance(item, Expression) for item in everything):
            return recorded(function, arguments, options)
        return function(*arguments, **options)


def traced(mod: Callable[..., Any], *names: str) -> Expression | bool | None:
    """The expression that a mod computes from these symbols, or a constant bool; None if it is no expression.

    >>> traced(lambda b, h, q, k: q >= k, "batch", "head", "query", "key").function
    'ge'
    """
    try:
        with _Recording():
            result = mod(*(Expression(name) for name in names))
    except Exception:  # anything that the mod's code raises on a symbol; under vmap it raises again if the mod is wrong
        return None
    if isinstance(result, Tensor) and not result.ndim and result.dtype == torch.bool and not result.is_meta:
        result = bool(result)
    return result if isinstance(result, (Expression, bool)) else None


def is_index(argument: Any) -> bool:
    """Whether an argument is a captured integer tensor without dimensions."""
    return (
        isinstance(argument, Tensor) and not argument.ndim and not argument.is_floating_point() and argument.dtype != torch.bool
    )


def _argument_value(argument: Any, values: Mapping[str, Any], known: dict[int, Any]) -> Any:
    """The value of an argument. Outside of `_value`, since a recursive closure would keep all values until garbage collection."""
    if isinstance(argument, tuple):
        return tuple(_argument_value(item, values, known) for item in argument)
    return argument._value(values, known) if isinstance(argument, Expression) else argument


def _index(index: Any, tensor: Tensor) -> Any:
    return index.to(tensor.device) if isinstance(index, Tensor) and index.ndim else index
