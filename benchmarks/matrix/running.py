"""Which module of a model runs, by the call of every module: hooks would switch off torch's fast paths."""

from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def running(model: nn.Module):
    """The names of the modules that run, the innermost last, in a list that changes as they do."""
    names = {id(module): name or type(module).__name__ for name, module in model.named_modules()}
    call, inside = nn.Module.__call__, []

    def named(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        name = names.get(id(module))
        if name is None:
            return call(module, *args, **kwargs)
        inside.append(name)
        try:
            return call(module, *args, **kwargs)
        finally:
            inside.pop()

    nn.Module.__call__ = named  # type: ignore[method-assign]
    try:
        yield inside
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
