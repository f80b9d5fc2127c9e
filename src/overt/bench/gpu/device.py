"""What measuring on a GPU takes that a processor does not: its clock, its memory, what it is."""

import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch

from overt.errors import InputError

_CACHE = 1 << 30  # bytes written before each run: more than any cache holds


def kind(device: str) -> str:
    """`cpu` or `cuda`, whether or not one is there.

    >>> kind("cpu"), kind("cuda"), kind("cuda:1")
    ('cpu', 'cuda', 'cuda')
    """
    if device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", device):
        fix = "leave --device out, or pass cuda, or cuda:1 and so on"
        raise InputError("overt bench measures the processor or a CUDA GPU", got=f"--device {device}", fix=fix)
    return device.partition(":")[0]


def usable(device: str) -> torch.device:
    """The device of this name, which has to be there; a GPU becomes the one that torch and Triton use."""
    found = torch.device(device)
    if kind(device) == "cpu":
        return found
    if not torch.cuda.is_available():
        fix = "run on a machine with an NVIDIA GPU and a torch built for CUDA, or leave --device out"
        got = f"torch {torch.__version__}, which sees none"
        raise InputError(f"--device {device} needs a GPU that torch can use", got=got, fix=fix)
    count = torch.cuda.device_count()
    if (found.index or 0) >= count:
        fix = f"pass one from cuda:0 to cuda:{count - 1}"
        raise InputError("--device names a GPU that is there", got=f"{device} of {count} GPUs", fix=fix)
    torch.cuda.set_device(found.index or 0)
    return found


def timed(run: Callable[[], object]) -> float:
    """Seconds on the GPU, between two events around the run.

    The GPU empties its cache first: no input is in it, and Python is ahead by then, so that kernels do not wait for it.
    """
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.empty(_CACHE, dtype=torch.uint8, device="cuda").zero_()
    start.record()
    kept = run()
    stop.record()
    torch.cuda.synchronize()
    del kept
    return start.elapsed_time(stop) / 1e3


def peak(run: Callable[[], object]) -> int:
    """The most bytes that torch holds while it runs, and of what it gives, above what it held before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run()
    torch.cuda.synchronize()
    del kept
    return torch.cuda.max_memory_allocated() - before


def free_memory() -> int:
    """Bytes that can be had: free ones, and those that torch keeps for later tensors."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def facts() -> dict[str, str | int | None]:
    """The GPU, and what its kernels are compiled with."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = None
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "gpu_memory": properties.total_memory,
        "cuda": torch.version.cuda,
        "triton": triton,
    }
