"""Recording at length, a process for each contender, so that each has a peak of memory of its own.

    python benchmarks/recording.py --part gpt2 [--length 8192] [--threads 2] [--map 256]
    python benchmarks/recording.py --part layer [--length 32768]
    python benchmarks/recording.py --part length

`gpt2`: the forward pass of a GPT-2 of random weights (12 layers, 12 heads, 768 features) on torch's fused attention, plain and recorded
with keep="summary"; outputs are compared to the bit. `layer`: one layer of 8 heads of 64 features, torch's fused attention beside
`overt.summarize` with the map, the 8 largest weights, entropy and what keys receive; some rows are compared with the softmax of their
scores in float64. `length`: the same model recorded at growing lengths. Nothing is printed where numbers disagree.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import results
import torch
from torch import Tensor
from torch.nn import functional

import overt
from overt.lens import record

HEADS, FEATURES = 8, 64


def main(given: argparse.Namespace) -> None:
    """Run one part, or, in a process of its own, one contender of it."""
    torch.set_num_threads(given.threads)
    if given.contender:
        print(json.dumps(CONTENDERS[given.part][given.contender](given)))
        return
    part = "gpt2" if given.part == "length" else given.part
    lengths = {"gpt2": [8192], "layer": [32768], "length": [1024, 2048, 4096, 8192]}[given.part]
    found = {}
    for length in [given.length] if given.length else lengths:
        given.length = length
        found[length] = _side_by_side(given, part)
    results.write(given.out, threads=given.threads, runs=given.runs or 2, lengths=found)


def _side_by_side(given: argparse.Namespace, part: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: _apart(given, part, name, folder) for name in CONTENDERS[part]}
        held = [torch.load(Path(folder) / f"{name}.pt") for name in CONTENDERS[part]]
    if part == "gpt2" and not torch.equal(*held):
        sys.exit("the recorded output is not that of the plain run")
    (base, first), (name, other) = found.items()
    print(f"{part}, {given.length} tokens, {given.threads} threads")
    for each, numbers in found.items():
        print(f"  {each:16}{numbers['wall']:8.2f} s{numbers['cpu']:8.2f} s CPU{numbers['peak'] / 1e9:8.2f} GB at most")
    ratios = [other[each] / first[each] for each in ("wall", "cpu", "peak")]
    print(f"  {name} / {base}: time {ratios[0]:.2f}, CPU {ratios[1]:.2f}, memory {ratios[2]:.2f}")
    for each, told in other["told"].items():
        print(f"  {each}: {told}")
    return found


def _apart(given: argparse.Namespace, part: str, name: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("recording.py")), "--part", part, "--contender", name]
    numbers = {"length": given.length, "threads": given.threads, "map": given.map, "runs": given.runs}
    options = [text for option, number in numbers.items() if number is not None for text in (f"--{option}", str(number))]
    found = subprocess.run([*command, *options, "--folder", folder], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


def _measured(
    given: argparse.Namespace, run: Callable[[], Tensor], told: Callable[[], dict[str, str]] = dict
) -> dict[str, Any]:
    """The least of some runs, and the highest that memory went."""
    times, output = [], torch.empty(0)
    for _ in range(given.runs or 2):
        start, cpu = time.perf_counter(), time.process_time()
        output = run()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.save(output, Path(given.folder) / f"{given.contender}.pt")
    return {"wall": min(each for each, _ in times), "cpu": min(each for _, each in times), "peak": peak, "told": told()}


def gpt2(given: argparse.Namespace) -> tuple[torch.nn.Module, Tensor]:
    """GPT-2's shape with random weights and room for so many positions, and tokens to read."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_positions=max(given.length, 1024))
    model = GPT2Model._from_config(config, attn_implementation="sdpa").eval()
    return model, torch.randint(0, 50257, (1, given.length))


@torch.no_grad()
def _plain(given: argparse.Namespace) -> dict[str, Any]:
    model, ids = gpt2(given)
    return _measured(given, lambda: model(ids, use_cache=False).last_hidden_state)


@torch.no_grad()
def _recorded(given: argparse.Namespace) -> dict[str, Any]:
    model, ids = gpt2(given)
    last: list[Any] = []

    def run() -> Tensor:
        last.clear()
        with record(model, keep="summary", map_size=given.map or 256) as recording:
            output = model(ids, use_cache=False).last_hidden_state
        last.append(recording)
        return output

    def told() -> dict[str, str]:
        checked = last[0].verify()
        if not checked.holds:
            sys.exit(f"what was recorded is not what the model computed\n{checked}")
        return {
            "recorded": f"{len(last[0])} calls, {last[0].bytes / 1e6:.0f} MB",
            "residual": f"{checked.difference:.1e}, rounding bound {checked.bound:.1e}",
        }

    return _measured(given, run, told)


def _inputs(given: argparse.Namespace) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, HEADS, given.length, FEATURES) for _ in range(3)]


@torch.no_grad()
def _fused(given: argparse.Namespace) -> dict[str, Any]:
    query, key, value = _inputs(given)
    return _measured(given, lambda: functional.scaled_dot_product_attention(query, key, value)[..., :1, :])


def _summarized(given: argparse.Namespace) -> dict[str, Any]:
    query, key, _ = _inputs(given)
    last: list[overt.Summary] = []

    def run() -> Tensor:
        last[:] = [overt.summarize(query, key, top=8, map_size=given.map or 1024)]
        return last[0].entropy[..., :1]

    def told() -> dict[str, str]:
        differences = [_checked(query, key, last[0], row) for row in range(0, given.length, given.length // 8)]
        if max(differences) > 1e-4:
            sys.exit(f"the summary is not that of the weights: off by {max(differences):.1e}")
        return {"compared with float64": f"{len(differences)} rows of each head, off by {max(differences):.1e} at most"}

    return _measured(given, run, told)


def _checked(query: Tensor, key: Tensor, summary: overt.Summary, row: int) -> float:
    """How far one row's entropy and largest weights are, relatively, from those of its softmax in float64."""
    scores = query[..., row, :].double()[..., None, :] @ key.double().mT / FEATURES**0.5  # (1, H, 1, K)
    weights = scores.softmax(-1)[..., 0, :]
    entropy = torch.special.entr(weights).sum(-1)
    largest = weights.topk(8).values
    found = summary.entropy[..., row] / entropy - 1, summary.top_weights[..., row, :] / largest - 1
    return max(float(each.abs().max()) for each in found)


CONTENDERS: dict[str, dict[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "gpt2": {"plain": _plain, "recorded": _recorded},
    "layer": {"fused attention": _fused, "summarize": _summarized},
}
