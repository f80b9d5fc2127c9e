"""Layers learn what they are for, in seconds."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from overt.layers import AttentionPool, Contextual

COLOURS, NOISE, LENGTH = 4, 8, 20


def tokens(batch, random):
    """Sequences that begin with one of four colours and go on with noise; the colour is what is asked for at the end."""
    colour = torch.randint(COLOURS, (batch,), generator=random)
    noise = COLOURS + torch.randint(NOISE, (batch, LENGTH - 1), generator=random)
    return torch.cat([colour[:, None], noise], dim=1), colour


class Last(nn.Module):
    """Embeds, convolves three positions at a time, and reads the colour off the last position."""

    def __init__(self, with_context):
        super().__init__()
        self.embed = nn.Embedding(COLOURS + NOISE, 16)
        convolution = nn.Conv1d(16, 16, 3, padding=1)
        self.layer = Contextual(convolution, "additive") if with_context else convolution
        self.head = nn.Linear(32 if with_context else 16, COLOURS)

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids).mT)[..., -1])


class Pooled(nn.Module):
    """Embeds, and reads the colour off one vector for the whole sequence."""

    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.head = nn.Embedding(COLOURS + NOISE, 16), AttentionPool(16), nn.Linear(16, COLOURS)

    def forward(self, ids):
        return self.head(self.pool(self.embed(ids)))


def trained(model, steps=150):
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        ids, colour = tokens(64, random)
        loss = functional.cross_entropy(model(ids), colour)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids, colour = tokens(512, random)
    return (model(ids).argmax(-1) == colour).float().mean().item()


@pytest.mark.slow
def test_a_layer_that_sees_three_positions_remembers_the_first_of_twenty_through_its_context():
    torch.manual_seed(0)
    assert trained(Last(with_context=False)) < 0.4  # it cannot see the first token: one in four is chance
    torch.manual_seed(0)
    assert trained(Last(with_context=True)) > 0.99


def test_a_pool_learns_which_token_matters():
    torch.manual_seed(0)
    model = Pooled()
    assert trained(model) > 0.99
    ids, _ = tokens(8, torch.Generator().manual_seed(1))
    weights = model.pool.weights(model.embed(ids))
    assert (weights.argmax(-1) == 0).all()
