"""The recorded calls of all passes: each key is stored once, and calls that continue each other are joined to one.

A call that continues another (`continued.py`) is stored with only the keys that it adds. Opening it joins its keys, and also the
queries of a whole sequence of calls: one call with a row for each token, in order of generation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from overt.lens.captured import Captured, CapturedCall, RowsRead, select_entries
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.joined_summary import PartOfSummary, joined_summary
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.storage.continued import Continuation
from overt.lens.storage.joined_masks import RowsOfPass, joined_bias, joined_mask
from overt.lens.storage.joined_mixers import joined_mixer


class SequencePart(NamedTuple):
    """A sequence's part of recorded call `call`: its first `queries` rows, and the first `keys` keys that the call added (None: all).

    `rows` are the sequences of that call (None: all, in order); `start` is the position of its first key in the joined call.
    """

    call: int
    rows: tuple[int, ...] | None
    queries: int
    keys: int | None
    start: int


class RecordedPasses(Sequence[Captured]):
    """The recorded calls in order of their beginning; calls that continue each other are joined to one entry.

    `stored` holds the calls as recorded, and `continuations` how each call continues another.
    """

    def __init__(self):
        self.stored: list[Captured] = []
        self.continuations: list[Continuation | None] = []
        self._joined: list[Captured] = []
        self._count = 0

    def append(self, captured: Captured, continuation: Continuation | None = None) -> int:
        """Add a call and return its index. A call that continues another holds only the keys that it adds, if it has keys."""
        self.stored.append(captured)
        self.continuations.append(continuation)
        return len(self.stored) - 1

    def put_in_order(self, index: int, rows: tuple[int, ...] | None) -> None:
        """Let the sequences of call `index` continue the sequences `rows` of the call before it."""
        continuation = self.continuations[index]
        if continuation is not None and continuation.rows != rows:
            self.continuations[index], self._count = continuation._replace(rows=rows), -1

    @overload
    def __getitem__(self, index: int) -> Captured: ...

    @overload
    def __getitem__(self, index: slice) -> list[Captured]: ...

    def __getitem__(self, index: int | slice) -> Captured | list[Captured]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def by_pass(self, count: int) -> list[list[Captured]]:
        """The calls of each of `count` passes, each call with all of its keys."""
        passes: list[list[Captured]] = [[] for _ in range(count)]
        for index, (captured, continuation) in enumerate(zip(self.stored, self.continuations, strict=True)):
            alone = captured if continuation is None else CallOfPass(**captured.facts, passes=self, index=index)
            passes[captured.pass_index].append(alone)
        return passes

    def parts(self, last: int, rows: tuple[int, ...] | None = None) -> list[SequencePart]:
        """The calls that the sequence ending with call `last` consists of; `rows` are the sequences of that call to follow."""
        backwards: list[tuple[SequencePart, int]] = []
        index, queries, stop = last, self.stored[last].queries, None
        while (continuation := self.continuations[index]) is not None:
            stop = continuation.written if stop is None else stop
            backwards.append((SequencePart(index, rows, queries, stop - continuation.retained, 0), continuation.first))
            rows, index = composed(continuation.rows, rows), continuation.before
            queries, stop = self.stored[index].queries - continuation.dropped, continuation.first + continuation.retained
        start, parts = 0, [SequencePart(index, rows, queries, stop, 0)]
        for part, first in reversed(backwards):
            start += first
            parts.append(part._replace(start=start))
        return parts

    def sequence(self, parts: Sequence[SequencePart], number: int) -> Captured:
        """The calls of a sequence as one call with this number."""
        first, last = (self.stored[parts[end].call] for end in (0, -1))
        if len(parts) == 1 and parts[0].rows is None:
            return last
        continuation, rows = self.continuations[parts[-1].call], parts[-1].rows
        notes = (note for part in parts for note in self.stored[part.call].notes)
        facts = first.facts | {
            "number": number,
            "batch": last.batch if rows is None else len(rows),
            "queries": sum(part.queries for part in parts),
            "keys": parts[-1].start + (last.keys if continuation is None else continuation.written),
            "notes": tuple(dict.fromkeys(notes)),
        }
        return JoinedCall(**facts, passes=self, parts=tuple(parts))

    def read(self, parts: Sequence[SequencePart]) -> tuple[RowsRead, ...]:
        """The tokens that the passes of these parts read."""
        calls = [self.stored[part.call] for part in parts]
        return tuple(
            RowsRead(call.pass_index, part.rows, part.queries, call.queries) for call, part in zip(calls, parts, strict=True)
        )

    def added(self, index: int, first: int, stop: int | None, rows: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
        """Keys and values `first` to `stop` among the ones that call `index` added, for these sequences."""
        call = self._call(index).call
        after = 3 if call.query.ndim >= 4 else 2
        key, value = (select_entries(tensor[..., first:stop, :], rows, after) for tensor in (call.key, call.value))
        return key, value

    def opened(self, index: int) -> Captured:
        """One call with all of its keys."""
        continuation, captured = self.continuations[index], self.stored[index].opened()
        if continuation is not None and isinstance(captured, CapturedMixer):
            parts = self.parts(index)
            return joined_mixer(captured.facts, self._mixers(parts), self.read(parts), all_queries=False)
        if continuation is None or not isinstance(captured, CapturedCall):
            return captured
        pieces, entry, rows, begin, stop = [], index, None, 0, continuation.written
        while begin < stop:
            before = self.continuations[entry]
            retained = 0 if before is None else before.retained
            if stop > retained:
                pieces.append(self.added(entry, max(begin - retained, 0), stop - retained, rows))
            if before is None:
                break
            begin, stop = begin + before.first, min(stop, retained) + before.first
            rows, entry = composed(before.rows, rows), before.before
        unused = captured.keys - continuation.written  # slots of a cache that no query reaches
        key, value = (joined([*reversed(tensors)], unused) for tensors in zip(*pieces, strict=True))
        read, call = self.read(self.parts(index)), replace(captured.call, key=key, value=value)
        which = captured.facts | {"copies": captured.copies, "versions": captured.versions}
        return CallOfPasses(**which, call=call, output=captured.output, read=read)

    def join(self, facts: dict[str, Any], parts: Sequence[SequencePart]) -> Captured:
        """One call with the queries and the keys of these parts."""
        stored, read = [self.stored[part.call].opened() for part in parts], self.read(parts)
        if isinstance(stored[0], CapturedMixer):
            return joined_mixer(facts, self._mixers(parts), read)
        if isinstance(stored[0], CapturedSummary):
            summaries = [(item, part) for item, part in zip(stored, parts, strict=True) if isinstance(item, CapturedSummary)]
            return joined_summary(facts, read, [PartOfSummary(entry, part.rows, part.start) for entry, part in summaries])
        calls = [self._call(part.call) for part in parts]
        keys_and_values = [self.added(part.call, 0, part.keys, part.rows) for part in parts]
        stops = accumulate(key.shape[-2] for key, _ in keys_and_values)
        rows = [
            RowsOfPass(call, part.rows, part.queries, part.start, stop)
            for call, part, stop in zip(calls, parts, stops, strict=True)
        ]
        query, output = joined([part.query() for part in rows]), joined([part.output() for part in rows])
        key, value = (joined(list(item)) for item in zip(*keys_and_values, strict=True))
        mask, bias = joined_mask(rows, facts["keys"]), joined_bias(rows)
        call = replace(calls[-1].call, query=query, key=key, value=value, mask=mask, bias=bias, batch=tuple(query.shape[:-2]))
        return CallOfPasses(**facts, call=call, output=output, copies=calls[0].copies, read=read)

    def _mixers(self, parts: Sequence[SequencePart]) -> list[CapturedMixer]:
        opened = (self.stored[part.call].opened() for part in parts)
        return [item for item in opened if isinstance(item, CapturedMixer)]

    def _call(self, index: int) -> CapturedCall:
        captured = self.stored[index].opened()
        assert isinstance(captured, CapturedCall)
        captured.checked_call()
        return captured

    def _all(self) -> list[Captured]:
        if self._count == len(self.stored):
            return self._joined
        continued = {continuation.before for continuation in self.continuations if continuation is not None}
        calls, shared = [], set()
        for last in range(len(self.stored)):
            if last not in continued:
                parts = self.parts(last)
                number = next(part.call for part in parts if part.call not in shared)
                shared |= {part.call for part in parts}
                calls.append(self.sequence(parts, self.stored[number].number))
        self._joined, self._count = sorted(calls, key=lambda captured: captured.number), len(self.stored)
        return self._joined


@dataclass(frozen=True, eq=False, repr=False)
class CallOfPass(Captured):
    """A call of one pass whose first keys are stored with calls before it."""

    passes: RecordedPasses
    index: int

    @property
    def bytes(self) -> int:
        """The bytes stored for this call."""
        return self.passes.stored[self.index].bytes

    @property
    def read(self) -> tuple[RowsRead, ...]:
        """The tokens that this pass and the passes before it read."""
        return self.passes.read(self.passes.parts(self.index))

    def opened(self) -> Captured:
        """The call with all its keys."""
        return self.passes.opened(self.index)


@dataclass(frozen=True, eq=False, repr=False)
class CallOfPasses(CapturedCall):
    """A call with keys of several passes, which `read` these tokens; its queries belong to the last tokens."""

    read: tuple[RowsRead, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class JoinedCall(Captured):
    """Calls of several passes that continue each other, as one call; `parts` lists its part of each."""

    passes: RecordedPasses
    parts: tuple[SequencePart, ...]

    @property
    def bytes(self) -> int:
        """The bytes stored for all of these calls."""
        return sum(self.passes.stored[part.call].bytes for part in self.parts)

    @property
    def read(self) -> tuple[RowsRead, ...]:
        """Which tokens the passes read."""
        return self.passes.read(self.parts)

    def opened(self) -> Captured:
        """The call with the queries and keys of all passes."""
        return self.passes.join(self.facts, self.parts)


def composed(rows: tuple[int, ...] | None, chosen: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The `chosen` entries of `rows`; None means all in order.

    >>> composed((2, 0, 1), (1, 1)), composed(None, (1,)), composed((2, 0), None)
    ((0, 0), (1,), (2, 0))
    """
    return chosen if rows is None else rows if chosen is None else tuple(rows[item] for item in chosen)


def joined(tensors: list[Tensor], unused: int = 0) -> Tensor:
    """The positions of all tensors (..., N, D) joined, with `unused` zeros after them."""
    lead = torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in tensors))
    if unused:
        tensors = [*tensors, tensors[0].new_zeros(unused, tensors[0].shape[-1])]
    return torch.cat([tensor.expand(*lead, *tensor.shape[-2:]) for tensor in tensors], dim=-2)
