"""The comparison of a call's recomputed output with the model's own, and its rounding bound."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from overt.attention.kernels.blocked import Block, blocked
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import summary as flat_summary
from overt.attention.kernels.plan import permits
from overt.attention.mechanism import formula
from overt.attention.summary import gathered
from overt.lens.captured import CapturedCall, copied, fresh, head_count, parts_of_pieces, sliceable
from overt.lens.statistics.allowance import Allowance
from overt.lens.storage.tensor_cache import TensorCache


@dataclass(frozen=True)
class Comparison:
    """One call: the largest difference between both outputs and the rounding bound, or why they cannot be compared.

    Of its `queries`, `judged` were recomputed by the plain formula in float64, and give the bound; all others were compared with a
    kernel that the model does not use. If `judged` is None, all were recomputed by the plain formula in the model's own precision.
    """

    layer: str
    number: int
    difference: float
    bound: float
    note: str = ""
    judged: int | None = None
    queries: int | None = None


@dataclass(frozen=True)
class Coverage:
    """The counts of a model's token-mixing layers: `recorded`, `listed` in the recording's `missing`, and `all` layers.

    `layers=` excluded the others.
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
    """The comparisons of all calls; `difference` and `bound` are the largest of the calls that can be compared.

    `holds` is true if each call's difference is within its own bound. `coverage` counts the model's token-mixing layers in these
    calls; `note` is the reason why an empty recording is empty.
    """

    calls: tuple[Comparison, ...]
    coverage: Coverage | None = None
    note: str = ""

    @property
    def difference(self) -> float:
        """The largest difference between recomputed and the model's own attention output."""
        return max((call.difference for call in self.calls if not math.isnan(call.difference)), default=math.nan)

    @property
    def bound(self) -> float:
        """The largest rounding bound."""
        return max((call.bound for call in self.calls if not math.isnan(call.bound)), default=math.nan)

    @property
    def holds(self) -> bool:
        """Whether there are calls, and every call was compared and is within its rounding bound."""
        return bool(self.calls) and all(call.difference <= call.bound for call in self.calls)

    def __str__(self) -> str:
        lines = [self._headline if self.calls else self.note]
        if self.coverage is not None and self.coverage.all:
            lines.append(str(self.coverage))
        for call in self.calls:
            mark = "holds" if call.difference <= call.bound else "DIFFERS"
            numbers = f"{call.difference:.1e}  bound {call.bound:.1e}  {mark}" if _compared(call) else "not compared"
            lines.append(f"{call.number:5}  {call.layer}  {numbers}{call.note}")
        return "\n".join([*lines, *self._judged])

    @property
    def _judged(self) -> list[str]:
        """The number of queries of long calls recomputed in float64, unless all were."""
        sampled = [call for call in self.calls if call.judged is not None and call.judged != call.queries]
        if not sampled:
            return []
        judged, queries = (sum(getattr(item, name) for item in sampled) for name in ("judged", "queries"))
        return [
            f"{judged} of {queries} queries are recomputed in float64, evenly spaced ones and those that differ most; "
            "the others by a kernel that no model runs on"
        ]

    @property
    def _headline(self) -> str:
        if not any(map(_compared, self.calls)):
            return "recomputed vs. model: no call can be compared"
        return f"recomputed vs. model: {self.difference:.1e}, rounding bound {self.bound:.1e}"


def _compared(call: Comparison) -> bool:
    return not (math.isnan(call.difference) or math.isnan(call.bound))


@torch.no_grad()
def recompute(captured: CapturedCall) -> Comparison:
    """Recompute a call, never by the kernel that the model used.

    A long call is recomputed by the native kernel of summaries, which no model uses, and `judged`; a short call, or one that the
    kernel does not support, by the plain formula, a block of rows at a time.
    """
    call = captured.checked_call()
    if call.dropout > 0:
        return compared(captured, captured.output, captured.output)
    if call.queries > JUDGED_QUERIES and permits("native") and flat_summary.refusal(call) is None:
        output = gathered(call, top=1).output
        assert output is not None
        return judged(captured, output)
    return compared(captured, *_by_formula(captured, fresh(call)))


# JUDGED_QUERIES: the queries of a long call recomputed in float64: half with the largest differences of outputs, half evenly spaced.
JUDGED_QUERIES = 16


@torch.no_grad()
def judged(captured: CapturedCall, recomputed: Tensor) -> Comparison:
    """Compare a call's output with a kernel's recomputed output, and for some queries with the plain formula in float64.

    `recomputed` (..., Q, E) is overwritten. In a long call `JUDGED_QUERIES` queries are recomputed in float64: half with the largest
    differences in any head, half evenly spaced. Their rounding bound is the call's; the bound of all queries could only be larger.
    """
    return _judged(captured, recomputed, _difference(captured.output, recomputed))


def random_sums(call: Call) -> Tensor:
    """The weights of four random sums of the values' features, (E, 4), each between ½ and 1½ in size."""
    generator = torch.Generator().manual_seed(0)
    sizes = 0.5 + torch.rand(call.value.shape[-1], 4, generator=generator)
    signs = torch.randint(2, sizes.shape, generator=generator) * 2 - 1
    return (sizes * signs).to(call.query.device, call.dtype)


