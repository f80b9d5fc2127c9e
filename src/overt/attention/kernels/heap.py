"""Freed memory, given back to the machine.

Every block of rows allocates some megabytes and frees them. In between lie small things that stay, such as a block's output, and
glibc's heap then fits the next block after the last one's gap instead of into it: live memory is linear in the length, and the
process still grows with its square. So where the process has grown by 64 MB since its pages last went back, those of the gaps
go back. What the heap counts as free cannot tell: it counts pages that are gone as well.

Memory that is read once a step, as that of a key-value cache, is in pages of 2 MB where Linux grants them: it is read without a look into
the page tables for every 4 KB.
"""

import ctypes
import os
import sys

from torch import Tensor

from overt.attention.pieces import readable

_MAX_GROWTH = 2**26  # bytes that a process may have grown by
_resident = sys.maxsize  # bytes of the process when it was smallest since its pages last went back


# glibc's function, where there is one: other allocators need no such help.
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
_trim = getattr(_LIBRARY, "malloc_trim", None)
_advise = getattr(_LIBRARY, "madvise", None)
_LARGE = 2**22  # bytes from which on large pages are asked for
_DONTNEED, _HUGEPAGE = 4, 14  # Linux's MADV_DONTNEED, since memory that is used again has small pages, and MADV_HUGEPAGE


def in_large_pages(tensor: Tensor) -> Tensor:
    """The same new tensor, which holds nothing yet, in large pages once it is written: if it is large, on the CPU, and Linux grants them.

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
