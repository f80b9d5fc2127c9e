"""The masks and biases of several passes joined to one call: each row keeps its keys."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.masks import Mask, Ranges
from overt.lens.capture.ranges import in_ranges
from overt.lens.captured import CapturedCall, select_entries
from overt.lens.statistics.padding import uniform_rows


class RowsOfPass(NamedTuple):
    """The first `queries` rows of a call, in the sequences `rows` (None: all); their keys are `start` to `stop` of the joined call.

    A cache may have slots after these keys; only rows of padding, whose weights are uniform over all slots, attend to them.
    """

    captured: CapturedCall
    rows: tuple[int, ...] | None
    queries: int
    start: int
    stop: int

    @property
    def after(self) -> int:
        """The number of dimensions of a mask after the dimension of sequences."""
        return 3 if self.captured.call.query.ndim >= 4 else 2

    def ranges(self) -> tuple[Tensor, Tensor] | None:
        """The range of each row's keys in the joined call, (..., rows); None if a row's keys are not one range."""
        captured = self.captured
        ranges = in_ranges(captured.call.mask, captured.queries, captured.keys, captured.call.query.device)
        if ranges is None:
            return None
        some, padding = ranges.high > ranges.low, self.padding
        some = some if padding is None else some & ~padding
        low, high = (
            select_entries(edge.expand(*edge.shape[:-1], captured.queries), self.rows, self.after - 1)[..., : self.queries]
            for edge in (
                torch.where(some, edge + self.start, 0).clamp(max=self.stop).int() for edge in (ranges.low, ranges.high)
            )
        )
        return low, high

    @property
    def padding(self) -> Tensor | None:
        """Whether each row of the call, (..., Q), is padding that attends to unused slots; None without unused slots."""
        call = self.captured.call
        if call.bias is None or self.captured.keys <= self.stop - self.start:
            return None
        rows, keys = (torch.arange(size, device=call.query.device) for size in (call.queries, self.captured.keys))
        return uniform_rows(call.bias.block(rows, keys).detach().float().amax(-1))

    def query(self) -> Tensor:
        """The queries of these rows, (..., rows, D)."""
        return select_entries(self.captured.call.query, self.rows, self.after)[..., : self.queries, :]

    def output(self) -> Tensor:
        """The output of these rows, (..., rows, E); 0 for padding that attends to unused slots."""
        output, padding = self.captured.output, self.padding
        if padding is not None:
            output = output.masked_fill(padding[..., None], 0)
        return select_entries(output, self.rows, self.after)[..., : self.queries, :]

    def block(self, piece: Any, rows: Tensor, keys: Tensor) -> Tensor:
        """A block of the call's mask or bias, for these sequences."""
        return select_entries(piece.block(rows, keys), self.rows, self.after)


def joined_mask(parts: Sequence[RowsOfPass], keys: int) -> Any:
    """The masks of all parts: None if every row has all keys, ranges if each row has one range, else a mask that reads the parts.

    Rows of padding that attend to unused slots get no keys, because the slots hold no tokens.
    """
    ranges = [part.ranges() for part in parts]
    if any(span is None for span in ranges):
        return _JoinedMask(parts, [part.captured.call.mask for part in parts])
    low, high = (_along([edges[side] for edges in ranges if edges is not None]) for side in (0, 1))
    return None if bool(((low == 0) & (high == keys)).all()) else Ranges(low, high)


def joined_bias(parts: Sequence[RowsOfPass]) -> Any:
    """The biases of all parts; None if no part has one."""
    biases = [part.captured.call.bias for part in parts]
    return None if all(bias is None for bias in biases) else _JoinedBias(parts, biases)


class _Joined:
    outside: bool | float

    def __init__(self, parts: Sequence[RowsOfPass], pieces: Sequence[Any]):
        self.parts, self.pieces = parts, pieces
        self.ends = torch.tensor([part.queries for part in parts]).cumsum(0)

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The block of these rows and keys, each row from its own part."""
        owners = torch.searchsorted(self.ends, rows.cpu(), right=True)
        blocks = [
            self._part_block(int(item), rows[(owners == item).to(rows.device)], keys) for item in owners.unique_consecutive()
        ]
        lead = torch.broadcast_shapes(*(block.shape[:-2] for block in blocks))
        return torch.cat([block.expand(*lead, *block.shape[-2:]) for block in blocks], dim=-2)

    def _part_block(self, number: int, rows: Tensor, keys: Tensor) -> Tensor:
        part, piece = self.parts[number], self.pieces[number]
        inside = (keys >= part.start) & (keys < min(part.stop, part.start + part.captured.keys))
        if piece is None:
            return self.where_none(inside).expand(len(rows), len(keys))
        block = part.block(piece, rows - (int(self.ends[number]) - part.queries), (keys - part.start)[inside])
        whole = torch.full((*block.shape[:-2], len(rows), len(keys)), self.outside, dtype=block.dtype, device=block.device)
        whole[..., inside] = block.expand(*whole.shape[:-1], int(inside.sum()))
        return whole

    def where_none(self, inside: Tensor) -> Tensor:
        """The values for a row of a part without a mask or bias; `inside` marks the keys of its call."""
        raise NotImplementedError


class _JoinedMask(_Joined, Mask):
    """The masks of several passes."""

    outside = False

    def _part_block(self, number: int, rows: Tensor, keys: Tensor) -> Tensor:
        block, part = super()._part_block(number, rows, keys), self.parts[number]
        if (padding := part.padding) is None:
            return block
        padding = select_entries(padding, part.rows, part.after - 1)[..., rows - (int(self.ends[number]) - part.queries)]
        return block & ~padding[..., None]

    def where_none(self, inside):
        """Allow all keys of the row's call."""
        return inside


class _JoinedBias(_Joined, Bias):
    """The biases of several passes."""

    outside = 0.0

    def where_none(self, inside):
        """Add 0."""
        return torch.zeros(len(inside), device=inside.device)


def _along(edges: list[Tensor]) -> Tensor:
    lead = torch.broadcast_shapes(*(edge.shape[:-1] for edge in edges))
    return torch.cat([edge.expand(*lead, edge.shape[-1]) for edge in edges], dim=-1)
