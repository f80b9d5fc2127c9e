"""Statistics of the weights without storing the weights: what each query attends to, in memory linear in the inputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, Generic

import torch
from jaxtyping import Float
from torch import Tensor

from overt.attention import check
from overt.attention.kernels.blocked import Block, query_block, ready, row_blocks
from overt.attention.kernels.call import Call, unrounded
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.plan import Table, first_able, permits
from overt.attention.kernels.sharded.attend import share_summary
from overt.attention.mechanism import formula
from overt.attention.normalizers import Softmax
from overt.attention.typing import Array, BiasLike, MaskLike, NormalizerLike, Refused, ScoreLike
from overt.errors import InputError

Stages = tuple[Tensor, Tensor, Tensor, Tensor]
ShowBlock = Callable[[int, Block, Stages], None]

# TABLE: as in `attend`, each path's reason to refuse a summary, in order of preference.
TABLE: Table = {
    "torch": lambda call: "torch has no kernel that summarises",
    "native": flat_summary.refusal,
    "triton": flat_summary.gpu_refusal,
    "blocked": lambda call: None,
}


@dataclass(frozen=True, eq=False)
class Summary(Generic[Array]):
    """Statistics of the weights, in the dtype of the computation, float32 or float64.

    lse (..., Q): log Σ_j exp(score_ij), sink included, so that weight_ij = exp(score_ij − lse_i); None unless the normaliser is
        a softmax. Scores are masked, biased and divided by the temperature.
    entropy (..., Q): −Σ_j w_ij log w_ij in nats, with the weights scaled to sum to 1 if necessary; NaN if any is negative.
    received (..., K): the mean weight of a key over the queries with visible keys.
    top_weights, top_keys (..., Q, min(top, K)): the largest weights and their keys (int32); 0 and −1 beyond the keys that the
        query may attend to.
    map_mean, map_max (..., R, C): mean and largest weight in each of R × C near-equal cells, 0 if none is positive; the edges
        of the cells are row_edges (R + 1) and key_edges (C + 1); None without `map_size`.
    sink (..., Q): the weight of the sink; None without one.
    output (..., Q, E): the attention output; None without `value`.
    support (..., Q): the number of keys whose weight is not 0 (int32); None under a softmax, where each key has a weight.

    >>> import torch, overt
    >>> x = torch.randn(1, 2, 9, 4)
    >>> summary = overt.summarize(x, x, mask=overt.Causal(), top=3, map_size=2)
    >>> summary.entropy.shape, summary.top_keys.shape, summary.map_mean.shape, summary.row_edges.tolist()
    (torch.Size([1, 2, 9]), torch.Size([1, 2, 9, 3]), torch.Size([1, 2, 2, 2]), [0, 4, 9])
    """

    lse: Array | None
    entropy: Array
    received: Array
    top_weights: Array
    top_keys: Array
    map_mean: Array | None = None
    map_max: Array | None = None
    row_edges: Array | None = None
    key_edges: Array | None = None
    sink: Array | None = None
    output: Array | None = None
    support: Array | None = None


@torch.no_grad()
def summarize(
    query: Float[Array, "... Q D"],
    key: Float[Array, "... K D"],
    *,
    value: Float[Array, "... K E"] | None = None,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
    bias: BiasLike | None = None,
    normalizer: NormalizerLike | None = None,
    top: int = 8,
    map_size: int | tuple[int, int] | None = None,
    **unknown: Refused,
) -> Summary[Array]:
    """Summarise the weights of `attend` with these arguments, without storing Q × K of them.

    `top` is the number of largest weights for each query; `map_size` the number of cells of the map, of rows and keys alike or
    (rows, keys). Shapes: query (..., Q, D), key (..., K, D). Nothing is differentiated.

    >>> import torch, overt
    >>> summary = overt.summarize(torch.eye(3), torch.eye(3), score=overt.Dot(scale=4.0), top=1, map_size=1)
    >>> summary.top_keys.flatten().tolist(), [round(number, 3) for number in summary.entropy.tolist()]
    ([0, 1, 2], [0.177, 0.177, 0.177])
    >>> summary.map_mean
    tensor([[0.3333]])
    """
    check.whole_number("top", top)
    call = Call.checked(query, key, key if value is None else value, score, mask, bias, normalizer, unknown=unknown)
    call = replace(call, value=call.value[..., :0]) if value is None else call
    if call.sharded:
        summary = share_summary(call, lambda share: gathered(share, top), map_size)
    else:
        first_able(TABLE, call)  # an error if overt.use_path forces an unsuitable one
        summary = gathered(call, top, map_size)
    statistics = {
        field.name: getattr(summary, field.name) for field in fields(summary) if field.name != "output" or value is not None
    }
    return Summary(**{name: None if statistic is None else call.returned(statistic) for name, statistic in statistics.items()})


@torch.no_grad()
def gathered(
    call: Call, top: int, map_size: int | tuple[int, int] | None = None, show_block: ShowBlock | None = None
) -> Summary:
    """Summarise a checked call, output included; `show_block` is called with each block: its first row, the block, and its stages."""
    edges = _edges(map_size, call.queries, call.keys, call.query.device)
    if show_block is None and any(permits(name) and TABLE[name](call) is None for name in ("native", "triton")):
        summary = _by_kernel(call, top, edges)[0]
        if summary.support is None or not bool((summary.support < 0).any()):
            return summary
    dtype, call = call.query.dtype, ready(call)
    parts, received, count, cells_of_map = [], torch.zeros(()), torch.zeros(()), _MapCells(edges)
    with unrounded(call.query):
        for rows, careful in row_blocks(call):
            block = query_block(call, rows, every_key=True, careful=careful)
            _, masked, weights, output = stages = formula(block)
            alive = (masked != -torch.inf).any(-1, keepdim=True)  # (..., rows, 1)
            received, count = received + weights.sum(-2), count + alive.sum(-2)
            cells_of_map.add(rows.first, weights)
            parts.append((*_row_statistics(call.normalizer, masked, weights, top), output, _support(call.normalizer, weights)))
            if show_block is not None:
                show_block(rows.first, block, stages)
    columns = zip(zip(*parts, strict=True), (-1, -1, -1, -2, -2, -2, -1), strict=True)
    joined: Any = [None if column[0] is None else torch.cat(column, dim=dim) for column, dim in columns]
    lse, entropy, sink, top_weights, top_keys, output, support = joined
    received = received / count.clamp(min=1)
    return Summary(lse, entropy, received, top_weights, top_keys, *cells_of_map.maps(), sink, output.to(dtype), support)


@torch.no_grad()
def gathered_signed(
    blocks: Iterable[tuple[int, Tensor]], queries: int, keys: int, top: int, map_size: int | tuple[int, int] | None = None
) -> Summary:
    """Summarise signed weights that need not sum to one, from blocks of rows in order: the first row and weights (B, H, rows, K) of each.

    `entropy` is of |W| / Σ |W|, `top_weights` are the largest |W| with their signs, `received` and `map_mean` are means of W, and
    `map_max` is the weight of largest |W| in each cell, with its sign. There is no `lse`, no `sink` and no `output`.
    """
    parts, received, above, below = [], torch.zeros(()), _MapCells(None), _MapCells(None)
    for first, weights in blocks:
        if not parts:
            edges = _edges(map_size, queries, keys, weights.device)
            above, below = _MapCells(edges), _MapCells(edges)
        sizes = weights.abs()
        received = received + weights.sum(-2)
        above.add(first, weights)
        below.add(first, -weights)
        total = sizes.sum(-1, keepdim=True)
        largest, positions = sizes.topk(min(top, keys), dim=-1)
        entropy = torch.special.entr(sizes / torch.where(total == 0, 1, total)).sum(-1)
        none = largest == 0
        parts.append((entropy, weights.gather(-1, positions).masked_fill(none, 0), positions.masked_fill(none, -1).int()))
    entropy, top_weights, top_keys = (
        torch.cat(column, dim=dim) for column, dim in zip(zip(*parts, strict=True), (-1, -2, -2), strict=True)
    )
    (mean, largest, *edges_of_map), lowest = above.maps(), below.maps()[1]
    if largest is not None and lowest is not None:
        largest = torch.where(lowest > largest, -lowest, largest)
    return Summary(None, entropy, received / max(queries, 1), top_weights, top_keys, mean, largest, *edges_of_map)


@torch.no_grad()
def with_masses(
    call: Call, top: int, sets: Sequence[flat_summary.KeySet], map_size: int | tuple[int, int] | None = None
) -> tuple[Summary, Tensor]:
    """The summary of a checked call that the kernel supports, and each query's absolute weight on each set of keys (..., Q, sets)."""
    return _by_kernel(call, top, _edges(map_size, call.queries, call.keys, call.query.device), sets)


