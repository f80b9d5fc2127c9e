"""What the kernels reach on this machine beside torch's, row by row: one thread, by the time that the processor spends.

    OMP_NUM_THREADS=1 python -m benchmarks.kernels.kernel_rows [--only calls short …] [--out docs/results/kernel-rows.json]

Both run in turns, and outputs and gradients are compared first. Times are medians of the process's own processor time: other programs on
the machine take none of it, though they share its caches and its memory's speed. `--only` measures some parts, and keeps the others of the
file. With `avx2` this calls itself, with both libraries held to AVX2. What a processor does in multiply-adds is measured beside long parts.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

import overt
from benchmarks import results
from overt import native
from overt.attention.kernels.heap import in_large_pages

Run = Callable[[], Any]
PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {}


def part(function: Callable[[], list[dict[str, Any]]]) -> Callable[[], list[dict[str, Any]]]:
    """Register a part by its name."""
    PARTS[function.__name__] = function
    return function


def seconds(contenders: dict[str, Run], budget: float = 1.0, runs: int = 15, least: float = 0.004) -> dict[str, float]:
    """The median of each contender's processor time a call; in turns, several calls a run where they are shorter than `least`."""
    counts = {}
    for name, run in contenders.items():
        run()
        start = time.process_time()
        run()
        counts[name] = max(1, int(least / max(time.process_time() - start, 1e-7)))
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.process_time()
    for turn in range(runs):
        if time.process_time() - began > budget and turn >= 3:
            break
        for name, run in contenders.items():
            start = time.process_time()
            for _ in range(counts[name]):
                run()
            measured[name].append((time.process_time() - start) / counts[name])
    return {name: median(each) for name, each in measured.items()}


def both(run: Callable[..., Tensor], *inputs: Tensor) -> Run:
    """Forward and backward."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    upstream = torch.ones_like(run(*leaves))
    return lambda: torch.autograd.grad(run(*leaves), leaves, upstream)


def compared(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor, backward: bool) -> dict[str, float]:
    """Seconds of both, which give the same: to 1e-4 of the largest number, in half precision to 3e-2."""
    makes = (lambda run: both(run, *inputs)) if backward else (lambda run: lambda: (run(*inputs),))
    contenders = {"ours": makes(ours), "theirs": makes(theirs)}
    for one, other in zip(contenders["ours"](), contenders["theirs"](), strict=True):
        tolerance = (1e-4 if one.dtype == torch.float32 else 3e-2) * float(other.abs().max())
        assert float((one.float() - other.float()).abs().max()) <= tolerance
    return seconds(contenders)


def peak() -> float:
    """Multiply-adds of float32 numbers a second: of many short windows the one in which no other program ran."""
    return max(native.module().multiply_add_rate(1, 0.003) for _ in range(100))


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers."""
    return torch.randn(shape).to(dtype)


def dense_and_causal(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, backward: tuple[bool, ...] = (False, True)
) -> list[dict]:
    """Self-attention of this shape: dense and causal, forward and with the backward pass."""
    inputs, rows = [normal(*shape, dtype=dtype) for _ in range(3)], []
    for causal in (False, True):
        mask = overt.Causal() if causal else None
        for with_backward in backward:
            measured = compared(
                lambda q, k, v, mask=mask: overt.attend(q, k, v, mask=mask),
                lambda q, k, v, causal=causal: sdpa(q, k, v, is_causal=causal),
                *inputs,
                backward=with_backward,
            )
            rows.append({"shape": list(shape), "dtype": str(dtype)[6:], "causal": causal, "backward": with_backward} | measured)
    return rows


@part
def calls() -> list[dict[str, Any]]:
    """A call whose numbers take no time."""
    return dense_and_causal((1, 1, 4, 8))


@part
def short() -> list[dict[str, Any]]:
    """Short sequences."""
    return [row for shape in ((32, 4, 32, 32), (16, 8, 20, 32)) for row in dense_and_causal(shape)]


@part
def long() -> list[dict[str, Any]]:
    """1,024 tokens and more in float32, with the speed of multiply-adds that was measured in the same run."""
    rows = []
    for shape in ((1, 8, 1024, 64), (1, 8, 2048, 64)):
        limit = peak()
        rows += [row | {"multiply_adds": limit} for row in dense_and_causal(shape, backward=(False,))]
    return rows


