"""Small models of each kind, and their weights by plain NumPy, for the tests of reading."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import overt
from compare import OUTPUT, close

WIDTH, HEADS, LENGTH = 16, 4, 7


class Fused(nn.Module):
    """One layer over torch's fused function, its output matrix beside it."""

    def __init__(self, causal=False):
        super().__init__()
        self.project, self.out_proj, self.causal = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), causal

    def forward(self, x):
        query, key, value = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)  # (B, H, N, D) each
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return x + self.out_proj(mixed.transpose(1, 2).flatten(2))


class Torch(nn.Module):
    """One nn.MultiheadAttention, its weights asked for or not."""

    def __init__(self, need_weights):
        super().__init__()
        self.attention, self.need_weights = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), need_weights

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=self.need_weights)[0]


class Custom(nn.Module):
    """One overt layer."""

    def __init__(self):
        super().__init__()
        self.attention = overt.layers.MultiHeadAttention(WIDTH, HEADS)

    def forward(self, x):
        return x + self.attention(x)


class WrittenOut(nn.Module):
    """One layer that writes its attention out."""

    def __init__(self):
        super().__init__()
        self.project, self.out_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        query, key, value = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        weights = (query @ key.mT / 2).softmax(-1)
        return x + self.out_proj((weights @ value).transpose(1, 2).flatten(2))


KINDS = {
    "sdpa": Fused,
    "nn.MultiheadAttention": lambda: Torch(False),
    "nn.MultiheadAttention, weights asked for": lambda: Torch(True),
    "overt": Custom,
    "written out": WrittenOut,
}


def stack(kind="sdpa", layers=3, **options):
    """Layers of one kind, the same every time."""
    torch.manual_seed(0)
    return nn.Sequential(*(KINDS[kind](**options) for _ in range(layers))).eval()


def sequence(batch=2, length=LENGTH, seed=1):
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(seed))


def recorded(model, *inputs, **options):
    with torch.no_grad(), overt.lens.record(model, **options) as recording:
        model(*inputs)
    return recording


def output_matrix(module):
    """The linear layer that reads the heads."""
    result = [each for name, each in module.named_modules() if name.split(".")[-1] in ("out_proj", "output")]
    return result[-1]


def alike(result, wanted):
    """Refuse a difference above the tolerance for float32."""
    close(result.detach().numpy(), np.asarray(wanted), OUTPUT[torch.float32], "found")


def softmax(scores):
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def weights_by_hand(layer, x):
    """The weights of `Fused`, in float64: (B, H, N, N)."""
    weight, bias = (each.detach().double().numpy() for each in (layer.project.weight, layer.project.bias))
    x = x.double().numpy()
    batch, length = x.shape[:2]
    query, key, _ = np.moveaxis((x @ weight.T + bias).reshape(batch, length, 3, HEADS, -1), 2, 0)
    scores = np.einsum("bihd,bjhd->bhij", query, key) / np.sqrt(WIDTH / HEADS)
    if layer.causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    return softmax(scores)


def all_weights_by_hand(model, x):
    """The weights of every layer of a stack of `Fused`."""
    result = []
    for layer in model:
        result.append(weights_by_hand(layer, x))
        x = layer(x).detach()
    return result
