"""torch's own attention in its modes, and attention that people write out: "eager" is torch's plain path, "sdpa" its fused one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.matrix.verdicts import Verdict, of_recording, of_replaced

WIDTH, HEADS, LENGTH, KEYS = 32, 4, 7, 9
Forward = Callable[[nn.Module], Any]


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y = noise(2, LENGTH, WIDTH), noise(2, KEYS, WIDTH, seed=1)
PADDING = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [4]])
KEY_PADDING = torch.arange(KEYS) >= torch.tensor([[KEYS], [5]])
LATER = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
BIAS = noise(LENGTH, LENGTH, seed=2)


def multi_head(**options: Any) -> nn.Module:
    """torch's multi-head attention, batch first."""
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)


def layer(kind: type = nn.TransformerEncoderLayer, **options: Any) -> nn.Module:
    """A layer of torch's Transformer without dropout."""
    return kind(WIDTH, HEADS, 48, dropout=0.0, batch_first=True, **options)


def stack(**options: Any) -> nn.Module:
    """Two encoder layers."""
    return nn.TransformerEncoder(layer(**options), 2, enable_nested_tensor=not options.get("norm_first", False))


class AdditiveStep(nn.Module):
    """A decoder's step of Bahdanau's attention, its scores squeezed to (B, K)."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.score = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16), nn.Linear(16, 1)

    def forward(self, state: Tensor, memory: Tensor) -> Tensor:
        """One state (B, W) over a memory (B, K, W)."""
        scores = self.score(torch.tanh(self.query(state)[:, None] + self.key(memory))).squeeze(-1)
        return torch.bmm(scores.softmax(-1)[:, None], memory)[:, 0]


class Pooling(nn.Module):
    """Attention pooling: one learned query over a sequence."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, K, W) to (B, W)."""
        return torch.einsum("bk,bkw->bw", self.score(x).squeeze(-1).softmax(-1), x)


class Weighted(nn.Module):
    """Attention with another function of the scores than softmax, or anything else done by hand."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function, self.projection = function, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Self-attention of four heads."""
        query, key, value = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.projection(x).chunk(3, -1))
        return (self.function(query @ key.mT / query.shape[-1] ** 0.5) @ value).transpose(1, 2).flatten(2)


