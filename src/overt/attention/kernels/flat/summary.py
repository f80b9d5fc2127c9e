"""Summaries by the native or GPU kernel: statistics of the weights in two passes over the keys of each block of queries."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels import cpu
from overt.attention.kernels.call import Call
from overt.attention.kernels.flat import call as flat_call
from overt.attention.kernels.flat import mask_program
from overt.attention.kernels.flat import normalizer as flat_normalizer
from overt.attention.kernels.flat.operator import INTERPRETED, MASK_SCHEMA, empty, register
from overt.attention.kernels.flat.products import as_dot_product, fits, unsupported_dot
from overt.attention.scores import AdditiveForm, KernelForm


class KeySet(NamedTuple):
    """A set of keys for each query: low_i <= j < high_i and, with ids, key j has the query's id.

    All int64: low and high (..., Q), ids of queries (..., Q) and of keys (..., K). Ids are from 0 to 2³¹ − 1; other ids never match.
    """

    low: Tensor
    high: Tensor
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None


class SummaryInputs(NamedTuple):
    """The inputs of a summary. Scores are additive with a weight, else softcap · tanh(scale · (q · k) / softcap)."""

    query: Tensor
    key: Tensor
    value: Tensor
    weight: Tensor | None  # (..., D)
    activation: str
    scale: Tensor | None  # (...), float64
    softcap: float  # 0: none
    batch: list[int]  # the call's leading dimensions
    program: list[int]
    arrays: list[Tensor]
    bias: Tensor | None  # (..., Q or 1, K or 1), or (..., Q + K - 1) by distance j - i + Q - 1
    by_distance: bool
    sink: Tensor | None  # (...), a logit
    inverse_temperature: Tensor | None  # (...), float64: the factor of score + bias
    normalizer: int  # see `NormalizerForm`
    alpha: float
    alphas: Tensor | None
    top: int
    row_edges: Tensor | None
    key_edges: Tensor | None
    have_ids: list[bool]  # whether each set of keys has ids,
    sets: list[Tensor]  # and its two or four arrays, as in `KeySet`
    bias_of_queries: Tensor | None  # (..., Q), float64
    bias_of_keys: Tensor | None  # (..., K), float64


class SummaryOutputs(NamedTuple):
    """The statistics, in float32 or float64, as `overt.Summary` defines them. Maps are empty without edges.

    lse is empty unless it is a softmax. `support` is −1 in rows whose weights are NaN or infinite; their statistics are undefined.
    """

    lse: Tensor
    entropy: Tensor
    received: Tensor
    top_weights: Tensor
    top_keys: Tensor
    map_mean: Tensor
    map_max: Tensor
    output: Tensor
    masses: Tensor  # (..., Q, sets), sums of absolute weights
    support: Tensor  # (..., Q), int32; empty under a softmax


def refusal(call: Call) -> str | None:
    """Why the native kernel cannot summarise this call; None if it can."""
    form = call.form
    if flat_normalizer.is_custom(call.normalizer):
        return "the normalizer is one's own"
    return _unsupported(call, form) or flat_call.unsupported_normalizer(call) or flat_call.unsupported_cpu(call, form)


def gpu_refusal(call: Call) -> str | None:
    """Why the GPU kernels cannot summarise this call; None if they can."""
    form = call.form
    return flat_call.unsupported_gpu(call, form) or _unsupported(call, form) or flat_call.unsupported_softmax(call)


def _unsupported(call: Call, form: KernelForm | None) -> str | None:
    """Why no kernel can summarise this call, on any device."""
    if call.dropout > 0 or call.transformed:
        return "a summary is of weights before dropout, outside of torch.func's transforms"
    if not isinstance(form, AdditiveForm):
        return unsupported_dot(call, form)
    return None if fits(form.weight.shape[:-1], call.batch) else "the score's weight has other dimensions"


def summarized(call: Call, top: int, edges: tuple[Tensor, Tensor] | None, sets: Sequence[KeySet] = ()) -> SummaryOutputs:
    """The statistics of a call, the weight on each set of keys and, with edges, the map of cells."""
    return SummaryOutputs(*torch.ops.overt.summary(*summary_inputs(call, top, edges, sets)))


def summary_inputs(call: Call, top: int, edges: tuple[Tensor, Tensor] | None, sets: Sequence[KeySet] = ()) -> SummaryInputs:
    """The operator's inputs for a call."""
    form = call.form
    if isinstance(form, AdditiveForm):
        score = call.query, call.key, call.value, form.weight.to(call.dtype), form.activation, None, 0.0
    else:
        query, key, value, scale, softcap = as_dot_product(call, form)
        score = query, key, value, None, "tanh", torch.full((), scale, dtype=torch.float64, device=query.device), softcap
    return SummaryInputs(
        *score,
        *flat_call.mask_and_softmax(call),
        *flat_normalizer.as_form(call.normalizer),
        min(top, call.keys),
        *(edges or (None, None)),
        [group.key_ids is not None for group in sets],
        [array for group in sets for array in group if array is not None],
        *flat_call.line_biases(call),
    )


