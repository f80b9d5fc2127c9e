"""The barrier between a model and overt's own work, whose errors never reach the model's caller."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from overt.errors import OvertError


def guarded(failed: Callable[[Exception], None], work: Callable[..., Any], *args: Any) -> Any:
    """The result of overt's own work; None if it failed, after `failed` got the error.

    Never call the model's own functions in here: they run once, with their own arguments, and their errors are the model's.
    KeyboardInterrupt and SystemExit are not caught.

    >>> guarded(print, lambda: 1 / 0)
    division by zero
    """
    try:
        return work(*args)
    except Exception as error:
        failed(error)
        return None


@contextmanager
def unseen() -> Iterator[None]:
    """Compute without a trace: no mode of torch gets the functions, and no gradients are recorded."""
    dispatched = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()
    with torch._C.DisableTorchFunction(), torch.no_grad(), dispatched:
        yield


def out_of_sight(work: Callable[..., Any], *args: Any) -> Any:
    """The result of work that leaves no trace."""
    with unseen():
        return work(*args)


def sentence(error: Exception) -> str:
    """An error as the reason why attention is missing; the text of overt's own error classes is already a sentence.

    >>> sentence(ValueError("two sinks"))
    'overt failed to record it, and the model was not affected: ValueError: two sinks'
    """
    text = ""
    with suppress(Exception):  # formatting an error runs code, which may fail
        text = " ".join(str(error).split())
    if isinstance(error, OvertError):
        return text
    return f"overt failed to record it, and the model was not affected: {type(error).__name__}" + (f": {text}" if text else "")
