"""The path that supports every call: any score, mask, bias and normalizer, in memory linear in the inputs.

Queries are processed in blocks of rows. A block's weights live until its output is computed; the backward pass recomputes them
(a non-reentrant checkpoint a block), so nothing of size Q × K is stored. Under a torch.func transform, which does not support checkpoints,
the blocks run without them. `mechanism` passes its `formula` in: attention is written once, and no kernel imports from above.

A weight of 0 does not remove NaN from a sum. So if an input is not finite and there is a mask, rows that see different keys are computed
one at a time, and masked keys and values are zeroed before any arithmetic. While torch compiles, transforms or captures, values cannot be
inspected: only keys that are masked for all rows of a block are zeroed, and `plan` names the remaining risk.
"""

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import checkpoint as checkpoint_module
from torch.utils.checkpoint import checkpoint

from overt import native
from overt.attention.kernels.call import Call, is_exporting, unrounded
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat.additive import additive_scores
from overt.attention.kernels.heap import give_back
from overt.attention.kernels.plan import permits
from overt.attention.masks import Mask
from overt.attention.scores import AdditiveForm, Score, takes_half
from overt.errors import InputError, KindError

# BLOCK: numbers in a block's scores; 8 MB in float32, so a block and its temporaries stay near the caches.
BLOCK = 2**21


class Block(NamedTuple):
    """A block of query rows with the keys that they can reach: the input of the formula."""

    query: Tensor
    key: Tensor
    value: Tensor
    score: Any
    allowed: Tensor | None
    bias: Tensor | None
    normalizer: Any
    dropout: float


class QueryRows(NamedTuple):
    """A block of query rows, and the rows of the bias if it is a tensor with rows."""

    first: int
    stop: int
    query: Tensor
    bias: Tensor | None


Formula = Callable[[Block], tuple[Tensor, ...]]


def blocked(call: Call, formula: Formula, every_key: bool = False) -> tuple[Tensor, ...]:
    """Apply the formula to blocks of query rows, and concatenate its results along the rows."""
    call = ready(call)
    with unrounded(call.query):
        parts = [_checkpointed(call, formula, rows, every_key, careful) for rows, careful in row_blocks(call)]
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(results, dim=-2) for results in zip(*parts, strict=True))


def in_blocks(call: Call, formula: Formula) -> Tensor:
    """The output, the last result of the four-stage formula."""
    return blocked(call, lambda block: formula(block)[3:])[0].to(call.query.dtype)


def ready(call: Call) -> Call:
    """Prepare the call for blocks; the native kernel computes additive scores if it supports them and is permitted.

    The kernel computes them in one pass, without (..., Q, K, D) numbers in memory.
    """
    ready, form = widened(call), call.form
    if not isinstance(form, AdditiveForm) or not permits("native"):
        return ready
    if flat_call.MISSING and not torch.compiler.is_compiling():
        native.warn_if_missing()
    return ready if flat_call.scores_refusal(ready) else replace(ready, score=NativeScores(*form))


@dataclass(frozen=True, eq=False)
class NativeScores(Score):
    """`overt.Additive` whose scores the native kernel computes in one pass."""

    weight: Tensor
    activation: str

    def __call__(self, query: Tensor, key: Tensor) -> Any:
        """Score each query (..., Q, D) against each key (..., K, D): (..., Q, K)."""
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], self.weight.shape[:-1])
        return additive_scores(query, key, self.weight.to(query.dtype), self.activation, batch)


