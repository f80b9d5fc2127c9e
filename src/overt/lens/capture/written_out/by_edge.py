"""Attention over a list of edges: weights of single pairs of a query and a key, as in graphs and neighbourhoods.

Values that an index gathered are multiplied by weights, and summed over the neighbours of each query or into the places of their
queries. Both give the same list: for each edge a query, a key and a weight. An edge that occurs twice has the sum of both weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from overt.attention.biases import Bias
from overt.attention.kernels.call import Call
from overt.attention.pieces import piece
from overt.lens.capture.ranges import MaskReader
from overt.lens.capture.token_axes.factors import axis_marks
from overt.lens.capture.token_axes.labels import CHANNELS, EDGE_VALUES, Mixing, TensorLabel
from overt.lens.capture.token_axes.origins import NONE, Origins, shrunk
from overt.lens.capture.token_axes.put import Slots
from overt.lens.capture.written_out.products import Product, arranged
from overt.lens.capture.written_out.weighted import TOLERANCE, call_of_weights


@piece
class LogEdgeWeights(Bias):
    """The logarithms of weights stored edge by edge; −inf between tokens without an edge.

    `weights` (..., E) may have batch and heads; `query` and `key` (..., E) are the positions of each edge's ends.

    >>> LogEdgeWeights(torch.tensor([0.25, 0.75]), torch.tensor([0, 0]), torch.tensor([1, 2])).block(torch.arange(1), torch.arange(3)).exp()
    tensor([[0.0000, 0.2500, 0.7500]])
    """

    weights: Tensor
    query: Tensor
    key: Tensor

    trailing: ClassVar[dict[str, int] | None] = {"weights": 1, "query": 1, "key": 1}

    def bind(self, leading: int, queries: int, keys: int) -> "Bias":
        """The bias unchanged, because edges name their ends."""
        return self

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The logarithms (..., rows, keys) of the summed weights."""
        row, column = _numbers(rows, self.query), _numbers(keys, self.key)
        inside = (row >= 0) & (column >= 0)
        cell = torch.where(inside, row * len(keys) + column, 0).expand(self.weights.shape)
        weights = torch.where(inside, self.weights, 0)
        cells = weights.new_zeros(*weights.shape[:-1], len(rows) * len(keys)).scatter_add(-1, cell, weights)
        return cells.unflatten(-1, (len(rows), len(keys))).log()

    @property
    def source(self) -> Tensor:
        """The weights."""
        return self.weights

    @property
    def leading(self) -> tuple[int, ...]:
        """Batch and heads."""
        return tuple(self.weights.shape[:-1])


@dataclass(frozen=True, eq=False)
class EdgeSum:
    """Weights (B, H, E) of edges, the values (B, H, K, D) of their keys, and the summed output (B, H, Q, D); H may be missing.

    `query` and `key` (B or 1, E) are the ends of the edges. `owner` is the module that made the weights.
    """

    weights: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    dropout: float = 0.0
    notes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    owner: nn.Module | None = None
    scores: None = None

    def call(self, masks: MaskReader) -> tuple[Call, bool]:
        """The call with the weights themselves, and False because it has no query and key."""
        weights = self.weights.detach().to(torch.promote_types(self.weights.dtype, torch.float32))
        ends = (part if self.value.ndim < 4 else part.unsqueeze(-2) for part in (self.query, self.key))
        return call_of_weights(self.output.shape, self.value, LogEdgeWeights(weights, *ends)), False


