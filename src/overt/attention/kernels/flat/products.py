"""A call's score as a dot product that the kernels compute; or why it is none."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from overt.attention.kernels.call import Call, unrounded
from overt.attention.scores import DistanceForm, DotForm, KernelForm

# _MAX_SQUARED_NORM: squared norm of centred queries and keys, in bandwidths; a product's rounding error grows by this factor.
_MAX_SQUARED_NORM = {torch.float32: 32.0, torch.float64: 1024.0}


def fits(shape: torch.Size | tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to the batch, aligned right."""
    return len(shape) <= len(batch) and all(
        length in (1, size) for length, size in zip(shape, batch[len(batch) - len(shape) :], strict=True)
    )


class DotProduct(NamedTuple):
    """softcap · tanh(scale · (q · k) / softcap), uncapped if softcap is 0. A tensor scale is already multiplied into the queries."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    softcap: float


def as_dot_product(call: Call, form: KernelForm | None, temperature: Tensor | None = None) -> DotProduct:
    """Convert the call's score to a dot product, divided by a temperature (..., 1, 1) if there is one; differentiable in all tensors."""
    query, key, value = call.query, call.key, call.value
    scale, softcap = (form.scale, form.softcap) if isinstance(form, DotForm) else (1.0, None)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    as_they_are = isinstance(form, DotForm) and form.project is None and not isinstance(scale, Tensor)
    if not as_they_are or temperature is not None:
        query, key, value = (tensor.to(call.dtype) for tensor in (query, key, value))
        if isinstance(form, DistanceForm):
            query, key = _distance_as_dot_product(query, key, form.bandwidth)
        elif isinstance(form, DotForm) and form.project is not None:
            with unrounded(query):
                query, key = form.project(query, key)
        if isinstance(scale, Tensor):
            query, scale = query * scale.to(query.dtype), 1.0
        query = query if temperature is None else query / temperature
    return DotProduct(query, key, value, float(scale), float(softcap or 0))


def unsupported_dot(call: Call, form: KernelForm | None) -> str | None:
    """Why the kernels cannot compute the call's score as a dot product; None if they can."""
    if isinstance(form, DistanceForm):
        return _unsupported_distance(call, form.bandwidth)
    if not isinstance(form, DotForm):
        return "the score is neither additive nor a dot product"
    for parameter in form.parameters:
        if not fits(parameter.shape[:-2], call.batch):
            return "the score's weight has other dimensions"
    if not form.linear and call.mask is not None and not (call.inspectable and call.finite):
        return "a masked key that is not finite would change the gradient of its length"
    if isinstance(form.scale, Tensor) and not fits(form.scale.shape, (*call.batch, 1, 1)):
        return "the scale differs between queries or keys"
    return "the softcap is a tensor" if isinstance(form.softcap, Tensor) else None


def _unsupported_distance(call: Call, bandwidth: float | Tensor) -> str | None:
    """Why a Gaussian score is no dot product: its differences would lose digits, since queries and keys are far from their middle."""
    grouped = call.key.shape[:-2] != call.query.shape[:-2]
    if isinstance(bandwidth, Tensor) and bandwidth.ndim and (grouped or not fits(bandwidth.shape, (*call.batch, 1, 1))):
        return "the bandwidth differs between queries or keys, or heads are grouped"
    if not call.inspectable:
        return "a Gaussian score is a dot product where queries and keys are near each other, and values are not inspected here"
    if not (call.query.numel() and call.key.numel()):
        return "without queries, keys or features there are no distances to measure"
    if not call.finite:
        return "a Gaussian score of numbers that are not finite is no dot product"
    with torch.no_grad():
        centered = _centered(call.query.to(call.dtype), call.key.to(call.dtype), bandwidth)
        largest = max(float(tensor.square().sum(-1).max()) for tensor in centered)
    if largest <= _MAX_SQUARED_NORM[call.dtype]:
        return None
    return "queries and keys lie many bandwidths apart, where a dot product loses digits"


def _centered(query: Tensor, key: Tensor, bandwidth: float | Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys in bandwidths, relative to the mean key, which cancels in differences."""
    middle = key.detach().reshape(-1, key.shape[-1]).mean(0)
    bandwidth = bandwidth.to(query.dtype) if isinstance(bandwidth, Tensor) else bandwidth
    return (query - middle) / bandwidth, (key - middle) / bandwidth


def _distance_as_dot_product(query: Tensor, key: Tensor, bandwidth: float | Tensor) -> tuple[Tensor, Tensor]:
    """−|q − k|²/2 = (q, 1, −|q|²/2) · (k, −|k|²/2, 1)."""
    query, key = _centered(query, key, bandwidth)
    query_term, key_term = (-tensor.square().sum(-1, keepdim=True) / 2 for tensor in (query, key))  # (..., Q, 1), (..., K, 1)
    query = torch.cat([query, torch.ones_like(query_term), query_term], dim=-1)  # (..., Q, D + 2)
    return query, torch.cat([key, key_term, torch.ones_like(key_term)], dim=-1)  # (..., K, D + 2)
