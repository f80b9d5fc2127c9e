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
    return [f"w{index}" for index in range(count)]


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

    def forward(self, asking, source):
        return self.attention(asking, source, source)[0]


def between(asking=4, source=7):
    """Attention between two texts, and its model."""
    torch.manual_seed(0)
    model = Seeded()
    inputs = 3 * torch.randn(1, asking, 8), 3 * torch.randn(1, source, 8)
    message = {"query_tokens": [f"q{index}" for index in range(asking)], "key_tokens": [f"k{index}" for index in range(source)]}
    with torch.no_grad(), overt.lens.record(model, **message) as recording:
        model(*inputs)
    return model, recording


def network(result):
    """What the page asked for beside itself and what it holds."""
    return [url for url in result.requests if not url.startswith(("file://", "data:", "blob:"))]


def tab(result, name):
    """Bring a panel into sight."""
    result.ask(f"void document.getElementById('tab-{name}').click()")
    result.until(f"document.getElementById('panel-{name}').offsetParent !== null")
