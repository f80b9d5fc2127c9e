"""Sums over many keys keep what each adds: one key has nearly all the weight, thousands of others the rest, or all have the same."""

import pytest
import torch
from torch import Tensor

import overt

KEYS = 20_000
# What key 0 has more than the others: its weight is from 0.2 to 0.998, and all others are below half a rounding error of it.
GAPS = (8.5, 14.0, 16.0)


def inputs(queries: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, queries, dim, generator=generator)
    key = torch.randn(1, 2, KEYS, dim, generator=generator) * 0.01
    return query, key, torch.randn(1, 2, KEYS, dim, generator=generator) + 1


def distance(query: Tensor, key: Tensor) -> Tensor:
    return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)


CALLS = {
    "dot products": (24, {}),
    "one query": (1, {}),
    "additive scores": (8, {"score": overt.Additive(torch.full((8,), 0.2))}),
    "a score of one's own": (8, {"score": distance}),
    "sum": (24, {"score": lambda query, key: (query @ key.mT).square(), "normalizer": overt.normalizers.Sum()}),
    "sigmoid": (24, {"normalizer": overt.normalizers.Sigmoid()}),
    "sparsemax": (24, {"normalizer": overt.normalizers.Sparsemax()}),
    "entmax": (24, {"normalizer": overt.normalizers.Entmax(1.5)}),
}


@pytest.mark.parametrize("gap", [0.0, *GAPS])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.each_value
def test_many_small_weights_are_not_lost_next_to_a_large_one(name: str, gap: float) -> None:
    queries, options = CALLS[name]
    query, key, value = inputs(queries, dim=8)
    bias = torch.zeros(KEYS)
    bias[0] = gap
    with overt.use_path("blocked"):
        expected = overt.attend(query.double(), key.double(), value.double(), bias=bias.double(), **options)
    with overt.use_path("native"):
        actual = overt.attend(query, key, value, bias=bias, **options)
    assert float((actual - expected).abs().max() / expected.abs().max()) < 1e-5


def test_gradients_of_a_key_that_many_queries_share() -> None:
    query, key, value = inputs(queries=8, dim=8)
    query, key = key.requires_grad_(), query.clone().requires_grad_()
    value = value[..., :8, :].clone().requires_grad_()
    upstream = torch.ones(1, 2, KEYS, 8)
    double = [tensor.detach().double().requires_grad_() for tensor in (query, key, value)]
    with overt.use_path("native"):
        actual = torch.autograd.grad(overt.attend(query, key, value), [key, value], upstream)
    with overt.use_path("blocked"):
        expected = torch.autograd.grad(overt.attend(*double), double[1:], upstream.double())
    for one, other in zip(actual, expected, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 1e-5
