"""What a recording recomputes, beside what the model computed itself, and how much of the difference rounding explains."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from overt.kernels.call import unrounded
from overt.lens.captured import Kept, fresh
from overt.mechanism import in_blocks
from overt.scores import Dot


@dataclass(frozen=True)
class Comparison:
    """One call: the largest difference between both outputs, the rounding bound, or why they cannot be compared."""

    layer: str
    number: int
    difference: float
    bound: float
    note: str = ""


@dataclass(frozen=True)
class Verified:
    """All calls together; `difference` and `bound` are the largest of those that can be compared.

    `holds` says that each call's difference is within its own bound.
    """

    calls: tuple[Comparison, ...]

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
        """Whether every call was compared and is within its rounding bound."""
        return all(each.difference <= each.bound for each in self.calls)

    def __str__(self) -> str:
        lines = [f"recomputed vs. model: {self.difference:.1e}, rounding bound {self.bound:.1e}"]
        for each in self.calls:
            mark = "holds" if each.difference <= each.bound else "DIFFERS" if each.difference > each.bound else "not compared"
            lines.append(f"{each.number:5}  {each.layer}  {each.difference:.1e}  bound {each.bound:.1e}  {mark}{each.note}")
        return "\n".join(lines)


@torch.no_grad()
def recomputed(kept: Kept) -> Comparison:
    """Recompute a call by the plain formula, a block of rows at a time, never by the kernel that the model used."""
    call = kept.checked_call()
    if call.dropout > 0:
        return compared(kept, kept.output)
    with unrounded(call.query):
        return compared(kept, in_blocks(fresh(call)))


def compared(kept: Kept, again: Tensor) -> Comparison:
    """The model's own output beside what was recomputed."""
    dropout, notes = kept.call.dropout, "".join(f"; {note}" for note in kept.notes)
    if dropout > 0:
        note = f": dropout {dropout} was drawn at random, and draws are not kept"
        return Comparison(kept.layer, kept.number, math.nan, math.nan, note + notes)
    difference = (again.double() - kept.output.double()).abs()
    own_nan = kept.output.isnan() & ~again.isnan()
    note = ""
    if bool(own_nan.any()):
        note = f": the model's own output is NaN for {int(own_nan.any(-1).sum())} queries, which may attend to nothing"
        difference = difference[~own_nan]
    largest = float(difference.max()) if difference.numel() else 0.0
    return Comparison(kept.layer, kept.number, largest, bound(kept), note + notes)


def bound(kept: Kept) -> float:
    """How far apart two correct computations may end: ε of the dtype for weights and output, and ε of the scores' dtype
    grown by their size.

    A score is a sum of D products, so two roundings of it differ by about √D · ε · |q| |k| · scale (errors of random sign);
    a weight's relative error is twice that, a sum over K weights adds √K · ε, and the output scales with the largest value.
    """
    call = kept.call
    largest = _finite_max(call.value)
    scale = call.score.factor(call.query) if isinstance(call.score, Dot) else 1.0
    scale = float(scale.abs().max()) if isinstance(scale, Tensor) else abs(scale)
    reach = _finite_max(call.query.double().norm(dim=-1)) * _finite_max(call.key.double().norm(dim=-1)) * scale
    rounded = torch.finfo(kept.score_dtype).eps * (math.sqrt(call.query.shape[-1]) * reach + math.sqrt(call.keys))
    return 2 * largest * (torch.finfo(kept.output.dtype).eps + rounded)


def _finite_max(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0
