"""The parts of a Transformer: what words are read as, and the two layers that are stacked.

    encoder layer: self-attention → feed-forward                    decoder layer: self-attention → cross-attention → feed-forward

Each sublayer stands beside a path on which its input goes by (`Residual`), so that a layer only adds to what it reads.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from overt.attention import check
from overt.errors import InputError
from overt.layers import KVCache, LearnedPositions, MultiHeadAttention, Prepared, Sinusoidal
from overt.layers.parts.checks import widths
from overt.models.dropout import Dropout

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}
NORMS = ("pre", "post")
AT_THE_BOTTOM = ("sinusoidal", "learned")  # positions that are added to the words; the others act in every attention


class TokenEmbedding(nn.Module):
    """Words as vectors that know their places: √width · table[token] + P_place, then dropout.

    Vaswani et al. 2017, sections 3.4 and 3.5. The table starts as normal numbers of deviation 1/√width, so that what is read has
    deviation 1, and the same table can score words at the top. `positions` "sinusoidal" or "learned" (for `longest` places) are added
    here; None and any other leave the words as they are.

    Shapes: tokens (B, n) whole numbers → (B, n, width); positions (n,) or (B, n), by default 0 to n − 1.

    >>> import torch
    >>> TokenEmbedding(100, 16)(torch.tensor([[1, 7, 2]])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(self, words: int, width: int, positions: str | None = "sinusoidal", dropout: float = 0.0, longest: int = 512):
        super().__init__()
        widths("TokenEmbedding", words=words, width=width, longest=longest)
        self.table = nn.Embedding(words, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.positions = Sinusoidal(width) if positions == "sinusoidal" else None
        self.positions = LearnedPositions(longest, width) if positions == "learned" else self.positions
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """The vector of each token: (B, n, width)."""
        x = self.table(tokens) * self.table.embedding_dim**0.5  # (B, n, width)
        return self.dropout(x if self.positions is None else self.positions(x, positions))


class Residual(nn.Module):
    """A sublayer f beside its input: x + dropout(f(norm(x))), or with "post" norm(x + dropout(f(x))).

    "post" is Vaswani et al. 2017, section 5.4. With "pre" nothing stands on the path from bottom to top, so deep stacks train
    without a careful warm-up (Xiong et al. 2020, section 3).

    >>> import torch
    >>> around = Residual(4, norm="pre")
    >>> torch.equal(around(torch.ones(2, 4), torch.zeros_like), torch.ones(2, 4))
    True
    """

    def __init__(self, width: int, norm: str = "pre", dropout: float = 0.0):
        super().__init__()
        check.one_of("norm", norm, NORMS)
        self.first = norm == "pre"
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """What the sublayer adds to x, and x."""
        if self.first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """Two linear layers with an activation between, the same at every position: W_2 act(W_1 x + b_1) + b_2.

    Vaswani et al. 2017, section 3.3. `activation` is "relu", "gelu" or "silu".

    >>> import torch
    >>> FeedForward(16, 64)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, hidden: int, activation: str = "relu"):
        super().__init__()
        widths("FeedForward", width=width, feed_forward=hidden)
        check.one_of("activation", activation, ACTIVATIONS)
        self.widen, self.activation, self.narrow = nn.Linear(width, hidden), ACTIVATIONS[activation](), nn.Linear(hidden, width)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) → (..., width)."""
        return self.narrow(self.activation(self.widen(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer, each in a residual. With `causal` a position sees only those before it.

    Vaswani et al. 2017, section 3.1. What is not named here is `MultiHeadAttention`'s.

    Shapes: x (B, n, width) → the same; lengths (B,). With a `cache` the n tokens go on from those before.

    >>> import torch
    >>> EncoderLayer(16, heads=2, feed_forward=32)(torch.randn(2, 5, 16), lengths=torch.tensor([5, 3])).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        *,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **attention: Any,
    ):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=attention_dropout, **attention)
        self.feed_forward = FeedForward(width, feed_forward, activation)
        self.around_attention = Residual(width, norm, dropout)
        self.around_feed_forward = Residual(width, norm, dropout)

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """What each position has learnt of the others."""
        x = self.around_attention(x, lambda x: self.attention(x, lengths=lengths, cache=cache))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to an encoder's states, then the feed-forward layer, each in a residual.

    Vaswani et al. 2017, section 3.1. `positions` act in the self-attention: an encoder's states have no place among the targets.

    Shapes: x (B, n, width), the encoder's states `cross.prepare(states, lengths=…)` → (B, n, width). With a `cache` the n tokens
    go on from those before.

    >>> import torch
    >>> layer = DecoderLayer(16, heads=2, feed_forward=32)
    >>> source = layer.cross_attention.prepare(torch.randn(2, 7, 16))
    >>> layer(torch.randn(2, 5, 16), source).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        *,
        kv_heads: int | None = None,
        positions: str | None = None,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        shared = {"kv_heads": kv_heads, "dropout": attention_dropout}
        self.self_attention = MultiHeadAttention(width, heads, positions=positions, causal=True, **shared)
        self.cross_attention = MultiHeadAttention(width, heads, **shared)
        self.feed_forward = FeedForward(width, feed_forward, activation)
        self.around_self_attention = Residual(width, norm, dropout)
        self.around_cross_attention = Residual(width, norm, dropout)
        self.around_feed_forward = Residual(width, norm, dropout)

    def forward(self, x: Tensor, source: Prepared, *, cache: KVCache | None = None) -> Tensor:
        """What each target position has learnt of those before it and of the source."""
        x = self.around_self_attention(x, lambda x: self.self_attention(x, cache=cache))
        x = self.around_cross_attention(x, lambda x: self.cross_attention(x, source))
        return self.around_feed_forward(x, self.feed_forward)


def tie(output: nn.Linear, source: TokenEmbedding, target: TokenEmbedding, tied: str | None) -> None:
    """Make one matrix of the scores' and the target's embedding ("target"), of the source's too ("all"), or of none (None).

    Press and Wolf 2017, section 3; Vaswani et al. 2017, section 3.4.
    """
    check.one_of("tied", tied, ("all", "target", None))
    words, others = source.table.num_embeddings, target.table.num_embeddings
    if tied == "all" and words != others:
        raise InputError(
            "one matrix for source, target and output needs one vocabulary for both languages",
            got=f"source_words={words}, target_words={others}",
            fix='use joint tokens, or tied="target"',
        )
    if tied is not None:
        output.weight = target.table.weight
    if tied == "all":
        source.table.weight = target.table.weight
