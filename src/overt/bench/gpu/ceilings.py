"""Peak rates of a GPU: matmul, multiply-adds, special functions, copying. Each is the best of a few runs."""

import importlib.util
from dataclasses import dataclass

import torch

from overt.bench.timing import peak_rate

_SIDE = 8192
_COPIED = 1 << 30  # bytes that are copied


@dataclass(frozen=True)
class GpuCeilings:
    """Rates per second: matmuls in operations (a multiply-add counts as two), copying in bytes read and written.

    Multiply-adds and special functions are in float32. Triton's kernels measure them; without Triton they are None.
    """

    matmul: float
    matmul_bfloat16: float
    multiply_adds: float | None
    reciprocals: float | None
    tanhs: float | None
    copy: float


def measured() -> GpuCeilings:
    """Measure the rates on the current GPU, in a few seconds."""
    matmul, matmul_bfloat16 = (_matmul(dtype) for dtype in (torch.float32, torch.bfloat16))
    bytes_from, bytes_to = (torch.ones(_COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = peak_rate(2 * _COPIED, lambda: bytes_to.copy_(bytes_from), "cuda")
    if importlib.util.find_spec("triton") is None:
        return GpuCeilings(matmul, matmul_bfloat16, None, None, None, copy)
    from overt.bench.gpu.rates import rates

    return GpuCeilings(matmul, matmul_bfloat16, **rates(), copy=copy)


def _matmul(dtype: torch.dtype) -> float:
    square = torch.randn(_SIDE, _SIDE, device="cuda", dtype=dtype)
    product = torch.empty_like(square)
    return peak_rate(2 * _SIDE**3, lambda: torch.matmul(square, square, out=product), "cuda")
