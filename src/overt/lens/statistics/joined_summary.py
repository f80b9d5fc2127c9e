"""The statistics of several passes as one call's: joined if the result is exact, else refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from overt.attention.summary import Summary
from overt.lens.captured import RowsRead
from overt.lens.statistics.summarized import CapturedSummary, one_pass_alone
from overt.lens.statistics.verified import Comparison
from overt.lens.tokens import Tokens


class PartOfSummary(NamedTuple):
    """The statistics of one pass in the sequences `rows` (None: all); its first key is at position `start` of the joined call."""

    captured: CapturedSummary
    rows: tuple[int, ...] | None
    start: int

    def select(self, statistic: Tensor) -> Tensor:
        """A statistic (B, ...) of the sequences `rows`."""
        return statistic if self.rows is None else statistic[list(self.rows)]


@dataclass(frozen=True, eq=False, repr=False)
class JoinedSummary(CapturedSummary):
    """The joined statistics of calls that continue each other, by query and by key. Maps and roles are not joined.

    A map's cells have different edges in each pass, and a role's score is a mean over queries that each pass counts separately.
    `read` lists the tokens that the passes read.
    """

    read: tuple[RowsRead, ...] = ()

    def shares_with(self, tokens: Tokens) -> NoReturn:
        """Refuse, because roles are means over different queries in each pass."""
        raise one_pass_alone(self.layer, "roles")


def joined_summary(facts: dict[str, Any], read: tuple[RowsRead, ...], parts: Sequence[PartOfSummary]) -> JoinedSummary:
    """The statistics of these parts, joined in order to one call's."""
    return JoinedSummary(
        **facts,
        summary=Summary(
            lse=_by_query(parts, "lse", 2),
            entropy=_some(_by_query(parts, "entropy", 2)),
            received=_received(parts, facts["keys"]),
            top_weights=_some(_by_query(parts, "top_weights", 3)),
            top_keys=_tokens(_some(_by_query(parts, "top_keys", 3)), facts["keys"]),
            sink=_by_query(parts, "sink", 2),
            support=_by_query(parts, "support", 2),
        ),
        comparison=_worst([part.captured.comparison for part in parts]),
        shares=(),
        fingerprint="",
        read=read,
    )


def _by_query(parts: Sequence[PartOfSummary], name: str, after: int) -> Tensor | None:
    """A statistic of each query, the parts joined in order: (B, H, Q) or (B, H, Q, top)."""
    values = [getattr(part.captured.summary, name) for part in parts]
    if any(value is None for value in values):
        return None
    values = [part.select(value) for value, part in zip(values, parts, strict=True)]
    if name == "top_keys":
        values = [torch.where(value < 0, value, value + part.start) for value, part in zip(values, parts, strict=True)]
    if after == 3:
        most = max(value.shape[-1] for value in values)
        filler = -1 if name == "top_keys" else 0
        values = [torch.nn.functional.pad(value, (0, most - value.shape[-1]), value=filler) for value in values]
    return torch.cat(values, dim=2)


def _tokens(top_keys: Tensor, keys: int) -> Tensor:
    """The keys, with −1 in place of unused slots of a cache, to which queries of padding attend."""
    return torch.where(top_keys < keys, top_keys, -1)


def _received(parts: Sequence[PartOfSummary], keys: int) -> Tensor:
    """The mean weight of each key over the queries that may attend to any key: (B, H, K)."""
    counts = [part.select((part.captured.summary.top_keys[..., 0] >= 0).sum(-1, keepdim=True)) for part in parts]  # (B, H, 1)
    total = torch.zeros(*counts[0].shape[:2], keys, dtype=parts[0].captured.summary.received.dtype, device=counts[0].device)
    for part, count in zip(parts, counts, strict=True):
        received = part.select(part.captured.summary.received)[..., : keys - part.start]  # without unused slots of a cache
        total[..., part.start : part.start + received.shape[-1]] += received * count
    return total / torch.stack(counts).sum(0).clamp(min=1)


def _worst(comparisons: Sequence[Comparison]) -> Comparison:
    """The comparison furthest beyond its bound; an impossible comparison counts as furthest."""
    return max(comparisons, key=lambda item: item.difference - item.bound if item.difference == item.difference else torch.inf)


def _some(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
