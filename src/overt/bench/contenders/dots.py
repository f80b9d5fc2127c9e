"""Contenders for dot-product attention: overt's native kernels, and torch's scaled_dot_product_attention."""

from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import overt
from overt.bench.cases import DOTS, Case, DotKind, Inputs
from overt.bench.compared import Wanted
from overt.bench.contenders.contender import GRADIENTS, Contender, Results, Run, Unable, differentiated
from overt.errors import OvertError

_MOST_PAIRS = 1 << 27  # of queries and keys, computed for the comparison
_BIASED = (*GRADIENTS[:3], "bias gradient")


def drawn(case: Case, dtype: torch.dtype) -> Inputs:
    """The inputs of a case: normal, the same at every call. The bias goes where additive attention has its weight."""
    kind, numbers = DOTS[case.work], torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers, dtype=dtype)

    *batch, heads = case.batch
    shared = (*batch, heads // kind.group, case.keys)
    query = normal(*case.batch, case.queries, case.features)
    key, value = normal(*shared, case.features), normal(*shared, kind.wide * case.features)
    bias = normal(heads, case.queries, case.keys) if kind.biased else torch.empty(0)
    return Inputs(query, key, value, bias, normal(*query.shape[:-1], value.shape[-1]) if kind.backward else None)


def contenders(work: str) -> list[Contender]:
    """overt, and torch's fused kernel, which falls back to its plain formula where it cannot."""
    kind = DOTS[work]
    return [
        Contender("overt native", lambda inputs: _ours(inputs, kind), ours=True),
        Contender("torch SDPA", lambda inputs: (_run(_torchs(kind), inputs, kind), "")),
    ]


def _ours(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        with overt.use_path("native"):
            mask = overt.Causal() if kind.causal else None
            return overt.attend(query, key, value, mask=mask, bias=bias, dropout=kind.dropout)

    try:
        with overt.use_path("native"):
            overt.plan(inputs.query, inputs.key, inputs.value)
    except OvertError as error:
        raise Unable(str(error)) from error
    return _run(attention, inputs, kind), ""


def _torchs(kind: DotKind) -> Any:
    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        asked = {"is_causal": kind.causal, "dropout_p": kind.dropout, "enable_gqa": kind.group > 1}
        return functional.scaled_dot_product_attention(query, key, value, bias, **asked)

    return attention


def _run(attention: Any, inputs: Inputs, kind: DotKind) -> Run:
    run = differentiated(attention, inputs.tensors, _BIASED) if kind.biased else differentiated(attention, inputs.tensors[:3])
    if not kind.dropout:
        return run
    # What dropout leaves is drawn anew by everybody: it is told apart by what is asked, and compared by nobody.
    return lambda upstream: {f"dropped {name}": found for name, found in run(upstream).items()}


def wanted(case: Case, inputs: Inputs) -> Wanted:
    """Output and gradients in float64, of evenly spread query rows: every one where they are not too many.

    Where some rows are left out, the upstream gradient is zero but for the others, so that every gradient comes from them alone.
    """
    kind = DOTS[case.work]
    if kind.dropout:
        told = "nothing: what dropout leaves is drawn at random; the cases without it compare the same kernels"
        return Wanted({}, inputs.upstream, told, lambda results: {})
    pairs = prod((*case.batch, case.queries, case.keys))
    count = max(1, min(case.queries, _MOST_PAIRS * case.queries // max(pairs, 1)))
    rows = torch.arange(count) * case.queries // count
    exact = Inputs(*(tensor.double() for tensor in inputs.tensors), upstream=None)
    exact = replace(exact, query=exact.query[..., rows, :], weight=exact.weight[..., rows, :] if kind.biased else exact.weight)
    upstream, upstream_rows = None, None
    if inputs.upstream is not None:
        upstream_rows = inputs.upstream[..., rows, :].double()
        upstream = torch.zeros_like(inputs.upstream)
        upstream[..., rows, :] = inputs.upstream[..., rows, :]

    def formula(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        key, value = (tensor.repeat_interleave(kind.group, -3) for tensor in (key, value))
        scores = query @ key.mT / case.features**0.5  # (..., rows, K)
        scores = scores if bias is None else scores + bias
        barred = torch.arange(case.keys) > rows[:, None]
        return (scores.masked_fill(barred, -torch.inf) if kind.causal else scores).softmax(-1) @ value

    def taken(results: Results) -> Results:
        by_query = ("output", "query gradient", "bias gradient")
        return {name: found[..., rows, :] if name in by_query else found for name, found in results.items()}

    told = "every number" if count == case.queries else f"what comes of {count} of {case.queries} query rows"
    return Wanted(_run(formula, exact, kind)(upstream_rows), upstream, told, taken)
