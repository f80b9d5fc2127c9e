"""One token's attention in llama.cpp, by its bindings xllamacpp, beside KVCache.step: 32 heads of 128 features over 8, one thread.

    pip install xllamacpp gguf
    OMP_NUM_THREADS=1 python -m benchmarks.kernels.llama_cpp --out docs/results/llama-cpp.json

llama.cpp runs a model of one layer. Its log-probabilities after 256 and 16,384 tokens are first compared with the same layer in float64,
and so are those with `KVCache.step` as the layer's attention. The server of llama.cpp reports the time of a token: after 16,384 others,
less that after 256, it is the time of attention to as many more keys. That of `KVCache.step` is whole. All take turns; llama.cpp has
processes of its own.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

import overt
from benchmarks import results
from overt import native

HEADS, GROUPS, WIDTH, FEATURES, VOCABULARY, BYTES = 32, 8, 128, 256, 512, 259
KEYS, FEW, TOKENS, EPSILON = 16_384, 256, 16, 1e-5
# What llama.cpp stores, and whether its flash attention is on: without it, values can only be F16 or F32.
THEIRS = (("F16", "off"), ("F16", "on"), ("Q8_0", "on"))
OURS = ("float32", "bfloat16", "int8")
LEVEL = "avx2"  # that of llama.cpp's packaged build
Layer = dict[str, Tensor]
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def weights() -> Layer:
    """Random weights by llama.cpp's names. Queries are three times as long as keys, so that scores differ and few keys count."""
    random = torch.Generator().manual_seed(0)
    shapes = {f"blk.0.attn_{name}": (heads * WIDTH, FEATURES) for name, heads in {"q": HEADS, "k": GROUPS, "v": GROUPS}.items()}
    shapes |= {f"blk.0.ffn_{name}": (FEATURES, FEATURES) for name in ("gate", "up", "down")}
    shapes |= dict.fromkeys(("token_embd", "output"), (VOCABULARY, FEATURES)) | {"blk.0.attn_output": (FEATURES, HEADS * WIDTH)}
    layer = {name: torch.randn(shape, generator=random) / shape[1] ** 0.5 for name, shape in shapes.items()}
    layer["blk.0.attn_q"] *= 3
    layer["output"][:BYTES] = 0  # no byte is the next token: llama.cpp gives no log-probabilities of incomplete characters
    return layer | {name: torch.ones(FEATURES) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}


