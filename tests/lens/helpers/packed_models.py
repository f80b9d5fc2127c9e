"""Attention with one option at a time, recorded."""

import torch
from torch import nn

import overt
from reading_pages import recorded


class Attends(nn.Module):
    """Attention with these options, and nothing else."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value):
        return overt.attend(query, key, value, **self.options)


def attended(queries=6, keys=6, heads=2, shared=None, batch=1, width=4, tokens=None, **options):
    torch.manual_seed(0)
    sizes = [(batch, heads, queries, width), *[(batch, shared or heads, keys, width)] * 2]
    return recorded(Attends(**options), *(2 * torch.randn(size) for size in sizes), tokens=tokens)
