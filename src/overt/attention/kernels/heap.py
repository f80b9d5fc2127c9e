"""Return freed memory to the operating system.

Every block of rows allocates some megabytes and frees them. Small objects that stay, such as a block's output, lie in between, and
glibc's heap then puts the next block after the last one's gap instead of into it: live memory is linear in the length, but the
process grows with its square. So if the process has grown by 64 MB since its pages were last returned, the pages of the gaps
are returned. The heap's own count of free memory cannot decide this: it includes pages already returned.

Memory that is read once a step, such as a key-value cache, uses pages of 2 MB if Linux grants them: reading it needs no lookup in
the page tables for every 4 KB.
"""

import ctypes
import os
import sys

from torch import Tensor

from overt.attention.pieces import readable

_MAX_GROWTH = 2**26  # bytes by which a process may grow before pages are returned
_resident = sys.maxsize  # smallest size of the process in bytes since pages were last returned


# glibc's malloc_trim, if there is one; other allocators do not need it.
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
_trim = getattr(_LIBRARY, "malloc_trim", None)
_advise = getattr(_LIBRARY, "madvise", None)
_LARGE = 2**22  # bytes from which large pages are requested
_DONTNEED, _HUGEPAGE = 4, 14  # Linux's MADV_DONTNEED, since reused memory has small pages, and MADV_HUGEPAGE


def in_large_pages(tensor: Tensor) -> Tensor:
    """Request large pages for a new, unwritten tensor, if it is large, on the CPU, and Linux grants them; returns the tensor.

    >>> import torch
    >>> in_large_pages(torch.empty(1 << 20)).shape
    torch.Size([1048576])
    """
    if _advise is not None and tensor.device.type == "cpu" and tensor.nbytes >= _LARGE and readable(tensor):
        page = os.sysconf("SC_PAGESIZE")
        start = -(-tensor.data_ptr() // page) * page
        size = (tensor.data_ptr() + tensor.nbytes - start) // page * page
        for advice in (_DONTNEED, _HUGEPAGE):  # a refusal changes nothing
            _advise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)
    return tensor


def give_back() -> None:
    """Return the pages that earlier blocks have freed, if they are many; only the size of the process changes."""
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
    """Bytes of the process in memory; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0
