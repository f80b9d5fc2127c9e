"""FlexAttention's interface on overt's kernels, forward and backward, beside dense attention that autograd differentiates.

    python -m benchmarks.kernels.flex_attention [--tokens 4096] [--runs 5] [--out docs/results/flex-attention.json]

torch's own FlexAttention has no backward pass on the CPU. What a user has there is its definition, all scores in memory: that is the peer,
in float32 and with the mask made beforehand. Runs alternate, outputs and gradients are compared first, and each figure is a median.
Beside it: by how much memory grows at three lengths, for one head.
"""

import argparse
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from benchmarks import results
from overt.integrations import flex_attention, flex_attention_plan

HEADS, FEATURES = 4, 64


def cases(tokens: int) -> dict[str, tuple[Any, Any, list[Tensor]]]:
    """By name: score_mod, mask_mod, and the tensors that learn beside query, key and value."""
    slopes = torch.linspace(0.1, 0.5, HEADS, requires_grad=True)
    table = torch.zeros(HEADS, 2 * tokens, requires_grad=True)
    lengths = torch.full((32,), tokens // 32)
    documents = torch.arange(32).repeat_interleave(lengths)
    side = math.isqrt(tokens)

    def causal(b, h, q, k):
        return q >= k

    def near(b, h, q, k):
        return ((q // side - k // side).abs() <= 6) & ((q % side - k % side).abs() <= 6)

    return {
        "causal": (None, causal, []),
        "window of 512": (None, lambda b, h, q, k: (q >= k) & (q - k < 512), []),
        "32 packed documents, causal": (None, lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k), []),
        "prefix of 256": (None, lambda b, h, q, k: (k < 256) | (q >= k), []),
        "linear biases, causal": (lambda s, b, h, q, k: s + slopes[h] * (k - q), causal, [slopes]),
        "relative table": (lambda s, b, h, q, k: s + table[h, k - q + tokens], None, [table]),
        "soft cap, causal": (lambda s, b, h, q, k: 20 * torch.tanh(s / 20), causal, []),
        "neighbourhood in a picture": (None, near, []),
        "a product of positions": (lambda s, b, h, q, k: s + torch.sin(q * k * slopes[h]), causal, [slopes]),
    }


def dense(score_mod: Any, mask_mod: Any, tokens: int) -> Callable[..., Tensor]:
    """The definition, with all scores in memory."""
    indices = [
        torch.arange(size).view([-1 if d == e else 1 for e in range(4)]) for d, size in enumerate((1, HEADS, tokens, tokens))
    ]
    allowed = None if mask_mod is None else mask_mod(*indices)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT / math.sqrt(FEATURES)
        scores = scores if score_mod is None else score_mod(scores, *indices)
        scores = scores if allowed is None else torch.where(allowed, scores, -torch.inf)
        return torch.softmax(scores, -1) @ value

    return attention


def measured(name: str, score_mod: Any, mask_mod: Any, learned: list[Tensor], tokens: int, runs: int) -> dict[str, Any]:
    """Seconds of ours and of the peer, the largest difference, and the path."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, tokens, FEATURES, requires_grad=True) for _ in range(3))
    direction = torch.randn(1, HEADS, tokens, FEATURES)
    block_mask = None if mask_mod is None else create_block_mask(mask_mod, 1, 1, tokens, tokens, device="cpu")
    attention = dense(score_mod, mask_mod, tokens)
    contenders = {"overt": lambda: flex_attention(query, key, value, score_mod, block_mask)}
    contenders["dense"] = lambda: attention(query, key, value)
    seconds: dict[str, list[float]] = {each: [] for each in contenders}
    answers: dict[str, list[Tensor]] = {}
    for _ in range(runs + 1):
        for each, forward in contenders.items():
            start = time.perf_counter()
            output = forward()
            gradients = torch.autograd.grad((output * direction).sum(), [query, key, value, *learned])
            seconds[each].append(time.perf_counter() - start)
            answers[each] = [output.detach(), *gradients]
    largest = max(
        float((one - other).abs().max() / other.abs().max().clamp(min=1e-9))
        for one, other in zip(answers["overt"], answers["dense"], strict=True)
    )
    if largest > 1e-3:
        raise SystemExit(f"{name}: the outputs differ by {largest:.1e}, so nothing is timed")
    ours, theirs = (median(seconds[each][1:]) for each in contenders)
    path = flex_attention_plan(query, key, value, score_mod, block_mask).path
    return {"case": name, "path": path, "overt": ours, "dense": theirs, "ratio": theirs / ours, "largest difference": largest}


def memory(case: str, tokens: int) -> float:
    """MB by which a process grows at most in both passes, without a block mask, which torch makes of all pairs."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_growth, case, tokens).result()


def _growth(case: str, tokens: int) -> float:
    slope = torch.tensor(0.01, requires_grad=True)
    mods = {
        "linear biases, causal": lambda s, b, h, q, k: torch.where(q >= k, s + slope * (k - q), -torch.inf),
        "a product of positions": lambda s, b, h, q, k: s + torch.sin(q * k * slope),
    }
    query, key, value = (torch.randn(1, 1, tokens, FEATURES, requires_grad=True) for _ in range(3))
    small = [each[:, :, :64] for each in (query, key, value)]
    flex_attention(small[0], small[1], small[2], mods[case]).sum().backward()
    before = _largest_size()
    flex_attention(query, key, value, mods[case]).sum().backward()
    return _largest_size() - before


def _largest_size() -> float:
    """The most MB that this process has had in memory; what getrusage says begins with the size of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Measure all cases, print them, and write them where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    results.takes_out(parser)
    requested = parser.parse_args()
    rows = []
    for name, (score_mod, mask_mod, learned) in cases(requested.tokens).items():
        rows.append(measured(name, score_mod, mask_mod, learned, requested.tokens, requested.runs))
        print("{case:30} {path:8} {overt:7.3f} s  dense {dense:7.3f} s  {ratio:5.1f} times".format(**rows[-1]), flush=True)
    rows.sort(key=lambda row: row["ratio"])
    lengths = (4096, 8192, 16384)
    grown = [
        {"case": case, "MB": [memory(case, each) for each in lengths]}
        for case in ("linear biases, causal", "a product of positions")
    ]
    print("MB at", lengths, grown)
    sizes = {"tokens": requested.tokens, "heads": HEADS, "features": FEATURES, "runs": requested.runs}
    results.write(requested.out, **sizes, rows=rows, lengths=lengths, memory=grown)


if __name__ == "__main__":
    main()
