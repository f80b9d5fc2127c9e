"""The shares that `roles` tells, of a call of any length: exactly those of the weights, in memory linear in the lengths.

The weight of a set S of keys is exp(lse_i(S) − lse_i), where lse_i(S) = log Σ_{j in S} exp(score_ij) is what the native summary
finds under a mask that allows S alone. The key before, the key after, the first key and the query's own are runs of one key, so the
kernel skips nearly all tiles. Keys of the same token are made one run by sorting queries and keys by their tokens first.
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
from overt.lens.statistics.roles import Shares
from overt.lens.tokens import Tokens


def told(kept: CapturedCall, call: Call, tokens: Tokens, runs: Ranges, summary: Summary) -> tuple[dict[str, float], ...]:
    """What `roles.measured` says of a call that the native kernel summarises, whose mask is these runs.

    `call` is that of `kept` without dropout, and `summary` its statistics.
    """
    return _Told(kept, call, tokens, runs, summary).means()


class _Told:
    def __init__(self, kept: CapturedCall, call: Call, tokens: Tokens, runs: Ranges, summary: Summary):
        self.shares, self.runs, self.summary = Shares(kept, tokens), runs, summary
        # The sink's share is no key's: it stands in the summary's own log-sum-exp and not in that of some keys.
        self.call = replace(call, value=call.key[..., :0], normalizer=replace(call.normalizer, sink=None))
        self.keys, self.heads = call.keys, head_count(call)
        low, high = self._edges()
        self.spread = self._by_head(high - low)  # how many keys each query may attend to
        self.choice = self.spread > 1
        self.own = torch.arange(call.queries, device=call.query.device) + self.shares.aligned  # (Q,)

    def means(self) -> tuple[dict[str, float], ...]:
        """Each kept head's mean share of every pattern."""
        shares = self.shares
        if not self.spread.numel():
            return shares.means()
        if shares.one_sequence:
            start = self._start()  # (B, 1, 1), or of as many dimensions as the call has before its features
            self._at("previous token", self.own - 1, self.own > 0)
            self._at("next token", self.own + 1, self.own < self.keys - 1)
            self._at("first token", start, self.own > start)
        if shares.words is not None:
            marks = self._before_heads(shares.marks).long()
            self._of_ids("separator", marks, torch.ones_like(marks[..., :1]))
            if shares.one_sequence:
                ids = self._before_heads(shares.ids)
                self._of_ids("same token", ids, ids[..., shares.aligned :])
        elif shares.one_sequence:
            self._at("same token", self.own, self.own >= 0)
        self._uniform()
        return shares.means()

    def _at(self, name: str, place: Tensor, there: Tensor) -> None:
        """Count what each query gives to the key at its place, (..., Q) or (..., 1), if it is there."""
        low, high = self._edges()
        low = torch.where(there, torch.maximum(low, place), 0)
        high = torch.where(there, torch.minimum(high, place + 1), 0)
        self._count(name, low, high, self._lse(self.call, Ranges(low, torch.maximum(low, high))))

    def _of_ids(self, name: str, keys: Tensor, queries: Tensor) -> None:
        """Count what each query gives to the keys of its own number: (..., K) and (..., Q or 1), without the heads' dimension."""
        queries = queries.expand(*queries.shape[:-1], self.call.queries)
        order = keys.argsort(dim=-1, stable=True)
        # In this order the keys of one number follow each other, those of the mask's run among them too.
        numbers = keys.gather(-1, order) * (self.keys + 1) + order  # (..., K), ascending
        low, high = (_found(numbers, queries * (self.keys + 1) + edge) for edge in self._edges())
        if self.call.bias is None:
            lse = self._sorted(order, queries.argsort(dim=-1, stable=True), Ranges(low, high))
        else:
            lse = self._lse(self.call, Both(self.runs, Documents(keys, queries)))
        self._count(name, low, high, lse)

    def _sorted(self, of_keys: Tensor, of_queries: Tensor, runs: Ranges) -> Tensor:
        """The log-sum-exp (..., Q) of the call with its keys in this order, where `runs` say what queries may attend to.

        Queries are sorted too, so that neighbours look at the same tiles.
        """
        query, key = (_taken(*pair) for pair in ((self.call.query, of_queries), (self.call.key, of_keys)))
        edges = (torch.take_along_dim(edge, of_queries, dim=-1) for edge in (runs.low, runs.high))
        found = self._lse(replace(self.call, query=query, key=key, value=key[..., :0]), Ranges(*edges))
        return torch.take_along_dim(found, of_queries.argsort(dim=-1), dim=-1)

    def _lse(self, call: Call, mask: Any) -> Tensor:
        return summarized(replace(call, mask=mask), top=1, edges=None).lse

    def _count(self, name: str, low: Tensor, high: Tensor, lse: Tensor) -> None:
        assert self.summary.lse is not None
        share = self._by_head(torch.exp(lse - self.summary.lse))
        self.shares.count(name, self._by_head(high > low), share, self.choice)

    def _uniform(self) -> None:
        """The entropy of the weights over that of equal ones; of weights that a sink leaves, as they are."""
        entropy, sink = self.summary.entropy, self.summary.sink
        if sink is not None:
            left = 1 - sink
            entropy = left * entropy + torch.special.entr(left)
        spread = self._by_head(entropy) / self.spread.clamp(min=2).log()
        self.shares.count("uniform", self.choice, spread, self.choice)

    def _start(self) -> Tensor:
        """The first key that any query may attend to, which is no padding; key 0 for queries that continue a cache."""
        low, high = (self._by_head(edge) for edge in self._edges())  # (B, H, Q)
        first = torch.where(high > low, low, self.keys).amin((1, 2))
        first = first * (self.call.queries == self.keys)
        return self._before_heads(first[:, None])

    def _edges(self) -> tuple[Tensor, Tensor]:
        """The runs' edges, (..., Q) or (..., 1)."""
        return self.runs.low.long(), self.runs.high.long()

    def _by_head(self, tensor: Tensor) -> Tensor:
        """What is said of each query, (..., Q or 1), as (B, H, Q)."""
        batch, queries = self.call.batch, self.call.queries
        return tensor.expand(*batch, queries).reshape(-1, self.heads, queries)

    def _before_heads(self, tensor: Tensor) -> Tensor:
        """What is said of each sequence, (1 or B, N), in as many dimensions as the call has before its features."""
        batch = self.call.batch
        headed = self.call.query.ndim >= 4 and bool(batch)
        lead = batch[:-1] if headed else batch
        lead = lead if tensor.shape[0] > 1 else (1,) * len(lead)
        return tensor.reshape(*lead, *((1,) if headed else ()), tensor.shape[-1])


def _found(numbers: Tensor, asked: Tensor) -> Tensor:
    """Where numbers (..., Q) belong among ascending ones (..., K)."""
    lead = torch.broadcast_shapes(numbers.shape[:-1], asked.shape[:-1])
    return torch.searchsorted(numbers.expand(*lead, -1).contiguous(), asked.expand(*lead, -1).contiguous())


def _taken(tensor: Tensor, order: Tensor) -> Tensor:
    """Rows (..., N, D) in an order (..., N)."""
    return torch.take_along_dim(tensor, order[..., None], dim=-2)
