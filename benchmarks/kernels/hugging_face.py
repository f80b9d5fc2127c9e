"""Hugging Face models on overt's kernels beside torch's: one pass over a prompt, and generation after a long one.

    HF_HUB_OFFLINE=1 python -m benchmarks.kernels.hugging_face [--threads 2] [--runs 5] [--out docs/results/hugging-face.json]

Weights are random, the same on both paths. Logits, and every written token, are compared first; then both run in turns.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
import transformers

import overt
from benchmarks import results

GPT2 = {"n_positions": 2048, "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
# Four of the sixteen layers of Llama 3.2 1B: 32 heads of 64 features over 8 of keys and values.
LLAMA = {
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
}
PROMPT, WRITTEN = 4096, 128


def models(config: transformers.PretrainedConfig) -> dict[str, torch.nn.Module]:
    """The same model on both paths."""
    result = {}
    for path in ("sdpa", overt.integrations.huggingface()):
        torch.manual_seed(0)
        # A model keeps the very configuration that it is given, and the path stands there.
        result[path] = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=path).eval()
        assert result[path].config._attn_implementation == path
    return result


def alternating_runs(runs: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """Median seconds of each, run in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(count):
        for name in list(runs) if number % 2 == 0 else reversed(runs):
            start = time.perf_counter()
            runs[name]()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def notify(what: str, times: dict[str, float]) -> dict[str, dict[str, float]]:
    """One line, also returned: what was run, seconds of both, and how many times as fast overt is."""
    notes = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items())
    print(f"{what}: {notes}; overt {times['sdpa'] / times['overt']:.2f} times as fast", flush=True)
    return {what: times}


@torch.inference_mode()
def pass_over_a_prompt(runs: int) -> dict[str, dict[str, float]]:
    """GPT-2's shape, 1 × 2,048 tokens."""
    both = models(transformers.GPT2Config(**GPT2))
    words = torch.randint(0, GPT2["vocab_size"], (1, GPT2["n_positions"]))
    logits = {name: model(words).logits for name, model in both.items()}
    torch.testing.assert_close(logits["overt"], logits["sdpa"], atol=1e-4, rtol=1e-4)
    times = alternating_runs({name: lambda model=model: model(words) for name, model in both.items()}, runs)
    return notify("GPT-2, a pass over 1 × 2,048 tokens", times)


def remembered(config: transformers.LlamaConfig) -> transformers.StaticCache:
    """A cache of so many tokens, with room for those to be written; what it holds is drawn, the same at every call."""
    cache, draw = transformers.StaticCache(config=config, max_cache_len=PROMPT + WRITTEN), torch.Generator().manual_seed(1)
    shape = (1, config.num_key_value_heads, PROMPT, config.hidden_size // config.num_attention_heads)
    for layer in range(config.num_hidden_layers):
        keys, values = (torch.randn(shape, generator=draw) for _ in range(2))
        cache.update(keys, values, layer, {"cache_position": torch.arange(PROMPT)})
    return cache


@torch.inference_mode()
def generation(runs: int) -> dict[str, dict[str, float]]:
    """128 tokens after 4,096, past the prompt: the time of the steps alone."""
    both = models(transformers.LlamaConfig(**LLAMA))
    words = torch.randint(0, LLAMA["vocab_size"], (1, 1))

    def write(name: str, tokens: int) -> tuple[float, torch.Tensor]:
        cache, last, result = remembered(both[name].config), words, []
        start = time.perf_counter()
        for _ in range(tokens):
            last = both[name](last, past_key_values=cache, use_cache=True).logits.argmax(-1)
            result.append(last)
        return time.perf_counter() - start, torch.cat(result, dim=1)

    assert torch.equal(write("overt", 16)[1], write("sdpa", 16)[1]), "the paths write different tokens"
    taken: dict[str, list[float]] = {name: [] for name in both}
    for number in range(runs):
        for name in list(both) if number % 2 == 0 else reversed(both):
            taken[name].append(write(name, WRITTEN)[0])
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    return notify(f"four layers of Llama 3.2 1B, {WRITTEN} tokens after {PROMPT:,}", medians)


def main() -> None:
    """Both, on so many threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    results.takes_out(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results.write(
        arguments.out,
        threads=arguments.threads,
        runs=arguments.runs,
        seconds=pass_over_a_prompt(arguments.runs) | generation(arguments.runs),
    )


if __name__ == "__main__":
    main()
