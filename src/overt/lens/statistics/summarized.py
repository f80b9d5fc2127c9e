"""A recorded call as statistics instead of query, key and value: no statistic grows with Q × K."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import NoReturn

import torch
from torch import Tensor

from overt.attention import check
from overt.attention.kernels.blocked import Block
from overt.attention.kernels.call import Call
from overt.attention.summary import Stages, Summary, gathered, with_masses
from overt.errors import InputError
from overt.lens.capture.ranges import MaskReader, Ranges
from overt.lens.captured import Captured, CapturedCall, by_head, fresh
from overt.lens.head import Head, Top
from overt.lens.statistics.allowance import Allowance
from overt.lens.statistics.repetition import repetition
from overt.lens.statistics.role_shares import Patterns, key_ranges
from overt.lens.statistics.roles import Repetitions, RoleShares, Shares
from overt.lens.statistics.verified import Comparison, compared, judged, judged_by_sums, random_sums
from overt.lens.tokens import Tokens

TOP, CELLS = 8, 64  # TOP, CELLS: the defaults of `record`: largest weights of a query, and cells along each side of a map


@dataclass(frozen=True, eq=False, repr=False)
class CapturedSummary(Captured):
    """A call's statistics from `overt.summarize`, computed while the model ran, for only the recorded heads: (B, H, …).

    `comparison` is the result of `verify`; `roles` needs `shares` and `repetition`, which were measured with the tokens of this
    `fingerprint`. For a linear token mixer, whose weights are signed, `mixer` is its kind, `around` describes the operations next to
    it in the layer, and entropy and roles describe |W| / Σ |W|.
    """

    summary: Summary
    comparison: Comparison
    shares: Shares
    fingerprint: str
    repetition: Repetitions = ()
    mixer: str = ""
    around: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the statistics."""
        tensors = [getattr(self.summary, field.name) for field in fields(Summary)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)

    def shares_with(self, tokens: Tokens) -> Shares:
        """The measured shares. Refuses tokens other than the ones that the shares were measured with."""
        if not self.fingerprint and tokens.keys is None:
            return self.shares  # a tokenizer set later names tokens, but the shares stay as measured
        if tokens.fingerprint(self) != self.fingerprint:
            raise InputError(
                f"the tokens with which {self.layer} was summarised, for roles measured while the model ran",
                got="other tokens",
                fix='pass them to record(key_tokens=…, query_tokens=…) or record(tokenizer=…), or record with keep="qkv"',
            )
        return self.shares


@dataclass(frozen=True)
class SummaryOptions:
    """The size of a summary: largest weights of each query, and cells of the map along queries and along keys.

    `masks` reads bool tensors that layers share only once. `ahead` holds the number and the statistics of the call from `computed`.
    """

    top: int = TOP
    map_size: tuple[int, int] = (CELLS, CELLS)
    ahead: "list[tuple[int, Summary, Shares]]" = field(default_factory=list, repr=False, compare=False)
    masks: MaskReader = field(default_factory=MaskReader, repr=False, compare=False)

    def size(self, call: Call, output: Tensor, heads: int, total: int) -> int:
        """The bytes of the statistics of `heads` of `total` heads."""
        lead = math.prod(call.batch) * heads // total  # B · H
        return lead * self.size_of_head(call.queries, call.keys, call.dtype.itemsize)

    def size_of_head(self, queries: int, keys: int, number: int) -> int:
        """The bytes of the statistics of one head of one sequence, for numbers of `number` bytes."""
        by_query = queries * (2 * number + min(self.top, keys) * (number + 4))
        cells = min(self.map_size[0], queries) * min(self.map_size[1], keys)
        return by_query + keys * number + 2 * cells * number


