"""Contenders for dot-product attention: overt's native kernels, and torch's scaled_dot_product_attention."""

from dataclasses import replace
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

import overt
from overt.bench.cases import DOTS, Case, DotKind, Inputs, document_lengths, padded_lengths, scattered_pairs
from overt.bench.contenders.contender import GRADIENTS, Attention, Contender, Results, Run, differentiated, require_path
from overt.bench.reference import Reference, reference_on_rows

_MAX_PAIRS = 1 << 27  # pairs of queries and keys that are computed for the comparison
_BIASED = (*GRADIENTS[:3], "bias gradient")


def random_inputs(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> Inputs:
    """Normally distributed inputs of a case, the same at every call. A bias takes the position of additive attention's weight."""
    kind, generator = DOTS[case.work], torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).to(device)

    *batch, heads = case.batch
    shared = (*batch, heads // kind.group, case.keys)
    query = normal(*case.batch, case.queries, case.features)
    key, value = normal(*shared, case.features), normal(*shared, kind.value_ratio * case.features)
    bias = normal(heads, case.queries, case.keys) if kind.biased else torch.empty(0)
    return Inputs(query, key, value, bias, normal(*query.shape[:-1], value.shape[-1]) if kind.backward else None)


def contenders(work: str) -> list[Contender]:
    """overt, and torch's fused kernel, which falls back to the plain formula for unsupported calls.

    torch runs packed documents one after another, since with a mask of all pairs they would cost as much as one long sequence.
    """
    kind = DOTS[work]
    return [
        Contender("overt native", lambda inputs: _overt(inputs, kind), ours=True),
        Contender("torch SDPA", lambda inputs: _torch(inputs, kind)),
    ]


def _overt(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    mask = overt.Causal() if kind.causal else tensor_mask(inputs, kind)
    if kind.documents:
        mask = overt.Documents(document_ids(kind, inputs.key.shape[-2]))

    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        with overt.use_path("native"):
            return overt.attend(query, key, value, mask=mask, bias=bias, dropout=kind.dropout)

    require_path("native", inputs)
    return _run(attention, inputs, kind), ""


def _torch(inputs: Inputs, kind: DotKind) -> tuple[Run, str]:
    mask = tensor_mask(inputs, kind)
    options = {"is_causal": kind.causal, "dropout_p": kind.dropout, "enable_gqa": kind.group > 1}
    lengths = document_lengths(kind.documents, inputs.key.shape[-2]) if kind.documents else []

    def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, mask if bias is None else bias, **options)

    def one_document_at_a_time(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        documents = zip(*(tensor.split(lengths, -2) for tensor in (query, key, value)), strict=True)
        return torch.cat([functional.scaled_dot_product_attention(*document) for document in documents], -2)

    if lengths:
        return _run(one_document_at_a_time, inputs, kind), "one document at a time"
    return _run(attention, inputs, kind), ""


def document_ids(kind: DotKind, keys: int) -> Tensor:
    """The number of each token's document, (K,)."""
    return torch.arange(kind.documents).repeat_interleave(torch.tensor(document_lengths(kind.documents, keys)))


def tensor_mask(inputs: Inputs, kind: DotKind) -> Tensor | None:
    """The mask as a bool tensor, in cases that have one."""
    if not kind.tensor:
        return None
    rows, keys = inputs.query.shape[-2], torch.arange(inputs.key.shape[-2])
    if kind.tensor == "causal":
        return keys <= torch.arange(rows)[:, None]  # (Q, K)
    if kind.tensor == "scattered":
        return scattered_pairs(rows, len(keys))
    return keys < torch.tensor(padded_lengths(len(inputs.query), len(keys)))[:, None, None, None]  # (B, 1, 1, K)


def _masked(case: Case, kind: DotKind, rows: Tensor) -> Tensor:
    """The pairs that are masked for these rows, broadcastable to (B, H, rows, K)."""
    keys = torch.arange(case.keys)
    if kind.documents:
        ids = document_ids(kind, case.keys)
        return ids[rows, None] != ids
    if kind.tensor == "padding":
        return keys >= torch.tensor(padded_lengths(case.batch[0], case.keys))[:, None, None, None]
    if kind.tensor == "scattered":
        return ~scattered_pairs(case.queries, case.keys)[rows]
    return (keys > rows[:, None]) & bool(kind.causal or kind.tensor)


def _run(attention: Attention, inputs: Inputs, kind: DotKind) -> Run:
    run = differentiated(attention, inputs.tensors, _BIASED) if kind.biased else differentiated(attention, inputs.tensors[:3])
    if not kind.dropout:
        return run
    # Each contender draws its own dropout; the names mark these results as not comparable.
    return lambda upstream: {f"dropped {name}": numbers for name, numbers in run(upstream).items()}


def reference(case: Case, inputs: Inputs) -> Reference:
    """Output and gradients in float64, for evenly spaced query rows: all rows if they are few enough."""
    kind = DOTS[case.work]
    if kind.dropout:
        description = "nothing: dropout is random; the cases without it compare the same kernels"
        return Reference({}, inputs.upstream, description, lambda results: {})
    pairs = prod((*case.batch, case.queries, case.keys))

    def compute(rows: Tensor, upstream: Tensor | None) -> Results:
        exact = Inputs(*(tensor.double() for tensor in inputs.tensors), upstream=None)
        bias = exact.weight[..., rows, :] if kind.biased else exact.weight
        exact = replace(exact, query=exact.query[..., rows, :], weight=bias)

        def formula(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
            key, value = (tensor.repeat_interleave(kind.group, -3) for tensor in (key, value))
            scores = query @ key.mT / case.features**0.5  # (..., rows, K)
            scores = scores if bias is None else scores + bias
            return scores.masked_fill(_masked(case, kind, rows), -torch.inf).softmax(-1) @ value

        return _run(formula, exact, kind)(upstream)

    return reference_on_rows(case, inputs, _MAX_PAIRS * case.queries // max(pairs, 1), compute)
