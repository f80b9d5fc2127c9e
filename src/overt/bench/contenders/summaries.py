"""Contenders for summaries: overt's paths, and as a yardstick one forward pass of torch's dot-product attention."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

import overt
from overt.bench.cases import Inputs
from overt.bench.compared import Wanted
from overt.bench.contenders.contender import Contender, Results, Run, Unable
from overt.errors import OvertError

TOP, CELLS = 8, 512
_STATISTICS = ("lse", "entropy", "received", "top_weights", "top_keys", "map_mean", "map_max")
_VECTORS = ("lse", "entropy", "received")
_MOST_PAIRS = 1 << 27  # of queries and keys, computed for the comparison


def native() -> Contender:
    """overt's native kernels."""
    return Contender("overt native", lambda inputs: _ours(inputs, "native"), ours=True)


def triton() -> Contender:
    """overt's kernels for GPUs."""
    return Contender("overt triton", lambda inputs: _ours(inputs, "triton"), ours=True)


def blocked() -> Contender:
    """overt's path for anything, in pure PyTorch."""
    return Contender("overt blocked", lambda inputs: _ours(inputs, "blocked"), ours=True)


def yardstick() -> Contender:
    """torch's fused kernel, which gives the output alone."""
    return Contender("torch SDPA", lambda inputs: (_forward(inputs), "one forward pass: the output, without statistics"))


def wanted(inputs: Inputs) -> Wanted:
    """The statistics and the output in float64, from the weights themselves, of evenly spread heads: all, where they are not many."""
    heads, pairs = prod(inputs.query.shape[:-2]), inputs.query.shape[-2] * inputs.key.shape[-2]
    count = max(1, min(heads, _MOST_PAIRS // max(pairs, 1)))
    device = inputs.query.device
    chosen = torch.arange(count, device=device) * heads // count

    def of_chosen(tensor: Tensor, dims: int) -> Tensor:
        return tensor.flatten(0, -dims - 1)[chosen]

    query, key, value = (of_chosen(tensor, 2).double() for tensor in (inputs.query, inputs.key, inputs.value))
    rows, keys = _edges(query.shape[-2]), _edges(key.shape[-2]).to(device)
    parts: list[Results] = []
    for start, stop in pairwise(rows.tolist()):
        scores = query[:, start:stop] @ key.mT / query.shape[-1] ** 0.5  # (heads, rows, K)
        parts.append(_of_rows(scores, value, keys))
    joined = {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
    received = joined.pop("sum").sum(-2) / query.shape[-2]  # (heads, K)

    def taken(results: Results) -> Results:
        found = {name: of_chosen(tensor, 1 if name in _VECTORS else 2) for name, tensor in results.items()}
        if "top_keys" not in found:
            return found
        # A key that is none is a disagreement, told like any other, and no crash.
        there = found["top_keys"].long().clamp(0, key.shape[-2] - 1)
        nearest = key[:, None].take_along_dim(there[..., None], -2)  # (heads, Q, top, D)
        scores = (query[..., None, :] * nearest).sum(-1) / query.shape[-1] ** 0.5  # (heads, Q, top)
        return found | {"top_keys": torch.exp(scores - joined["lse"][..., None])}

    told = "every number" if count == heads else f"every number of {count} of {heads} heads"
    return Wanted(joined | {"received": received, "top_keys": joined["top_weights"]}, None, told, taken)


def _edges(length: int) -> Tensor:
    cells = min(CELLS, length)
    return torch.arange(cells + 1) * length // cells


def _of_rows(scores: Tensor, value: Tensor, edges: Tensor) -> Results:
    """What the rows of one cell of the map add to each result, along the dimension of queries."""
    weights = scores.softmax(-1)  # (heads, rows, K)
    widths = edges.diff()
    cell = torch.repeat_interleave(torch.arange(len(widths), device=edges.device), widths)  # (K,)
    total, largest = weights.sum(-2), weights.amax(-2)  # (heads, K)
    empty = total.new_zeros(len(total), len(widths))
    return {
        "lse": scores.logsumexp(-1),
        "entropy": torch.special.entr(weights).sum(-1),
        "top_weights": weights.topk(min(TOP, weights.shape[-1])).values,
        "output": weights @ value,
        "sum": total[:, None],
        "map_mean": (empty.index_add(-1, cell, total) / (weights.shape[-2] * widths))[:, None],
        "map_max": empty.scatter_reduce(-1, cell.expand_as(largest), largest, "amax")[:, None],
    }


def _ours(inputs: Inputs, path: str) -> tuple[Run, str]:
    def summarized(query: Tensor, key: Tensor) -> overt.Summary:
        with overt.use_path(path):
            return overt.summarize(query, key, top=TOP, map_size=CELLS)

    def run(upstream: Tensor | None) -> Results:
        found = summarized(inputs.query, inputs.key)
        return {name: getattr(found, name) for name in _STATISTICS}

    try:
        summarized(inputs.query[..., :1, :], inputs.key[..., :1, :])
    except OvertError as error:
        raise Unable(str(error)) from error
    return run, ""


def _forward(inputs: Inputs) -> Run:
    def run(upstream: Tensor | None) -> Results:
        return {"output": functional.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value)}

    return run
