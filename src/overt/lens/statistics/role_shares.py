"""The shares of `roles` for a call of any length: exactly those of the weights, in memory linear in the lengths.

The weight of a set S of keys is exp(lse_i(S) − lse_i), where lse_i(S) = log Σ_{j in S} exp(score_ij) is what the native summary
computes under a mask that allows S alone. The previous key, the next key, the first key and the query's own key are ranges of one key,
so the kernel skips nearly all tiles. Keys with the same token become one range when queries and keys are sorted by their tokens.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.attention.kernels.flat.summary import summarized
from overt.attention.masks import Documents
from overt.attention.masks.base import Both
from overt.attention.summary import Summary
from overt.lens.capture.ranges import Ranges
from overt.lens.captured import CapturedCall, head_count
from overt.lens.statistics.roles import RoleShares
from overt.lens.tokens import Tokens


class SharesByKernel:
    """The result of `roles.measured` for a call that the native kernel summarises, whose mask is these ranges of keys.

    `call` is that of `captured` without dropout, and `summary` its statistics.
    """

    def __init__(self, captured: CapturedCall, call: Call, tokens: Tokens, ranges: Ranges, summary: Summary):
        self.shares, self.ranges, self.summary = RoleShares(captured, tokens), ranges, summary
        # The share of a sink belongs to no key: it is in the summary's own log-sum-exp, and not in that of a set of keys.
        self.call = replace(call, value=call.key[..., :0], normalizer=replace(call.normalizer, sink=None))
        self.keys, self.heads = call.keys, head_count(call)
        self.low, self.high = ranges.low.long(), ranges.high.long()  # (..., Q) or (..., 1)
        self.allowed_keys = self._by_head(self.high - self.low)  # how many keys each query may attend to
        self.choice = self.allowed_keys > 1
        self.self_key = torch.arange(call.queries, device=call.query.device) + self.shares.offset  # (Q,)

    def means(self) -> tuple[dict[str, float], ...]:
        """Each recorded head's mean share of every pattern."""
        shares = self.shares
        if not self.allowed_keys.numel():
            return shares.means()
        if shares.one_sequence:
            start = self._start()  # (B, 1, 1), or of as many dimensions as the call has before its features
            self._count_key("previous token", self.self_key - 1, self.self_key > 0)
            self._count_key("next token", self.self_key + 1, self.self_key < self.keys - 1)
            self._count_key("first token", start, self.self_key > start)
        if shares.words is not None:
            marks = self._before_heads(shares.separators).long()
            self._count_same_id("separator", marks, torch.ones_like(marks[..., :1]))
            if shares.one_sequence:
                ids = self._before_heads(shares.ids)
                self._count_same_id("same token", ids, ids[..., shares.offset :])
        elif shares.one_sequence:
            self._count_key("same token", self.self_key, self.self_key >= 0)
        self._count_uniform()
        return shares.means()

    def _count_key(self, name: str, key: Tensor, exists: Tensor) -> None:
        """Count the weight of one key for each query, (..., Q) or (..., 1), where that key exists."""
        low = torch.where(exists, torch.maximum(self.low, key), 0)
        high = torch.where(exists, torch.minimum(self.high, key + 1), 0)
        self._count(name, low, high, self._lse(self.call, Ranges(low, torch.maximum(low, high))))

    def _count_same_id(self, name: str, keys: Tensor, queries: Tensor) -> None:
        """Count the weight of the keys with the query's id: (..., K) and (..., Q or 1), without the dimension of heads."""
        queries = queries.expand(*queries.shape[:-1], self.call.queries)
        order = keys.argsort(dim=-1, stable=True)
        # In this order the keys of one id are neighbours, and so are those of them in a range of the mask.
        numbers = keys.gather(-1, order) * (self.keys + 1) + order  # (..., K), ascending
        low, high = (_searchsorted(numbers, queries * (self.keys + 1) + edge) for edge in (self.low, self.high))
        if self.call.bias is None:
            lse = self._lse_sorted(order, queries.argsort(dim=-1, stable=True), Ranges(low, high))
        else:
            lse = self._lse(self.call, Both(self.ranges, Documents(keys, queries)))
        self._count(name, low, high, lse)

    def _lse_sorted(self, key_order: Tensor, query_order: Tensor, ranges: Ranges) -> Tensor:
        """The log-sum-exp (..., Q) of the call with its keys in this order, where `ranges` are the keys of each query.

        Queries are sorted too, so that neighbours read the same tiles.
        """
        query = torch.take_along_dim(self.call.query, query_order[..., None], dim=-2)
        key = torch.take_along_dim(self.call.key, key_order[..., None], dim=-2)
        edges = (torch.take_along_dim(edge, query_order, dim=-1) for edge in (ranges.low, ranges.high))
        lse = self._lse(replace(self.call, query=query, key=key, value=key[..., :0]), Ranges(*edges))
        return torch.take_along_dim(lse, query_order.argsort(dim=-1), dim=-1)

    def _lse(self, call: Call, mask: Any) -> Tensor:
        return summarized(replace(call, mask=mask), top=1, edges=None).lse

    def _count(self, name: str, low: Tensor, high: Tensor, lse: Tensor) -> None:
        assert self.summary.lse is not None
        share = self._by_head(torch.exp(lse - self.summary.lse))
        self.shares.count(name, self._by_head(high > low), share, self.choice)

    def _count_uniform(self) -> None:
        """Count the entropy of the weights divided by that of equal ones; with a sink, of the weights that it leaves."""
        entropy, sink = self.summary.entropy, self.summary.sink
        if sink is not None:
            left = 1 - sink
            entropy = left * entropy + torch.special.entr(left)
        share = self._by_head(entropy) / self.allowed_keys.clamp(min=2).log()
        self.shares.count("uniform", self.choice, share, self.choice)

    def _start(self) -> Tensor:
        """The first key that any query may attend to, which is not padding; key 0 for queries that continue a cache."""
        low, high = self._by_head(self.low), self._by_head(self.high)  # (B, H, Q)
        first = torch.where(high > low, low, self.keys).amin((1, 2))
        first = first * (self.call.queries == self.keys)
        return self._before_heads(first[:, None])

    def _by_head(self, tensor: Tensor) -> Tensor:
        """A value for each query, (..., Q or 1), as (B, H, Q)."""
        batch, queries = self.call.batch, self.call.queries
        return tensor.expand(*batch, queries).reshape(-1, self.heads, queries)

    def _before_heads(self, tensor: Tensor) -> Tensor:
        """Values of each sequence, (1 or B, N), in as many dimensions as the call has before its features."""
        batch = self.call.batch
        headed = self.call.query.ndim >= 4 and bool(batch)
        lead = batch[:-1] if headed else batch
        lead = lead if tensor.shape[0] > 1 else (1,) * len(lead)
        return tensor.reshape(*lead, *((1,) if headed else ()), tensor.shape[-1])


def _searchsorted(numbers: Tensor, values: Tensor) -> Tensor:
    """Where values (..., Q) belong among ascending numbers (..., K)."""
    lead = torch.broadcast_shapes(numbers.shape[:-1], values.shape[:-1])
    return torch.searchsorted(numbers.expand(*lead, -1).contiguous(), values.expand(*lead, -1).contiguous())
