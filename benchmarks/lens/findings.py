"""Three published kinds of finding about attention, measured on all-MiniLM-L6-v2 with baselines beside them.

    OVERT_DATA=folder python -m benchmarks.lens.findings [--part syntax|pronouns|rollout] [--threads 1] [--out docs/results/findings.json]

syntax: for each dependency relation of English EWT, how often the best of 72 heads points from a word to its head (or from the head
to the word), against the best fixed offset; both chosen on training sentences and counted on the test set. pronouns: which heads look
from a Winogender pronoun to the right one of its two candidates, by `overt.lens.find_heads`. rollout: how the weight that a sentence
vector gives to each token ranks beside what erasing the token does to it, raw attention against rollout. docs/reading.md has the
numbers and says how each is counted.

The folder holds `ud-ewt/` (github UniversalDependencies/UD_English-EWT, gzipped) and `winogender/all_sentences.tsv` (github
rudinger/winogender-schemas). The same command prints the same numbers.
"""

import argparse
import gzip
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import results
from overt.errors import InputError
from overt.explain import minilm, text_model
from overt.lens import find_heads, mean_attention, norm_weights, record, rollout
from overt.lens.analysis.by_block import WeightsByBlock
from overt.lens.analysis.finding.pairs import LabelledPair

LAYERS, HEADS, RESAMPLED = 6, 12, 2000
LISTED = 5  # heads that are listed
FEWEST = 100  # test arcs that a relation needs to be listed
SHORTEST, LONGEST = 8, 40  # words of the sentences whose tokens are erased
PRONOUNS = {"he", "him", "his", "she", "her", "they", "them", "their"}
Array = np.ndarray


class Arc(NamedTuple):
    """A dependency: the word, its head, both counted from 0, and the relation."""

    word: int
    head: int
    relation: str


class Sentence(NamedTuple):
    """A sentence of a treebank."""

    words: list[str]
    arcs: list[Arc]


def main() -> None:
    """Measure what is asked for and print it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=list(PARTS), help="one of the three (default: all)")
    options.add_argument("--train", type=int, default=2000, help="training sentences that heads and offsets are chosen on")
    options.add_argument("--erased", type=int, default=400, help="sentences whose tokens are erased")
    options.add_argument("--threads", type=int, default=1)
    results.takes_out(options)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    results.write(arguments.out, **{part: PARTS[part](arguments) for part in ([arguments.part] if arguments.part else PARTS)})


def syntax(arguments: Any) -> dict[str, Any]:
    """The best head for each dependency relation against the best fixed offset, and against an untrained model's best head."""
    train, test = random.Random(0).sample(list(treebank("train")), arguments.train), list(treebank("test"))
    model, blank = text_model.find(), text_model.find()
    blank.__dict__["network"] = untrained(blank.folder)
    print(f"syntax: chosen on {len(train):,} sentences of EWT train, counted on the {len(test):,} of test", flush=True)
    (heads, counts), (_, of_blank) = (of_best_heads(each, train, test) for each in (model, blank))
    offsets = {relation: Counter(each).most_common(1)[0][0] for relation, each in distances(train).items()}
    listed = [relation for relation in heads if counts[relation][:, 1].sum() >= FEWEST]
    listed.sort(key=lambda relation: -counts[relation][:, 1].sum())
    fixed = of_offsets(test, offsets)
    whole = {relation: np.column_stack([counts[relation], fixed[relation], of_blank[relation][:, 0]]) for relation in listed}
    rows = [compared(relation, *heads[relation], offsets[relation], whole[relation]) for relation in listed]
    rows.append(compared("all of these", None, 0, None, np.sum(list(whole.values()), axis=0)))
    print("relation        arcs head               right  offset right  difference          untrained")
    for row in rows:
        difference, offset = "{right:+.3f} [{interval[0]:+.3f}, {interval[1]:+.3f}]".format(**row["difference"]), row["offset"]
        notes = f"{row['arcs']:6} {row['right']:6.3f} {f'{offset:+d}' if offset else '':>4} {row['right_by_offset']:6.3f}"
        print(f"{row['relation']:14} {row['head']:18} {notes}  {difference}  {row['untrained']:6.3f}")
    won = sum(row["right"] > row["right_by_offset"] for row in rows[:-1])
    print(f"the head is right more often than the offset for {won} of {len(listed)} relations\n", flush=True)
    return {"train": len(train), "test": len(test), "rows": rows}


