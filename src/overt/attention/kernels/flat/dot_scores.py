"""Scores that are dot products, and how: what native kernels are given to compute them."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.call import Call
from overt.attention.scores import Bilinear, Cosine, Dot, Gaussian

# How far from their middle Gaussian queries and keys may be, squared and in bandwidths: so many times its rounding a product then loses.
_NEAR = {torch.float32: 32.0, torch.float64: 1024.0}


class Dots(NamedTuple):
    """softcap · tanh(scale · (q · k) / softcap), without the cap where that is 0. A scale that is a tensor has gone into the queries."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    softcap: float


def refusal(call: Call) -> str | None:
    """Why the call's score is no dot product to the kernels; None where it is."""
    kind, score = type(call.score), call.score
    if kind is Bilinear:
        return None if fits(score.weight.shape[:-2], call.batch) else "the score's weight has other dimensions"
    if kind is Gaussian:
        return _other_gaussian(call)
    if kind not in (Dot, Cosine):
        return "the score is neither additive nor a dot product"
    if kind is Cosine and call.mask is not None and not (call.inspectable and call.finite):
        return "a masked key that is not finite would be felt in the gradient of its length"
    if isinstance(score.scale, Tensor) and not fits(score.scale.shape, (*call.batch, 1, 1)):
        return "the scale differs between queries or keys"
    return "the softcap is a tensor" if isinstance(getattr(score, "softcap", None), Tensor) else None


def as_given(call: Call) -> bool:
    """Whether the kernel takes the call's queries and keys as they are."""
    return type(call.score) is Dot and not isinstance(call.score.scale, Tensor)


def of(call: Call) -> Dots:
    """The call's score as a dot product; differentiable in all that it holds."""
    query, key, value, score = call.query, call.key, call.value, call.score
    if as_given(call):
        return Dots(query, key, value, float(score.factor(query)), float(score.softcap or 0))
    query, key, value = (tensor.to(call.dtype) for tensor in (query, key, value))
    if type(score) is Gaussian:
        query, key = _gaussian(query, key, score.bandwidth)
    elif type(score) is not Dot:
        plain = replace(score, scale=1.0) if type(score) is Cosine else score
        query, key, _ = plain.as_dot(query, key)  # type: ignore[misc]  # known: no tensor is left as its scale
    scale = getattr(score, "scale", 1.0)
    if isinstance(scale, Tensor):
        query, scale = query * scale.to(query.dtype), 1.0
    return Dots(query, key, value, scale, float(getattr(score, "softcap", None) or 0))


def fits(shape: torch.Size | tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to the batch, aligned right."""
    return len(shape) <= len(batch) and all(
        own in (1, size) for own, size in zip(shape, batch[len(batch) - len(shape) :], strict=True)
    )


def _other_gaussian(call: Call) -> str | None:
    """A Gaussian score is a dot product where differences, which it is made of, lose no digits against what they are differences of."""
    bandwidth, grouped = call.score.bandwidth, call.key.shape[:-2] != call.query.shape[:-2]
    if isinstance(bandwidth, Tensor) and bandwidth.ndim and (grouped or not fits(bandwidth.shape, (*call.batch, 1, 1))):
        return "the bandwidth differs between queries or keys, or heads are grouped"
    if not call.inspectable:
        return "a Gaussian score is a dot product where queries and keys are near each other, and values are not inspected here"
    if not (call.query.numel() and call.key.numel()):
        return "without queries, keys or features there are no distances to measure"
    if not call.finite:
        return "a Gaussian score of numbers that are not finite is no dot product"
    with torch.no_grad():
        around = _around(call.query.to(call.dtype), call.key.to(call.dtype), bandwidth)
        furthest = max(float(tensor.square().sum(-1).max()) for tensor in around)
    return (
        None
        if furthest <= _NEAR[call.dtype]
        else "queries and keys lie many bandwidths apart, where a dot product loses digits"
    )


def _around(query: Tensor, key: Tensor, bandwidth: float | Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys in bandwidths from the middle of all keys, which cancels in differences."""
    middle = key.detach().reshape(-1, key.shape[-1]).mean(0)
    bandwidth = bandwidth.to(query.dtype) if isinstance(bandwidth, Tensor) else bandwidth
    return (query - middle) / bandwidth, (key - middle) / bandwidth


def _gaussian(query: Tensor, key: Tensor, bandwidth: float | Tensor) -> tuple[Tensor, Tensor]:
    """−|q − k|²/2 = (q, 1, −|q|²/2) · (k, −|k|²/2, 1)."""
    query, key = _around(query, key, bandwidth)
    own, other = (-tensor.square().sum(-1, keepdim=True) / 2 for tensor in (query, key))  # (..., Q, 1), (..., K, 1)
    query = torch.cat([query, torch.ones_like(own), own], dim=-1)  # (..., Q, D + 2)
    return query, torch.cat([key, other, torch.ones_like(other)], dim=-1)  # (..., K, D + 2)
