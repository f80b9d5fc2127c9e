"""One switch for torch's fast path in all threads, turned on again after the last block that needs it off."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_users = 0
_was_enabled = True


@contextmanager
def fast_path_off() -> Iterator[None]:
    """Turn off torch's fast path for its Transformer layers in all threads, because no head can be removed from its kernels."""
    global _users, _was_enabled
    with _lock:
        if not _users:
            _was_enabled = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                torch.backends.mha.set_fastpath_enabled(_was_enabled)
