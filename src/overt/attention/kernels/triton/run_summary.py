"""The operator `torch.ops.overt.summary` on GPU tensors."""

import math
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from overt.attention.kernels.triton import summary as triton_summary
from overt.attention.kernels.triton.launch import on_its_device, size, steps, strided_bias, strided_mask, table
from overt.attention.kernels.triton.packing import LEAKS, RATES, packed

if TYPE_CHECKING:
    from overt.attention.kernels.flat.summary import SummaryInputs, SummaryOutputs

KERNELS: Any = triton_summary  # untyped: Triton's kernels have no signature for a type checker

# QUERIES, KEYS: tile sizes and warps of a program. Factors of a product are read in rows of up to WHOLE bytes, longer rows in
# pieces of LINE bytes; a program holds WIDEST value features.
QUERIES = {"rows": 64, "keys": 32, "warps": 4}
KEYS = {"rows": 64, "keys": 128, "warps": 4}
LINE, WHOLE, WIDEST = 128, 256, 128


@on_its_device
def summary(_: Tensor, outputs: "SummaryOutputs", inputs: "SummaryInputs") -> tuple[Tensor, ...]:
    """Compute the statistics into the outputs."""
    query, key, value, weight, bias, top = inputs.query, inputs.key, inputs.value, inputs.weight, inputs.bias, inputs.top
    sink, inverse_temperature, edges = inputs.sink, inputs.inverse_temperature, (inputs.row_edges, inputs.key_edges)
    number, entries, (queries, keys) = outputs.lse.dtype, math.prod(inputs.batch), (query.shape[-2], key.shape[-2])
    outputs.received.zero_()
    for cells in (outputs.map_mean, outputs.map_max):
        cells.zero_()
    if not (entries and queries):
        return tuple(outputs)
    if weight is None:
        query, key = _aligned(query), _aligned(key)
    value = _aligned(value)
    score, trailing, kind = _compared(query, key, weight, inputs.activation, inputs.scale, inputs.softcap, number)
    trailing |= {
        "value": (value, 2),
        "bias": (bias, 1 if inputs.by_distance else 2),
        "sink": (sink, 0),
        "inverse_temperature": (inverse_temperature, 0),
    }
    offsets = table(inputs.batch, trailing, inputs.arrays, inputs.program)
    program, firsts, bounds = steps(inputs.program)
    kind |= {"STEPS": program, "FIRSTS": firsts, "BOUNDS": bounds, "BY_DISTANCE": inputs.by_distance}
    mask, bias, sizes = strided_mask(inputs.arrays, program, offsets), strided_bias(bias, inputs.by_distance), (queries, keys)
    alive = _run_queries(outputs, (score, value, mask, bias, sink, inverse_temperature, offsets, sizes), top, kind, entries)
    _run_keys(outputs, (score, mask, bias, inverse_temperature, offsets, sizes), edges, kind, entries)
    outputs.received.div_(alive.sum(-1, keepdim=True).clamp(min=1))
    if edges[0] is not None and edges[1] is not None:
        outputs.map_mean.div_(edges[0].diff()[:, None] * edges[1].diff())
    return tuple(outputs)