@part
def units() -> list[dict[str, Any]]:
    """Half precision forward, both passes in bfloat16 and float32, with the speed of multiply-adds that the same run measured."""
    rows, passes = [], {torch.float32: (True,), torch.bfloat16: (False, True), torch.float16: (False,)}
    for shape in ((1, 8, 1024, 64), (4, 8, 512, 128)):
        for dtype, backward in passes.items():
            limit = peak()
            rows += [row | {"multiply_adds": limit} for row in dense_and_causal(shape, dtype, backward)]
    return rows


@part
def bias() -> list[dict[str, Any]]:
    """A learned bias, forward."""
    inputs, added = [normal(1, 8, 1024, 64) for _ in range(3)], normal(8, 1024, 1024)
    return [compared(lambda *x: overt.attend(*x, bias=added), lambda *x: sdpa(*x, attn_mask=added), *inputs, backward=False)]


@part
def decoding() -> list[dict[str, Any]]:
    """A token's attention to many keys, by the way in which they are stored, and adding up as many bytes as float32 numbers."""
    rows = []
    for heads, kv_heads, keys in ((32, 8, 16384), (32, 32, 4096)):
        for store, size in (("float32", 4), ("bfloat16", 2), ("int8", 1)):
            row = {"heads": [heads, kv_heads], "keys": keys, "stored": store}
            rows.append(row | beside_read(step_of(heads, kv_heads, keys, store), 2 * kv_heads * keys * 128 * size))
    for dtype in (torch.float32, torch.bfloat16):
        query, key = normal(1, 16, 1, 576, dtype=dtype), normal(1, 1, 8192, 576, dtype=dtype)
        row = {"heads": [16, 1], "keys": 8192, "stored": str(dtype)[6:]}
        rows.append(row | beside_read(lambda q=query, k=key: overt.attend(q, k, k[..., :512]), key.nbytes))
    return rows


def beside_read(run: Run, size: int) -> dict[str, float]:
    """Seconds, and those of adding up as many bytes in large pages: a share of 268 MB, of which nothing stays in the last cache."""
    plain = in_large_pages(torch.empty(1 << 26)).fill_(1)
    measured = seconds({"ours": run, "sum": plain.sum}, runs=40, least=0)
    return measured | {"sum": measured["sum"] * size / plain.nbytes}


def step_of(heads: int, kv_heads: int, keys: int, store: str) -> Run:
    """One token's attention to stored keys of 128 features, by `KVCache.step`. Queries are float32, or bfloat16."""
    dtype = torch.float32 if store == "float32" else torch.bfloat16
    query, token = normal(1, heads, 1, 128, dtype=dtype), normal(2, 1, kv_heads, 1, 128, dtype=dtype)
    cache = overt.layers.KVCache(store="int8" if store == "int8" else None)
    step: Run = torch.no_grad()(lambda: cache.step(query, token[0], token[1]))
    with torch.no_grad():
        for count in (keys, 64):
            slots = cache.extend(*(normal(1, kv_heads, count, 128, dtype=dtype) for _ in range(2)))
    expected = overt.attend(query, *(torch.cat([stored, new], -2) for stored, new in zip(slots[:2], token, strict=True)))
    assert float((step() - expected).float().abs().max()) < 1e-2
    return step


@part
def named() -> list[dict[str, Any]]:
    """Gates, blocks, statistics and documents by name: `ours` beside `theirs`, the plain call of whose time the target is a share."""
    return [
        {"what": what, "target": target} | seconds({"ours": ours, "theirs": theirs})
        for what, target, ours, theirs in (*gates_and_blocks(), *statistics_and_documents())
    ]


