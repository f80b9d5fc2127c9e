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

from overt.attention.kernels.call import Block, Call, Rows, unrounded
from overt.attention.kernels.flat.call import scored
from overt.attention.kernels.heap import give_back
from overt.attention.kernels.plan import permits
from overt.attention.scores import Score

Formula = Callable[[Block], tuple[Tensor, ...]]

# Numbers that a block's scores may hold: 8 MB in float32, so that a block and its temporaries stay near the caches.
BLOCK = 2**21


def blocked(call: Call, formula: Formula, every_key: bool = False) -> tuple[Tensor, ...]:
    """Apply the formula to all queries, a block of rows at a time, and join its results along the rows."""
    call = ready(call)
    with unrounded(call.query):
        parts = [_checkpointed(call, formula, rows, every_key, careful) for rows, careful in row_blocks(call)]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(results, dim=-2) for results in zip(*parts, strict=True))


def ready(call: Call) -> Call:
    """The call made ready for blocks; its additive scores by the native kernel, where that is able and not forbidden."""
    return scored(call.ready()) if permits("native") else call.ready()


def row_blocks(call: Call) -> Iterator[tuple[Rows, bool]]:
    """The rows of each block of a ready call, and whether care is needed that nothing masked is felt.

    One empty block comes where there are no queries.
    """
    careful = call.mask is not None and not (call.inspectable and call.finite)
    for rows in call.split(_size(call)):
        if not careful or not call.inspectable or _same_for_all(call.block(rows)):
            yield rows, careful
        else:
            # Rows that see different keys are parted, so that each can drop the keys that it may not see.
            yield from ((call.rows(row, row + 1), True) for row in range(rows.first, rows.stop))


def block_of(call: Call, rows: Rows, every_key: bool, careful: bool) -> Block:
    """The block of these rows; with care, every key and value that none of them may see is zero: 0 · NaN is NaN, where() is not."""
    one_of_many = rows.stop - rows.first < call.queries
    if one_of_many and call.query.device.type == "cpu" and not torch.compiler.is_compiling():
        give_back()
    block = call.block(rows, every_key)
    if not careful:
        return block
    visible_keys = block.allowed.any(-2)  # type: ignore[union-attr]  # (..., K)
    active_queries = block.allowed.any(-1)  # type: ignore[union-attr]  # (..., Q)
    return block._replace(
        query=torch.where(active_queries[..., None], block.query, 0),
        key=torch.where(visible_keys[..., None], block.key, 0),
        value=torch.where(visible_keys[..., None], block.value, 0),
    )


def _size(call: Call) -> int:
    """How many rows a block has."""
    width = call.score.width(call.query.shape[-1]) if isinstance(call.score, Score) else 1
    row = max(math.prod(call.batch) * call.keys * width, 1)
    return max(BLOCK // row, 1 if width > 1 else 8)


def _checkpointed(call: Call, formula: Formula, rows: Rows, every_key: bool, careful: bool) -> tuple[Tensor, ...]:
    def run(query: Tensor) -> tuple[Tensor, ...]:
        # Mask and bias are computed in here: stored by the forward pass for every block, they would be n × n.
        return formula(block_of(call, rows._replace(query=query), every_key, careful))

    if call.transformed or torch.compiler.is_exporting() or not torch.is_grad_enabled():
        return run(rows.query)
    return checkpoint(run, rows.query, use_reentrant=False, preserve_rng_state=call.dropout > 0)


def _same_for_all(block: Block) -> bool:
    """Whether every row sees the same keys, and no query holds NaN or infinity, which would reach its neighbours' gradients."""
    allowed = block.allowed
    return bool((allowed == allowed[..., :1, :]).all()) and bool(torch.isfinite(block.query).all())  # type: ignore[index]
