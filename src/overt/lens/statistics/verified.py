"""What a recording recomputes, beside what the model computed itself, and how much of the difference rounding explains."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from overt.attention.biases import Bias
from overt.attention.kernels.blocked import blocked
from overt.attention.kernels.call import Block, Call
from overt.attention.masks import Mask
from overt.attention.mechanism import formula
from overt.attention.normalizers import Softmax
from overt.attention.scores import Dot
from overt.lens.captured import CapturedCall, fresh


@dataclass(frozen=True)
class Comparison:
    """One call: the largest difference between both outputs, the rounding bound, or why they cannot be compared.

    The bound is that of all queries, or of those that `bounds` looks at in a long call that is summarised.
    """

    layer: str
    number: int
    difference: float
    bound: float
    note: str = ""


@dataclass(frozen=True)
class Coverage:
    """How many of the layers that mix tokens a recording holds: those `recorded`, those `listed` in its `missing`, and `all` of them.

    Layers that are neither were left out by `layers=`.
    """

    recorded: int
    listed: int
    all: int

    def __str__(self) -> str:
        if self.recorded == self.all:
            return f"covers all token-mixing layers that ran: {self.all}"
        left = self.all - self.recorded - self.listed
        others = [f"{self.listed} {'is' if self.listed == 1 else 'are'} listed in missing"] if self.listed else []
        others += [f"{left} {'was' if left == 1 else 'were'} left out by layers="] if left else []
        return f"covers {self.recorded} of {self.all} token-mixing layers; {' and '.join(others)}"


@dataclass(frozen=True)
class Verified:
    """All calls together; `difference` and `bound` are the largest of those that can be compared.

    `holds` says that each call's difference is within its own bound. `coverage` says how many of the model's token-mixing layers
    these calls are; `note` why there is none, where nothing was recorded.
    """

    calls: tuple[Comparison, ...]
    coverage: Coverage | None = None
    note: str = ""

    @property
    def difference(self) -> float:
        """The largest difference between recomputed and the model's own attention output."""
        return max((each.difference for each in self.calls if not math.isnan(each.difference)), default=math.nan)

    @property
    def bound(self) -> float:
        """The largest rounding bound."""
        return max((each.bound for each in self.calls if not math.isnan(each.bound)), default=math.nan)

    @property
    def holds(self) -> bool:
        """Whether there are calls, and every one was compared and is within its rounding bound."""
        return bool(self.calls) and all(each.difference <= each.bound for each in self.calls)

    def __str__(self) -> str:
        lines = [self._headline if self.calls else self.note]
        if self.coverage is not None and self.coverage.all:
            lines.append(str(self.coverage))
        for each in self.calls:
            mark = "holds" if each.difference <= each.bound else "DIFFERS"
            numbers = f"{each.difference:.1e}  bound {each.bound:.1e}  {mark}" if _compared(each) else "not compared"
            lines.append(f"{each.number:5}  {each.layer}  {numbers}{each.note}")
        return "\n".join(lines)

    @property
    def _headline(self) -> str:
        if not any(map(_compared, self.calls)):
            return "recomputed vs. model: no call can be compared"
        return f"recomputed vs. model: {self.difference:.1e}, rounding bound {self.bound:.1e}"


def _compared(call: Comparison) -> bool:
    return not (math.isnan(call.difference) or math.isnan(call.bound))


@torch.no_grad()
def recomputed(kept: CapturedCall) -> Comparison:
    """Recompute a call by the plain formula, a block of rows at a time, never by the kernel that the model used."""
    call = kept.checked_call()
    if call.dropout > 0:
        return compared(kept, kept.output, kept.output)
    allowance = Allowance(kept)

    def both(block: Block) -> tuple[Tensor, Tensor]:
        stages = formula(block)
        return stages[3], allowance.of(block, *stages)

    return compared(kept, *blocked(fresh(call), both))


# Queries of which the bound is taken where a call is too long for all: half of them where the outputs differ most, half evenly.
LOOKED_AT = 16


@torch.no_grad()
def bounds(kept: CapturedCall, again: Tensor) -> Tensor:
    """How far rounding may take the outputs apart: of every query (..., Q, E), or of the `LOOKED_AT` that say most.

    The largest difference is among theirs, so that it is held against a bound of its own neighbourhood; others could only be larger.
    """
    call, allowance = replace(kept.checked_call(), dropout=0.0), Allowance(kept)
    if not again.numel():
        return again
    if call.queries > LOOKED_AT:
        call = _of_rows(call, _telling(kept.output, again))
    return blocked(call, lambda block: (allowance.of(block, *formula(block)),))[0]


