"""What the native kernels compute, in plain torch: the same names, the same arguments, differentiable any number of times.

A kernel's backward pass has no derivative; where a second one is computed, this is what is differentiated. It takes blocks of query
rows, recomputed in its backward pass, so that it is linear in memory too. It is not `mechanism.formula`, which multiplies matrices:
here each masked pair is left out of the sums, so that NaN in a masked key reaches no gradient, and dropout is the kernel's hash.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from overt.attention.kernels.flat.mask_program import BOTH, DENSE, EITHER, INVERSE, RANGES
from overt.attention.kernels.flat.normalizer import NormalizerForm, of_form
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
) -> Tensor:
    """The output (..., Q, E) of dot-product attention, softcap · tanh(scale · (q · k) / softcap), under the same."""

    def pair_scores(query: Tensor, key: Tensor, allowed_pairs: Tensor) -> Tensor:
        def pairwise() -> Tensor:  # a masked pair is set to 0 before the sum
            return torch.where(allowed_pairs[..., None], query[..., :, None, :] * key[..., None, :, :], 0).sum(-1)

        scores = (pairwise() if program else query @ key.mT) * scale  # (..., rows, K)
        return torch.tanh(scores / softcap) * softcap if softcap > 0 else scores

    form = NormalizerForm(normalizer, alpha, alphas)
    masked = (batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed)
    return _attention(pair_scores, query, key, value, *masked)


def _attention(
    pair_scores, query, key, value, batch, program, arrays, bias, by_distance, sink, inverse_temperature, form, dropout, seed
) -> Tensor:
    """The output, from the scores of allowed pairs of rows and keys."""
    number = torch.promote_types(query.dtype, torch.float32)
    query, key, value = (_expanded(tensor, batch).to(number) for tensor in (query, key, value))
    queries, keys, normalizer = query.shape[-2], key.shape[-2], of_form(form, sink, number)

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
            retained = _dropout_mask(seed, dropout, batch, rows, queries, keys)
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


def allowed(program: list[int], arrays: list[Tensor], rows: Tensor, keys: int) -> Tensor:
    """Which keys these rows may attend to, by the program: bool, broadcastable to (..., rows, K)."""
    results, remaining, positions = [], iter(arrays), torch.arange(keys, device=rows.device)
    for step in program:
        if step == INVERSE:
            results.append(~results.pop())
        elif step in (BOTH, EITHER):
            last, before = results.pop(), results.pop()
            results.append(before & last if step == BOTH else before | last)
        elif step == DENSE:
            pairs = next(remaining)
            results.append(pairs if pairs.shape[-2] == 1 else pairs[..., rows, :])
        else:
            first, second = next(remaining)[..., rows, None], next(remaining)
            if step == RANGES:
                results.append((first <= positions) & (positions < second[..., rows, None]))
            else:
                results.append((first == second[..., None, :]) & (first >= 0))
    return results[0] if results else torch.ones(len(rows), keys, dtype=torch.bool, device=rows.device)


def _bias(bias: Tensor, by_distance: bool, rows: Tensor, queries: int, keys: int) -> Tensor:
    """The bias of these rows, broadcastable to (..., rows, K)."""
    if by_distance:
        return bias[..., torch.arange(keys, device=bias.device) - rows[:, None] + queries - 1]
    return bias if bias.shape[-2] == 1 else bias[..., rows, :]


def _dropout_mask(seed: Tensor, dropout: float, batch: Sequence[int], rows: Tensor, queries: int, keys: int) -> Tensor:
    """Which weights of these rows the kernel keeps, by its own hash (native/attention/dropout.hpp): (..., rows, K)."""
    entries = torch.arange(math.prod(batch), device=rows.device).reshape(*batch, 1)
    key_of_row = _mixed(_mixed(seed + (0x9E3779B97F4A7C15 - 2**64)) + entries * queries + rows)[..., None]  # (..., rows, 1)
    first, second = key_of_row & _LOW, _shifted(key_of_row, 32)
    x = (torch.arange(keys, device=rows.device) * 0x9E3779B1 + first) & _LOW  # (..., rows, K)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW
    x = (((x ^ (x >> 15)) + second) * 0x846CA68B) & _LOW
    x = x ^ (x >> 16)
    return x >= min(int(dropout * 2**32), _LOW)


_LOW = 2**32 - 1


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _shifted(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted right as 64 bits without a sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