def over_neighbours(
    multiplied: Product, weights: Tensor, dim: int, label: TensorLabel, undropped: Tensor | None = None
) -> EdgeSum | Mixing | None:
    """Weights (..., Q, k) of gathered neighbours, summed with their values, as edges; None if several queries share their keys.

    `label` is the values' label, `dim` the dimension of the weights that counts neighbours; `undropped` are the weights before dropout.
    """
    mine, others, value = multiplied.sides(weights)
    output, key = multiplied.letters[2], mine[dim]
    blocks = any(
        size > 1 for letter, size in zip(mine, weights.shape, strict=True) if letter in output and letter not in others
    )
    if key not in others or key in output or blocks:  # queries of a block share its keys: a batch of blocks, not of edges
        return None
    marks = {letter: axis_marks(axis) for letter, axis in zip(others, label.axes, strict=True)}
    entry = next((dim for dim, letter in enumerate(others) if letter in output and letter in mine), None)
    gathered_from = [replace(origin, tokens=shrunk(origin.tokens)) for origin in label.origins]
    gathered_from = [origin for origin in gathered_from if origin.tokens.shape[others.index(key)] > 1]
    origins = [_by_entry(item, entry) for item in gathered_from]
    varying = {others[item] for one in origins for item in one.varying}
    entries = {others[entry]} if entry is not None and origins != gathered_from else set()
    if not any("0" in axis_marks(origin.home) for origin in origins):
        entries |= {letter for letter, mark in marks.items() if mark == {"0"}}
    batch = [letter for letter in output if letter in entries]
    query = [letter for letter in output if letter not in batch and (letter in varying or letter not in others)]
    if not varying & {*query}:
        return None
    features = [letter for letter in output if letter in others and letter not in mine]
    if len(features) != 1:
        return CHANNELS
    heads = [letter for letter in output if letter not in (*batch, *query, *features)]
    sizes = {**dict(zip(mine, weights.shape, strict=True)), **dict(zip(others, value.shape, strict=True))}
    size = lambda letters: math.prod(sizes[letter] for letter in letters)  # noqa: E731
    edges = [*query, key]
    count = size(edges)
    tokens = _key_numbers(origins, others, [*batch, *edges])
    # A batch, the first dimension, keeps size 1 if the tokens do not depend on it.
    tokens = tokens.expand(len(tokens), *(sizes[letter] for letter in (*batch, *edges)[1:])).reshape(-1, count)
    lead = (size(batch), size(heads))
    spread = _spread(weights, mine, [*batch, *heads, *edges], sizes).reshape(*lead, count)
    gathered = _spread(value, others, [*batch, *heads, *edges, *features], sizes).reshape(*lead, count, size(features))
    result = _spread(multiplied.output, output, [*batch, *heads, *query, *features], sizes).reshape(*lead, -1, size(features))
    ends = torch.arange(size(query), device=tokens.device).repeat_interleave(sizes[key])[None]
    before = None if undropped is None else _spread(undropped, mine, [*batch, *heads, *edges], sizes).reshape(*lead, count)
    return _summed(spread, ends, tokens, gathered, result, _total(origins), bool(heads), before)


def into_queries(
    weights: Tensor, value: Tensor, slots: Slots, label: TensorLabel, output: Tensor, undropped: Tensor | None = None
) -> EdgeSum | Mixing | None:
    """Weights and gathered values (..., E, ...), summed into the places of their queries, as edges."""
    weights = weights.reshape(*(1,) * (value.ndim - weights.ndim), *weights.shape)
    edge, ndim = slots.dim, value.ndim
    origins = [origin for origin in label.origins if origin.tokens.shape[edge] > 1]
    if not origins or weights.ndim != ndim or not slots.apart or weights.shape[edge] != value.shape[edge]:
        return None
    others = [dim for dim in range(ndim) if dim != edge]
    features = [dim for dim in others if weights.shape[dim] == 1 and not axis_marks(label.axes[dim])]
    if not features:
        return CHANNELS
    batch = [dim for dim in others if dim not in features and axis_marks(label.axes[dim])]
    heads = [dim for dim in others if dim not in (*features, *batch)]
    tokens = _key_numbers(origins, range(ndim), [*batch, edge])
    tokens = tokens.expand(*tokens.shape[:-1], value.shape[edge]).reshape(-1, value.shape[edge])
    ends = slots.slots.expand([size if dim in (edge, *batch) else 1 for dim, size in enumerate(value.shape)])
    ends = ends.permute(*batch, edge, *[dim for dim in range(ndim) if dim not in (*batch, edge)]).reshape(-1, value.shape[edge])
    size = lambda dims, tensor: math.prod(tensor.shape[dim] for dim in dims)  # noqa: E731
    lead, order = (size(batch, value), size(heads, value)), [*batch, *heads, edge, *features]
    wide = weights.expand([1 if dim in features else length for dim, length in enumerate(value.shape)])
    spread = wide.permute(order).reshape(*lead, -1)
    before = (
        None if undropped is None else undropped.reshape(weights.shape).expand(wide.shape).permute(order).reshape(*lead, -1)
    )
    gathered, result = (part.permute(order).reshape(*lead, part.shape[edge], size(features, part)) for part in (value, output))
    return _summed(spread, ends, tokens, gathered, result, _total(origins), bool(heads), before)


def sparse_product(matrix: Tensor, value: Tensor, output: Tensor) -> EdgeSum | Mixing | None:
    """The product of a sparse matrix of weights (Q, K) and values (K, D), as edges."""
    entries = matrix.detach().to_sparse_coo().coalesce()
    if entries.ndim != 2 or entries.dense_dim() or value.ndim != 2:
        return None
    query, key = entries.indices()
    parts = entries.values()[None, None], query[None], key[None], value.detach()[key][None, None], output[None, None]
    return _summed(*parts, len(value), False)


