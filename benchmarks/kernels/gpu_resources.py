"""What the kernels for GPUs take of one, without one: each is compiled for it here, and its machine code is read.

    python -m benchmarks.kernels.gpu_resources [--capability 90] [--all] [--out docs/results/gpu-resources.json]

For each kernel of a forward and a backward pass and of a summary, with 128 features in float32 (summaries in bfloat16): registers a
thread, bytes a thread that did not fit into registers, shared memory a program, and how many programs a multiprocessor holds.
For the loop over groups of four features: the instructions that a thread issues for each term (one pair of tokens, one feature) on the
usual way, on which four terms share a reciprocal. No time is measured.
"""

import argparse
import collections
import re
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from rich.console import Console
from rich.table import Table
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import overt
from benchmarks import results
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import additive as flat_additive
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.flat.normalizer import NormalizerForm
from overt.attention.kernels.triton import run_additive, run_summary

TOOLS = Path(nvidia.__file__).parent / "bin"
REGISTERS, SHARED = 65536, 227 * 1024  # of a multiprocessor
FEATURES, LENGTH = 128, 2048


class Compiler:
    """Stands in for a GPU's driver: what Triton would load is kept, and what it would launch is not."""

    def __init__(self, capability: int):
        self.target, self.recorded = GPUTarget("cuda", capability, 32), []
        self.utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": SHARED}, load_binary=self.keep)
        self.get_current_target = lambda: self.target
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0
        self.get_active_torch_device = lambda: torch.device("cpu")
        self.launcher_cls = lambda source, metadata: lambda *arguments: None

    def keep(self, name, binary, shared, device):
        """Keep a kernel's code; to Triton it is loaded."""
        self.recorded.append((name, binary, shared))
        return 1, 1, 0, 0, 1024


def tool(name: str, *arguments: str) -> str:
    """What one of the tools in Triton's package says."""
    return subprocess.run([TOOLS / name, *arguments], capture_output=True, text=True, check=True).stdout


def read(binary: bytes) -> tuple[int, int, list[str]]:
    """Registers, bytes on the stack, and the lines of machine code, with their labels."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        used = re.search(r"REG:(\d+) STACK:(\d+)", tool("cuobjdump", "-res-usage", file.name))
        assert used is not None
        lines = [line.strip() for line in tool("nvdisasm", "-c", file.name).splitlines()]
    code = [
        re.sub(r"^/\*[0-9a-f]+\*/\s*|\s*;.*$", "", line)
        for line in lines
        if re.match(r"\.L_x_\d+:|/\*[0-9a-f]{4,}\*/\s+\S.*;", line)
    ]
    return int(used[1]), int(used[2]), code


def loops(code: list[str]) -> list[list[str]]:
    """The bodies of loops that hold no other: from a label to the branch back to it."""
    labels = {line[:-1]: index for index, line in enumerate(code) if line.startswith(".L_x_")}
    result = []
    for index, line in enumerate(code):
        back = re.search(r"BRA.*\((\.L_x_\d+)\)", line)
        if back and labels.get(back[1], index) < index:
            result.append((labels[back[1]], index + 1))
    inner = [one for one in result if not any(one[0] <= other[0] and other[1] <= one[1] and one != other for other in result)]
    return [code[first:stop] for first, stop in inner]


def usual_way(body: list[str]) -> collections.Counter:
    """The operations of a loop's blocks but for those that hold terms at the cap, or take an exponential each."""
    total, block = collections.Counter(), []
    for line in [*body, "BRA"]:
        if not line.startswith(".L_x_"):
            operation = re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]
            block.append(
                ".".join(operation.split(".")[:2]) if operation.startswith(("MUFU", "FMNMX")) else operation.split(".")[0]
            )
        if line.startswith(".L_x_") or "BRA" in line:
            if not {"MUFU.EX2", "FMNMX.NAN"} & set(block):
                total.update(block)
            block = []
    total["BRA"] -= 1
    return total


def passes(dtype: torch.dtype, activation: str, **options) -> None:
    """Ask for the kernels of a forward and a backward pass."""
    x = torch.zeros(1, 2, LENGTH, FEATURES, dtype=dtype)
    call = Call.checked(x, x, x, overt.Additive(torch.ones(FEATURES, dtype=dtype), activation), **options)
    seed = torch.zeros((), dtype=torch.int64) if call.dropout else None
    scores = (x, x, x, call.score.weight.to(call.dtype), activation)
    additive_inputs = flat_additive.AdditiveInputs(
        *scores, *flat_call.mask_and_softmax(call), *NormalizerForm(), call.dropout, seed
    )
    output, lse = run_additive.additive(x, additive_inputs)
    run_additive.additive_gradients(output, additive_inputs, output, lse, call.bias is not None)