@torch.no_grad()
def judged_by_sums(captured: CapturedCall, sums: Tensor, weights: Tensor) -> Comparison:
    """Compare like `judged`, from a kernel's `sums` of the output's features, (..., Q, 4), with these weights (E, 4).

    A wrong output has wrong random sums (Freivalds 1979): one wrong number changes all four, and several cancel in all four with
    probability 0. So the sums show which queries differ most, for a tenth of the products; float64 measures by how much.
    """
    output = captured.output
    recomputed = torch.where(output.isnan(), 0, output)  # the model's output, except where only one of both is NaN
    recomputed = torch.where(sums.isnan().any(-1, keepdim=True), torch.nan, recomputed)
    return _judged(captured, recomputed, _difference(output.to(weights.dtype) @ weights, sums.to(weights.dtype)))


def _judged(captured: CapturedCall, recomputed: Tensor, difference: Tensor) -> Comparison:
    call = replace(captured.checked_call(), dropout=0.0)
    if captured.call.dropout > 0 or not recomputed.numel():
        return compared(captured, recomputed, recomputed)
    rows = queries_that_differ(difference)
    exact, allowed = _exact_rows(captured, call, rows)
    recomputed.index_copy_(-2, rows, exact.to(recomputed.dtype))
    return replace(compared(captured, recomputed, allowed), judged=len(rows), queries=call.queries)


def _exact_rows(captured: CapturedCall, call: Call, rows: Tensor) -> tuple[Tensor, ...]:
    """`_by_formula` of some rows in float64, a head at a time if heads can be separated, because one head's numbers fit the cache."""
    call, total = _call_rows(call, rows), head_count(call)
    apart, cache = total > 1 and sliceable(call), TensorCache()
    calls = [copied(call, call.query, (head,), total, cache)[0] for head in range(total)] if apart else [call]
    parts = [_by_formula(captured, _in_double(call)) for call in calls]
    return parts[0] if len(parts) == 1 else tuple(torch.cat(results, dim=-3) for results in zip(*parts, strict=True))


def _by_formula(captured: CapturedCall, call: Call) -> tuple[Tensor, ...]:
    """The output (..., Q, E) of this call, or of some of its rows, and its rounding bound."""
    allowance = Allowance(captured, call)

    def both(block: Block) -> tuple[Tensor, Tensor]:
        stages = formula(block)
        return stages[3], allowance.bound(block, *stages)

    return blocked(call, both)


def _in_double(call: Call) -> Call:
    """The call with its numbers in float64."""

    def double(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    names = ("query", "key", "value", "score", "bias", "normalizer")
    return replace(call, **{name: tree_map(double, getattr(call, name)) for name in names})


def queries_that_differ(difference: Tensor) -> Tensor:
    """The queries of a call (..., Q, E) with the largest differences, and evenly spaced ones, in order; all queries of a short call."""
    difference = difference.amax(-1).float()  # (..., Q)
    difference = difference.nan_to_num_(0.0, 0.0).reshape(-1, difference.shape[-1]).amax(0)
    if len(difference) <= JUDGED_QUERIES:
        return torch.arange(len(difference), device=difference.device)
    evenly = torch.linspace(0, len(difference) - 1, JUDGED_QUERIES // 2, device=difference.device).long()
    return torch.cat([evenly, difference.topk(JUDGED_QUERIES // 2).indices]).unique()


def _call_rows(call: Call, chosen: Tensor) -> Call:
    """The call of only these queries."""
    pieces = parts_of_pieces(call, lambda piece, rows, keys: piece.block(chosen[rows], keys))
    return replace(call, query=call.query[..., chosen, :], **pieces)


def compared(captured: CapturedCall, recomputed: Tensor, allowed: Tensor) -> Comparison:
    """The comparison of the model's own output with the recomputed one; `allowed` is the rounding bound, all (..., Q, E)."""
    dropout, notes = captured.call.dropout, "".join(f"; {note}" for note in captured.notes)
    if dropout > 0:
        note = f": dropout {dropout} was drawn at random, and draws are not recorded"
        return Comparison(captured.layer, captured.number, math.nan, math.nan, note + notes)
    difference = _difference(captured.output, recomputed)
    far, note = largest(difference), ""
    if math.isnan(far):
        only_model = captured.output.isnan() & ~recomputed.isnan()
        if bool(only_model.any()):
            note = f": the model's own output is NaN for {int(only_model.any(-1).sum())} queries, which may attend to nothing"
            far = largest(difference[~only_model])
    return Comparison(captured.layer, captured.number, far, largest(allowed[allowed.isfinite()]), note + notes)


def _difference(output: Tensor, recomputed: Tensor) -> Tensor:
    """The absolute difference in the output's dtype, in which the difference of two close numbers is exact."""
    return (recomputed.to(output.dtype) - output).abs_()


def largest(tensor: Tensor) -> float:
    """The largest number of a tensor; 0 for an empty tensor, NaN if any number is NaN."""
    return float(tensor.max()) if tensor.numel() else 0.0