@torch.no_grad()
def summarized(captured: CapturedCall, tokens: Tokens, options: SummaryOptions) -> CapturedSummary:
    """Compute the statistics of a call: with the native kernel if it supports the call, else block by block."""
    tokens = tokens if tokens.fit(captured) else Tokens()
    call = replace(captured.call, dropout=0.0)
    ahead = [item[1:] for item in options.ahead if item[0] == captured.number]
    options.ahead.clear()
    ranges = None if ahead else key_ranges(call, options.masks)
    if ahead:
        summary, shares = ahead[0]
        assert summary.output is not None
        comparison = judged(captured, summary.output.clone())
    elif ranges is None:
        summary, shares, comparison = _by_blocks(captured, call, tokens, options)
    else:
        summary, shares, comparison = _by_kernel(captured, call, tokens, options, ranges)
    return CapturedSummary(
        **captured.facts,
        summary=_recorded_heads(summary, captured),
        comparison=comparison,
        shares=shares,
        fingerprint=tokens.fingerprint(captured),
        repetition=repetition(captured, tokens, options.masks),
    )


@torch.no_grad()
def computed(captured: CapturedCall, tokens: Tokens, options: SummaryOptions) -> Tensor | None:
    """The output of a call, computed in place of the model's; `summarized` takes its statistics. None if no kernel computes both."""
    tokens = tokens if tokens.fit(captured) else Tokens()
    call = replace(captured.call, dropout=0.0)
    if (ranges := key_ranges(call, options.masks)) is None:
        return None
    call = call if call.mask is None else replace(call, mask=ranges)
    patterns = Patterns(captured, call, tokens, ranges, options.masks)
    summary, masses = with_masses(call, options.top, patterns.sets, options.map_size)
    options.ahead[:] = [(captured.number, summary, patterns.means(summary, masses))]
    return summary.output


_Statistics = tuple[Summary, Shares, Comparison]


def _by_blocks(captured: CapturedCall, call: Call, tokens: Tokens, options: SummaryOptions) -> _Statistics:
    shares, allowance, allowed = RoleShares(captured, tokens, options.masks), Allowance(captured, call), []

    def observe(first: int, block: Block, stages: Stages) -> None:
        shares.add(first, block, stages)
        allowed.append(allowance.bound(block, *stages))

    summary = gathered(fresh(call), top=options.top, map_size=options.map_size, show_block=observe)
    assert summary.output is not None
    return summary, shares.means(), compared(captured, summary.output, torch.cat(allowed, dim=-2))


def _by_kernel(captured: CapturedCall, call: Call, tokens: Tokens, options: SummaryOptions, ranges: Ranges) -> _Statistics:
    call = call if call.mask is None else replace(call, mask=ranges)
    patterns, sums = Patterns(captured, call, tokens, ranges, options.masks), random_sums(call)
    call = replace(call, value=(call.value.to(call.dtype) @ sums).to(call.value.dtype))
    summary, masses = with_masses(call, options.top, patterns.sets, options.map_size)
    assert summary.output is not None
    return summary, patterns.means(summary, masses), judged_by_sums(captured, summary.output, sums)


def _recorded_heads(summary: Summary, captured: CapturedCall) -> Summary:
    """The statistics of the recorded heads, each (B, H, …), without the output, which is compared already."""
    wanted = [captured.copies.index(head) for head in captured.heads]
    lasts = {"lse": 1, "entropy": 1, "received": 1, "sink": 1, "support": 1}
    lasts |= {"top_weights": 2, "top_keys": 2, "map_mean": 2, "map_max": 2}
    chosen = {}
    for name, last in lasts.items():
        if (tensor := getattr(summary, name)) is not None:
            chosen[name] = by_head(captured.call, tensor, last)[:, wanted]
    return replace(summary, output=None, **chosen)


