"""The weights of a call, all its heads together, a block of rows at a time."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from overt.attention.kernels.blocked import block_of, ready
from overt.attention.kernels.call import unrounded
from overt.attention.mechanism import formula
from overt.errors import InputError
from overt.lens.captured import Captured, CapturedCall, fresh, head_count
from overt.lens.recorded_calls import RecordedCalls

BLOCK = 2**20  # weights that are held at once, over all heads and sequences
# Models bar keys by −inf or by their dtype's smallest number; this far below a row's largest score no weight is left.
BARRED = 3e4


class WeightsByBlock:
    """A recorded call whose weights are made anew, before dropout, of its kept heads alone: (B, H, rows, K)."""

    def __init__(self, captured: Captured):
        opened = captured.opened()
        if not isinstance(opened, CapturedCall):
            raise InputError(
                "reading the weights needs what went into the call",
                got=f"a recording that kept summaries of {captured.layer}",
                fix='record with keep="qkv"',
            )
        self.call = ready(replace(fresh(opened.checked_call()), dropout=0.0))
        self.queries, self.keys, self.batch = opened.queries, opened.keys, opened.batch
        self.places = [opened.copies.index(head) for head in opened.heads]
        self.careful = self.call.mask is not None and not self.call.finite

    def rows(self, first: int, stop: int) -> Tensor:
        """The weights of queries first to stop: (B, H, rows, K)."""
        return self._by_head(self._stages(first, stop)[2])

    def choices(self, first: int, stop: int) -> Tensor:
        """How many keys each of these queries may attend to: (B, H, rows)."""
        masked = self._by_head(self._stages(first, stop)[1])
        return (masked > masked.amax(-1, keepdim=True) - BARRED).sum(-1)

    @torch.no_grad()
    def _stages(self, first: int, stop: int) -> tuple[Tensor, ...]:
        with unrounded(self.call.query):
            return formula(block_of(self.call, self.call.rows(first, stop), every_key=True, careful=self.careful))

    def _by_head(self, tensor: Tensor) -> Tensor:
        whole = tensor.expand(*self.call.batch, *tensor.shape[-2:])
        return whole.reshape(self.batch, head_count(self.call), *tensor.shape[-2:])[:, self.places]

    def blocks(self) -> Iterator[tuple[int, int, Tensor]]:
        """All queries in turn: the first of a block, the one after its last, and their weights."""
        size = max(1, BLOCK // max(1, math.prod(self.call.batch) * self.keys))
        for first in range(0, self.queries, size):
            stop = min(first + size, self.queries)
            yield first, stop, self.rows(first, stop)


def one_pass(calls: RecordedCalls, what: str) -> list[Captured]:
    """The calls of a recording of one pass; refuse one of several."""
    found = calls.nonempty_calls()
    pass_count = len({captured.pass_index for captured in found})
    if pass_count > 1:
        raise InputError(
            f"{what} reads one pass of the model", got=f"a recording of {pass_count}", fix="pass recording.passes[0]"
        )
    return found
