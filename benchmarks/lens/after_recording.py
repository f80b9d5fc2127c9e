"""How long `verify` and `roles` take beside the forward pass that they look at: 64 heads, 2,048 tokens.

    OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1 python -m benchmarks.lens.after_recording [--runs 5] [--length 2048] [--out …]

Two models of transformers with random weights, of 8 layers of 8 heads of 64 features each: a BERT, and a causal GPT-2. All steps
alternate, so that other work on the machine meets all of them alike; medians are printed. The limits are the time of the products alone
that no exact step can do without, query times key for `roles` and weights times value too for `verify`, at the rate of multiply-adds in
registers that `overt bench` measures on the same machine. Nothing is printed where a recording does not hold.
"""

import argparse
import math
import sys

import torch

from benchmarks import results
from benchmarks.lens.stopwatch import Stopwatch
from overt.bench import ceilings
from overt.lens import Recording, record

LAYERS, HEADS, FEATURES = 8, 8, 64


def main() -> None:
    """Measure both models, and print a table of each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--length", type=int, default=2048)
    options.add_argument("--threads", type=int, default=2)
    results.takes_out(options)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    measured = {
        name: seconds(make(arguments.length), arguments, causal=make is gpt2)
        for name, make in {"BERT": bert, "GPT-2": gpt2}.items()
    }
    for name, taken in measured.items():
        print(f"{name}, {LAYERS * HEADS} heads of {FEATURES} features, {arguments.length} tokens, {arguments.threads} threads")
        for step, number in taken.items():
            print(f"  {step:28}{number:8.3f} s{number / taken['forward']:8.2f} forward passes")
    results.write(arguments.out, length=arguments.length, runs=arguments.runs, threads=arguments.threads, models=measured)


def bert(length: int) -> torch.nn.Module:
    """BERT's shape: every token reads every other."""
    from transformers import BertConfig, BertModel

    width = HEADS * FEATURES
    config = BertConfig(
        hidden_size=width, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * width,
        max_position_embeddings=length,
    )  # fmt: skip
    return BertModel._from_config(config, attn_implementation="sdpa")


def gpt2(length: int) -> torch.nn.Module:
    """GPT-2's shape: every token reads those before it."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=HEADS * FEATURES, n_layer=LAYERS, n_head=HEADS, n_positions=length)
    return GPT2Model._from_config(config, attn_implementation="sdpa")


@torch.no_grad()
def seconds(model: torch.nn.Module, arguments: argparse.Namespace, causal: bool) -> dict[str, float]:
    """The median seconds of each step."""
    model.eval()
    torch.manual_seed(0)
    ids = torch.randint(0, 30000, (1, arguments.length))
    tokens = ["." if number % 7 == 0 else str(number % 200) for number in ids[0].tolist()]
    watch = Stopwatch()

    def recorded() -> Recording:
        with record(model) as recording:
            model(ids)
        return recording

    model(ids)
    for _ in range(arguments.runs):
        watch.timed("forward", lambda: model(ids))
        recording = watch.timed("forward, recorded", recorded)
        if not watch.timed("verify", recording.verify).holds:
            sys.exit("what was recorded is not what the model computed")
        watch.timed("roles", recording.roles)
        recording.tokens = tokens
        watch.timed("roles, with tokens", recording.roles)
        watch.timed("roles, once more", recording.roles)
    medians = watch.medians
    pairs = LAYERS * HEADS * arguments.length**2 / (2 if causal else 1)
    # A score is FEATURES multiply-adds, and so is what a weight adds to the output.
    product = pairs * FEATURES / (ceilings.measured(arguments.threads).multiply_adds or math.nan)
    return medians | {"limit of roles": product, "limit of verify": 2 * product}


if __name__ == "__main__":
    main()