def _join_cells(cells: Tensor, dim: int, size: int, edges: Tensor | None) -> Tensor:
    """The means of `size` cells along a dimension, joined from the stored cells that each one covers."""
    check.whole_number("the size of a map", size)
    assert edges is not None
    length = int(edges[-1])
    size = min(size, length)
    wanted = torch.arange(size + 1, device=edges.device) * length // max(size, 1)
    if not torch.isin(wanted, edges).all():
        raise InputError(
            f"a size whose cells join the {len(edges) - 1} cells of the summary, over {length} positions",
            got=f"{size} cells, which cut some of them",
            fix=f'pass size={len(edges) - 1}, or record with map_size={size}, or with keep="qkv"',
        )
    cell = torch.searchsorted(wanted, edges[:-1], right=True) - 1  # the wanted cell that covers each stored one
    share = (edges.diff() / wanted.diff()[cell]).to(cells).reshape(-1, *(1,) * (-dim - 1))
    joined = cells.new_zeros(*cells.shape[:dim], size, *cells.shape[cells.ndim + dim + 1 :])
    # Not a matrix product: 0 · NaN would spread to cells without NaN.
    return joined.index_add_(cells.ndim + dim, cell, cells * share)


def one_pass_alone(layer: str, what: str) -> InputError:
    """The error for a statistic that exists for one pass but not for the joined calls of several passes."""
    return InputError(
        f"a summary of one pass, for {what}",
        got=f"summaries of several passes of {layer}, of which the statistics of each query and key are joined, and {what} cannot be",
        fix='choose a pass, recording.passes[0], or record with keep="qkv"',
    )


class SummaryHead(Head):
    """One head of a summarised call, with `entropy`, `received`, `top` and `map`; other results raise InputError."""

    captured: CapturedSummary

    def entropy(self) -> Tensor:
        """The entropy of each query's weights, −Σ w log w in nats: (B, Q)."""
        return self._head_part(self.captured.summary.entropy)

    def support(self) -> Tensor | None:
        """The number of keys with a weight other than 0 for each query, (B, Q); None under a softmax, which gives every key a weight."""
        support = self.captured.summary.support
        return None if support is None else self._head_part(support)

    def received(self, *, padding: bool = True) -> Tensor:
        """The mean weight of each key, (B, K). A summary also counts queries of padding, so `padding=False` is refused."""
        if not padding:
            fix = 'record with keep="qkv"'
            raise InputError("received weights without padding from queries and keys", got="a summary", fix=fix)
        return self._head_part(self.captured.summary.received)

    def top(self, row: int | str, k: int | None = None) -> Top:
        """The k largest weights of one query, at most the summary's; a key is −1 if the query may attend to fewer keys."""
        summary = self.captured.summary
        stored = summary.top_weights.shape[-1]
        if k is not None and k > stored and self.keys > stored:
            fix = f'record with top={k}, or with keep="qkv"'
            raise InputError(f"k of at most {stored}, the largest weights that the summary has", got=f"k={k}", fix=fix)
        chosen = self.row_of(row)
        return Top(self._head_part(summary.top_weights)[:, chosen, :k], self._head_part(summary.top_keys)[:, chosen, :k].long())

    def map(self, size: int | tuple[int, int]) -> Tensor:
        """The mean weight in size × size cells, joined from the summary's cells."""
        summary = self.captured.summary
        if summary.map_mean is None:
            raise one_pass_alone(self.layer, "the map")
        rows, keys = (size, size) if isinstance(size, int) else size
        by_row = _join_cells(self._head_part(summary.map_mean), -2, rows, summary.row_edges)
        return _join_cells(by_row, -1, keys, summary.key_edges)  # (B, rows, keys)

    def _head_part(self, tensor: Tensor | None) -> Tensor:
        assert tensor is not None
        return tensor[:, self.captured.heads.index(self.head)]

    @property
    def captured_call(self) -> NoReturn:
        """Refuse: a summary has no query, key and value."""
        raise InputError(
            "a recording of query, key and value, for weights, steps, query, key, value and output",
            got=f"summaries of {self.layer}",
            fix='record with keep="qkv"',
        )
