"""A recorded call of which statistics are kept in the place of query, key and value: nothing grows with Q × K."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from overt.attention import check
from overt.attention.kernels.call import Block, Call
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.plan import permits
from overt.attention.summary import Stages, Summary, gathered
from overt.errors import InputError
from overt.lens.capture.ranges import MasksSeen, Ranges, in_ranges
from overt.lens.captured import Captured, CapturedCall, fresh, head_count
from overt.lens.head import Head, Top, places
from overt.lens.statistics.role_shares import told
from overt.lens.statistics.roles import BARRED, Shares
from overt.lens.statistics.verified import Allowance, Comparison, bounds, compared
from overt.lens.tokens import Tokens

TOP, CELLS = 8, 64  # as long as nothing else is asked for


@dataclass(frozen=True, eq=False, repr=False)
class CapturedSummary(Captured):
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
                fix='give them to record(key_tokens=…, query_tokens=…), or record with keep="qkv"',
            )
        return self.shares


@dataclass(frozen=True)
class SummaryOptions:
    """How much a summary keeps: weights of each query, and cells of the map, along queries and along keys.

    `masks` has read the bool tensors that layers share.
    """

    top: int = TOP
    map_size: tuple[int, int] = (CELLS, CELLS)
    masks: MasksSeen = field(default_factory=MasksSeen, repr=False, compare=False)

    def size(self, call: Call, output: Tensor, heads: int, total: int) -> int:
        """Bytes that the statistics of these heads take."""
        lead = math.prod(call.batch) * heads // total  # B · H
        number = call.dtype.itemsize
        by_query = call.queries * (2 * number + min(self.top, call.keys) * (number + 4))
        cells = min(self.map_size[0], call.queries) * min(self.map_size[1], call.keys)
        return lead * (by_query + call.keys * number + 2 * cells * number)


@torch.no_grad()
def summarized(kept: CapturedCall, tokens: Tokens, how: SummaryOptions) -> CapturedSummary:
    """Take the statistics of a call: by the native kernel where that is able, else in one pass over blocks of its weights."""
    tokens = tokens if tokens.fit(kept) else Tokens()
    call = replace(kept.call, dropout=0.0)
    runs = _runs(call, how.masks)
    if runs is None:
        found, shares, comparison = _by_blocks(kept, call, tokens, how)
    else:
        found, shares, comparison = _by_kernel(kept, call, tokens, how, runs)
    fingerprint = tokens.fingerprint(kept)
    return CapturedSummary(
        **kept.facts, summary=_by_head(found, kept), comparison=comparison, shares=shares, fingerprint=fingerprint
    )


_Found = tuple[Summary, tuple[dict[str, float], ...], Comparison]


def _by_blocks(kept: CapturedCall, call: Call, tokens: Tokens, how: SummaryOptions) -> _Found:
    shares, allowance, allowed = Shares(kept, tokens), Allowance(kept), []

    def see(first: int, block: Block, stages: Stages) -> None:
        shares.add(first, block, stages)
        allowed.append(allowance.of(block, *stages))

    found = gathered(fresh(call), top=how.top, map_size=how.map_size, show_block=see)
    assert found.output is not None
    return found, shares.means(), compared(kept, found.output, torch.cat(allowed, dim=-2))


def _by_kernel(kept: CapturedCall, call: Call, tokens: Tokens, how: SummaryOptions, runs: Ranges) -> _Found:
    call = call if call.mask is None else replace(call, mask=runs)
    found = gathered(call, top=how.top, map_size=how.map_size)
    assert found.output is not None
    allowed = found.output if kept.call.dropout > 0 else bounds(kept, found.output)
    return found, told(kept, call, tokens, _undrowned(runs, call.bias), found), compared(kept, found.output, allowed)


def _undrowned(runs: Ranges, bias: Any) -> Ranges:
    """The runs, empty where a row's scores drown in what is added to all of them: the weights of such a row tell nothing."""
    if not isinstance(bias, Tensor) or bias.ndim < 2 or bias.shape[-1] != 1:
        return runs
    drowned = (bias - BARRED == bias)[..., 0]  # (..., Q or 1)
    return Ranges(*(torch.where(drowned, 0, edge) for edge in (runs.low, runs.high)))