def _by_kernel(
    call: Call, top: int, edges: tuple[Tensor, Tensor] | None, sets: Sequence[flat_summary.KeySet] = ()
) -> tuple[Summary, Tensor]:
    statistics = flat_summary.summarized(call, top, edges, sets)
    softmax = isinstance(call.normalizer, Softmax)
    sink = call.normalizer.sink if softmax else None
    sink = None if sink is None else torch.exp(sink.to(statistics.lse.dtype)[..., None] - statistics.lse)
    entropy = statistics.entropy
    if sink is not None and statistics.top_weights.shape[-1]:
        # The kernel's entropy is of the weights without the sink, however small they are; if they are all 0 it is 0.
        entropy = torch.where(statistics.top_weights[..., 0] == 0, 0, entropy)
    maps = (None, None, None, None) if edges is None else (statistics.map_mean, statistics.map_max, *edges)
    output = statistics.output.to(call.query.dtype)
    lse, support = (statistics.lse, None) if softmax else (None, statistics.support)
    return Summary(lse, entropy, *statistics[2:5], *maps, sink, output, support), statistics.masses


def _row_statistics(normalizer: Any, masked: Tensor, weights: Tensor, top: int) -> tuple[Tensor | None, ...]:
    """The statistics of each query: lse, entropy, sink, top weights, top keys."""
    excluded = masked == -torch.inf
    lse = normalizer.logsumexp(masked, ~excluded) if isinstance(normalizer, Softmax) else None
    sink = None
    if lse is not None and normalizer.sink is not None:
        logit = normalizer.sink.to(lse.dtype)
        sink = torch.exp((logit if logit.ndim == 0 else logit[:, None]) - lse)
    total = weights.sum(-1, keepdim=True)
    entropy = torch.special.entr(weights / torch.where(total == 0, 1, total)).sum(-1)
    entropy = torch.where((weights < 0).any(-1), torch.nan, entropy)
    largest, keys = torch.where(excluded, -torch.inf, weights).topk(min(top, weights.shape[-1]), dim=-1)
    none = largest == -torch.inf
    return lse, entropy, sink, largest.masked_fill(none, 0), keys.masked_fill(none, -1).int()


