"""The sizes of a call of FlexAttention, and index vectors over them."""

from typing import NamedTuple

import torch
from torch import Tensor

from overt.integrations.flex.expression import BATCH, HEAD, KEY, QUERY

# Each symbol has one of the dimensions (B, H, Q, K).
_SHAPES = {BATCH: (-1, 1, 1, 1), HEAD: (1, -1, 1, 1), QUERY: (1, 1, -1, 1), KEY: (1, 1, 1, -1)}


class Sizes(NamedTuple):
    """How many batch entries, heads of queries, queries and keys there are, and where."""

    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device

    def indices(self, rows: Tensor | None = None, keys: Tensor | None = None) -> dict[str, Tensor]:
        """Index vectors that broadcast to (B, H, rows, keys), int32 as FlexAttention's; all rows and keys where none are named."""
        rows = torch.arange(self.queries, device=self.device) if rows is None else rows
        keys = torch.arange(self.keys, device=self.device) if keys is None else keys
        batch, heads = (torch.arange(size, device=self.device) for size in (self.batch, self.heads))
        vectors = {BATCH: batch, HEAD: heads, QUERY: rows, KEY: keys}
        return {name: vector.int().view(_SHAPES[name]) for name, vector in vectors.items()}
