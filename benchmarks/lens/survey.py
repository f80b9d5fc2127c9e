"""What heads do in a narrow set of sentences, and whether they do it in texts at large; and how long a survey takes.

    OVERT_DATA=folder python -m benchmarks.lens.survey [--out docs/results/survey.json]

all-MiniLM-L6-v2 is surveyed over Winogender (720 sentences made for one question), English EWT's test set, and captions of Multi30k,
about 100,000 tokens in all. "roles" counts the heads whose role in Winogender is theirs in the other corpus too. "top" picks, for each
measure, the five heads that have most of it in Winogender, and counts how many of them are among the five of the other corpus (chance:
5 · 5/72). "clear" counts the heads whose measure differs, tested for all heads together. "pronouns" picks the five heads whose strongest
link is most often one from or to the pronoun in Winogender, and counts the same in the other corpora's drawn texts that have a pronoun,
beside what all heads do there. docs/reading.md has the numbers.

The folder holds `winogender/`, `ud-ewt/` and `multi30k/`, as for benchmarks/lens/findings.py.
"""

import argparse
import gzip
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from overt.explain import text_model
from overt.lens import survey
from overt.lens.analysis.surveys.measures import NAMES
from overt.lens.analysis.surveys.reading.encoding import encoder

PICKED = 5
PRONOUNS = {
    "he",
    "him",
    "his",
    "she",
    "her",
    "they",
    "them",
    "their",
    "it",
    "its",
    "i",
    "me",
    "my",
    "you",
    "your",
    "we",
    "us",
    "our",
}


def corpora(folder: Path) -> dict[str, list[str]]:
    """The three corpora, a sentence a text."""
    rows = (folder / "winogender" / "all_sentences.tsv").read_text().splitlines()[1:]
    with gzip.open(folder / "ud-ewt" / "en_ewt-ud-test.conllu.gz", "rt", encoding="utf-8") as file:
        ewt = [line.removeprefix("# text = ").rstrip("\n") for line in file if line.startswith("# text = ")]
    with gzip.open(folder / "multi30k" / "train.en.gz", "rt", encoding="utf-8") as file:
        captions = file.read().splitlines()[:3600]
    return {"Winogender": [row.split("\t")[1] for row in rows], "EWT": ewt, "Multi30k": captions}


def on_pronouns(result: Any, tokenizer: Any) -> np.ndarray:
    """Whether each head's strongest link is from or to a pronoun, for the drawn texts that have one: (texts, heads)."""
    encode, hits = encoder(tokenizer, 512), []
    for index, links in result.samples.drawn.items():
        words = [tokenizer.id_to_token(number) for number in encode(result.samples.texts[index])[0]]
        if at := [position for position, word in enumerate(words) if word in PRONOUNS]:
            hits.append(np.isin(links.queries, at) | np.isin(links.keys, at))
    return np.array(hits, float)


def resampled(values: np.ndarray) -> list[float]:
    """The mean over texts, and the middle 95 % of 2,000 resamplings of them."""
    means = np.random.default_rng(0).choice(values, (2000, len(values))).mean(1)
    return [float(values.mean()), *map(float, np.quantile(means, [0.025, 0.975]))]


def top(values: np.ndarray) -> set[int]:
    """The five heads of the largest values."""
    return set(np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:PICKED].tolist())


def compared(narrow: Any, wide: Any, tokenizer: Any) -> dict[str, Any]:
    """What of Winogender's heads holds in another corpus."""
    roles = [[role.role for role in each.roles()] for each in (narrow, wide)]
    named = [(one, other) for one, other in zip(*roles, strict=True) if one != "content"]
    differences = narrow.compare(wide)
    hits = [on_pronouns(each, tokenizer) for each in (narrow, wide)]
    picked = sorted(top(hits[0].mean(0)))
    return {
        "roles": {"same": sum(one == other for one, other in named), "named": len(named)},
        "top": {name: len(top(narrow.measure(name).values) & top(wide.measure(name).values)) for name in NAMES},
        "clear": {name: int((differences.p[name] <= 0.05).sum()) for name in NAMES},
        "pronouns": {
            "picked": [[narrow.heads[head].number, narrow.heads[head].head] for head in picked],
            "in Winogender": resampled(hits[0][:, picked].mean(1)),
            "here": resampled(hits[1][:, picked].mean(1)),
            "over all heads": resampled(hits[1][:, picked].mean(1) - hits[1].mean(1)),
            "among the five here": len(top(hits[1].mean(0)) & set(picked)),
            "texts": len(hits[1]),
        },
    }


def main() -> None:
    """Survey, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.takes_out(parser)
    parser.add_argument("--share", type=int, default=1, help="read one text of so many: a quick look")
    arguments = parser.parse_args()
    loaded = text_model.find()
    model, tokenizer = loaded.network, loaded.tokenizer
    surveys, seconds = {}, {}
    for name, texts in corpora(Path(os.environ["OVERT_DATA"])).items():
        start = time.perf_counter()
        surveys[name] = survey(model, texts[:: arguments.share], tokenizer=tokenizer)
        seconds[name] = time.perf_counter() - start
        print(repr(surveys[name]), f"{seconds[name]:.0f} s", flush=True)
    start = time.perf_counter()
    page = surveys["Multi30k"].page(beside=surveys["EWT"], model=model, tokenizer=tokenizer)
    result = {
        "threads": torch.get_num_threads(),
        "tokens": {name: each.facts.tokens for name, each in surveys.items()},
        "seconds": seconds,
        "page": {"seconds": time.perf_counter() - start, "bytes": len(page)},
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "compared": {name: compared(surveys["Winogender"], surveys[name], tokenizer) for name in ("EWT", "Multi30k")},
    }
    print(json.dumps(result, indent=1))
    results.write(arguments.out, **result)


if __name__ == "__main__":
    main()
