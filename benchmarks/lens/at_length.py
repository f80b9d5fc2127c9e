"""Recording at length: time by runs that alternate in one process, memory by a process for each contender, with a peak of its own.

    python -m benchmarks.lens.recording --part gpt2 [--length 8192] [--threads 2] [--map 256] [--runs 3]
    python -m benchmarks.lens.recording --part layer [--length 32768]
    python -m benchmarks.lens.recording --part edit [--length 16384]
    python -m benchmarks.lens.recording --part length

`gpt2`: the forward pass of a GPT-2 of random weights (12 layers, 12 heads, 768 features) on torch's fused attention, plain and recorded
with keep="summary", beside the model and in one pass with it; outputs are compared, to the bit and within 1e-4. `layer`: one layer of 8
heads of 64 features, torch's fused attention beside `overt.summarize` with the map, the 8 largest weights, entropy and what keys receive;
some rows are compared with the softmax of their scores in float64. `edit`: a Llama of random weights (2 layers, 4 heads of 64 features that
share one key and value, 256 features) on torch's fused attention, plain and with one arc blocked in all heads of every layer by
overt.lens.edit; outputs before the edited query are compared to the bit. `length`: the same model recorded at growing lengths. Nothing is
printed where numbers disagree.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import overt
from benchmarks import results
from overt.lens import edit, record

HEADS, FEATURES = 8, 64
RUNS = 3
Contender = tuple[Callable[[], Tensor], Callable[[], dict[str, str]]]  # a run, and what is said of the last one


def main(arguments: argparse.Namespace) -> None:
    """Run one part, or, in a process of its own, one contender of it."""
    torch.set_num_threads(arguments.threads)
    if arguments.contender:
        print(json.dumps(_contender(arguments, CONTENDERS[arguments.part])))
        return
    part = "gpt2" if arguments.part == "length" else arguments.part
    lengths = {"gpt2": [8192], "layer": [32768], "edit": [16384], "length": [1024, 2048, 4096, 8192]}[arguments.part]
    result = {}
    for length in [arguments.length] if arguments.length else lengths:
        arguments.length = length
        result[length] = _side_by_side(arguments, part)
    results.write(arguments.out, threads=arguments.threads, runs=arguments.runs or RUNS, lengths=result)


@torch.no_grad()
def _contender(arguments: argparse.Namespace, makers: dict[str, Callable[[argparse.Namespace], Contender]]) -> dict[str, Any]:
    if arguments.contender == ALTERNATING:
        return _alternating({name: make(arguments) for name, make in makers.items()}, arguments.runs or RUNS)
    return _alone(arguments, makers[arguments.contender](arguments))


def _side_by_side(arguments: argparse.Namespace, part: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = {name: _in_process(arguments, part, name, folder) for name in CONTENDERS[part]}
        for name, times in _in_process(arguments, part, ALTERNATING, folder).items():
            result[name] |= times
        stored = [torch.load(Path(folder) / f"{name}.pt") for name in CONTENDERS[part]]
    if part == "gpt2" and not (torch.equal(*stored[:2]) and torch.allclose(stored[0], stored[2], atol=1e-4)):
        sys.exit("the recorded output is not that of the plain run")
    if part == "edit" and not (
        torch.equal(*(each[:, : _edited_query(arguments)] for each in stored)) and not torch.equal(*stored)
    ):
        sys.exit("the edited output differs in other rows than the edited one and those behind it, or in none")
    (base, first), *others = result.items()
    print(f"{part}, {arguments.length} tokens, {arguments.threads} threads")
    for each, numbers in result.items():
        print(f"  {each:16}{numbers['wall']:8.2f} s{numbers['cpu']:8.2f} s CPU{numbers['peak'] / 1e9:8.2f} GB at most")
    for name, other in others:
        ratios = [other[each] / first[each] for each in ("wall", "cpu", "peak")]
        print(f"  {name} / {base}: time {ratios[0]:.2f}, CPU {ratios[1]:.2f}, memory {ratios[2]:.2f}")
        for each, notes in other["told"].items():
            print(f"  {each}: {notes}")
    return result


def _in_process(arguments: argparse.Namespace, part: str, name: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.lens.recording", "--part", part, "--contender", name]
    numbers = {"length": arguments.length, "threads": arguments.threads, "map": arguments.map, "runs": arguments.runs}
    options = [text for option, number in numbers.items() if number is not None for text in (f"--{option}", str(number))]
    result = subprocess.run([*command, *options, "--folder", folder], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(result.stdout)


def _alternating(contenders: dict[str, Contender], runs: int) -> dict[str, dict[str, float]]:
    """Medians of the seconds of each contender, which run in turn; a first round is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(runs + 1):
        for name, (run, _) in contenders.items():
            start, cpu = time.perf_counter(), time.process_time()
            run()
            times[name].append((time.perf_counter() - start, time.process_time() - cpu))
    medians = {name: map(statistics.median, zip(*taken[1:], strict=True)) for name, taken in times.items()}
    return {name: dict(zip(("wall", "cpu"), each, strict=True)) for name, each in medians.items()}


