"""Hugging Face models on overt's kernels beside torch's: one pass over a prompt, and generation after a long one.

    HF_HUB_OFFLINE=1 python benchmarks/hugging_face.py [--threads 2] [--runs 5]

Weights are random, the same on both paths. Logits, and every written token, are compared first; then both run in turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import transformers

import overt

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
    found = {}
    for path in ("sdpa", overt.backends.huggingface()):
        torch.manual_seed(0)
        found[path] = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=path).eval()
    return found


def in_turns(runs: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """Median seconds of each, run in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(count):
        for name in list(runs) if number % 2 == 0 else reversed(runs):
            start = time.perf_counter()
            runs[name]()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def tell(what: str, times: dict[str, float]) -> None:
    """One line: what was run, seconds of both, and how many times as fast overt is."""
    told = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items())
    print(f"{what}: {told}; overt {times['sdpa'] / times['overt']:.2f} times as fast", flush=True)


@torch.inference_mode()
def pass_over_a_prompt(runs: int) -> None:
    """GPT-2's shape, 1 × 2,048 tokens."""
    both = models(transformers.GPT2Config(**GPT2))
    words = torch.randint(0, GPT2["vocab_size"], (1, GPT2["n_positions"]))
    logits = {name: model(words).logits for name, model in both.items()}
    torch.testing.assert_close(logits["overt"], logits["sdpa"], atol=1e-4, rtol=1e-4)
    tell("GPT-2, 1 × 2,048 tokens", in_turns({name: lambda model=model: model(words) for name, model in both.items()}, runs))


@torch.inference_mode()
def generation(runs: int) -> None:
    """128 tokens after 4,096, past the prompt: the time of the steps alone."""
    both = models(transformers.LlamaConfig(**LLAMA))
    words = torch.randint(0, LLAMA["vocab_size"], (1, PROMPT))

    def written(model: torch.nn.Module, tokens: int) -> torch.Tensor:
        cache = model(words, use_cache=True, logits_to_keep=1).past_key_values
        return steps(model, cache, tokens)[1]

    def steps(model: torch.nn.Module, cache: object, tokens: int) -> tuple[float, torch.Tensor]:
        last, found = words[:, -1:], []
        start = time.perf_counter()
        for _ in range(tokens):
            last = model(last, past_key_values=cache, use_cache=True).logits.argmax(-1)
            found.append(last)
        return time.perf_counter() - start, torch.cat(found, dim=1)

    assert torch.equal(written(both["overt"], 16), written(both["sdpa"], 16)), "the paths write different tokens"
    caches = {name: model(words, use_cache=True, logits_to_keep=1).past_key_values for name, model in both.items()}
    taken: dict[str, list[float]] = {name: [] for name in both}
    for number in range(runs):
        for name in list(both) if number % 2 == 0 else reversed(both):
            taken[name].append(steps(both[name], caches[name], WRITTEN)[0])
            caches[name].crop(-WRITTEN)
    tell(f"Llama, {WRITTEN} tokens after {PROMPT:,}", {name: statistics.median(seconds) for name, seconds in taken.items()})


def main() -> None:
    """Both, on so many threads."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--threads", type=int, default=2)
    asked.add_argument("--runs", type=int, default=5)
    given = asked.parse_args()
    torch.set_num_threads(given.threads)
    pass_over_a_prompt(given.runs)
    generation(given.runs)


if __name__ == "__main__":
    main()
