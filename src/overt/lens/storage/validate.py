"""Checks that the parts of a call from a file fit together like the parts of a recorded call."""

import math
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.check import broadcasts_to
from overt.attention.kernels.blocked import widened
from overt.attention.kernels.call import Call
from overt.attention.masks import Mask
from overt.attention.normalizers import Normalizer
from overt.attention.scores import Score
from overt.attention.summary import Summary
from overt.errors import OvertError
from overt.lens.captured import Captured, CapturedCall, head_count
from overt.lens.linear.captured import CapturedMixer
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.statistics.verified import Comparison
from overt.lens.storage.continued import Continuation
from overt.lens.storage.declared_sizes import fits_the_call, stored_whole
from overt.lens.storage.joined import RecordedPasses
from overt.lens.storage.joined_mixers import alike

MAX_DEPTH = 64  # the most levels of masks or biases inside each other
_MAX_HEADS = 2**16
_INTEGERS = (torch.int32, torch.int64)
_OPTIONAL = {"lse", "map_max", "sink", "support"}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checked_continuation(numbers: Any, calls: RecordedPasses) -> Continuation:
    """How the next call continues one of `calls`. Raises TypeError or ValueError if that is impossible."""
    if not isinstance(numbers, list) or len(numbers) != len(Continuation._fields):
        raise TypeError("how one of its calls continues another is not six fields")
    before, rows, first, retained, written, dropped = numbers
    whole = all(type(part) is int and part >= 0 for part in (before, first, retained, written, dropped))
    _require(whole and before < len(calls.stored), "the call before it")
    call, its = calls.stored[before], calls.continuations[before]
    _require(
        rows is None or (isinstance(rows, list) and all(type(row) is int and 0 <= row < call.batch for row in rows)), "rows"
    )
    _require(
        0 < retained <= written and first + retained <= (call.keys if its is None else its.written), "the keys that it retains"
    )
    _require(dropped < max(1, call.queries), "the rows that it dropped")
    return Continuation(before, None if rows is None else tuple(rows), first, retained, written, dropped)


def checked_call(call: Any, calls: RecordedPasses, continuation: Continuation | None = None) -> Captured:
    """The call, checked. Raises TypeError or ValueError if the types or shapes of its parts do not fit together."""
    if not isinstance(call, CapturedCall | CapturedMixer | CapturedSummary):
        raise TypeError("one of its calls is not a call")
    numbers = (call.number, call.call_index, call.pass_index, call.total, call.batch, call.queries, call.keys)
    _require(all(number >= 0 for number in numbers), "its numbers")
    _require(call.score_dtype in _FLOATS, "its dtype")
    _require(call.total <= _MAX_HEADS and _subset(call.heads, call.total), "its heads")
    if isinstance(call, CapturedCall):
        _check_call(call, call.keys if continuation is None else continuation.written - continuation.retained)
    elif isinstance(call, CapturedMixer):
        _check_mixer(call, call.keys if continuation is None else continuation.written - continuation.retained)
    else:
        _check_summary(call)
    if continuation is not None:
        _check_continues(call, calls.stored[continuation.before], continuation)
    return call


def _check_continues(call: Captured, before: Captured, continuation: Continuation) -> None:
    """Refuse a call whose heads, features or sequences differ from those of the call that it continues."""
    sequences = before.batch if continuation.rows is None else len(continuation.rows)
    _require((call.layer, call.heads, call.batch) == (before.layer, before.heads, sequences), "the call before it")
    _require(continuation.written <= call.keys and call.keys in (continuation.written, before.keys), "its lengths")
    any_mixer = any(getattr(part, "mixer", "") for part in (call, before))  # summaries of mixers are not joined
    _require(type(call) is type(before) and not any_mixer, "the call before it")
    if isinstance(call, CapturedMixer) and isinstance(before, CapturedMixer):
        all_of_it = (continuation.first, continuation.dropped, continuation.retained) == (0, 0, before.keys)
        _require(all_of_it and continuation.written == call.keys and call.recurrence.start is None, "its lengths")
        same = call.copies == before.copies and alike(before.recurrence, call.recurrence)
        _require(same, "the call before it")
    if isinstance(call, CapturedCall) and isinstance(before, CapturedCall):
        inputs = zip(*((part.call.query, part.call.key, part.call.value) for part in (call, before)), strict=True)
        _require(all(new.shape[-1] == old.shape[-1] and new.dtype == old.dtype for new, old in inputs), "the call before it")
        same = call.copies == before.copies and call.call.key.shape[-3:-2] == before.call.key.shape[-3:-2]
        _require(same and call.call.query.ndim == before.call.query.ndim, "the call before it")


