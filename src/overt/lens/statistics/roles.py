"""What a head does in a recording: which of a few plain patterns its weights follow, and how closely."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from overt.attention.kernels.call import Block
from overt.attention.summary import Stages, gathered
from overt.lens.captured import Captured, CapturedCall, fresh, head_count
from overt.lens.tokens import Tokens, Words, between

# A pattern names the head where it takes at least half of the weight; spread-out weights, where nearly all of the entropy is there.
DECIDES, UNIFORM = 0.5, 0.95
SEPARATORS = frozenset({"[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"})
# Models bar keys by −inf or by their dtype's smallest number; this far below a row's largest score no weight is left.
BARRED = 3e4


@dataclass(frozen=True)
class Role:
    """What one head does. `scores` has every pattern's mean share of the weight, `score` that of the one that decides.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> role = recording.roles()[1]
    >>> role.number, role.head, 0 <= role.score <= 1
    (0, 1, True)
    """

    layer: str
    number: int
    head: int
    role: str
    score: float
    scores: dict[str, float] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.number:3}  {self.layer}  head {self.head:2}  {self.role} {self.score:.2f}"


def roles(call: Captured, shares: tuple[dict[str, float], ...]) -> list[Role]:
    """Name each kept head by the pattern that most of its weight follows.

    What follows none of them is "content", with what the closest pattern leaves over. A head whose weights hold NaN has the role
    "NaN": nothing is known of it.
    """
    return [
        Role(call.layer, call.number, head, *_decided(scores), scores) for head, scores in zip(call.heads, shares, strict=True)
    ]


def _decided(scores: dict[str, float]) -> tuple[str, float]:
    if any(map(math.isnan, scores.values())):
        return "NaN", math.nan
    shares = {name: score for name, score in scores.items() if name != "uniform"}
    best = max(shares, key=lambda name: shares[name], default=None)
    uniform = scores.get("uniform", 0.0)
    if uniform >= UNIFORM:
        return "uniform", uniform
    if best is not None and shares[best] >= DECIDES:
        return best, shares[best]
    return "content", 1 - (shares[best] if best is not None else uniform)


def measured(kept: CapturedCall, tokens: Tokens) -> tuple[dict[str, float], ...]:
    """How much of each kept head's weight follows each pattern, the mean over the queries that have a choice of keys.

    "previous token", "next token", "first token" (of queries after it; padding before it is no token) and "same token" need
    queries and keys of one sequence; "separator" needs the tokens, and "same token" is the query's own place without them.
    "uniform" is the entropy of the weights over that of equal ones.
    """
    shares = Shares(kept, tokens)
    gathered(fresh(kept.checked_call()), top=1, show_block=shares.add)
    return shares.means()


class Shares:
    """Gathers the weight that follows each pattern, block by block, as `measured` says."""

    def __init__(self, kept: CapturedCall, tokens: Tokens):
        self.kept, self.device = kept, kept.call.query.device
        self.words, asking = tokens.of_keys(kept), tokens.of_queries(kept)
        self.aligned = kept.keys - kept.queries  # the key of query 0: aligned at the end, as a cache is
        self.one_sequence = not between(kept) and (
            self.words is None or asking == [sentence[self.aligned :] for sentence in self.words]
        )
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self.start: Tensor | None = None

    def add(self, first: int, block: Block, stages: Stages) -> None:
        """Count a block's rows, from row `first` on."""
        _, masked, weights, _ = stages
        if not masked.numel():
            return
        masked, weights = self._by_head(masked), self._by_head(weights)  # (B, H, rows, K)
        allowed, count = self._allowed(masked)
        choice = count > 1  # (B, H, rows)
        own = torch.arange(first, first + masked.shape[-2], device=self.device) + self.aligned  # (rows,)
        if self.one_sequence:
            start = self._start(allowed)  # (B, 1)
            self.count("previous token", *_at(own - 1, own > 0, allowed, weights), choice)
            self.count("next token", *_at(own + 1, own < self.kept.keys - 1, allowed, weights), choice)
            self.count("first token", *_at(start, own > start, allowed, weights), choice)
        if self.one_sequence and self.words is None:
            self.count("same token", *_at(own, own >= 0, allowed, weights), choice)
        for name, pattern in self._of_words(own).items():  # (B, 1, rows or 1, K)
            self.count(name, (allowed & pattern).any(-1), torch.where(pattern, weights, 0).sum(-1), choice)
        spread = torch.special.entr(weights).sum(-1) / count.clamp(min=2).log()
        self.count("uniform", choice, spread, choice)

    def means(self) -> tuple[dict[str, float], ...]:
        """Each kept head's mean share of every pattern that any query could follow."""
        places = [self.kept.copies.index(head) for head in self.kept.heads]
        numbers = {name: (self.sums[name].tolist(), self.counts[name].tolist()) for name in self.sums}
        return tuple(
            {name: total[place] / count[place] for name, (total, count) in numbers.items() if count[place]} for place in places
        )

    def _allowed(self, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Which keys each query may attend to, and how many they are: (B, H, rows, K) and (B, H, rows)."""
        if self.kept.call.mask is None and self.kept.call.bias is None:
            everything = torch.ones((), dtype=torch.bool, device=self.device).expand(masked.shape)
            return everything, torch.full(masked.shape[:-1], float(self.kept.keys), device=self.device)
        largest = masked.amax(-1, keepdim=True)
        allowed = masked > (largest - BARRED).nan_to_num(-torch.inf, torch.inf, -torch.inf)
        if bool(largest.isnan().any()):
            allowed = allowed | masked.isnan()
        return allowed, allowed.sum(-1, dtype=torch.float32)

    def _start(self, allowed: Tensor) -> Tensor:
        """The first key that any of the first queries may attend to, which is no padding: (B, 1).

        Queries that continue a cache do not tell padding from a window's edge: there it is key 0.
        """
        if self.start is None:
            self.start = torch.full((allowed.shape[0], 1), -1, device=self.device) * (self.kept.queries == self.kept.keys)
        if bool((self.start < 0).any()):
            seen = allowed.any(-2).any(1)  # (B, K)
            found = torch.where(seen.any(-1), seen.int().argmax(-1), -1)[:, None]
            self.start = torch.where(self.start < 0, found, self.start)
        return self.start

    def _by_head(self, tensor: Tensor) -> Tensor:
        call = self.kept.call
        return tensor.expand(*call.batch, *tensor.shape[-2:]).reshape(-1, head_count(call), *tensor.shape[-2:])

    def count(self, name: str, reached: Tensor, share: Tensor, choice: Tensor) -> None:
        """Add up, for each head, the shares of the queries that have a choice and could follow the pattern."""
        counted = reached & choice  # (B, H, rows)
        self.sums[name] = self.sums.get(name, 0) + torch.where(counted, share, 0).double().sum((0, 2))
        self.counts[name] = self.counts.get(name, 0) + counted.sum((0, 2))

    @cached_property
    def marks(self) -> Tensor:
        """Which keys are separators, where there are tokens: (1 or B, K)."""
        return torch.tensor([[token in SEPARATORS for token in sentence] for sentence in self.words or []], device=self.device)

    @cached_property
    def ids(self) -> Tensor:
        """The same number for the same token: (1 or B, K)."""
        return torch.tensor(_numbered(self.words or []), device=self.device)

    def _of_words(self, own: Tensor) -> dict[str, Tensor]:
        if self.words is None:
            return {}
        patterns = {"separator": self.marks[:, None, None, :]}
        if self.one_sequence:
            patterns["same token"] = (self.ids[:, own, None] == self.ids[:, None, :])[:, None]
        return patterns


def _at(places: Tensor, there: Tensor, allowed: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each row may attend to the key at its place, if it is there, and the weight that it gives it: (B, H, rows) both."""
    index = places.clamp(0, weights.shape[-1] - 1).expand(weights.shape[0], weights.shape[2])[:, None, :, None]
    index = index.expand(*weights.shape[:-1], 1)
    reached = allowed.gather(-1, index)[..., 0] & there.expand(weights.shape[0], weights.shape[2])[:, None]
    return reached, weights.gather(-1, index)[..., 0]


def _numbered(words: Words) -> list[list[int]]:
    """The same number for the same token."""
    numbers = {token: place for place, token in enumerate(dict.fromkeys(token for sentence in words for token in sentence))}
    return [[numbers[token] for token in sentence] for sentence in words]
