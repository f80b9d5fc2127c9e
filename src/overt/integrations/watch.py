"""Models that take the name "overt" and do not attend by it: told of at their first forward pass, or refused in a sentence.

transformers lets any model have any registered name. Most models ask its registry for the function of that name. Some write their
attention out and never ask; some look the name up in a table of their own, which does not have it.
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
class _Pass:
    """A forward pass of one model: how often overt attended in it, and which models inside it went without."""

    model: nn.Module
    calls: int = 0
    without: list[str] = field(default_factory=list)


_running: ContextVar[tuple[_Pass, ...]] = ContextVar("running", default=())
_warned: WeakSet[nn.Module] = WeakSet()


def watch_models(base: Any, name: str) -> None:
    """Watch every model of the class `base`, transformers' PreTrainedModel, that is given this name from now on."""
    choose = base.get_correct_attn_implementation
    if getattr(choose, "__module__", "") == __name__:
        return

    @functools.wraps(choose, assigned=("__name__", "__qualname__", "__doc__"))
    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        chosen = choose(self, requested_attention, *args, **kwargs)
        if chosen == name:
            _refuse_in_tables(sys.modules[type(self).__module__], name)
            if _enter not in self._forward_pre_hooks.values():
                self.register_forward_pre_hook(_enter)
                self.register_forward_hook(functools.partial(_leave, name), with_kwargs=True, always_call=True)
        return chosen

    base.get_correct_attn_implementation = get_correct_attn_implementation


def note_call() -> None:
    """overt attends, in the models that run."""
    if not torch.compiler.is_compiling():
        for each in _running.get():
            each.calls += 1


def _enter(model: nn.Module, args: tuple) -> None:
    if not torch.compiler.is_compiling():
        _running.set((*_running.get(), _Pass(model)))


def _leave(name: str, model: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
    if torch.compiler.is_compiling() or all(each.model is not model for each in _running.get()):
        return
    running = _running.get()
    while running[-1].model is not model:  # models that failed inside it
        running = running[:-1]
    *outer, ended = running
    _running.set(tuple(outer))
    if output is None or model.config._attn_implementation != name:
        return
    if not ended.calls:
        ended.without = [type(model).__name__]
    if not outer:
        _warn(model, name, ended)
        _warn_of_weights(model, name, kwargs, output)
    elif ended.calls or _has_attention(model):
        outer[-1].without += ended.without


def _warn(model: nn.Module, name: str, ended: _Pass) -> None:
    """Say once of a model that it, or a part of it, did not attend by overt."""
    if ended.without and model not in _warned:
        _warned.add(model)
        parts = " and ".join(dict.fromkeys(ended.without))
        warnings.warn(
            f'{parts} took attn_implementation="{name}" and did not call it: its code does not ask transformers\' registry for its '
            "attention, or has none. Its outputs are right; overt's kernels were not used for it.",
            stacklevel=2,
        )


def _warn_of_weights(model: Any, name: str, kwargs: dict[str, Any], output: Any) -> None:
    """Say of a model that was asked for its weights that its code does not return them."""
    asked = kwargs.get("output_attentions", getattr(model.config, "output_attentions", False))
    if not asked or not isinstance(output, dict):
        return
    given = [value for key, value in output.items() if key.endswith("attentions")]
    if not any(isinstance(each, torch.Tensor) for value in given for each in (value if isinstance(value, tuple) else (value,))):
        warnings.warn(
            f'output_attentions=True: the code of {type(model).__name__} does not return the weights that attn_implementation="{name}" '
            'gives it. To see them, record the model, overt.lens.record(model), or choose attn_implementation="eager".',
            stacklevel=2,
        )


def _has_attention(model: nn.Module) -> bool:
    """Whether a part of a model attends, as far as the names of its classes say."""
    return any("attention" in type(module).__name__.lower() for module in model.modules())


def _refuse_in_tables(source: Any, name: str) -> None:
    """Where a model's code looks its attention up in a table by name, let it find a sentence under this one."""
    for table_name, table in vars(source).items():
        if isinstance(table, dict) and "eager" in table and all(isinstance(each, type) for each in table.values()):
            choices = " or ".join(f'"{each}"' for each in table)
            table[name] = functools.partial(_refuse, table_name, name, choices)


def _refuse(table_name: str, name: str, choices: str, config: Any, *args: Any, **kwargs: Any) -> None:
    raise InputError(
        "overt serves models whose attention goes through transformers' registry",
        got=f'attn_implementation="{name}" for a part with {type(config).__name__}, whose code has a table of its own, {table_name}',
        fix=f"choose {choices} for it, for one part of a model as in attn_implementation="
        f'{{"": "{name}", "vision_config": "eager"}}',
    )
