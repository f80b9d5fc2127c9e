"""The statistics and roles of a recorded linear token mixer; no statistic grows with Q × K."""

from collections.abc import Iterator
from dataclasses import fields, replace

import torch
from torch import Tensor

from overt.attention.summary import Summary, gathered_signed
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.chunks import Chunks, head_groups
from overt.lens.linear.recurrence import Recurrence
from overt.lens.linear.verified import recompute_mixer
from overt.lens.statistics.repetition import repetition
from overt.lens.statistics.roles import RoleShares, Shares, relative_sizes
from overt.lens.statistics.summarized import CapturedSummary, SummaryOptions
from overt.lens.tokens import Tokens


@torch.no_grad()
def summarized_mixer(captured: CapturedMixer, tokens: Tokens, options: SummaryOptions) -> CapturedSummary:
    """Compute the statistics of a call, by groups of heads and blocks of rows."""
    tokens = tokens if tokens.fit(captured) else Tokens()
    shares: list[dict[str, float]] = []
    summaries = []
    for part in _groups(captured):
        role_shares = RoleShares(part, tokens)
        blocks = _counted(part, role_shares)
        summaries.append(gathered_signed(blocks, captured.queries, captured.keys, options.top, options.map_size))
        shares.extend(role_shares.means())
    return CapturedSummary(
        **captured.facts,
        summary=_joined(summaries),
        comparison=recompute_mixer(captured),
        shares=tuple(shares),
        fingerprint=tokens.fingerprint(captured),
        repetition=repetition(captured, tokens),
        mixer=captured.recurrence.kind,
        around=captured.around,
    )


def summarized_size(options: SummaryOptions, recurrence: Recurrence, output: Tensor, heads: int, total: int) -> int:
    """The bytes of the statistics of `heads` heads; `output` and `total` are ignored."""
    number = torch.empty((), dtype=recurrence.dtype).element_size()
    return recurrence.batch * heads * options.size_of_head(recurrence.queries, recurrence.keys, number)


@torch.no_grad()
def mixer_shares(captured: CapturedMixer, tokens: Tokens) -> Shares:
    """The share of each recorded head's |W| on each pattern: `roles.measured` for |W| / Σ |W|."""
    shares: list[dict[str, float]] = []
    for part in _groups(captured):
        role_shares = RoleShares(part, tokens)
        for _ in _counted(part, role_shares):
            pass
        shares.extend(role_shares.means())
    return tuple(shares)


@torch.no_grad()
def mixer_entropy(captured: CapturedMixer) -> Tensor:
    """The entropy of |W| / Σ |W| of each recorded head and query, in nats: (B, H, Q)."""
    lengths = captured.queries, captured.keys
    parts = [gathered_signed(Chunks(part.recurrence).blocks(), *lengths, top=1).entropy for part in _groups(captured)]
    return torch.cat(parts, dim=1)


def _groups(captured: CapturedMixer) -> Iterator[CapturedMixer]:
    """The call in groups of its recorded heads."""
    captured = captured if captured.heads == captured.copies else captured.of_heads(captured.heads)
    first = 0
    for part in head_groups(captured.recurrence):
        heads = captured.heads[first : first + part.heads]
        first += part.heads
        yield replace(captured, recurrence=part, heads=heads, copies=heads)


def _counted(captured: CapturedMixer, shares: RoleShares) -> Iterator[tuple[int, Tensor]]:
    """Blocks of weights, each added to the shares before it is returned."""
    recurrence, offset = captured.recurrence, captured.keys - captured.queries
    itself = int(recurrence.reads == "after" or recurrence.diagonal is not None)  # whether a row reads its own position
    keys = torch.arange(captured.keys, device=recurrence.query.device)
    for first, weights in Chunks(recurrence).blocks():
        rows = torch.arange(first, first + weights.shape[-2], device=keys.device)
        counts = rows + offset + itself  # the number of keys that each row reads
        allowed = (keys < counts[:, None]).expand(weights.shape)
        if weights.numel():
            shares.add_weights(first, relative_sizes(weights), allowed, counts.expand(weights.shape[:-1]))
        yield first, weights


def _joined(summaries: list[Summary]) -> Summary:
    """The statistics of all groups of heads, each (B, H, …)."""
    edges = {"row_edges", "key_edges"}
    values = {field.name: [getattr(summary, field.name) for summary in summaries] for field in fields(Summary)}
    return Summary(
        **{name: parts[0] if parts[0] is None or name in edges else torch.cat(parts, dim=1) for name, parts in values.items()}
    )
