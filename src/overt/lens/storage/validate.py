"""Whether the parts of a call that was read from a file fit together as those of a recorded call do."""

import math
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.masks import Mask
from overt.attention.normalizers import Normalizer
from overt.attention.scores import Score
from overt.attention.summary import Summary
from overt.errors import OvertError
from overt.lens.captured import Captured, CapturedCall, head_count
from overt.lens.statistics.summarized import CapturedSummary
from overt.lens.statistics.verified import Comparison
from overt.lens.storage.declared_sizes import broadcasts, fits_the_call, stored_whole

MAX_DEPTH = 64  # masks and biases that one is made of, one within another
_MOST_HEADS = 2**16
_WHOLE = (torch.int32, torch.int64)
_OPTIONAL = {"lse", "map_max", "sink"}
_PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checked_call(call: Any) -> Captured:
    """The call, if kinds and shapes of its parts are those of a recorded one. Raises TypeError or ValueError."""
    if not isinstance(call, CapturedCall | CapturedSummary):
        raise TypeError("something else stands where a call was saved")
    numbers = (call.number, call.call_index, call.pass_index, call.total, call.batch, call.queries, call.keys)
    _demand(all(each >= 0 for each in numbers), "its numbers")
    _demand(call.score_dtype in _PRECISIONS, "its dtype")
    _demand(call.total <= _MOST_HEADS and _some_of(call.heads, call.total), "its heads")
    if isinstance(call, CapturedCall):
        _kept(call)
    else:
        _summarized(call)
    return call


def _kept(kept: CapturedCall) -> None:
    call, output = kept.call, kept.output
    inputs = (call.query, call.key, call.value, output)
    _demand(kept.versions == () and all(each.dtype in _PRECISIONS for each in inputs), "its call")
    _demand(isinstance(call.score, Score) and isinstance(call.normalizer, Normalizer), "its score")
    parameters = [each for piece in (call.score, call.normalizer) for each in _tensors(piece)]
    _demand(stored_whole(*inputs, *parameters), "the sizes of its tensors")
    try:
        again = Call.of(call.query, call.key, call.value, call.score, normalizer=call.normalizer, dropout=call.dropout)
    except OvertError as error:
        raise ValueError(str(error)) from error
    heads = head_count(again)
    _demand(again.batch == call.batch and (call.queries, call.keys) == (kept.queries, kept.keys), "its lengths")
    _demand(kept.batch == math.prod(call.batch) // max(1, heads), "its batch")
    _demand(_some_of(kept.copies, kept.total) and len(kept.copies) == heads and {*kept.heads} <= {*kept.copies}, "its heads")
    _between(call.mask, Mask, call, kept.total)
    _between(call.bias, Bias, call, kept.total)
    _demand(_shaped(output, (*call.batch, call.queries, call.value.shape[-1])), "its output")
    _demand(not call.queries or not call.keys or _computes(call), "its score")


@torch.no_grad()
def _computes(call: Call) -> bool:
    """Whether the last query and the last key have a weight, of a shape that is the call's."""
    score, normalizer, whole = call.score, call.normalizer, (*call.batch, call.queries, call.keys)
    one = replace(call, query=call.query[..., -1:, :], key=call.key[..., -1:, :], value=call.value[..., -1:, :]).ready()
    scores = score(one.query, one.key)
    weights = normalizer(scores, torch.ones_like(scores, dtype=torch.bool))
    return all(each.is_floating_point() and broadcasts(each, whole) for each in (scores, weights))


def _between(piece: Any, kind: type, call: Call, total: int) -> None:
    """Refuse a mask or bias that does not say something of the last query and the last key, or is of other sizes."""
    if piece is None:
        return
    _demand(isinstance(piece, kind | Tensor) and depth(piece) <= MAX_DEPTH, f"its {kind.__name__.lower()}")
    _demand(fits_the_call(piece, call, total), f"the sizes of its {kind.__name__.lower()}")
    last = [torch.arange(length)[-1:] for length in (call.queries, call.keys)]
    whole = isinstance(piece, Tensor)
    found = piece.block(*last) if isinstance(piece, kind) else piece
    asked = (*call.batch, call.queries, call.keys) if whole else (*call.batch, *(len(places) for places in last))
    fits = isinstance(found, Tensor) and (found.dtype == torch.bool) == (kind is Mask) and (kind is Bias or not whole)
    _demand(fits and torch.broadcast_shapes(found.shape, asked) == asked, f"its {kind.__name__.lower()}")


def _summarized(call: CapturedSummary) -> None:
    found, lead = call.summary, (call.batch, len(call.heads))
    _demand(isinstance(found, Summary) and isinstance(call.comparison, Comparison), "its summary")
    edges = [edge for edge in (found.row_edges, found.key_edges) if isinstance(edge, Tensor) and edge.dtype in _WHOLE]
    _demand(len(edges) == 2 and all(edge.ndim == 1 and len(edge) > 0 for edge in edges), "its map")
    top, cells = _last(found.top_weights, call.keys), tuple(len(edge) - 1 for edge in edges)
    shapes = {
        "entropy": (call.queries,),
        "received": (call.keys,),
        "top_weights": (call.queries, top),
        "top_keys": (call.queries, top),
        "map_mean": cells,
    }
    shapes |= {"lse": (call.queries,), "map_max": cells, "sink": (call.queries,)}
    for name, shape in shapes.items():
        held = getattr(found, name)
        if held is not None or name not in _OPTIONAL:
            dtypes = _WHOLE if name == "top_keys" else _PRECISIONS
            _demand(isinstance(held, Tensor) and _shaped(held, (*lead, *shape)) and held.dtype in dtypes, name)
    _demand(found.output is None and stored_whole(*_tensors(found)), "the sizes of its summary")
    _demand(not found.top_keys.numel() or bool(((found.top_keys >= -1) & (found.top_keys < call.keys)).all()), "top_keys")
    for edge, length in zip(edges, (call.queries, call.keys), strict=True):
        _demand(int(edge[0]) == 0 and int(edge[-1]) == length and bool((edge.diff() > 0).all()), "its map")
    _demand(len(call.shares) == len(call.heads), "its roles")


def depth(piece: Any) -> int:
    """How many masks or biases stand one within another."""
    todo, deepest = [(piece, 1)], 0
    while todo:
        each, level = todo.pop()
        deepest = max(deepest, level)
        if isinstance(each, Mask | Bias) and level <= MAX_DEPTH:
            todo += [(getattr(each, name), level + 1) for name in getattr(each, "__dataclass_fields__", ())]
    return deepest


def _tensors(piece: Any) -> list[Tensor]:
    held = [getattr(piece, each.name) for each in fields(piece)]
    return [each for each in held if isinstance(each, Tensor)]


def _last(tensor: Any, most: int) -> int:
    """The size of a tensor's last dimension, of so many at most."""
    return min(tensor.shape[-1], most) if isinstance(tensor, Tensor) and tensor.ndim else 0


def _demand(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} cannot be those of a recorded call")


def _some_of(heads: Any, total: int) -> bool:
    """Whether these are different heads of so many."""
    return (
        isinstance(heads, tuple)
        and len({*heads}) == len(heads)
        and all(type(each) is int and 0 <= each < total for each in heads)
    )


def _shaped(tensor: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(tensor, Tensor) and tuple(tensor.shape) == shape
