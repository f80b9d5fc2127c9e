"""Rows of an edited head, recomputed from the call's own query, key and value; the model's other rows do not change."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention import mechanism
from overt.attention.kernels.blocked import BLOCK, Block, query_block, query_rows, widened
from overt.attention.kernels.call import Call, unrounded
from overt.attention.masks.base import Dense, as_mask
from overt.attention.normalizers import Softmax
from overt.errors import InputError
from overt.lens.analysis.editing.changes import BlockedArcs, HeadChange, RowsSet, TemperatureSet
from overt.lens.capture.written_out.weighted import ExpOfLogWeights
from overt.lens.captured import MASKED_GAP, parts_of_pieces, select_entries
from overt.lens.head import runs

# _FEW: most rows that the plain formula computes if the changes are only masks and temperatures; more rows go to the kernels.
_FEW = 64


@dataclass(frozen=True, eq=False)
class Placed:
    """A change at the positions of one call: rows and keys counted in the call, and the new numbers if they are a tensor."""

    change: HeadChange
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    numbers: Tensor | None = None  # rows of weights (…, rows, K), or vectors of patched positions (…, positions, features)


def call_of_entries(call: Call, entries: tuple[int, ...] | None) -> Call:
    """The call restricted to some entries of the batch, its first dimension."""
    if entries is None or entries == tuple(range(call.batch[0])):
        return call
    after = call.query.ndim - 1  # dimensions after the batch
    tensors = {name: select_entries(getattr(call, name), entries, after) for name in ("query", "key", "value")}
    pieces = parts_of_pieces(call, lambda piece, rows, keys: select_entries(piece.block(rows, keys), entries, after))
    return replace(call, batch=(len(entries), *call.batch[1:]), **tensors, **pieces)


def renormalizable(call: Call) -> Call:
    """The call with a normalizer that can be applied again, for recorded weights, whose scores are their logarithms.

    Rows that sum to 1 are divided by their sum again; others (a sigmoid's) are not.
    """
    if not isinstance(call.normalizer, ExpOfLogWeights):
        return call
    assert call.bias is not None
    device = call.query.device
    rows = torch.arange(min(call.queries, _FEW), device=device)
    sums = call.bias.block(rows, torch.arange(call.keys, device=device)).exp().sum(-1)
    whole = bool(((sums - 1).abs() < 1e-3).all() if sums.numel() else True)
    return replace(call, normalizer=Softmax()) if whole else call


def recomputed(call: Call, placed: Sequence[Placed], layer: str, self_key: int | None) -> Iterator[tuple[int, int, Tensor]]:
    """The outputs (..., rows, E) of changed rows, in blocks: the first row, the one after the last, and the outputs.

    `self_key` is the key of the first query's own position; None for attention between two sequences.
    """
    rows = sorted({row for placement in placed for row in placement.rows})
    masks_only = all(isinstance(placement.change, BlockedArcs | TemperatureSet) for placement in placed)
    if masks_only and len(rows) > _FEW and not isinstance(call.normalizer, ExpOfLogWeights) and _by_kernel(placed, rows):
        output = mechanism.compute(_masked(call, placed))
        yield from ((first, stop, output[..., first:stop, :]) for first, stop in runs(rows, call.queries))
        return
    size = max(1, BLOCK // max(1, math.prod(call.batch) * call.keys))
    with unrounded(call.query):
        ready = widened(call)
        careful = call.mask is not None and not (call.inspectable and call.finite)
        for first, stop in runs(rows, size):
            block = query_block(ready, query_rows(ready, first, stop), every_key=True, careful=careful)
            yield first, stop, _output(block, range(first, stop), placed, layer, self_key)


def _by_kernel(placed: Sequence[Placed], rows: list[int]) -> bool:
    """Whether every temperature applies to all of these rows, so that the kernels can compute the changes."""
    return all(len(placement.rows) == len(rows) for placement in placed if isinstance(placement.change, TemperatureSet))


def _masked(call: Call, placed: Sequence[Placed]) -> Call:
    """The call with the blocked arcs in its mask, as a row times a column each, and with the temperature in its normalizer."""
    mask, temperature, device = call.mask, 1.0, call.query.device
    for placement in placed:
        if isinstance(placement.change, TemperatureSet):
            temperature *= placement.change.temperature
            continue
        barred = as_mask(
            Dense(_marked(placement.rows, call.queries, device)[:, None]) & Dense(_marked(placement.keys, call.keys, device))
        )
        mask = ~barred if mask is None else mask & ~barred
    normalizer = call.normalizer
    if temperature != 1:
        normalizer = (
            replace(normalizer, temperature=normalizer.temperature * temperature)
            if isinstance(normalizer, Softmax)
            else _tempered(normalizer, temperature)
        )
    return replace(call, mask=mask, normalizer=normalizer, dropout=0.0)


def _marked(positions: Sequence[int], length: int, device: torch.device) -> Tensor:
    marked = torch.zeros(length, dtype=torch.bool, device=device)
    marked[list(positions)] = True
    return marked


def _output(block: Block, rows: range, placed: Sequence[Placed], layer: str, self_key: int | None) -> Tensor:
    """The output (..., rows, E) of a block of rows with the changes."""
    block = block._replace(dropout=0.0)
    for placement in placed:
        if isinstance(placement.change, BlockedArcs):
            keys = _marked(placement.keys, block.key.shape[-2], block.key.device)
            allowed = ~(_chosen(rows, placement, block.query.device) & keys)
            block = block._replace(allowed=allowed if block.allowed is None else block.allowed & allowed)
        elif isinstance(placement.change, TemperatureSet):
            chosen = _chosen(rows, placement, block.query.device)
            by = torch.where(chosen, placement.change.temperature, 1.0).to(block.value.dtype)
            block = block._replace(normalizer=_tempered(block.normalizer, by))
    _, masked, weights, output = mechanism.formula(block)
    changed = [placement for placement in placed if isinstance(placement.change, RowsSet)]
    for change in changed:
        weights = _with_rows(weights, masked, rows, change, layer, self_key)
    changed += [placement for placement in placed if getattr(placement.change, "part", "") == "weights"]
    for change in changed:
        if change.numbers is not None:
            index = [change.rows.index(row) for row in rows if row in change.rows]
            here = [row - rows.start for row in rows if row in change.rows]
            weights = weights.clone()
            weights[..., here, :] = change.numbers[..., index, :].to(weights)
    return weights @ block.value if changed else output


def _chosen(rows: range, placed: Placed, device: torch.device) -> Tensor:
    """Whether each row is changed: (rows, 1)."""
    wanted = set(placed.rows)
    return torch.tensor([row in wanted for row in rows], device=device)[:, None]


def _tempered(normalizer: Any, temperature: Any) -> Any:
    """The normalizer of scores divided by a temperature, which is a number or one for each row (rows, 1)."""

    def tempered(scores: Tensor, allowed: Tensor) -> Tensor:
        return normalizer(torch.where(allowed, scores / temperature, scores), allowed)

    return tempered


def _with_rows(weights: Tensor, masked: Tensor, rows: range, placed: Placed, layer: str, self_key: int | None) -> Tensor:
    """The weights with the rows of a named pattern, among the keys that each row may attend to."""
    pattern = placed.change.pattern  # type: ignore[attr-defined]
    if not isinstance(pattern, str):
        return weights
    allowed = (masked > masked.amax(-1, keepdim=True) - MASKED_GAP).expand(weights.shape)
    if pattern == "uniform":
        chosen = allowed / allowed.sum(-1, keepdim=True).clamp(min=1).to(weights.dtype)
    else:
        first = pattern == "first"
        column = allowed.int().argmax(-1, keepdim=True) if first else _previous(allowed, rows, layer, self_key)
        chosen = torch.zeros_like(weights).scatter(-1, column, 1.0) * allowed.any(-1, keepdim=True)
    return torch.where(_chosen(rows, placed, weights.device), chosen, weights)


def _previous(allowed: Tensor, rows: range, layer: str, self_key: int | None) -> Tensor:
    """The key before each query's own position, or its own key if the one before is masked: (..., rows, 1)."""
    if self_key is None:
        raise InputError(
            'pattern "previous" in attention of a sequence to itself',
            got=f"{layer}, whose queries and keys are positions of two sequences",
            fix='write "uniform" or "first", or pass weights',
        )
    here = torch.tensor([row + self_key for row in rows], device=allowed.device).clamp(min=0, max=allowed.shape[-1] - 1)
    before = (here - 1).clamp(min=0).expand(*allowed.shape[:-2], -1)[..., None]
    return torch.where(allowed.gather(-1, before), before, here.expand(*allowed.shape[:-2], -1)[..., None])