class Fused(nn.Module):
    """torch's fused function alone, with these options."""

    def __init__(self, **options: Any):
        super().__init__()
        self.options, self.projection = options, nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Self-attention of four heads, over two of keys where `enable_gqa` is asked for."""
        query, key, value = (each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.projection(x).chunk(3, -1))
        if self.options.get("enable_gqa"):
            key, value = key[:, :2], value[:, :2]
        return functional.scaled_dot_product_attention(query, key, value, **self.options)


CASES: dict[str, tuple[Callable[[], nn.Module], Forward]] = {
    "MultiheadAttention": (multi_head, lambda m: m(X, X, X, need_weights=False)[0]),
    "MultiheadAttention, weights asked for": (multi_head, lambda m: m(X, X, X)),
    "MultiheadAttention, weights of each head": (multi_head, lambda m: m(X, X, X, average_attn_weights=False)),
    "MultiheadAttention, cross": (multi_head, lambda m: m(X, Y, Y, key_padding_mask=KEY_PADDING, need_weights=False)[0]),
    "MultiheadAttention, padding": (multi_head, lambda m: m(X, X, X, key_padding_mask=PADDING, need_weights=False)[0]),
    "MultiheadAttention, causal": (multi_head, lambda m: m(X, X, X, attn_mask=LATER, is_causal=True, need_weights=False)[0]),
    "MultiheadAttention, bias": (multi_head, lambda m: m(X, X, X, attn_mask=BIAS, key_padding_mask=PADDING.float() * -3)),
    "MultiheadAttention, bias_kv": (lambda: multi_head(add_bias_kv=True), lambda m: m(X, X, X)[0]),
    "MultiheadAttention, zero_attn": (lambda: multi_head(add_zero_attn=True), lambda m: m(X, X, X, need_weights=False)[0]),
    "MultiheadAttention, kdim and vdim": (lambda: multi_head(kdim=12, vdim=20), lambda m: m(X, noise(2, KEYS, 12), noise(2, KEYS, 20))[0]),
    "MultiheadAttention, no batch": (multi_head, lambda m: m(X[0], X[0], X[0])[0]),
    "MultiheadAttention, length first": (lambda: nn.MultiheadAttention(WIDTH, HEADS), lambda m: m(X, X, X)[0]),
    "MultiheadAttention, training": (lambda: multi_head().train(), lambda m: m(X, X, X)[0]),
    "TransformerEncoderLayer": (layer, lambda m: m(X)),
    "TransformerEncoderLayer, norm first": (lambda: layer(norm_first=True), lambda m: m(X)),
    "TransformerEncoderLayer, padding": (layer, lambda m: m(X, src_key_padding_mask=PADDING)),
    "TransformerEncoderLayer, causal": (layer, lambda m: m(X, src_mask=LATER, is_causal=True)),
    "TransformerEncoderLayer, gelu": (lambda: layer(activation="gelu"), lambda m: m(X)),
    "TransformerEncoderLayer, training": (lambda: layer().train(), lambda m: m(X)),
    "TransformerEncoder": (stack, lambda m: m(X)),
    "TransformerEncoder, padding": (stack, lambda m: m(X, src_key_padding_mask=PADDING)),
    "TransformerEncoder, causal": (stack, lambda m: m(X, mask=LATER, is_causal=True)),
    "TransformerEncoder, norm first, padding": (lambda: stack(norm_first=True), lambda m: m(X, src_key_padding_mask=PADDING)),
    "TransformerDecoderLayer": (lambda: layer(nn.TransformerDecoderLayer), lambda m: m(X, Y)),
    "TransformerDecoder, causal": (
        lambda: nn.TransformerDecoder(layer(nn.TransformerDecoderLayer), 2),
        lambda m: m(X, Y, tgt_mask=LATER, memory_key_padding_mask=KEY_PADDING, tgt_is_causal=True),
    ),
    "Transformer": (
        lambda: nn.Transformer(WIDTH, HEADS, 2, 2, 48, dropout=0.0, batch_first=True),
        lambda m: m(Y, X, tgt_mask=LATER.float().masked_fill(LATER, -torch.inf)),
    ),
    "Transformer, padding": (
        lambda: nn.Transformer(WIDTH, HEADS, 2, 2, 48, dropout=0.0, batch_first=True),
        lambda m: m(Y, X, tgt_mask=LATER, src_key_padding_mask=KEY_PADDING, memory_key_padding_mask=KEY_PADDING),
    ),
    "scaled_dot_product_attention": (Fused, lambda m: m(X)),
    "scaled_dot_product_attention, causal": (lambda: Fused(is_causal=True), lambda m: m(X)),
    "scaled_dot_product_attention, mask": (lambda: Fused(attn_mask=~LATER), lambda m: m(X)),
    "scaled_dot_product_attention, bias and scale": (lambda: Fused(attn_mask=BIAS, scale=0.3), lambda m: m(X)),
    "scaled_dot_product_attention, grouped": (lambda: Fused(enable_gqa=True), lambda m: m(X)),
    "scaled_dot_product_attention, a row of nothing": (lambda: Fused(attn_mask=LATER.T), lambda m: m(X)),
    "additive decoder step": (AdditiveStep, lambda m: m(X[:, 0], Y)),
    "attention pooling": (Pooling, lambda m: m(X)),
    "softmax by hand": (lambda: Weighted(lambda s: s.softmax(-1)), lambda m: m(X)),
    "softmax by exp and sum": (lambda: Weighted(lambda s: s.exp() / s.exp().sum(-1, keepdim=True)), lambda m: m(X)),
    "sigmoid weights": (lambda: Weighted(torch.sigmoid), lambda m: m(X)),
    "squared relu weights": (lambda: Weighted(lambda s: functional.relu(s) ** 2), lambda m: m(X)),
    "softmax, renormalized after a mask": (
        lambda: Weighted(lambda s: (w := s.softmax(-1) * ~LATER) / w.sum(-1, keepdim=True)),
        lambda m: m(X),
    ),
    "softmax of the largest three": (
        lambda: Weighted(lambda s: s.masked_fill(s < s.topk(3).values[..., -1:], -torch.inf).softmax(-1)),
        lambda m: m(X),
    ),
}  # fmt: skip


def run_all(name: str) -> dict[str, Any]:
    """What is said of one case: recorded on torch's plain path and on its fused one, and with overt's layers in the place of torch's."""
    build, forward = CASES[name]

    def model() -> nn.Module:
        torch.manual_seed(0)
        module = build()
        for parameter in module.parameters():
            parameter.mul_(1.5)
        return module if "training" in name else module.eval()

    def run(module: nn.Module) -> dict[str, Tensor]:
        output = forward(module)
        return {str(index): each for index, each in enumerate(output if isinstance(output, tuple) else (output,))}

    def plainly(module: nn.Module) -> dict[str, Tensor]:
        with sdpa_kernel(SDPBackend.MATH):
            return run(module)

    facts = {
        "class": type(model()).__name__,
        "kind": "vectors",
        "parameters": sum(each.numel() for each in model().parameters()),
    }
    ways: dict[str, Verdict] = {"recording eager": of_recording(model(), plainly), "recording sdpa": of_recording(model(), run)}
    if any(isinstance(each, nn.MultiheadAttention) for each in model().modules()):
        ways["backend"] = of_replaced(model, run, ~PADDING if "padding" in name else None)
    return facts | {way: verdict.plain() for way, verdict in ways.items()}
