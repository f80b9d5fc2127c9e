"""What a head does in a recording: which of a few plain patterns its weights follow, and how closely."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from overt.errors import InputError
from overt.lens.head import Head

# A pattern names the head where it takes at least half of the weight; spread-out weights, where nearly all of the entropy is there.
DECIDES, UNIFORM = 0.5, 0.95
SEPARATORS = frozenset({"[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"})
_ROWS = 256


@dataclass(frozen=True)
class Role:
    """What one head does. `scores` has every pattern's mean share of the weight, `score` that of the one that decides."""

    layer: str
    number: int
    head: int
    role: str
    score: float
    scores: dict[str, float] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.number:3}  {self.layer}  head {self.head:2}  {self.role} {self.score:.2f}"


def role(head: Head) -> Role:
    """Measure the patterns of one head: the mean weight, over the queries that have a choice, that follows each.

    "previous token", "next token", "first token" (of queries after it) and "same token" need queries and keys of one sequence;
    "separator" needs the tokens, and "same token" is the query's own place without them. "uniform" is the entropy of the weights over
    that of equal ones. What follows none of them is "content", with what the closest pattern leaves over.
    """
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for first in range(0, head.queries, _ROWS):
        stop = min(first + _ROWS, head.queries)
        found = head.stages(first, stop)
        allowed = found.masked != -math.inf  # (B, rows, K)
        choice = allowed.sum(-1) > 1  # (B, rows)
        for name, pattern in _patterns(head, first, stop).items():
            reached = (allowed & pattern).any(-1) & choice
            shares = torch.where(pattern, found.weights, 0).sum(-1)[reached]
            sums[name] = sums.get(name, 0.0) + float(shares.double().sum())
            counts[name] = counts.get(name, 0.0) + len(shares)
        spread = torch.special.entr(found.weights.double()).sum(-1) / allowed.sum(-1).clamp(min=2).double().log()
        sums["uniform"] = sums.get("uniform", 0.0) + float(spread[choice].sum())
        counts["uniform"] = counts.get("uniform", 0.0) + int(choice.sum())
    scores = {name: sums[name] / counts[name] for name in sums if counts[name]}
    return Role(head.layer, head.captured.number, head.head, *_decided(scores), scores)


def _decided(scores: dict[str, float]) -> tuple[str, float]:
    shares = {name: score for name, score in scores.items() if name != "uniform"}
    best = max(shares, key=lambda name: shares[name], default=None)
    uniform = scores.get("uniform", 0.0)
    if uniform >= UNIFORM:
        return "uniform", uniform
    if best is not None and shares[best] >= DECIDES:
        return best, shares[best]
    return "content", 1 - (shares[best] if best is not None else uniform)


def _patterns(head: Head, first: int, stop: int) -> dict[str, Tensor]:
    """For each pattern the keys that it would look at: bool, broadcastable to (B, rows, K)."""
    device = head.captured.call.query.device
    keys = torch.arange(head.keys, device=device)
    words = _words(head)
    patterns: dict[str, Tensor] = {}
    if words is not None:
        marks = [[token in SEPARATORS for token in sentence] for sentence in words]
        patterns["separator"] = torch.tensor(marks, device=device)[:, None, :]
    if head.queries > head.keys or not _one_sequence(head):
        return patterns
    own = torch.arange(first, stop, device=device)[:, None] + head.keys - head.queries  # aligned at the end, as a cache is
    patterns |= {"previous token": keys == own - 1, "next token": keys == own + 1, "first token": (keys == 0) & (own > 0)}
    patterns["same token"] = keys == own
    if words is not None:
        numbers = {token: place for place, token in enumerate(dict.fromkeys(token for sentence in words for token in sentence))}
        ids = torch.tensor([[numbers[token] for token in sentence] for sentence in words], device=device)
        patterns["same token"] = ids[:, own[:, 0], None] == ids[:, None, :]
    return patterns


def _one_sequence(head: Head) -> bool:
    return head.queries == head.keys or head.queries == 1 or "cross" not in head.layer.lower()


def _words(head: Head) -> list[list[str]] | None:
    """The tokens of each batch element, if there are any for this head's keys."""
    if not head.tokens:
        return None
    sentences = [head.tokens] if isinstance(head.tokens[0], str) else head.tokens
    if any(len(sentence) != head.keys for sentence in sentences):
        raise InputError(
            "recording.tokens has one string for each key, a list of them for each batch element",
            got=f"{[len(sentence) for sentence in sentences]} tokens for {head.keys} keys of {head.layer}",
            cure="set recording.tokens to the tokens that the model read, padding and special ones included",
        )
    return [list(sentence) for sentence in sentences]
