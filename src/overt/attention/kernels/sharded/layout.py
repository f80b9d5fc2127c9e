"""How a call of DTensors is spread over a mesh of processes, and the share of this process as a call of its own.

Along a dimension of the mesh the inputs are divided along one of their own dimensions: entries of the batch or heads, which do not
meet, or the sequence. What is not divided there is on each of its processes (`Replicate`).
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils import _pytree as pytree

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.kernels.sharded.inputs import summed_gradient, waited
from overt.attention.masks import Mask
from overt.attention.pieces import select_heads
from overt.errors import InputError, KindError

SEQUENCE = -2  # the dimension of queries and keys
Interval = tuple[int, int]  # first and stop


class Sequence(NamedTuple):
    """The dimension of the mesh along which the sequence is divided: its processes, and what each of them has."""

    group: Any
    rank: int
    rows: list[Interval]  # of the queries, all of them where `query` is False
    keys: list[Interval]
    query: bool  # whether the queries are divided
    key: bool  # whether keys and values are


@dataclass(frozen=True, eq=False)
class Layout:
    """What each dimension of the mesh divides: a dimension of the inputs, counted from the end, or None where all are replicated."""

    mesh: Any
    divided: tuple[int | None, ...]
    shares: dict[int, tuple[int, Interval]]  # of each divided dimension but the sequence: its size, and this process's entries
    sequence: Sequence | None

    @property
    def groups(self) -> list[Any]:
        """The processes along each divided dimension of the mesh."""
        return [self.mesh.get_group(index) for index, dim in enumerate(self.divided) if dim is not None]


def layout_of(call: Call) -> Layout:
    """The layout of a call of DTensors. Raises InputError where a process's share is no call of its own."""
    inputs: dict[str, Any] = {"query": call.query, "key": call.key, "value": call.value}
    mesh = inputs["query"].device_mesh
    if not all(tensor.device_mesh == mesh for tensor in inputs.values()):
        raise KindError("query, key and value on one mesh of processes", fix="distribute them over the same DeviceMesh")
    divided = tuple(_divided(inputs, index) for index in range(mesh.ndim))
    if divided.count(SEQUENCE) > 1:
        raise InputError(
            "the sequence to be divided along one dimension of the mesh", got=_placements(inputs), fix="flatten the mesh"
        )
    shares: dict[int, tuple[int, Interval]] = {}
    for index, dim in enumerate(divided):
        if dim is not None and dim != SEQUENCE:
            size = call.batch[dim + 2]
            shares[dim] = size, _chunk(shares.get(dim, (size, (0, size)))[1], mesh.size(index), mesh.get_local_rank(index))
    sequence = _sequence(call, inputs, divided.index(SEQUENCE)) if SEQUENCE in divided else None
    return Layout(mesh, divided, shares, sequence)


def with_all_keys(call: Call) -> Call:
    """The same call with all keys and values on each process along a divided sequence."""
    key, value = (_undivided(tensor) for tensor in (call.key, call.value))
    return replace(call, key=key, value=value)


def _undivided(tensor: Any) -> Any:
    divided = [type(placement) is Shard and placement.dim == tensor.ndim - 2 for placement in tensor.placements]
    placements = [Replicate() if mine else old for mine, old in zip(divided, tensor.placements, strict=True)]
    return tensor.redistribute(placements=placements) if any(divided) else tensor


def _divided(inputs: dict[str, Any], index: int) -> int | None:
    """The dimension of the inputs that this dimension of the mesh divides, counted from the end."""
    placements = {name: tensor.placements[index] for name, tensor in inputs.items()}
    dims = {placement.dim - inputs[name].ndim for name, placement in placements.items() if type(placement) is Shard}
    usual = all(type(placement) in (Shard, Replicate) for placement in placements.values())
    if not usual or len(dims) > 1 or -1 in dims:
        raise InputError(
            "each dimension of the mesh to divide one dimension of query, key and value, which is not the features, or none",
            got=_placements(inputs),
            fix="lay them out alike: tensor.redistribute(placements=[Shard(dim)]), or [Replicate()]",
        )
    if dims == {SEQUENCE} and placements["key"] != placements["value"]:
        raise InputError(
            "keys and values to be divided alike", got=_placements(inputs), fix="value.redistribute(placements=key.placements)"
        )
    return dims.pop() if dims else None


def _placements(inputs: dict[str, Any]) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)} {list(tensor.placements)}" for name, tensor in inputs.items())


def _sequence(call: Call, inputs: dict[str, Any], index: int) -> Sequence:
    mesh, count = inputs["query"].device_mesh, inputs["query"].device_mesh.size(index)
    query, key = (type(inputs[name].placements[index]) is Shard for name in ("query", "key"))
    rows, keys = (
        [_chunk((0, size), count, rank) if is_divided else (0, size) for rank in range(count)]
        for size, is_divided in ((call.queries, query), (call.keys, key))
    )
    return Sequence(mesh.get_group(index), mesh.get_local_rank(index), rows, keys, query, key)


