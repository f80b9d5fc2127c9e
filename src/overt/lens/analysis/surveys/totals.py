"""The sums of a survey for every head, and how they are merged."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from overt.errors import InputError
from overt.lens.analysis.surveys.exact_sums import ExactSums
from overt.lens.analysis.surveys.jackknife import GROUPS, Means, means
from overt.lens.analysis.surveys.measures import FARTHEST, NAMES, PAIRS, PATTERNS, REPETITIONS, ROWS
from overt.lens.analysis.surveys.samples import Samples
from overt.lens.captured import Captured
from overt.lens.statistics.roles import PatternScore, Role, Roles, roles

_ROLES = ("previous token", "next token", "first token", "same token", "separator", "uniform")


class SurveyedHead(NamedTuple):
    """A head by the name of its layer, the number of its call in a pass, and its own number."""

    layer: str
    number: int
    head: int


class Facts(NamedTuple):
    """The texts and the model of a survey: the settings that two surveys must share to be merged, and the totals of the texts.

    `weights` is a fingerprint of the model's parameters, and `corpus` the sum of the fingerprints of all texts, which identify surveys of
    one corpus; `chunks` are (first, stop, step) of the numbers of the chunks of 256 texts that were read.
    """

    model: str
    weights: str
    longest: int
    texts: int = 0
    tokens: int = 0
    empty: int = 0
    cut: int = 0
    corpus: int = 0
    chunks: tuple[tuple[int, int, int], ...] = ()


@dataclass(eq=False, repr=False)
class SurveyTotals:
    """The sums of every head over a corpus, the facts about the texts, and means computed from the sums.

    `profile` and `pairs` (PAIRS, heads, distances) are the weight and the number of pairs of query and key at each distance.
    """

    facts: Facts
    heads: list[SurveyedHead] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    sums: ExactSums = field(init=False)
    counts: ExactSums = field(init=False)
    profile: ExactSums = field(init=False)
    pairs: np.ndarray = field(init=False)
    lost: np.ndarray = field(init=False)
    samples: Samples = field(init=False)

    def __post_init__(self) -> None:
        self.start(self.heads)

    def start(self, heads: list[SurveyedHead]) -> None:
        """Start the sums of these heads at zero."""
        self.heads = heads
        shape = (GROUPS, len(ROWS), len(heads))
        self.sums, self.counts, self.samples = ExactSums(shape), ExactSums(shape), Samples(len(heads))
        shape = (len(PAIRS), len(heads), 2 * FARTHEST + 1)
        self.profile, self.pairs = ExactSums(shape), np.zeros(shape, np.int64)
        self.lost = np.zeros(len(heads), np.int64)  # texts in which a measure of the head was not a number

    def measure(self, name: str) -> Means:
        """The mean of a measure over the corpus for each head, with the ends of its 95 % interval; NaN if it was not measured.

        Raises InputError for a name that is not one of `overt.lens.analysis.surveys.measures.NAMES`.
        """
        if name not in ROWS:
            raise InputError("the name of a measure", got=repr(name), fix=f"choose one of: {', '.join(NAMES)}")
        row = ROWS.index(name)
        return means(self.sums.values()[:, row], self.counts.values()[:, row])

    def chance(self, name: str) -> np.ndarray:
        """The weight of a head that does not compare tokens on a pattern: the mean share from equal weights.

        For "induction" and "duplicate token" it is the larger of that and Σ_d n_d w_d / N, with N queries, n_d pairs of the pattern at
        distance d, and w_d the head's mean weight on the other pairs at this distance (on all pairs if there is no other). So a head that
        attends to a fixed distance does not pass for an induction head.
        """
        if name not in PATTERNS:
            raise InputError("the name of a pattern", got=repr(name), fix=f"choose one of: {', '.join(PATTERNS)}")
        equal = self.measure(f"{name}: chance").values
        if name not in REPETITIONS:
            return equal
        weights, index = self.profile.values(), PAIRS.index(name)
        apart, number = weights[0] - weights[index], self.pairs[0] - self.pairs[index]
        with np.errstate(invalid="ignore", divide="ignore"):
            level = np.where(number > 0, apart / number, weights[0] / self.pairs[0])
            by_distance = np.where(self.pairs[index] > 0, level * self.pairs[index], 0).sum(-1)
            return np.fmax(equal, by_distance / self.counts.values()[:, ROWS.index(name)].sum(0))

    def roles(self) -> Roles:
        """The role of each head over the corpus by the rules of `Recording.roles`, with the intervals and chance of the survey."""
        shares = {name: self.measure(name).values for name in _ROLES}
        repetitions = {name: self._pattern_scores(name) for name in reversed(REPETITIONS)}
        result: list[Role] = []
        for index, (layer, number, head) in enumerate(self.heads):
            call = Captured(number, number, 0, layer, "", (head,), 1, 1, 1, 1, torch.float32, ())
            share = {name: float(values[index]) for name, values in shares.items() if not np.isnan(values[index])}
            head_patterns = {name: scores[index] for name, scores in repetitions.items() if scores[index].queries}
            result += roles(call, (share,), (head_patterns,))
        return Roles(result)

    def _pattern_scores(self, name: str) -> list[PatternScore]:
        value, low, high = self.measure(name)
        chance = self.chance(name)
        queries = self.counts.values()[:, ROWS.index(name)].sum(0)
        columns = zip(*(part.tolist() for part in (value, low, high, chance, queries)), strict=True)
        return [PatternScore(share, least, most, equal, int(count)) for share, least, most, equal, count in columns]

    def merge(self, other: "SurveyTotals") -> None:
        """Add another part of the corpus."""
        same = (*self.facts[:3], self.heads) == (*other.facts[:3], other.heads)
        if not same:
            raise InputError(
                "surveys of one model with one tokenizer and the same longest=, to merge",
                got=f"{self.facts.model} to {self.facts.longest} tokens and {other.facts.model} to {other.facts.longest}, "
                + ("of the same heads" if self.heads == other.heads else "of other heads"),
                fix="merge the parts of one survey, or compare two surveys with survey.compare(other)",
            )
        self.facts = joined(self.facts, other.facts)
        self.sums.merge(other.sums)
        self.counts.merge(other.counts)
        self.profile.merge(other.profile)
        self.pairs += other.pairs
        self.lost += other.lost
        self.samples.merge(other.samples)
        self.missing += [absence for absence in other.missing if absence not in self.missing]

    def __repr__(self) -> str:
        facts = self.facts
        counts = f"{facts.texts:,} {'text' if facts.texts == 1 else 'texts'}, {facts.tokens:,} tokens"
        return f"<survey of {facts.model}: {len(self.heads)} heads, {counts}>"

    def notes(self) -> list[str]:
        """Lines about the texts that were read and the attention that was not measured."""
        facts = self.facts
        notes = [f"{self!r}"[1:-1]]
        if facts.empty:
            notes.append("1 empty text is left out" if facts.empty == 1 else f"{facts.empty:,} empty texts are left out")
        if facts.cut:
            notes.append(f"{facts.cut:,} texts have more than {facts.longest} tokens, and are read to there")
        if self.lost.any():
            notes.append(
                f"{int((self.lost > 0).sum())} heads have measures that are not numbers, in up to {int(self.lost.max()):,} texts"
            )
        return [*notes, *(f"not measured: {name}: {reason}" for name, reason in self.missing)]

    def __str__(self) -> str:
        return "\n".join([*self.notes(), str(self.roles())])


def joined(one: Facts, other: Facts) -> Facts:
    """The facts of two parts of a corpus together. Raises InputError for parts that share texts."""
    numbers = np.concatenate([np.arange(*chunk) for chunk in (*one.chunks, *other.chunks)] or [np.zeros(0, int)])
    if len(np.unique(numbers)) != len(numbers):
        raise InputError("parts of a corpus that do not overlap", got="two that share texts", fix="merge each part once")
    sums = {name: getattr(one, name) + getattr(other, name) for name in ("texts", "tokens", "empty", "cut")}
    chunks = ranges(np.sort(numbers))
    return one._replace(**sums, corpus=(one.corpus + other.corpus) % 2**256, chunks=chunks)


def ranges(numbers: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """Sorted numbers as few ranges (first, stop, step).

    >>> ranges(np.array([0, 2, 4, 6])), ranges(np.array([0, 1, 2, 5]))
    (((0, 7, 2),), ((0, 3, 1), (5, 6, 1)))
    """
    parts: list[tuple[int, int, int]] = []
    start = 0
    while start < len(numbers):
        step = int(numbers[start + 1] - numbers[start]) if start + 1 < len(numbers) else 1
        even = np.flatnonzero(np.diff(numbers[start:]) != step)
        stop = start + int(even[0]) if len(even) else len(numbers) - 1
        parts.append((int(numbers[start]), int(numbers[stop]) + 1, step if stop > start else 1))
        start = stop + 1
    return tuple(parts)
