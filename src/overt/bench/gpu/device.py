"""A GPU's clock, memory and properties."""

import re
from collections.abc import Callable

import torch

from overt.bench.machine import package_version
from overt.errors import InputError

_CACHE = 1 << 30  # bytes written before each run: larger than any cache


def kind(device: str) -> str:
    """`cpu` or `cuda`, whether or not the machine has one.

    >>> kind("cpu"), kind("cuda"), kind("cuda:1")
    ('cpu', 'cuda', 'cuda')
    """
    if device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", device):
        fix = "omit --device, or pass cuda, cuda:1 and so on"
        raise InputError("cpu or a CUDA GPU for --device", got=repr(device), fix=fix)
    return device.partition(":")[0]


def select_device(device: str) -> torch.device:
    """The device of this name, which must exist; a GPU becomes the current one of torch and Triton."""
    result = torch.device(device)
    if kind(device) == "cpu":
        return result
    if not torch.cuda.is_available():
        fix = "run on a machine with an NVIDIA GPU and a torch built for CUDA, or omit --device"
        got = f"torch {torch.__version__}, which finds none"
        raise InputError(f"a GPU that torch can use for --device {device}", got=got, fix=fix)
    count = torch.cuda.device_count()
    if (result.index or 0) >= count:
        fix = f"pass one from cuda:0 to cuda:{count - 1}"
        raise InputError("an existing GPU for --device", got=f"{device} of {count} GPUs", fix=fix)
    torch.cuda.set_device(result.index or 0)
    return result


def timed(run: Callable[[], object]) -> float:
    """The run's seconds on the GPU, between two events.

    The GPU first clears its cache, which then holds no input. Meanwhile Python queues the run, so kernels do not wait for it.
    """
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.empty(_CACHE, dtype=torch.uint8, device="cuda").zero_()
    start.record()
    result = run()
    stop.record()
    torch.cuda.synchronize()
    del result
    return start.elapsed_time(stop) / 1e3


def free_memory() -> int:
    """Available bytes: free memory, and torch's cache for later tensors."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def facts() -> dict[str, str | int | None]:
    """The GPU, and the versions of CUDA and Triton."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "gpu_memory": properties.total_memory,
        "cuda": torch.version.cuda,
        "triton": package_version("triton"),
    }