def _runs(call: Call, masks: MasksSeen) -> Ranges | None:
    """The mask as one run of keys a query, where the native kernel can serve the call and nothing else bars keys."""
    if not permits("native") or flat_summary.refusal(replace(call, mask=None)) is not None or not _bars_nothing(call.bias):
        return None
    return in_ranges(call.mask, call.queries, call.keys, call.query.device, masks.read)


def _bars_nothing(bias: Any) -> bool:
    """Whether a bias tells keys apart by less than what bars them: a tensor may hold −inf or its dtype's lowest number."""
    if not isinstance(bias, Tensor) or not bias.numel() or bias.ndim == 0 or bias.shape[-1] == 1:
        return True
    low, high = torch.aminmax(bias.detach())
    return bool(high - low < BARRED / 2)


def _by_head(found: Summary, kept: CapturedCall) -> Summary:
    """The statistics of the kept heads, each (B, H, …); the output has been compared and is let go."""
    wanted, heads = [kept.copies.index(head) for head in kept.heads], head_count(kept.call)
    lasts = {"lse": 1, "entropy": 1, "received": 1, "sink": 1, "top_weights": 2, "top_keys": 2, "map_mean": 2, "map_max": 2}
    chosen = {}
    for name, last in lasts.items():
        if (tensor := getattr(found, name)) is not None:
            own = tensor.shape[tensor.ndim - last :]
            chosen[name] = tensor.expand(*kept.call.batch, *own).reshape(-1, heads, *own)[:, wanted]
    return replace(found, output=None, **chosen)


def _joined(found: Tensor, dim: int, size: int, edges: Tensor | None) -> Tensor:
    """The means of kept cells along a dimension as those of `size` cells that they make up."""
    check.whole_number("the size of a map", size)
    assert edges is not None
    length = int(edges[-1])
    size = min(size, length)
    wanted = torch.arange(size + 1, device=edges.device) * length // max(size, 1)
    if not torch.isin(wanted, edges).all():
        raise InputError(
            f"a summary's map has cells that are joined from the {len(edges) - 1} kept ones, of {length} places",
            got=f"{size} cells, which cut some of them",
            fix=f'ask for {len(edges) - 1}, or record with map_size={size}, or with keep="qkv"',
        )
    place = torch.searchsorted(wanted, edges[:-1], right=True) - 1  # the wanted cell that each kept one is part of
    share = (edges.diff() / wanted.diff()[place]).to(found).reshape(-1, *(1,) * (-dim - 1))
    joined = found.new_zeros(*found.shape[:dim], size, *found.shape[found.ndim + dim + 1 :])
    # Added up and not multiplied as matrices: 0 · NaN would spread over cells that hold none.
    return joined.index_add_(found.ndim + dim, place, found * share)


class SummaryHead(Head):
    """One head of a summarised call: `entropy`, `received`, `top` and `map` as of any head; what needs query and key is refused."""

    captured: CapturedSummary

    def entropy(self) -> Tensor:
        """How spread out each query's weights were, −Σ w log w in nats: (B, Q)."""
        return self._of(self.captured.summary.entropy)

    def received(self) -> Tensor:
        """The mean weight that each key got: (B, K)."""
        return self._of(self.captured.summary.received)

    def top(self, row: int, k: int | None = None) -> Top:
        """The k largest weights of one query, up to those that are kept; its key is −1 where fewer may be attended to."""
        summary = self.captured.summary
        kept = summary.top_weights.shape[-1]
        if k is not None and k > kept and self.keys > kept:
            fix = f'record with top={k}, or with keep="qkv"'
            raise InputError(f"a summary keeps the {kept} largest weights of each query", got=f"k={k}", fix=fix)
        (place,) = places("row", int(row), self.queries)
        return Top(self._of(summary.top_weights)[:, place, :k], self._of(summary.top_keys)[:, place, :k].long())

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean weight in each of size × size cells, joined from the cells that are kept."""
        summary = self.captured.summary
        rows, keys = (size, size) if isinstance(size, int) else size
        by_row = _joined(self._of(summary.map_mean), -2, rows, summary.row_edges)
        return _joined(by_row, -1, keys, summary.key_edges)  # (B, rows, keys)

    def _of(self, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        return tensor[:, self.captured.heads.index(self.head)]

    @property
    def _kept(self) -> NoReturn:
        raise InputError(
            "weights, steps, query, key, value and output need what went into the call",
            got=f"a recording that kept summaries of {self.layer}",
            fix='record with keep="qkv"',
        )
