"""The term that each head of a call adds by each source token, from the recorded weights and values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from overt.attention.kernels.blocked import query_block, query_rows
from overt.attention.kernels.call import unrounded
from overt.attention.mechanism import formula
from overt.lens.analysis.by_block import BLOCK, WeightsByBlock
from overt.lens.analysis.contributions.traced import Point
from overt.lens.captured import CapturedCall, by_head
from overt.lens.head import runs
from overt.lens.linear.captured import CapturedMixer
from overt.lens.linear.rounding import rounding_bound
from overt.lens.statistics.verified import Allowance

Rows = tuple[slice | list[int], Tensor, Tensor, Tensor]  # weights (H, R, K), value (H, K, E), rounding of the output (H, R, E)


@dataclass(frozen=True, eq=False)
class Split:
    """A call of one text: the terms (K,) of each head by source token, and the bound on their rounding."""

    captured: CapturedCall | CapturedMixer
    point: Point
    by_head: dict[int, Tensor]
    bound: float


@torch.no_grad()
def split(captured: CapturedCall | CapturedMixer, point: Point) -> Split:
    """Split the terms that a call adds to the target by heads and source tokens: Σ_rows w_ij (v_j · g_i), in float64."""
    assert point.gradient is not None
    gradient = point.gradient[0].double()  # (H, Q, E)
    rows = (gradient != 0).any(-1).any(0).nonzero().flatten().tolist()
    total = torch.zeros(gradient.shape[0], captured.keys, dtype=torch.float64, device=gradient.device)
    square = 0.0
    mixed = _mixer_rows(captured, rows) if isinstance(captured, CapturedMixer) else _attention_rows(captured, rows)
    for some, weights, value, allowed in mixed:
        direction = gradient[:, some]  # (H, R, E)
        total += (weights * (direction @ value.mT)).sum(1)
        square += float((allowed * direction).square().sum())
    return Split(captured, point, dict(zip(captured.heads, total.cpu(), strict=True)), square**0.5)


def _attention_rows(captured: CapturedCall, rows: list[int]) -> Iterator[Rows]:
    """Iterate over runs of neighbouring rows: the weights, values and rounding of a call of attention."""
    by_block = WeightsByBlock(captured)
    call = by_block.call
    allowance = Allowance(captured, call)
    value = by_head(call, _repeated(call))[0]
    for first, stop in runs(rows, max(1, BLOCK // max(1, value.shape[0] * captured.keys))):
        with unrounded(call.query):
            block = query_block(call, query_rows(call, first, stop), every_key=True, careful=by_block.careful)
            stages = formula(block)
        weights, allowed = (by_head(call, part)[0].double() for part in (stages[2], allowance.bound(block, *stages)))
        yield slice(first, stop), weights, value, allowed


def _repeated(call: Any) -> Tensor:
    """The values of every head (…, H, K, E); heads may share them."""
    value = call.value.double()
    if value.ndim >= 3 and value.shape[-3] not in (1, call.batch[-1]):
        value = value.repeat_interleave(call.batch[-1] // value.shape[-3], dim=-3)
    return value


def _mixer_rows(captured: CapturedMixer, rows: list[int]) -> Iterator[Rows]:
    """The signed weights, values and rounding of a linear token mixer."""
    if not rows:
        return
    recurrence = captured.recurrence.double().ready()
    weights = recurrence.weights(rows)  # (1, H, rows, K)
    output = weights @ recurrence.value  # (1, H, rows, E)
    index = torch.tensor(rows, device=output.device)
    allowed = rounding_bound(captured.recurrence, index, output, captured.score_dtype)
    allowed = allowed + torch.finfo(captured.output.dtype).eps * output.abs()
    yield rows, weights[0], recurrence.value[0], allowed[0]
