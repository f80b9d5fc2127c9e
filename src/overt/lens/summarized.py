"""A recorded call of which statistics are kept in the place of query, key and value: nothing grows with Q × K."""

import math
from dataclasses import dataclass, fields, replace
from typing import NoReturn

import torch
from torch import Tensor

from overt import check
from overt.errors import InputError
from overt.kernels.call import Block, Call
from overt.lens.captured import Captured, Kept, fresh, head_count
from overt.lens.head import Head, Top, places
from overt.lens.roles import Shares
from overt.lens.tokens import Tokens
from overt.lens.verified import Allowance, Comparison, compared
from overt.summary import Stages, Summary, gathered

TOP, CELLS = 8, 64  # weights kept of each query, and cells of the map along queries and along keys


@dataclass(frozen=True, eq=False, repr=False)
class Summarized(Captured):
    """A call's statistics, taken while it was there: those of `overt.summarize`, of the kept heads alone, (B, H, …).

    `comparison` is what `verify` says of it, and `shares` what `roles` needs, measured with the tokens of this `fingerprint`.
    """

    summary: Summary
    comparison: Comparison
    shares: tuple[dict[str, float], ...]
    fingerprint: str

    @property
    def bytes(self):
        """The statistics."""
        held = [getattr(self.summary, each.name) for each in fields(Summary)]
        return sum(tensor.numel() * tensor.element_size() for tensor in held if tensor is not None)

    def shares_with(self, tokens: Tokens) -> tuple[dict[str, float], ...]:
        """The measured patterns, if these are the tokens that they were measured with."""
        if tokens.fingerprint(self) != self.fingerprint:
            raise InputError(
                "a summary has words measured while the model runs",
                got=f"other tokens than {self.layer} was summarised with",
                cure='give them to record(key_tokens=…, query_tokens=…), or record with keep="qkv"',
            )
        return self.shares


@torch.no_grad()
def summarized(kept: Kept, tokens: Tokens) -> Summarized:
    """Take the statistics of a call, in one pass over its weights."""
    shares, allowance, allowed = Shares(kept, tokens if tokens.fit(kept) else Tokens()), Allowance(kept), []

    def see(first: int, block: Block, stages: Stages) -> None:
        shares.add(first, block, stages)
        allowed.append(allowance.of(block, *stages))

    found = gathered(replace(fresh(kept.call), dropout=0.0), top=TOP, map_size=CELLS, see=see)
    assert found.output is not None
    return Summarized(
        **kept.facts,
        summary=_by_head(found, kept),
        comparison=compared(kept, found.output, torch.cat(allowed, dim=-2)),
        shares=shares.means(),
        fingerprint=tokens.fingerprint(kept) if tokens.fit(kept) else "",
    )


def summary_size(call: Call, output: Tensor, heads: int, total: int) -> int:
    """Bytes that the statistics of these heads take."""
    lead = math.prod(call.batch) * heads // total  # B · H
    number = call.dtype.itemsize
    by_query = call.queries * (2 * number + min(TOP, call.keys) * (number + 4))
    cells = min(CELLS, call.queries) * min(CELLS, call.keys)
    return lead * (by_query + call.keys * number + 2 * cells * number)


def _by_head(found: Summary, kept: Kept) -> Summary:
    """The statistics of the kept heads, each (B, H, …); the output has been compared and is let go."""
    wanted, heads = [kept.copies.index(head) for head in kept.heads], head_count(kept.call)
    lasts = {"lse": 1, "entropy": 1, "received": 1, "sink": 1, "top_weights": 2, "top_keys": 2, "map_mean": 2, "map_max": 2}
    chosen = {}
    for name, last in lasts.items():
        if (tensor := getattr(found, name)) is not None:
            own = tensor.shape[tensor.ndim - last :]
            chosen[name] = tensor.expand(*kept.call.batch, *own).reshape(-1, heads, *own)[:, wanted]
    return replace(found, output=None, **chosen)


def _joining(size: int, edges: Tensor | None) -> Tensor:
    """The share that each kept cell has in each of `size` cells: (size, cells)."""
    check.whole_number("the size of a map", size)
    assert edges is not None
    length = int(edges[-1])
    size = min(size, length)
    wanted = torch.arange(size + 1, device=edges.device) * length // max(size, 1)
    if not torch.isin(wanted, edges).all():
        raise InputError(
            f"a summary's map has cells that are joined from the {len(edges) - 1} kept ones, of {length} places",
            got=f"{size} cells, which cut some of them",
            cure=f'ask for {len(edges) - 1}, or record with keep="qkv"',
        )
    inside = (wanted[:-1, None] <= edges[:-1]) & (edges[:-1] < wanted[1:, None])  # (size, cells)
    return inside * edges.diff() / wanted.diff()[:, None]


class SummarizedHead(Head):
    """One head of a summarised call: `entropy`, `received`, `top` and `map` as of any head; what needs query and key is refused."""

    captured: Summarized

    def entropy(self) -> Tensor:
        """How spread out each query's weights were, −Σ w log w in nats: (B, Q)."""
        return self._of(self.captured.summary.entropy)

    def received(self) -> Tensor:
        """The mean weight that each key got: (B, K)."""
        return self._of(self.captured.summary.received)

    def top(self, row: int, k: int = TOP) -> Top:
        """The k largest weights of one query, up to 8; its key is −1 where fewer may be attended to."""
        if k > TOP and self.keys > TOP:
            raise InputError(
                f"a summary keeps the {TOP} largest weights of each query", got=f"k={k}", cure='record with keep="qkv"'
            )
        (place,) = places("row", int(row), self.queries)
        summary = self.captured.summary
        return Top(self._of(summary.top_weights)[:, place, :k], self._of(summary.top_keys)[:, place, :k].long())

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean weight in each of size × size cells, joined from the cells that are kept, 64 × 64 of them."""
        summary = self.captured.summary
        rows, keys = (size, size) if isinstance(size, int) else size
        over_rows, over_keys = _joining(rows, summary.row_edges), _joining(keys, summary.key_edges)
        found = self._of(summary.map_mean)
        return over_rows.to(found) @ found @ over_keys.to(found).mT  # (B, rows, keys)

    def _of(self, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        return tensor[:, self.captured.heads.index(self.head)]

    @property
    def _kept(self) -> NoReturn:
        raise InputError(
            "weights, steps, query, key, value and output need what went into the call",
            got=f"a recording that kept summaries of {self.layer}",
            cure='record with keep="qkv"',
        )