def _check_call(captured: CapturedCall, keys: int) -> None:
    """Refuse a call whose parts do not fit together; `keys` is the number of keys that are stored with it."""
    call, output = captured.call, captured.output
    inputs = (call.query, call.key, call.value, output)
    _require(captured.versions == () and all(entry.dtype in _FLOATS for entry in inputs), "its call")
    _require(isinstance(call.score, Score) and isinstance(call.normalizer, Normalizer), "its score")
    parameters = [tensor for piece in (call.score, call.normalizer) for tensor in _tensors(piece)]
    _require(stored_whole(*inputs, *parameters), "the sizes of its tensors")
    try:
        rebuilt = Call.checked(call.query, call.key, call.value, call.score, normalizer=call.normalizer, dropout=call.dropout)
    except OvertError as error:
        raise ValueError(str(error)) from error
    heads = head_count(rebuilt)
    _require(rebuilt.batch == call.batch and (call.queries, call.keys) == (captured.queries, keys), "its lengths")
    _require(captured.batch == math.prod(call.batch) // max(1, heads), "its batch")
    _require(_holds_heads(captured, heads), "its heads")
    whole_call = call if keys == captured.keys else replace(call, key=call.key.new_empty(captured.keys, 0))
    _check_mask_or_bias(call.mask, Mask, whole_call, captured.total)
    _check_mask_or_bias(call.bias, Bias, whole_call, captured.total)
    _require(_shaped(output, (*call.batch, call.queries, call.value.shape[-1])), "its output")
    _require(not call.queries or not call.keys or _computes(call), "its score")


def _check_mixer(captured: CapturedMixer, keys: int) -> None:
    """Refuse a recurrence whose sizes differ from its call's; `keys` positions of the call are stored."""
    recurrence, output = captured.recurrence, captured.output
    tensors = (*recurrence.tensors.values(), output)
    _require(stored_whole(*tensors) and all(tensor.dtype in _FLOATS for tensor in tensors), "the sizes of its tensors")
    sizes = recurrence.batch, recurrence.queries, recurrence.keys
    _require(sizes == (captured.batch, captured.queries, keys), "its lengths")
    _require(_holds_heads(captured, recurrence.heads) and len(captured.heads) > 0, "its heads")
    width = recurrence.value.shape[-1]
    _require(_shaped(output, (captured.batch, recurrence.heads, captured.queries, width)), "its output")


@torch.no_grad()
def _computes(call: Call) -> bool:
    """Whether score and weight of the last query and the last key can be computed, with shapes that broadcast to the call."""
    score, normalizer, shape_of_call = call.score, call.normalizer, (*call.batch, call.queries, call.keys)
    one = widened(replace(call, query=call.query[..., -1:, :], key=call.key[..., -1:, :], value=call.value[..., -1:, :]))
    scores = score(one.query, one.key)
    weights = normalizer(scores, torch.ones_like(scores, dtype=torch.bool))
    return all(part.is_floating_point() and broadcasts_to(part.shape, shape_of_call) for part in (scores, weights))


def _check_mask_or_bias(piece: Any, kind: type, call: Call, total: int) -> None:
    """Refuse a mask or bias of other sizes, or without a value for the last query and the last key."""
    if piece is None:
        return
    _require(isinstance(piece, kind) and depth(piece) <= MAX_DEPTH, f"its {kind.__name__.lower()}")
    _require(fits_the_call(piece, call, total), f"the sizes of its {kind.__name__.lower()}")
    last = [torch.arange(length)[-1:] for length in (call.queries, call.keys)]
    block = piece.allowed_pairs() if isinstance(piece, Mask) else piece.added_pairs()
    shape = (*call.batch, call.queries, call.keys)
    if block is None:
        block, shape = piece.block(*last), (*call.batch, *(len(positions) for positions in last))
    fits = isinstance(block, Tensor) and (block.dtype == torch.bool) == (kind is Mask)
    _require(fits and torch.broadcast_shapes(block.shape, shape) == shape, f"its {kind.__name__.lower()}")


def _check_summary(call: CapturedSummary) -> None:
    summary, lead = call.summary, (call.batch, len(call.heads))
    _require(isinstance(summary, Summary) and isinstance(call.comparison, Comparison), "its summary")
    judged, queries = call.comparison.judged, call.comparison.queries
    both = judged is not None and queries is not None and 0 <= judged <= queries
    _require(both or judged is queries is None, "its comparison")
    edges = [edge for edge in (summary.row_edges, summary.key_edges) if isinstance(edge, Tensor) and edge.dtype in _INTEGERS]
    _require(len(edges) == 2 and all(edge.ndim == 1 and len(edge) > 0 for edge in edges), "its map")
    weights, cells = summary.top_weights, tuple(len(edge) - 1 for edge in edges)
    top = min(weights.shape[-1], call.keys) if isinstance(weights, Tensor) and weights.ndim else 0
    shapes = {
        "entropy": (call.queries,),
        "received": (call.keys,),
        "top_weights": (call.queries, top),
        "top_keys": (call.queries, top),
        "map_mean": cells,
    }
    shapes |= {"lse": (call.queries,), "map_max": cells, "sink": (call.queries,), "support": (call.queries,)}
    for name, shape in shapes.items():
        value = getattr(summary, name)
        if value is not None or name not in _OPTIONAL:
            dtypes = _INTEGERS if name in ("top_keys", "support") else _FLOATS
            _require(isinstance(value, Tensor) and _shaped(value, (*lead, *shape)) and value.dtype in dtypes, name)
    _require(summary.output is None and stored_whole(*_tensors(summary)), "the sizes of its summary")
    _require(
        not summary.top_keys.numel() or bool(((summary.top_keys >= -1) & (summary.top_keys < call.keys)).all()), "top_keys"
    )
    for edge, length in zip(edges, (call.queries, call.keys), strict=True):
        _require(int(edge[0]) == 0 and int(edge[-1]) == length and bool((edge.diff() > 0).all()), "its map")
    _require(len(call.shares) == len(call.heads) and len(call.repetition) in (0, len(call.heads)), "its roles")


def depth(piece: Any) -> int:
    """The number of nested levels of masks or biases in this one."""
    todo, deepest = [(piece, 1)], 0
    while todo:
        item, level = todo.pop()
        deepest = max(deepest, level)
        if isinstance(item, Mask | Bias) and level <= MAX_DEPTH:
            todo += [(getattr(item, name), level + 1) for name in getattr(item, "__dataclass_fields__", ())]
    return deepest


def _tensors(piece: Any) -> list[Tensor]:
    return [value for field in fields(piece) if isinstance(value := getattr(piece, field.name), Tensor)]


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} cannot be part of a recorded call")


def _holds_heads(captured: CapturedCall | CapturedMixer, count: int) -> bool:
    """Whether a call holds `count` heads, and the recorded heads are among them."""
    copies = captured.copies
    return _subset(copies, captured.total) and len(copies) == count and {*captured.heads} <= {*copies}


def _subset(heads: Any, total: int) -> bool:
    """Whether these are heads of `total`, without duplicates."""
    return (
        isinstance(heads, tuple)
        and len({*heads}) == len(heads)
        and all(type(head) is int and 0 <= head < total for head in heads)
    )


def _shaped(tensor: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(tensor, Tensor) and tuple(tensor.shape) == shape
