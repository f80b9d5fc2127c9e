"""The shares behind `roles` for a call of any length: exact, in memory linear in the lengths.

Every pattern is a set of keys for each query: one key (the previous, the next, the first, the query's own), or those with one id in a
range (the same token, separators). The native summary adds up the weights of all sets while it reads the scores, so
a further pattern costs one more sum. The number of keys of a set that a query may attend to follows from the ranges of the mask.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.flat.summary import KeySet
from overt.attention.kernels.plan import permits
from overt.attention.normalizers import Sigmoid, Sum
from overt.attention.summary import Summary, with_masses
from overt.lens.capture.ranges import MaskReader, Ranges, in_ranges
from overt.lens.captured import CapturedCall, by_head
from overt.lens.statistics.padding import masks_nothing, without_uniform_rows
from overt.lens.statistics.roles import RoleShares, Shares, measured
from overt.lens.tokens import Tokens


def measured_shares(captured: CapturedCall, tokens: Tokens, masks: MaskReader) -> Shares:
    """The shares that `roles.measured` defines: by the native kernel if it supports the call, else from blocks of full weights."""
    call = replace(captured.checked_call(), dropout=0.0)
    ranges = key_ranges(call, masks)
    if ranges is None:
        return measured(captured, tokens, masks)
    call = replace(call, value=call.key[..., :0], mask=None if call.mask is None else ranges)
    patterns = Patterns(captured, call, tokens, ranges, masks)
    return patterns.means(*with_masses(call, 1, patterns.sets))


def key_ranges(call: Call, masks: MaskReader) -> Ranges | None:
    """The mask as one range of keys for each query; None if the native kernel does not support the call or a bias masks keys."""
    if not permits("native") or flat_summary.refusal(replace(call, mask=None)) is not None or not masks_nothing(call.bias):
        return None
    return in_ranges(call.mask, call.queries, call.keys, call.query.device, masks.read)


class Pattern(NamedTuple):
    """A pattern's name, its keys, and whether each query may attend to any of these keys: (..., Q)."""

    name: str
    keys: KeySet
    reached: Tensor


