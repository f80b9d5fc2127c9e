"""The ladder's results in one small file: what runs of `overt train` measured, for docs/results/ladder.json.

    python benchmarks/ladder.py runs > docs/results/ladder.json

`runs` is the folder in which each recipe of recipes/multi30k-*.toml was trained under its own name. A run that is not there, or not
finished, is left out; "joined", the length curve over one to four captions joined, is null until one of its recipes is there.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from overt.measuring.written import lines

LADDER = {
    "one context vector": "multi30k-gru",
    "additive attention": "multi30k-gru-attention",
    "and self-attention [h, c]": "multi30k-gru-attention-context",
    "Transformer": "multi30k-transformer-tiny",
}
# (b) as (a) and (c) are trained, and asked by the previous state.
ALIKE = {"additive attention": "multi30k-gru-attention-previous"}
JOINED = {
    "one context vector": "multi30k-length-gru",
    "additive attention": "multi30k-length-gru-attention",
    "Transformer": "multi30k-length-transformer-tiny",
}


def measured(folder: Path, recipe: str) -> dict[str, Any] | None:
    """What one run came to, None where it has no results."""
    told = folder / recipe / "results.json"
    if not told.is_file():
        return None
    found = json.loads(told.read_text())
    log = [json.loads(line) for line in (folder / recipe / "log.jsonl").read_text().splitlines()]
    test = found["test"]
    return {
        "command": f"overt train recipes/{recipe}.toml --out {recipe}",
        "parameters": found["parameters"],
        "updates": found["updates"],
        "tokens": found["tokens"],
        "seconds": round(found["seconds"]),
        "seed": found["seed"],
        "bleu": round(test["bleu"], 2),
        "chrf": round(test["chrf"], 2),
        "validation": round(found["validation"]["bleu"], 1),
        "signature": test["bleu_signature"],
        # From the shortest to the longest source in words, texts, BLEU.
        "by_length": [[each["shortest"], each["longest"], each["rows"], round(each["bleu"], 1)] for each in test["by_length"]],
        "curve": [[each["update"], round(each["validation"]["bleu"], 1)] for each in log if "validation" in each],
    }


def collected(folder: Path, recipes: dict[str, str]) -> dict[str, Any] | None:
    """Each finished run of these recipes by its model's name."""
    found = {name: measured(folder, recipe) for name, recipe in recipes.items()}
    return {name: each for name, each in found.items() if each} or None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    runs = parser.parse_args().runs
    told = {
        "command": "python benchmarks/ladder.py runs",
        "machine": "one thread of an Intel Xeon at 2.3 GHz a run",
        "data": "Multi30k, English to German, 29,000 captions; test 2016",
        "single": collected(runs, LADDER),
        "alike": collected(runs, ALIKE),
        "joined": collected(runs, JOINED),
    }
    print(lines(told))
