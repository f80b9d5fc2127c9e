"""Calls of a linear token mixer that continue each other's state; each is stored with only the positions that it adds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.lens.captured import RowsRead
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.recurrence import Recurrence

_BY_KEY = ("key", "value", "log_decay", "erase", "probe")
_BY_QUERY = ("query", "diagonal", "normalizer")


@dataclass(frozen=True, eq=False, repr=False)
class MixerOfPasses(CapturedMixer):
    """A call of a mixer with positions of several passes, which `read` these tokens."""

    read: tuple[RowsRead, ...] = ()


def alike(before: Recurrence, after: Recurrence) -> bool:
    """Whether two recurrences may belong to one sequence: equal heads and features, and the same fields None."""

    def common(recurrence: Recurrence) -> dict[str, tuple[int, ...]]:
        tensors = {name: tensor for name, tensor in recurrence.tensors.items() if name != "start"}
        return {name: (tensor.shape[1], *tensor.shape[3:]) for name, tensor in tensors.items()}

    return (before.kind, before.reads, common(before)) == (after.kind, after.reads, common(after))


def added_recurrence(recurrence: Recurrence, retained: int) -> Recurrence:
    """The recurrence without its first `retained` positions and without its start state."""
    parts = {name: tensor[:, :, retained:] for name, tensor in recurrence.tensors.items() if name in _BY_KEY}
    return replace(recurrence, **parts, start=None)


def joined_mixer(
    facts: dict[str, Any], calls: Sequence[CapturedMixer], read: Sequence[RowsRead], all_queries: bool = True
) -> CapturedMixer:
    """One call with the positions of these calls, in the sequences that are `read`, and the queries of all calls or of the last one."""
    rows = [text.rows for text in read]
    recurrences = [call.recurrence for call in calls]

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([_batch_rows(tensor, which) for tensor, which in zip(tensors, rows, strict=True)], dim=2)

    def by_query(tensors: Sequence[Tensor]) -> Tensor:
        return joined(tensors) if all_queries else _batch_rows(tensors[-1], rows[-1])

    last, parts = calls[-1], {}
    for name in last.recurrence.tensors.keys() - {"start"}:
        tensors = [recurrence.tensors[name] for recurrence in recurrences]
        parts[name] = by_query(tensors) if name in _BY_QUERY else joined(tensors)
    start = recurrences[0].start
    whole = replace(last.recurrence, **parts, start=None if start is None else _batch_rows(start, rows[0]))
    output = by_query([call.output for call in calls])
    return MixerOfPasses(**facts, recurrence=whole, output=output, copies=last.copies, around=last.around, read=tuple(read))


def _batch_rows(tensor: Tensor, rows: tuple[int, ...] | None) -> Tensor:
    return tensor if rows is None else tensor[list(rows)]
