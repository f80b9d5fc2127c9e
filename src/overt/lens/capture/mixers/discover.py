"""Where the classes of a model call functions of linear token mixers, found in their code."""

import inspect
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from torch import nn


class FunctionHolder(NamedTuple):
    """An attribute of a module of code, a class or an instance, which holds a function."""

    owner: Any
    name: str


def function_holders(model: nn.Module, names: Collection[str]) -> dict[type, list[FunctionHolder]]:
    """The functions of these names that the classes of a model call, by class, if there are any."""
    kinds: dict[type, list[FunctionHolder]] = {}
    for module in model.modules():
        kind = type(module)
        if kind not in kinds:
            kinds[kind] = list(dict.fromkeys(_called(kind, names)))
        kinds[kind] += [
            FunctionHolder(module, name) for name in names if isinstance(vars(module).get(name), types.FunctionType)
        ]
    return {kind: holders for kind, holders in kinds.items() if holders}


def _called(kind: type, names: Collection[str]) -> Iterator[FunctionHolder]:
    """The functions of modules of code that the methods of a class call."""
    todo = [
        function
        for each in kind.__mro__
        if issubclass(each, nn.Module) and each is not nn.Module
        for function in _methods(each)
    ]
    visited = set()
    while todo:
        function = todo.pop()
        if function.__code__ in visited:
            continue
        visited.add(function.__code__)
        variables = function.__globals__
        for name in _names(function.__code__):
            value = variables.get(name)
            if name in names and callable(value) and not isinstance(value, type | nn.Module):
                owner = sys.modules.get(variables.get("__name__", ""))
                if owner is not None and vars(owner) is variables:
                    yield FunctionHolder(owner, name)
            elif isinstance(value, types.FunctionType) and value.__globals__ is variables:
                todo.append(value)


def _methods(kind: type) -> Iterator[types.FunctionType]:
    for value in vars(kind).values():
        function = inspect.unwrap(value.__func__ if isinstance(value, staticmethod | classmethod) else value)
        if isinstance(function, types.FunctionType):
            yield function


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
