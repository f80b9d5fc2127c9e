"""Which modules of a text model mix tokens: those whose output at one token changes when another token of their input does.

No name and no operator is looked at, so that state spaces, linear attention, short convolutions and whatever comes next are all found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CHANGED = 1e-4


@dataclass
class _Call:
    args: tuple
    kwargs: dict[str, Any]


def mixers(model: nn.Module, run: Callable[[nn.Module], Any], tokens: int) -> list[str]:
    """The innermost modules that take vectors of so many tokens (B, T, C) and mix them, by name."""
    calls = _calls(model, run, tokens)
    modules = dict(model.named_modules())
    mixing = [name for name, call in calls.items() if _mixes(modules[name], call, tokens)]
    return [name for name in mixing if not any(other.startswith(f"{name}.") or (not name and other) for other in mixing)]


def _calls(model: nn.Module, run: Callable[[nn.Module], Any], tokens: int) -> dict[str, _Call]:
    """What each module that takes vectors of tokens was called with first."""
    calls: dict[str, _Call] = {}

    def noting(name: str) -> Callable:
        def note(_: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            if name not in calls and _vectors(args, kwargs, tokens) is not None:
                calls[name] = _Call(args, kwargs)

        return note

    hooks = [each.register_forward_pre_hook(noting(name), with_kwargs=True) for name, each in model.named_modules()]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _vectors(args: tuple, kwargs: dict[str, Any], tokens: int) -> Tensor | None:
    """The first argument, if it is vectors of tokens."""
    first = args[0] if args else kwargs.get("hidden_states")
    wanted = isinstance(first, Tensor) and first.is_floating_point() and first.ndim == 3 and first.shape[1] == tokens
    return first if wanted else None


def _mixes(module: nn.Module, call: _Call, tokens: int) -> bool:
    vectors = _vectors(call.args, call.kwargs, tokens)
    assert vectors is not None
    changed = vectors.clone()
    index = tokens // 2
    changed[:, index] += torch.randn(changed[:, index].shape, generator=torch.Generator().manual_seed(0))
    try:
        before, after = (_output(module, call, each) for each in (vectors, changed))
    except Exception:  # a module that cannot be called by itself again
        return False
    if before is None or after is None or before.ndim != 3 or before.shape[1] != tokens or before.shape != after.shape:
        return False
    apart = (before - after).abs().amax((0, 2))
    apart[index] = 0
    return bool(apart.max() > CHANGED * before.abs().max())


def _output(module: nn.Module, call: _Call, vectors: Tensor) -> Tensor | None:
    torch.manual_seed(1)
    args, more = ((vectors, *call.args[1:]), {}) if call.args else ((), {"hidden_states": vectors})
    output = module(*args, **call.kwargs | more)
    output = output[0] if isinstance(output, tuple | list) else output
    return output if isinstance(output, Tensor) else None
