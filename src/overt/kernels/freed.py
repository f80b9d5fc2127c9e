"""Freed memory, given back to the machine.

Every block of rows allocates some megabytes and frees them. In between lie small things that stay, such as a block's output, and
glibc's heap then fits the next block beside the last one's gap instead of into it: live memory is linear in the length, and the
process still grows with its square. So where the heap's gaps come to more than half a gigabyte, their pages go back.
"""

import ctypes
import itertools
import sys
from typing import Any

_EVERY, _MOST = 8, 2**29  # blocks between two looks at the heap, and bytes of gaps in it
_count = itertools.count(1)
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Heap(ctypes.Structure):
    """glibc's `struct mallinfo2`; `fordblks` is the bytes that are free."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def _of_glibc(name: str) -> Any:
    """The function, where there is one: other allocators need no such help."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


_trim, _heap = _of_glibc("malloc_trim"), _of_glibc("mallinfo2")
if _heap is not None:
    _heap.restype = _Heap


def give_back() -> None:
    """Let the pages that earlier blocks have freed go, if they are many; nothing changes but the size of the process."""
    if _trim is not None and _heap is not None and next(_count) % _EVERY == 0 and _heap().fordblks > _MOST:
        _trim(0)
