"""Contenders for summaries: overt's paths, and for comparison one forward pass of torch's dot-product attention."""

from itertools import pairwise
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

import overt
from overt.bench.bounds import EXPONENTIAL, Count, moved, pairs
from overt.bench.cases import Case, Inputs
from overt.bench.contenders.contender import Contender, Results, Run, Unable
from overt.bench.gpu.bounds import GpuBound
from overt.bench.gpu.ceilings import GpuCeilings
from overt.bench.reference import Reference
from overt.bench.works import Work
from overt.errors import OvertError

TOP, CELLS = 8, 512
_STATISTICS = ("lse", "entropy", "received", "top_weights", "top_keys", "map_mean", "map_max")
_VECTORS = ("lse", "entropy", "received")
_MAX_PAIRS = 1 << 27  # of queries and keys, computed for the comparison


def overt_path(path: str) -> Contender:
    """One path of overt: native, triton or blocked."""
    return Contender(f"overt {path}", lambda inputs: _overt(inputs, path), ours=True)


def forward_pass() -> Contender:
    """torch's fused kernel, which computes the output only."""
    return Contender("torch SDPA", lambda inputs: (_forward(inputs), "one forward pass: the output, without statistics"))


def reference(case: Case, inputs: Inputs) -> Reference:
    """The statistics and the output in float64, from the weights, of evenly spread heads: all of them where there are few enough."""
    heads = prod(case.batch)
    count = max(1, min(heads, _MAX_PAIRS // max(case.queries * case.keys, 1)))
    device = inputs.query.device
    selected = torch.arange(count, device=device) * heads // count

    def of_selected(tensor: Tensor, dims: int) -> Tensor:
        return tensor.flatten(0, -dims - 1)[selected]

    query, key, value = (of_selected(tensor, 2).double() for tensor in (inputs.query, inputs.key, inputs.value))
    rows, keys = _edges(query.shape[-2]), _edges(key.shape[-2]).to(device)
    parts: list[Results] = []
    for start, stop in pairwise(rows.tolist()):
        scores = query[:, start:stop] @ key.mT / query.shape[-1] ** 0.5  # (heads, rows, K)
        parts.append(_of_rows(scores, value, keys))
    joined = {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}
    received = joined.pop("sum").sum(-2) / query.shape[-2]  # (heads, K)

    def select(results: Results) -> Results:
        selection = {name: of_selected(tensor, 1 if name in _VECTORS else 2) for name, tensor in results.items()}
        if "top_keys" not in selection:
            return selection
        # An index that is no key gives a disagreement, not an exception.
        indices = selection["top_keys"].long().clamp(0, key.shape[-2] - 1)
        nearest = key[:, None].take_along_dim(indices[..., None], -2)  # (heads, Q, top, D)
        scores = (query[..., None, :] * nearest).sum(-1) / query.shape[-1] ** 0.5  # (heads, Q, top)
        return selection | {"top_keys": torch.exp(scores - joined["lse"][..., None])}

    description = "every number" if count == heads else f"every number of {count} of {heads} heads"
    return Reference(joined | {"received": received, "top_keys": joined["top_weights"]}, None, description, select)


def _edges(length: int) -> Tensor:
    cells = min(CELLS, length)
    return torch.arange(cells + 1) * length // cells


def _of_rows(scores: Tensor, value: Tensor, edges: Tensor) -> Results:
    """Each result for the rows of one cell of the map, along the dimension of queries."""
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


def _overt(inputs: Inputs, path: str) -> tuple[Run, str]:
    def summarized(query: Tensor, key: Tensor) -> overt.Summary:
        with overt.use_path(path):
            return overt.summarize(query, key, top=TOP, map_size=CELLS)

    def run(upstream: Tensor | None) -> Results:
        summary = summarized(inputs.query, inputs.key)
        return {name: getattr(summary, name) for name in _STATISTICS}

    try:
        summarized(inputs.query[..., :1, :], inputs.key[..., :1, :])
    except OvertError as error:
        raise Unable(str(error)) from error
    return run, ""


def _forward(inputs: Inputs) -> Run:
    def run(upstream: Tensor | None) -> Results:
        return {"output": functional.scaled_dot_product_attention(inputs.query, inputs.key, inputs.value)}

    return run


def operations(case: Case) -> Count:
    """Each score once: its exponential can wait until the row's sum is known."""
    return (Count(case.features, 2) + EXPONENTIAL + Count(3, 3)) * pairs(case)


def bytes_read(case: Case, itemsize: int) -> int:
    """Queries and keys, which an output as long as the queries and values as long as the keys would double."""
    return moved(case, itemsize) // 2


def gpu_bound(case: Case, dtype: torch.dtype, ceilings: GpuCeilings) -> GpuBound | None:
    """Scores are computed twice: for each query, then, with its log-sum-exp known, for each key.

    Float32 scores may be computed as several products of lower precision, at another rate: None.
    """
    if dtype != torch.bfloat16:
        return None
    return GpuBound(0.0, 2 * 2 * prod(case.shape) / ceilings.matmul_bfloat16, bytes_read(case, 2) / ceilings.copy)


WORKS = {
    "summary": Work(
        "top 8, entropy, received, 512 × 512 map; dot",
        [overt_path("native"), overt_path("blocked"), forward_pass()],
        reference,
        operations,
        gpu_contenders=[overt_path("triton"), forward_pass()],
        moved=bytes_read,
        gpu_bound=gpu_bound,
    )
}
BACKWARD: set[str] = set()
CASES = [Case("summary", (1, 8), 8192, 8192, 64)]
GPU_CASES = [Case("summary", (1, 16), 32768, 32768, 128, dtype=torch.bfloat16)]
