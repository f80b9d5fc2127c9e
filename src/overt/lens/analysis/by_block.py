"""The weights of a call, all its heads together, in blocks of rows."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from overt.attention.kernels.blocked import query_block, query_rows, ready
from overt.attention.kernels.call import Call, unrounded
from overt.attention.mechanism import formula
from overt.errors import InputError
from overt.lens.captured import MASKED_GAP, Captured, CapturedCall, by_head, fresh
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.chunks import Chunks, head_groups
from overt.lens.recorded_calls import RecordedCalls

BLOCK = 2**20  # weights in memory at a time, over all heads and sequences


class WeightsByBlock:
    """The weights (B, H, rows, K) of the recorded heads of a call, recomputed before dropout."""

    def __init__(self, captured: Captured):
        opened = captured.opened()
        if isinstance(opened, CapturedMixer):
            raise InputError(
                "attention, whose weights are not negative and sum to one at most, for an analysis that multiplies or compares them",
                got=f"{captured.layer}, a linear token mixer ({opened.recurrence.kind}), whose weights are signed",
                fix="record the attention alone with layers=[…], and read a mixer by head.weights(rows)",
            )
        if not isinstance(opened, CapturedCall):
            raise InputError(
                "a recording of query, key and value, to recompute weights",
                got=f"summaries of {captured.layer}",
                fix='record with keep="qkv"',
            )
        self.call: Call = ready(replace(fresh(opened.checked_call()), dropout=0.0))
        self.queries: int = opened.queries
        self.keys: int = opened.keys
        self.batch: int = opened.batch
        self.indices: list[int] = [opened.copies.index(head) for head in opened.heads]
        self.careful: bool = self.call.mask is not None and not self.call.finite

    def rows(self, first: int, stop: int) -> Tensor:
        """The weights of the queries from first up to stop: (B, H, rows, K)."""
        return self._by_head(self._stages(first, stop)[2])

    def some_rows(self, rows: list[int]) -> Tensor:
        """The weights of the queries `rows`: (B, H, rows, K)."""
        if rows == list(range(rows[0], rows[-1] + 1)):
            return self.rows(rows[0], rows[-1] + 1)
        return torch.cat([self.rows(row, row + 1) for row in rows], dim=2)

    def choices(self, first: int, stop: int) -> Tensor:
        """The number of keys that each query from first up to stop may attend to: (B, H, rows)."""
        masked = self._by_head(self._stages(first, stop)[1])
        return (masked > masked.amax(-1, keepdim=True) - MASKED_GAP).sum(-1)

    @torch.no_grad()
    def _stages(self, first: int, stop: int) -> tuple[Tensor, ...]:
        with unrounded(self.call.query):
            return formula(query_block(self.call, query_rows(self.call, first, stop), every_key=True, careful=self.careful))

    def _by_head(self, tensor: Tensor) -> Tensor:
        return by_head(self.call, tensor)[:, self.indices]

    def blocks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Iterate over all queries in blocks: the first query, the one after the last, and their weights."""
        size = max(1, BLOCK // max(1, math.prod(self.call.batch) * self.keys))
        for first in range(0, self.queries, size):
            stop = min(first + size, self.queries)
            yield first, stop, self.rows(first, stop)


def by_groups(captured: Captured, groups: Sequence[tuple[int, ...]]) -> Iterator[WeightsByBlock | Chunks]:
    """The weights of a call: one group of heads after the other for a mixer, all heads together for attention."""
    opened = captured.opened()
    if isinstance(opened, CapturedMixer):
        yield from (Chunks(opened.of_heads(heads).recurrence) for heads in groups)
    else:
        yield WeightsByBlock(captured)


def fitting_groups(captured: Captured) -> list[tuple[int, ...]]:
    """Groups of a mixer's heads whose chunks fit in memory together; one group for attention."""
    opened = captured.opened()
    if not isinstance(opened, CapturedMixer):
        return [opened.heads]
    sizes = [part.heads for part in head_groups(opened.of_heads(opened.heads).recurrence)]
    ends = list(accumulate(sizes))
    return [opened.heads[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def one_pass(calls: RecordedCalls, what: str) -> Sequence[Captured]:
    """The calls of a recording of one pass. Raises InputError for several passes."""
    captured = calls.nonempty_calls()
    passes = len({call.pass_index for call in captured})
    if passes > 1:
        raise InputError(f"one pass of the model, for {what}", got=f"a recording of {passes}", fix="pass recording.passes[0]")
    return captured
