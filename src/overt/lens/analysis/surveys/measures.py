"""The measures of each head in each text: sums over queries, and numbers of queries."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from overt.lens.captured import CapturedCall, by_head, head_count
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.repetition import weight_rows


class Measure(NamedTuple):
    """A mean over queries or over texts: its name, its meaning, and whether it is a pattern, with a chance value from equal weights."""

    name: str
    meaning: str
    pattern: bool = False


MEASURES = (
    Measure("entropy", "how widely the weights are spread: −Σ w log w, in nats"),
    Measure("uniform", "how near the weights are to equal ones: the entropy divided by that of equal weights"),
    Measure("largest", "the largest weight of a query"),
    Measure("distance", "how far away the keys are: Σ w |i − j|, in tokens"),
    Measure("previous token", "the weight on the token before", True),
    Measure("next token", "the weight on the token after", True),
    Measure("first token", "the weight on the first token, for queries after it", True),
    Measure("same token", "the weight on tokens with the query's id, itself included", True),
    Measure("separator", "the weight on punctuation and on special tokens but the first", True),
    Measure("special", "the weight on special tokens", True),
    Measure("special by norm", "the share of special tokens in Σ w ‖v‖ (Kobayashi et al. 2020, section 3)"),
    Measure("duplicate token", "the weight on other tokens with the query's id", True),
    Measure("induction", "the weight on tokens that follow another one with the query's id", True),
    Measure("received", "how much the most attended token of a text gets: its mean weight, the mean over texts"),
    Measure("output norm", "the length of the vector that the head reads: ‖Σ w v‖"),
)
NAMES = tuple(measure.name for measure in MEASURES)
PATTERNS = tuple(measure.name for measure in MEASURES if measure.pattern)
ROWS = NAMES + tuple(f"{name}: chance" for name in PATTERNS)  # names of all sums
REPETITIONS = ("duplicate token", "induction")
PAIRS = ("any", *REPETITIONS)  # kinds of pairs of query and key, whose weight is also summed by distance
FARTHEST = 512  # largest distance from query to key, in tokens; longer distances count as this one


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts as a model reads them: token ids (B, N), −1 after a text's end, and whether each token is special or a separator."""

    ids: Tensor
    lengths: Tensor
    special: Tensor
    separators: Tensor


class StrongestLinks(NamedTuple):
    """Each head's largest weight in each text on a token that is not special, with its query and key: each (B, H)."""

    weights: Tensor
    queries: Tensor
    keys: Tensor


class Profile(NamedTuple):
    """Each head's weight at each distance from −reach to reach, and the number of pairs: each (PAIRS, B, H, 2 · reach + 1), float64."""

    weights: Tensor
    pairs: Tensor


class CallMeasurements(NamedTuple):
    """The measures of one call: sums and numbers of queries, each (ROWS, B, H), float64, the strongest links, and the profile."""

    sums: Tensor
    counts: Tensor
    link: StrongestLinks
    profile: Profile


def measured(captured: CapturedCall | CapturedMixer, texts: TextBatch) -> CallMeasurements:
    """Measure a call whose queries and keys are the tokens of these texts; weights are computed a block of rows at a time.

    A query counts if it may attend to more than one token; for a pattern, if it may attend to a token of the pattern. Weights of a linear
    mixer are the shares |W| / Σ |W|.
    """
    call = _CallMeasures(captured, texts)
    for first, weights, allowed in weight_rows(captured, [(0, captured.queries)]):
        call.add(first, weights, allowed)
    return call.result()


