"""Freed memory, given back to the machine.

Every block of rows allocates some megabytes and frees them. In between lie small things that stay, such as a block's output, and
glibc's heap then fits the next block beside the last one's gap instead of into it: live memory is linear in the length, and the
process still grows with its square. Measured, 20,000 causal queries forward and backward: 2.3 GB, and 0.2 GB with this.
"""

import ctypes
import itertools
import sys

_EVERY = 8  # blocks
_count = itertools.count(1)
# Of glibc alone; other allocators need no such help.
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Let the pages that earlier blocks have freed go, every few blocks; nothing changes but the size of the process."""
    if _trim is not None and next(_count) % _EVERY == 0:
        _trim(0)