def _summed(
    weights: Tensor,
    query: Tensor,
    key: Tensor,
    gathered: Tensor,
    output: Tensor,
    keys: int,
    heads: bool,
    undropped: Tensor | None = None,
) -> EdgeSum | Mixing | None:
    """The sum over edges, if it equals the model's output: weights (B, H, E), ends (B or 1, E), values (B, H, E, D)."""
    weights, gathered = weights.detach(), gathered.detach()
    if bool((weights < 0).any()) or bool((key < NONE).any()):
        return None
    there = key >= 0
    # Padding gets its own place after the keys.
    index = torch.where(there, key, keys)[:, None, :, None].expand(gathered.shape)
    masked = torch.where(there[:, None, :, None], gathered, 0)
    value = gathered.new_zeros(*gathered.shape[:2], keys + 1, gathered.shape[-1])
    value = value.scatter_reduce(-2, index, masked, "amax", include_self=False)
    if not bool((torch.where(there[:, None, :, None], value.gather(-2, index), 0) == masked).all()):
        return EDGE_VALUES
    ends = query[:, None, :, None].expand(gathered.shape)
    recomputed = torch.zeros_like(output).scatter_add(-2, ends, (weights[..., None] * masked).to(output.dtype))
    apart = (recomputed - output.detach()).abs().amax() if output.numel() else recomputed.new_zeros(())
    if float(apart) > TOLERANCE[output.dtype] * max(1.0, float(recomputed.abs().amax()) if output.numel() else 1.0):
        return None
    weights = weights if undropped is None else undropped.detach()
    rows = weights.new_zeros(*weights.shape[:2], output.shape[-2]).scatter_add(
        -1, query[:, None].expand(weights.shape), weights
    )
    notes = _notes(rows, query, weights, there)
    query, key = (part.broadcast_to(torch.broadcast_shapes(query.shape, key.shape)) for part in (query, key))
    weights = torch.where(there[:, None], weights, 0)
    key = key.clamp(min=0)
    if not heads:
        weights, value, output = weights[:, 0], value[:, 0], output[:, 0]
    value = value[..., :keys, :]
    return EdgeSum(weights, query.contiguous(), key.contiguous(), value, output, notes=notes)


def _notes(rows: Tensor, query: Tensor, weights: Tensor, there: Tensor) -> tuple[str, ...]:
    """Notes for a reader: an index chooses each query's keys, and some rows do not sum to one."""
    notes = [f"attention over {weights.shape[-1]} edges: an index chooses the keys of each query, and all others have weight 0"]
    reached = torch.zeros_like(rows, dtype=torch.bool)
    reached.scatter_(-1, query[:, None].expand(weights.shape), torch.ones_like(weights, dtype=torch.bool))
    sums = rows[reached]
    if sums.numel() and float((sums - 1).abs().max()) > 1e-3:
        notes.append(f"rows sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}")
    if not bool(there.all()):
        padding = torch.where(there[:, None], 0, weights)
        share = torch.zeros_like(rows).scatter_add(-1, query[:, None].expand(weights.shape), padding).amax()
        notes.append(f"up to {float(share):.0%} of a row falls on padding, which is no key")
    return tuple(notes)


def _numbers(positions: Tensor, ends: Tensor) -> Tensor:
    """The index of each edge's end among these positions, or −1."""
    size = 1 + max(int(part.max()) if part.numel() else 0 for part in (positions, ends))
    numbers = ends.new_full((size,), -1)
    numbers[positions] = torch.arange(len(positions), device=ends.device)
    return numbers[ends]


def _by_entry(origins: Origins, dim: int | None) -> Origins:
    """Places along joined batch and tokens as places along each entry's tokens, if no place belongs to another entry."""
    if dim is None or len(origins.home) != 2 or origins.home[0].mark != "0":
        return origins
    entries, length = origins.home[0].size, origins.home[1].size
    tokens = origins.tokens - length * torch.arange(entries, device=origins.tokens.device).view(
        [-1 if entry == dim else 1 for entry in range(origins.tokens.ndim)]
    )
    inside = tokens.shape[dim] == entries and bool(((tokens >= 0) & (tokens < length)).all())
    return Origins(origins.home[1:], tokens, origins.moves) if inside else origins


def _total(origins: list[Origins]) -> int:
    return math.prod(origin.length for origin in origins)


def _key_numbers(origins: list[Origins], letters: Sequence[Any], wanted: Sequence[Any]) -> Tensor:
    """The key number of each edge, with its dimensions in the `wanted` order, of size 1 if the number does not depend on them."""
    total: Tensor | None = None
    for origin in origins:
        tokens = origin.tokens.squeeze([dim for dim, letter in enumerate(letters) if letter not in wanted])
        tokens = arranged(tokens, [letter for letter in letters if letter in wanted], wanted)
        total = tokens if total is None else torch.where((total < 0) | (tokens < 0), NONE, total * origin.length + tokens)
    assert total is not None
    return total


def _spread(tensor: Tensor, letters: str, wanted: list[str], sizes: dict[str, int]) -> Tensor:
    """A tensor with its dimensions in the `wanted` order, repeated along missing ones."""
    return arranged(tensor, letters, wanted).expand([sizes[letter] for letter in wanted])