def _chunk(interval: Interval, count: int, rank: int) -> Interval:
    """A process's part of an interval, as DTensors divide: all of one size, those at the end smaller or empty."""
    first, stop = interval
    size = -(-(stop - first) // count)
    return min(first + rank * size, stop), min(first + (rank + 1) * size, stop)


def local_call(call: Call, layout: Layout) -> Call:
    """This process's share: its entries of batch and heads, its queries, its keys. Mask and bias still count from the first of all."""
    inputs = {name: _local(getattr(call, name), name, call, layout) for name in ("query", "key", "value")}
    pieces = pytree.tree_map(lambda leaf: _of_all(leaf, layout), (call.score, call.bias, call.normalizer))
    score, mask, bias, normalizer = pieces[0], call.mask, pieces[1], pieces[2]
    if layout.shares:
        score, mask, bias, normalizer = (_share_of_piece(piece, layout) for piece in (score, mask, bias, normalizer))
    batch = list(call.batch)
    for dim, (_, (first, stop)) in layout.shares.items():
        batch[dim + 2] = stop - first
    return replace(call, **inputs, score=score, mask=mask, bias=bias, normalizer=normalizer, batch=tuple(batch))


def _local(tensor: Any, name: str, call: Call, layout: Layout) -> Tensor:
    """This process's part of an input."""
    local = waited(tensor.to_local(grad_placements=tensor.placements))
    is_divided = [type(placement) is Shard for placement in tensor.placements]
    shared = [index for index, dim in enumerate(layout.divided) if dim is not None and not is_divided[index]]
    local = summed_gradient(local, [layout.mesh.get_group(index) for index in shared])
    for dim, (size, interval) in layout.shares.items():
        if tensor.ndim < -dim:
            continue
        single = tensor.shape[dim] == 1 != size  # one entry for all
        first, stop = (0, 1) if single else _entries(tensor.shape[dim], size, interval, f"{name} {tuple(tensor.shape)}")
        if not any(mine and other == dim for mine, other in zip(is_divided, layout.divided, strict=True)):
            local = local.narrow(dim, first, stop - first)
        elif local.shape[dim] != stop - first:
            _refuse_share(f"{name} {tuple(tensor.shape)}, of which it has {local.shape[dim]}")
    if (sequence := layout.sequence) is not None:
        first, stop = (sequence.rows if name == "query" else sequence.keys)[sequence.rank]
        if local.shape[-2] != stop - first:
            _refuse_share(f"{name} with {local.shape[-2]} positions in place of {stop - first}")
    return local


def _entries(count: int, size: int, interval: Interval, what: str) -> Interval:
    """Of a dimension's `count` entries those that belong to this interval of `size` entries: one for each, or one for a group."""
    first, stop = interval
    group = size // max(count, 1)
    if first % group or (stop % group and stop != size):
        _refuse_share(what)
    return first // group, -(-stop // group)


def _refuse_share(what: str) -> None:
    raise InputError(
        "each process to have whole groups of heads, and entries and positions as torch divides them",
        got=what,
        fix="divide over a number of processes by which the heads of key and value can be divided, with distribute_tensor",
    )


def _of_all(leaf: Any, layout: Layout) -> Any:
    """A tensor in a piece, whose gradient is that of all processes. Raises KindError for what may hide a tensor."""
    if isinstance(leaf, Tensor):
        return summed_gradient(leaf, layout.groups)
    if leaf is None:
        return None
    raise KindError(
        "scores, biases and normalizers of overt, or classes made by @overt.attention.pieces.piece, for DTensors",
        got=f"{getattr(leaf, '__name__', type(leaf).__name__)}, whose tensors cannot be seen, nor their gradients added up",
        fix="decorate the class with @piece and keep its tensors in fields",
    )


def _share_of_piece(piece: Any, layout: Layout) -> Any:
    """The share of a piece's tensors that belong to this process's entries of batch and heads."""

    def select(tensor: Tensor, trailing: int) -> Tensor:
        for dim, (_, (first, stop)) in layout.shares.items():
            position = dim + 2 - trailing
            if tensor.ndim >= -position and tensor.shape[position] != 1:
                tensor = tensor.narrow(position, first, stop - first)
        return tensor

    if piece is None:
        return None
    share = piece.for_heads(select) if isinstance(piece, Mask | Bias) else select_heads(piece, select)
    if share is None:
        raise KindError(
            "a piece that says in `trailing` which dimensions of its tensors are those of batch and heads",
            got=type(piece).__name__,
            fix="give its class `trailing`, or do not divide the batch or the heads",
        )
    return share


def assembled(local: Tensor, layout: Layout, shape: tuple[int, ...], trailing: int = 1, by_query: bool = True) -> DTensor:
    """What all processes computed, of which this one has its part: (..., Q, *trailing), or the same along the sequence."""
    sequence = layout.sequence if by_query else None
    placements = [
        Replicate()
        if dim is None or (dim == SEQUENCE and not (sequence and sequence.query))
        else Shard(len(shape) - trailing + dim + 1)
        for dim in layout.divided
    ]
    size = torch.Size(shape)
    stride = torch.empty(size, device="meta").stride()
    return DTensor.from_local(local.contiguous(), layout.mesh, placements, run_check=False, shape=size, stride=stride)