def _telling(output: Tensor, again: Tensor) -> Tensor:
    """The queries whose outputs differ most, and some from first to last, in order."""
    apart = _apart(output, again).amax(-1).float()  # (..., Q)
    apart = apart.nan_to_num_(0.0, 0.0).reshape(-1, apart.shape[-1]).amax(0)
    evenly = torch.linspace(0, len(apart) - 1, LOOKED_AT // 2, device=apart.device).long()
    return torch.cat([evenly, apart.topk(LOOKED_AT // 2).indices]).unique()


def _of_rows(call: Call, rows: Tensor) -> Call:
    """The call of these queries alone."""
    mask = None if call.mask is None else _RowsOfMask(call.mask, rows)
    bias = _RowsOfBias(call.bias, rows) if isinstance(call.bias, Bias) else call.bias
    if isinstance(bias, Tensor) and bias.ndim > 1 and bias.shape[-2] > 1:
        bias = bias[..., rows, :]
    return replace(call, query=call.query[..., rows, :], mask=mask, bias=bias)


class _RowsOfMask(Mask):
    def __init__(self, inner: Any, places: Tensor):
        self.inner, self.places = inner, places

    def block(self, rows, keys):
        return self.inner.block(self.places[rows], keys)


class _RowsOfBias(Bias):
    def __init__(self, inner: Bias, places: Tensor):
        self.inner, self.places = inner, places

    def block(self, rows, keys):
        return self.inner.block(self.places[rows], keys)


def compared(kept: CapturedCall, again: Tensor, allowed: Tensor) -> Comparison:
    """The model's own output beside what was recomputed, and how far rounding may take them apart, all (..., Q, E)."""
    dropout, notes = kept.call.dropout, "".join(f"; {note}" for note in kept.notes)
    if dropout > 0:
        note = f": dropout {dropout} was drawn at random, and draws are not kept"
        return Comparison(kept.layer, kept.number, math.nan, math.nan, note + notes)
    difference = _apart(kept.output, again)
    largest, note = _largest(difference), ""
    if math.isnan(largest):
        own_nan = kept.output.isnan() & ~again.isnan()
        if bool(own_nan.any()):
            note = f": the model's own output is NaN for {int(own_nan.any(-1).sum())} queries, which may attend to nothing"
            largest = _largest(difference[~own_nan])
    return Comparison(kept.layer, kept.number, largest, _largest(allowed[allowed.isfinite()]), note + notes)


def _apart(output: Tensor, again: Tensor) -> Tensor:
    """How far both are apart; numbers this close to each other have a difference that is exact in their own dtype."""
    return (again.to(output.dtype) - output).abs_()


class Allowance:
    """How far apart two correct computations of a call may end, for each number of the output.

    A score is a sum of D products, and may be off by ε₃₂ √D |q| |k| · scale; it is rounded to the scores' own dtype, by up to half
    of its ε, before and after what is added to it: together δ_ij. Through a softmax that moves the output by Σ_j w_ij δ_ij (v_j − o_i).
    The weights are rounded to the output's dtype, by up to half of its ε, which moves it by Σ_j w_ij ε/2 · v_j. Errors have random
    signs, so their squares add up, and four times the root is beyond what they come to. To this come the sum over K weights,
    √K · ε₃₂, and the output's own rounding.
    """

    def __init__(self, kept: CapturedCall):
        call = kept.call
        self.single, self.half = torch.finfo(call.dtype).eps, torch.finfo(kept.score_dtype).eps / 2
        self.last = torch.finfo(kept.output.dtype).eps
        self.softmax = isinstance(call.normalizer, Softmax)
        scale = call.score.factor(call.query) if isinstance(call.score, Dot) else 1.0
        self.scale = float(scale.abs().max()) if isinstance(scale, Tensor) else abs(scale)

    def of(self, block: Block, scores: Tensor, masked: Tensor, weights: Tensor, output: Tensor) -> Tensor:
        """What rounding may do to the output of a block of rows: (..., rows, E)."""
        products = block.query.norm(dim=-1)[..., :, None] * block.key.norm(dim=-1)[..., None, :]  # (..., rows, K)
        sizes = torch.where(weights == 0, 0, scores.abs() + masked.abs())
        off = math.sqrt(block.query.shape[-1]) * self.single * self.scale * products + self.half * sizes
        by_score, by_weight = (weights * off).square(), (weights * self.last / 2).square()
        moved = (by_score + by_weight) @ block.value.square()  # (..., rows, E)
        if self.softmax:
            total = by_score.sum(-1, keepdim=True)
            moved = (moved - 2 * output * (by_score @ block.value) + output.square() * total).clamp(min=0)
        summed = math.sqrt(block.key.shape[-2]) * self.single * (weights.abs() @ block.value.abs())
        return 4 * moved.sqrt() + summed + self.last * output.abs()


def _largest(tensor: Tensor) -> float:
    return float(tensor.max()) if tensor.numel() else 0.0