def _compared(
    query: Tensor,
    key: Tensor,
    weight: Tensor | None,
    activation: str,
    scale: Tensor | None,
    softcap: float,
    number: torch.dtype,
) -> Any:
    """The inputs of the scores, the tensors with a part for each entry, and the compile-time constants."""
    if weight is None:
        score = query, key, *query.stride()[-2:], *key.stride()[-2:], query.shape[-1], scale
        features, whole = query.shape[-1], query.shape[-1] * query.itemsize <= WHOLE
        columns = size(features, (WHOLE if whole else LINE) // query.itemsize)
        kind = {"FORM": (triton_summary.DOT.value, 0.0, softcap, columns, whole)}
        return score, {"query": (query, 2), "key": (key, 2), "scale": (scale, 0)}, kind
    pack = packed(query, key, weight.to(number), activation)
    kind = {"FORM": (RATES[activation], LEAKS.get(activation, 0.0), 0.0, 0, False)}
    return (*pack, len(pack.ways)), {"query": (pack.query, 3), "key": (pack.key, 3), "weight": (pack.weight, 1)}, kind


def _run_queries(outputs: Any, arguments: tuple[Any, ...], top: int, kind: dict[str, Any], entries: int) -> Tensor:
    """Compute the statistics of queries; returns 1 for each query with a key, else 0."""
    value, queries, keys = arguments[1], *arguments[-1]
    alive, width = torch.empty_like(outputs.lse), outputs.output.shape[-1]
    rows, block = size(queries, QUERIES["rows"]), size(width, WIDEST) if width else 0
    KERNELS.query_statistics[triton.cdiv(queries, rows), entries, triton.cdiv(width, block) if width else 1](
        *arguments, outputs.lse, outputs.entropy, alive, outputs.top_weights, outputs.top_keys, top, outputs.output, width,
        value.stride()[-2:], **kind,
        ROWS=rows, KEYS=size(keys, QUERIES["keys"]), TOP=triton.next_power_of_2(top) if top else 0, WIDTH=block,
        num_warps=QUERIES["warps"],
    )  # fmt: skip
    return alive


def _run_keys(
    outputs: Any, arguments: tuple[Any, ...], edges: tuple[Tensor | None, Tensor | None], kind: dict[str, Any], entries: int
) -> None:
    """Compute the keys' received weights, and the map's sums and maxima. A program has whole pieces of cells, of about a block of keys."""
    queries, keys = arguments[-1]
    if not keys:
        return
    row_cells, key_cells = (
        torch.tensor((0, length), device=outputs.lse.device) if edge is None else edge
        for edge, length in zip(edges, (queries, keys), strict=True)
    )
    rows, block = size(-(-queries // (len(row_cells) - 1)), KEYS["rows"]), size(keys, KEYS["keys"])
    (row_edges, parts), (key_edges, key_parts) = _pieces(row_cells, queries, rows), _pieces(key_cells, keys, block)
    count = len(key_edges) - 1
    wide = max(block // triton.cdiv(keys, count), 1)
    maps = outputs.map_mean, outputs.map_max
    if key_parts > 1:  # one for each piece, of which a cell has several
        maps = tuple(cells.new_zeros(*cells.shape[:-1], count if cells.numel() else 0) for cells in maps)
    KERNELS.key_statistics[triton.cdiv(count, wide), entries](
        *arguments, outputs.lse, outputs.received, row_edges, key_edges, *maps, (len(row_edges) - 1, count), parts, wide, **kind,
        ROWS=rows, KEYS=block, CELLS=0 if edges[0] is None else triton.next_power_of_2(wide), num_warps=KEYS["warps"],
    )  # fmt: skip
    if key_parts > 1 and outputs.map_mean.numel():
        outputs.map_mean.copy_(maps[0].unflatten(-1, (-1, key_parts)).sum(-1))
        outputs.map_max.copy_(maps[1].unflatten(-1, (-1, key_parts)).amax(-1))


def _pieces(edges: Tensor, length: int, most: int) -> tuple[Tensor, int]:
    """Divide each of the near-equal cells into equal pieces of at most `most` rows or keys; returns edges and pieces per cell.

    >>> _pieces(torch.tensor([0, 5, 11]), 11, 4)
    (tensor([ 0,  2,  5,  8, 11]), 2)
    """
    widest = -(-length // (len(edges) - 1))
    parts = max(-(-widest // most), 1)
    starts = edges[:-1, None] + edges.diff()[:, None] * torch.arange(parts, device=edges.device) // parts
    return torch.cat([starts.flatten(), edges[-1:]]), parts


def _aligned(tensor: Tensor) -> Tensor:
    """Pad rows with zeros to a multiple of 16 numbers, contiguous in memory: threads read 16 bytes at once."""
    pad = -tensor.shape[-1] % 16
    strides = [stride for stride, length in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True) if length > 1]
    if not pad and tensor.stride(-1) == 1 and not any(stride % 16 for stride in strides) and tensor.data_ptr() % 16 == 0:
        return tensor
    return torch.nn.functional.pad(tensor, (0, pad)) if pad else tensor.clone(memory_format=torch.contiguous_format)
