"""Finds, in the code of a model's classes, the calls of mixers' functions and the methods that are mixers."""

import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from overt.lens.capture.mixers.form import Form


class FunctionHolder(NamedTuple):
    """An attribute of a code module, a class or an instance that holds a mixer's function."""

    owner: Any
    name: str
    form: Form


def function_holders(
    model: nn.Module, by_function: Mapping[str, Form], forms: Sequence[Form]
) -> dict[type, list[FunctionHolder]]:
    """The mixers' functions that the classes of a model call, and their methods that are mixers, by class."""
    kinds: dict[type, list[FunctionHolder]] = {}
    for module in model.modules():
        kind = type(module)
        if kind not in kinds:
            kinds[kind] = list(dict.fromkeys([*_called(kind, by_function), *_methods_of_form(kind, forms)]))
        attributes = [
            name for name in vars(module).keys() & by_function.keys() if isinstance(vars(module)[name], types.FunctionType)
        ]
        kinds[kind] += [FunctionHolder(module, name, by_function[name]) for name in attributes]
    return {kind: holders for kind, holders in kinds.items() if holders}


def _called(kind: type, by_function: Mapping[str, Form]) -> Iterator[FunctionHolder]:
    """The functions of code modules that the methods of a class call."""
    todo = [function for entry in _classes(kind) for _, function in _methods(entry)]
    visited = set()
    while todo:
        function = todo.pop()
        if function.__code__ in visited:
            continue
        visited.add(function.__code__)
        variables = function.__globals__
        for name in _names(function.__code__):
            value = variables.get(name)
            if name in by_function and callable(value) and not isinstance(value, type | nn.Module):
                owner = sys.modules.get(variables.get("__name__", ""))
                if owner is not None and vars(owner) is variables:
                    yield FunctionHolder(owner, name, by_function[name])
            elif isinstance(value, types.FunctionType) and value.__globals__ is variables:
                todo.append(value)


def _methods_of_form(kind: type, forms: Sequence[Form]) -> Iterator[FunctionHolder]:
    for owner in _classes(kind):
        for name, function in _methods(owner):
            parameters, names = inspect.signature(function).parameters.keys(), set(_names(function.__code__))
            yield from (FunctionHolder(owner, name, form) for form in forms if form.is_method(name, parameters, names))


def _classes(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]


def _methods(kind: type) -> Iterator[tuple[str, types.FunctionType]]:
    for name, value in vars(kind).items():
        function = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        if isinstance(function, types.FunctionType):
            yield name, function


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
