"""How a call with DTensors is distributed over a mesh of processes, and this process's share as a call of its own.

A mesh dimension divides one dimension of the inputs: batch entries or heads, which are independent,
or the sequence. Undivided inputs are on each process along the mesh dimension (`Replicate`).
"""

from dataclasses import dataclass, replace
from itertools import product
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
    """The mesh dimension that divides the sequence, with the interval of each process."""

    group: Any
    rank: int
    rows: list[Interval]  # of the queries; all queries if `query` is False
    keys: list[Interval]
    query: bool  # whether the queries are divided
    key: bool  # whether keys and values are divided


@dataclass(frozen=True, eq=False)
class Layout:
    """The dimension of the inputs, counted from the end, that each mesh dimension divides; None if all are replicated."""

    mesh: Any
    divided: tuple[int | None, ...]
    shares: dict[int, tuple[int, Interval]]  # size and local entries of divided dimensions, except the sequence
    sequence: Sequence | None

    @property
    def groups(self) -> list[Any]:
        """The process groups along each divided mesh dimension."""
        return [self.mesh.get_group(index) for index, dim in enumerate(self.divided) if dim is not None]


class Spread(NamedTuple):
    """A DTensor's metadata, known to all processes: its shape and its placements along the mesh."""

    shape: tuple[int, ...]
    placements: tuple[Any, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def divided_by(self, dim: int) -> list[int]:
        """The mesh dimensions that divide this dimension, counted from the end."""
        return [
            index
            for index, placement in enumerate(self.placements)
            if type(placement) is Shard and placement.dim - self.ndim == dim
        ]


def call_layout(call: Call, all_keys: bool = False) -> Layout:
    """The layout of a call with DTensors; with `all_keys`, of its `with_all_keys`.

    Raises InputError if any process's share is not a valid call: on every process alike, and before any communication.
    """
    tensors: dict[str, Any] = {"query": call.query, "key": call.key, "value": call.value}
    mesh = tensors["query"].device_mesh
    if mesh.get_coordinate() is None or not all(tensor.device_mesh == mesh for tensor in tensors.values()):
        raise KindError("query, key and value on one mesh of processes", fix="distribute them over the same DeviceMesh")
    inputs = {
        name: Spread(tuple(tensor.shape), _undivided(tensor) if all_keys and name != "query" else tensor.placements)
        for name, tensor in tensors.items()
    }
    divided = tuple(_divided(inputs, index) for index in range(mesh.ndim))
    if divided.count(SEQUENCE) > 1:
        raise InputError(
            "the sequence to be divided along one dimension of the mesh", got=_placements(inputs), fix="flatten the mesh"
        )
    counts, coordinate = [mesh.size(index) for index in range(mesh.ndim)], mesh.get_coordinate()
    shares: dict[int, tuple[int, Interval]] = {}
    for dim in {mesh_dim for mesh_dim in divided if mesh_dim is not None and mesh_dim != SEQUENCE}:
        size, along = call.batch[dim + 2], [index for index, mesh_dim in enumerate(divided) if mesh_dim == dim]
        _check_shares(inputs, dim, size, along, counts)
        shares[dim] = size, _part(size, along, counts, coordinate)
    sequence = _sequence(call, inputs, mesh, divided.index(SEQUENCE)) if SEQUENCE in divided else None
    return Layout(mesh, divided, shares, sequence)


def _check_shares(inputs: dict[str, Spread], dim: int, size: int, along: list[int], counts: list[int]) -> None:
    """Raise InputError if a process's entries of an input are not those of its part of the `size` entries."""
    if all(spread.ndim >= -dim and spread.shape[dim] == size and spread.divided_by(dim) == along for spread in inputs.values()):
        return
    for position in product(*(range(counts[index]) for index in along)):
        coordinate = dict(zip(along, position, strict=True))
        interval = _part(size, along, counts, coordinate)
        for spread in inputs.values():
            if spread.ndim < -dim:
                continue
            entries, by = _entries(spread.shape[dim], size, interval), spread.divided_by(dim)
            has = _part(spread.shape[dim], by, counts, coordinate) if by else entries
            if entries is None or has is None or has[1] - has[0] != entries[1] - entries[0]:
                raise _no_share(_placements(inputs))


def with_all_keys(call: Call) -> Call:
    """The same call with all keys and values gathered along a divided sequence."""
    tensors: list[Any] = [call.key, call.value]
    key, value = (
        tensor if (placements := _undivided(tensor)) == tensor.placements else tensor.redistribute(placements=placements)
        for tensor in tensors
    )
    return replace(call, key=key, value=value)


def _undivided(tensor: Any) -> tuple[Any, ...]:
    """The placements of keys or values without division of the sequence."""
    placements = tensor.placements
    return tuple(
        Replicate() if type(placement) is Shard and placement.dim == tensor.ndim - 2 else placement for placement in placements
    )


def _divided(inputs: dict[str, Spread], index: int) -> int | None:
    """The dimension of the inputs that this mesh dimension divides, counted from the end; None if it divides none."""
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


def _placements(inputs: dict[str, Spread]) -> str:
    return ", ".join(f"{name} {spread.shape} {list(spread.placements)}" for name, spread in inputs.items())


def _sequence(call: Call, inputs: dict[str, Spread], mesh: Any, index: int) -> Sequence:
    count = mesh.size(index)
    query, key = (type(inputs[name].placements[index]) is Shard for name in ("query", "key"))
    rows, keys = (
        [_chunk((0, size), count, rank) if is_divided else (0, size) for rank in range(count)]
        for size, is_divided in ((call.queries, query), (call.keys, key))
    )
    return Sequence(mesh.get_group(index), mesh.get_local_rank(index), rows, keys, query, key)


def _chunk(interval: Interval, count: int, rank: int) -> Interval:
    """A process's chunk of an interval, as DTensors divide it: equal sizes, smaller or empty at the end."""
    first, stop = interval
    size = -(-(stop - first) // count)
    return min(first + rank * size, stop), min(first + (rank + 1) * size, stop)


def _part(size: int, along: list[int], counts: list[int], coordinate: Any) -> Interval:
    """The part of `size` entries at this mesh coordinate, divided by these mesh dimensions in turn."""
    interval = 0, size
    for index in along:
        interval = _chunk(interval, counts[index], coordinate[index])
    return interval


def local_call(call: Call, layout: Layout) -> Call:
    """This process's share: its batch entries and heads, queries and keys. Positions in mask and bias still count from the first of all."""
    inputs = {name: _local(getattr(call, name), name, call, layout) for name in ("query", "key", "value")}
    pieces = pytree.tree_map(lambda leaf: _with_summed_gradient(leaf, layout), (call.score, call.bias, call.normalizer))
    score, mask, bias, normalizer = pieces[0], call.mask, pieces[1], pieces[2]
    if layout.shares:
        score, mask, bias, normalizer = (_piece_share(piece, layout) for piece in (score, mask, bias, normalizer))
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
        first, stop = _entries(tensor.shape[dim], size, interval) or (0, 0)
        if not any(mine and other == dim for mine, other in zip(is_divided, layout.divided, strict=True)):
            local = local.narrow(dim, first, stop - first)
        elif local.shape[dim] != stop - first:
            raise _no_share(f"{name} {tuple(tensor.shape)}, of which it has {local.shape[dim]}")
    if (sequence := layout.sequence) is not None:
        first, stop = (sequence.rows if name == "query" else sequence.keys)[sequence.rank]
        if local.shape[-2] != stop - first:
            raise _no_share(f"{name} with {local.shape[-2]} positions in place of {stop - first}")
    return local


def _entries(count: int, size: int, interval: Interval) -> Interval | None:
    """Map an interval of `size` entries to a dimension of `count` entries: one per entry, per group or for all.

    None if the interval splits a group.
    """
    if count == 1 != size:
        return 0, 1
    first, stop = interval
    group = size // max(count, 1)
    return None if first < stop and (first % group or stop % group) else (first // group, -(-stop // group))


def _no_share(what: str) -> InputError:
    return InputError(
        "each process to have whole groups of heads, and entries and positions as torch divides them",
        got=what,
        fix="divide over a number of processes by which the heads of key and value can be divided, with distribute_tensor",
    )


def _with_summed_gradient(leaf: Any, layout: Layout) -> Any:
    """A tensor in a piece, with gradients summed over all processes. Raises KindError for an object that may hide a tensor."""
    if isinstance(leaf, Tensor):
        return summed_gradient(leaf, layout.groups)
    if leaf is None:
        return None
    raise KindError(
        "scores, biases and normalizers of overt, or classes made by @overt.attention.pieces.piece, for DTensors",
        got=f"{getattr(leaf, '__name__', type(leaf).__name__)}, whose tensors cannot be seen, nor their gradients added up",
        fix="decorate the class with @piece and keep its tensors in fields",
    )


def _piece_share(piece: Any, layout: Layout) -> Any:
    """The share of a piece's tensors for this process's batch entries and heads."""

    def select(tensor: Tensor, trailing: int) -> Tensor:
        for dim, (_, (first, stop)) in layout.shares.items():
            position = dim + 2 - trailing
            if tensor.ndim >= -position and tensor.shape[position] != 1:
                tensor = tensor.narrow(position, first, stop - first)
        return tensor

    if piece is None:
        return None
    share = piece.for_heads(select) if isinstance(piece, (Mask, Bias)) else select_heads(piece, select)
    if share is None:
        raise KindError(
            "a piece that says in `trailing` which dimensions of its tensors are those of batch and heads",
            got=type(piece).__name__,
            fix="give its class `trailing`, or do not divide the batch or the heads",
        )
    return share


def assembled(local: Tensor, layout: Layout, shape: tuple[int, ...], trailing: int = 1, by_query: bool = True) -> DTensor:
    """The DTensor of all processes' parts: (..., Q, *trailing), or replicated along the sequence unless `by_query`."""
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