class Patterns:
    """The patterns of `roles.measured` as sets of keys, for a call without dropout whose mask is these ranges."""

    def __init__(self, captured: CapturedCall, call: Call, tokens: Tokens, ranges: Ranges, masks: MaskReader):
        self.shares: RoleShares = RoleShares(captured, tokens, masks)
        self.call = call
        ranges = without_uniform_rows(ranges, call.bias)
        self.low: Tensor = ranges.low.long()  # (..., Q) or (..., 1)
        self.high: Tensor = ranges.high.long()  # (..., Q) or (..., 1)
        self.allowed_keys: Tensor = self._by_head(self.high - self.low)  # the number of keys that each query may attend to
        self.self_key: Tensor = torch.arange(call.queries, device=call.query.device) + self.shares.offset  # (Q,)
        self.relative: bool = isinstance(call.normalizer, Sigmoid | Sum)  # whether weights may be negative or not sum to 1
        self.patterns: list[Pattern] = self._patterns() if self.allowed_keys.numel() else []

    @property
    def sets(self) -> list[KeySet]:
        """The keys of each pattern, followed by all keys if weights need not sum to 1."""
        sets = [pattern.keys for pattern in self.patterns]
        none = torch.zeros_like(self.self_key)
        return [*sets, KeySet(none, none + self.call.keys)] if self.relative else sets

    def means(self, summary: Summary, masses: Tensor) -> Shares:
        """Each recorded head's mean share of every pattern, from the call's summary and the weight on each set (..., Q, sets)."""
        if not self.allowed_keys.numel():
            return self.shares.means()
        choice = (self.allowed_keys > 1) & self.shares.in_text[:, None]
        if self.relative:
            total = masses[..., -1:]
            masses = masses[..., :-1] / torch.where(total == 0, 1, total)
        for pattern, share in zip(self.patterns, masses.unbind(-1), strict=True):
            self.shares.count(pattern.name, self._by_head(pattern.reached), self._by_head(share), choice)
        self.shares.count("uniform", self._has_entropy(summary), self._spread(summary), choice)
        return self.shares.means()

    def _patterns(self) -> list[Pattern]:
        shares, patterns = self.shares, []
        if shares.one_sequence:
            start = self._before_heads(self.shares.start)  # (B, 1, 1), or with all dimensions before the call's features
            patterns.append(self._one_key("previous token", self.self_key - 1, self.self_key > 0))
            patterns.append(self._one_key("next token", self.self_key + 1, self.self_key < self.call.keys - 1))
            patterns.append(self._one_key("first token", start, self.self_key > start))
        if shares.words is not None:
            marks = self._before_heads(shares.separators).long()
            patterns.append(self._with_id("separator", torch.ones_like(marks[..., :1]), marks))
            if shares.one_sequence:
                ids = self._before_heads(shares.ids)
                patterns.append(self._with_id("same token", ids[..., shares.offset :], ids))
        elif shares.one_sequence:
            patterns.append(self._one_key("same token", self.self_key, self.self_key >= 0))
        return patterns

    def _one_key(self, name: str, key: Tensor, exists: Tensor) -> Pattern:
        """The pattern of one key for each query, (..., Q) or (..., 1), if this key exists."""
        low, high = self._per_query(torch.where(exists, key, 0)), self._per_query(torch.where(exists, key + 1, 0))
        return Pattern(name, KeySet(low, high), torch.maximum(self.low, low) < torch.minimum(self.high, high))

    def _with_id(self, name: str, queries: Tensor, keys: Tensor) -> Pattern:
        """The pattern of the keys with the query's id: (..., Q or 1) and (..., K), without the dimension of heads."""
        queries, edge = self._per_query(queries), torch.zeros_like(self.self_key)
        # Sorted by id and position, the keys of one id in a range of the mask are neighbours.
        numbers = (keys * (self.call.keys + 1) + torch.arange(self.call.keys, device=keys.device)).sort(dim=-1).values
        low, high = (_searchsorted(numbers, queries * (self.call.keys + 1) + edge) for edge in (self.low, self.high))
        return Pattern(name, KeySet(edge, edge + self.call.keys, queries, keys), low < high)

    def _per_query(self, tensor: Tensor) -> Tensor:
        return tensor.expand(*tensor.shape[:-1], self.call.queries)

    def _spread(self, summary: Summary) -> Tensor:
        """The entropy of the weights divided by the entropy of equal weights; a sink's weight is excluded."""
        entropy, sink = summary.entropy, summary.sink
        if sink is not None:
            left = 1 - sink
            entropy = left * entropy + torch.special.entr(left)
        return self._by_head(entropy) / self.allowed_keys.clamp(min=2).log()

    def _has_entropy(self, summary: Summary) -> Tensor:
        """Queries without a negative weight (B, H, Q); queries with NaN weights count, and make the role NaN."""
        if summary.support is None:
            return torch.ones_like(self._by_head(summary.entropy), dtype=torch.bool)
        return self._by_head(~summary.entropy.isnan() | (summary.support < 0))

    def _by_head(self, tensor: Tensor) -> Tensor:
        """A value for each query, (..., Q or 1), as (B, H, Q)."""
        return by_head(self.call, self._per_query(tensor), last=1)

    def _before_heads(self, tensor: Tensor) -> Tensor:
        """Values of each sequence, (1 or B, N), in as many dimensions as the call has before its features."""
        batch = self.call.batch
        headed = self.call.query.ndim >= 4 and bool(batch)
        lead = batch[:-1] if headed else batch
        lead = lead if tensor.shape[0] > 1 else (1,) * len(lead)
        return tensor.reshape(*lead, *((1,) if headed else ()), tensor.shape[-1])


def _searchsorted(numbers: Tensor, values: Tensor) -> Tensor:
    """The insertion positions of values (..., Q) among ascending numbers (..., K)."""
    lead = torch.broadcast_shapes(numbers.shape[:-1], values.shape[:-1])
    return torch.searchsorted(numbers.expand(*lead, -1).contiguous(), values.expand(*lead, -1).contiguous())
