"""The role of a head in a recording: the simple pattern that its weights follow, and how closely."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from overt.attention.kernels.blocked import Block
from overt.attention.normalizers import Softmax
from overt.attention.summary import Stages, gathered
from overt.drawing.numbers import columns
from overt.lens.capture.ranges import MaskReader
from overt.lens.captured import Captured, CapturedCall, by_head, fresh
from overt.lens.head import head_name
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.padding import text_queries, uniform_rows, unmasked
from overt.lens.tokens import Tokens, Words, token_ids

# DECISIVE_SHARE: the least share of weight that makes a pattern the role; UNIFORM_ENTROPY: the least ratio to maximal entropy.
DECISIVE_SHARE, UNIFORM_ENTROPY = 0.5, 0.95
# PLAIN: roles that need no knowledge of the text; a page opens with a head of another role.
PLAIN = frozenset({"first token", "separator", "uniform", "same token", "previous token", "next token", "NaN"})
SEPARATORS = frozenset({"[SEP]", "</s>", "<s>", "<|endoftext|>", "<|im_end|>", "<eos>", ".", ",", ";", ":", "!", "?"})


@dataclass(frozen=True)
class PatternScore:
    """How closely a head follows a pattern: its mean weight on the pattern's keys, over the queries that have any.

    `share` has the 95 % interval from `low` to `high` (Wilson 1927). `chance` is the share of a head that does not compare tokens:
    the largest of equal weights, the head's mean weight at the same distances from query to key, and its mean weight on the same
    keys. `queries` is the number of queries behind the share. Queries of one token in a text are alike, and also queries of one
    repeated block in a probe, so the interval uses the effective number of queries (Σ n)² / Σ n² for groups of n queries (Kish 1965,
    section 8.2, for groups whose members are equal).

    >>> PatternScore(share=0.9, low=0.8, high=0.96, chance=0.1, queries=60)
    0.90 [0.80, 0.96] of 60 queries, chance 0.10
    """

    share: float
    low: float
    high: float
    chance: float
    queries: int

    @property
    def above_chance(self) -> bool:
        """Whether the whole interval is above the chance baseline."""
        return self.low > self.chance

    def __repr__(self) -> str:
        number = f"{self.queries:,} {'query' if self.queries == 1 else 'queries'}"
        return f"{self.share:.2f} [{self.low:.2f}, {self.high:.2f}] of {number}, chance {self.chance:.2f}"


# ROLE_WORDS: each role in words, the same in tables and on pages (viewer/web/heads/about.js).
ROLE_WORDS = {
    "first token": "usually the first token",
    "previous token": "usually the previous token",
    "next token": "usually the next token",
    "same token": "usually the same token",
    "separator": "usually a separator",
    "duplicate token": "usually another copy of the token",
    "induction": "usually the token after another copy",
    "uniform": "all tokens alike",
    "content": "no simple pattern",
    "NaN": "weights that are not numbers",
}


@dataclass(frozen=True)
class Role:
    """The role of one head. `scores` has every pattern's mean share of the weight, `score` the share of the deciding pattern.

    If a text repeats itself, `repetition` has "induction" (the keys after another copy of the query's token; Olsson et al. 2022) and
    "duplicate token" (the other copies themselves; Wang et al. 2022), each a `PatternScore` of the queries that have these keys. In a
    causal model the copies are earlier ones. A head has one of these roles only above chance. It "perhaps" has the role if its weight
    follows the pattern but chance explains it as well, typically in a text that repeats at one distance; `overt.lens.probe` decides.

    >>> import torch, overt
    >>> attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    >>> with overt.lens.record(attention) as recording:
    ...     _ = attention(x, x, x)
    >>> role = recording.roles()[1]
    >>> role.name, 0 <= role.score <= 1
    ('L0H1', True)
    """

    layer: str
    number: int
    head: int
    role: str
    score: float
    scores: dict[str, float] = field(repr=False)
    repetition: dict[str, PatternScore] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The head as figures and tables name it: "L5H11"."""
        return head_name(self.number, self.head)

    @property
    def words(self) -> str:
        """The role in the words of tables and pages: "usually the previous token"."""
        perhaps = self.role.startswith("perhaps ")
        return ROLE_WORDS[self.role.removeprefix("perhaps ")].replace("usually", "perhaps" if perhaps else "usually")

    @property
    def decisive(self) -> PatternScore | None:
        """The score behind a repetition role; None for other roles."""
        return self.repetition.get(self.role.removeprefix("perhaps "))

    def __str__(self) -> str:
        score = f"{self.score:.2f}" if self.decisive is None else str(self.decisive)
        return f"{self.name}  {self.layer}  {self.words} {score}"


class Roles(list[Role]):
    """A list of `Role`, one for each head in the order of the calls. Printed, it is a table.

    Repetition roles show the interval of their score, the number of queries and the chance baseline.

    >>> print(Roles([Role("encoder.layer.0", 0, 11, "previous token", 0.98, {}), Role("encoder.layer.10", 10, 3, "content", 0.7, {})]))
    head   layer             role                        score
    L0H11  encoder.layer.0   usually the previous token   0.98
    L10H3  encoder.layer.10  no simple pattern            0.70
    """

    def __str__(self) -> str:
        return "\n".join(columns([("head", "layer", "role", "score", ""), *map(_row, self)], right=["score"]))

    __repr__ = __str__


def _row(role: Role) -> tuple[str, ...]:
    evidence = "" if role.decisive is None else str(role.decisive).partition(" ")[2]  # without the share, which is the score
    return role.name, role.layer, role.words, f"{role.score:.2f}", evidence


Shares = tuple[dict[str, float], ...]
Repetitions = tuple[dict[str, PatternScore], ...]


def roles(call: Captured, shares: Shares, repetitions: Repetitions = ()) -> list[Role]:
    """The role of each recorded head: induction or duplicate token above chance, else the pattern that most of its weight follows.

    A head that follows no pattern is "content", with 1 − the share of the closest pattern as its score. A head with NaN weights has
    the role "NaN".
    """
    result = []
    for head, scores, repetition in zip(call.heads, shares, repetitions or ({},) * len(call.heads), strict=True):
        scores = scores | {name: score.share for name, score in repetition.items()}
        result.append(Role(call.layer, call.number, head, *_decided(scores, repetition), scores, repetition))
    return result


def _decided(scores: dict[str, float], repetition: dict[str, PatternScore]) -> tuple[str, float]:
    if any(map(math.isnan, scores.values())):
        return "NaN", math.nan
    shares = {name: score for name, score in scores.items() if name != "uniform"}
    uniform = scores.get("uniform", 0.0)
    if uniform >= UNIFORM_ENTROPY:
        return "uniform", uniform
    above_chance = {name: score.share for name, score in repetition.items() if score.above_chance}
    for candidates in (above_chance, shares):
        best = max(candidates, key=lambda name: candidates[name], default=None)
        if best is not None and candidates[best] >= DECISIVE_SHARE:
            return (f"perhaps {best}" if best in repetition and best not in above_chance else best), candidates[best]
    return "content", 1 - max(shares.values(), default=uniform)


def measured(captured: CapturedCall, tokens: Tokens, masks: MaskReader | None = None) -> tuple[dict[str, float], ...]:
    """The mean share of each recorded head's weight on each pattern, over the queries that have a choice of keys.

    Queries of padding are excluded, see `text_queries`. "previous token", "next token", "first token" (for queries after it; padding
    is not a token) and "same token" need queries and keys of one sequence. "separator" needs tokens; "same token" is the query's own
    position without tokens. "uniform" is the entropy of the weights divided by the entropy of equal weights, undefined for rows with
    a negative weight. Weights that need not sum to 1 count by their sizes, divided by the row's sum of sizes.
    """
    shares = RoleShares(captured, tokens, MaskReader() if masks is None else masks)
    gathered(fresh(captured.checked_call()), top=1, show_block=shares.add)
    return shares.means()


class RoleShares:
    """Sums of the weight on each pattern, added block by block; `measured` defines the patterns."""

    def __init__(self, captured: CapturedCall | CapturedMixer, tokens: Tokens, masks: MaskReader | None = None):
        self.captured = captured
        self.device: torch.device = captured.output.device
        self.words: Words | None = tokens.key_words(captured)
        self.offset: int = captured.keys - captured.queries  # the key of query 0: aligned at the end, as a cache is
        self.one_sequence: bool = tokens.one_sequence(captured)
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self.in_text: Tensor = text_queries(captured, tokens, masks)  # (1 or B, Q)

    def add(self, first: int, block: Block, stages: Stages) -> None:
        """Count a block's rows, from row `first` on."""
        _, masked, weights, _ = stages
        if not masked.numel():
            return
        assert isinstance(self.captured, CapturedCall)
        masked, weights = (by_head(self.captured.call, part) for part in (masked, weights))  # (B, H, rows, K)
        signed = (weights < 0).any(-1)
        weights = weights if isinstance(self.captured.call.normalizer, Softmax) else relative_sizes(weights)
        self.add_weights(first, weights, *self._allowed(masked), signed)

    def add_weights(self, first: int, weights: Tensor, allowed: Tensor, count: Tensor, signed: Tensor | None = None) -> None:
        """Count rows of weights from row `first` on, with the keys that each row may attend to, (B, H, rows, K), and their number.

        `signed` (B, H, rows) marks rows without an entropy, because some of their weights were negative.
        """
        rows = slice(first, first + weights.shape[-2])
        choice = (count > 1) & self.in_text[:, None, rows]  # (B, H, rows)
        self_key = torch.arange(first, first + weights.shape[-2], device=self.device) + self.offset  # (rows,)
        if self.one_sequence:
            self.count("previous token", *_at_key(self_key - 1, self_key > 0, allowed, weights), choice)
            self.count("next token", *_at_key(self_key + 1, self_key < self.captured.keys - 1, allowed, weights), choice)
            self.count("first token", *_at_key(self.start, self_key > self.start, allowed, weights), choice)
        if self.one_sequence and self.words is None:
            self.count("same token", *_at_key(self_key, self_key >= 0, allowed, weights), choice)
        for name, pattern in self._word_patterns(self_key).items():  # (B, 1, rows or 1, K)
            self.count(name, (allowed & pattern).any(-1), torch.where(pattern, weights, 0).sum(-1), choice)
        spread = torch.special.entr(weights).sum(-1) / count.clamp(min=2).log()
        self.count("uniform", choice if signed is None else choice & ~signed, spread, choice)

    def means(self) -> tuple[dict[str, float], ...]:
        """Each recorded head's mean share of every pattern that any query could follow."""
        indices = [self.captured.copies.index(head) for head in self.captured.heads]
        numbers = {name: (self.sums[name].tolist(), self.counts[name].tolist()) for name in self.sums}
        return tuple({name: sums[i] / counts[i] for name, (sums, counts) in numbers.items() if counts[i]} for i in indices)

    def _allowed(self, masked: Tensor) -> tuple[Tensor, Tensor]:
        """The keys that each query may attend to, and their number: (B, H, rows, K) and (B, H, rows)."""
        assert isinstance(self.captured, CapturedCall)
        if self.captured.call.mask is None and self.captured.call.bias is None:
            everything = torch.ones((), dtype=torch.bool, device=self.device).expand(masked.shape)
            return everything, torch.full(masked.shape[:-1], float(self.captured.keys), device=self.device)
        largest = masked.amax(-1, keepdim=True)
        allowed = unmasked(masked, largest) & ~uniform_rows(largest)
        if bool(largest.isnan().any()):
            allowed = allowed | masked.isnan()
        return allowed, allowed.sum(-1, dtype=torch.float32)

    @cached_property
    def start(self) -> Tensor:
        """The first key that is not padding: (1 or B, 1). For queries that continue a cache it is key 0."""
        continues = self.captured.queries != self.captured.keys
        return self.in_text.new_zeros(1, 1).long() if continues else self.in_text.int().argmax(-1, keepdim=True)

    def count(self, name: str, reached: Tensor, share: Tensor, choice: Tensor) -> None:
        """Add up, for each head, the shares of the queries that have a choice and could follow the pattern."""
        counted = reached & choice  # (B, H, rows)
        self.sums[name] = self.sums.get(name, 0) + torch.where(counted, share, 0).double().sum((0, 2))
        self.counts[name] = self.counts.get(name, 0) + counted.sum((0, 2))

    @cached_property
    def separators(self) -> Tensor:
        """Whether each key is a separator: (1 or B, K)."""
        return torch.tensor([_separators(sentence) for sentence in self.words or []], device=self.device)

    @cached_property
    def ids(self) -> Tensor:
        """A number for each token, equal for equal tokens: (1 or B, K)."""
        return torch.tensor(token_ids(self.words or []), device=self.device)

    def _word_patterns(self, self_key: Tensor) -> dict[str, Tensor]:
        if self.words is None:
            return {}
        patterns = {"separator": self.separators[:, None, None, :]}
        if self.one_sequence:
            patterns["same token"] = (self.ids[:, self_key, None] == self.ids[:, None, :])[:, None]
        return patterns


def relative_sizes(weights: Tensor) -> Tensor:
    """The size of each weight as a share of its row's (..., K), |w_j| / Σ |w|; a row of zeros stays zero."""
    sizes = weights.abs()
    total = sizes.sum(-1, keepdim=True)
    return sizes / torch.where(total == 0, 1, total)


def _separators(sentence: list[str]) -> list[bool]:
    """Whether each token is a separator: punctuation or a special token, except the first token, which is a pattern itself."""
    special = [getattr(token, "special", False) for token in sentence]
    first = next((index for index, token in enumerate(sentence) if not getattr(token, "padding", False)), 0)
    return [
        not (special[index] and index == first) and (special[index] or token in SEPARATORS)
        for index, token in enumerate(sentence)
    ]


def _at_key(key: Tensor, exists: Tensor, allowed: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each row may attend to its key, if the key exists, and the key's weight: both (B, H, rows)."""
    index = key.clamp(0, weights.shape[-1] - 1).expand(weights.shape[0], weights.shape[2])[:, None, :, None]
    index = index.expand(*weights.shape[:-1], 1)
    reached = allowed.gather(-1, index)[..., 0] & exists.expand(weights.shape[0], weights.shape[2])[:, None]
    return reached, weights.gather(-1, index)[..., 0]
