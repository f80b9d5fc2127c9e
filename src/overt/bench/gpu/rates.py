"""Kernels that do one operation alone, in chains that touch no memory: how many of them a GPU does a second."""

# pyright: reportMissingImports=false, reportCallIssue=false, reportGeneralTypeIssues=false
# Triton is not installed everywhere, and what it compiles is Python to look at only.

import torch
import triton
import triton.language as tl

from overt.bench.gpu import device as gpu

# A program has so many chains, 8 a thread, each step written out so often that counting turns takes next to nothing.
_CHAINS, _WARPS, _STEPS = 1024, 4, 32
_PROGRAMS = 64  # a multiprocessor: several times as many as run at once
_TURNS = {"multiply_adds": 320, "reciprocals": 40, "tanhs": 40}  # milliseconds each
_RUNS = 7


def rates() -> dict[str, float]:
    """Operations a second, each the best of a few runs: `multiply_adds`, `reciprocals` and `tanhs`, all in float32."""
    programs = _PROGRAMS * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    sums = torch.empty(programs, device="cuda")
    found = {}
    for name, turns in _TURNS.items():

        def run(name: str = name, turns: int = turns) -> None:
            _chains[(programs,)](sums, turns, 0.999, 0.001, name, _CHAINS, _STEPS, num_warps=_WARPS)

        run()  # compiles it
        found[name] = programs * _CHAINS * _STEPS * turns / min(gpu.timed(run) for _ in range(_RUNS))
    return found


@triton.jit
def _chains(sums, turns, factor, term, OPERATION: tl.constexpr, CHAINS: tl.constexpr, STEPS: tl.constexpr):
    """Each x becomes the operation of itself, over and over; their sum is stored, or the compiler would leave all of it away."""
    x = (tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)).to(tl.float32)
    for _turn in range(turns):
        for _step in tl.static_range(STEPS):
            if OPERATION == "multiply_adds":
                x = x * factor + term
            elif OPERATION == "reciprocals":
                # A sum, which other units take meanwhile, in between: compilers know that 1 / (1 / x) is x.
                x = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
                x += term
            else:
                x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(sums + tl.program_id(0), tl.sum(x, 0))
