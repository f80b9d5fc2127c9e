"""What the native kernels compute, in plain torch: the same names, the same arguments, differentiable as often as asked.

A kernel's backward pass has no derivative of its own; where one is asked for, this is what is differentiated. It takes blocks of
query rows, recomputed in its backward pass, so that it is linear in memory too.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from overt.attention.kernels.flat.mask_program import BOTH, DENSE, EITHER, INVERSE, RANGES
from overt.attention.normalizers import Softmax
from overt.attention.scores import ACTIVATIONS

BLOCK = 2**21  # numbers that a block of rows may hold for its pairs' features


def additive(
    query, key, value, weight, activation, batch, program, arrays, bias, by_distance, sink, heat, dropout, seed
) -> Tensor:
    """The output (..., Q, E) of additive attention under a mask's program, a bias, a sink, heat and dropout."""

    def scored(query: Tensor, key: Tensor, seen: Tensor) -> Tensor:
        # A barred pair's features and value are put to zero, so that nothing they hold is felt: 0 · NaN is NaN.
        features = torch.where(seen[..., None], query[..., :, None, :] + key[..., None, :, :], 0)  # (..., rows, K, D)
        return (ACTIVATIONS[activation](features) * weight[..., None, None, :]).sum(-1)  # (..., rows, K)

    masked = (batch, program, arrays, bias, by_distance, sink, heat, dropout, seed)
    return _attended(scored, query, key, value, *masked)


def dot(query, key, value, scale, softcap, batch, program, arrays, bias, by_distance, sink, heat, dropout, seed) -> Tensor:
    """The output (..., Q, E) of dot-product attention, softcap · tanh(scale · (q · k) / softcap), under the same."""

    def scored(query: Tensor, key: Tensor, seen: Tensor) -> Tensor:
        def apart() -> Tensor:  # what is barred is deleted before it is summed
            return torch.where(seen[..., None], query[..., :, None, :] * key[..., None, :, :], 0).sum(-1)

        scores = (apart() if program else query @ key.mT) * scale  # (..., rows, K)
        return torch.tanh(scores / softcap) * softcap if softcap > 0 else scores

    masked = (batch, program, arrays, bias, by_distance, sink, heat, dropout, seed)
    return _attended(scored, query, key, value, *masked)


def _attended(scored, query, key, value, batch, program, arrays, bias, by_distance, sink, heat, dropout, seed) -> Tensor:
    """Scores of rows and keys, where they are seen, to the output."""
    number = torch.promote_types(query.dtype, torch.float32)
    query, key, value = (_spread(tensor, batch).to(number) for tensor in (query, key, value))
    queries, keys = query.shape[-2], key.shape[-2]

    def run(rows: Tensor, query: Tensor) -> Tensor:
        seen = allowed(program, arrays, rows, keys)
        scores = scored(query, key, seen)
        scores = scores if bias is None else scores + _bias(bias, by_distance, rows, queries, keys)
        scores = scores if heat is None else scores * heat[..., None, None].to(number)
        masked = torch.where(seen, scores, -torch.inf)
        barred = masked == -torch.inf
        weights = Softmax(sink=sink)(torch.where(barred.all(-1, keepdim=True), 0, masked), ~barred)
        weights = torch.where(barred, 0, weights)  # (..., rows, K)
        if dropout > 0:
            kept = _kept(seed, dropout, batch, rows, queries, keys)
            weights = weights * kept * (1 / (1 - dropout) if dropout < 1 else 0.0)
        return (weights[..., None] * torch.where(seen[..., None], value[..., None, :, :], 0)).sum(-2)  # (..., rows, E)

    size = max(BLOCK // max(math.prod(batch) * keys * max(query.shape[-1], value.shape[-1]), 1), 1)
    blocks = [
        checkpoint(run, rows, query[..., rows, :], use_reentrant=False, preserve_rng_state=False)
        for rows in torch.arange(queries, device=query.device).split(size)
    ]
    return torch.cat(blocks, dim=-2) if blocks else run(torch.arange(0, device=query.device), query)


def additive_scores(query, key, weight, activation) -> Tensor:
    """Additive scores (..., Q, K), a block of rows at a time."""

    def run(query: Tensor) -> Tensor:
        features = ACTIVATIONS[activation](query[..., :, None, :] + key[..., None, :, :])  # (..., rows, K, D)
        return (features * weight[..., None, None, :]).sum(-1)

    size = max(BLOCK // max(math.prod(query.shape[:-2]) * key.shape[-2] * query.shape[-1], 1), 1)
    return torch.cat([checkpoint(run, rows, use_reentrant=False) for rows in query.split(size, dim=-2)], dim=-2)


def _spread(tensor: Tensor, batch: Sequence[int]) -> Tensor:
    """One entry for each of the batch, grouped heads repeated."""
    if tensor.ndim >= 4 and 1 != tensor.shape[-3] != batch[-1]:
        tensor = tensor.repeat_interleave(batch[-1] // tensor.shape[-3], dim=-3)
    return tensor.expand(*batch, *tensor.shape[-2:])


def allowed(program: list[int], arrays: list[Tensor], rows: Tensor, keys: int) -> Tensor:
    """Which keys these rows may attend to, by the program: bool, broadcastable to (..., rows, K)."""
    found, left, places = [], iter(arrays), torch.arange(keys, device=rows.device)
    for step in program:
        if step == INVERSE:
            found.append(~found.pop())
        elif step in (BOTH, EITHER):
            last, before = found.pop(), found.pop()
            found.append(before & last if step == BOTH else before | last)
        elif step == DENSE:
            pairs = next(left)
            found.append(pairs if pairs.shape[-2] == 1 else pairs[..., rows, :])
        else:
            first, second = next(left)[..., rows, None], next(left)
            if step == RANGES:
                found.append((first <= places) & (places < second[..., rows, None]))
            else:
                found.append((first == second[..., None, :]) & (first >= 0))
    return found[0] if found else torch.ones(len(rows), keys, dtype=torch.bool, device=rows.device)


def _bias(bias: Tensor, by_distance: bool, rows: Tensor, queries: int, keys: int) -> Tensor:
    """The bias of these rows, broadcastable to (..., rows, K)."""
    if by_distance:
        return bias[..., torch.arange(keys, device=bias.device) - rows[:, None] + queries - 1]
    return bias if bias.shape[-2] == 1 else bias[..., rows, :]


def _kept(seed: Tensor, dropout: float, batch: Sequence[int], rows: Tensor, queries: int, keys: int) -> Tensor:
    """Which weights of these rows the kernel keeps, by its own hash (native/dropout.hpp): (..., rows, K)."""
    entries = torch.arange(math.prod(batch), device=rows.device).reshape(*batch, 1)
    own = _mixed(_mixed(seed + (0x9E3779B97F4A7C15 - 2**64)) + entries * queries + rows)[..., None]  # (..., rows, 1)
    first, second = own & _LOW, _shifted(own, 32)
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


def _shifted(x: Tensor, places: int) -> Tensor:
    """Shifted right as 64 bits without a sign."""
    return (x >> places) & (2 ** (64 - places) - 1)
