"""The formula of the native kernels in blocks of query rows, for derivatives without a kernel: any order, in linear memory.

Names and arguments are the kernels'. `reference` computes the formula pair by pair; tests compare both with it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from overt.attention.expressions.terms import program_scores
from overt.attention.kernels.flat.mask_program import BLOCKS, BOTH, DENSE, EITHER, INVERSE, RANGES
from overt.attention.kernels.flat.normalizer import NormalizerForm, build_normalizer
from overt.attention.kernels.flat.recomputed import RowBlocks, recomputed
from overt.attention.scores import ACTIVATIONS

BLOCK = 2**19  # numbers for a block's pairs and their features; a second derivative holds about twenty times as many


Run = Callable[..., Any]  # (function, *arguments): `recomputed`, or `at_once`


def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, with everything that autograd stores for it."""
    return function(*arguments)


def dot(inputs: Any, run: Run = recomputed, with_lse: bool = False) -> Any:
    """The output (..., Q, E) of dot-product attention, softcap · tanh(scale · (q · k) / softcap); with log-sum-exps on request."""

    def pair_scores(query: Tensor, key: Tensor, _: Any) -> Tensor:
        scores = query @ key.mT * inputs.scale  # (..., rows, K)
        return torch.tanh(scores / inputs.softcap) * inputs.softcap if inputs.softcap > 0 else scores

    return _attention(pair_scores, inputs, None, 1, run, with_lse)


def additive(inputs: Any, run: Run = recomputed, with_lse: bool = False) -> Any:
    """The output (..., Q, E) of additive attention."""
    return _attention(_additive_scores(inputs.activation), inputs, inputs.weight, inputs.query.shape[-1], run, with_lse)


def traced(inputs: Any, run: Run = recomputed, with_lse: bool = False) -> Any:
    """The output (..., Q, E) of attention with the scores of a program."""

    def pair_scores(query: Tensor, key: Tensor, constants: Tensor) -> Tensor:
        return program_scores(inputs.terms, inputs.numbers, query, key, constants)

    return _attention(pair_scores, inputs, inputs.constants, inputs.query.shape[-1], run, with_lse)