def write_model(path: Path, layer: Layer) -> None:
    """The layer as a GGUF file, in float32."""
    writer = import_module("gguf").GGUFWriter(path, "llama")
    for name, number in {
        "context_length": 2 * KEYS, "embedding_length": FEATURES, "block_count": 1, "feed_forward_length": FEATURES,
        "head_count": HEADS, "head_count_kv": GROUPS, "key_length": WIDTH, "value_length": WIDTH, "rope_dimension_count": WIDTH,
        "layer_norm_rms_eps": EPSILON, "vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0,
        "tokenizer_model": "llama",
    }.items():  # fmt: skip
        getattr(writer, f"add_{name}")(number)
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    tokens += [f"t{number}".encode() for number in range(VOCABULARY - len(tokens))]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - BYTES)])
    for name, tensor in layer.items():
        writer.add_tensor(f"{name}.weight", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def prompt(count: int) -> list[int]:
    """Random tokens of the vocabulary."""
    return np.random.default_rng(1).integers(3, VOCABULARY, count).tolist()


def attention_inputs(layer: Layer, tokens: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The last token's embedding and query, and all keys and values, as the layer computes them in float64."""
    embedded = layer["token_embd"].double()[tokens]
    normal = rms_norm(embedded, (FEATURES,), eps=EPSILON)
    query, key, value = (normal @ layer[f"blk.0.attn_{name}"].double().T for name in "qkv")
    query, key, value = (tensor.unflatten(-1, (-1, WIDTH)).transpose(0, 1)[None] for tensor in (query, key, value))
    rotary, positions = overt.layers.Rotary(WIDTH, interleaved=True), torch.arange(len(tokens))
    return embedded[-1], rotary.heads(query, positions)[:, :, -1:], rotary.heads(key, positions), value


def log_probabilities(layer: Layer, embedded: Tensor, attended: Tensor) -> Tensor:
    """Of the next token: the rest of the layer, in float64."""
    layer = {name: tensor.double() for name, tensor in layer.items()}
    state = embedded + layer["blk.0.attn_output"] @ attended.double().flatten()
    normal = rms_norm(state, (FEATURES,), eps=EPSILON)
    gated = silu(layer["blk.0.ffn_gate"] @ normal) * (layer["blk.0.ffn_up"] @ normal)
    state = state + layer["blk.0.ffn_down"] @ gated
    return (layer["output"] @ rms_norm(state, (FEATURES,), eps=EPSILON)).log_softmax(-1)


def formula(query: Tensor, key: Tensor, value: Tensor, rounded: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> Tensor:
    """The attention of one token; `rounded` is applied to query, keys, values and weights."""
    query, key, value = (rounded(tensor) for tensor in (query, key, value))
    scores = query.unflatten(1, (GROUPS, -1)).squeeze(-2) @ key.mT / WIDTH**0.5  # (1, GROUPS, HEADS / GROUPS, keys)
    return rounded(scores.softmax(-1)) @ value


def in_half(tensor: Tensor) -> Tensor:
    """Rounded to F16."""
    return tensor.half().double()


def in_bfloat16(tensor: Tensor) -> Tensor:
    """Rounded to bfloat16."""
    return tensor.bfloat16().double()


def in_bytes(tensor: Tensor, block: int = 32) -> Tensor:
    """Rounded to Q8_0: bytes, and a scale in F16 for each block."""
    blocks = tensor.unflatten(-1, (-1, block))
    scale = in_half(blocks.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
    return ((blocks / scale).round() * scale).flatten(-2)


def in_vectors_of_bytes(tensor: Tensor) -> Tensor:
    """Rounded to bfloat16, then to bytes with a scale for each head of a token, or for each 128 weights."""
    return in_bytes(in_bfloat16(tensor), WIDTH)


def step_of(store: str, query: Tensor, key: Tensor, value: Tensor) -> Callable[[], Tensor]:
    """KVCache.step with the last token, after all others."""
    dtype = torch.float32 if store == "float32" else torch.bfloat16
    query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    cache = overt.layers.KVCache(store="int8" if store == "int8" else None)
    cache.extend(key[:, :, :-1], value[:, :, :-1])
    return lambda: cache.step(query, key[:, :, -1:], value[:, :, -1:])


# What is rounded to compute with each store.
ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "float32": lambda tensor: tensor.float().double(),
    "F16": in_half,
    "bfloat16": in_bfloat16,
    "Q8_0": in_bytes,
    "int8": in_vectors_of_bytes,
}


class Server:
    """llama.cpp in a process of its own, which has read both prompts when this returns."""

    def __init__(self, model: Path, store: str, flash: str):
        command = [sys.executable, "-m", "benchmarks.kernels.llama_cpp", "--serve", str(model), store, flash]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_WAIT_POLICY": "passive"}
        )
        self.logs = {count: torch.tensor(self.ask(count, 1)["logs"], dtype=torch.float64) for count in (FEW, KEYS)}
        self.instructions: str = self.ask(FEW, 1)["instructions"]

    def ask(self, count: int, tokens: int) -> dict[str, Any]:
        """What the process answers to a prompt of so many tokens."""
        assert self.process.stdin
        assert self.process.stdout
        print(count, tokens, file=self.process.stdin, flush=True)
        while (line := self.process.stdout.readline()) and not line.startswith('{"milliseconds"'):
            pass
        return json.loads(line)

    def milliseconds(self) -> float:
        """A token after KEYS others, less one after FEW."""
        return self.ask(KEYS, TOKENS)["milliseconds"] - self.ask(FEW, TOKENS)["milliseconds"]


def serve(model: str, store: str, flash: str) -> None:
    """Answer requests from standard input: a slot for each prompt, whose keys and values stay."""
    library = import_module("xllamacpp")
    options = library.CommonParams()
    options.model.path, options.n_parallel, options.n_ctx, options.verbosity = model, 2, 2 * (KEYS + 2 * FEW), 0
    options.kv_unified, options.cache_ram_mib = False, 0
    options.cache_type_k = options.cache_type_v = getattr(library.ggml_type, f"GGML_TYPE_{store}")
    types = library.llama_flash_attn_type
    options.flash_attn_type = types.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash == "on" else types.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.cpuparams.n_threads, options.cpuparams_batch.n_threads = 1, os.cpu_count() or 1
    server = library.Server(options)
    for line in sys.stdin:
        count, tokens = map(int, line.split())
        request = {
            "prompt": prompt(count),
            "n_predict": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "id_slot": count // KEYS,
        }
        reply = server.handle_completions(request | {"cache_prompt": True, "n_probs": VOCABULARY if tokens == 1 else 0})
        answer: dict[str, Any] = {
            "milliseconds": reply["timings"]["predicted_per_token_ms"],
            "instructions": library.get_system_info(),
        }
        if tokens == 1:
            listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            answer["logs"] = [log for _, log in sorted((one["id"], one["logprob"]) for one in listed)]
        print("\n" + json.dumps(answer), flush=True)


def compared(
    layer: Layer, servers: dict[tuple[str, str], Server], levels: list[str], count: int
) -> dict[str, dict[str, float]]:
    """The largest error of log-probabilities, by program: at most 1e-5, or twice the change that rounding the inputs makes."""
    embedded, query, key, value = attention_inputs(layer, prompt(count))
    exact = log_probabilities(layer, embedded, formula(query, key, value))

    def largest(attended: Tensor) -> float:
        return float((log_probabilities(layer, embedded, attended) - exact).abs().max())

    newer = largest(formula(query, key[:, :, count // 2 :], value[:, :, count // 2 :]))
    differences = {}
    for store, rounded in ROUNDED.items():
        bound = max(2 * largest(formula(query, key, value, rounded)), 1e-5)
        assert bound < newer / 5, "half of the keys could be missing unseen"
        steps: dict[str, float] = {}
        for level in levels if store in OURS else ():
            native.module().use(level)
            steps[f"{store}, {level}"] = largest(step_of(store, query, key, value)())
        others = {
            name(*kind): float((server.logs[count] - exact).abs().max()) for kind, server in servers.items() if kind[0] == store
        }
        for program, difference in (steps | others).items():
            assert difference <= bound, (program, difference, bound)
            differences[program] = {"difference": difference, "bound": bound}
    return differences


def name(store: str, flash: str) -> str:
    """Of llama.cpp with these options."""
    return f"llama.cpp, {store}, flash attention {flash}"


def step_milliseconds(step: Callable[[], Tensor], level: str) -> float:
    """The median of TOKENS steps, at a level of the native core."""
    native.module().use(level)
    times = []
    for _ in range(TOKENS):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return median(times)


def measured(layer: Layer, servers: dict[tuple[str, str], Server], levels: list[str], rounds: int) -> dict[str, float]:
    """Milliseconds of one token's attention by program: medians of rounds in which all take turns."""
    _, query, key, value = attention_inputs(layer, prompt(KEYS))
    runs: dict[str, Callable[[], float]] = {name(*kind): server.milliseconds for kind, server in servers.items()}
    for level in levels:
        native.module().use(level)
        steps = {store: step_of(store, query, key, value) for store in OURS}
        runs |= {f"{store}, {level}": functools.partial(step_milliseconds, step, level) for store, step in steps.items()}
    times: dict[str, list[float]] = {program: [] for program in runs}
    for _ in range(rounds):
        for program, run in runs.items():
            times[program].append(run())
    return {program: median(each) for program, each in times.items()}


def main() -> None:
    """Compare, measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    results.takes_out(parser)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    torch.set_num_threads(1)
    levels = [level for level in dict.fromkeys((native.level(), LEVEL)) if level in native.module().levels()]
    layer = weights()
    with TemporaryDirectory() as folder, torch.inference_mode():
        model = Path(folder) / "one-layer.gguf"
        write_model(model, layer)
        servers = {kind: Server(model, *kind) for kind in THEIRS}
        differences = [compared(layer, servers, levels, count) for count in (FEW, KEYS)]
        print("compared", json.dumps(differences), flush=True)
        times = measured(layer, servers, levels, arguments.rounds)
        instructions = next(iter(servers.values())).instructions
        for server in servers.values():
            server.process.kill()
    rows = [{"program": program, "milliseconds": each} | differences[-1][program] for program, each in times.items()]
    print(json.dumps(rows, indent=1))
    results.write(arguments.out, threads=1, heads=[HEADS, GROUPS], keys=KEYS, rows=rows, instructions=instructions)


if __name__ == "__main__":
    main()
