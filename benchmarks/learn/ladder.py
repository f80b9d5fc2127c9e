"""The ladder's results in one file: a record of every run of `overt train`, for docs/results/ladder.json.

    python -m benchmarks.learn.ladder runs --out docs/results/ladder.json

`runs` is the folder in which recipes of recipes/multi30k-*.toml were trained, each in RECIPE or RECIPE-seedN; a run that is not finished is
left out. Records that the file has already stay, except those of the same recipe and seed, which a run replaces. None is left out for its
score: `shown` says which run of a recipe the pages show, by BLEU on validation data.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from overt.bench.compact_json import compact_json
from overt.errors import InputError
from overt.files import whole

# Which part of the ladder a recipe is of, and its model.
RECIPES = {
    "multi30k-gru": ("single", "one context vector"),
    "multi30k-gru-attention": ("single", "additive attention"),
    "multi30k-gru-attention-context": ("single", "and self-attention [h, c]"),
    "multi30k-transformer-tiny": ("single", "Transformer"),
    # (b) as (a) and (c) are trained, and asked by the previous state.
    "multi30k-gru-attention-previous": ("alike", "additive attention"),
    "multi30k-length-gru": ("joined", "one context vector"),
    "multi30k-length-gru-attention": ("joined", "additive attention"),
    "multi30k-length-transformer-tiny": ("joined", "Transformer"),
}


def finished(folder: Path) -> list[dict[str, Any]]:
    """The records of all finished runs of the ladder's recipes in a folder."""
    runs = []
    for path in sorted(folder.glob("*/results.json")):
        recipe, _, seed = path.parent.name.partition("-seed")
        if recipe in RECIPES:
            runs.append(record(path, recipe))
            if seed and runs[-1]["seed"] != int(seed):
                raise InputError("a folder's name says its run's seed", got=f"{path.parent} of seed {runs[-1]['seed']}")
    return runs


def record(path: Path, recipe: str) -> dict[str, Any]:
    """What one run came to, from its results.json and the log beside it; null is what was not recorded."""
    results = json.loads(path.read_text())
    log = [json.loads(line) for line in (path.parent / "log.jsonl").read_text().splitlines()]
    test, (part, model) = results["test"], RECIPES[recipe]
    notes = tomllib.loads(results["recipe_text"])
    return {
        "part": part,
        "model": model,
        "recipe": recipe,
        "seed": results["seed"],
        "commit": results.get("commit"),
        "date": results.get("date"),
        "machine": results.get("machine", {"processor": results["hardware"]}) | {"threads": results["threads"]},
        "parameters": results["parameters"],
        "tokens_per_batch": notes["training"]["tokens_per_batch"],
        "learning_rate": notes["training"]["learning_rate"],
        "dropout": notes["model"]["dropout"],
        "updates": results["updates"],
        "tokens": results["tokens"],
        "seconds": round(results["seconds"]),
        "perplexity": round(results["validation"]["perplexity"], 2),
        "validation": round(results["validation"]["bleu"], 2),
        "bleu": round(test["bleu"], 2),
        "chrf": round(test["chrf"], 2),
        "signature": test["bleu_signature"],
        # From the shortest to the longest source in words, texts, BLEU.
        "by_length": [[each["shortest"], each["longest"], each["rows"], round(each["bleu"], 1)] for each in test["by_length"]],
        "curve": [[each["update"], round(each["validation"]["bleu"], 1)] for each in log if "validation" in each],
    }


def joined(recorded: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that are kept, with new ones in the places of those of the same recipe and seed, or at the end."""

    def name(run: dict[str, Any]) -> Any:
        return (run["recipe"], run["seed"]) if run["recipe"] else id(run)

    return list(({name(run): run for run in recorded} | {name(run): run for run in new}).values())


def main() -> None:
    """Add the runs of a folder to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    requested = parser.parse_args()
    recorded = json.loads(requested.out.read_text())["runs"] if requested.out.is_file() else []
    notes = {
        "command": "python -m benchmarks.learn.ladder runs --out docs/results/ladder.json",
        "data": "Multi30k, English to German, 29,000 captions; test 2016",
        "runs": joined(recorded, finished(requested.runs)),
    }
    with whole(requested.out) as file:
        file.write_text(compact_json(notes) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
