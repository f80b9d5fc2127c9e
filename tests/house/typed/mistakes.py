"""Calls that a type checker refuses, each on a line marked `# error`: `tests/house/test_typing.py` runs pyright on this file."""

import torch
from torch import Tensor

import overt
from overt.layers import MultiHeadAttention, SelfAttention

x = torch.randn(2, 3, 4)


class TwoIndices:
    def block(self, rows: Tensor) -> Tensor:
        return rows > 0


overt.nothing  # error
overt.attend(x, x, x, score=5)  # error
overt.attend(x, x, x, score=overt.Dot)  # error
overt.attend(x, x, x, score=overt.Cosine)  # error
overt.attend(x, x, x, score="dott")  # error
overt.attend(x, x, x, score=lambda query: query)  # error
overt.attend(x, x, x, mask=3.5)  # error
overt.attend(x, x, x, mask=overt.Causal)  # error
overt.attend(x, x, x, mask=overt.Window)  # error
overt.attend(x, x, x, mask=TwoIndices())  # error
overt.attend(x, x, x, mask="future")  # error
overt.attend(x, x, x, bias=[1, 2])  # error
overt.attend(x, x, x, bias=overt.ALiBi)  # error
overt.attend(x, x, x, bias=1.0)  # error
overt.attend(x, x, x, normalizer=overt.Softmax)  # error
overt.attend(x, x, x, normalizer=overt.Entmax)  # error
overt.attend(x, x, x, normalizer=overt.normalizers.Sum)  # error
overt.attend(x, x, x, normalizer="soft")  # error
overt.attend(x, x, [1.0, 2.0])  # error
overt.attend(x, x, x, dropout="half")  # error
overt.attend(
    x,
    x,
    x,
    score=5,  # error
    mask=3.5,  # error
    bias=[1, 2],  # error
    normalizer=overt.Softmax,  # error
)
overt.attend(x, x, x, is_causal=True)  # error
overt.attend(x, x, x, attn_mask=None)  # error
overt.steps(x, x, x, score=5)  # error
overt.steps(x, x, x, scale=0.5)  # error
overt.summarize(x, x, mask=3.5)  # error
overt.summarize(x, x, key_padding_mask=x)  # error
overt.plan(x, x, x, bias=[1, 2])  # error
overt.plan(x, x, x, normalizer=overt.Softmax)  # error
SelfAttention(4, score=5)  # error
SelfAttention(4, "adition")  # error
SelfAttention(4, normalizer=overt.Sparsemax)  # error
MultiHeadAttention(4, 2, score=overt.Dot)  # error
