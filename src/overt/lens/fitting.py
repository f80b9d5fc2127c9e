"""Whether the parts of a call that was read from a file fit together as those of a recorded call do."""

import math
from typing import Any

import torch
from torch import Tensor

from overt.biases import Bias
from overt.errors import OvertError
from overt.kernels.call import Call
from overt.lens.captured import Captured, Kept, head_count
from overt.lens.summarized import Summarized
from overt.lens.verified import Comparison
from overt.masks import Mask
from overt.scores import Score
from overt.summary import Summary


def fitting(call: Any, turns: int) -> Captured:
    """The call, if kinds and shapes of its parts are those of a recorded one. Raises TypeError or ValueError."""
    if not isinstance(call, Kept | Summarized):
        raise TypeError("something else stands where a call was saved")
    numbers = (call.number, call.place, call.turn, call.total, call.batch, call.queries, call.keys)
    _demand(all(type(each) is int and each >= 0 for each in numbers) and call.turn < turns, "its numbers")
    _demand(all(isinstance(each, str) for each in (call.layer, call.source, *call.notes)), "its names")
    _demand(isinstance(call.score_dtype, torch.dtype) and call.score_dtype.is_floating_point, "its dtype")
    _demand(_some_of(call.heads, call.total), "its heads")
    if isinstance(call, Kept):
        _kept(call)
    else:
        _summarized(call)
    return call


def _kept(kept: Kept) -> None:
    call, output = kept.call, kept.output
    _demand(isinstance(call, Call) and kept.versions == (), "its call")
    _demand(isinstance(call.score, Score) and callable(call.normalizer), "its score")
    try:
        again = Call.of(call.query, call.key, call.value, call.score, normalizer=call.normalizer, dropout=call.dropout)
    except OvertError as error:
        raise ValueError(str(error)) from error
    heads = head_count(again)
    _demand(again.batch == call.batch and (call.queries, call.keys) == (kept.queries, kept.keys), "its lengths")
    _demand(0 in call.batch or kept.batch == math.prod(call.batch) // heads, "its batch")
    _demand(_some_of(kept.copies, kept.total) and len(kept.copies) == heads and {*kept.heads} <= {*kept.copies}, "its heads")
    _between(call.mask, Mask, call)
    _between(call.bias, Bias, call)
    _demand(_shaped(output, (*call.batch, call.queries, call.value.shape[-1])), "its output")


def _between(piece: Any, kind: type, call: Call) -> None:
    """Refuse a mask or bias that does not say something of the last query and the last key."""
    if piece is None:
        return
    last = [torch.arange(length)[-1:] for length in (call.queries, call.keys)]
    whole = isinstance(piece, Tensor)
    found = piece.block(*last) if isinstance(piece, kind) else piece
    asked = (*call.batch, call.queries, call.keys) if whole else (*call.batch, *(len(places) for places in last))
    fits = isinstance(found, Tensor) and (found.dtype == torch.bool) == (kind is Mask) and (kind is Bias or not whole)
    _demand(fits and torch.broadcast_shapes(found.shape, asked) == asked, f"its {kind.__name__.lower()}")


def _summarized(call: Summarized) -> None:
    found, lead = call.summary, (call.batch, len(call.heads))
    _demand(isinstance(found, Summary) and isinstance(call.comparison, Comparison), "its summary")
    edges = [edge for edge in (found.row_edges, found.key_edges) if isinstance(edge, Tensor)]
    _demand(len(edges) == 2 and all(edge.ndim == 1 and len(edge) > 0 for edge in edges), "its map")
    top, cells = _last(found.top_weights, call.keys), tuple(len(edge) - 1 for edge in edges)
    shapes = {
        "entropy": (call.queries,),
        "received": (call.keys,),
        "top_weights": (call.queries, top),
        "top_keys": (call.queries, top),
        "map_mean": cells,
    }
    for name, shape in shapes.items():
        _demand(_shaped(getattr(found, name), (*lead, *shape)), name)
    for edge, length in zip(edges, (call.queries, call.keys), strict=True):
        _demand(int(edge[0]) == 0 and int(edge[-1]) == length and bool((edge.diff() > 0).all()), "its map")
    numbers = (call.comparison.difference, call.comparison.bound, *(each for share in call.shares for each in share.values()))
    _demand(all(isinstance(each, float) for each in numbers) and len(call.shares) == len(call.heads), "its roles")


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
