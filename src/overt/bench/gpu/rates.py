"""Kernels of one operation, in chains that touch no memory: how many operations a GPU does each second."""

# pyright: reportMissingImports=false, reportCallIssue=false, reportGeneralTypeIssues=false
# Triton is not installed everywhere, and its kernels are only syntactically Python.

import torch
import triton
import triton.language as tl

from overt.bench.timing import peak_rate

# _CHAINS: chains of a program, 8 for each thread. _STEPS are unrolled, so that the loop counter costs almost nothing.
_CHAINS, _WARPS, _STEPS = 1024, 4, 32
_PROGRAMS = 64  # programs for each multiprocessor: several times as many as run at once
_ITERATIONS = {"multiply_adds": 320, "reciprocals": 40, "tanhs": 40}  # a few milliseconds each


def rates() -> dict[str, float]:
    """Operations per second, each the best of a few runs: `multiply_adds`, `reciprocals` and `tanhs`, all in float32."""
    programs = _PROGRAMS * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    sums = torch.empty(programs, device="cuda")
    rates_by_name = {}
    for name, iterations in _ITERATIONS.items():

        def run(name: str = name, iterations: int = iterations) -> None:
            _chains[(programs,)](sums, iterations, 0.999, 0.001, name, _CHAINS, _STEPS, num_warps=_WARPS)

        rates_by_name[name] = peak_rate(programs * _CHAINS * _STEPS * iterations, run, "cuda")
    return rates_by_name


@triton.jit
def _chains(sums, iterations, factor, term, OPERATION: tl.constexpr, CHAINS: tl.constexpr, STEPS: tl.constexpr):
    """Apply the operation to each x repeatedly and store the sum, so that the compiler keeps the loop."""
    x = (tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)).to(tl.float32)
    for _iteration in range(iterations):
        for _step in tl.static_range(STEPS):
            if OPERATION == "multiply_adds":
                x = x * factor + term
            elif OPERATION == "reciprocals":
                # A sum in between, on other units: compilers know that 1 / (1 / x) is x.
                x = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
                x += term
            else:
                x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(sums + tl.program_id(0), tl.sum(x, 0))