def additive_scores(activation: str, query: Tensor, key: Tensor, weight: Tensor, run: Run = recomputed) -> Tensor:
    """Additive scores (..., Q, K)."""
    size = max(BLOCK // max(math.prod(query.shape[:-2]) * key.shape[-2] * query.shape[-1], 1), 1)
    blocks = RowBlocks(lambda _: _additive_scores(activation), size, (True, False, False), (True,))
    return run(blocks, query, key, weight)


def _additive_scores(activation: str) -> Callable[..., Tensor]:
    def pair_scores(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
        features = ACTIVATIONS[activation](query[..., :, None, :] + key[..., None, :, :])  # (..., rows, K, D)
        return (features * weight[..., None, None, :]).sum(-1)  # (..., rows, K)

    return pair_scores


def _attention(
    pair_scores: Callable[..., Tensor], inputs: Any, weight: Tensor | None, width: int, run: Run, with_lse: bool
) -> Any:
    """The output, and log-sum-exps (..., Q, 1) on request, a block of rows at a time; `width` numbers for each pair."""
    number = torch.promote_types(inputs.query.dtype, torch.float32)
    query, key, value = (_expanded(tensor, inputs.batch).to(number) for tensor in (inputs.query, inputs.key, inputs.value))
    careful, bias, queries = _careful(inputs.program, query, key, value), inputs.bias, query.shape[-2]
    size = max(BLOCK // max(math.prod(inputs.batch) * key.shape[-2] * width, 1), 1) if careful < 2 else 1
    others = (inputs.sink, inputs.alphas, inputs.inverse_temperature, inputs.seed, *inputs.arrays)
    lines = (getattr(inputs, "bias_of_queries", None), getattr(inputs, "bias_of_keys", None))
    lines = (None, None) if lines[0] is None or lines[1] is None else (lines[0][..., None], lines[1][..., None, :])
    biased_rows = bias is not None and not inputs.by_distance and bias.shape[-2] != 1
    with_rows = (True, False, False, False, biased_rows, lines[0] is not None, False, *(False for _ in others))
    results = (True, True) if with_lse else (True,)
    blocks = RowBlocks(
        lambda first: _block(pair_scores, inputs, first, queries, careful > 0, with_lse), size, with_rows, results
    )
    return run(blocks, query, key, value, weight, bias, *lines, *others)


def _careful(program: list[int], *tensors: Tensor) -> int:
    """How masked keys may affect results: 0, not at all; 1, values cannot be inspected; 2, some are not finite."""
    if not program:
        return 0
    if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        return 1
    return 0 if all(bool(tensor.isfinite().all()) for tensor in tensors) else 2


def _block(
    pair_scores: Callable[..., Tensor], inputs: Any, first: int, queries: int, careful: bool, with_lse: bool
) -> Callable[..., Any]:
    """The output of the rows from `first` on, as a function of their queries and all other tensors."""
    batch, program, by_distance, dropout = list(inputs.batch), inputs.program, inputs.by_distance, inputs.dropout

    def output(query: Tensor, key: Any, value: Any, weight: Any, bias: Any, query_bias: Any, key_bias: Any, *others: Any):
        sink, alphas, inverse, seed, *arrays = others
        rows, keys = torch.arange(first, first + query.shape[-2], device=query.device), key.shape[-2]
        pairs = allowed(program, arrays, rows, keys)
        if careful:  # 0 · NaN is NaN: keys masked for all these rows, and rows without keys, are zeroed
            visible = pairs.any(-2)[..., None]
            key, value = torch.where(visible, key, 0), torch.where(visible, value, 0)
            query = torch.where(pairs.any(-1)[..., None], query, 0)
        scores = pair_scores(query, key, weight)
        scores = scores if bias is None else scores + _bias_rows(bias, by_distance, rows, queries, keys)
        scores = scores if query_bias is None else scores + (query_bias + key_bias).to(query.dtype)
        scores = scores if inverse is None else scores * inverse[..., None, None].to(query.dtype)
        masked = torch.where(pairs, scores, -torch.inf)
        excluded = masked == -torch.inf
        normalizer = build_normalizer(NormalizerForm(inputs.normalizer, inputs.alpha, alphas), sink, query.dtype)
        weights = normalizer(torch.where(excluded.all(-1, keepdim=True), 0, masked), ~excluded)
        weights = torch.where(excluded, 0, weights)  # (..., rows, K)
        if dropout > 0:
            retained = dropout_mask(seed, dropout, batch, rows, queries, keys)
            weights = weights * retained * (1 / (1 - dropout) if dropout < 1 else 0.0)
        output = weights @ value  # (..., rows, E)
        return (output, log_sum_exp(normalizer, masked)[..., None]) if with_lse else output

    return output


def log_sum_exp(softmax: Any, masked: Tensor) -> Tensor:
    """log Σ_j exp(masked_ij) of a softmax (..., rows), its sink included: −∞, without a gradient, if there is nothing to sum."""
    excluded, sink = masked == -torch.inf, softmax.sink
    empty = excluded.all(-1, keepdim=True)  # the gradient of an empty sum would be NaN
    if sink is not None:
        empty = empty & ((sink[:, None, None] if sink.ndim else sink) == -torch.inf)
    result = softmax.logsumexp(torch.where(empty, 0, masked), ~excluded)
    return torch.where(empty.squeeze(-1), -torch.inf, result)


def _expanded(tensor: Tensor, batch: Sequence[int]) -> Tensor:
    """The tensor with one entry for each batch entry, and grouped heads repeated."""
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != batch[-1]:
        tensor = tensor.repeat_interleave(batch[-1] // tensor.shape[-3], dim=-3)
    return tensor.expand(*batch, *tensor.shape[-2:])


def allowed(program: list[int], arrays: list[Tensor], rows: Tensor, keys: int) -> Tensor:
    """Evaluate the mask program for these rows: bool, broadcastable to (..., rows, K)."""
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
        elif step == BLOCKS:
            table, sizes = next(remaining), next(remaining)
            results.append(table[..., rows // sizes[0], :][..., positions // sizes[1]])
        else:
            first, second = next(remaining)[..., rows, None], next(remaining)
            if step == RANGES:
                results.append((first <= positions) & (positions < second[..., rows, None]))
            else:
                results.append((first == second[..., None, :]) & (first >= 0))
    return results[0] if results else torch.ones(len(rows), keys, dtype=torch.bool, device=rows.device)


def _bias_rows(bias: Tensor, by_distance: bool, rows: Tensor, queries: int, keys: int) -> Tensor:
    """The bias of these rows, broadcastable to (..., rows, K); a bias with rows has only these rows."""
    return bias[..., torch.arange(keys, device=bias.device) - rows[:, None] + queries - 1] if by_distance else bias


def dropout_mask(seed: Tensor, dropout: float, batch: Sequence[int], rows: Tensor, queries: int, keys: int) -> Tensor:
    """The weights of these rows that the kernel keeps, by its hash (native/attention/dropout.hpp): bool (..., rows, K)."""
    entries = torch.arange(math.prod(batch), device=rows.device).reshape(*batch, 1)
    row_hash = _mixed(_mixed(seed + (0x9E3779B97F4A7C15 - 2**64)) + entries * queries + rows)[..., None]  # (..., rows, 1)
    first, second = row_hash & _LOW, _shifted(row_hash, 32)
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
    """Shift right as an unsigned 64-bit integer."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
