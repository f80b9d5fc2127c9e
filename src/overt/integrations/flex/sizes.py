"""The sizes of a call of FlexAttention, and index vectors over them for mods."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from overt.errors import InputError
from overt.integrations.flex.positions import BATCH, HEAD, KEY, QUERY

PAIRS = 2**21  # PAIRS of a mask that are inspected together: a few megabytes of bools and indices

# _SHAPES: each symbol is along one of the dimensions (B, H, Q, K).
_SHAPES = {BATCH: (-1, 1, 1, 1), HEAD: (1, -1, 1, 1), QUERY: (1, 1, -1, 1), KEY: (1, 1, 1, -1)}


class Sizes(NamedTuple):
    """The numbers of batch entries, query heads, queries and keys, and the device."""

    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device

    @property
    def rows_at_once(self) -> int:
        """The number of queries that are inspected together, with all keys."""
        return max(PAIRS // max(self.keys * self.batch * self.heads, 1), 1)

    def indices(self, rows: Tensor | None = None, keys: Tensor | None = None) -> dict[str, Tensor]:
        """Index vectors that broadcast to (B, H, rows, keys), int32 like FlexAttention's; by default all rows and keys."""
        rows = torch.arange(self.queries, device=self.device) if rows is None else rows
        keys = torch.arange(self.keys, device=self.device) if keys is None else keys
        batch, heads = (torch.arange(size, device=self.device) for size in (self.batch, self.heads))
        vectors = {BATCH: batch, HEAD: heads, QUERY: rows, KEY: keys}
        return {name: vector.int().view(_SHAPES[name]) for name, vector in vectors.items()}


@contextmanager
def within_tables(mod: str, sizes: Sizes) -> Iterator[None]:
    """Within the block, torch's error for an index beyond a captured table becomes a sentence."""
    try:
        yield
    except IndexError as error:
        batch, heads, queries, keys = sizes[:4]
        raise InputError(
            f"{mod} to read within its tables at every pair that may attend, of B = {batch}, H = {heads}, Q = {queries}, K = {keys}",
            got=str(error),
            fix="make the table as long as its indices require, or mask the pairs that it has no number for in the block mask",
        ) from error
