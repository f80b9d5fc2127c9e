"""The barrier between a model and what overt does beside it: the model's caller never meets an error of overt's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from overt.errors import OvertError


def beside(failed: Callable[[Exception], None], work: Callable[..., Any], *args: Any) -> Any:
    """What some work of overt's own gives; None where it failed, which `failed` is told.

    Work is all that overt does beside the model. The functions of the model itself are never called in here: they run once, with
    their own arguments, and their errors are the model's. KeyboardInterrupt and SystemExit pass.

    >>> beside(print, lambda: 1 / 0)
    division by zero
    """
    try:
        return work(*args)
    except Exception as error:
        failed(error)
        return None


@contextmanager
def unseen() -> Iterator[None]:
    """Tensors are computed in here without a trace: no mode of torch sees it, and nothing is kept for gradients."""
    dispatched = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()
    with torch._C.DisableTorchFunction(), torch.no_grad(), dispatched:
        yield


def sentence(error: Exception) -> str:
    """What failed beside the model, as a reason that attention is missing; a refusal of overt's is a sentence already.

    >>> sentence(ValueError("two sinks"))
    'overt failed to record it, and the model ran on: ValueError: two sinks'
    """
    text = ""
    with suppress(Exception):  # an error's text is code too
        text = " ".join(str(error).split())
    if isinstance(error, OvertError):
        return text
    return f"overt failed to record it, and the model ran on: {type(error).__name__}" + (f": {text}" if text else "")