def _alone(arguments: argparse.Namespace, contender: Contender) -> dict[str, Any]:
    """The highest that memory went in one run."""
    run, notes = contender
    torch.save(run(), Path(arguments.folder) / f"{arguments.contender}.pt")
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "told": notes()}


def gpt2(arguments: argparse.Namespace) -> tuple[torch.nn.Module, Tensor]:
    """GPT-2's shape with random weights and room for so many positions, and tokens to read."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(n_positions=max(arguments.length, 1024))
    model = GPT2Model._from_config(config, attn_implementation="sdpa").eval()
    return model, torch.randint(0, 50257, (1, arguments.length))


def _plain(arguments: argparse.Namespace) -> Contender:
    model, ids = gpt2(arguments)
    return lambda: model(ids, use_cache=False).last_hidden_state, dict


def _recorded(arguments: argparse.Namespace, one_pass: bool = False) -> Contender:
    model, ids = gpt2(arguments)
    last: list[Any] = []

    def run() -> Tensor:
        last.clear()
        with record(model, keep="summary", map_size=arguments.map or 256, one_pass=one_pass) as recording:
            output = model(ids, use_cache=False).last_hidden_state
        last.append(recording)
        return output

    def notes() -> dict[str, str]:
        checked = last[0].verify()
        if not checked.holds:
            sys.exit(f"what was recorded is not what the model computed\n{checked}")
        return {
            "recorded": f"{len(last[0])} calls, {last[0].bytes / 1e6:.0f} MB",
            "residual": f"{checked.difference:.1e}, rounding bound {checked.bound:.1e}",
        }

    return run, notes


def _edited_query(arguments: argparse.Namespace) -> int:
    return arguments.length // 2


def _llama(arguments: argparse.Namespace, edited: bool) -> Contender:
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 4, "num_key_value_heads": 1}
    config = LlamaConfig(**sizes, num_hidden_layers=2, max_position_embeddings=arguments.length)
    model = LlamaModel._from_config(config, attn_implementation="sdpa").eval()
    ids, last = torch.randint(0, 32000, (1, arguments.length)), list[str]()

    def run() -> Tensor:
        if not edited:
            return model(ids, use_cache=False).last_hidden_state
        with edit(model) as edits:
            edits.block(query=_edited_query(arguments), key=5)
            output = model(ids, use_cache=False).last_hidden_state
        last[:] = edits.report().splitlines()[1:]
        return output

    return run, lambda: {"edited": last[0]} if edited else {}


def _inputs(arguments: argparse.Namespace) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, HEADS, arguments.length, FEATURES) for _ in range(3)]


def _fused(arguments: argparse.Namespace) -> Contender:
    query, key, value = _inputs(arguments)
    return lambda: functional.scaled_dot_product_attention(query, key, value)[..., :1, :], dict


def _summarized(arguments: argparse.Namespace) -> Contender:
    query, key, _ = _inputs(arguments)
    last: list[overt.Summary] = []

    def run() -> Tensor:
        last[:] = [overt.summarize(query, key, top=8, map_size=arguments.map or 1024)]
        return last[0].entropy[..., :1]

    def notes() -> dict[str, str]:
        differences = [_checked(query, key, last[0], row) for row in range(0, arguments.length, arguments.length // 8)]
        if max(differences) > 1e-4:
            sys.exit(f"the summary is not that of the weights: off by {max(differences):.1e}")
        return {"compared with float64": f"{len(differences)} rows of each head, off by {max(differences):.1e} at most"}

    return run, notes


def _checked(query: Tensor, key: Tensor, summary: overt.Summary, row: int) -> float:
    """How far one row's entropy and largest weights are, relatively, from those of its softmax in float64."""
    scores = query[..., row, :].double()[..., None, :] @ key.double().mT / FEATURES**0.5  # (1, H, 1, K)
    weights = scores.softmax(-1)[..., 0, :]
    entropy = torch.special.entr(weights).sum(-1)
    largest = weights.topk(8).values
    result = summary.entropy[..., row] / entropy - 1, summary.top_weights[..., row, :] / largest - 1
    return max(float(each.abs().max()) for each in result)


ALTERNATING = "in turn"
CONTENDERS: dict[str, dict[str, Callable[[argparse.Namespace], Contender]]] = {
    "gpt2": {"plain": _plain, "recorded": _recorded, "in one pass": partial(_recorded, one_pass=True)},
    "edit": {"plain": partial(_llama, edited=False), "edited": partial(_llama, edited=True)},
    "layer": {"fused attention": _fused, "summarize": _summarized},
}
