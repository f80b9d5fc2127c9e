"""Heads that follow repetitions of a text: induction and duplicate-token heads, with intervals and chance baselines.

    duplicate token   the keys with the query's token, except the query's own position        (Wang et al. 2022, section 3.1)
    induction         the keys after these copies, except the query's own position            (Olsson et al. 2022, "Definition of
                                                                                               an induction head")

A pattern is a set of keys for each query. A query counts only if it may attend to keys both in and outside its set.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from overt.attention.kernels.blocked import BLOCK, query_block, query_rows, ready
from overt.attention.kernels.call import unrounded
from overt.attention.mechanism import formula
from overt.attention.normalizers import Softmax
from overt.lens.capture.ranges import MaskReader
from overt.lens.captured import CapturedCall, by_head, fresh
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.padding import text_queries, unmasked
from overt.lens.statistics.roles import PatternScore, Repetitions, relative_sizes
from overt.lens.tokens import Tokens, token_ids

# _WEIGHTS: a head's weights that are measured, all up to 512 × 512, else a sample of queries: at least _FEWEST_ROWS, in runs of
# _ROWS_TOGETHER rows.
_WEIGHTS, _FEWEST_ROWS, _ROWS_TOGETHER = 2**18, 64, 8

Run = tuple[int, int]


def repetition(captured: CapturedCall | CapturedMixer, tokens: Tokens, masks: MaskReader | None = None) -> Repetitions:
    """Each recorded head's scores on the repetitions of its text; empty without tokens or repetitions.

    Queries of padding are excluded, because padding repeats but is not text. Long calls are measured on a sample of at least 64
    queries: half of it from queries whose token also occurs earlier, half evenly from all queries.
    """
    words = tokens.key_words(captured)
    if words is None or not tokens.one_sequence(captured) or not captured.queries or not captured.batch:
        return tuple({} for _ in captured.heads)
    ids = torch.tensor(token_ids(words))  # (1 or B, K)
    in_text = text_queries(captured, tokens, masks)  # (1 or B, Q)
    earlier = _has_copy(ids)[:, captured.keys - captured.queries :] & in_text.to(ids.device)  # (1 or B, Q)
    if not bool(earlier.any()):
        return tuple({} for _ in captured.heads)
    sampled = _sampled_rows(earlier.any(0), captured.keys)
    totals = PatternTotals(ids, groups=ids, queries=captured.queries)
    for first, weights, allowed in weight_rows(captured, sampled):
        rows = in_text[:, None, first : first + weights.shape[-2], None]
        totals.add(first, torch.where(rows, weights, 0), allowed & rows)
    scores = pattern_scores(totals.totals())
    return tuple(scores[captured.copies.index(head)] for head in captured.heads)


def weight_rows(captured: CapturedCall | CapturedMixer, runs: list[Run]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The weights of runs of rows: the first row, the weights, and the keys that each row may attend to, both (B, H, rows, K).

    Weights of a linear mixer (signed) and of a call without a softmax are the shares |W| / Σ |W|.
    """
    if isinstance(captured, CapturedMixer):
        yield from _mixer_rows(captured, runs)
        return
    call = captured.checked_call()
    call = ready(fresh(replace(call, value=call.value[..., :0], dropout=0.0)))
    careful = call.mask is not None and not call.finite
    together = 1 if careful else max(BLOCK // max(math.prod(call.batch) * call.keys, 1), 1)
    with unrounded(call.query):
        parts = ((row, min(row + together, stop)) for first, stop in runs for row in range(first, stop, together))
        for first, stop in parts:
            block = query_block(call, query_rows(call, first, stop), every_key=True, careful=careful)
            _, masked, weights, _ = formula(block)
            weights = weights if isinstance(call.normalizer, Softmax) else relative_sizes(weights)
            masked, weights = by_head(call, masked), by_head(call, weights)
            yield first, weights, unmasked(masked, masked.amax(-1, keepdim=True))


def _mixer_rows(captured: CapturedMixer, runs: list[Run]) -> Iterator[tuple[int, Tensor, Tensor]]:
    recurrence = captured.recurrence
    together = max(BLOCK // max(recurrence.batch * recurrence.heads * recurrence.keys, 1), 1)
    rows = [row for run in runs for row in range(*run)]
    # The walk back costs K steps for any number of rows, so it takes many runs together.
    for part in (rows[start : start + together] for start in range(0, len(rows), together)):
        weights = relative_sizes(recurrence.weights(part))  # (B, H, rows, K)
        last = torch.tensor(part, device=weights.device) + recurrence.keys - recurrence.queries
        last = last - int(recurrence.reads == "before" and recurrence.diagonal is None)
        allowed = (torch.arange(recurrence.keys, device=weights.device) <= last[:, None]).expand(weights.shape)
        for index, row in enumerate(part):
            yield row, weights[:, :, index : index + 1], allowed[:, :, index : index + 1]


class PatternTotals:
    """Sums, over rows of weights (B, H, rows, K), of the weight on each pattern's keys and of the chance baselines.

    `ids` (1 or B, K) are equal for equal tokens; `groups` (1 or B, K) are equal for queries that are alike, and so are not
    independent observations. The queries are the last of the K positions.
    """

    def __init__(
        self, ids: Tensor, groups: Tensor, queries: int, *, patterns: tuple[str, ...] = ("induction", "duplicate token")
    ):
        self.ids: Tensor = ids
        self.groups: Tensor = groups
        self.queries = queries
        self.patterns = patterns
        self.group_count: int = int(groups.max()) + 1
        self.offset: int = ids.shape[-1] - queries
        self.sums: dict[str, Tensor] = {}

    def add(self, first: int, weights: Tensor, allowed: Tensor) -> None:
        """Count rows of weights from row `first` on."""
        batch, _, rows, _ = weights.shape
        self.ids, self.groups = self.ids.to(weights.device), self.groups.to(weights.device)
        # Most masks are equal for all heads; their counts are then computed once.
        if bool((allowed[:, :1] == allowed).all()):
            allowed = allowed[:, :1]
        count = allowed.sum(-1)  # (B, 1 or H, rows)
        self._sum("received", weights.sum(-2))  # (B, H, K)
        self._sum("may attend", allowed.sum(-2))
        self._by_distance("profile", first, weights)
        self._by_distance("profile count", first, allowed)
        at = torch.arange(first, first + rows, device=weights.device) + self.offset
        group = self.groups[:, at].expand(batch, rows)[:, None].expand(count.shape)
        for name in self.patterns:
            pairs = allowed & self._pattern_keys(name, at)[:, None] & (count > 1)[..., None]  # (B, 1 or H, rows, K)
            counted = pairs.any(-1)  # (B, 1 or H, rows)
            self._sum(f"{name}: share", torch.where(pairs, weights, 0).sum((0, 2, 3)))  # (H,)
            self._sum(f"{name}: equal", (pairs.sum(-1) / count.clamp(min=1)).sum((0, 2)))
            self._sum(f"{name}: received", pairs.sum(-2))  # (B, 1 or H, K)
            self._by_distance(f"{name}: distances", first, pairs)
            zeros = torch.zeros(*count.shape[:2], self.group_count, device=weights.device, dtype=torch.float64)
            self._sum(f"{name}: groups", zeros.scatter_add_(-1, group, counted.double()))

    def totals(self) -> dict[str, Tensor]:
        """For each pattern (H, 6): queries, squares of the groups' queries, weight, and the weight of each of three baselines.

        The totals of several calls of a head may be added.
        """
        return {name: self._total(name) for name in self.patterns} if self.sums else {}

    def _total(self, name: str) -> Tensor:
        sums = self.sums
        groups = sums[f"{name}: groups"]
        key_share = sums["received"] / sums["may attend"].clamp(min=1)  # (B, H, K), the mean weight of a key
        at_distance = sums["profile"] / sums["profile count"].clamp(min=1)  # (H, distances), the mean weight at a distance
        distances = sums[f"{name}: distances"]
        by_distance = torch.where(distances > 0, distances * at_distance, 0).sum(-1)
        if name == "previous token":
            by_distance = torch.zeros_like(by_distance)  # this pattern is itself a set of distances
        reached = sums[f"{name}: received"]
        by_key = torch.where(reached > 0, reached * key_share, 0).sum((0, 2))
        number, squares = groups.sum((0, 2)), groups.square().sum((0, 2))
        columns = (number, squares, sums[f"{name}: share"], sums[f"{name}: equal"], by_distance, by_key)
        return torch.stack(torch.broadcast_tensors(*columns), dim=-1)

    def _pattern_keys(self, name: str, at: Tensor) -> Tensor:
        """The keys of queries at these positions in a pattern: (1 or B, rows, K)."""
        positions = torch.arange(self.ids.shape[-1], device=at.device)
        distance = positions - at[:, None]  # (rows, K)
        if name == "previous token":
            return (distance == -1)[None]
        same = self.ids[:, at, None] == self.ids[:, None, :]  # (1 or B, rows, K)
        if name == "duplicate token":
            return same & (distance != 0)
        follows = torch.zeros_like(same)
        follows[..., 1:] = same[..., :-1]
        # A query is not a copy of itself, so the key after it (distance 1) follows no copy; the query itself is excluded.
        return follows & (distance != 0) & (distance != 1)

    def _sum(self, name: str, values: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0) + values.double()

    def _by_distance(self, name: str, first: int, values: Tensor) -> None:
        """Add values (B, 1 or H, rows, K), summed over batch and queries, at each distance from query to key (…, Q + K − 1)."""
        values = values.sum(0) if len(values) > 1 else values[0]
        heads, rows, keys = values.shape
        zeros = torch.zeros(heads, self.queries + keys - 1, device=values.device, dtype=torch.float64)
        for row in range(rows):
            start = self.queries - 1 - first - row
            zeros[:, start : start + keys] += values[:, row]
        self.sums[name] = self.sums.get(name, 0) + zeros


def pattern_scores(totals: dict[str, Tensor]) -> list[dict[str, PatternScore]]:
    """The score of each head in each pattern that any query could follow."""
    by_head: list[dict[str, PatternScore]] = []
    for name, total in totals.items():
        for head, numbers in enumerate(total.tolist()):
            if head == len(by_head):
                by_head.append({})
            if numbers[0]:
                by_head[head][name] = _score(*numbers)
    return by_head


def _score(number: float, squares: float, share: float, *chances: float) -> PatternScore:
    share, chance = share / number, max(chance / number for chance in chances)
    return PatternScore(share, *wilson(share, number**2 / squares), min(chance, 1.0), int(number))


def wilson(share: float, number: float) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) for the mean of `number` independent values between 0 and 1.

    The interval assumes zeros and ones. Other values between 0 and 1 with the same mean vary less, so it is not too narrow.

    >>> [round(end, 3) for end in wilson(0.5, 100)], [round(end, 3) for end in wilson(1.0, 4)]
    ([0.404, 0.596], [0.51, 1.0])
    """
    if math.isnan(share):
        return math.nan, math.nan
    share, z = min(max(share, 0.0), 1.0), 1.959964
    middle, half = share + z * z / (2 * number), z * math.sqrt(share * (1 - share) / number + (z / (2 * number)) ** 2)
    scale = 1 + z * z / number
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def _has_copy(ids: Tensor) -> Tensor:
    """Whether the token at each position also occurs earlier: (B, K)."""
    order = ids.argsort(dim=-1, stable=True)
    ordered = ids.gather(-1, order)
    repeated = torch.zeros_like(ids, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(repeated).scatter_(-1, order, repeated)


def _sampled_rows(earlier: Tensor, keys: int) -> list[Run]:
    """The rows to measure: all of them, or a sample of short runs."""
    queries, wanted = len(earlier), max(_WEIGHTS // keys, _FEWEST_ROWS)
    if queries <= wanted:
        return [(0, queries)]
    runs = torch.arange(0, queries, _ROWS_TOGETHER).tolist()
    telling = [first for first in runs if bool(earlier[first : first + _ROWS_TOGETHER].any())]
    half = wanted // _ROWS_TOGETHER // 2
    chosen = {part[index * len(part) // half] for part in (runs, telling) if part for index in range(half)}
    return [(first, min(first + _ROWS_TOGETHER, queries)) for first in sorted(chosen)]
