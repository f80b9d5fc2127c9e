"""The place of changes in one caught call: rows, keys, and new numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from overt.errors import InputError
from overt.lens.analysis.editing.changes import BlockedArcs, HeadChange, PartPatched, RowsSet
from overt.lens.analysis.editing.rows import Placed
from overt.lens.analysis.editing.words import named_positions
from overt.lens.captured import Captured
from overt.lens.storage.continued import Node
from overt.lens.tokens import Tokens

WordPositions = dict[tuple[int, str, int], list[int]]


@dataclass(eq=False)
class Spot:
    """A caught call of a layer: the positions of its queries and keys, and the words that they were read from.

    `self_key` is the key, counted in the call, of the first query's own position; None for attention between two sequences. `node` is the
    call's place among the calls that it continues; None for a linear token mixer. `words` has the positions of a word by change, side and
    entry, so that the word means the same positions in later calls.
    """

    captured: Captured
    first_query: int
    first_key: int
    self_key: int | None
    tokens: Tokens
    words: WordPositions = field(default_factory=dict)
    node: Node | None = None

    def entry_groups(self, changes: Sequence[HeadChange]) -> list[tuple[tuple[int, ...] | None, list[Placed]]]:
        """Groups of entries of the batch with the changes at the same positions (None: all entries), each with its changes."""
        everywhere = all(change.entries is None and not _has_words(change) and not _has_numbers(change) for change in changes)
        if everywhere:
            return [(None, self._placed(changes, 0))]
        groups: dict[Any, tuple[list[int], list[Placed]]] = {}
        for entry in range(self.captured.batch):
            placed = self._placed(changes, entry)
            key = tuple(
                (id(placement.change), placement.rows, placement.keys, entry * _has_numbers(placement.change))
                for placement in placed
            )
            groups.setdefault(key, ([], placed))[0].append(entry)
        return [(tuple(entries), placed) for entries, placed in groups.values() if placed]

    def _placed(self, changes: Sequence[HeadChange], entry: int) -> list[Placed]:
        """The changes of one entry that have rows in this call."""
        result = []
        for change in changes:
            if change.entries is not None and entry not in change.entries:
                continue
            rows = self._positions(change, "query", entry)
            keys = self._positions(change, "key", entry)
            if not rows or (isinstance(change, BlockedArcs) and not keys):
                continue
            if isinstance(change, PartPatched) and change.part in ("key", "value"):
                rows = list(range(self.captured.queries))
                if not keys:
                    continue
            result.append(Placed(change, tuple(rows), tuple(keys), self._numbers(change, rows, entry)))
        return result

    def _positions(self, change: HeadChange, side: str, entry: int) -> list[int]:
        """The rows or keys of a change in this call, counted from its first."""
        where = change.query if side == "query" else change.key
        first, count = (self.first_query, self.captured.queries) if side == "query" else (self.first_key, self.captured.keys)
        if not isinstance(where, str):
            return named_positions(where, first, count, None, side)
        known = self.words.get((id(change), side, entry))
        if known is None:
            read = self.tokens.query_words(self.captured) if side == "query" else self.tokens.key_words(self.captured)
            if read is None:
                raise InputError(
                    f"tokens of the {'queries' if side == 'query' else 'keys'} of {self.captured.layer}, for {side}={where!r}",
                    got="none of this length",
                    fix=f"write the position, {side}=7, or pass the tokens, query_tokens=[…] and key_tokens=[…]",
                )
            words = read[entry if len(read) > 1 else 0]
            known = [position + first for position in named_positions(where, first, count, words, side)]
            self.words[id(change), side, entry] = known
        return [position - first for position in known if first <= position < first + count]

    def _numbers(self, change: HeadChange, rows: list[int], entry: int) -> Tensor | None:
        """The rows of weights (rows, K) that are set for this entry."""
        if not isinstance(change, RowsSet) or isinstance(change.pattern, str):
            return None
        weights = change.pattern
        weights = weights[entry if len(weights) > 1 else 0] if weights.ndim == 3 else weights
        weights = weights.expand(len(rows), -1) if weights.ndim == 1 else weights
        first, keys = self.first_query, self.captured.keys
        index = list(range(len(rows))) if change.query is not None else [row + first for row in rows]
        there = len(weights) > max(index, default=-1) and weights.shape[-1] >= self.first_key + keys
        if not there or (change.query is not None and len(weights) != len(rows)):
            raise InputError(
                f"weights of {len(rows) if change.query is not None else first + self.captured.queries} rows and "
                f"{self.first_key + keys} keys, for {self.captured.layer}",
                got=f"{tuple(change.pattern.shape)}",
                fix="pass one row for each query that is set, with a weight for each key",
            )
        return weights[index, self.first_key : self.first_key + keys]


def _has_words(change: HeadChange) -> bool:
    return isinstance(change.query, str) or isinstance(change.key, str)


def _has_numbers(change: HeadChange) -> bool:
    """Whether each entry of the batch gets its own rows of weights."""
    return getattr(getattr(change, "pattern", None), "ndim", 0) == 3
