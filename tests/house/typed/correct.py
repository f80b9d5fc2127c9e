"""Calls that a type checker accepts: `tests/house/test_typing.py` runs pyright on this file, and the calls themselves."""

import torch
from torch import Tensor, nn

import overt
from overt.layers import MultiHeadAttention, SelfAttention

x = torch.randn(2, 3, 4)
allowed = torch.ones(3, 3, dtype=torch.bool)


class EvenKeys:
    """A mask of the caller's own, which derives from nothing."""

    def block(self, rows: Tensor, keys: Tensor) -> Tensor:
        return keys % 2 == 0


class Odd(overt.masks.Mask):
    """A mask of the caller's own that combines with others."""

    def block(self, rows, keys):
        return (rows[:, None] + keys) % 2 == 0


class Learned(nn.Module):
    """A score that is a module."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT


def distance(q: Tensor, k: Tensor) -> Tensor:
    """A score with argument names of its own."""
    return -torch.cdist(q, k)


def shares(scores: Tensor, allowed: Tensor) -> Tensor:
    """A normalizer of the caller's own."""
    return torch.where(allowed, scores.exp(), 0)


y: Tensor = overt.attend(query=x, key=x, value=x)
y = overt.attend(x, x, x, score=None, mask=None, bias=None, normalizer=None)
y = overt.attend(x, x, x, score="dot", mask="causal", normalizer="sparsemax")
y = overt.attend(x, x, x, score="cosine", mask=allowed, bias=torch.zeros(3, 3), normalizer="entmax")
y = overt.attend(x, x, x, score=distance, mask=EvenKeys(), normalizer=shares)
y = overt.attend(x, x, x, score=Learned(), mask=Odd() & overt.Window(1, 0), normalizer=nn.Softmax(-1) and shares)
y = overt.attend(x, x, x, score=lambda query, key: query @ key.mT, normalizer=lambda scores, allowed: scores.softmax(-1))
y = overt.attend(x, x, x, score=overt.Dot(), mask=~overt.Causal(), bias=overt.ALiBi(torch.ones(2)[:1]))
y = overt.attend(x, x, x, normalizer=overt.Softmax(sink=torch.zeros(())), dropout=0.5)
weights: Tensor = overt.steps(x, x, x, score="dot", mask="causal").weights
entropy: Tensor = overt.summarize(x, x, value=x, mask=allowed, normalizer="sigmoid").entropy
path: str = overt.plan(x, x, x, bias=torch.zeros(3, 3), normalizer="sum").path
y = SelfAttention(4, "additive", normalizer="sparsemax")(x, mask=overt.Causal(), lengths=[3, 2])
y = SelfAttention(4, "general")(x, mask=allowed, bias=torch.zeros(3, 3))
y = MultiHeadAttention(4, 2, score=overt.Dot(scale=1.0), normalizer=overt.Entmax())(
    x, mask="causal", lengths=torch.tensor([3, 2])
)
