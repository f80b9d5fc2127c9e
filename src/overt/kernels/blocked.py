"""The path that is always there: any score, mask, bias and normalizer, in memory linear in the inputs.

Queries are taken in blocks of rows. A block's weights live until its output is there; the backward pass computes them again
(a non-reentrant checkpoint a block), so nothing of size Q × K is kept. Under a torch.func transform, which sees no checkpoints,
the plain blocks run.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from overt.kernels.call import Block, Call, unrounded
from overt.scores import Score

Formula = Callable[[Block], tuple[Tensor, ...]]

# Numbers that a block's scores may hold: 8 MB in float32, so that a block and its temporaries stay near the caches.
BLOCK = 2**21


def blocked(call: Call, formula: Formula, every_key: bool = False) -> tuple[Tensor, ...]:
    """Apply the formula to all queries, a block of rows at a time, and join its results along the rows."""
    call = call.ready()
    with unrounded(call.query):
        parts = [_kept_or_recomputed(call, formula, block) for _, block in blocks(call, every_key)]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(results, dim=-2) for results in zip(*parts, strict=True))


def blocks(call: Call, every_key: bool = False) -> Iterator[tuple[int, Block]]:
    """The blocks of a ready call, each with its first row, in which nothing that a masked key or value holds can be felt."""
    harmless = call.mask is None or (call.inspectable and call.finite)
    for first, stop in row_blocks(call):
        block = call.rows(first, stop, every_key)
        if harmless:
            yield first, block
        elif not call.inspectable or _same_for_all_rows(block):
            yield first, _without_barred(block)
        else:
            # Rows that see different keys are parted, so that each can drop the keys that it may not see.
            for row in range(first, stop):
                yield row, _without_barred(call.rows(row, row + 1, every_key))


def row_blocks(call: Call) -> list[tuple[int, int]]:
    """First and last-plus-one row of each block; one empty block where there are no queries."""
    width = call.score.width(call.query.shape[-1]) if isinstance(call.score, Score) else 1
    row = max(math.prod(call.batch) * call.keys * width, 1)
    rows = max(BLOCK // row, 1 if width > 1 else 8)
    return [(first, min(first + rows, call.queries)) for first in range(0, max(call.queries, 1), rows)]


def _kept_or_recomputed(call: Call, formula: Formula, block: Block) -> tuple[Tensor, ...]:
    if call.transformed or torch.compiler.is_exporting() or not torch.is_grad_enabled():
        return formula(block)
    return checkpoint(
        lambda query, key, value: formula(block._replace(query=query, key=key, value=value)),
        block.query,
        block.key,
        block.value,
        use_reentrant=False,
        preserve_rng_state=call.dropout > 0,
    )


def _same_for_all_rows(block: Block) -> bool:
    """Whether every row sees the same keys, and no query holds NaN or infinity, which would reach its neighbours' gradients."""
    allowed = block.allowed
    return bool((allowed == allowed[..., :1, :]).all()) and bool(torch.isfinite(block.query).all())  # type: ignore[index]


def _without_barred(block: Block) -> Block:
    """The block with every key and value that none of its rows may see set to zero: 0 · NaN is NaN, and where() is not."""
    seen = block.allowed.any(-2)  # type: ignore[union-attr]  # (..., K)
    asked = block.allowed.any(-1)  # type: ignore[union-attr]  # (..., Q)
    return block._replace(
        query=torch.where(asked[..., None], block.query, 0),
        key=torch.where(seen[..., None], block.key, 0),
        value=torch.where(seen[..., None], block.value, 0),
    )