def gates_and_blocks() -> list[tuple[str, float, Run, Run]]:
    """Blocks of 8,192 tokens; gates of as many, and of 32,768."""
    rows: list[tuple[str, float, Run, Run]] = []
    for length, fading, mean in ((8192, "that fade in 20 tokens", 3.0), (8192, "near 1", 12.0), (32768, "near 1", 12.0)):
        tokens = [normal(1, 1, length, 64) for _ in range(3)]
        bias = overt.biases.Forget(torch.nn.functional.logsigmoid(normal(1, 1, length) + mean))
        gated: Run = lambda x=tokens, bias=bias: overt.attend(*x, mask=overt.Causal(), bias=bias)  # noqa: E731
        plain: Run = lambda x=tokens: overt.attend(*x, mask=overt.Causal())  # noqa: E731
        rows.append((f"gates {fading}, {length:,} tokens, over plain causal attention", 1.05, gated, plain))
    inputs = [normal(1, 1, 8192, 64) for _ in range(3)]
    for size in (64, 32):
        listed = torch.rand(8192 // size, 8192 // size).topk(8192 // size // 32).indices.sort().values
        sparse = functools.partial(overt.attend, mask=overt.masks.Blocks(listed, size))
        rows.append(
            (
                f"a 32nd of the blocks of {size}, over dense",
                0.05,
                lambda run=sparse: run(*inputs),
                lambda: overt.attend(*inputs),
            )
        )
        rows.append((f"the same with the backward pass, {size}", 0.05, both(sparse, *inputs), both(overt.attend, *inputs)))
    return rows


def statistics_and_documents() -> list[tuple[str, float, Run, Run]]:
    """Of 8 heads: all statistics of 1,024 tokens with the output, and 16 documents of 20 to 400 tokens in one row."""
    heads, lengths = [normal(1, 8, 1024, 64) for _ in range(3)], torch.randint(20, 400, (16,)).tolist()
    packed = [normal(1, 8, sum(lengths), 64) for _ in range(3)]
    documents = overt.Documents(torch.repeat_interleave(torch.arange(16), torch.tensor(lengths)))
    parts = list(zip(*(tensor.split(lengths, dim=2) for tensor in packed), strict=True))
    together: Run = lambda: overt.attend(*packed, mask=documents)  # noqa: E731
    apart: Run = lambda: torch.cat([sdpa(*one) for one in parts], dim=2)  # noqa: E731
    assert float((together() - apart()).abs().max()) < 1e-4
    summary: Run = lambda: overt.summarize(*heads[:2], value=heads[2])  # noqa: E731
    return [
        ("summarize with its output, over a forward pass", 1.2, summary, lambda: overt.attend(*heads)),
        ("16 packed documents, over a loop of torch's calls", 1 / 1.4, together, apart),
    ]


@part
def additive() -> list[dict[str, Any]]:
    """Additive attention forward: terms a second, and multiply-adds a second."""
    rows = []
    for features in (128, 256):
        query, key, value = (normal(1, 1024, features) for _ in range(3))
        score, limit = overt.Additive(normal(features)), peak()
        measured = seconds({"ours": lambda q=query, k=key, v=value, s=score: overt.attend(q, k, v, score=s)})
        rows.append({"features": features, "terms": 1024 * 1024 * features, "multiply_adds": limit} | measured)
    return rows


@part
def window() -> list[dict[str, Any]]:
    """A window of 512 keys, ever longer: GFLOP/s that the window asks for."""
    rows = []
    for length in (4096, 16384, 131072):
        query, key, value = (normal(1, 1, length, 64) for _ in range(3))
        pairs = 512 * length - 512 * 511 // 2
        measured = seconds({"ours": lambda q=query, k=key, v=value: overt.attend(q, k, v, mask=overt.Window(511, 0))}, runs=3)
        rows.append({"length": length, "operations": 4 * pairs * 64} | measured)
    return rows


@part
def avx2() -> list[dict[str, Any]]:
    """Both libraries held to AVX2."""
    environment = os.environ | {"OVERT_SIMD": "avx2", "ATEN_CPU_CAPABILITY": "avx2"}
    if "avx2" not in native.module().levels():
        return []
    command = [sys.executable, "-m", "benchmarks.kernels.kernel_rows", "--print", "short", "long"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--print", nargs="+", choices=PARTS, help=argparse.SUPPRESS)
    results.takes_out(parser)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if arguments.print:
        print(json.dumps([{"part": name} | row for name in arguments.print for row in PARTS[name]()]))
        return
    old = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    measured = {}
    for name in arguments.only:
        measured[name] = PARTS[name]()
        print(name, json.dumps(measured[name]), flush=True)
    results.write(arguments.out, parts=old.get("parts", {}) | measured, level=native.level(), threads=1)


if __name__ == "__main__":
    main()