def _support(normalizer: Any, weights: Tensor) -> Tensor | None:
    """The number of keys with a non-zero weight for each query; None under a softmax."""
    return None if isinstance(normalizer, Softmax) else (weights != 0).sum(-1).int()


def _edges(
    map_size: int | tuple[int, int] | None, queries: int, keys: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """The edges of the map's cells, along queries and along keys."""
    if map_size is None:
        return None
    sizes = (map_size, map_size) if isinstance(map_size, int) else map_size
    if not isinstance(sizes, tuple) or len(sizes) != 2:
        raise InputError("map_size to be a number of cells or (rows, keys)", got=repr(map_size), fix="pass map_size=256")
    for size in sizes:
        check.whole_number("map_size", size)
    row_edges, key_edges = (
        torch.arange(min(size, length) + 1, device=device) * length // max(min(size, length), 1)
        for size, length in zip(sizes, (queries, keys), strict=True)
    )
    return row_edges, key_edges


class _MapCells:
    """The map, accumulated from blocks of rows."""

    def __init__(self, edges: tuple[Tensor, Tensor] | None):
        self.edges = edges
        self.total: Tensor | None = None
        self.largest: Tensor | None = None

    def add(self, first: int, weights: Tensor) -> None:
        """Pool a block's weights (..., rows, K) over the key cells, then into the row cells of its rows."""
        if self.edges is None:
            return
        row_edges, key_edges = self.edges
        shape = (*weights.shape[:-2], len(row_edges) - 1, len(key_edges) - 1)
        if self.total is None or self.largest is None:
            self.total, self.largest = weights.new_zeros(shape), weights.new_zeros(shape)
        total, largest = _pooled(weights, key_edges)  # (..., rows, C)
        edges = row_edges.tolist()
        for cell, (start, stop) in enumerate(pairwise(edges)):
            part = slice(max(start - first, 0), max(stop - first, 0))
            if part.start < total.shape[-2] and part.stop > part.start:
                self.total[..., cell, :] += total[..., part, :].sum(-2)
                self.largest[..., cell, :] = self.largest[..., cell, :].maximum(largest[..., part, :].amax(-2))

    def maps(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """Mean and largest weight of each cell, and the edges."""
        if self.edges is None or self.total is None:
            return None, None, None, None
        row_edges, key_edges = self.edges
        area = row_edges.diff()[:, None] * key_edges.diff()  # (R, C)
        return self.total / area, self.largest, row_edges, key_edges


def _pooled(weights: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and maximum of each row's weights (..., rows, K) in each cell of keys: (..., rows, C) both."""
    widths = edges.diff()
    if not len(widths):
        return weights, weights  # no keys, so no cells of keys
    if bool((widths == widths[0]).all()):
        cells = weights.unflatten(-1, (len(widths), -1))  # (..., rows, C, K / C)
        return cells.sum(-1), cells.amax(-1)
    offsets = torch.arange(int(widths.max()), device=edges.device)
    inside = offsets < widths[:, None]  # (C, widest)
    cells = weights[..., torch.where(inside, edges[:-1, None] + offsets, edges[:-1, None])]  # (..., rows, C, widest)
    return torch.where(inside, cells, 0).sum(-1), cells.amax(-1)