def _summary(*inputs: Any) -> tuple[Tensor, ...]:
    arguments, outputs = SummaryInputs(*inputs), empty_outputs(SummaryInputs(*inputs))
    if not arguments.normalizer and (arguments.query.is_cuda or INTERPRETED):
        from overt.attention.kernels.triton import run_summary  # imports triton only if it is needed

        run_summary.summary(arguments.query, outputs, arguments)
        return tuple(outputs._replace(masses=_masses_by_masks(arguments, outputs)))
    cpu.summary(arguments, outputs)
    return tuple(outputs)


def _masses_by_masks(inputs: SummaryInputs, outputs: SummaryOutputs) -> Tensor:
    """The weight on each set of keys: exp(lse of the set − lse), by one summary per set, whose mask allows only that set."""
    masses, arrays = [], iter(inputs.sets)
    for have_ids in inputs.have_ids:
        leaves = [*inputs.program, mask_program.RANGES, *([mask_program.BOTH] if inputs.program else [])]
        leaves += [mask_program.DOCUMENTS, mask_program.BOTH] if have_ids else []
        set_arrays = [edge.expand(*edge.shape[:-1], inputs.query.shape[-2]) for edge in islice(arrays, 2)] + list(
            islice(arrays, 2 if have_ids else 0)
        )
        alone = inputs._replace(
            program=leaves, arrays=[*inputs.arrays, *set_arrays], value=inputs.value[..., :0], sink=None, top=0,
            row_edges=None, key_edges=None, have_ids=[], sets=[],
        )  # fmt: skip
        lse = SummaryOutputs(*_summary(*alone)).lse
        masses.append(torch.where(lse == -torch.inf, 0, torch.exp(lse - outputs.lse)))
    return torch.stack(masses, dim=-1) if masses else outputs.masses


def empty_outputs(inputs: SummaryInputs) -> SummaryOutputs:
    """Empty tensors for the statistics."""
    query, batch = inputs.query, inputs.batch
    rows, cells = (*batch, query.shape[-2]), (0,)
    if inputs.row_edges is not None and inputs.key_edges is not None:
        cells = (*batch, inputs.row_edges.shape[0] - 1, inputs.key_edges.shape[0] - 1)
    return SummaryOutputs(
        empty(query, *((0,) if inputs.normalizer else rows)),
        empty(query, *rows),
        empty(query, *batch, inputs.key.shape[-2]),
        empty(query, *rows, inputs.top),
        query.new_empty((*rows, inputs.top), dtype=torch.int32),
        empty(query, *cells),
        empty(query, *cells),
        empty(query, *rows, inputs.value.shape[-1]),
        empty(query, *rows, len(inputs.have_ids)),
        query.new_empty(rows if inputs.normalizer else (0,), dtype=torch.int32),
    )


register(
    "summary",
    "(Tensor query, Tensor key, Tensor value, Tensor? weight, str activation, Tensor? scale, float softcap, "
    f"{MASK_SCHEMA}, {flat_normalizer.SCHEMA}, SymInt top, Tensor? row_edges, Tensor? key_edges, bool[] have_ids, Tensor[] sets, "
    "Tensor? bias_of_queries, Tensor? bias_of_keys)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _summary,
    lambda *inputs: tuple(empty_outputs(SummaryInputs(*inputs))),
)