@dataclass(eq=False)
class _CallMeasures:
    """Adds up the rows of one call."""

    captured: CapturedCall | CapturedMixer
    texts: TextBatch
    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)
    received: Tensor | None = None
    queries: Tensor | None = None
    link: StrongestLinks | None = None
    profile: dict[str, Profile] = field(default_factory=dict)

    def add(self, first: int, weights: Tensor, allowed: Tensor) -> None:
        """Add rows from `first` on: their weights, and whether they may attend to each key, (B, H, rows, K)."""
        rows, keys = weights.shape[-2:]
        if bool((allowed[:, :1] == allowed).all()):
            allowed = allowed[:, :1]
        position = torch.arange(first, first + rows, device=weights.device)
        number = allowed.sum(-1)  # (B, 1 or H, rows)
        choice = (number > 1) & (position < self.texts.lengths[:, None])[:, None]
        distance = torch.arange(keys, device=weights.device) - position[:, None]  # (rows, K)
        entropy = torch.special.entr(weights).sum(-1)
        self._count("entropy", entropy, choice)
        self._count("uniform", entropy / number.clamp(min=2).log(), choice)
        self._count("largest", weights.amax(-1), choice)
        self._count("distance", (weights * distance.abs()).sum(-1), choice)
        self._count_distances("any", first, allowed, weights, choice)
        for name, pattern in self._patterns(position, distance).items():
            pairs = allowed & pattern[:, None]  # (B, 1 or H, rows, K)
            self._count_pattern(name, pairs, weights, allowed, choice)
            if name in REPETITIONS:
                self._count_distances(name, first, pairs, weights, choice)
        self._count_norms(first, weights, choice)
        got = torch.where(choice[..., None], weights, 0).sum(-2)  # (B, H, K)
        self.received = got if self.received is None else self.received + got
        number_of_queries = choice.sum(-1)
        self.queries = number_of_queries if self.queries is None else self.queries + number_of_queries
        self._strongest(first, weights, choice)

    def _patterns(self, position: Tensor, distance: Tensor) -> dict[str, Tensor]:
        """Whether each key belongs to each pattern: (1 or B, rows or 1, K)."""
        ids = self.texts.ids
        same = ids[:, position, None] == ids[:, None, :]  # (B, rows, K)
        other = same & (distance != 0)
        follows = torch.zeros_like(same)
        follows[..., 1:] = same[..., :-1]
        first = torch.zeros_like(distance, dtype=torch.bool)
        first[:, :1] = (position > 0)[:, None]
        return {
            "previous token": (distance == -1)[None],
            "next token": (distance == 1)[None],
            "first token": first[None],
            "same token": same,
            "separator": self.texts.separators[:, None],
            "special": self.texts.special[:, None],
            "duplicate token": other,
            # A query is no copy of itself, and is not the token after a copy of itself.
            "induction": follows & (distance != 0) & (distance != 1),
        }

    def _count_pattern(self, name: str, pairs: Tensor, weights: Tensor, allowed: Tensor, choice: Tensor) -> None:
        counted = pairs.any(-1) & choice
        self._count(name, torch.where(pairs, weights, 0).sum(-1), counted)
        self._count(f"{name}: chance", pairs.sum(-1) / allowed.sum(-1).clamp(min=1), counted)

    def _count_distances(self, name: str, first: int, pairs: Tensor, weights: Tensor, choice: Tensor) -> None:
        pairs = pairs & choice[..., None]
        sums, numbers = (_by_distance(part, first) for part in (torch.where(pairs, weights, 0), pairs))
        before = self.profile.get(name)
        self.profile[name] = (
            Profile(sums, numbers) if before is None else Profile(before.weights + sums, before.pairs + numbers)
        )

    def _count_norms(self, first: int, weights: Tensor, choice: Tensor) -> None:
        if isinstance(self.captured, CapturedMixer):
            return
        rows = weights.shape[-2]
        norms = _lengths_by_head(self.captured, self.captured.call.value)  # (B, H, K)
        by_norm = weights * norms[..., None, :]
        total = by_norm.sum(-1)
        special = torch.where(self.texts.special[:, None, None], by_norm, 0).sum(-1)
        counted = choice & self.texts.special.any(-1)[:, None, None] & (total > 0)
        self._count("special by norm", special / torch.where(total > 0, total, 1), counted)
        output = _lengths_by_head(self.captured, self.captured.output)[..., first : first + rows]
        self._count("output norm", output, choice)

    def _strongest(self, first: int, weights: Tensor, choice: Tensor) -> None:
        wanted = choice[..., None] & ~self.texts.special[:, None, None]
        largest, at = torch.where(wanted, weights, -1.0).flatten(2).max(-1)  # (B, H)
        keys = weights.shape[-1]
        link = StrongestLinks(largest, first + at // keys, at % keys)
        if self.link is not None:
            better = link.weights > self.link.weights
            link = StrongestLinks(*(torch.where(better, new, old) for new, old in zip(link, self.link, strict=True)))
        self.link = link

    def _count(self, name: str, values: Tensor, counted: Tensor) -> None:
        """Add the values (B, H, rows) of the counted queries for each text and head."""
        total = torch.where(counted, values, 0).double().sum(-1)
        number = counted.sum(-1).double().expand(total.shape)
        self.sums[name] = self.sums[name] + total if name in self.sums else total
        self.counts[name] = self.counts[name] + number if name in self.counts else number

    def result(self) -> CallMeasurements:
        """The sums of all rows."""
        assert self.received is not None
        assert self.queries is not None
        assert self.link is not None
        has_queries = (self.queries > 0).double().expand(self.received.shape[:2])
        self.sums["received"] = (self.received / self.queries.clamp(min=1)[..., None]).amax(-1).double() * has_queries
        self.counts["received"] = has_queries
        zeros = torch.zeros_like(self.sums["entropy"])
        sums = torch.stack([self.sums[name].expand(zeros.shape) if name in self.sums else zeros for name in ROWS])
        counts = torch.stack([self.counts.get(name, zeros).expand(zeros.shape) for name in ROWS])
        profiles = [self.profile[name] for name in PAIRS]
        weights, pairs = (
            torch.stack([profile[part].expand(profiles[0].weights.shape) for profile in profiles]) for part in (0, 1)
        )
        return CallMeasurements(sums, counts, self.link, Profile(weights, pairs))


def _by_distance(values: Tensor, first: int) -> Tensor:
    """The sums of values (B, H, rows, K), rows from `first` on, at each distance from query to key: (B, H, 2 · reach + 1)."""
    rows, keys = values.shape[-2:]
    reach = min(keys - 1, FARTHEST)
    # The last row comes first: each following row is shifted by one, so that a distance is a column.
    padded = torch.nn.functional.pad(values.flip(-2), (0, rows)).flatten(-2)[..., :-rows]
    columns = padded.unflatten(-1, (rows, rows + keys - 1)).sum(-2, dtype=torch.float64)
    distance = torch.arange(rows + keys - 1, device=values.device) - (first + rows - 1)
    sums = torch.zeros(*columns.shape[:-1], 2 * reach + 1, dtype=torch.float64, device=values.device)
    return sums.index_add_(-1, distance.clamp(-reach, reach) + reach, columns)


def _lengths_by_head(captured: CapturedCall, tensor: Tensor) -> Tensor:
    """The norms of the vectors (…, N, E) of each head: (B, H, N)."""
    heads, norms = head_count(captured.call), tensor.float().norm(dim=-1)
    if tensor.ndim >= 4 and norms.shape[-2] not in (1, heads):
        norms = norms.repeat_interleave(heads // norms.shape[-2], dim=-2)
    return by_head(captured.call, norms, last=1)
