"""Run models that call torch's flex_attention on overt's."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from overt.integrations.flex.front import flex_attention

_TRANSFORMERS = "transformers.integrations.flex_attention"


@contextmanager
def replacing_flex_attention() -> Iterator[None]:
    """Within the block, torch's `flex_attention` is overt's, in every module that imported it: with a backward pass on the CPU.

    A function that was compiled from it earlier is unchanged; the one that transformers compiles for `attn_implementation=
    "flex_attention"` is replaced too. The replacement affects all threads.

    >>> import torch.nn.attention.flex_attention as torch_flex
    >>> with replacing_flex_attention():
    ...     torch_flex.flex_attention is flex_attention
    True
    """
    import torch.nn.attention.flex_attention as of_torch

    original, transformers = of_torch.flex_attention, sys.modules.get(_TRANSFORMERS)
    replaced = [(module, name, original, flex_attention) for module, name in _holders(original)]
    if transformers is not None:
        compiled = "compile_friendly_flex_attention"
        replaced.append((transformers, compiled, getattr(transformers, compiled), _without_training))
    for module, name, _, replacement in replaced:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, before, _ in replaced:
            setattr(module, name, before)


def _holders(function: Any) -> list[tuple[Any, str]]:
    """The modules that refer to a function, and its names in them."""
    modules = [module for module in list(sys.modules.values()) if isinstance(getattr(module, "__dict__", None), dict)]
    return [(module, name) for module in modules for name, value in list(vars(module).items()) if value is function]


def _without_training(*arguments: Any, training: bool = False, **options: Any) -> Any:
    return flex_attention(*arguments, **options)
