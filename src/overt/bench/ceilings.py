"""Peak rates of this machine: matmul, multiply-adds, divisions, copying. Each is the best of a few runs."""

from dataclasses import dataclass

import torch

from overt import native
from overt.bench.timing import RUNS, peak_rate

_SIDE = 2048
_COPIED = 1 << 28  # bytes that are copied
_SECONDS = 0.05


@dataclass(frozen=True)
class Ceilings:
    """Rates per second, in float32: matmul in operations (a multiply-add counts as two), copying in bytes read and written.

    Multiply-adds and divisions are measured by the native kernels; without these they are None.
    """

    matmul: float
    multiply_adds: float | None
    divisions: float | None
    copy: float
    level: str | None


def measured(threads: int) -> Ceilings:
    """Measure the rates, in about two seconds."""
    square = torch.randn(_SIDE, _SIDE)
    product = torch.empty_like(square)
    matmul = peak_rate(2 * _SIDE**3, lambda: torch.matmul(square, square, out=product))
    bytes_from = torch.ones(_COPIED // 4)
    bytes_to = torch.ones(_COPIED // 4)
    copy = peak_rate(2 * _COPIED, lambda: bytes_to.copy_(bytes_from))
    if not native.available():
        return Ceilings(matmul, None, None, copy, None)
    loops = native.module().multiply_add_rate, native.module().divide_rate
    multiply_adds, divisions = (max(loop(threads, _SECONDS) for _ in range(RUNS)) for loop in loops)
    return Ceilings(matmul, multiply_adds, divisions, copy, native.level())
