"""One switch for torch's fast path, for all threads: on again when the last block that needs it off has ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_users = 0
_was_enabled = True


@contextmanager
def fast_path_off() -> Iterator[None]:
    """Turn off torch's fast path for its Transformer layers, one switch for all threads: no head can be removed from its kernel."""
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
