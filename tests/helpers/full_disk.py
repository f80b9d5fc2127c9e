"""A disk that is full: files of this process end after so many bytes."""

import sys
from contextlib import contextmanager

import pytest


@contextmanager
def files_up_to(size):
    """Meanwhile, modules that are imported for the first time are not stored as bytecode, which Python would cut short without a word."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # for processes that begin meanwhile
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
