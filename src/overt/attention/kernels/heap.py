"""Freed memory, given back to the machine.

Every block of rows allocates some megabytes and frees them. In between lie small things that stay, such as a block's output, and
glibc's heap then fits the next block after the last one's gap instead of into it: live memory is linear in the length, and the
process still grows with its square. So where the process has grown by 64 MB since its pages last went back, those of the gaps
go back. What the heap counts as free cannot tell: it counts pages that are gone as well.
"""

import ctypes
import os
import sys

_MAX_GROWTH = 2**26  # bytes that a process may have grown by
_resident = sys.maxsize  # bytes of the process when it was smallest since its pages last went back


# glibc's function, where there is one: other allocators need no such help.
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Let the pages that earlier blocks have freed go, if they are many; nothing changes but the size of the process."""
    global _resident
    if _trim is None:
        return
    size = _size()
    if size > _resident + _MAX_GROWTH:
        _trim(0)
        _resident = _size()
    else:
        _resident = min(_resident, size)


def _size() -> int:
    """Bytes of the process that are in the machine's memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
