"""Two recordings of the same tokens, compared head by head: two models, or one model before and after a change."""

import math
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from overt.drawing.progress import progress
from overt.errors import InputError
from overt.lens.analysis.by_block import WeightsByBlock, by_groups, fitting_groups
from overt.lens.captured import Captured
from overt.lens.head import head_name
from overt.lens.linear.chunks import Chunks
from overt.lens.recorded_calls import RecordedCalls
from overt.lens.tokens import Words


@dataclass(frozen=True)
class HeadDifference:
    """The distance between the weights of one head in two recordings: the mean over its queries, in nats, from 0 to log 2 = 0.693."""

    layer: str
    number: int
    head: int
    distance: float

    def __str__(self) -> str:
        return f"{head_name(self.number, self.head):6}  {self.layer}  {self.distance:.4f}"


@dataclass(frozen=True)
class Differences:
    """The distances of all heads, call by call; printing shows the largest. `known` tells whether both recordings have tokens."""

    heads: tuple[HeadDifference, ...]
    known: bool

    def largest(self, count: int = 10) -> tuple[HeadDifference, ...]:
        """The heads with the largest distances, largest first."""
        return tuple(sorted(self.heads, key=lambda entry: -entry.distance)[:count])

    def __str__(self) -> str:
        mean = sum(head.distance for head in self.heads) / len(self.heads)
        lines = [f"{len(self.heads)} heads, on average {mean:.4f} nats apart, of {math.log(2):.4f} at most; the furthest:"]
        lines += [str(item) for item in self.largest()]
        return "\n".join(lines if self.known else [*lines, "the recordings have no tokens, so only lengths were compared"])


@torch.no_grad()
def compare(first: RecordedCalls, second: RecordedCalls) -> Differences:
    """Measure the distance between the same heads in two recordings of the same tokens: the mean Jensen–Shannon divergence of queries.

        JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m),   m = ½(p + q)        per query, in nats: 0 for equal weights, log 2 for no key in common

    Lin 1991, section IV (with equal weights). For recordings of two models, of one model before and after training, pruning or
    `without_heads`, or of two inputs with the same tokens. Weights that do not sum to 1 are scaled to sum to 1. Queries that may
    attend to no key in one of the recordings do not count. Signed weights (of linear token mixers) become shares |W| ÷ Σ |W|, in which
    a key with a negative weight is a key of its own: weights of opposite signs are log 2 apart.

    Limits: heads are paired by their numbers, and heads with the same number need not be alike in two models.

    Raises InputError if calls, heads, lengths or tokens differ.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention, key_tokens=list("abcde")) as one:
    ...     _ = attention(x, x, x)
    >>> with overt.lens.record(attention, key_tokens=list("abcde")) as other:
    ...     _ = attention(3 * x, 3 * x, x)
    >>> differences = overt.lens.compare(one, other)
    >>> [0 < entry.distance < 0.7 for entry in differences.heads], overt.lens.compare(one, one).heads[0].distance
    ([True, True], 0.0)
    """
    known = first.strings.known and second.strings.known
    differences = []
    for one, other in progress(_pairs(first, second), "comparing layers"):
        if known:
            _same_words("keys", one.layer, first.strings.key_words(one), second.strings.key_words(other))
            _same_words("queries", one.layer, first.strings.query_words(one), second.strings.query_words(other))
        distances = _distances(one, other)
        number = first.number_of(one)
        differences += [HeadDifference(one.layer, number, head, far) for head, far in zip(one.heads, distances, strict=True)]
    return Differences(tuple(differences), known)


def _pairs(first: RecordedCalls, second: RecordedCalls) -> list[tuple[Captured, Captured]]:
    """Pairs of calls of both recordings. Raises InputError unless their shapes are the same."""
    pairs = list(zip_longest(first.nonempty_calls(), second.nonempty_calls()))
    for index, (one, other) in enumerate(pairs):
        shapes = [None if part is None else (part.batch, part.heads, part.queries, part.keys) for part in (one, other)]
        if shapes[0] != shapes[1]:
            sizes = [_sizes(part) for part in (one, other)]
            raise InputError(
                "two recordings of the same calls, with the same lengths and heads",
                got=f"call {index}: {sizes[0]} and {sizes[1]}",
                fix="record both with the same tokens, layers and heads",
            )
    return pairs


def _sizes(captured: Captured | None) -> str:
    if captured is None:
        return "none"
    return f"{captured.batch} × {len(captured.heads)} heads of {captured.queries} queries and {captured.keys} keys"


def _same_words(side: str, layer: str, one: Words | None, other: Words | None) -> None:
    if one == other or one is None or other is None:
        return
    for sentence, (left, right) in enumerate(zip_longest(one, other, fillvalue=[])):
        for index, (left_token, right_token) in enumerate(zip_longest(left, right)):
            if left_token != right_token:
                raise InputError(
                    f"two recordings of the same tokens, for the {side} of {layer}",
                    got=f"{left_token!r} and {right_token!r} at token {index} of sequence {sentence}",
                    fix="record both with the same text and the same tokenizer",
                )


def _distances(one: Captured, other: Captured) -> list[float]:
    """The mean distance of each head over the queries that may attend to some key in both recordings."""
    groups = fitting_groups(one)
    pairs = zip(groups, by_groups(one, groups), by_groups(other, groups), strict=True)
    return [distance for heads, left, right in pairs for distance in _mean_distances(len(heads), left, right)]


def _mean_distances(heads: int, left: WeightsByBlock | Chunks, right: WeightsByBlock | Chunks) -> list[float]:
    total = torch.zeros(heads, dtype=torch.float64)
    count = torch.zeros_like(total)
    for first, *_, weights in left.blocks():
        rows = range(first, first + weights.shape[-2])
        others = right.weights(rows) if isinstance(right, Chunks) else right.rows(rows.start, rows.stop)
        both = [_shares(part) for part in (weights, others)]
        counted = (both[0].sum(-1) > 0) & (both[1].sum(-1) > 0)  # (B, H, rows)
        total += torch.where(counted, jensen_shannon(both[0], both[1]), 0).sum((0, 2)).cpu()
        count += counted.sum((0, 2)).cpu()
    return (total / count.clamp(min=1)).tolist()


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """The Jensen–Shannon divergence of distributions along the last dimension, in nats: (..., K) to (...).

    >>> jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    middle = torch.special.entr((first + second) / 2).sum(-1)
    return (middle - (torch.special.entr(first).sum(-1) + torch.special.entr(second).sum(-1)) / 2).clamp(min=0)


def _shares(weights: Tensor) -> Tensor:
    """Weights as shares in float64, which sum to 1 if any weight is not zero: of each key, then of each key with a negative weight."""
    wide = torch.cat([weights.clamp(min=0), -weights.clamp(max=0)], dim=-1).double()
    total = wide.sum(-1, keepdim=True)
    return wide / torch.where(total > 0, total, 1)