def compared(relation: str, position: int | None, way: int, offset: int | None, counts: Array) -> dict[str, Any]:
    """A relation's row: arcs, the head's share of right ones, the offset's, their difference, and the untrained model's.

    `counts` has a row for each sentence: right by the head, arcs, right by the offset, right by the untrained model's head.
    """
    head, arcs, fixed, blank = counts.sum(0)
    named = "" if position is None else f"L{position // HEADS}H{position % HEADS} {('word→head', 'head→word')[way]}"
    return {
        "relation": relation,
        "arcs": int(arcs),
        "head": named,
        "right": rounded(head / arcs),
        "offset": offset,
        "right_by_offset": rounded(fixed / arcs),
        "difference": share(counts, lambda drawn: (drawn[:, 0].sum() - drawn[:, 2].sum()) / max(drawn[:, 1].sum(), 1)),
        "untrained": rounded(blank / arcs),
    }


def share(rows: Array, measure: Callable[[Array], float]) -> dict[str, Any]:
    """What is measured on the rows, and its interval."""
    return {"right": rounded(measure(rows)), "interval": [rounded(end) for end in interval(rows, measure)]}


def mean(column: int, less: int | None = None) -> Callable[[Array], float]:
    """The mean of a column of the rows that are drawn, or of what it has over another one."""
    return lambda drawn: (drawn[:, column] - (0 if less is None else drawn[:, less])).mean()


def rounded(number: float) -> float:
    """Six digits: more than any interval here leaves, and enough to be rounded again."""
    return round(float(number), 6)


def interval(rows: Array, measure: Callable[[Array], float]) -> tuple[float, float]:
    """The middle 95 % of what is measured on rows drawn again with replacement."""
    draw = np.random.default_rng(0)
    result = [measure(rows[draw.integers(0, len(rows), len(rows))]) for _ in range(RESAMPLED)]
    low, high = np.percentile(result, [2.5, 97.5])
    return float(low), float(high)


def of_best_heads(model: Any, train: list[Sentence], test: list[Sentence]) -> tuple[dict, dict[str, Array]]:
    """For each relation the head and direction that are right most often in training, and each test sentence's (right, arcs)."""
    sums: dict[str, Any] = defaultdict(lambda: 0)
    for sentence in train:
        for arc, right in zip(sentence.arcs, hits(model, sentence), strict=True):
            sums[arc.relation] = sums[arc.relation] + right.astype(int)
    heads = {relation: divmod(int(np.argmax(right)), 2) for relation, right in sums.items()}
    counts = {relation: np.zeros((len(test), 2)) for relation in heads}
    for position, sentence in enumerate(test):
        for arc, right in zip(sentence.arcs, hits(model, sentence), strict=True):
            if arc.relation in heads:
                counts[arc.relation][position] += right[heads[arc.relation]], 1
    return heads, counts


def distances(sentences: list[Sentence]) -> dict[str, list[int]]:
    """How far behind its word each arc's head stands, by relation."""
    result: dict[str, list[int]] = defaultdict(list)
    for sentence in sentences:
        for arc in sentence.arcs:
            result[arc.relation].append(arc.head - arc.word)
    return result


def of_offsets(test: list[Sentence], offsets: dict[str, int]) -> dict[str, Array]:
    """How many arcs of each test sentence have their head at the relation's offset."""
    counts = {relation: np.zeros(len(test)) for relation in offsets}
    for position, sentence in enumerate(test):
        for arc in sentence.arcs:
            if arc.relation in offsets:
                counts[arc.relation][position] += arc.head - arc.word == offsets[arc.relation]
    return counts


