"""Warnings and errors for models that accept a name of overt as `attn_implementation` and do not call overt.

transformers accepts any registered name for any model. Most models get their attention function from its registry. Some have their
attention written out and never use the registry; some look the name up in another table, which does not contain it.
"""

import functools
import sys
import warnings
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from overt.errors import InputError


@dataclass(eq=False)
class _ForwardPass:
    """A forward pass of one model: its calls of overt, and the inner models that did not call overt."""

    model: nn.Module
    calls: int = 0
    unused: list[str] = field(default_factory=list)


_running: ContextVar[tuple[_ForwardPass, ...]] = ContextVar("running", default=())
_warned: WeakSet[nn.Module] = WeakSet()
_consequences: dict[str, str] = {}  # for each registered name, what it means for a model if it was not called


def warn_if_unused(base: Any, name: str, consequence: str) -> None:
    """Make every model of the class `base`, transformers' PreTrainedModel, warn if it is set to this name and does not call overt."""
    _consequences[name] = consequence
    original = base.get_correct_attn_implementation
    if getattr(original, "__module__", "") == __name__:
        return

    @functools.wraps(original, assigned=("__name__", "__qualname__", "__doc__"))
    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        implementation = original(self, requested_attention, *args, **kwargs)
        if implementation in _consequences:
            _add_to_tables(sys.modules[type(self).__module__], implementation)
            if _begin_pass not in self._forward_pre_hooks.values():
                self.register_forward_pre_hook(_begin_pass)
                self.register_forward_hook(_end_pass, with_kwargs=True, always_call=True)
        return implementation

    base.get_correct_attn_implementation = get_correct_attn_implementation


def count_call() -> None:
    """Count a call of overt in every model whose forward pass is running."""
    if not torch.compiler.is_compiling():
        for entry in _running.get():
            entry.calls += 1


def _begin_pass(model: nn.Module, args: tuple[Any, ...]) -> None:
    if not torch.compiler.is_compiling():
        _running.set((*_running.get(), _ForwardPass(model)))


def _end_pass(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    if torch.compiler.is_compiling() or all(entry.model is not model for entry in _running.get()):
        return
    running = _running.get()
    while running[-1].model is not model:  # passes of inner models that raised an error
        running = running[:-1]
    *outer, ended = running
    _running.set(tuple(outer))
    name = model.config._attn_implementation
    if output is None or name not in _consequences:
        return
    if not ended.calls:
        ended.unused = [type(model).__name__]
    if not outer:
        _warn_unused(model, name, ended)
        _warn_missing_weights(model, name, kwargs, output)
    elif ended.calls or any("attention" in type(module).__name__.lower() for module in model.modules()):
        outer[-1].unused += ended.unused


def _warn_unused(model: nn.Module, name: str, ended: _ForwardPass) -> None:
    """Warn once for a model that did not call overt, as a whole or in part."""
    if ended.unused and model not in _warned:
        _warned.add(model)
        parts = " and ".join(dict.fromkeys(ended.unused))
        warnings.warn(
            f'{parts} accepted attn_implementation="{name}" and did not call it: its code does not use transformers\' attention '
            f"registry, or has no attention. {_consequences[name]}",
            stacklevel=2,
        )


def _warn_missing_weights(model: Any, name: str, kwargs: dict[str, Any], output: Any) -> None:
    """Warn for a model with output_attentions=True whose code does not return the weights."""
    requested = kwargs.get("output_attentions", getattr(model.config, "output_attentions", False))
    if not requested or not isinstance(output, dict):
        return
    outputs = [value for key, value in output.items() if key.endswith("attentions")]
    if not any(
        isinstance(part, torch.Tensor) for value in outputs for part in (value if isinstance(value, tuple) else (value,))
    ):
        warnings.warn(
            f"output_attentions=True: the code of {type(model).__name__} does not return the attention weights of "
            f'attn_implementation="{name}". To see them, use overt.lens.record(model), or choose attn_implementation="eager".',
            stacklevel=2,
        )


def _add_to_tables(source: Any, name: str) -> None:
    """Add an entry that raises an InputError to each table of names in which a model's code looks up its attention class."""
    for table_name, table in vars(source).items():
        if isinstance(table, dict) and "eager" in table and all(isinstance(choice, type) for choice in table.values()):
            choices = " or ".join(f'"{choice}"' for choice in table)
            table[name] = functools.partial(_raise_unsupported, table_name, name, choices)


def _raise_unsupported(table_name: str, name: str, choices: str, config: Any, *args: Any, **kwargs: Any) -> None:
    raise InputError(
        "a model whose attention uses transformers' registry",
        got=f'attn_implementation="{name}" for a part with {type(config).__name__}, whose code uses the table {table_name} instead',
        fix=f"choose {choices} for it; for one part of a model, as in attn_implementation="
        f'{{"": "{name}", "vision_config": "eager"}}',
    )
