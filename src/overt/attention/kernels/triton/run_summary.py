"""The operator `torch.ops.overt.summary` where tensors are on a GPU."""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from overt.attention.kernels.triton import summary as triton_summary
from overt.attention.kernels.triton.launch import bias_of, mask_of, on_its_device, size, steps, table
from overt.attention.kernels.triton.packing import LEAKS, RATES, packed

KERNELS: Any = triton_summary  # what Triton compiles has no signature that a checker could read

# The sizes of tiles, and the warps of a program. What is multiplied is read in rows of up to WHOLE bytes, longer ones in pieces of LINE
# bytes; WIDEST features of values are held.
QUERIES = {"rows": 64, "warps": 4}
KEYS = {"rows": 64, "keys": 128, "warps": 8}
LINE, WHOLE, WIDEST = 128, 256, 128


@on_its_device
def summary(outputs: Any, *inputs: Any) -> tuple[Tensor, ...]:
    """Fill `flat.summary.SummaryOutputs`."""
    query, key, value, weight, activation, scale, softcap, *rest = inputs
    batch, program, arrays, bias, by_distance, sink, inverse_temperature, top, *edges = rest
    number, entries, (queries, keys) = outputs.lse.dtype, math.prod(batch), (query.shape[-2], key.shape[-2])
    outputs.received.zero_()
    for cells in (outputs.map_mean, outputs.map_max):
        cells.zero_()
    if not (entries and queries):
        return tuple(outputs)
    score, trailing, kind = _compared(query, key, weight, activation, scale, softcap, number)
    trailing |= {
        "value": (value, 2),
        "bias": (bias, 1 if by_distance else 2),
        "sink": (sink, 0),
        "inverse_temperature": (inverse_temperature, 0),
    }
    offsets = table(batch, trailing, arrays, program)
    program, firsts, bounds = steps(program)
    kind |= {"STEPS": program, "FIRSTS": firsts, "BOUNDS": bounds, "BY_DISTANCE": by_distance}
    mask, bias, sizes = mask_of(arrays, program, offsets), bias_of(bias, by_distance), (queries, keys)
    alive = _of_queries(outputs, (score, value, mask, bias, sink, inverse_temperature, offsets, sizes), top, kind, entries)
    _of_keys(outputs, (score, mask, bias, inverse_temperature, offsets, sizes), edges, kind, entries)
    outputs.received.div_(alive.sum(-1, keepdim=True).clamp(min=1))
    if edges[0] is not None:
        outputs.map_mean.div_(edges[0].diff()[:, None] * edges[1].diff())
    return tuple(outputs)


def _compared(
    query: Tensor, key: Tensor, weight: Tensor | None, activation: str, scale: Tensor, softcap: float, number: torch.dtype
) -> Any:
    """What scores are made of, which tensors have a part for each entry, and what kernels are compiled for."""
    if weight is None:
        score = query, key, *query.stride()[-2:], *key.stride()[-2:], query.shape[-1], scale
        features, whole = query.shape[-1], query.shape[-1] * query.itemsize <= WHOLE
        columns = size(features, (WHOLE if whole else LINE) // query.itemsize)
        kind = {"FORM": (triton_summary.DOT.value, 0.0, softcap, columns, whole)}
        return score, {"query": (query, 2), "key": (key, 2), "scale": (scale, 0)}, kind
    pack = packed(query, key, weight.to(number), activation)
    kind = {"FORM": (RATES[activation], LEAKS.get(activation, 0.0), 0.0, 0, False)}
    return (*pack, len(pack.ways)), {"query": (pack.query, 3), "key": (pack.key, 3), "weight": (pack.weight, 1)}, kind


def _of_queries(outputs: Any, arguments: tuple[Any, ...], top: int, kind: dict[str, Any], entries: int) -> Tensor:
    """What is said of queries; gives 1 for each that may attend to anything, else 0."""
    value, queries, keys = arguments[1], *arguments[-1]
    alive, width = torch.empty_like(outputs.lse), value.shape[-1]
    rows, block = size(queries, QUERIES["rows"]), size(width, WIDEST) if width else 0
    KERNELS.of_queries[triton.cdiv(queries, rows), entries, triton.cdiv(width, block) if width else 1](
        *arguments, outputs.lse, outputs.entropy, alive, outputs.top_weights, outputs.top_keys, top, outputs.output, width,
        value.stride()[-2:], **kind,
        ROWS=rows, KEYS=size(keys, LINE // value.itemsize), TOP=triton.next_power_of_2(top) if top else 0, WIDTH=block,
        num_warps=QUERIES["warps"],
    )  # fmt: skip
    return alive


def _of_keys(outputs: Any, arguments: tuple[Any, ...], edges: list[Tensor | None], kind: dict[str, Any], entries: int) -> None:
    """What keys receive, summed, and the map's sums and largest weights. A program has whole cells, of about a block of keys."""
    queries, keys = arguments[-1]
    if not keys:
        return
    block, cells, wide = size(keys, KEYS["keys"]), (1, 1), 1
    programs = triton.cdiv(keys, block)
    if edges[0] is not None and edges[1] is not None:
        cells = len(edges[0]) - 1, len(edges[1]) - 1
        wide = max(block // triton.cdiv(keys, cells[1]), 1)
        programs = triton.cdiv(cells[1], wide)
    rows = size(-(-queries // cells[0]), KEYS["rows"])
    KERNELS.of_keys[programs, entries](
        *arguments, outputs.lse, outputs.received, *edges, outputs.map_mean, outputs.map_max, cells, wide, **kind, ROWS=rows,
        KEYS=block,
        CELLS=0 if edges[0] is None else triton.next_power_of_2(wide), num_warps=KEYS["warps"],
    )  # fmt: skip
