"""The positions that each process computes, and the passes in which keys go from process to process."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from overt.attention.kernels.sharded.layout import Interval, Sequence
from overt.attention.masks import Mask

_WORTHWHILE = 0.9  # a rearrangement must reduce the longest work to less than this share


class Schedule(NamedTuple):
    """The intervals of queries and keys that each process computes, and at which distances from home keys are needed.

    Under a causal mask a process computes an early and a late piece of the sequence, so that the work in each pass is balanced.
    """

    rows: list[list[Interval]]
    keys: list[list[Interval]]
    passes: list[int]
    spans: dict[Interval, Interval]  # for each interval of queries, the range of keys outside of which it attends to nothing

    def sees(self, rows: Interval, keys: Interval) -> bool:
        """Whether any of these queries may attend to any of these keys, by the known range of each interval."""
        low, high = self.spans[rows]
        return low < keys[1] and keys[0] < high and rows[0] < rows[1] and keys[0] < keys[1]


def ring_schedule(sequence: Sequence, mask: Any, keys: int) -> Schedule:
    """The schedule of a call with divided queries and keys; all processes compute the same one."""
    contiguous = [[row] for row in sequence.rows], [[key] for key in sequence.keys]
    early_and_late = tuple(_early_and_late(intervals[-1][1], len(intervals)) for intervals in (sequence.rows, sequence.keys))
    spans = {}
    for rows in {interval for layout in (contiguous, early_and_late) for group in layout[0] for interval in group}:
        spans[rows] = mask.span(*rows, keys) if isinstance(mask, Mask) and rows[0] < rows[1] else (0, keys)
    rank_rows, rank_keys = early_and_late if _is_uneven(early_and_late[0], spans, keys) else contiguous
    schedule = Schedule(rank_rows, rank_keys, [], spans)
    count = len(rank_rows)
    needed = (
        step
        for step in range(count)
        if any(schedule.sees(r, k) for rank in range(count) for r in rank_rows[rank] for k in rank_keys[(rank - step) % count])
    )
    return schedule._replace(passes=list(needed) or [0])


def _early_and_late(length: int, count: int) -> list[list[Interval]]:
    """Divide a length into 2 · count pieces; each process gets one from each end."""
    edges = [piece * length // (2 * count) for piece in range(2 * count + 1)]
    return [[(edges[piece], edges[piece + 1]) for piece in (rank, 2 * count - 1 - rank)] for rank in range(count)]


def _is_uneven(early_and_late: list[list[Interval]], spans: dict[Interval, Interval], keys: int) -> bool:
    """Whether contiguous pieces would give a process clearly more pairs of query and key than pieces from both ends."""
    pairs = {}
    for rows in (interval for intervals in early_and_late for interval in intervals):
        low, high = spans[rows]
        pairs[rows] = (rows[1] - rows[0]) * max(min(high, keys) - max(low, 0), 0)
    in_order = [pairs[rows] for rows in sorted(pairs)]
    longest = max(map(sum, zip(in_order[::2], in_order[1::2], strict=False)), default=0)
    return max(sum(pairs[rows] for rows in intervals) for intervals in early_and_late) < _WORTHWHILE * longest


def moved(tensor: Tensor, source: list[list[Interval]], target: list[list[Interval]], sequence: Sequence) -> Tensor:
    """Redistribute positions (..., L, D) from the intervals `source` of the processes to the intervals `target`."""
    if source == target:
        return tensor
    mine, rank, count = _positions(source[sequence.rank]), sequence.rank, len(source)
    leaving = [_positions(_common(source[rank], target[other])) for other in range(count)]
    coming = [_positions(_common(source[other], target[rank])) for other in range(count)]
    order = torch.searchsorted(mine, torch.cat(leaving)).to(tensor.device)
    sent = tensor.movedim(-2, 0)[order].contiguous()  # (L, ..., D)
    received = sent.new_empty(sum(map(len, coming)), *sent.shape[1:])
    sizes = [len(part) for part in coming], [len(part) for part in leaving]
    dist.all_to_all_single(received, sent, *sizes, group=sequence.group)
    return received[torch.cat(coming).argsort().to(tensor.device)].movedim(0, -2)


def _positions(intervals: list[Interval]) -> Tensor:
    return torch.cat([torch.arange(*interval) for interval in sorted(intervals)]) if intervals else torch.arange(0)


def _common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    both = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return [(first, stop) for first, stop in both if first < stop]


class Shift:
    """Tensors in transfer to the process some steps further in the ring; `wait` returns those that arrive."""

    def __init__(self, tensors: list[Tensor], length: int, steps: int, sequence: Sequence):
        """Start to send `tensors` (..., L, D), and to receive others of this length."""
        count, rank = len(sequence.rows), sequence.rank
        same = steps % count == 0
        self.received: list[Tensor] = tensors if same else [_with_length(tensor, length) for tensor in tensors]
        self.sent: list[Tensor] = [] if same else [tensor.contiguous() for tensor in tensors]  # kept alive until all is sent
        operations = []
        for leaving, arriving in zip(self.sent, self.received, strict=False):
            if leaving.numel():
                operations.append(dist.P2POp(dist.isend, leaving, None, sequence.group, group_peer=(rank + steps) % count))
            if arriving.numel():
                operations.append(dist.P2POp(dist.irecv, arriving, None, sequence.group, group_peer=(rank - steps) % count))
        self.works: list[Any] = dist.batch_isend_irecv(operations) if operations else []

    def wait(self) -> list[Tensor]:
        """Wait for the transfer, and return the received tensors."""
        for work in self.works:
            work.wait()
        return self.received


def _with_length(tensor: Tensor, length: int) -> Tensor:
    return tensor.new_empty(*tensor.shape[:-2], length, tensor.shape[-1])
