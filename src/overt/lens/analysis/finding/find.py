"""Heads that attend from the query words to the key words of labelled pairs."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from overt.attention import check
from overt.errors import InputError, KindError
from overt.lens.analysis.finding.measuring import PairMeasurements, PairTask, competitors, measure, pair_tasks, randomized
from overt.lens.analysis.finding.pairs import ReadPair, pieces, read_pairs
from overt.lens.analysis.finding.ranked import FEWEST, RankedHead, RankedHeads
from overt.lens.analysis.finding.statistics import adjusted_p_values, intervals
from overt.lens.analysis.observing import evaluated
from overt.lens.analysis.surveys.reading.encoding import TextReader, longest_text
from overt.lens.analysis.surveys.reading.text_module import ENCODER_ONLY
from overt.lens.capture.recordable import recordable
from overt.lens.text.texts import Texts

_LONGEST = 4096  # most tokens of a text that the model reads


def find_heads(
    model: nn.Module, pairs: Any, *, tokenizer: Any, seed: int = 0, groups: Sequence[Any] | None = None
) -> RankedHeads:
    """Heads that attend from the query words to the key words of pairs, chosen on one half of the texts and measured on the other.

        right = [ Σ_key w > max over competitors Σ w ]        w: the head's weights, a mean over the query's tokens

    Clark et al. 2019, section 4.1, for words of several tokens. `pairs` is a list of (text, query, key) or (text, query, key, distractors),
    of dictionaries with these names, or a .jsonl or .csv file (distractors separated by |). Query, key and distractors are words or
    phrases of the text, "the:2" for a second one. A key competes with its distractors, or without any, with every other token of the text.

    The texts are divided in two at random; `groups` names, for each pair, a unit that is not divided, such as the template of a sentence
    (by default the text). Heads are sorted by accuracy on one half, and all numbers are from the other. `p_value` tests whether a head
    is right more often than the best baseline, adjusted for all heads. Baselines are the distance (the nearest candidate, or the commonest
    offset), the same token (apart from spaces and case), chance, and the best head, chosen the same way, of a model with random weights.

    In an encoder–decoder, the encoder is measured. Raises InputError for pairs without a field, words that are not in the text, occur
    twice, overlap or are part of a token, for fewer than two texts, and for other models of several texts. With fewer than ten texts in a
    half, the result notes that the intervals are no guide.

    >>> import overt
    >>> from overt.learn import Tokenizer
    >>> from overt.models import LanguageModel
    >>> texts = [f"the {noun} saw the dog" for noun in ("cat", "mouse", "cow", "horse")]
    >>> tokenizer = Tokenizer.learn(texts * 9, merges=40)
    >>> model = LanguageModel(tokenizer.words, width=16, heads=2, layers=2, feed_forward=32).eval()
    >>> found = overt.lens.find_heads(model, [(text, "saw", text.split()[1]) for text in texts], tokenizer=tokenizer)
    >>> len(found.heads), sorted(found.baselines)
    (4, ['chance', 'distance', 'random weights', 'same token'])
    """
    if tokenizer is None:
        raise KindError("a tokenizer, to find words in the texts", got="None", fix="pass the model's own, tokenizer=tokenizer")
    check.whole_number("seed", seed, 0)
    model = recordable(model)
    Texts.with_tokenizer(tokenizer, model)  # which refuses one of another vocabulary
    read = read_pairs(pairs)
    if groups is not None and len(groups) != len(read):
        raise InputError(
            "one group for each pair", got=f"{len(groups)} for {len(read)}", fix="leave groups out, or complete it"
        )
    names = [pair.text for pair in read] if groups is None else list(groups)
    if not all(isinstance(name, Hashable) for name in names):
        raise KindError(
            "groups as names or numbers", got=repr(names[0])[:60], fix='pass one for each pair, as ["first", "second"]'
        )
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    texts = np.array([numbers[name] for name in names])
    with evaluated(model):
        reader = TextReader(model, tokenizer, longest_text(model, tokenizer, _LONGEST))
        tasks = pair_tasks(reader, read)
        _check_halves(len(numbers))
        measured = measure(reader, tasks)
        blank = measure(TextReader(randomized(model, seed), tokenizer, reader.longest), tasks, "the same with random weights")
    result = _ranked(type(model).__name__, tasks, texts, measured, blank, seed)
    note = f"{ENCODER_ONLY.capitalize()}."
    return result if reader.module is model else replace(result, notes=(note, *result.notes))


def _check_halves(texts: int) -> None:
    if texts < 2:
        fix = "add pairs of other texts"
        raise InputError("at least two texts, one to choose on and one to measure on", got="one", fix=fix)


def _ranked(
    model: str, tasks: list[PairTask], texts: np.ndarray, measured: PairMeasurements, blank: PairMeasurements, seed: int
) -> RankedHeads:
    count = int(texts.max()) + 1
    first = np.random.default_rng(seed).permutation(count)[: count // 2]
    chosen = np.isin(texts, first)
    measured_on = ~chosen
    columns = _baselines(tasks, chosen, measured, blank)
    baselines = {name: float(column[measured_on].mean()) for name, column in columns.items()}
    best = max(baselines, key=lambda name: baselines[name])
    _, renumbered = np.unique(texts[measured_on], return_inverse=True)
    low, high = intervals(measured.right[measured_on], renumbered, seed)
    p_values = adjusted_p_values(measured.right[measured_on] - columns[best][measured_on, None], renumbered, seed)
    order = sorted(
        range(len(measured.heads)),
        key=lambda head: (-measured.right[chosen, head].mean(), -measured.mass[chosen, head].mean(), head),
    )
    heads = [
        RankedHead(
            measured.heads[head][:2],
            measured.heads[head][2],
            float(measured.right[measured_on, head].mean()),
            (float(low[head]), float(high[head])),
            baselines[best],
            float(p_values[head]),
            float(measured.mass[measured_on, head].mean()),
            float(measured.area[measured_on, head].mean()),
            float(measured.right[chosen, head].mean()),
        )
        for head in order
    ]
    halves = len(first), count - len(first)
    unseen = int((measured.mass.max(1) == 0).sum())
    notes = [*_notes(halves, unseen, tasks), *(f"not measured: {reason}" for reason in measured.missing)]
    pairs = int(chosen.sum()), int(measured_on.sum())
    held_out = _read_pairs(tasks, measured, order, measured_on)
    return RankedHeads(tuple(heads), baselines, pairs, halves, model, tuple(notes), held_out)


def _read_pairs(
    tasks: list[PairTask], measured: PairMeasurements, order: list[int], measured_on: np.ndarray
) -> tuple[ReadPair, ...]:
    """The pairs that heads are measured on, with the numbers of the heads in the order `order`."""
    right, mass = measured.right[:, order].tolist(), measured.mass[:, order].tolist()
    return tuple(
        ReadPair(pieces(tasks[pair].read, tasks[pair].tokens), tuple(right[pair]), tuple(mass[pair]))
        for pair in measured_on.nonzero()[0]
    )


def _notes(halves: tuple[int, int], unseen: int, tasks: list[PairTask]) -> list[str]:
    notes = []
    if min(halves) < FEWEST:
        notes.append(
            f"Only {halves[0]} texts to choose on and {halves[1]} to measure on: the intervals are no guide below {FEWEST}."
        )
    if unseen:
        why = "the model's mask hides it, as it hides a key behind its query or outside of a window"
        notes.append(f"In {unseen} of {len(tasks)} pairs no head gives the key any weight: {why}.")
    without = sum(not task.tokens.distractors for task in tasks)
    if without:
        which = "The pairs have" if without == len(tasks) else f"{without} of {len(tasks)} pairs have"
        notes.append(f"{which} no distractors, so each key competes with every other token of its text.")
    return notes


def _baselines(
    tasks: list[PairTask], chosen: np.ndarray, measured: PairMeasurements, blank: PairMeasurements
) -> dict[str, np.ndarray]:
    """The accuracy, pair by pair, of each baseline that does not need this model's attention."""
    offsets = [task.tokens.key[0] - task.tokens.query[-1] for task in tasks]
    values, counts = np.unique([offset for offset, inside in zip(offsets, chosen, strict=True) if inside], return_counts=True)
    commonest = int(values[counts.argmax()])
    random_head = int(blank.right[chosen].mean(0).argmax())
    return {
        "distance": np.array([_by_distance(task, commonest) for task in tasks]),
        "same token": np.array([_by_token(task, choices) for task, choices in zip(tasks, measured.choices, strict=True)]),
        "chance": 1 / measured.choices,
        "random weights": blank.right[:, random_head],
    }


def _by_distance(task: PairTask, commonest: int) -> float:
    """Whether the key is the nearest candidate (½ for equal distances), or, without distractors, at the commonest offset."""
    if not task.tokens.distractors:
        return float(task.tokens.query[-1] + commonest in task.tokens.key)
    away = [
        min(abs(token - task.tokens.query[-1]) for token in tokens) for tokens in (task.tokens.key, *task.tokens.distractors)
    ]
    return float(away[0] < min(away[1:])) + 0.5 * (away[0] == min(away[1:]))


def _by_token(task: PairTask, choices: float) -> float:
    """Whether the key has a token of the query and no competitor does; a share if several do, and chance if none does."""
    letters = {task.letters[index] for index in task.tokens.query}
    same = [any(task.letters[index] in letters for index in tokens) for tokens in (task.tokens.key, *competitors(task))]
    return same[0] / sum(same) if any(same) else 1 / choices