def summaries(dtype: torch.dtype, score, **options) -> None:
    """Ask for the kernels of a summary."""
    x = torch.zeros(1, 2, LENGTH, FEATURES, dtype=dtype)
    call = Call.checked(x, x, x if options else x[..., :0], score, **options)
    inputs = flat_summary.summary_inputs(call, 8, (torch.arange(0, LENGTH + 1, 32),) * 2)
    run_summary.summary(x, flat_summary.empty_outputs(inputs), inputs)


def compiled(capability: int, everything: bool) -> list[tuple[str, bytes, int]]:
    """The kernels of the passes that `benchmarks/attention` times on a GPU; with `everything` those of every other kind of call, too."""
    compiler = Compiler(capability)
    driver.set_active(compiler)
    passes(torch.float32, "tanh")
    summaries(torch.bfloat16, overt.Dot())
    if everything:
        pairs = overt.masks.Dense(torch.ones(LENGTH, LENGTH, dtype=torch.bool)) | ~overt.Documents(
            torch.zeros(LENGTH, dtype=torch.int64)
        )
        sink = overt.Softmax(1.5, torch.zeros(2))
        passes(torch.bfloat16, "leaky_relu", mask=overt.Causal(), bias=overt.ALiBi(torch.ones(2)), normalizer=sink, dropout=0.1)
        passes(torch.float16, "sigmoid", mask=pairs, bias=torch.zeros(LENGTH, LENGTH))
        summaries(torch.float32, overt.Additive(torch.ones(FEATURES)), mask=pairs & overt.Causal())
        summaries(torch.float32, overt.Dot(softcap=30.0), mask=overt.Causal())
    return compiler.recorded


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capability", type=int, default=90, help="the GPU's compute capability, 80 or 90")
    parser.add_argument("--all", action="store_true", help="kernels of every kind of call, not only those that are timed")
    results.takes_out(parser)
    requested = parser.parse_args()
    kernels = [described(*kernel) for kernel in compiled(requested.capability, requested.all)]
    console = Console(width=132)
    table = Table(box=None, title=f"compute capability {requested.capability}, Triton {triton.__version__}")
    for head in ("kernel", "registers", "spilled", "shared", "programs", "instructions a term", "of them"):
        table.add_column(head, justify="left" if head in ("kernel", "of them") else "right")
    for kernel in kernels:
        used = kernel["kernel"], f"{kernel['registers']}", f"{kernel['spilled']} B", f"{kernel['shared'] / 1024:.0f} KiB"
        for index, loop in enumerate(kernel["a_term"] or [{}]):
            notes = " · ".join(f"{name} {count:.2f}" for name, count in list(loop.items())[:5])
            first = (*used, f"{kernel['programs']}") if index == 0 else ("",) * 5
            table.add_row(*first, f"{sum(loop.values()):.2f}" if loop else "", notes)
    console.print(table)
    results.write(requested.out, capability=requested.capability, triton=triton.__version__, features=FEATURES, kernels=kernels)


def described(name: str, binary: bytes, shared: int) -> dict[str, Any]:
    """What a kernel takes of a multiprocessor; for each of its loops over features, the instructions a term by their names."""
    sizes = {"forward": run_additive.FORWARD, "gradients": run_additive.BACKWARD, "query_statistics": run_summary.QUERIES}
    sizes |= {"key_statistics": run_summary.KEYS} | dict.fromkeys(("bias_gradient", "distance_gradient"), run_additive.BACKWARD)
    registers, spilled, code = read(binary)
    warps = sizes.get(name, {"warps": 4})["warps"]
    programs = min(REGISTERS // (registers * 32 * warps), SHARED // max(shared + 1024, 1), 2048 // (32 * warps))
    ways = [way for way in map(usual_way, loops(code)) if way["MUFU.RCP"]] if name in ("forward", "gradients") else []
    used = {"kernel": name, "registers": registers, "spilled": spilled, "shared": shared, "programs": programs, "warps": warps}
    return used | {"a_term": [per_term(way) for way in ways]}


def per_term(way: collections.Counter) -> dict[str, float]:
    """Instructions for each term, the most frequent first: a reciprocal serves four."""
    return {name: round(count / (4 * way["MUFU.RCP"]), 4) for name, count in way.most_common() if count}


if __name__ == "__main__":
    main()