def treebank(part: str) -> Iterator[Sentence]:
    """The sentences of one part of English EWT; words are the syntactic ones, punctuation counts as words, not as arcs."""
    lines: list[list[str]] = []
    path = folder("ud-ewt") / f"en_ewt-ud-{part}.conllu.gz"
    for line in [*gzip.decompress(path.read_bytes()).decode().split("\n"), ""]:
        cells = line.split("\t")
        if len(cells) == 10 and cells[0].isdigit():
            lines.append(cells)
        elif not line.strip() and lines:
            arcs = [Arc(int(c[0]) - 1, int(c[6]) - 1, c[7]) for c in lines if c[7] not in ("root", "punct")]
            yield Sentence([c[1] for c in lines], arcs)
            lines = []


def hits(model: Any, sentence: Sentence) -> Array:
    """For each arc, head and direction: whether the head's hardest look is the arc's (arcs, 72, 2)."""
    weights = by_word(model, sentence.words)  # (72, words, words)
    if weights is None:
        return np.zeros((len(sentence.arcs), LAYERS * HEADS, 2), dtype=bool)
    positions = np.arange(len(sentence.words))
    weights[:, positions, positions] = -1  # a word is not its own head
    hardest = weights.argmax(-1)  # (72, words)
    pairs = [(hardest[:, arc.word] == arc.head, hardest[:, arc.head] == arc.word) for arc in sentence.arcs]
    return np.array([np.stack(pair, -1) for pair in pairs]).reshape(len(pairs), LAYERS * HEADS, 2)


def by_word(model: Any, words: list[str]) -> Array | None:
    """Weights between words (72, words, words): summed over the pieces attended to, the mean over those that ask.

    Clark et al. 2019, section 4.1. [CLS] and [SEP] are left out, so rows do not sum to 1. None where the sentence is too long.
    """
    text = " ".join(words)
    try:
        encoded = model.encode(text)
    except InputError:
        return None
    ends = np.cumsum([len(word) + 1 for word in words])
    member = np.zeros((len(words), len(encoded.ids)))  # which piece is of which word
    for position, (start, _) in enumerate(encoded.spans):
        if position not in encoded.special:
            member[np.searchsorted(ends, start, side="right"), position] = 1
    with record(model.network) as recording:
        model.run(encoded)
    weights = torch.cat([WeightsByBlock(call).rows(0, len(encoded.ids))[0] for call in recording.calls]).numpy()  # (72, n, n)
    return (member / np.maximum(member.sum(-1, keepdims=True), 1)) @ weights @ member.T


def pronouns(arguments: Any) -> dict[str, Any]:
    """Which heads look from a pronoun to the right one of two candidates: chosen on half of the occupations, measured on the other."""
    model, cases = text_model.find(), list(winogender())
    pairs, occupations = zip(*cases, strict=True)
    print(f"pronouns: {len(pairs)} sentences, {len(set(occupations))} occupations", flush=True)
    heads = find_heads(model.network, pairs, tokenizer=model.tokenizer, groups=occupations)
    print(heads.text(rows=LISTED, width=100), end="\n\n", flush=True)
    result = heads.to_dict()
    result["heads"] = result["heads"][:LISTED]
    return {"sentences": len(pairs), "occupations": len(set(occupations)), **result}


def winogender() -> Iterator[tuple[LabelledPair, str]]:
    """The sentences with pronoun, right candidate and wrong one, and the template of each, its occupation's name."""
    path = folder("winogender") / "all_sentences.tsv"
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        name, text = line.split("\t")
        occupation, participant, answer, _, _ = name.split(".")
        words = re.findall(r"\w+", text)
        lowered = [word.lower() for word in words]
        candidates = [occurrence(words, lowered.index(noun.lower())) for noun in (occupation, participant)]
        pronoun = max(position for position, word in enumerate(lowered) if word in PRONOUNS)
        right = int(answer)
        pair = LabelledPair(text, occurrence(words, pronoun), candidates[right], (candidates[1 - right],))
        yield pair, occupation


def occurrence(words: list[str], position: int) -> str:
    """A word with the number of its occurrence, as labelled pairs name it, where it occurs several times."""
    word = words[position]
    return word if words.count(word) == 1 else f"{word}:{words[: position + 1].count(word)}"


