"""Small recordings for the pages that show them, and what is asked of an opened page."""

import torch
from torch import nn

import overt

NASTY = [
    "</script><img src=x onerror=alert(1)>",
    "\x00nul",
    "\u202eright to left",
    "שלום",
    "👩‍👩‍👧",
    "x" * 10_000,
    '=HYPERLINK("a")',
    'a,"b"\nc',
    "",
    " ",
]


def words(count):
    return [f"w{place}" for place in range(count)]


def recorded(model, *args, tokens=None, **how):
    with torch.no_grad(), overt.lens.record(model, key_tokens=tokens, **how) as recording:
        model(*args)
    return recording


def multi_head(count=12, heads=2, width=8, tokens=None, seed=0, **settings):
    """An overt layer, and a recording of it."""
    torch.manual_seed(seed)
    layer = overt.layers.MultiHeadAttention(heads * width, heads=heads, **settings)
    return layer, recorded(layer, 3 * torch.randn(1, count, heads * width), tokens=tokens or words(count))


class Seeded(nn.Module):
    """A decoder that asks an encoder's states."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, asking, asked):
        return self.attention(asking, asked, asked)[0]


def between(asking=4, asked=7):
    """Attention between two texts, and its model."""
    torch.manual_seed(0)
    model = Seeded()
    inputs = 3 * torch.randn(1, asking, 8), 3 * torch.randn(1, asked, 8)
    told = {"query_tokens": [f"q{place}" for place in range(asking)], "key_tokens": [f"k{place}" for place in range(asked)]}
    with torch.no_grad(), overt.lens.record(model, **told) as recording:
        model(*inputs)
    return model, recording


def network(found):
    """What the page asked for beside itself and what it holds."""
    return [url for url in found.requests if not url.startswith(("file://", "data:", "blob:"))]


def tab(found, name):
    """Bring a panel into sight."""
    found.ask(f"void document.getElementById('tab-{name}').click()")
    found.until(f"document.getElementById('panel-{name}').offsetParent !== null")
