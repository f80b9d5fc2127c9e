"""Edits of linear token mixers: weights are signed and linear in the values, so the change of a row is added to the output."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from overt.errors import InputError
from overt.lens.analysis.editing.changes import BlockedArcs, HeadScaled, PartPatched, RowsSet
from overt.lens.analysis.editing.patching import new_values
from overt.lens.analysis.editing.placing import Spot, WordPositions
from overt.lens.analysis.editing.rows import Placed
from overt.lens.captured import Captured
from overt.lens.linear.recurrence import Recurrence
from overt.lens.tokens import Tokens


def spot(
    recurrence: Recurrence | None, output: Tensor, layer: str, pass_index: int, tokens: Tokens, words: WordPositions
) -> Spot:
    """The positions of a mixer's call: the last ones of all tokens read."""
    (batch, total, queries), keys = output.shape[:3], output.shape[2] if recurrence is None else recurrence.keys
    captured = Captured(0, 0, pass_index, layer, "", tuple(range(total)), total, batch, queries, keys, output.dtype, ())
    return Spot(captured, keys - queries, 0, keys - queries, tokens, words)


def changed(
    recurrence: Recurrence | None,
    output: Tensor,
    written: Tensor,
    heads: Sequence[int],
    entries: tuple[int, ...] | None,
    placed: Sequence[Placed],
    spot: Spot,
    kind: str,
) -> list[Placed]:
    """Change the output (B, H, Q, E) of a mixer, and the tensor that the layer uses, gate included. Returns the changes made."""
    result = []
    batch = torch.tensor(range(len(output)) if entries is None else entries, device=output.device)
    gate = None if written.data_ptr() == output.data_ptr() else (written / output).nan_to_num(0.0, 0.0, 0.0)
    for placement in placed:
        rows = torch.tensor(placement.rows, device=output.device)
        index = batch[:, None, None], torch.tensor(list(heads), device=output.device)[None, :, None], rows[None, None, :]
        if isinstance(placement.change, HeadScaled):
            for tensor in (output, written) if gate is not None else (output,):
                tensor[index] = 0 if placement.change.factor == 0 else tensor[index] * placement.change.factor
            result.append(placement)
            continue
        if isinstance(placement.change, PartPatched) and placement.change.part == "output":
            new = new_values(placement, spot, heads[0], entries, output.shape[-1])[:, None].to(output.dtype)
        else:
            _refuse(placement, spot.captured.layer, kind, recurrence)
            assert recurrence is not None
            new = output[index] + _difference(recurrence, heads, batch, placement, spot, entries).to(output.dtype)
        output[index] = new
        if gate is not None:
            written[index] = (new * gate[index]).to(written.dtype)
        result.append(placement)
    return result


def _difference(
    recurrence: Recurrence, heads: Sequence[int], batch: Tensor, placed: Placed, spot: Spot, entries: tuple[int, ...] | None
) -> Tensor:
    """The output of the changed rows of weights minus the model's own: (entries, heads, rows, E)."""
    part = recurrence.of_heads(heads)
    weights = part.weights(placed.rows)[batch]  # (entries, heads, rows, K)
    difference = torch.zeros_like(weights)
    if isinstance(placed.change, BlockedArcs):
        keys = list(placed.keys)
        difference[..., keys] = -weights[..., keys]
    else:
        rows: Any = placed.numbers
        if isinstance(placed.change, PartPatched):
            rows = new_values(placed, spot, heads[0], entries)
        difference = rows.to(weights) - weights
    return difference @ part.ready().value[batch]


def _refuse(placed: Placed, layer: str, kind: str, recurrence: Recurrence | None) -> None:
    """Raise InputError for a change that needs something that a linear mixer does not have."""
    change = placed.change
    possible = "a scale, a blocked arc, rows of weights or another output, for heads of a linear token mixer"
    if isinstance(change, RowsSet) and isinstance(change.pattern, str):
        got = f'"{change.pattern}" for {layer} ({kind}), whose weights are signed and do not sum to one'
        raise InputError(possible, got=got, fix="choose one of these")
    if not isinstance(change, BlockedArcs | RowsSet) and getattr(change, "part", "") != "weights":
        raise InputError(possible, got=f"{change}, in {layer} ({kind}), which has no softmax", fix="choose one of these")
    if recurrence is None:
        raise InputError(f"a mixer whose weights are known when its output is read, for {change}", got=f"{layer} ({kind})")
    if recurrence.start is not None and not isinstance(change, BlockedArcs):
        got = f"{layer} ({kind}), which begins with a state that was not seen being made"
        raise InputError(f"a mixer that starts with the text, for {change}", got=got, fix="run the whole text in one pass")