def erasing(arguments: Any) -> dict[str, Any]:
    """Raw attention and rollout from the sentence vector, ranked beside what erasing each token does to that vector."""
    model = text_model.find()
    sentences = [each for each in treebank("test") if SHORTEST <= len(each.words) <= LONGEST]
    drawn = random.Random(0).sample(sentences, arguments.erased)
    tables = [correlations(model, " ".join(each.words)) for each in drawn]
    names, rows = list(tables[0]), np.array([list(each.values()) for each in tables])  # (sentences, measures)
    rows = rows[~np.isnan(rows).any(-1)]
    print(
        f"rollout: {len(rows)} sentences of {SHORTEST} to {LONGEST} words; mean Spearman correlation with erasing", flush=True
    )
    result = {name: share(rows, mean(column)) for column, name in enumerate(names)}
    for layer in range(LAYERS):
        rolled, raw = names.index(f"rollout {layer}"), names.index(f"raw {layer}")
        result[f"rollout − raw {layer}"] = share(rows, mean(rolled, raw))
    for name, row in result.items():
        print(f"  {name:16} {{right:+.3f}} [{{interval[0]:+.3f}}, {{interval[1]:+.3f}}]".format(**row), flush=True)
    return {"sentences": len(rows), "correlations": result}


def correlations(model: Any, text: str) -> dict[str, float]:
    """Spearman's correlation of each way to score the tokens with the effect of erasing them, special tokens left out.

    The sentence vector is the mean of all the last layer's vectors, so a token's score is the mean of its column.
    """
    encoded = model.encode(text)
    with record(model.network) as recording:
        model.run(encoded)
    plain = [position for position in range(len(encoded.ids)) if position not in encoded.special]
    norms = norm_weights(recording, model.network)
    scores = {"vocabulary": np.array(encoded.ids, dtype=float), "position": -np.arange(len(encoded.ids), dtype=float)}
    for layer in range(LAYERS):
        scores[f"raw {layer}"] = mean_attention(recording, layer)[0].mean(0).numpy()
        scores[f"norms {layer}"] = norms.layer(layer)[0].mean(0).numpy()
        scores[f"rollout {layer}"] = rollout(recording, layer)[0].mean(0).numpy()
    effect = erased(model, encoded.ids, plain)
    return {name: spearman(each[plain], effect) for name, each in sorted(scores.items())}


@torch.no_grad()
def erased(model: Any, ids: list[int], positions: list[int]) -> Array:
    """1 − cosine between the sentence vector and the one with a token replaced by [MASK], for each of these places."""
    mask = model._tokenizer.token_to_id("[MASK]")
    batch = torch.tensor([ids] * (len(positions) + 1))
    batch[torch.arange(1, len(batch)), positions] = mask
    vectors = torch.nn.functional.normalize(model.network(batch).mean(1).double(), dim=-1)
    return 1 - (vectors[1:] @ vectors[0]).numpy()


def spearman(first: Array, second: Array) -> float:
    """The correlation of ranks, equal values sharing their mean rank."""
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def ranks(values: Array) -> Array:
    """The place of each value in order; equal ones get the mean of their places."""
    _, position, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[position]


def untrained(path: Path) -> Any:
    """The same architecture with weights drawn as BERT's are before training, N(0, 0.02)."""
    torch.manual_seed(0)
    network = minilm.MiniLM(json.loads((path / "config.json").read_text()))
    for name, weight in network.named_parameters():
        if weight.ndim > 1:
            weight.data.normal_(0, 0.02)
        elif name.endswith("bias"):
            weight.data.zero_()
    return network.eval().requires_grad_(False)


def folder(name: str) -> Path:
    """A folder of the data."""
    path = Path(os.environ.get("OVERT_DATA", "."), name)
    if not path.is_dir():
        raise InputError(
            "the data are in the folder that OVERT_DATA names", got=f"no {path}", fix="see --help for where to get them"
        )
    return path


PARTS = {"syntax": syntax, "pronouns": pronouns, "rollout": erasing}

if __name__ == "__main__":
    main()
