"""A contender: a name, and how it is prepared for a case."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

import overt
from overt.bench.cases import Inputs
from overt.bench.gpu import device as gpu
from overt.errors import OvertError

# Results by name; a run maps an upstream gradient, or None for a forward pass only, to them.
Results = dict[str, Tensor]
Run = Callable[[Tensor | None], Results]
Attention = Callable[..., Tensor]

_FREE_SHARE = 0.6  # share of the free memory that may be used
GRADIENTS = ("query gradient", "key gradient", "value gradient", "weight gradient")


class Unable(Exception):
    """The reason why a contender cannot run a case on this machine; shown in the table, and no error."""


@dataclass(frozen=True)
class Contender:
    """`prepare` creates a run for given inputs, with a note for the table; it may raise `Unable`."""

    name: str
    prepare: Callable[[Inputs], tuple[Run, str]]
    ours: bool = False


def differentiated(attention: Attention, tensors: tuple[Tensor, ...], names: tuple[str, ...] | None = None) -> Run:
    """Run attention forward, and backward to each of its tensors if there is an upstream gradient."""
    leaves = tuple(tensor.detach().requires_grad_() for tensor in tensors)
    names = names or GRADIENTS[: len(tensors)]

    def run(upstream: Tensor | None) -> Results:
        if upstream is None:
            with torch.no_grad():
                return {"output": attention(*tensors)}
        output = attention(*leaves)
        gradients = torch.autograd.grad(output, leaves, upstream)
        return {"output": output.detach(), **dict(zip(names, gradients, strict=True))}

    return run


def require_path(path: str, inputs: Inputs, score: overt.Additive | None = None) -> None:
    """Raise `Unable` if this path of overt cannot compute a call."""
    try:
        with overt.use_path(path):
            overt.plan(inputs.query, inputs.key, inputs.value, score=score)
    except OvertError as error:
        raise Unable(str(error)) from error


def memory_shortage(inputs: Inputs, tensors: int) -> str | None:
    """Why `tensors` tensors of B · Q · K · D numbers do not fit into memory; None if they do."""
    needed = tensors * prod((*inputs.query.shape, inputs.key.shape[-2])) * inputs.query.itemsize
    free = gpu.free_memory() if inputs.query.is_cuda else _free_memory()
    if free is None or needed <= _FREE_SHARE * free:
        return None
    return f"at once it would need {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"


def _free_memory() -> int | None:
    """Bytes available without swapping; None if the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