def widened(call: Call) -> Call:
    """The same call with grouped heads repeated and half-precision inputs widened; linear in the inputs."""
    query, key, value = call.query, call.key, call.value
    if call.batch:
        key, value = (_repeat_heads(tensor, call.batch[-1]) for tensor in (key, value))
    if not takes_half(call.score):
        query, key = query.to(call.dtype), key.to(call.dtype)
    return replace(call, query=query, key=key, value=value.to(call.dtype))


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    if tensor.ndim < 4 or tensor.shape[-3] == 1 or tensor.shape[-3] == heads:
        return tensor
    return tensor.repeat_interleave(heads // tensor.shape[-3], dim=-3)


def row_blocks(call: Call) -> Iterator[tuple[QueryRows, bool]]:
    """Yield the rows of each block of a prepared call, and whether masked NaN or infinity must be removed.

    A call without queries has one empty block.
    """
    careful = call.mask is not None and not (call.inspectable and call.finite)
    for rows in _split(call):
        if not careful or not call.inspectable or _same_for_all(_block(call, rows)):
            yield rows, careful
        else:
            # Rows that see different keys are separated, so that each block can drop its masked keys.
            yield from ((query_rows(call, row, row + 1), True) for row in range(rows.first, rows.stop))


def query_rows(call: Call, first: int, stop: int) -> QueryRows:
    """Queries first to stop."""
    bias = _bias_rows(call)
    return QueryRows(first, stop, call.query[..., first:stop, :], None if bias is None else bias[..., first:stop, :])


def _split(call: Call) -> list[QueryRows]:
    """All queries in blocks of rows; split at once, so that their gradients are concatenated and not added one by one."""
    width = call.score.width(call.query.shape[-1]) if isinstance(call.score, Score) else 1
    numbers = max(math.prod(call.batch) * call.keys * width, 1)  # of one row
    size = max(BLOCK // numbers, 1 if width > 1 else 8)
    starts = range(0, max(call.queries, 1), size)
    queries, bias = call.query.split(size, dim=-2), _bias_rows(call)
    biases = [None] * len(starts) if bias is None else bias.split(size, dim=-2)
    stops = (min(start + size, call.queries) for start in starts)
    return [QueryRows(*parts) for parts in zip(starts, stops, queries, biases, strict=True)]


def _bias_rows(call: Call) -> Tensor | None:
    pairs = None if call.bias is None else call.bias.added_pairs()
    return None if pairs is None or pairs.shape[-2] == 1 else pairs  # (..., Q, K or 1)


def query_block(call: Call, rows: QueryRows, every_key: bool, careful: bool) -> Block:
    """The block of these rows; if careful, keys and values masked for all of them are zeroed: 0 · NaN is NaN, where() is not."""
    if rows.stop - rows.first < call.queries and call.query.device.type == "cpu" and not torch.compiler.is_compiling():
        give_back()
    block = _block(call, rows, every_key)
    if not careful:
        return block
    visible_keys = block.allowed.any(-2)  # type: ignore[union-attr]  # (..., K)
    active_queries = block.allowed.any(-1)  # type: ignore[union-attr]  # (..., Q)
    query = torch.where(active_queries[..., None], block.query, 0)
    key, value = (torch.where(visible_keys[..., None], tensor, 0) for tensor in (block.key, block.value))
    # torch.compile of torch 2.7 cannot slice a named tuple.
    return Block(query, key, value, block.score, block.allowed, block.bias, block.normalizer, block.dropout)


def _block(call: Call, rows: QueryRows, every_key: bool = False) -> Block:
    """These rows with the keys that they can reach, or with all keys."""
    first, stop, query, bias_rows = rows
    low, high = (0, call.keys) if every_key or not getattr(call.score, "pairwise", False) else _span(call, first, stop)
    row_indices = torch.arange(first, stop, device=query.device)
    keys = torch.arange(low, high, device=query.device)
    if bias_rows is None:
        bias = None if call.bias is None else call.bias.block(row_indices, keys)
    else:
        bias = bias_rows if bias_rows.shape[-1] == 1 else bias_rows[..., low:high]
    return Block(
        query,
        call.key[..., low:high, :],
        call.value[..., low:high, :],
        call.score.of_block(slice(first, stop), slice(low, high))
        if isinstance(call.score, Score)
        else lambda q, k: _scores(call, q, k),
        None if call.mask is None else call.mask.block(row_indices, keys),
        bias,
        lambda scores, allowed: _weights(call, scores, allowed),
        call.dropout,
    )


def _scores(call: Call, query: Tensor, key: Tensor) -> Tensor:
    """The scores of a caller's function; an error if they are not (..., Q, K)."""
    try:
        scores = call.score(query, key)
    except RuntimeError as error:
        if "dtype" not in str(error) or query.dtype == torch.float64:
            raise
        raise KindError(
            f"a score of one's own to compute in {query.dtype}, in which it gets query and key",
            got=str(error).splitlines()[0],
            fix="convert what it holds, as in weight.to(query.dtype)"
            + ("" if takes_half(call.score) else ", or set takes_half = True on it, and it gets half precision as it is"),
        ) from error
    if not isinstance(scores, Tensor) or tuple(scores.shape[-2:]) != (query.shape[-2], key.shape[-2]):
        raise InputError(
            "the score to return (..., Q, K), one number for each query and key",
            got=f"{_shape_text(scores)} from query {tuple(query.shape)}, key {tuple(key.shape)}",
            fix="reduce the features, as in (query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)",
        )
    return scores


def _weights(call: Call, scores: Tensor, allowed: Tensor) -> Tensor:
    """The weights of the normalizer; an error if their shape is not the scores'."""
    weights = call.normalizer(scores, allowed)
    if not isinstance(weights, Tensor) or weights.shape != scores.shape:
        raise InputError(
            "the normalizer to return weights of the scores' shape",
            got=f"{_shape_text(weights)} from scores {tuple(scores.shape)}",
            fix="keep the last dimension, as in scores / scores.sum(-1, keepdim=True)",
        )
    return weights


def _shape_text(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def _span(call: Call, first: int, stop: int) -> tuple[int, int]:
    """The range of keys outside of which queries first to stop attend to nothing; at least one key, so that no row is empty."""
    low, high = call.mask.span(first, stop, call.keys) if isinstance(call.mask, Mask) else (0, call.keys)
    low = min(max(low, 0), max(call.keys - 1, 0))
    return low, max(min(high, call.keys), min(low + 1, call.keys))


def _checkpointed(call: Call, formula: Formula, rows: QueryRows, every_key: bool, careful: bool) -> tuple[Tensor, ...]:
    def run(query: Tensor) -> tuple[Tensor, ...]:
        # Mask and bias are computed inside: if the forward pass stored them for every block, they would need n × n.
        return formula(query_block(call, QueryRows(rows.first, rows.stop, query, rows.bias), every_key, careful))

    # A checkpoint recomputes without forward-mode tangents, so their gradients would be wrong. torch.jit.trace would
    # write its Python function into the program.
    traced = is_exporting() or torch.jit.is_tracing()  # type: ignore[reportPrivateImportUsage]
    if call.transformed or traced or not torch.is_grad_enabled() or forward_ad._current_level >= 0:
        return run(rows.query)
    random = call.dropout > 0 or not isinstance(call.score, Score)  # a caller's score may also draw random numbers
    if torch.compiler.is_compiling():
        return checkpoint(run, rows.query, use_reentrant=False, preserve_rng_state=random)
    try:
        return checkpoint(run, rows.query, use_reentrant=False, preserve_rng_state=random)
    except BaseException as error:
        _close_checkpoint(error)
        raise


def _close_checkpoint(error: BaseException) -> None:
    """Close a checkpoint that failed: torch 2.7 leaves its hooks on every later tensor as long as the traceback lives."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == checkpoint_module.__file__:
            with suppress(RuntimeError):  # a frame that is still running
                frame.clear()


def _same_for_all(block: Block) -> bool:
    """Whether all rows see the same keys, and no query holds NaN or infinity, which would reach its neighbours' gradients."""
    allowed = block.allowed
    return bool((allowed == allowed[..., :1, :]).all()) and bool(torch.isfinite(block.query).all())  # type: ignore[index]
