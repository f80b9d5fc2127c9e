"""What the native kernels compute, in plain torch: the same names, the same arguments, differentiable any number of times.

The judge of the kernels and their derivatives, in tests only. It is not `mechanism.formula`, which multiplies matrices: here each
masked pair is left out of the sums, so that NaN in a masked key reaches no gradient, and dropout is the kernel's hash.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from overt.attention.expressions.terms import program_scores
from overt.attention.kernels.flat.formula import allowed, dropout_mask
from overt.attention.kernels.flat.normalizer import NormalizerForm, build_normalizer
from overt.attention.scores import ACTIVATIONS

BLOCK = 2**21  # numbers that a block of rows may hold for its pairs' features


def additive(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight: Tensor,
    activation: str,
    batch: Sequence[int],
    program: list[int],
    arrays: list[Tensor],
    bias: Tensor | None,
    by_distance: bool,
    sink: Tensor | None,
    inverse_temperature: Tensor | None,
    normalizer: int,
    alpha: float,
    alphas: Tensor | None,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """The output (..., Q, E) of additive attention under a mask's program, a bias, a sink, an inverse temperature and dropout."""

    def pair_scores(query: Tensor, key: Tensor, allowed_pairs: Tensor) -> Tensor:
        # A masked pair's features are zero, so that NaN in them reaches nothing: 0 · NaN is NaN.
        features = torch.where(allowed_pairs[..., None], query[..., :, None, :] + key[..., None, :, :], 0)  # (..., rows, K, D)
        return (ACTIVATIONS[activation](features) * weight[..., None, None, :]).sum(-1)  # (..., rows, K)

    form = NormalizerForm(normalizer, alpha, alphas)
    masked = (batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed)
    return _attention(pair_scores, query, key, value, *masked)


def dot(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    softcap: float,
    batch: Sequence[int],
    program: list[int],
    arrays: list[Tensor],
    bias: Tensor | None,
    by_distance: bool,
    sink: Tensor | None,
    inverse_temperature: Tensor | None,
    normalizer: int,
    alpha: float,
    alphas: Tensor | None,
    dropout: float,
    seed: Tensor | None,
    bias_of_queries: Tensor | None = None,
    bias_of_keys: Tensor | None = None,
) -> Tensor:
    """The output (..., Q, E) of dot-product attention, softcap · tanh(scale · (q · k) / softcap), under the same."""

    def pair_scores(query: Tensor, key: Tensor, allowed_pairs: Tensor) -> Tensor:
        def pairwise() -> Tensor:  # a masked pair is set to 0 before the sum
            return torch.where(allowed_pairs[..., None], query[..., :, None, :] * key[..., None, :, :], 0).sum(-1)

        scores = (pairwise() if program else query @ key.mT) * scale  # (..., rows, K)
        return torch.tanh(scores / softcap) * softcap if softcap > 0 else scores

    if bias_of_queries is not None and bias_of_keys is not None:
        queries, keys = query.shape[-2], key.shape[-2]
        lines = (bias_of_queries[..., None] + bias_of_keys[..., None, :]).to(torch.promote_types(query.dtype, torch.float32))
        bias = lines if bias is None else lines + _bias(bias, by_distance, torch.arange(queries), queries, keys)
        by_distance = False
    form = NormalizerForm(normalizer, alpha, alphas)
    masked = (batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed)
    return _attention(pair_scores, query, key, value, *masked)


def traced(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    constants: Tensor,
    terms: list[int],
    numbers: list[float],
    batch: Sequence[int],
    program: list[int],
    arrays: list[Tensor],
    bias: Tensor | None,
    by_distance: bool,
    sink: Tensor | None,
    inverse_temperature: Tensor | None,
    normalizer: int,
    alpha: float,
    alphas: Tensor | None,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """The output (..., Q, E) of attention with the scores of a program, under the same."""

    def pair_scores(query: Tensor, key: Tensor, allowed_pairs: Tensor) -> Tensor:
        return program_scores(terms, numbers, query, key, constants)

    form = NormalizerForm(normalizer, alpha, alphas)
    masked = (batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed)
    return _attention(pair_scores, query, key, value, *masked)


def _attention(
    pair_scores, query, key, value, batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed
) -> Tensor:
    """The output, from the scores of allowed pairs of rows and keys."""
    number = torch.promote_types(query.dtype, torch.float32)
    query, key, value = (_expanded(tensor, batch).to(number) for tensor in (query, key, value))
    queries, keys, normalizer = query.shape[-2], key.shape[-2], build_normalizer(form, sink, number)

    def run(rows: Tensor, query: Tensor) -> Tensor:
        allowed_pairs = allowed(program, arrays, rows, keys)
        scores = pair_scores(query, key, allowed_pairs)
        scores = scores if bias is None else scores + _bias(bias, by_distance, rows, queries, keys)
        scores = scores if inverse_temperature is None else scores * inverse_temperature[..., None, None].to(number)
        masked = torch.where(allowed_pairs, scores, -torch.inf)
        excluded = masked == -torch.inf
        weights = normalizer(torch.where(excluded.all(-1, keepdim=True), 0, masked), ~excluded)
        weights = torch.where(excluded, 0, weights)  # (..., rows, K)
        if dropout > 0:
            retained = dropout_mask(seed, dropout, batch, rows, queries, keys)
            weights = weights * retained * (1 / (1 - dropout) if dropout < 1 else 0.0)
        return (weights[..., None] * torch.where(allowed_pairs[..., None], value[..., None, :, :], 0)).sum(-2)  # (..., rows, E)

    size = max(BLOCK // max(math.prod(batch) * keys * max(query.shape[-1], value.shape[-1]), 1), 1)
    blocks = [
        checkpoint(run, rows, query[..., rows, :], use_reentrant=False, preserve_rng_state=False)
        for rows in torch.arange(queries, device=query.device).split(size)
    ]
    return torch.cat(blocks, dim=-2) if blocks else run(torch.arange(0, device=query.device), query)


def additive_scores(query: Tensor, key: Tensor, weight: Tensor, activation: str) -> Tensor:
    """Additive scores (..., Q, K), a block of rows at a time."""

    def run(query: Tensor) -> Tensor:
        features = ACTIVATIONS[activation](query[..., :, None, :] + key[..., None, :, :])  # (..., rows, K, D)
        return (features * weight[..., None, None, :]).sum(-1)

    size = max(BLOCK // max(math.prod(query.shape[:-2]) * key.shape[-2] * query.shape[-1], 1), 1)
    return torch.cat([checkpoint(run, rows, use_reentrant=False) for rows in query.split(size, dim=-2)], dim=-2)


def _expanded(tensor: Tensor, batch: Sequence[int]) -> Tensor:
    """One entry for each of the batch, grouped heads repeated."""
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != batch[-1]:
        tensor = tensor.repeat_interleave(batch[-1] // tensor.shape[-3], dim=-3)
    return tensor.expand(*batch, *tensor.shape[-2:])


def _bias(bias: Tensor, by_distance: bool, rows: Tensor, queries: int, keys: int) -> Tensor:
    """The bias of these rows, broadcastable to (..., rows, K)."""
    if by_distance:
        return bias[..., torch.arange(keys, device=bias.device) - rows[:, None] + queries - 1]
    return bias if bias.shape[-2] == 1 else bias[..., rows, :]
